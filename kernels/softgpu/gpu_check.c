/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares include/mm/gpu.h with cuda.h. Compiled only where a CUDA toolkit is found.
 *
 * Values and layouts: gpu_renamed.h is our header with CU* names prefixed by ours_, so that both
 * can be included at once; gpu_values.h compares every enumerator of it. Signatures: with cuda.h
 * included first, struct mm_gpu_api is declared with the driver's own types, and each member must
 * have the type of exactly the ABI version that is looked up.
 *
 * Toolkits of 12.4 and later will do: a name that an older one lacks is not compared. Toolkits
 * differ in the ABI to which they rename a bare name; that, and what the software GPU exports, is
 * compared with 13.0's only.
 */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "mm/gpu.h"

#define NAMES_ARE_OURS (CUDA_VERSION >= 13000 && CUDA_VERSION < 13010)

#if NAMES_ARE_OURS
/*
 * Declares the exports of the software GPU a second time, so that the compiler compares them. The
 * first ABIs of these have no declaration in cuda.h, whose macros stand for the second.
 */
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuLinkAddData
#undef cuLinkAddFile
#undef cuLinkCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuModuleGetGlobal
#include "kernels/softgpu/entry.h"
#endif

#include "gpu_renamed.h"
#include "gpu_values.h"

