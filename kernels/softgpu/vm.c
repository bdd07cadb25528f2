/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/softgpu/context.h"
#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm_tables.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

struct mm_lock sg_vm_mutex = MM_LOCK_INIT;
struct sg_vm sg_vm = { .free_slot = SG_NO_SLOT };

static void *vm_pointer(uint64_t va)
{
	return (void *)(uintptr_t)va;
}

bool sg_vm_is_aligned(uint64_t value, uint64_t unit)
{
	return (value & (unit - 1)) == 0;
}

static bool vm_is_range(uint64_t va, size_t bytes, uint64_t unit)
{
	return va && bytes && sg_vm_is_aligned(va, unit) && sg_vm_is_aligned(bytes, unit) &&
	       va <= UINT64_MAX - bytes;
}

const struct mm_profile *sg_vm_profile(unsigned int device)
{
	return &sg_device_info(device)->timing.profile;
}

/* ---- Address space ---- */

static void *vm_map_nothing(uint64_t va, size_t bytes, int flags)
{
	return mmap(vm_pointer(va), bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

static uint64_t vm_reserve_aligned(size_t bytes, uint64_t alignment)
{
	size_t span = bytes + alignment;
	uint64_t base, va;
	void *addr;

	if (span < bytes)
		return 0;
	addr = vm_map_nothing(0, span, 0);
	if (addr == MAP_FAILED)
		return 0;
	base = (uintptr_t)addr;
	va = (base + alignment - 1) & ~(alignment - 1);
	if (va > base)
		munmap(addr, va - base);
	if (base + span > va + bytes)
		munmap(vm_pointer(va + bytes), base + span - (va + bytes));
	return va;
}

uint64_t sg_vm_reserve(size_t bytes, uint64_t alignment, uint64_t hint_va)
{
	void *addr;

	if (hint_va && sg_vm_is_aligned(hint_va, alignment)) {
		addr = vm_map_nothing(hint_va, bytes, MAP_FIXED_NOREPLACE);
		if (addr == vm_pointer(hint_va))
			return hint_va;
		if (addr != MAP_FAILED)
			munmap(addr, bytes);
	}
	return vm_reserve_aligned(bytes, alignment);
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *va, size_t bytes, size_t alignment,
				     CUdeviceptr hint_va, unsigned long long flags)
{
	const struct sg_device_info *info = sg_device_info(0);
	uint64_t unit, found;
	int err;

	SG_ENTER();
	unit = MM_MAX(alignment, sg_granularity_max());
	if (!va || flags || !bytes || !sg_vm_is_aligned(bytes, info->host_page_bytes) ||
	    !sg_vm_is_aligned(hint_va, info->host_page_bytes) || !sg_vm_is_aligned(unit, unit) ||
	    bytes > UINT64_MAX / 2)
		return CUDA_ERROR_INVALID_VALUE;
	found = sg_vm_reserve(bytes, unit, hint_va);
	if (!found)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mm_lock_take(&sg_vm_mutex);
	err = sg_ranges_add(&sg_vm.reserved, found, found + bytes, NULL);
	mm_lock_give(&sg_vm_mutex);
	if (err) {
		munmap(vm_pointer(found), bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*va = found;
	return CUDA_SUCCESS;
}

static struct sg_range *reservation_find(uint64_t va, size_t bytes) MM_REQUIRES(sg_vm_mutex)
{
	struct sg_range *r = sg_ranges_find(&sg_vm.reserved, va);

	return r && r->start == va && r->end - r->start == bytes ? r : NULL;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr va, size_t bytes)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	struct sg_range *r;

	SG_ENTER();
	mm_lock_take(&sg_vm_mutex);
	r = reservation_find(va, bytes);
	if (r && !sg_ranges_overlaps(&sg_vm.mapped, r->start, r->end)) {
		size_t i = (size_t)(r - sg_vm.reserved.items);

		munmap(vm_pointer(va), bytes);
		sg_ranges_remove(&sg_vm.reserved, i, i + 1);
		res = CUDA_SUCCESS;
	}
	mm_lock_give(&sg_vm_mutex);
	return res;
}

/* ---- Mappings ---- */

bool sg_vm_is_device(const CUmemLocation *location)
{
	return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
	       (unsigned int)location->id < sg_device_count();
}

CUresult sg_mapping_add(uint64_t va, struct sg_alloc *a, struct sg_context *owner,
			struct sg_mapping **ret_mapping)
{
	struct sg_range *r = sg_ranges_find(&sg_vm.reserved, va);
	struct sg_mapping *m;

	if (!r || a->page.bytes > r->end - va ||
	    sg_ranges_overlaps(&sg_vm.mapped, va, va + a->page.bytes))
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (sg_ranges_add(&sg_vm.mapped, va, va + a->page.bytes, m) < 0) {
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (owner)
		sg_object_ref(&owner->object);
	*m = (struct sg_mapping){ .alloc = a, .owner = owner };
	a->map_refs++;
	*ret_mapping = m;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr va, size_t bytes, size_t offset,
			  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	unsigned int device = 0;
	struct sg_mapping *m;
	struct sg_alloc *a;

	SG_ENTER();
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&sg_vm_mutex);
	a = sg_alloc_find(handle);
	if (a && (offset || a->page.bytes != bytes)) {
		res = CUDA_ERROR_NOT_SUPPORTED; /* an allocation is mapped as a whole */
	} else if (a && vm_is_range(va, bytes, sg_granularity_min())) {
		device = a->page.device;
		res = sg_mapping_add(va, a, NULL, &m);
	}
	mm_lock_give(&sg_vm_mutex);
	if (!res)
		sg_timed_call(device, sg_vm_profile(device)->map_ns);
	return res;
}

/*
 * Return: whether [@va, @va + @bytes) consists of whole mappings without a gap;
 * then they are [@ret_first, @ret_last).
 */
static bool mappings_find(uint64_t va, size_t bytes, size_t *ret_first, size_t *ret_last)
	MM_REQUIRES(sg_vm_mutex)
{
	size_t first = sg_ranges_lower(&sg_vm.mapped, va), i = first;
	uint64_t at = va, end = va + bytes;

	while (i < sg_vm.mapped.n && sg_vm.mapped.items[i].start == at && at < end)
		at = sg_vm.mapped.items[i++].end;
	*ret_first = first;
	*ret_last = i;
	return at == end;
}

static int protection_of(CUmemAccess_flags access)
{
	switch (access) {
	case CU_MEM_ACCESS_FLAGS_PROT_READ:
		return PROT_READ;
	case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
		return PROT_READ | PROT_WRITE;
	default:
		return PROT_NONE;
	}
}

CUresult sg_mapping_set_access(struct sg_range *r, CUmemAccess_flags access)
{
	struct sg_mapping *m = r->value;
	size_t bytes = r->end - r->start;

	if (m->real) {
		if (mprotect(vm_pointer(r->start), bytes, protection_of(access)) < 0)
			return errno == EACCES ? CUDA_ERROR_NOT_PERMITTED
					       : CUDA_ERROR_OPERATING_SYSTEM;
	} else if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
		if (mmap(vm_pointer(r->start), bytes, protection_of(access), MAP_SHARED | MAP_FIXED,
			 m->alloc->page.fd, 0) == MAP_FAILED)
			return errno == EACCES ? CUDA_ERROR_NOT_PERMITTED
					       : CUDA_ERROR_OPERATING_SYSTEM;
		/* As a driver's: a child of fork() has no device memory, and keeps none alive. */
		if (madvise(vm_pointer(r->start), bytes, MADV_DONTFORK) < 0)
			return CUDA_ERROR_OPERATING_SYSTEM;
		m->real = true;
	}
	m->access = access;
	return CUDA_SUCCESS;
}

static bool is_access_desc(const CUmemAccessDesc *desc)
{
	return sg_vm_is_device(&desc->location) &&
	       (desc->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
		desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
		desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* Return: an error where one of the mappings is of another device. */
static CUresult mappings_check_device(size_t first, size_t last, int device)
	MM_REQUIRES(sg_vm_mutex)
{
	for (size_t i = first; i < last; i++) {
		const struct sg_mapping *m = sg_vm.mapped.items[i].value;

		if ((int)m->alloc->page.device != device)
			return CUDA_ERROR_INVALID_DEVICE;
	}
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
				size_t count)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	size_t first = 0, last = 0;
	unsigned int device;

	SG_ENTER();
	/* One description only: no device has access to another's memory. */
	if (!desc || count != 1 || !is_access_desc(desc) ||
	    !vm_is_range(va, bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	sg_vm_order();
	mm_lock_take(&sg_vm_mutex);
	if (mappings_find(va, bytes, &first, &last)) {
		res = mappings_check_device(first, last, desc->location.id);
		for (size_t i = first; i < last && !res; i++)
			res = sg_mapping_set_access(&sg_vm.mapped.items[i], desc->flags);
	}
	mm_lock_give(&sg_vm_mutex);
	sg_vm_order();
	device = (unsigned int)desc->location.id;
	if (!res)
		sg_timed_call(device, (last - first) * sg_vm_profile(device)->set_access_ns);
	return res;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
				CUdeviceptr va)
{
	const struct sg_mapping *m;
	struct sg_range *r;

	SG_ENTER();
	if (!flags || !location || !sg_vm_is_device(location))
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&sg_vm_mutex);
	r = sg_ranges_find(&sg_vm.mapped, va);
	m = r ? r->value : NULL;
	if (m)
		*flags = (int)m->alloc->page.device == location->id ? m->access
								    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	mm_lock_give(&sg_vm_mutex);
	return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void sg_mappings_drop(size_t first, size_t last, struct sg_page *pages)
{
	for (size_t i = first; i < last; i++) {
		struct sg_mapping *m = sg_vm.mapped.items[i].value;

		m->alloc->map_refs--;
		sg_alloc_retire(m->alloc, &pages[i - first]);
		if (m->owner)
			sg_object_put(&m->owner->object);
		free(m);
	}
	sg_ranges_remove(&sg_vm.mapped, first, last);
}

static bool any_is_owned(size_t first, size_t last) MM_REQUIRES(sg_vm_mutex)
{
	for (size_t i = first; i < last; i++)
		if (((struct sg_mapping *)sg_vm.mapped.items[i].value)->owner)
			return true;
	return false;
}

/* Return: the device of the memory that is mapped at @va; 0 if there is none. */
static unsigned int vm_device_at(uint64_t va) MM_REQUIRES(sg_vm_mutex)
{
	const struct sg_range *r = sg_ranges_find(&sg_vm.mapped, va);

	return r ? ((const struct sg_mapping *)r->value)->alloc->page.device : 0;
}

/* At the kernel's limit of mappings even this can fail. */
static CUresult vm_unmap(uint64_t va, size_t bytes, struct sg_page **ret_pages, size_t *ret_n)
	MM_REQUIRES(sg_vm_mutex)
{
	size_t first, last;
	struct sg_page *pages;

	if (!mappings_find(va, bytes, &first, &last) || any_is_owned(first, last))
		return CUDA_ERROR_INVALID_VALUE;
	pages = calloc(last - first, sizeof(*pages));
	if (!pages)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (vm_map_nothing(va, bytes, MAP_FIXED) == MAP_FAILED) {
		free(pages);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	sg_mappings_drop(first, last, pages);
	*ret_pages = pages;
	*ret_n = last - first;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr va, size_t bytes)
{
	mm_cleanup(mm_free_ptr) struct sg_page *pages = NULL;
	unsigned int device = 0;
	CUresult res;
	size_t n = 0;

	SG_ENTER();
	if (!vm_is_range(va, bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	sg_vm_order();
	mm_lock_take(&sg_vm_mutex);
	device = vm_device_at(va);
	res = vm_unmap(va, bytes, &pages, &n);
	mm_lock_give(&sg_vm_mutex);
	for (size_t i = 0; i < n; i++)
		sg_page_close(&pages[i]);
	if (!res)
		sg_timed_call(device, n * sg_vm_profile(device)->unmap_ns);
	return res;
}

void sg_vm_order(void)
{
	static unsigned int passed;

	__atomic_fetch_add(&passed, 1, __ATOMIC_ACQ_REL);
}

/* ---- What is at an address ---- */

struct sg_vm_info sg_vm_describe(uint64_t va)
{
	struct sg_vm_info info = { 0 };
	struct sg_range *r;

	mm_lock_take(&sg_vm_mutex);
	r = sg_ranges_find(&sg_vm.reserved, va);
	if (r) {
		info.reserved = true;
		info.range_start = r->start;
		info.range_end = r->end;
	}
	r = sg_ranges_find(&sg_vm.mapped, va);
	if (r) {
		struct sg_mapping *m = r->value;

		info.mapped = true;
		info.legacy = m->owner != NULL;
		info.sync_memops = m->sync_memops;
		info.start = r->start;
		info.end = r->end;
		info.access = m->access;
		info.handle_types = m->alloc->prop.requestedHandleTypes;
		info.block_id = sg_alloc_handle(m->alloc);
		info.device = m->alloc->page.device;
		info.inode = m->alloc->page.inode;
	}
	mm_lock_give(&sg_vm_mutex);
	return info;
}

bool sg_vm_set_sync_memops(uint64_t va, bool on)
{
	struct sg_range *r;

	mm_lock_take(&sg_vm_mutex);
	r = sg_ranges_find(&sg_vm.mapped, va);
	if (r)
		((struct sg_mapping *)r->value)->sync_memops = on;
	mm_lock_give(&sg_vm_mutex);
	return r != NULL;
}

bool sg_vm_allows(uint64_t va, uint64_t bytes, bool writes)
{
	uint64_t at = va, end = va + bytes;
	size_t i;

	if (end < va)
		return false;
	mm_lock_take(&sg_vm_mutex);
	for (i = sg_ranges_lower(&sg_vm.mapped, va); i < sg_vm.mapped.n && at < end; i++) {
		const struct sg_range *r = &sg_vm.mapped.items[i];
		const struct sg_mapping *m = r->value;

		if (r->start > at || !((int)m->access & (writes ? 2 : 1)))
			break;
		at = r->end;
	}
	mm_lock_give(&sg_vm_mutex);
	return at >= end;
}

void sg_vm_drop_all(void)
{
	mm_lock_take(&sg_vm_mutex);
	for (size_t i = 0; i < sg_vm.mapped.n; i++) {
		struct sg_range *r = &sg_vm.mapped.items[i];

		vm_map_nothing(r->start, r->end - r->start, MAP_FIXED);
	}
	for (uint32_t i = 0; i < sg_vm.n_slots; i++)
		if (sg_vm.slots[i].alloc)
			sg_page_close(&sg_vm.slots[i].alloc->page);
	mm_lock_give(&sg_vm_mutex);
}
