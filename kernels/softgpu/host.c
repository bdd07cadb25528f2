/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/context.h"
#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/host.h"
#include "kernels/softgpu/range.h"
#include "kernels/softgpu/timed.h"
#include "libclient/base/base.h"
#include "libclient/support/lock.h"

#define REGISTER_FLAGS \
	(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY)
#define ALLOC_FLAGS \
	(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)

struct region {
	struct sg_context *owner; /* a reference */
	unsigned int flags;
	bool allocated;
	uint64_t inode, offset;
};

static struct mm_lock regions_lock = MM_LOCK_INIT;
static struct sg_ranges regions MM_GUARDED_BY(regions_lock); /* values: struct region */

static int region_add(uint64_t addr, size_t bytes, const struct region *what)
{
	struct region *region = malloc(sizeof(*region));
	int err;

	if (!region)
		return -ENOMEM;
	*region = *what;
	sg_object_ref(&region->owner->object);
	mm_lock_take(&regions_lock);
	err = sg_ranges_add(&regions, addr, addr + bytes, region);
	mm_lock_give(&regions_lock);
	if (err) {
		sg_object_put(&region->owner->object);
		free(region);
	}
	return err;
}

/*
 * Another thread may have ended @ctx since it was read, and freed the memory that it had by then:
 * frees the rest.
 */
static CUresult owner_check(const struct sg_context *ctx)
{
	if (!sg_context_is_ending(ctx))
		return CUDA_SUCCESS;
	sg_host_free_owned(ctx);
	return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static void region_remove(struct sg_range *r) MM_REQUIRES(regions_lock)
{
	size_t i = (size_t)(r - regions.items);
	struct region *region = r->value;

	sg_object_put(&region->owner->object);
	free(region);
	sg_ranges_remove(&regions, i, i + 1);
}

/* Return: the context that registered the memory at @addr, a reference; NULL if none did. */
static struct sg_context *region_owner(uint64_t addr)
{
	struct sg_context *owner = NULL;
	struct sg_range *r;

	mm_lock_take(&regions_lock);
	r = sg_ranges_find(&regions, addr);
	if (r && !((const struct region *)r->value)->allocated) {
		owner = ((const struct region *)r->value)->owner;
		sg_object_ref(&owner->object);
	}
	mm_lock_give(&regions_lock);
	return owner;
}

/*
 * Removes the region that begins at @addr; its context need not be current, but must be without
 * error. *ret_bytes is 0 where no region of this sort contains @addr. Return: INVALID_VALUE, @addr
 * is inside a region of this sort.
 */
static CUresult region_take(uint64_t addr, bool allocated, size_t *ret_bytes)
{
	CUresult res = CUDA_SUCCESS;
	struct region *region;
	struct sg_range *r;

	*ret_bytes = 0;
	mm_lock_take(&regions_lock);
	r = sg_ranges_find(&regions, addr);
	region = r ? r->value : NULL;
	if (region && region->allocated == allocated) {
		res = r->start == addr ? sg_context_error(region->owner) : CUDA_ERROR_INVALID_VALUE;
		if (!res) {
			*ret_bytes = r->end - r->start;
			region_remove(r);
		}
	}
	mm_lock_give(&regions_lock);
	return res;
}

void sg_host_free_owned(const struct sg_context *owner)
{
	size_t i = 0;

	mm_lock_take(&regions_lock);
	while (i < regions.n) {
		struct sg_range *r = &regions.items[i];
		const struct region *region = r->value;

		if (region->owner != owner) {
			i++;
			continue;
		}
		if (region->allocated)
			munmap((void *)(uintptr_t)r->start, r->end - r->start);
		region_remove(r);
	}
	mm_lock_give(&regions_lock);
}

struct sg_host_info sg_host_describe(uint64_t addr)
{
	struct sg_host_info info = { 0 };
	struct sg_range *r;

	mm_lock_take(&regions_lock);
	r = sg_ranges_find(&regions, addr);
	if (r) {
		const struct region *region = r->value;

		info = (struct sg_host_info){ .known = true,
					      .flags = region->flags,
					      .allocated = region->allocated,
					      .start = r->start,
					      .end = r->end,
					      .inode = region->inode,
					      .offset = region->offset };
	}
	mm_lock_give(&regions_lock);
	return info;
}

bool sg_host_is_mixed(uint64_t addr, uint64_t bytes)
{
	const uint64_t page = sg_device_info(0)->host_page_bytes;
	uint64_t at = addr, end = addr + bytes;
	bool known = false, unknown = false;

	mm_lock_take(&regions_lock);
	for (size_t i = sg_ranges_lower(&regions, addr); i < regions.n; i++) {
		const struct sg_range *r = &regions.items[i];

		if (r->start >= end)
			break;
		known = true;
		unknown = unknown || r->start - r->start % page > at;
		at = mm_round_up(r->end, page);
	}
	mm_lock_give(&regions_lock);
	return known && (unknown || at < end);
}

/*
 * The driver pins the pages, for writing unless READ_ONLY, and fails on memory that does not exist
 * or is not writable. Populating fails on the same memory, and changes no byte.
 */
static bool region_can_populate(void *addr, size_t bytes, bool writable)
{
	int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	return madvise(addr, bytes, advice) == 0;
}

/* A line of /proc/self/maps. */
struct line {
	uint64_t start, end, offset, inode;
	char protection[5];
};

static bool maps_line_parse(const char *text, struct line *l)
{
	return sscanf(text, "%" SCNx64 "-%" SCNx64 " %4[-rwxps] %" SCNx64 " %*x:%*x %" SCNu64,
		      &l->start, &l->end, l->protection, &l->offset, &l->inode) == 5;
}

/*
 * In timed mode memory stays sparse: the mappings are looked up, and no page is made. The file
 * behind them, if there is one, identifies shared memory.
 */
static bool region_look_up(uint64_t start, uint64_t end, bool writable, struct region *region)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t at = start;
	char text[512];
	struct line l;

	if (!maps)
		return false;
	while (at < end && fgets(text, sizeof(text), maps)) {
		if (!maps_line_parse(text, &l) || l.end <= at)
			continue;
		if (l.start > at || l.protection[0] != 'r' || (writable && l.protection[1] != 'w'))
			break;
		region->inode = at == start && l.end >= end && l.protection[3] == 's' ? l.inode : 0;
		region->offset = l.offset + (at - l.start);
		at = l.end;
	}
	fclose(maps);
	return at >= end;
}

