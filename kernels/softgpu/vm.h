/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_vm - device virtual addresses of this process, and what is mapped there
 *
 * Concept:    a device address is the host address of the same bytes. A reservation is PROT_NONE
 *             memory; a mapping binds a whole handle to a part of it; its bytes become accessible
 *             when access is set, which really maps the page.
 * Ownership:  an allocation is held by its handle (counted references) and by its mappings. The
 *             page is closed with the last of them.
 * Threading:  everything is safe from any thread; one lock guards all tables. Nothing here waits
 *             for device work: unmapping under a running kernel faults that kernel.
 * Invariants: mappings lie inside one reservation, whole granules, never overlapping.
 * Limits:     one descriptor per allocation; the kernel's 65,530 mappings per process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/gpu.h"

struct sg_context;

/* All that is known about one device address. */
struct sg_vm_info {
	bool reserved, mapped;
	bool sync_memops;                /* set by cuPointerSetAttribute() */
	bool legacy;                     /* memory of sg_vm_alloc() */
	uint64_t range_start, range_end; /* bounds of the reservation */
	uint64_t start, end;             /* bounds of the mapping; zero if there is none */
	CUmemAccess_flags access;
	CUmemAllocationHandleType handle_types;
	uint64_t block_id;
	unsigned int device; /* device of the mapped memory */
	uint64_t inode;
};

struct sg_vm_info sg_vm_describe(uint64_t va);

/* Sets it for the whole allocation that is mapped at @va. Return: false, none is. */
bool sg_vm_set_sync_memops(uint64_t va, bool on);

/* Return: whether all of the range is mapped, with access to read, or to write. */
bool sg_vm_allows(uint64_t va, uint64_t bytes, bool writes);

/*
 * Allocates zeroed whole host pages, accessible at once, as cuMemAlloc() does. They end with
 * @owner.
 */
CUresult sg_vm_alloc(struct sg_context *owner, size_t bytes, uint64_t *ret_va);
CUresult sg_vm_free(uint64_t va);
/*
 * Return: the context that owns the memory beginning at @va, as a reference; NULL: it is not from
 * sg_vm_alloc().
 */
struct sg_context *sg_vm_owner(uint64_t va);
/*
 * Frees all memory that @owner has from sg_vm_alloc(). Handles, reservations and mappings belong to
 * no context.
 */
void sg_vm_free_owned(const struct sg_context *owner);

/*
 * Orders values and mappings. A value that a stream writes comes after all earlier work of the
 * stream; work after a wait for a value comes after all mappings made before. Another process may
 * be between the two, and neither the memory model nor a sanitizer knows its part: both ends, and
 * every change of mappings, call this.
 */
void sg_vm_order(void);

/* Drops all mappings and allocations of this process; work that still runs faults. */
void sg_vm_drop_all(void);
