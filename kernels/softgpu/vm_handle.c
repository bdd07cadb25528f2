/* SPDX-License-Identifier: Apache-2.0 */
/* The handles of allocations: cuMemCreate() and the calls that take or return its handles. */
#include <stdlib.h>

#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm_tables.h"
#include "libclient/base/base.h"

static uint32_t slot_take(void) MM_REQUIRES(sg_vm_mutex)
{
	uint32_t n = sg_vm.n_slots, grown = n ? n * 2 : 256, i;
	struct sg_alloc_slot *slots;

	if (sg_vm.free_slot == SG_NO_SLOT) {
		slots = realloc(sg_vm.slots, grown * sizeof(*slots));
		if (!slots)
			return SG_NO_SLOT;
		sg_vm.slots = slots;
		for (i = grown; i-- > n;) {
			slots[i] = (struct sg_alloc_slot){ .next_free = sg_vm.free_slot };
			sg_vm.free_slot = i;
		}
		sg_vm.n_slots = grown;
	}
	i = sg_vm.free_slot;
	sg_vm.free_slot = sg_vm.slots[i].next_free;
	return i;
}

CUmemGenericAllocationHandle sg_alloc_handle(const struct sg_alloc *a)
{
	return (uint64_t)a->generation << 32 | (a->slot + 1);
}

struct sg_alloc *sg_alloc_find(CUmemGenericAllocationHandle handle)
{
	uint32_t slot = (uint32_t)handle - 1;
	struct sg_alloc *a;

	if (slot >= sg_vm.n_slots)
		return NULL;
	a = sg_vm.slots[slot].alloc;
	return a && a->generation == (uint32_t)(handle >> 32) && a->handle_refs ? a : NULL;
}

CUresult sg_alloc_add(struct sg_page *page, const CUmemAllocationProp *prop,
		      struct sg_alloc **ret_alloc)
{
	struct sg_alloc *a = calloc(1, sizeof(*a));
	uint32_t slot = SG_NO_SLOT;

	if (a) {
		mm_lock_take(&sg_vm_mutex);
		slot = slot_take();
		if (slot != SG_NO_SLOT) {
			*a = (struct sg_alloc){ .page = *page,
						.prop = *prop,
						.handle_refs = 1,
						.slot = slot,
						.generation = ++sg_vm.slots[slot].generation };
			sg_vm.slots[slot].alloc = a;
		}
		mm_lock_give(&sg_vm_mutex);
	}
	if (slot == SG_NO_SLOT) {
		free(a);
		sg_page_close(page);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_alloc = a;
	return CUDA_SUCCESS;
}

void sg_alloc_retire(struct sg_alloc *a, struct sg_page *ret_page)
{
	struct sg_alloc_slot *slot = &sg_vm.slots[a->slot];

	*ret_page = SG_PAGE_NULL;
	if (a->handle_refs || a->map_refs)
		return;
	*ret_page = a->page;
	slot->alloc = NULL;
	slot->next_free = sg_vm.free_slot;
	sg_vm.free_slot = a->slot;
	free(a);
}

static bool prop_is_device_memory(const CUmemAllocationProp *prop)
{
	static const int exportable = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

	return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       ((int)prop->requestedHandleTypes & ~exportable) == 0 && !prop->win32HandleMetaData;
}

/*
 * A request that this device does not support gets another error than one that no device supports.
 */
static CUresult prop_check(const CUmemAllocationProp *prop)
{
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && !sg_vm_is_device(&prop->location))
		return CUDA_ERROR_INVALID_DEVICE;
	if ((int)prop->requestedHandleTypes & (int)CU_MEM_HANDLE_TYPE_FABRIC)
		return CUDA_ERROR_NOT_SUPPORTED;
	return prop_is_device_memory(prop) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
					       CUmemAllocationGranularity_flags option)
{
	SG_ENTER();
	if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
			     option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(prop_check(prop));
	*granularity = sg_device_info((unsigned int)prop->location.id)->granularity_bytes;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
			     const CUmemAllocationProp *prop, unsigned long long flags)
{
	unsigned int device;
	struct sg_page page;
	struct sg_alloc *a;

	SG_ENTER();
	if (!handle || flags || !bytes || !sg_vm_is_aligned(bytes, sg_granularity_min()))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(prop_check(prop));
	device = (unsigned int)prop->location.id;
	if (!sg_vm_is_aligned(bytes, sg_device_info(device)->granularity_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_page_create(device, bytes, &page));
	SG_TRY(sg_alloc_add(&page, prop, &a));
	sg_timed_call(device, sg_vm_profile(device)->create_ns);
	*handle = sg_alloc_handle(a);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sg_page page = SG_PAGE_NULL;
	unsigned int device = 0;
	struct sg_alloc *a;

	SG_ENTER();
	mm_lock_take(&sg_vm_mutex);
	a = sg_alloc_find(handle);
	if (a) {
		device = a->page.device;
		a->handle_refs--;
		sg_alloc_retire(a, &page);
	}
	mm_lock_give(&sg_vm_mutex);
	sg_page_close(&page);
	if (a)
		sg_timed_call(device, sg_vm_profile(device)->release_ns);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *os_handle, CUmemGenericAllocationHandle handle,
					      CUmemAllocationHandleType type,
					      unsigned long long flags)
{
	CUresult res = CUDA_ERROR_INVALID_VALUE;
	unsigned int device = 0;
	struct sg_alloc *a;
	int fd;

	SG_ENTER();
	if (!os_handle || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&sg_vm_mutex);
	a = sg_alloc_find(handle);
	/* A driver exports what was made with this handle, and nothing that was imported. */
	if (a && !a->imported &&
	    ((int)a->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
		device = a->page.device;
		fd = sg_page_export(&a->page);
		res = fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
		if (fd >= 0)
			*(int *)os_handle = fd;
	}
	mm_lock_give(&sg_vm_mutex);
	if (!res)
		sg_timed_call(device, sg_vm_profile(device)->export_ns);
	return res;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
						void *os_handle, CUmemAllocationHandleType type)
{
	/*
	 * Properties do not travel with the descriptor: these are of an allocation that could be
	 * exported.
	 */
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
	};
	struct sg_page page;
	struct sg_alloc *a;

	SG_ENTER();
	if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    (uintptr_t)os_handle > INT32_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_page_adopt((int)(uintptr_t)os_handle, &page));
	prop.location.id = (int)page.device;
	SG_TRY(sg_alloc_add(&page, &prop, &a));
	a->imported = true; /* nobody else has the handle yet */
	sg_timed_call((unsigned int)prop.location.id,
		      sg_vm_profile((unsigned int)prop.location.id)->import_ns);
	*handle = sg_alloc_handle(a);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
							CUmemGenericAllocationHandle handle)
{
	struct sg_alloc *a;

	SG_ENTER();
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&sg_vm_mutex);
	a = sg_alloc_find(handle);
	if (a)
		*prop = a->prop;
	mm_lock_give(&sg_vm_mutex);
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	struct sg_range *r;
	struct sg_mapping *m = NULL;

	SG_ENTER();
	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	mm_lock_take(&sg_vm_mutex);
	r = sg_ranges_find(&sg_vm.mapped, (uintptr_t)addr);
	if (r)
		m = r->value;
	if (m && !m->owner) {
		m->alloc->handle_refs++;
		*handle = sg_alloc_handle(m->alloc);
	}
	mm_lock_give(&sg_vm_mutex);
	return m && !m->owner ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