static bool region_can_pin(uint64_t start, uint64_t end, struct region *region)
{
	bool writable = !(region->flags & CU_MEMHOSTREGISTER_READ_ONLY);

	return sg_is_timed(0)
		       ? region_look_up(start, end, writable, region)
		       : region_can_populate((void *)(uintptr_t)start, end - start, writable);
}

/*
 * Drivers have it off where the GPU does not walk the processor's page tables: seen on x86-64 with
 * a B300.
 */
static bool pins_read_only(void)
{
	int yes = 0;

	(void)cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0);
	return yes;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *addr, size_t bytes, unsigned int flags)
{
	uint64_t page = sg_device_info(0)->host_page_bytes, start = (uintptr_t)addr, end;
	struct region region = { .flags = flags };
	int err;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	SG_TRY(sg_context_current(&region.owner));
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY ||
	    (flags & CU_MEMHOSTREGISTER_READ_ONLY && !pins_read_only()))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!addr || !bytes || (flags & ~(unsigned int)REGISTER_FLAGS) ||
	    start > UINT64_MAX - bytes)
		return CUDA_ERROR_INVALID_VALUE;
	/* The device can access the whole of each page. */
	end = mm_round_up(start + bytes, page);
	start -= start % page;
	if (!end || !region_can_pin(start, end, &region))
		return CUDA_ERROR_INVALID_VALUE;
	region.offset += (uintptr_t)addr - start;
	err = region_add((uintptr_t)addr, bytes, &region);
	if (err == -EEXIST)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return err ? CUDA_ERROR_OUT_OF_MEMORY : owner_check(region.owner);
}

/*
 * Waits for the context's work first, as the driver does. The context is the one that registered
 * the memory, whichever is current.
 */
CUresult CUDAAPI cuMemHostUnregister(void *addr)
{
	struct sg_context *owner;
	size_t bytes;
	CUresult res;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	if (!addr)
		return CUDA_ERROR_INVALID_VALUE;
	owner = region_owner((uintptr_t)addr);
	if (owner) {
		res = sg_context_synchronize(owner);
		sg_object_put(&owner->object);
		if (res)
			return res;
	}
	SG_TRY(region_take((uintptr_t)addr, false, &bytes));
	return bytes ? CUDA_SUCCESS : sg_context_unless(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *va, void *addr, unsigned int flags)
{
	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!va || flags || !sg_host_describe((uintptr_t)addr).known)
		return CUDA_ERROR_INVALID_VALUE;
	*va = (uintptr_t)addr;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *flags, void *addr)
{
	struct sg_host_info info;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	info = sg_host_describe((uintptr_t)addr);
	if (!flags || !info.known)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = info.flags;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostAlloc(void **addr, size_t bytes, unsigned int flags)
{
	struct region region = { .flags = flags, .allocated = true };
	void *base;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	SG_TRY(sg_context_current(&region.owner));
	if (!addr || !bytes || (flags & ~(unsigned int)ALLOC_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	bytes = mm_round_up(bytes, sg_device_info(0)->host_page_bytes);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (region_add((uintptr_t)base, bytes, &region) < 0) {
		munmap(base, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	SG_TRY(owner_check(region.owner));
	*addr = base;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocHost_v2(void **addr, size_t bytes)
{
	return cuMemHostAlloc(addr, bytes, 0);
}

CUresult CUDAAPI cuMemFreeHost(void *addr)
{
	size_t bytes;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	SG_TRY(region_take((uintptr_t)addr, true, &bytes));
	if (!bytes)
		return sg_context_unless(CUDA_ERROR_INVALID_VALUE);
	munmap(addr, bytes);
	return CUDA_SUCCESS;
}
