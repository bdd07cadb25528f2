/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_vm_tables - the tables behind sg_vm, for the files that implement it
 *
 * Concept:    vm.c has addresses and mappings, vm_handle.c the handles of allocations, vm_owned.c
 *             the memory of cuMemAlloc().
 * Ownership:  an allocation lives while a handle or a mapping refers to it.
 * Threading:  one lock guards all tables and everything that they point to. A page is closed
 *             without the lock, because that may wait for other processes.
 */
#pragma once

#include "kernels/softgpu/page.h"
#include "kernels/softgpu/range.h"
#include "kernels/softgpu/vm.h"
#include "libclient/support/lock.h"

struct sg_alloc {
	struct sg_page page;
	CUmemAllocationProp prop;
	uint32_t handle_refs; /* of cuMemCreate, import and retain; the handle is valid while > 0 */
	uint32_t map_refs;
	uint32_t slot; /* index in sg_vm.slots; an allocation keeps its slot for life */
	uint32_t generation;
	bool imported; /* made by whoever exported it, who alone can export it */
};

struct sg_mapping {
	struct sg_alloc *alloc;
	CUmemAccess_flags access;
	bool real; /* the page is mapped, whatever its protection */
	bool sync_memops;
	/*
	 * A reference. Memory of cuMemAlloc() owns its reservation, and goes with cuMemFree() or
	 * with this context; a mapping of cuMemMap() has NULL here.
	 */
	struct sg_context *owner;
};

struct sg_alloc_slot {
	struct sg_alloc *alloc; /* NULL = free */
	uint32_t generation;
	uint32_t next_free;
};

#define SG_NO_SLOT UINT32_MAX

/* "The lock" of these files: it guards the tables and all that they point to. */
extern struct mm_lock sg_vm_mutex;

extern struct sg_vm {
	struct sg_ranges reserved; /* no values */
	struct sg_ranges mapped;   /* values: struct sg_mapping */
	struct sg_alloc_slot *slots;
	uint32_t n_slots, free_slot;
} sg_vm MM_GUARDED_BY(sg_vm_mutex);

bool sg_vm_is_aligned(uint64_t value, uint64_t unit);
bool sg_vm_is_device(const CUmemLocation *location);

/* Return: the profile with the latencies of the device's calls. */
const struct mm_profile *sg_vm_profile(unsigned int device);

/* Reserves addresses, at @hint_va if that is possible. Return: 0, none were free. */
uint64_t sg_vm_reserve(size_t bytes, uint64_t alignment, uint64_t hint_va);

/* Takes over @page, also when it fails. The new allocation has one handle. */
CUresult sg_alloc_add(struct sg_page *page, const CUmemAllocationProp *prop,
		      struct sg_alloc **ret_alloc);

/* A handle has slot and generation, so that a released one never names the next allocation. */
CUmemGenericAllocationHandle sg_alloc_handle(const struct sg_alloc *a);

/* Return: NULL, @handle names no allocation. */
struct sg_alloc *sg_alloc_find(CUmemGenericAllocationHandle handle) MM_REQUIRES(sg_vm_mutex);

/*
 * Takes an allocation without references out of the tables; the caller closes
 * @ret_page when it has released the lock. An allocation with references stays, and @ret_page is
 * SG_PAGE_NULL.
 */
void sg_alloc_retire(struct sg_alloc *a, struct sg_page *ret_page) MM_REQUIRES(sg_vm_mutex);

/*
 * A mapping lies in one reservation; one that would cross into the next is
 * refused, as the driver does.
 */
CUresult sg_mapping_add(uint64_t va, struct sg_alloc *a, struct sg_context *owner,
			struct sg_mapping **ret_mapping) MM_REQUIRES(sg_vm_mutex);

/* @r: of sg_vm.mapped. The first access to a mapping really maps the page. */
CUresult sg_mapping_set_access(struct sg_range *r, CUmemAccess_flags access)
	MM_REQUIRES(sg_vm_mutex);

/*
 * Removes mappings [@first, @last) from the table. The caller closes @pages, one
 * for each mapping, when it has released the lock.
 */
void sg_mappings_drop(size_t first, size_t last, struct sg_page *pages) MM_REQUIRES(sg_vm_mutex);
