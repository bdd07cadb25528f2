/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_entry - the driver's entry points, as this library exports them
 *
 * Concept:   one list: the base name that cuGetProcAddress() takes, the first ABI version that has
 *            it, the exported symbol, the parameters. It declares the functions, and is the table
 *            behind cuGetProcAddress().
 * Entry:     each function begins with SG_ENTER, which checks that the driver is initialised, that
 *            this process did it, and whether MM_SOFTGPU_FAIL names this call.
 * Threading: entry points are safe from any thread.
 */
#pragma once

#include "kernels/softgpu/unsupported.h"
#include "mm/gpu.h"

#ifndef CUDA_VERSION /* cuda.h was not included before: gpu_check.c compares */

typedef struct CUctxCreateParams_st CUctxCreateParams;
typedef struct CUexecAffinityParam_st CUexecAffinityParam;
typedef enum CUdevice_P2PAttribute_enum {
	CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK = 1
} CUdevice_P2PAttribute;
typedef enum CUlimit_enum {
	CU_LIMIT_STACK_SIZE = 0,
	CU_LIMIT_PRINTF_FIFO_SIZE = 1,
	CU_LIMIT_MALLOC_HEAP_SIZE = 2,
	CU_LIMIT_MAX = 8,
} CUlimit;
typedef enum CUfunc_cache_enum {
	CU_FUNC_CACHE_PREFER_NONE = 0,
	CU_FUNC_CACHE_PREFER_EQUAL = 3,
} CUfunc_cache;
typedef enum CUgraphInstantiateResult_enum {
	CUDA_GRAPH_INSTANTIATE_SUCCESS = 0,
	CUDA_GRAPH_INSTANTIATE_ERROR = 1,
} CUgraphInstantiateResult;
typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
	cuuint64_t flags;
	CUstream hUploadStream;
	CUgraphNode hErrNode_out;
	CUgraphInstantiateResult result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;
typedef struct CUuserObject_st *CUuserObject;
enum { CU_USER_OBJECT_NO_DESTRUCTOR_SYNC = 1, CU_GRAPH_USER_OBJECT_MOVE = 1 };
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *arg);

#endif

#define SG_DRIVER_VERSION 13000

enum sg_entry_needs { SG_ALWAYS, SG_INITIALISED };

/*
 * Checks what every entry point needs. Return: an error for the call to return at once;
 * CUDA_SUCCESS.
 */
CUresult sg_enter(const char *entry, enum sg_entry_needs needs);

/* Like SG_ENTER, for calls that need a current context that is alive. */
CUresult sg_enter_context(void);

/*
 * Return: the entry point for programs with a default stream per thread; @fn where that is the
 * same.
 */
void *sg_per_thread_variant(void *fn);

#define SG_TRY(call)                    \
	do {                            \
		CUresult res_ = (call); \
		if (res_)               \
			return res_;    \
	} while (0)
#define SG_ENTER() SG_TRY(sg_enter(__func__, SG_INITIALISED))

