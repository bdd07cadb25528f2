/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points for memory of contexts, and for attributes of pointers. */
#include <string.h>

#include "kernels/softgpu/context.h"
#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/device.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/host.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"

#define PITCH_BYTES 512

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t used = 0, total;
	unsigned int device;

	SG_ENTER();
	SG_TRY(sg_context_device(&device));
	if (!free_bytes || !total_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_device_used(device, &used));
	total = sg_device_info(device)->capacity_bytes;
	*free_bytes = total - MM_MIN(used, total);
	*total_bytes = total;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *va, size_t bytes)
{
	struct sg_context *ctx;
	uint64_t found;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	SG_TRY(sg_context_current(&ctx));
	if (!va || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_vm_alloc(ctx, bytes, &found));
	/*
	 * Another thread may have ended the context meanwhile, and freed the memory that it had by
	 * then.
	 */
	if (sg_context_is_ending(ctx)) {
		sg_vm_free_owned(ctx);
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	}
	*va = found;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *va, size_t *pitch, size_t width_bytes,
				    size_t height, unsigned int element_bytes)
{
	size_t row = mm_round_up(width_bytes, PITCH_BYTES), bytes;

	if (!pitch || !row || !height ||
	    (element_bytes != 4 && element_bytes != 8 && element_bytes != 16) ||
	    __builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(cuMemAlloc_v2(va, bytes));
	*pitch = row;
	return CUDA_SUCCESS;
}

/*
 * Waits for the context's work first, as the driver does: it may use the memory. The context is the
 * one that owns the memory, whichever is current.
 */
CUresult CUDAAPI cuMemFree_v2(CUdeviceptr va)
{
	struct sg_context *owner;
	CUresult res;

	SG_ENTER();
	SG_TRY(sg_capture_unsafe());
	if (!va)
		return CUDA_SUCCESS;
	owner = sg_vm_owner(va);
	if (!owner)
		return sg_context_unless(CUDA_ERROR_INVALID_VALUE);
	res = sg_context_synchronize(owner);
	if (!res)
		res = sg_vm_free(va);
	sg_object_put(&owner->object);
	return res;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr va)
{
	struct sg_vm_info info;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	info = sg_vm_describe(va);
	if (!info.mapped)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = info.start;
	if (bytes)
		*bytes = info.end - info.start;
	return CUDA_SUCCESS;
}

/* All that pointer attributes are computed from. */
struct pointer {
	CUdeviceptr va;
	struct sg_vm_info vm;
	struct sg_host_info host;
	struct sg_context *ctx;
};

static bool pointer_is_known(const struct pointer *p)
{
	return p->vm.reserved || p->host.known;
}

static CUresult attribute_put(void *data, const void *value, size_t bytes)
{
	memcpy(data, value, bytes);
	return CUDA_SUCCESS;
}

static CUresult attribute_put_int(void *data, int value)
{
	return attribute_put(data, &value, sizeof(value));
}

static CUresult attribute_put_u64(void *data, uint64_t value)
{
	return attribute_put(data, &value, sizeof(value));
}

/* The driver writes these attributes as one byte. */
static CUresult attribute_put_bool(void *data, bool value)
{
	return attribute_put(data, &value, sizeof(value));
}

static CUresult range_attribute(const struct pointer *p, CUpointer_attribute attribute, void *data)
{
	uint64_t start = p->vm.reserved ? p->vm.range_start : p->host.start;
	uint64_t end = p->vm.reserved ? p->vm.range_end : p->host.end;

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		return attribute_put_u64(data, start);
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		return attribute_put_u64(data, end - start);
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		return attribute_put_u64(data, p->vm.mapped ? p->vm.start : start);
	default:
		return attribute_put_u64(data,
					 p->vm.mapped ? p->vm.end - p->vm.start : end - start);
	}
}

static CUresult pointer_attribute(const struct pointer *p, CUpointer_attribute attribute,
				  void *data)
{
	if (attribute == CU_POINTER_ATTRIBUTE_MAPPED)
		return attribute_put_bool(data, p->vm.mapped || p->host.known);
	if (!pointer_is_known(p))
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		return attribute_put(data, &p->ctx, sizeof(p->ctx));
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		return attribute_put_int(data, p->vm.reserved ? CU_MEMORYTYPE_DEVICE
							      : CU_MEMORYTYPE_HOST);
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		return attribute_put_u64(data, p->va);
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		return p->vm.reserved ? CUDA_ERROR_INVALID_VALUE : attribute_put_u64(data, p->va);
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		return attribute_put_u64(data, p->vm.mapped ? p->vm.block_id : p->host.start);
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		return attribute_put_bool(data, p->vm.sync_memops);
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		return attribute_put_bool(data, false);
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		return attribute_put_int(data, (int)(p->vm.mapped ? p->vm.device : p->ctx->device));
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		return range_attribute(p, attribute, data);
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		return attribute_put_int(data, (int)p->vm.handle_types);
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return attribute_put_int(data, p->vm.reserved ? (int)p->vm.access
							      : CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static struct pointer pointer_describe(struct sg_context *ctx, CUdeviceptr va)
{
	return (struct pointer){ va, sg_vm_describe(va), sg_host_describe(va), ctx };
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr va)
{
	struct sg_context *ctx;
	struct pointer p;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	p = pointer_describe(ctx, va);
	return pointer_attribute(&p, attribute, data);
}

/*
 * Only SYNC_MEMOPS can be set: synchronous copies and fills then return only when they are done.
 */
CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
				       CUdeviceptr va)
{
	unsigned int on;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&on, value, sizeof(on));
	return sg_vm_set_sync_memops(va, on != 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* An unknown pointer is no error here: an attribute that it does not have is left as it was. */
CUresult CUDAAPI cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attributes,
					void **data, CUdeviceptr va)
{
	struct sg_context *ctx;
	struct pointer p;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	if (!n || !attributes || !data)
		return CUDA_ERROR_INVALID_VALUE;
	p = pointer_describe(ctx, va);
	for (unsigned int i = 0; i < n; i++)
		pointer_attribute(&p, attributes[i], data[i]);
	return CUDA_SUCCESS;
}
