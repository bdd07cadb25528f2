/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapper - makes the device's page tables follow mmd's map table
 *
 * Concept:   A span is a run of table entries whose pages are adjacent at fixed addresses. The
 *            table gives the page of each entry; mm_mapper_apply() compares it with what is mapped
 *            and changes only the difference. Pages are whole handles, mapped at offset 0; a page
 *            may be mapped at several places (aliases: layers that share a slot).
 * Ownership: the mapper owns one handle per page id, from its import until its last mapping is
 *            removed. The caller owns reserved addresses.
 * Threading: one thread at a time (struct mm_client: map_lock).
 * Trust:     the table and the ids come from mmd and are checked before anything is changed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"
#include "mm/gpu.h"

struct mapped_page;

struct mm_mapper {
	const struct mm_gpu_api *gpu;
	CUdevice device;
	uint64_t page_bytes;
	uint32_t pool_pages;
	struct mapped_page *pages; /* by page id */
	uint32_t *have;            /* by entry: id + 1 of the page that is mapped, or 0 */
	uint32_t *want;            /* by entry: private copy of the table */
	uint32_t *loose; /* ids of pages that the current change has unmapped at some place */
	uint32_t n_loose;
};

struct mm_span {
	CUdeviceptr va;
	uint32_t entry; /* index in the table of the first of n_pages */
	uint32_t n_pages;
	bool writable;
	bool whole; /* the table must name a page for every entry */
};

/**
 * mm_mapper_init() - a mapper with nothing mapped
 * @mapper:     written only on success; give back with mm_mapper_done()
 * @gpu:        borrowed
 * @device:     device of the pages
 * @page_bytes: size of one handle
 * @pool_pages: page ids are below it
 *
 * Return: 0; -ENOMEM.
 */
int mm_mapper_init(struct mm_mapper *mapper, const struct mm_gpu_api *gpu, CUdevice device,
		   uint64_t page_bytes, uint32_t pool_pages);

/**
 * mm_mapper_done() - release the handles that are left; all spans must have been cleared
 * @mapper: an initialised or a zeroed one
 */
void mm_mapper_done(struct mm_mapper *mapper);

/**
 * mm_mapper_reserve() - reserve addresses for @n_pages pages, aligned for the largest device pages
 * @mapper:  any
 * @n_pages: not 0
 * @ret_va:  written only on success; give back with mm_mapper_unreserve()
 *
 * Return: 0; -ENOMEM.
 */
int mm_mapper_reserve(struct mm_mapper *mapper, uint64_t n_pages, CUdeviceptr *ret_va);
void mm_mapper_unreserve(struct mm_mapper *mapper, CUdeviceptr va, uint64_t n_pages);

/**
 * mm_mapper_import() - import an exported page
 * @mapper: any
 * @page:   the page's id
 * @fd:     closed in every case
 *
 * A page that is mapped keeps the handle that it has: both are of the same memory. Return: 0;
 * -EPROTO no such id; -ENOMEM; or mm_gpu_errno() of the driver's result.
 */
int mm_mapper_import(struct mm_mapper *mapper, uint32_t page, int fd);

/**
 * mm_mapper_apply() - map @spans by @table
 * @mapper:  any
 * @spans:   @n_spans of them
 * @table:   MM_MAP_ENTRIES long, shared with mmd; NULL = nothing is to be mapped
 *
 * Releases the handles of pages that are no longer mapped anywhere. Return: 0; -EPROTO the table
 * names a page that does not exist; -ENOENT it names a page that never arrived, or none for a span
 * that must be whole; in both cases nothing was changed; or mm_gpu_errno() of the driver's result:
 * the change is incomplete, and apply may be called again.
 */
int mm_mapper_apply(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		    const uint32_t *table);

/**
 * mm_mapper_read() - the first half of mm_mapper_apply(): copy the table
 * @mapper: any
 * @spans:  @n_spans of them
 * @table:  as for mm_mapper_apply()
 *
 * Return: 0; -EPROTO; -ENOENT: as mm_mapper_apply().
 */
int mm_mapper_read(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		   const uint32_t *table);

/*
 * The second half in parts, in any order: maps what was read, for some of the spans. Handles whose
 * last mapping is removed are kept until mm_mapper_change_end().
 */
int mm_mapper_change_part(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans);
void mm_mapper_change_end(struct mm_mapper *mapper);
/* Whether any entry of @span is to be changed. */
bool mm_mapper_changes(const struct mm_mapper *mapper, const struct mm_span *span);

/*
 * The second half: maps what was read. Return: 0, or mm_gpu_errno() of the driver's result; it may
 * then be called again.
 */
int mm_mapper_change(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans);

/*
 * After a change that failed, maps any page wherever none is mapped, so that a stream that
 * continues does not fault there. Entries that cannot be mapped stay as they are.
 */
void mm_mapper_patch(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans);

/*
 * Maps @page, which is held, wherever nothing is mapped. Return: 0, or mm_gpu_errno() of the
 * driver's result: some entries are still without a page; it may be called again.
 */
int mm_mapper_fill(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		   uint32_t page);

/* The page that is mapped at an entry of the table; -ENOENT: none. */
int mm_mapper_page(const struct mm_mapper *mapper, uint32_t entry, uint32_t *ret_page);

/**
 * mm_mapper_shared() - find spans that share a page with another one, by the table read last
 * @mapper:     any
 * @spans:      @n_spans of them, fewer than UINT16_MAX
 * @ret_shared: @n_spans flags
 */
void mm_mapper_shared(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		      bool *ret_shared);
