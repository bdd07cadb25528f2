/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of cuMemAlloc(), which ends with its context. */
#include <sys/mman.h>

#include "kernels/softgpu/context.h"
#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/vm_tables.h"
#include "libclient/base/base.h"

/* The mapping takes over the allocation's only reference. */
static CUresult owned_map(struct sg_alloc *a, struct sg_context *owner, uint64_t va)
	MM_REQUIRES(sg_vm_mutex)
{
	struct sg_mapping *m = NULL;
	struct sg_range *r;
	CUresult res;

	if (sg_ranges_add(&sg_vm.reserved, va, va + a->page.bytes, NULL) < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = sg_mapping_add(va, a, owner, &m);
	if (!res) {
		r = sg_ranges_find(&sg_vm.mapped, va);
		res = sg_mapping_set_access(r, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	}
	return res;
}

CUresult sg_vm_alloc(struct sg_context *owner, size_t bytes, uint64_t *ret_va)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)owner->device },
	};
	const struct sg_device_info *info = sg_device_info(owner->device);
	struct sg_page page;
	struct sg_alloc *a;
	CUresult res;
	uint64_t va;

	bytes = mm_round_up(bytes, info->host_page_bytes);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	SG_TRY(sg_page_create(owner->device, bytes, &page));
	SG_TRY(sg_alloc_add(&page, &prop, &a));
	va = sg_vm_reserve(bytes, info->host_page_bytes, 0);
	mm_lock_take(&sg_vm_mutex);
	res = va ? owned_map(a, owner, va) : CUDA_ERROR_OUT_OF_MEMORY;
	a->handle_refs = 0;
	page = SG_PAGE_NULL;
	if (!a->map_refs)
		sg_alloc_retire(a, &page);
	mm_lock_give(&sg_vm_mutex);
	sg_page_close(&page);
	if (!res)
		*ret_va = va;
	else if (va)
		sg_vm_free(va);
	return res;
}

/* Return: the mapping of cuMemAlloc() that begins at @va, or NULL. */
static struct sg_range *owned_find(uint64_t va) MM_REQUIRES(sg_vm_mutex)
{
	struct sg_range *r = sg_ranges_find(&sg_vm.mapped, va);

	return r && r->start == va && ((struct sg_mapping *)r->value)->owner ? r : NULL;
}

/* Removes mapping and reservation; the caller closes the page. */
static void owned_drop(struct sg_range *r, struct sg_page *ret_page) MM_REQUIRES(sg_vm_mutex)
{
	struct sg_range *reservation = sg_ranges_find(&sg_vm.reserved, r->start);
	size_t i;

	munmap((void *)(uintptr_t)(r->start), r->end - r->start);
	i = (size_t)(reservation - sg_vm.reserved.items);
	sg_ranges_remove(&sg_vm.reserved, i, i + 1);
	i = (size_t)(r - sg_vm.mapped.items);
	sg_mappings_drop(i, i + 1, ret_page);
}

CUresult sg_vm_free(uint64_t va)
{
	struct sg_page page = SG_PAGE_NULL;
	struct sg_range *r;

	mm_lock_take(&sg_vm_mutex);
	r = owned_find(va);
	if (r)
		owned_drop(r, &page);
	mm_lock_give(&sg_vm_mutex);
	sg_page_close(&page);
	return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct sg_context *sg_vm_owner(uint64_t va)
{
	struct sg_context *owner = NULL;
	struct sg_range *r;

	mm_lock_take(&sg_vm_mutex);
	r = owned_find(va);
	if (r) {
		owner = ((struct sg_mapping *)r->value)->owner;
		sg_object_ref(&owner->object);
	}
	mm_lock_give(&sg_vm_mutex);
	return owner;
}

/*
 * Frees the first allocation that @owner has at @va or behind. Return: the address to go on from;
 * 0: there was none.
 */
static uint64_t owned_free_next(const struct sg_context *owner, uint64_t va)
{
	struct sg_page page = SG_PAGE_NULL;
	uint64_t next = 0;
	size_t i;

	mm_lock_take(&sg_vm_mutex);
	i = sg_ranges_lower(&sg_vm.mapped, va);
	while (i < sg_vm.mapped.n &&
	       ((struct sg_mapping *)sg_vm.mapped.items[i].value)->owner != owner)
		i++;
	if (i < sg_vm.mapped.n) {
		next = sg_vm.mapped.items[i].end;
		owned_drop(&sg_vm.mapped.items[i], &page);
	}
	mm_lock_give(&sg_vm_mutex);
	sg_page_close(&page);
	return next;
}

void sg_vm_free_owned(const struct sg_context *owner)
{
	uint64_t va = 0;

	do
		va = owned_free_next(owner, va);
	while (va);
}
