/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_unsupported - entry points that exist and return CUDA_ERROR_NOT_SUPPORTED
 *
 * Concept:   a program that looks up all names when it starts fails if one is missing, even one
 *            that it would never call. These are the names that such programs look up. There are
 *            real devices without these features, whose driver returns the same error.
 * Types:     of cuda.h, as far as the parameters need them. No code looks into one.
 * Threading: safe from any thread.
 */
#pragma once

#include "mm/gpu.h"

#ifndef CUDA_VERSION /* cuda.h was not included before: gpu_check.c compares */

typedef struct CUmipmappedArray_st *CUmipmappedArray;
typedef struct CUlinkState_st *CUlinkState;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUextSemaphore_st *CUexternalSemaphore;
typedef struct CUgraphicsResource_st *CUgraphicsResource;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef struct CUDA_ARRAY_DESCRIPTOR_st CUDA_ARRAY_DESCRIPTOR;
typedef struct CUDA_ARRAY3D_DESCRIPTOR_st CUDA_ARRAY3D_DESCRIPTOR;
typedef struct CUDA_MEMCPY3D_st CUDA_MEMCPY3D;
typedef struct CUDA_RESOURCE_DESC_st CUDA_RESOURCE_DESC;
typedef struct CUDA_TEXTURE_DESC_st CUDA_TEXTURE_DESC;
typedef struct CUDA_RESOURCE_VIEW_DESC_st CUDA_RESOURCE_VIEW_DESC;
typedef struct CUmemPoolProps_st CUmemPoolProps;
typedef struct CUmemPoolPtrExportData_st CUmemPoolPtrExportData;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC_st
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
typedef enum CUjit_option_enum { CU_JIT_MAX_REGISTERS = 0 } CUjit_option;
typedef enum CUlibraryOption_enum { CU_LIBRARY_BINARY_IS_PRESERVED = 1 } CUlibraryOption;
typedef enum CUjitInputType_enum { CU_JIT_INPUT_PTX = 1 } CUjitInputType;
typedef enum CUmem_advise_enum { CU_MEM_ADVISE_SET_READ_MOSTLY = 1 } CUmem_advise;
typedef enum CUmem_range_attribute_enum {
	CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY = 1
} CUmem_range_attribute;
typedef enum CUmemPool_attribute_enum { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4 } CUmemPool_attribute;
typedef struct CUipcMemHandle_st {
	char reserved[64];
} CUipcMemHandle;
typedef struct CUipcEventHandle_st {
	char reserved[64];
} CUipcEventHandle;

#endif

/* X(base name, version, symbol, parameters), as in SG_ENTRIES. */
#define SG_UNSUPPORTED_ENTRIES(X) \
	SG_UNSUPPORTED_MANAGED(X) \
	SG_UNSUPPORTED_POOLS(X)   \
	SG_UNSUPPORTED_CODE(X)    \
	SG_UNSUPPORTED_ARRAYS(X)  \
	SG_UNSUPPORTED_SHARING(X)

/* Managed memory */
#define SG_UNSUPPORTED_MANAGED(X)                                                          \
	X(cuMemAllocManaged, 6000, cuMemAllocManaged,                                      \
	  (CUdeviceptr * va, size_t bytes, unsigned int flags))                            \
	X(cuMemPrefetchAsync, 8000, cuMemPrefetchAsync,                                    \
	  (CUdeviceptr va, size_t bytes, CUdevice device, CUstream stream))                \
	X(cuMemPrefetchAsync, 12020, cuMemPrefetchAsync_v2,                                \
	  (CUdeviceptr va, size_t bytes, CUmemLocation location, unsigned int flags,       \
	   CUstream stream))                                                               \
	X(cuMemAdvise, 8000, cuMemAdvise,                                                  \
	  (CUdeviceptr va, size_t bytes, CUmem_advise advice, CUdevice device))            \
	X(cuMemAdvise, 12020, cuMemAdvise_v2,                                              \
	  (CUdeviceptr va, size_t bytes, CUmem_advise advice, CUmemLocation location))     \
	X(cuMemRangeGetAttribute, 8000, cuMemRangeGetAttribute,                            \
	  (void *data, size_t data_bytes, CUmem_range_attribute attribute, CUdeviceptr va, \
	   size_t bytes))                                                                  \
	X(cuMemRangeGetAttributes, 8000, cuMemRangeGetAttributes,                          \
	  (void **data, size_t *data_bytes, CUmem_range_attribute *attributes, size_t n,   \
	   CUdeviceptr va, size_t bytes))