/* X(base name, version, symbol, parameters) */
#define SG_ENTRIES(X)                                                                              \
	X(cuInit, 2000, cuInit, (unsigned int flags))                                              \
	X(cuDriverGetVersion, 2020, cuDriverGetVersion, (int *version))                            \
	X(cuGetErrorName, 6000, cuGetErrorName, (CUresult error, const char **name))               \
	X(cuGetErrorString, 6000, cuGetErrorString, (CUresult error, const char **text))           \
	X(cuGetProcAddress, 11030, cuGetProcAddress,                                               \
	  (const char *name, void **fn, int version, cuuint64_t flags))                            \
	X(cuGetProcAddress, 12000, cuGetProcAddress_v2,                                            \
	  (const char *name, void **fn, int version, cuuint64_t flags,                             \
	   CUdriverProcAddressQueryResult *status))                                                \
	X(cuDeviceGet, 2000, cuDeviceGet, (CUdevice * device, int ordinal))                        \
	X(cuDeviceGetCount, 2000, cuDeviceGetCount, (int *count))                                  \
	X(cuDeviceGetName, 2000, cuDeviceGetName, (char *name, int len, CUdevice device))          \
	X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, (CUuuid * uuid, CUdevice device))                \
	X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))            \
	X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))          \
	X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute,                                        \
	  (int *value, CUdevice_attribute attribute, CUdevice device))                             \
	X(cuDeviceComputeCapability, 2000, cuDeviceComputeCapability,                              \
	  (int *major, int *minor, CUdevice device))                                               \
	X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, (char *id, int len, CUdevice device))    \
	X(cuDeviceGetByPCIBusId, 4010, cuDeviceGetByPCIBusId, (CUdevice * device, const char *id)) \
	X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer,                                      \
	  (int *can, CUdevice device, CUdevice peer))                                              \
	X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain,                                \
	  (CUcontext * ctx, CUdevice device))                                                      \
	X(cuDevicePrimaryCtxRelease, 7000, cuDevicePrimaryCtxRelease, (CUdevice device))           \
	X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, (CUdevice device))       \
	X(cuDevicePrimaryCtxSetFlags, 7000, cuDevicePrimaryCtxSetFlags,                            \
	  (CUdevice device, unsigned int flags))                                                   \
	X(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2,                        \
	  (CUdevice device, unsigned int flags))                                                   \
	X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState,                            \
	  (CUdevice device, unsigned int *flags, int *active))                                     \
	X(cuDevicePrimaryCtxReset, 7000, cuDevicePrimaryCtxReset, (CUdevice device))               \
	X(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2, (CUdevice device))           \
	X(cuCtxCreate, 3020, cuCtxCreate_v2,                                                       \
	  (CUcontext * ctx, unsigned int flags, CUdevice device))                                  \
	X(cuCtxCreate, 11040, cuCtxCreate_v3,                                                      \
	  (CUcontext * ctx, CUexecAffinityParam * params, int n_params, unsigned int flags,        \
	   CUdevice device))                                                                       \
	X(cuCtxCreate, 12050, cuCtxCreate_v4,                                                      \
	  (CUcontext * ctx, CUctxCreateParams * params, unsigned int flags, CUdevice device))      \
	X(cuCtxDestroy, 4000, cuCtxDestroy_v2, (CUcontext ctx))                                    \
	X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, (CUcontext ctx))                            \
	X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, (CUcontext * ctx))                            \
	X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, (CUcontext ctx))                                 \
	X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, (CUcontext * ctx))                               \
	X(cuCtxGetDevice, 2000, cuCtxGetDevice, (CUdevice * device))                               \
	X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, (CUdevice * device, CUcontext ctx))            \
	X(cuCtxGetFlags, 7000, cuCtxGetFlags, (unsigned int *flags))                               \
	X(cuCtxGetId, 12000, cuCtxGetId, (CUcontext ctx, unsigned long long *id))                  \
	X(cuCtxGetApiVersion, 3020, cuCtxGetApiVersion, (CUcontext ctx, unsigned int *version))    \
	X(cuCtxSynchronize, 2000, cuCtxSynchronize, (void))                                        \
	X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, (CUcontext ctx))                           \
	X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange,                          \
	  (int *least, int *greatest))                                                             \
	X(cuCtxGetLimit, 3010, cuCtxGetLimit, (size_t * value, CUlimit limit))                     \
	X(cuCtxSetLimit, 3010, cuCtxSetLimit, (CUlimit limit, size_t value))                       \
	X(cuCtxGetCacheConfig, 3020, cuCtxGetCacheConfig, (CUfunc_cache * config))                 \
	X(cuCtxSetCacheConfig, 3020, cuCtxSetCacheConfig, (CUfunc_cache config))                   \
	X(cuFuncSetCacheConfig, 3000, cuFuncSetCacheConfig,                                        \
	  (CUfunction function, CUfunc_cache config))                                              \
	X(cuDeviceGetP2PAttribute, 8000, cuDeviceGetP2PAttribute,                                  \
	  (int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer))           \
	X(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess,                                      \
	  (CUcontext peer, unsigned int flags))                                                    \
	X(cuCtxDisablePeerAccess, 4000, cuCtxDisablePeerAccess, (CUcontext peer))                  \
	X(cuProfilerStart, 4000, cuProfilerStart, (void))                                          \
	X(cuProfilerStop, 4000, cuProfilerStop, (void))                                            \
	X(cuMemGetInfo, 3020, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))        \
	X(cuMemAlloc, 3020, cuMemAlloc_v2, (CUdeviceptr * va, size_t bytes))                       \
	X(cuMemAllocPitch, 3020, cuMemAllocPitch_v2,                                               \
	  (CUdeviceptr * va, size_t * pitch, size_t width_bytes, size_t height,                    \
	   unsigned int element_bytes))                                                            \
	X(cuMemFree, 3020, cuMemFree_v2, (CUdeviceptr va))                                         \
	X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2,                                     \
	  (CUdeviceptr * base, size_t * bytes, CUdeviceptr va))                                    \
	X(cuMemAllocHost, 3020, cuMemAllocHost_v2, (void **addr, size_t bytes))                    \
	X(cuMemHostAlloc, 2020, cuMemHostAlloc, (void **addr, size_t bytes, unsigned int flags))   \
	X(cuMemFreeHost, 2000, cuMemFreeHost, (void *addr))                                        \
	X(cuMemHostRegister, 6050, cuMemHostRegister_v2,                                           \
	  (void *addr, size_t bytes, unsigned int flags))                                          \
	X(cuMemHostUnregister, 4000, cuMemHostUnregister, (void *addr))                            \
	X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2,                           \
	  (CUdeviceptr * va, void *addr, unsigned int flags))                                      \
	X(cuMemHostGetFlags, 2030, cuMemHostGetFlags, (unsigned int *flags, void *addr))           \
	X(cuPointerGetAttribute, 4000, cuPointerGetAttribute,                                      \
	  (void *data, CUpointer_attribute attribute, CUdeviceptr va))                             \
	X(cuPointerGetAttributes, 7000, cuPointerGetAttributes,                                    \
	  (unsigned int n, CUpointer_attribute *attributes, void **data, CUdeviceptr va))          \
	X(cuPointerSetAttribute, 6000, cuPointerSetAttribute,                                      \
	  (const void *value, CUpointer_attribute attribute, CUdeviceptr va))                      \
	X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity,                     \
	  (size_t * granularity, const CUmemAllocationProp *prop,                                  \
	   CUmemAllocationGranularity_flags option))                                               \
	X(cuMemCreate, 10020, cuMemCreate,                                                         \
	  (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop,   \
	   unsigned long long flags))                                                              \
	X(cuMemRelease, 10020, cuMemRelease, (CUmemGenericAllocationHandle handle))                \
	X(cuMemAddressReserve, 10020, cuMemAddressReserve,                                         \
	  (CUdeviceptr * va, size_t bytes, size_t alignment, CUdeviceptr hint_va,                  \
	   unsigned long long flags))                                                              \
	X(cuMemAddressFree, 10020, cuMemAddressFree, (CUdeviceptr va, size_t bytes))               \
	X(cuMemMap, 10020, cuMemMap,                                                               \
	  (CUdeviceptr va, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,       \
	   unsigned long long flags))                                                              \
	X(cuMemUnmap, 10020, cuMemUnmap, (CUdeviceptr va, size_t bytes))                           \
	X(cuMemSetAccess, 10020, cuMemSetAccess,                                                   \
	  (CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc, size_t count))               \
	X(cuMemGetAccess, 10020, cuMemGetAccess,                                                   \
	  (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr va))              \
	X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle,                       \
	  (void *os_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,   \
	   unsigned long long flags))                                                              \
	X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle,                   \
	  (CUmemGenericAllocationHandle * handle, void *os_handle,                                 \
	   CUmemAllocationHandleType type))                                                        \
	X(cuMemGetAllocationPropertiesFromHandle, 10020, cuMemGetAllocationPropertiesFromHandle,   \
	  (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle))                       \
	X(cuMemRetainAllocationHandle, 11000, cuMemRetainAllocationHandle,                         \
	  (CUmemGenericAllocationHandle * handle, void *addr))                                     \
	X(cuStreamCreate, 2000, cuStreamCreate, (CUstream * stream, unsigned int flags))           \
	X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority,                            \
	  (CUstream * stream, unsigned int flags, int priority))                                   \
	X(cuStreamDestroy, 4000, cuStreamDestroy_v2, (CUstream stream))                            \
	X(cuEventCreate, 2000, cuEventCreate, (CUevent * event, unsigned int flags))               \
	X(cuEventDestroy, 4000, cuEventDestroy_v2, (CUevent event))                                \
	X(cuEventQuery, 2000, cuEventQuery, (CUevent event))                                       \
	X(cuEventSynchronize, 2000, cuEventSynchronize, (CUevent event))                           \
	X(cuEventElapsedTime, 2000, cuEventElapsedTime, (float *ms, CUevent start, CUevent end))   \
	X(cuEventElapsedTime, 12080, cuEventElapsedTime_v2,                                        \
	  (float *ms, CUevent start, CUevent end))                                                 \
	X(cuGraphCreate, 10000, cuGraphCreate, (CUgraph * graph, unsigned int flags))              \
	X(cuGraphDestroy, 10000, cuGraphDestroy, (CUgraph graph))                                  \
	X(cuGraphGetNodes, 10000, cuGraphGetNodes,                                                 \
	  (CUgraph graph, CUgraphNode * nodes, size_t * n))                                        \
	X(cuGraphNodeGetType, 10000, cuGraphNodeGetType,                                           \
	  (CUgraphNode node, CUgraphNodeType * type))                                              \
	X(cuGraphAddBatchMemOpNode, 11070, cuGraphAddBatchMemOpNode,                               \
	  (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t n,           \
	   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))                                           \
	X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags,                         \
	  (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                           \
	X(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags,                                  \
	  (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                           \
	X(cuGraphExecBatchMemOpNodeSetParams, 11070, cuGraphExecBatchMemOpNodeSetParams,           \
	  (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))       \
	X(cuGraphExecDestroy, 10000, cuGraphExecDestroy, (CUgraphExec exec))                       \
	X(cuUserObjectCreate, 11030, cuUserObjectCreate,                                           \
	  (CUuserObject * object, void *arg, CUhostFn destroy, unsigned int count,                 \
	   unsigned int flags))                                                                    \
	X(cuUserObjectRetain, 11030, cuUserObjectRetain,                                           \
	  (CUuserObject object, unsigned int count))                                               \
	X(cuUserObjectRelease, 11030, cuUserObjectRelease,                                         \
	  (CUuserObject object, unsigned int count))                                               \
	X(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject,                                 \
	  (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags))            \
	X(cuGraphReleaseUserObject, 11030, cuGraphReleaseUserObject,                               \
	  (CUgraph graph, CUuserObject object, unsigned int count))                                \
	X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode,             \
	  (CUstreamCaptureMode * mode))                                                            \
	X(cuModuleLoad, 2000, cuModuleLoad, (CUmodule * module, const char *path))                 \
	X(cuModuleLoadData, 2000, cuModuleLoadData, (CUmodule * module, const void *image))        \
	X(cuModuleLoadDataEx, 2010, cuModuleLoadDataEx,                                            \
	  (CUmodule * module, const void *image, unsigned int n_options, CUjit_option *options,    \
	   void **values))                                                                         \
	X(cuModuleLoadFatBinary, 2000, cuModuleLoadFatBinary,                                      \
	  (CUmodule * module, const void *image))                                                  \
	X(cuModuleUnload, 2000, cuModuleUnload, (CUmodule module))                                 \
	X(cuModuleGetFunction, 2000, cuModuleGetFunction,                                          \
	  (CUfunction * function, CUmodule module, const char *name))                              \
	X(cuModuleGetGlobal, 3020, cuModuleGetGlobal_v2,                                           \
	  (CUdeviceptr * va, size_t * bytes, CUmodule module, const char *name))                   \
	X(cuModuleGetGlobal, 2000, cuModuleGetGlobal,                                              \
	  (unsigned int *va, unsigned int *bytes, CUmodule module, const char *name))              \
	X(cuLibraryLoadData, 12000, cuLibraryLoadData,                                             \
	  (CUlibrary * library, const void *image, CUjit_option *jit_options, void **jit_values,   \
	   unsigned int n_jit_options, CUlibraryOption *options, void **values,                    \
	   unsigned int n_options))                                                                \
	X(cuLibraryLoadFromFile, 12000, cuLibraryLoadFromFile,                                     \
	  (CUlibrary * library, const char *path, CUjit_option *jit_options, void **jit_values,    \
	   unsigned int n_jit_options, CUlibraryOption *options, void **values,                    \
	   unsigned int n_options))                                                                \
	X(cuLibraryUnload, 12000, cuLibraryUnload, (CUlibrary library))                            \
	X(cuLibraryGetKernel, 12000, cuLibraryGetKernel,                                           \
	  (CUkernel * kernel, CUlibrary library, const char *name))                                \
	X(cuLibraryGetModule, 12000, cuLibraryGetModule, (CUmodule * module, CUlibrary library))   \
	X(cuLibraryGetGlobal, 12000, cuLibraryGetGlobal,                                           \
	  (CUdeviceptr * va, size_t * bytes, CUlibrary library, const char *name))                 \
	X(cuFuncLoad, 12040, cuFuncLoad, (CUfunction function))                                    \
	X(cuFuncGetAttribute, 2020, cuFuncGetAttribute,                                            \
	  (int *value, CUfunction_attribute attribute, CUfunction function))                       \
	X(cuFuncSetAttribute, 9000, cuFuncSetAttribute,                                            \
	  (CUfunction function, CUfunction_attribute attribute, int value))                        \
	SG_STREAM_ENTRIES(X, X)                                                                    \
	SG_UNSUPPORTED_ENTRIES(X)

/*
 * Entry points whose NULL stream is another one under the per-thread default stream (the symbols
 * with _ptsz or _ptds). Y: those that take no stream.
 */
#define SG_STREAM_ENTRIES(X, Y)                                                                    \
	Y(cuMemcpy, 4000, cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))              \
	Y(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, (CUdeviceptr dst, const void *src, size_t bytes))   \
	Y(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, (void *dst, CUdeviceptr src, size_t bytes))         \
	Y(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))   \
	Y(cuMemcpy2D, 3020, cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy))                            \
	Y(cuMemcpy2DUnaligned, 3020, cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy))          \
	X(cuMemcpy2DAsync, 3020, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream)) \
	Y(cuMemsetD8, 3020, cuMemsetD8_v2, (CUdeviceptr va, unsigned char value, size_t count))    \
	Y(cuMemsetD16, 3020, cuMemsetD16_v2, (CUdeviceptr va, unsigned short value, size_t count)) \
	Y(cuMemsetD32, 3020, cuMemsetD32_v2, (CUdeviceptr va, unsigned int value, size_t count))   \
	X(cuMemcpyAsync, 4000, cuMemcpyAsync,                                                      \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                       \
	X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2,                                           \
	  (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))                       \
	X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2,                                           \
	  (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))                             \
	X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2,                                           \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                       \
	X(cuMemsetD8Async, 3020, cuMemsetD8Async,                                                  \
	  (CUdeviceptr va, unsigned char value, size_t count, CUstream stream))                    \
	X(cuMemsetD16Async, 3020, cuMemsetD16Async,                                                \
	  (CUdeviceptr va, unsigned short value, size_t count, CUstream stream))                   \
	X(cuMemsetD32Async, 3020, cuMemsetD32Async,                                                \
	  (CUdeviceptr va, unsigned int value, size_t count, CUstream stream))                     \
	Y(cuMemsetD2D8, 3020, cuMemsetD2D8_v2,                                                     \
	  (CUdeviceptr va, size_t pitch, unsigned char value, size_t count, size_t rows))          \
	X(cuMemsetD2D8Async, 3020, cuMemsetD2D8Async,                                              \
	  (CUdeviceptr va, size_t pitch, unsigned char value, size_t count, size_t rows,           \
	   CUstream stream))                                                                       \
	Y(cuMemsetD2D16, 3020, cuMemsetD2D16_v2,                                                   \
	  (CUdeviceptr va, size_t pitch, unsigned short value, size_t count, size_t rows))         \
	X(cuMemsetD2D16Async, 3020, cuMemsetD2D16Async,                                            \
	  (CUdeviceptr va, size_t pitch, unsigned short value, size_t count, size_t rows,          \
	   CUstream stream))                                                                       \
	Y(cuMemsetD2D32, 3020, cuMemsetD2D32_v2,                                                   \
	  (CUdeviceptr va, size_t pitch, unsigned int value, size_t count, size_t rows))           \
	X(cuMemsetD2D32Async, 3020, cuMemsetD2D32Async,                                            \
	  (CUdeviceptr va, size_t pitch, unsigned int value, size_t count, size_t rows,            \
	   CUstream stream))                                                                       \
	X(cuStreamSynchronize, 2000, cuStreamSynchronize, (CUstream stream))                       \
	X(cuStreamQuery, 2000, cuStreamQuery, (CUstream stream))                                   \
	X(cuStreamWaitEvent, 3020, cuStreamWaitEvent,                                              \
	  (CUstream stream, CUevent event, unsigned int flags))                                    \
	X(cuStreamGetPriority, 5050, cuStreamGetPriority, (CUstream stream, int *priority))        \
	X(cuStreamGetFlags, 5050, cuStreamGetFlags, (CUstream stream, unsigned int *flags))        \
	X(cuStreamGetId, 12000, cuStreamGetId, (CUstream stream, unsigned long long *id))          \
	X(cuStreamGetCtx, 9020, cuStreamGetCtx, (CUstream stream, CUcontext * ctx))                \
	X(cuStreamIsCapturing, 10000, cuStreamIsCapturing,                                         \
	  (CUstream stream, CUstreamCaptureStatus * status))                                       \
	X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2,                                    \
	  (CUstream stream, CUstreamCaptureMode mode))                                             \
	X(cuStreamEndCapture, 10000, cuStreamEndCapture, (CUstream stream, CUgraph * graph))       \
	X(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2,                                \
	  (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,      \
	   const CUgraphNode **nodes, size_t *n))                                                  \
	X(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3,                                \
	  (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,      \
	   const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *n))                   \
	X(cuGraphInstantiateWithParams, 12000, cuGraphInstantiateWithParams,                       \
	  (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * params))             \
	X(cuGraphUpload, 11010, cuGraphUpload, (CUgraphExec exec, CUstream stream))                \
	X(cuGraphLaunch, 10000, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                \
	X(cuStreamAddCallback, 5000, cuStreamAddCallback,                                          \
	  (CUstream stream, CUstreamCallback callback, void *arg, unsigned int flags))             \
	X(cuStreamWaitValue32, 11070, cuStreamWaitValue32_v2,                                      \
	  (CUstream stream, CUdeviceptr va, cuuint32_t value, unsigned int flags))                 \
	X(cuStreamWaitValue64, 11070, cuStreamWaitValue64_v2,                                      \
	  (CUstream stream, CUdeviceptr va, cuuint64_t value, unsigned int flags))                 \
	X(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2,                                    \
	  (CUstream stream, CUdeviceptr va, cuuint32_t value, unsigned int flags))                 \
	X(cuStreamWriteValue64, 11070, cuStreamWriteValue64_v2,                                    \
	  (CUstream stream, CUdeviceptr va, cuuint64_t value, unsigned int flags))                 \
	X(cuStreamBatchMemOp, 11070, cuStreamBatchMemOp_v2,                                        \
	  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,                     \
	   unsigned int flags))                                                                    \
	X(cuEventRecord, 2000, cuEventRecord, (CUevent event, CUstream stream))                    \
	X(cuEventRecordWithFlags, 11010, cuEventRecordWithFlags,                                   \
	  (CUevent event, CUstream stream, unsigned int flags))                                    \
	X(cuLaunchHostFunc, 10000, cuLaunchHostFunc, (CUstream stream, CUhostFn fn, void *arg))    \
	X(cuLaunchKernel, 4000, cuLaunchKernel,                                                    \
	  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
	   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
	   unsigned int shared_bytes, CUstream stream, void **params, void **extra))

#define SG_DECLARE(base, version, symbol, params) \
	__attribute__((visibility("default"))) CUresult CUDAAPI symbol params;
SG_ENTRIES(SG_DECLARE)
#undef SG_DECLARE