#define SAME_SIZE(type)                                                \
	static_assert(sizeof(ours_##type) == sizeof(type) &&           \
			      _Alignof(ours_##type) == _Alignof(type), \
		      #type)
#define SAME_FIELD(type, field)                                                                \
	static_assert(offsetof(ours_##type, field) == offsetof(type, field) &&                 \
			      sizeof(((ours_##type *)0)->field) == sizeof(((type *)0)->field), \
		      #type "." #field)

SAME_SIZE(CUdevice);
SAME_SIZE(CUdeviceptr);
SAME_SIZE(CUmemGenericAllocationHandle);
SAME_SIZE(CUuuid);
SAME_SIZE(CUresult);
SAME_SIZE(CUmemLocation);
SAME_FIELD(CUmemLocation, type);
SAME_FIELD(CUmemLocation, id);
SAME_SIZE(CUmemAllocationProp);
SAME_FIELD(CUmemAllocationProp, type);
SAME_FIELD(CUmemAllocationProp, requestedHandleTypes);
SAME_FIELD(CUmemAllocationProp, location);
SAME_FIELD(CUmemAllocationProp, win32HandleMetaData);
SAME_FIELD(CUmemAllocationProp, allocFlags);
SAME_FIELD(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_FIELD(CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(CUmemAccessDesc);
SAME_FIELD(CUmemAccessDesc, location);
SAME_FIELD(CUmemAccessDesc, flags);
SAME_SIZE(CUstreamBatchMemOpParams);
SAME_FIELD(CUstreamBatchMemOpParams, waitValue.address);
SAME_FIELD(CUstreamBatchMemOpParams, waitValue.value64);
SAME_FIELD(CUstreamBatchMemOpParams, waitValue.flags);
SAME_FIELD(CUstreamBatchMemOpParams, writeValue.address);
SAME_FIELD(CUstreamBatchMemOpParams, writeValue.value64);
SAME_FIELD(CUstreamBatchMemOpParams, writeValue.flags);

SAME_SIZE(CUgraph);
SAME_SIZE(CUgraphNode);
SAME_SIZE(CUgraphExec);
SAME_SIZE(CUstreamCaptureMode);
SAME_SIZE(CUgraphNodeType);
SAME_SIZE(CUgraphEdgeData);
SAME_FIELD(CUgraphEdgeData, from_port);
SAME_FIELD(CUgraphEdgeData, to_port);
SAME_FIELD(CUgraphEdgeData, type);
SAME_FIELD(CUgraphEdgeData, reserved);
SAME_SIZE(CUDA_BATCH_MEM_OP_NODE_PARAMS);
SAME_FIELD(CUDA_BATCH_MEM_OP_NODE_PARAMS, ctx);
SAME_FIELD(CUDA_BATCH_MEM_OP_NODE_PARAMS, count);
SAME_FIELD(CUDA_BATCH_MEM_OP_NODE_PARAMS, paramArray);
SAME_FIELD(CUDA_BATCH_MEM_OP_NODE_PARAMS, flags);
SAME_SIZE(CUarray);
SAME_SIZE(CUmemorytype);
SAME_SIZE(CUDA_MEMCPY2D);
SAME_FIELD(CUDA_MEMCPY2D, srcXInBytes);
SAME_FIELD(CUDA_MEMCPY2D, srcY);
SAME_FIELD(CUDA_MEMCPY2D, srcMemoryType);
SAME_FIELD(CUDA_MEMCPY2D, srcHost);
SAME_FIELD(CUDA_MEMCPY2D, srcDevice);
SAME_FIELD(CUDA_MEMCPY2D, srcArray);
SAME_FIELD(CUDA_MEMCPY2D, srcPitch);
SAME_FIELD(CUDA_MEMCPY2D, dstXInBytes);
SAME_FIELD(CUDA_MEMCPY2D, dstY);
SAME_FIELD(CUDA_MEMCPY2D, dstMemoryType);
SAME_FIELD(CUDA_MEMCPY2D, dstHost);
SAME_FIELD(CUDA_MEMCPY2D, dstDevice);
SAME_FIELD(CUDA_MEMCPY2D, dstArray);
SAME_FIELD(CUDA_MEMCPY2D, dstPitch);
SAME_FIELD(CUDA_MEMCPY2D, WidthInBytes);
SAME_FIELD(CUDA_MEMCPY2D, Height);

static_assert(ours_CU_LAUNCH_PARAM_END_AS_INT == CU_LAUNCH_PARAM_END_AS_INT, "launch");
static_assert(ours_CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT == CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT,
	      "launch");
static_assert(ours_CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT == CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT,
	      "launch");
static_assert(ours_CU_MEMHOSTREGISTER_PORTABLE == CU_MEMHOSTREGISTER_PORTABLE, "register");
static_assert(ours_CU_MEMHOSTREGISTER_DEVICEMAP == CU_MEMHOSTREGISTER_DEVICEMAP, "register");
static_assert(ours_CU_MEMHOSTREGISTER_IOMEMORY == CU_MEMHOSTREGISTER_IOMEMORY, "register");
static_assert(ours_CU_MEMHOSTREGISTER_READ_ONLY == CU_MEMHOSTREGISTER_READ_ONLY, "register");
static_assert(ours_CU_MEMHOSTALLOC_PORTABLE == CU_MEMHOSTALLOC_PORTABLE, "alloc");
static_assert(ours_CU_MEMHOSTALLOC_DEVICEMAP == CU_MEMHOSTALLOC_DEVICEMAP, "alloc");
static_assert(ours_CU_MEMHOSTALLOC_WRITECOMBINED == CU_MEMHOSTALLOC_WRITECOMBINED, "alloc");

#if NAMES_ARE_OURS
/*
 * cuda.h renames names to symbols in the table too: the newest ABI, which may not be the one here.
 */
#define SAME_SIGNATURE(need, name, version, params)                                            \
	static_assert(__builtin_types_compatible_p(__typeof__(((struct mm_gpu_api *)0)->name), \
						   __typeof__(&name)),                         \
		      #name);
MM_GPU_ENTRIES(SAME_SIGNATURE)
#endif

/* The ABI version of the table exists under that number, with the same signature. */
#define SAME_VERSION(need, name, version, params)                                              \
	static_assert(__builtin_types_compatible_p(__typeof__(((struct mm_gpu_api *)0)->name), \
						   PFN_##name##_v##version),                   \
		      #name " of ABI version " #version);
MM_GPU_ENTRIES(SAME_VERSION)