/* Memory that streams allocate, from pools */
#define SG_UNSUPPORTED_POOLS(X)                                                                  \
	X(cuMemAllocAsync, 11020, cuMemAllocAsync,                                               \
	  (CUdeviceptr * va, size_t bytes, CUstream stream))                                     \
	X(cuMemFreeAsync, 11020, cuMemFreeAsync, (CUdeviceptr va, CUstream stream))              \
	X(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync,                               \
	  (CUdeviceptr * va, size_t bytes, CUmemoryPool pool, CUstream stream))                  \
	X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool,                           \
	  (CUmemoryPool * pool, CUdevice device))                                                \
	X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device)) \
	X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool))   \
	X(cuMemPoolCreate, 11020, cuMemPoolCreate,                                               \
	  (CUmemoryPool * pool, const CUmemPoolProps *props))                                    \
	X(cuMemPoolDestroy, 11020, cuMemPoolDestroy, (CUmemoryPool pool))                        \
	X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, (CUmemoryPool pool, size_t min_bytes))        \
	X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute,                                   \
	  (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                       \
	X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute,                                   \
	  (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))                       \
	X(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess,                                         \
	  (CUmemoryPool pool, const CUmemAccessDesc *desc, size_t n))                            \
	X(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess,                                         \
	  (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation * location))              \
	X(cuMemPoolExportToShareableHandle, 11020, cuMemPoolExportToShareableHandle,             \
	  (void *os_handle, CUmemoryPool pool, CUmemAllocationHandleType type,                   \
	   unsigned long long flags))                                                            \
	X(cuMemPoolImportFromShareableHandle, 11020, cuMemPoolImportFromShareableHandle,         \
	  (CUmemoryPool * pool, void *os_handle, CUmemAllocationHandleType type,                 \
	   unsigned long long flags))                                                            \
	X(cuMemPoolExportPointer, 11020, cuMemPoolExportPointer,                                 \
	  (CUmemPoolPtrExportData * data, CUdeviceptr va))                                       \
	X(cuMemPoolImportPointer, 11020, cuMemPoolImportPointer,                                 \
	  (CUdeviceptr * va, CUmemoryPool pool, CUmemPoolPtrExportData * data))

/* Linking device code; what is in libraries, of which none can be loaded */
#define SG_UNSUPPORTED_CODE(X)                                                                    \
	X(cuLinkCreate, 5050, cuLinkCreate,                                                       \
	  (unsigned int n, CUjit_option *options, void **values, CUlinkState *state))             \
	X(cuLinkCreate, 6050, cuLinkCreate_v2,                                                    \
	  (unsigned int n, CUjit_option *options, void **values, CUlinkState *state))             \
	X(cuLinkAddData, 5050, cuLinkAddData,                                                     \
	  (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,    \
	   unsigned int n, CUjit_option *options, void **values))                                 \
	X(cuLinkAddData, 6050, cuLinkAddData_v2,                                                  \
	  (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,    \
	   unsigned int n, CUjit_option *options, void **values))                                 \
	X(cuLinkAddFile, 5050, cuLinkAddFile,                                                     \
	  (CUlinkState state, CUjitInputType type, const char *path, unsigned int n,              \
	   CUjit_option *options, void **values))                                                 \
	X(cuLinkAddFile, 6050, cuLinkAddFile_v2,                                                  \
	  (CUlinkState state, CUjitInputType type, const char *path, unsigned int n,              \
	   CUjit_option *options, void **values))                                                 \
	X(cuLinkComplete, 5050, cuLinkComplete, (CUlinkState state, void **image, size_t *bytes)) \
	X(cuLinkDestroy, 5050, cuLinkDestroy, (CUlinkState state))                                \
	X(cuKernelGetFunction, 12000, cuKernelGetFunction,                                        \
	  (CUfunction * function, CUkernel kernel))                                               \
	X(cuKernelGetAttribute, 12000, cuKernelGetAttribute,                                      \
	  (int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))         \
	X(cuKernelSetAttribute, 12000, cuKernelSetAttribute,                                      \
	  (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))

/* Arrays, textures and surfaces */
#define SG_UNSUPPORTED_ARRAYS(X)                                                                   \
	X(cuArrayCreate, 3020, cuArrayCreate_v2,                                                   \
	  (CUarray * array, const CUDA_ARRAY_DESCRIPTOR *desc))                                    \
	X(cuArray3DCreate, 3020, cuArray3DCreate_v2,                                               \
	  (CUarray * array, const CUDA_ARRAY3D_DESCRIPTOR *desc))                                  \
	X(cuArrayGetDescriptor, 3020, cuArrayGetDescriptor_v2,                                     \
	  (CUDA_ARRAY_DESCRIPTOR * desc, CUarray array))                                           \
	X(cuArray3DGetDescriptor, 3020, cuArray3DGetDescriptor_v2,                                 \
	  (CUDA_ARRAY3D_DESCRIPTOR * desc, CUarray array))                                         \
	X(cuArrayDestroy, 2000, cuArrayDestroy, (CUarray array))                                   \
	X(cuMipmappedArrayCreate, 5000, cuMipmappedArrayCreate,                                    \
	  (CUmipmappedArray * array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int n_levels))  \
	X(cuMipmappedArrayGetLevel, 5000, cuMipmappedArrayGetLevel,                                \
	  (CUarray * array, CUmipmappedArray mipmapped, unsigned int level))                       \
	X(cuMipmappedArrayDestroy, 5000, cuMipmappedArrayDestroy, (CUmipmappedArray array))        \
	X(cuMemcpy3D, 3020, cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy))                            \
	X(cuMemcpy3DAsync, 3020, cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream)) \
	X(cuTexObjectCreate, 5000, cuTexObjectCreate,                                              \
	  (CUtexObject * texture, const CUDA_RESOURCE_DESC *resource,                              \
	   const CUDA_TEXTURE_DESC *desc, const CUDA_RESOURCE_VIEW_DESC *view))                    \
	X(cuTexObjectDestroy, 5000, cuTexObjectDestroy, (CUtexObject texture))                     \
	X(cuTexObjectGetResourceDesc, 5000, cuTexObjectGetResourceDesc,                            \
	  (CUDA_RESOURCE_DESC * resource, CUtexObject texture))                                    \
	X(cuTexObjectGetTextureDesc, 5000, cuTexObjectGetTextureDesc,                              \
	  (CUDA_TEXTURE_DESC * desc, CUtexObject texture))                                         \
	X(cuSurfObjectCreate, 5000, cuSurfObjectCreate,                                            \
	  (CUsurfObject * surface, const CUDA_RESOURCE_DESC *resource))                            \
	X(cuSurfObjectDestroy, 5000, cuSurfObjectDestroy, (CUsurfObject surface))

