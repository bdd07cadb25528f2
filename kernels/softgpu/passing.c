/* SPDX-License-Identifier: Apache-2.0 */
/* Entry points that mean little or nothing to this device, but that programs call on their way. */
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/object.h"
#include "libclient/base/base.h"

/* The driver's defaults, until cuCtxSetLimit() changes them. */
static size_t limits[CU_LIMIT_MALLOC_HEAP_SIZE + 1] = {
	[CU_LIMIT_STACK_SIZE] = 1024,
	[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
	[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
};

static CUresult limit_check(CUlimit limit)
{
	SG_TRY(sg_enter_context());
	if ((int)limit < 0 || limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	return limit < MM_ARRAY_SIZE(limits) ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
	SG_ENTER();
	SG_TRY(limit_check(limit));
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	*value = __atomic_load_n(&limits[limit], __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* Limits are stored and have no effect: host kernels have the host's stack and heap. */
CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
	SG_ENTER();
	SG_TRY(limit_check(limit));
	__atomic_store_n(&limits[limit], value, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* The preference is ignored, as it may be: the device has no such cache. */
CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!config)
		return CUDA_ERROR_INVALID_VALUE;
	*config = CU_FUNC_CACHE_PREFER_NONE;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
	SG_ENTER();
	SG_TRY(sg_enter_context());
	return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
	struct sg_object *object;

	SG_ENTER();
	object = sg_object_get(function, SG_FUNCTION);
	if (!object)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_object_put(object);
	return config > CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* No device is a peer of another, nor of itself: there are no attributes of a pair. */
CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute,
					 CUdevice device, CUdevice peer)
{
	SG_ENTER();
	if (!value || attribute <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	(void)device;
	(void)peer;
	return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (flags || !peer)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
	SG_ENTER();
	SG_TRY(sg_enter_context());
	return peer ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : CUDA_ERROR_INVALID_VALUE;
}

/* Nothing to do: no profiler is attached. */
CUresult CUDAAPI cuProfilerStart(void)
{
	SG_ENTER();
	return sg_enter_context();
}

CUresult CUDAAPI cuProfilerStop(void)
{
	SG_ENTER();
	return sg_enter_context();
}
