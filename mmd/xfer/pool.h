/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xpool - the pages of the pool, created and mapped
 *
 * Concept:   A page is one cuMemCreate handle, mapped read-write at base + id * page_bytes of one
 *            reserve for the whole pool, so that its address never changes. An absent page (not
 *            created yet, or dropped by a recreate that failed) has no mapping.
 * Ownership: handles and mappings are the pool's; exported fds are the caller's to close.
 * Threading: one thread.
 * Invariants: there[i] means created or adopted, mapped and accessible.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mmd/xfer/device.h"

struct mm_xpool {
	struct mm_xdev *dev;
	CUdeviceptr base_va;
	uint64_t page_bytes;
	uint32_t pages;
	CUmemGenericAllocationHandle *handle;
	bool *there;
};

/**
 * mm_xpool_init() - reserve the addresses; no page is there yet
 * @pool:       zeroed
 * @dev:        opened; must outlive the pool
 * @page_bytes: multiple of the granularity
 * @pages:      not 0
 *
 * Return: 0; -ENOMEM.
 */
int mm_xpool_init(struct mm_xpool *pool, struct mm_xdev *dev, uint64_t page_bytes, uint32_t pages);
void mm_xpool_done(struct mm_xpool *pool);

static inline bool mm_xpool_has(const struct mm_xpool *pool, uint64_t page)
{
	return page < pool->pages && pool->there[page];
}

static inline CUdeviceptr mm_xpool_va(const struct mm_xpool *pool, uint32_t page)
{
	return pool->base_va + (uint64_t)page * pool->page_bytes;
}

/**
 * mm_xpool_create() - create the pages @page[0 .. @count) that are not there
 * @ret_fds: one exported fd per page, the caller's; written only on success
 *
 * All of @page must be absent. Return: 0; -ENOMEM the device is full; then none was created.
 */
int mm_xpool_create(struct mm_xpool *pool, const uint32_t *page, size_t count, int *ret_fds);

/*
 * Imports pages that an earlier xfer created, except those that are there already; @fds stay the
 * caller's.
 */
int mm_xpool_adopt(struct mm_xpool *pool, const uint32_t *page, const int *fds, size_t count);

/* Drops every reference of ours to @page; its memory remains while another process holds it. */
void mm_xpool_drop(struct mm_xpool *pool, uint32_t page);