/* Legacy IPC, memory and semaphores of other interfaces, graphics */
#define SG_UNSUPPORTED_SHARING(X)                                                                  \
	X(cuIpcGetMemHandle, 4010, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr va))   \
	X(cuIpcOpenMemHandle, 4010, cuIpcOpenMemHandle,                                            \
	  (CUdeviceptr * va, CUipcMemHandle handle, unsigned int flags))                           \
	X(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2,                                        \
	  (CUdeviceptr * va, CUipcMemHandle handle, unsigned int flags))                           \
	X(cuIpcCloseMemHandle, 4010, cuIpcCloseMemHandle, (CUdeviceptr va))                        \
	X(cuIpcGetEventHandle, 4010, cuIpcGetEventHandle,                                          \
	  (CUipcEventHandle * handle, CUevent event))                                              \
	X(cuIpcOpenEventHandle, 4010, cuIpcOpenEventHandle,                                        \
	  (CUevent * event, CUipcEventHandle handle))                                              \
	X(cuImportExternalMemory, 10000, cuImportExternalMemory,                                   \
	  (CUexternalMemory * memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc))               \
	X(cuDestroyExternalMemory, 10000, cuDestroyExternalMemory, (CUexternalMemory memory))      \
	X(cuExternalMemoryGetMappedBuffer, 10000, cuExternalMemoryGetMappedBuffer,                 \
	  (CUdeviceptr * va, CUexternalMemory memory,                                              \
	   const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc))                                          \
	X(cuExternalMemoryGetMappedMipmappedArray, 10000, cuExternalMemoryGetMappedMipmappedArray, \
	  (CUmipmappedArray * array, CUexternalMemory memory,                                      \
	   const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc))                                 \
	X(cuImportExternalSemaphore, 10000, cuImportExternalSemaphore,                             \
	  (CUexternalSemaphore * semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc))      \
	X(cuDestroyExternalSemaphore, 10000, cuDestroyExternalSemaphore,                           \
	  (CUexternalSemaphore semaphore))                                                         \
	X(cuSignalExternalSemaphoresAsync, 10000, cuSignalExternalSemaphoresAsync,                 \
	  (const CUexternalSemaphore *semaphores,                                                  \
	   const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned int n, CUstream stream))  \
	X(cuWaitExternalSemaphoresAsync, 10000, cuWaitExternalSemaphoresAsync,                     \
	  (const CUexternalSemaphore *semaphores,                                                  \
	   const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int n, CUstream stream))    \
	X(cuGraphicsMapResources, 3000, cuGraphicsMapResources,                                    \
	  (unsigned int n, CUgraphicsResource *resources, CUstream stream))                        \
	X(cuGraphicsUnmapResources, 3000, cuGraphicsUnmapResources,                                \
	  (unsigned int n, CUgraphicsResource *resources, CUstream stream))                        \
	X(cuGraphicsUnregisterResource, 3000, cuGraphicsUnregisterResource,                        \
	  (CUgraphicsResource resource))                                                           \
	X(cuGraphicsResourceGetMappedPointer, 3020, cuGraphicsResourceGetMappedPointer_v2,         \
	  (CUdeviceptr * va, size_t * bytes, CUgraphicsResource resource))                         \
	X(cuGraphicsSubResourceGetMappedArray, 3000, cuGraphicsSubResourceGetMappedArray,          \
	  (CUarray * array, CUgraphicsResource resource, unsigned int index, unsigned int level))  \
	X(cuGraphicsGLRegisterImage, 3000, cuGraphicsGLRegisterImage,                              \
	  (CUgraphicsResource * resource, unsigned int image, unsigned int target,                 \
	   unsigned int flags))                                                                    \
	X(cuGLGetDevices, 6050, cuGLGetDevices_v2,                                                 \
	  (unsigned int *n, CUdevice *devices, unsigned int room, unsigned int list))
