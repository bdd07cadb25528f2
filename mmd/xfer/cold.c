/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/cold.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "libclient/support/fault.h"

/* ---- plans ---- */

static bool cold_window_fits(const struct mm_xplan_region *plan, uint64_t window_bytes)
{
	const struct mm_xplan_cold *cold = &plan->cold;

	return mm_cold_window_entries(cold->classes, plan->n_layers, cold->unit_bytes,
				      window_bytes) >= cold->entries;
}

int mm_xcold_check(const struct mm_xplan_region *plan, const struct mm_xpool *pool,
		   const struct mm_xswap *swap)
{
	const struct mm_xplan_cold *cold = &plan->cold;

	if (cold->classes < 2 || cold->classes > MM_COLD_CLASSES_MAX ||
	    plan->n_layers / 2 < cold->classes)
		return -EINVAL;
	if (cold->unit_bytes == 0 || cold->unit_bytes % MM_COLD_UNIT_BYTES || cold->entries == 0 ||
	    cold->entries > MM_COLD_MAX)
		return -EINVAL;
	if (!swap || cold->unit_bytes > swap->bytes / plan->n_layers / cold->entries)
		return -EINVAL;
	if (cold->n_pages == 0 || cold->n_pages > MM_SLOT_PAGES_MAX ||
	    !cold_window_fits(plan, cold->n_pages * pool->page_bytes))
		return -EINVAL;
	for (uint32_t i = 0; i < cold->n_pages; i++)
		if (!mm_xpool_has(pool, cold->page[i]))
			return -EINVAL;
	return 0;
}

/* ---- windows ---- */

static void window_unmap_pages(const struct mm_xwindow *window, uint32_t n_pages)
{
	const struct mm_xpool *pool = window->pool;

	for (uint32_t i = 0; i < n_pages; i++)
		(void)mm_xdev_result(pool->dev, "cuMemUnmap",
				     pool->dev->gpu.cuMemUnmap(window->va + i * pool->page_bytes,
							       pool->page_bytes));
}

static void window_free(struct mm_xwindow *window)
{
	const struct mm_xpool *pool = window->pool;

	if (window->va)
		(void)mm_xdev_result(pool->dev, "cuMemAddressFree",
				     pool->dev->gpu.cuMemAddressFree(
					     window->va, window->n_pages * pool->page_bytes));
	window->va = 0;
}

static void window_unmap(struct mm_xwindow *window)
{
	if (window->va)
		window_unmap_pages(window, window->n_pages);
	window_free(window);
}

static int window_reserve(struct mm_xwindow *window)
{
	const struct mm_xpool *pool = window->pool;
	size_t alignment = pool->page_bytes & (pool->page_bytes - 1) ? 0 : pool->page_bytes;
	CUdeviceptr va;
	int r;

	if (mm_fault("xfer.window"))
		return -ENOMEM;
	r = mm_xdev_result(pool->dev, "cuMemAddressReserve",
			   pool->dev->gpu.cuMemAddressReserve(
				   &va, window->n_pages * pool->page_bytes, alignment, 0, 0));
	if (r == 0)
		window->va = va;
	return r;
}

static int window_map_page(const struct mm_xwindow *window, uint32_t i)
{
	const struct mm_xpool *pool = window->pool;

	if (mm_fault("xfer.window_map"))
		return -ENOMEM;
	return mm_xdev_result(pool->dev, "cuMemMap",
			      pool->dev->gpu.cuMemMap(window->va + i * pool->page_bytes,
						      pool->page_bytes, 0,
						      pool->handle[window->page[i]], 0));
}

