/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_vm - device virtual addresses of this process, and what is mapped there
 *
 * Concept:    a device address is the host address of the same bytes. A reservation is PROT_NONE
 *             memory; a mapping binds a whole handle to a part of it; its bytes become accessible
 *             when access is set, which is when the page is really mapped.
 * Ownership:  an allocation is held by its handle (counted references) and by its mappings. The
 *             page is given up with the last of them.
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

/* What is known of one device address. */
struct sg_vm_info {
	bool reserved, mapped;
	bool sync_memops;                /* cuPointerSetAttribute() */
	bool legacy;                     /* of sg_vm_alloc() */
	uint64_t range_start, range_end; /* of its reservation */
	uint64_t start, end;             /* of its mapping; zero if there is none */
	CUmemAccess_flags access;
	CUmemAllocationHandleType handle_types;
	uint64_t block_id;
	unsigned int device; /* of the mapped memory */
	uint64_t inode;
};

struct sg_vm_info sg_vm_describe(uint64_t va);

/* For the whole allocation that is mapped at @va. Return: false, none is. */
bool sg_vm_set_sync_memops(uint64_t va, bool on);

/* Is all of it mapped, with access to read, or to write? */
bool sg_vm_allows(uint64_t va, uint64_t bytes, bool writes);

/*
 * Memory as cuMemAlloc() gives it: zeroed whole host pages, accessible at once; it ends with
 * @owner.
 */
CUresult sg_vm_alloc(struct sg_context *owner, size_t bytes, uint64_t *ret_va);
CUresult sg_vm_free(uint64_t va);
/* The context of what begins there, as a reference; NULL: it is not of sg_vm_alloc(). */
struct sg_context *sg_vm_owner(uint64_t va);
/*
 * Frees all that @owner's sg_vm_alloc() gave: handles, reservations and mappings belong to no
 * context.
 */
void sg_vm_free_owned(const struct sg_context *owner);

/*
 * What a stream writes as a value is behind all that it did; what a wait for a value lets run is
 * behind all that was mapped before. Between the two may stand another process, whose part in it
 * neither the memory model nor a sanitizer sees: both ends, and every change of mappings, pass
 * through here.
 */
void sg_vm_order(void);

/* Drops all mappings and allocations of this process; what still runs faults. */
void sg_vm_drop_all(void);
