/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapper - makes the device's page tables follow mmd's map table
 *
 * Concept:   A span is a run of table entries whose pages lie side by side at fixed addresses. The
 *            table says which page belongs where; mm_mapper_apply() compares that with what is
 *            mapped and changes only the difference. Pages are whole handles, mapped at offset 0; a
 *            page may be mapped at several places (aliases: layers that share a slot).
 * Ownership: the mapper owns one handle per page id, from its import until its last mapping goes.
 *            The caller owns reserved addresses.
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
	uint32_t *have;            /* by entry: page id + 1 that is mapped there, or 0 */
	uint32_t *want;            /* by entry: private copy of the table */
	uint32_t *loose;           /* page ids that one apply has unmapped somewhere */
	uint32_t n_loose;
};

struct mm_span {
	CUdeviceptr va;
	uint32_t entry; /* first of n_pages in the table */
	uint32_t n_pages;
	bool writable;
	bool whole; /* the table must name a page for every entry */
};

/**
 * mm_mapper_init() - a mapper with nothing mapped
 * @mapper:     written only on success; give back with mm_mapper_done()
 * @gpu:        borrowed
 * @device:     that the pages are on
 * @page_bytes: of one handle
 * @pool_pages: ids are below
 *
 * Return: 0; -ENOMEM.
 */
int mm_mapper_init(struct mm_mapper *mapper, const struct mm_gpu_api *gpu, CUdevice device,
		   uint64_t page_bytes, uint32_t pool_pages);

/**
 * mm_mapper_done() - release the handles that are left; all spans must have been cleared
 * @mapper: or zeroed
 */
void mm_mapper_done(struct mm_mapper *mapper);

/**
 * mm_mapper_reserve() - addresses for @n_pages pages, aligned for the largest device pages
 * @mapper:  any
 * @n_pages: not 0
 * @ret_va:  written only on success; give back with mm_mapper_unreserve()
 *
 * Return: 0; -ENOMEM.
 */
int mm_mapper_reserve(struct mm_mapper *mapper, uint64_t n_pages, CUdeviceptr *ret_va);
void mm_mapper_unreserve(struct mm_mapper *mapper, CUdeviceptr va, uint64_t n_pages);

/**
 * mm_mapper_import() - take in an exported page
 * @mapper: any
 * @page:   its id
 * @fd:     closed in every case
 *
 * A page that is mapped keeps the handle that it has: it is the same memory. Return: 0; -EPROTO no
 * such id; or what the driver says.
 */
int mm_mapper_import(struct mm_mapper *mapper, uint32_t page, int fd);

/**
 * mm_mapper_apply() - map @spans as @table says
 * @mapper:  any
 * @spans:   @n_spans of them
 * @table:   MM_MAP_ENTRIES long, shared with mmd; NULL = nothing is to be mapped
 *
 * Handles of pages that are mapped nowhere any more are released. Return: 0; -EPROTO the table
 * names a page that does not exist; -ENOENT one that never arrived, or none for a span that must be
 * whole: nothing was changed in both cases; or what the driver says: the change is incomplete, and
 * apply may be called again.
 */
int mm_mapper_apply(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		    const uint32_t *table);

/**
 * mm_mapper_read() - the first half of mm_mapper_apply(): take the table in
 * @mapper: any
 * @spans:  @n_spans of them
 * @table:  as for mm_mapper_apply()
 *
 * Return: 0; -EPROTO; -ENOENT: as mm_mapper_apply().
 */
int mm_mapper_read(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		   const uint32_t *table);

/*
 * The second half in parts, in any order: map what was read for some of the spans. Handles that
 * lose their last place are kept until mm_mapper_change_end().
 */
int mm_mapper_change_part(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans);
void mm_mapper_change_end(struct mm_mapper *mapper);
/* Is anything of @span to be changed? */
bool mm_mapper_changes(const struct mm_mapper *mapper, const struct mm_span *span);

/* The second half: map what was read. Return: 0, or what the driver says: may be called again. */
int mm_mapper_change(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans);

/*
 * After a change that failed: wherever nothing is mapped, any page will do, so that a stream that
 * is let go does not fault there. What cannot be mapped stays as it is.
 */
void mm_mapper_patch(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans);

/**
 * mm_mapper_shared() - which spans share a page with another one, by the table that was read last
 * @mapper:     any
 * @spans:      @n_spans of them, fewer than UINT16_MAX
 * @ret_shared: @n_spans flags
 */
void mm_mapper_shared(struct mm_mapper *mapper, const struct mm_span *spans, size_t n_spans,
		      bool *ret_shared);