static int window_set_access(const struct mm_xwindow *window)
{
	const struct mm_xpool *pool = window->pool;
	const CUmemAccessDesc desc = { .location = pool->dev->prop.location,
				       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	if (mm_fault("xfer.window_access"))
		return -ENOMEM;
	return mm_xdev_result(pool->dev, "cuMemSetAccess",
			      pool->dev->gpu.cuMemSetAccess(
				      window->va, window->n_pages * pool->page_bytes, &desc, 1));
}

/* @window is not mapped. */
static int window_map(struct mm_xwindow *window, const struct mm_xpool *pool,
		      const struct mm_xplan_cold *plan)
{
	uint32_t n = 0;
	int r;

	window->pool = pool;
	window->n_pages = plan->n_pages;
	memcpy(window->page, plan->page, plan->n_pages * sizeof(plan->page[0]));
	r = window_reserve(window);
	while (r == 0 && n < window->n_pages) {
		r = window_map_page(window, n);
		n += r == 0;
	}
	if (r == 0)
		r = window_set_access(window);
	if (r == 0)
		return 0;
	window_unmap_pages(window, n);
	window_free(window);
	return r;
}

static bool window_is(const struct mm_xwindow *window, const struct mm_xplan_cold *plan)
{
	return window->va && window->n_pages == plan->n_pages &&
	       memcmp(window->page, plan->page, plan->n_pages * sizeof(plan->page[0])) == 0;
}

static bool window_has_page(const struct mm_xwindow *window, uint32_t page)
{
	for (uint32_t i = 0; window->va && i < window->n_pages; i++)
		if (window->page[i] == page)
			return true;
	return false;
}

int mm_xcold_prepare(struct mm_xcold *cold, const struct mm_xpool *pool,
		     const struct mm_xplan_cold *plan)
{
	if (plan->classes > 0 && window_is(&cold->next, plan))
		return 0;
	window_unmap(&cold->next);
	if (plan->classes == 0 || window_is(&cold->window, plan))
		return 0;
	return window_map(&cold->next, pool, plan);
}

void mm_xcold_take(struct mm_xcold *cold, const struct mm_xplan_cold *plan, struct mm_xswap *swap)
{
	cold->swap = plan->classes > 0 ? swap : NULL;
	if (plan->classes > 0 && window_is(&cold->window, plan))
		return;
	window_unmap(&cold->window);
	cold->window = cold->next;
	cold->next.va = 0;
}

void mm_xcold_release(struct mm_xcold *cold)
{
	window_unmap(&cold->window);
	window_unmap(&cold->next);
}

bool mm_xcold_has_page(const struct mm_xcold *cold, uint32_t page)
{
	return window_has_page(&cold->window, page) || window_has_page(&cold->next, page);
}

/* ---- rows ---- */

/* Returns @bits with the lowest @limit of them. */
static uint64_t bits_lowest(uint64_t bits, uint64_t limit)
{
	if (limit == 0)
		return 0;
	while ((uint64_t)__builtin_popcountll(bits) > limit)
		bits &= ~(UINT64_C(1) << (63 - __builtin_clzll(bits)));
	return bits;
}

/*
 * The version first: the bits are those of it, or of a later one; and so is the limit, since a
 * tenant makes no entry live before it was told that it may.
 */
void mm_xrows_choose(struct mm_xrows *rows, const struct mm_cold_live *live, uint32_t entries,
		     const uint64_t *limit_at)
{
	uint64_t limit;

	rows->version = __atomic_load_n(&live->version, __ATOMIC_ACQUIRE);
	limit = __atomic_load_n(limit_at, __ATOMIC_ACQUIRE);
	rows->entries = entries;
	rows->count = 0;
	for (uint32_t w = 0; w < mm_div_up(entries, 64); w++) {
		uint64_t bits = __atomic_load_n(&live->live[w], __ATOMIC_RELAXED);

		if (w == entries / 64)
			bits &= (UINT64_C(1) << entries % 64) - 1;
		rows->live[w] = bits_lowest(bits, limit - rows->count);
		rows->count += (uint32_t)__builtin_popcountll(rows->live[w]);
	}
}

void mm_xrows_begin(struct mm_xrows *rows, const struct mm_xplace *at)
{
	rows->at = *at;
	rows->next = 0;
	rows->next_done = 0;
}

/* The first entry from @entry on whose bit is @set, or the number of entries. */
static uint32_t rows_find(const struct mm_xrows *rows, uint32_t entry, bool set)
{
	while (entry < rows->entries) {
		uint64_t word = rows->live[entry / 64];
		uint64_t bits = (set ? word : ~word) >> entry % 64;

		if (bits)
			return MM_MIN(entry + (uint32_t)__builtin_ctzll(bits), rows->entries);
		entry = (entry / 64 + 1) * 64;
	}
	return rows->entries;
}

uint64_t mm_xrows_chunk_bytes(const struct mm_xrows *rows, uint64_t chunk_bytes)
{
	return rows->at.width < chunk_bytes ? chunk_bytes - chunk_bytes % rows->at.width
					    : chunk_bytes;
}

/* Copies what is left of a row, or some of it. */
static int rows_issue_part(struct mm_xrows *rows, const void *from, uint64_t bytes_max,
			   uint64_t *ret_bytes)
{
	const struct mm_xdev *dev = rows->at.swap->link->pool->dev;
	uint64_t bytes = MM_MIN(rows->at.width - rows->next_done, bytes_max);
	CUdeviceptr to = rows->at.to_va + rows->next * rows->at.to_pitch + rows->next_done;
	int r = mm_xdev_result(dev, "cuMemcpyHtoDAsync",
			       dev->gpu.cuMemcpyHtoDAsync(to, from, bytes, dev->copy));

	*ret_bytes = bytes;
	rows->next_done += bytes;
	if (rows->next_done == rows->at.width) {
		rows->next++;
		rows->next_done = 0;
	}
	return r;
}

static int rows_issue_run(struct mm_xrows *rows, const void *from, uint32_t n, uint64_t *ret_bytes)
{
	const struct mm_xdev *dev = rows->at.swap->link->pool->dev;
	const CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
				     .srcHost = from,
				     .srcPitch = rows->at.from_pitch,
				     .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				     .dstDevice = rows->at.to_va + rows->next * rows->at.to_pitch,
				     .dstPitch = rows->at.to_pitch,
				     .WidthInBytes = rows->at.width,
				     .Height = n };

	*ret_bytes = n * rows->at.width;
	rows->next += n;
	return mm_xdev_result(dev, "cuMemcpy2DAsync", dev->gpu.cuMemcpy2DAsync(&copy, dev->copy));
}

int mm_xrows_issue(struct mm_xrows *rows, uint64_t bytes_max, uint64_t *ret_bytes)
{
	const struct mm_xdev *dev = rows->at.swap->link->pool->dev;
	uint64_t registered, n;
	const void *from;

	if (mm_fault("xfer.rows"))
		return -EIO;
	rows->next = rows_find(rows, rows->next, true);
	from = mm_xswap_at(rows->at.swap,
			   rows->at.from + rows->next * rows->at.from_pitch + rows->next_done,
			   &registered);
	bytes_max = MM_MIN(bytes_max, MM_COLD_ROWS_BYTES);
	/* Rows of the run that are whole in the registration. */
	n = registered < rows->at.width ? 0
					: (registered - rows->at.width) / rows->at.from_pitch + 1;
	n = MM_MIN(n, rows_find(rows, rows->next, false) - rows->next);
	n = MM_MIN(n, bytes_max / rows->at.width);
	if (n < 2 || rows->next_done > 0 || rows->at.from_pitch > dev->pitch_max_bytes)
		return rows_issue_part(rows, from, MM_MIN(bytes_max, registered), ret_bytes);
	return rows_issue_run(rows, from, (uint32_t)n, ret_bytes);
}
