/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of the entry points in unsupported.h. They ignore their parameters. */
#include "kernels/softgpu/entry.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define DEFINE(base, version, symbol, params)    \
	CUresult CUDAAPI symbol params           \
	{                                        \
		SG_ENTER();                      \
		return CUDA_ERROR_NOT_SUPPORTED; \
	}
SG_UNSUPPORTED_ENTRIES(DEFINE)

/* Programs with a default stream per thread get the same answer. */
#define VARIANT(symbol, variant) \
	extern __typeof__(symbol) variant __attribute__((visibility("default"), alias(#symbol)));
VARIANT(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz)
VARIANT(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz)
VARIANT(cuMemAllocAsync, cuMemAllocAsync_ptsz)
VARIANT(cuMemFreeAsync, cuMemFreeAsync_ptsz)
VARIANT(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz)
VARIANT(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds)
VARIANT(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz)
VARIANT(cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz)
VARIANT(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz)
VARIANT(cuGraphicsMapResources, cuGraphicsMapResources_ptsz)
VARIANT(cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz)
