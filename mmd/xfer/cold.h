/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xcold - a tenant's cold blocks on their way to the device
 *
 * Concept:   The entries of cold blocks lie in the swap space, one after the other, each with a row
 *            of unit bytes per layer. Before a layer is read, the rows that live entries have for
 *            it are copied into the cold window (libclient/protocol/cold.h). Which entries are live
 *            is read once for each layer that a class brings in (mm_xrows_choose()); a run of live
 *            rows is one copy with pitches. For these copies xfer maps the window's pages once
 *            more, side by side, since a copy of rows would else end at every page.
 * Ownership: the tenant owns its mm_xcold. Rows do not change while a transfer has them; a window
 *            is mapped as long as a plan with it is served, or a copy into it is under way.
 * Trust:     core's numbers are checked (mm_xcold_check()). The bitmap is the tenant's, which may
 *            write it at any time: each word is read once, bits beyond the entries do not count,
 *            and what the bits say decides only which of its own bytes the tenant gets.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/protocol/xplan.h"
#include "mmd/xfer/pool.h"
#include "mmd/xfer/swap.h"

struct mm_xwindow {
	const struct mm_xpool *pool;
	CUdeviceptr va; /* 0: not mapped */
	uint32_t n_pages;
	uint32_t page[MM_SLOT_PAGES_MAX];
};

/* Where the rows of one layer are: those of entry 0, and how far from there to the next one. */
struct mm_xplace {
	struct mm_xswap *swap;
	uint64_t from, from_pitch; /* byte of the swap space */
	CUdeviceptr to_va;         /* in the window */
	uint64_t to_pitch;
	uint64_t width; /* bytes of a row */
};

/* The rows of one layer: those of live entries are copied from the swap space to the window. */
struct mm_xrows {
	uint64_t version; /* of the live bitmap */
	uint32_t entries; /* bits of live[] */
	uint32_t count;   /* bits of live[] that are set */
	struct mm_xplace at;
	uint32_t next;      /* entry whose row is issued next */
	uint64_t next_done; /* bytes of it that are issued */
	uint64_t live[MM_COLD_MAX / 64];
};

struct mm_xcold {
	struct mm_xwindow window, next; /* of the plan that is served; of that which follows it */
	struct mm_xswap *swap;          /* of the tenant, once a plan has cold blocks */
	struct mm_xrows rows[MM_COLD_CLASSES_MAX]; /* by class */
};

/**
 * mm_xcold_check() - whether cold blocks can be streamed as a plan says
 * @plan: a private copy; its n_layers is within bounds, and it has classes
 * @swap: NULL: the tenant has no swap space
 *
 * Return: 0; -EINVAL: some number of @plan is out of bounds.
 */
int mm_xcold_check(const struct mm_xplan_region *plan, const struct mm_xpool *pool,
		   const struct mm_xswap *swap);

/**
 * mm_xcold_prepare() - map the window of a plan that is to be served next, if it is another one
 * @plan: checked, with classes or without
 *
 * A window that was prepared before and is another one is unmapped. Return: 0; -ENOMEM.
 */
int mm_xcold_prepare(struct mm_xcold *cold, const struct mm_xpool *pool,
		     const struct mm_xplan_cold *plan);

/* @plan, which was prepared, is served from now on. No copy into another window is under way. */
void mm_xcold_take(struct mm_xcold *cold, const struct mm_xplan_cold *plan, struct mm_xswap *swap);

/* Unmaps all. No copy into a window may be under way. */
void mm_xcold_release(struct mm_xcold *cold);

/* True if @page is in a window that is mapped. */
bool mm_xcold_has_page(const struct mm_xcold *cold, uint32_t page);

/*
 * Reads @live: its version, then the limit at @limit_at, then the bits. Of the first @entries so
 * many count, the lowest first.
 */
void mm_xrows_choose(struct mm_xrows *rows, const struct mm_cold_live *live, uint32_t entries,
		     const uint64_t *limit_at);

/* A copy of the rows that were chosen begins. */
void mm_xrows_begin(struct mm_xrows *rows, const struct mm_xplace *at);

/* A chunk of these rows is of whole ones, if it has room for one. */
uint64_t mm_xrows_chunk_bytes(const struct mm_xrows *rows, uint64_t chunk_bytes);

/*
 * Makes one driver call for at most @bytes_max of the bytes that are not issued yet. There are
 * some.
 */
int mm_xrows_issue(struct mm_xrows *rows, uint64_t bytes_max, uint64_t *ret_bytes);
