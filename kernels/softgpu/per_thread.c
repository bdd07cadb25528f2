/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The symbols for programs built with a default stream per thread: stream 0 is the calling
 * thread's. A call without a stream that needs one runs on that stream, and waits.
 */
#include "kernels/softgpu/entry.h"
#include "libclient/base/base.h"

/* X(symbol, parameters, arguments); the stream's parameter is called "stream". */
#define ENTRIES(X, Y)                                                                             \
	Y(cuMemcpy, cuMemcpy_ptds, cuMemcpyAsync,                                                 \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes),                                       \
	  (dst, src, bytes, CU_STREAM_PER_THREAD))                                                \
	Y(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, cuMemcpyHtoDAsync_v2,                            \
	  (CUdeviceptr dst, const void *src, size_t bytes),                                       \
	  (dst, src, bytes, CU_STREAM_PER_THREAD))                                                \
	Y(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, cuMemcpyDtoHAsync_v2,                            \
	  (void *dst, CUdeviceptr src, size_t bytes), (dst, src, bytes, CU_STREAM_PER_THREAD))    \
	Y(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, cuMemcpyDtoDAsync_v2,                            \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes),                                       \
	  (dst, src, bytes, CU_STREAM_PER_THREAD))                                                \
	Y(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy),     \
	  (copy, CU_STREAM_PER_THREAD))                                                           \
	Y(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2DAsync_v2,                \
	  (const CUDA_MEMCPY2D *copy), (copy, CU_STREAM_PER_THREAD))                              \
	X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz,                                            \
	  (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, per_thread(stream)))               \
	Y(cuMemsetD8_v2, cuMemsetD8_v2_ptds, cuMemsetD8Async,                                     \
	  (CUdeviceptr va, unsigned char value, size_t count),                                    \
	  (va, value, count, CU_STREAM_PER_THREAD))                                               \
	Y(cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD16Async,                                  \
	  (CUdeviceptr va, unsigned short value, size_t count),                                   \
	  (va, value, count, CU_STREAM_PER_THREAD))                                               \
	Y(cuMemsetD32_v2, cuMemsetD32_v2_ptds, cuMemsetD32Async,                                  \
	  (CUdeviceptr va, unsigned int value, size_t count),                                     \
	  (va, value, count, CU_STREAM_PER_THREAD))                                               \
	X(cuMemcpyAsync, cuMemcpyAsync_ptsz,                                                      \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),                      \
	  (dst, src, bytes, per_thread(stream)))                                                  \
	X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,                                        \
	  (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream),                      \
	  (dst, src, bytes, per_thread(stream)))                                                  \
	X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,                                        \
	  (void *dst, CUdeviceptr src, size_t bytes, CUstream stream),                            \
	  (dst, src, bytes, per_thread(stream)))                                                  \
	X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,                                        \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),                      \
	  (dst, src, bytes, per_thread(stream)))                                                  \
	X(cuMemsetD8Async, cuMemsetD8Async_ptsz,                                                  \
	  (CUdeviceptr va, unsigned char value, size_t count, CUstream stream),                   \
	  (va, value, count, per_thread(stream)))                                                 \
	X(cuMemsetD16Async, cuMemsetD16Async_ptsz,                                                \
	  (CUdeviceptr va, unsigned short value, size_t count, CUstream stream),                  \
	  (va, value, count, per_thread(stream)))                                                 \
	X(cuMemsetD32Async, cuMemsetD32Async_ptsz,                                                \
	  (CUdeviceptr va, unsigned int value, size_t count, CUstream stream),                    \
	  (va, value, count, per_thread(stream)))                                                 \
	Y(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async,                               \
	  (CUdeviceptr va, size_t pitch, unsigned char value, size_t count, size_t rows),         \
	  (va, pitch, value, count, rows, CU_STREAM_PER_THREAD))                                  \
	X(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,                                              \
	  (CUdeviceptr va, size_t pitch, unsigned char value, size_t count, size_t rows,          \
	   CUstream stream),                                                                      \
	  (va, pitch, value, count, rows, per_thread(stream)))                                    \
	Y(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async,                            \
	  (CUdeviceptr va, size_t pitch, unsigned short value, size_t count, size_t rows),        \
	  (va, pitch, value, count, rows, CU_STREAM_PER_THREAD))                                  \
	X(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,                                            \
	  (CUdeviceptr va, size_t pitch, unsigned short value, size_t count, size_t rows,         \
	   CUstream stream),                                                                      \
	  (va, pitch, value, count, rows, per_thread(stream)))                                    \
	Y(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async,                            \
	  (CUdeviceptr va, size_t pitch, unsigned int value, size_t count, size_t rows),          \
	  (va, pitch, value, count, rows, CU_STREAM_PER_THREAD))                                  \
	X(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,                                            \
	  (CUdeviceptr va, size_t pitch, unsigned int value, size_t count, size_t rows,           \
	   CUstream stream),                                                                      \
	  (va, pitch, value, count, rows, per_thread(stream)))                                    \
	X(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream stream), (per_thread(stream))) \
	X(cuStreamQuery, cuStreamQuery_ptsz, (CUstream stream), (per_thread(stream)))             \
	X(cuStreamWaitEvent, cuStreamWaitEvent_ptsz,                                              \
	  (CUstream stream, CUevent event, unsigned int flags),                                   \
	  (per_thread(stream), event, flags))                                                     \
	X(cuStreamGetPriority, cuStreamGetPriority_ptsz, (CUstream stream, int *priority),        \
	  (per_thread(stream), priority))                                                         \
	X(cuStreamGetFlags, cuStreamGetFlags_ptsz, (CUstream stream, unsigned int *flags),        \
	  (per_thread(stream), flags))                                                            \
	X(cuStreamGetId, cuStreamGetId_ptsz, (CUstream stream, unsigned long long *id),           \
	  (per_thread(stream), id))                                                               \
	X(cuStreamGetCtx, cuStreamGetCtx_ptsz, (CUstream stream, CUcontext * ctx),                \
	  (per_thread(stream), ctx))                                                              \
	X(cuStreamIsCapturing, cuStreamIsCapturing_ptsz,                                          \
	  (CUstream stream, CUstreamCaptureStatus * status), (per_thread(stream), status))        \
	X(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz,                                  \
	  (CUstream stream, CUstreamCaptureMode mode), (per_thread(stream), mode))                \
	X(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream stream, CUgraph * graph),        \
	  (per_thread(stream), graph))                                                            \
	X(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,                              \
	  (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,     \
	   const CUgraphNode **nodes, size_t *n),                                                 \
	  (per_thread(stream), status, id, graph, nodes, n))                                      \
	X(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,                              \
	  (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,     \
	   const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n),                  \
	  (per_thread(stream), status, id, graph, nodes, edges, n))                               \
	X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz,                        \
	  (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * params),            \
	  (exec, graph, params))                                                                  \
	X(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec exec, CUstream stream),                 \
	  (exec, per_thread(stream)))                                                             \
	X(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec exec, CUstream stream),                 \
	  (exec, per_thread(stream)))                                                             \
	X(cuStreamAddCallback, cuStreamAddCallback_ptsz,                                          \
	  (CUstream stream, CUstreamCallback callback, void *arg, unsigned int flags),            \
	  (per_thread(stream), callback, arg, flags))                                             \
	X(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz,                                    \
	  (CUstream stream, CUdeviceptr va, cuuint32_t value, unsigned int flags),                \
	  (per_thread(stream), va, value, flags))                                                 \
	X(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz,                                    \
	  (CUstream stream, CUdeviceptr va, cuuint64_t value, unsigned int flags),                \
	  (per_thread(stream), va, value, flags))                                                 \
	X(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz,                                  \
	  (CUstream stream, CUdeviceptr va, cuuint32_t value, unsigned int flags),                \
	  (per_thread(stream), va, value, flags))                                                 \
	X(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz,                                  \
	  (CUstream stream, CUdeviceptr va, cuuint64_t value, unsigned int flags),                \
	  (per_thread(stream), va, value, flags))                                                 \
	X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz,                                      \
	  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,                    \
	   unsigned int flags),                                                                   \
	  (per_thread(stream), count, ops, flags))                                                \
	X(cuEventRecord, cuEventRecord_ptsz, (CUevent event, CUstream stream),                    \
	  (event, per_thread(stream)))                                                            \
	X(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz,                                    \
	  (CUevent event, CUstream stream, unsigned int flags),                                   \
	  (event, per_thread(stream), flags))                                                     \
	X(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn fn, void *arg),     \
	  (per_thread(stream), fn, arg))                                                          \
	X(cuLaunchKernel, cuLaunchKernel_ptsz,                                                    \
	  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,    \
	   unsigned int block_x, unsigned int block_y, unsigned int block_z,                      \
	   unsigned int shared_bytes, CUstream stream, void **params, void **extra),              \
	  (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,             \
	   per_thread(stream), params, extra))

static CUstream per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

#define DEFINE_ASYNC(symbol, variant, params, args)                             \
	__attribute__((visibility("default"))) CUresult CUDAAPI variant params; \
	CUresult CUDAAPI variant params                                         \
	{                                                                       \
		return symbol args;                                             \
	}
#define DEFINE_SYNC(symbol, variant, async, params, args)                       \
	__attribute__((visibility("default"))) CUresult CUDAAPI variant params; \
	CUresult CUDAAPI variant params                                         \
	{                                                                       \
		CUresult res = async args;                                      \
                                                                                \
		return res ? res : cuStreamSynchronize(CU_STREAM_PER_THREAD);   \
	}
ENTRIES(DEFINE_ASYNC, DEFINE_SYNC)

static const struct {
	void *legacy, *per_thread;
} variants[] = {
#define ROW_ASYNC(symbol, variant, params, args)       { (void *)symbol, (void *)variant },
#define ROW_SYNC(symbol, variant, async, params, args) { (void *)symbol, (void *)variant },
	ENTRIES(ROW_ASYNC, ROW_SYNC)
};

void *sg_per_thread_variant(void *fn)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(variants); i++)
		if (variants[i].legacy == fn)
			return variants[i].per_thread;
	return fn;
}
