/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"

int mm_xpool_init(struct mm_xpool *pool, struct mm_xdev *dev, uint64_t page_bytes, uint32_t pages)
{
	/* lets the GPU use large page table entries */
	size_t alignment = page_bytes & (page_bytes - 1) ? 0 : page_bytes;
	int r;

	if (mm_fault("xfer.pool"))
		return -ENOMEM;
	pool->dev = dev;
	pool->page_bytes = page_bytes;
	pool->pages = pages;
	pool->handle = calloc(pages, sizeof(*pool->handle));
	pool->there = calloc(pages, sizeof(*pool->there));
	if (!pool->handle || !pool->there)
		return -ENOMEM;
	r = mm_xdev_result(
		dev, "cuMemAddressReserve",
		dev->gpu.cuMemAddressReserve(&pool->base_va, pages * page_bytes, alignment, 0, 0));
	if (r < 0)
		pool->base_va = 0;
	return r;
}

void mm_xpool_done(struct mm_xpool *pool)
{
	for (uint32_t i = 0; pool->there && i < pool->pages; i++)
		mm_xpool_drop(pool, i);
	if (pool->base_va)
		(void)pool->dev->gpu.cuMemAddressFree(pool->base_va,
						      pool->pages * pool->page_bytes);
	free(pool->handle);
	free(pool->there);
	*pool = (struct mm_xpool){ 0 };
}

void mm_xpool_drop(struct mm_xpool *pool, uint32_t page)
{
	const struct mm_gpu_api *gpu = &pool->dev->gpu;

	if (!pool->there[page])
		return;
	(void)mm_xdev_result(pool->dev, "cuMemUnmap",
			     gpu->cuMemUnmap(mm_xpool_va(pool, page), pool->page_bytes));
	(void)mm_xdev_result(pool->dev, "cuMemRelease", gpu->cuMemRelease(pool->handle[page]));
	pool->there[page] = false;
}

/* Takes over @handle, also on failure. */
static int page_map(struct mm_xpool *pool, uint32_t page, CUmemGenericAllocationHandle handle)
{
	const struct mm_gpu_api *gpu = &pool->dev->gpu;
	int r;

	r = mm_fault("xfer.map") ? -ENOMEM
				 : mm_xdev_result(pool->dev, "cuMemMap",
						  gpu->cuMemMap(mm_xpool_va(pool, page),
								pool->page_bytes, 0, handle, 0));
	if (r < 0) {
		(void)gpu->cuMemRelease(handle);
		return r;
	}
	pool->handle[page] = handle;
	pool->there[page] = true;
	return 0;
}

/* Makes one call for each run of neighbours: setting access is among the slowest driver calls. */
static int pages_set_access(struct mm_xpool *pool, const uint32_t *page, size_t count)
{
	const CUmemAccessDesc desc = { .location = pool->dev->prop.location,
				       .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };

	if (mm_fault("xfer.access"))
		return -ENOMEM;
	for (size_t i = 0, n; i < count; i += n) {
		int r;

		for (n = 1; i + n < count && page[i + n] == page[i] + n; n++)
			;
		r = mm_xdev_result(pool->dev, "cuMemSetAccess",
				   pool->dev->gpu.cuMemSetAccess(mm_xpool_va(pool, page[i]),
								 n * pool->page_bytes, &desc, 1));
		if (r < 0)
			return r;
	}
	return 0;
}

static void pages_drop(struct mm_xpool *pool, const uint32_t *page, size_t count)
{
	for (size_t i = 0; i < count; i++)
		mm_xpool_drop(pool, page[i]);
}

static int page_create(struct mm_xpool *pool, uint32_t page)
{
	CUmemGenericAllocationHandle handle;
	int r;

	if (mm_fault("xfer.create"))
		return -ENOMEM;
	r = mm_xdev_result(
		pool->dev, "cuMemCreate",
		pool->dev->gpu.cuMemCreate(&handle, pool->page_bytes, &pool->dev->prop, 0));
	if (r < 0)
		return r;
	return page_map(pool, page, handle);
}

static int pages_export(struct mm_xpool *pool, const uint32_t *page, size_t count, int *ret_fds)
{
	if (mm_fault("xfer.export"))
		return -EMFILE;
	for (size_t i = 0; i < count; i++) {
		int r = mm_xdev_result(pool->dev, "cuMemExportToShareableHandle",
				       pool->dev->gpu.cuMemExportToShareableHandle(
					       &ret_fds[i], pool->handle[page[i]],
					       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));

		if (r < 0) {
			while (i--)
				close(ret_fds[i]);
			return r;
		}
	}
	return 0;
}

int mm_xpool_create(struct mm_xpool *pool, const uint32_t *page, size_t count, int *ret_fds)
{
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++) {
		r = page_create(pool, page[i]);
		if (r < 0)
			pages_drop(pool, page, i);
	}
	if (r < 0)
		return r;
	r = pages_set_access(pool, page, count);
	if (r == 0)
		r = pages_export(pool, page, count, ret_fds);
	if (r < 0)
		pages_drop(pool, page, count);
	return r;
}

int mm_xpool_adopt(struct mm_xpool *pool, const uint32_t *page, const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		CUmemGenericAllocationHandle handle;
		int r;

		if (page[i] >= pool->pages)
			return -EINVAL;
		if (pool->there[page[i]])
			continue;
		r = mm_xdev_result(pool->dev, "cuMemImportFromShareableHandle",
				   pool->dev->gpu.cuMemImportFromShareableHandle(
					   &handle, (void *)(uintptr_t)fds[i],
					   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		if (r < 0)
			return r;
		r = page_map(pool, page[i], handle);
		if (r < 0)
			return r;
	}
	return pages_set_access(pool, page, count);
}
