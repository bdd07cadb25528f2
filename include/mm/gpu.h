/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - the CUDA driver API, as a table of function pointers
 *
 * Concept:    There is no device abstraction of our own. struct mm_gpu_api holds the driver entry
 *             points in use, under the driver's own names and with their real signatures, each at
 *             one fixed ABI version. They come from libcuda.so.1 or from libmm-softgpu.so, the
 *             software GPU: the same code runs on both.
 * Types:      the subset of cuda.h that the table needs, declared here, so that no CUDA toolkit is
 *             needed. If one is found, kernels/softgpu/gpu_check.c checks every value, layout and
 *             signature against it. A file that needs both headers includes cuda.h first;
 *             cuda_runtime_api.h may be included anywhere.
 * Engines:    get a table from mm_client_gpu() or fill one of their own; mm_gpu_open() and the
 *             other functions below are those of mmd's programs, and libmm-client exports none.
 * Ownership:  mm_gpu_open() fills the caller's table; mm_gpu_close() clears it. Neither starts the
 *             driver: mm_gpu_init() or cuInit() does.
 * Threading:  a filled table is read-only; the driver's entry points are thread-safe.
 * Limits:     a CUDA driver of MM_GPU_VERSION_MIN or later. Entries marked OPTIONAL may be NULL.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef CUDA_VERSION /* cuda.h was not included before */

#define CUDAAPI
#define CUDA_CB
#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

#define CU_MEMHOSTALLOC_PORTABLE      0x01
#define CU_MEMHOSTALLOC_DEVICEMAP     0x02
#define CU_MEMHOSTALLOC_WRITECOMBINED 0x04
#define CU_MEMHOSTREGISTER_PORTABLE   0x01
#define CU_MEMHOSTREGISTER_DEVICEMAP  0x02
#define CU_MEMHOSTREGISTER_IOMEMORY   0x04
#define CU_MEMHOSTREGISTER_READ_ONLY  0x08

#define CU_LAUNCH_PARAM_END_AS_INT            0x00
#define CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT 0x01
#define CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT    0x02
#define CU_LAUNCH_PARAM_END                   ((void *)CU_LAUNCH_PARAM_END_AS_INT)
#define CU_LAUNCH_PARAM_BUFFER_POINTER        ((void *)CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
#define CU_LAUNCH_PARAM_BUFFER_SIZE           ((void *)CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUarray_st *CUarray;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

#ifndef CU_UUID_HAS_BEEN_DEFINED /* cuda_runtime_api.h declares it too, and nothing else of this */
#define CU_UUID_HAS_BEEN_DEFINED
typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
#endif

typedef enum cudaError_enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_PROFILER_DISABLED = 5,
	CUDA_ERROR_PROFILER_NOT_INITIALIZED = 6,
	CUDA_ERROR_PROFILER_ALREADY_STARTED = 7,
	CUDA_ERROR_PROFILER_ALREADY_STOPPED = 8,
	CUDA_ERROR_STUB_LIBRARY = 34,
	CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_DEVICE_NOT_LICENSED = 102,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_CONTEXT_ALREADY_CURRENT = 202,
	CUDA_ERROR_MAP_FAILED = 205,
	CUDA_ERROR_UNMAP_FAILED = 206,
	CUDA_ERROR_ARRAY_IS_MAPPED = 207,
	CUDA_ERROR_ALREADY_MAPPED = 208,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_ALREADY_ACQUIRED = 210,
	CUDA_ERROR_NOT_MAPPED = 211,
	CUDA_ERROR_NOT_MAPPED_AS_ARRAY = 212,
	CUDA_ERROR_NOT_MAPPED_AS_POINTER = 213,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_UNSUPPORTED_LIMIT = 215,
	CUDA_ERROR_CONTEXT_ALREADY_IN_USE = 216,
	CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_INVALID_GRAPHICS_CONTEXT = 219,
	CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
	CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_JIT_COMPILATION_DISABLED = 223,
	CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY = 224,
	CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC = 225,
	CUDA_ERROR_CONTAINED = 226,
	CUDA_ERROR_INVALID_SOURCE = 300,
	CUDA_ERROR_FILE_NOT_FOUND = 301,
	CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND = 302,
	CUDA_ERROR_SHARED_OBJECT_INIT_FAILED = 303,
	CUDA_ERROR_OPERATING_SYSTEM = 304,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_LOSSY_QUERY = 402,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING = 703,
	CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
	CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
	CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_ASSERT = 710,
	CUDA_ERROR_TOO_MANY_PEERS = 711,
	CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
	CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
	CUDA_ERROR_MISALIGNED_ADDRESS = 716,
	CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
	CUDA_ERROR_INVALID_PC = 718,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
	CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
	CUDA_ERROR_NOT_PERMITTED = 800,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_SYSTEM_NOT_READY = 802,
	CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
	CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
	CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
	CUDA_ERROR_MPS_RPC_FAILURE = 806,
	CUDA_ERROR_MPS_SERVER_NOT_READY = 807,
	CUDA_ERROR_MPS_MAX_CLIENTS_REACHED = 808,
	CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED = 809,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
	CUDA_ERROR_CDP_NOT_SUPPORTED = 811,
	CUDA_ERROR_CDP_VERSION_MISMATCH = 812,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
	CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_CAPTURED_EVENT = 907,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
	CUDA_ERROR_TIMEOUT = 909,
	CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
	CUDA_ERROR_EXTERNAL_DEVICE = 911,
	CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
	CUDA_ERROR_FUNCTION_NOT_LOADED = 913,
	CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
	CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
	CUDA_ERROR_KEY_ROTATION = 916,
	CUDA_ERROR_UNKNOWN = 999,
} CUresult;

typedef enum CUdevice_attribute_enum {
	CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
	CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
	CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
	CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
	CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
	CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
	CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
	CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
	CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY = 9,
	CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
	CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
	CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
	CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
	CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT = 14,
	CU_DEVICE_ATTRIBUTE_GPU_OVERLAP = 15,
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT = 17,
	CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
	CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
	CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
	CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS = 31,
	CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
	CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
	CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
	CU_DEVICE_ATTRIBUTE_TCC_DRIVER = 35,
	CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
	CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
	CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
	CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
	CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
	CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
	CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED = 78,
	CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
	CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
	CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
	CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
	CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
	CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES = 98,
	CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES = 100,
	CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 102,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
	CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
	CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED = 110,
	CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
	CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
	CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122,
	CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
	CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED = 128,
	CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS = 129,
	CU_DEVICE_ATTRIBUTE_NUMA_CONFIG = 130,
	CU_DEVICE_ATTRIBUTE_NUMA_ID = 131,
	CU_DEVICE_ATTRIBUTE_MPS_ENABLED = 133,
	CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
	CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED = 141,
} CUdevice_attribute;

typedef enum CUpointer_attribute_enum {
	CU_POINTER_ATTRIBUTE_CONTEXT = 1,
	CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
	CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
	CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6,
	CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
	CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE = 10,
	CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
	CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
	CU_POINTER_ATTRIBUTE_MAPPED = 13,
	CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES = 14,
	CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE = 15,
	CU_POINTER_ATTRIBUTE_ACCESS_FLAGS = 16,
	CU_POINTER_ATTRIBUTE_MAPPING_SIZE = 18,
	CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR = 19,
	CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID = 20,
} CUpointer_attribute;

typedef enum CUfunction_attribute_enum {
	CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
	CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
	CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
	CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
	CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
	CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
	CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
	CU_FUNC_ATTRIBUTE_CACHE_MODE_CA = 7,
	CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
	CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
} CUfunction_attribute;

typedef enum CUmemorytype_enum {
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,
	CU_MEMORYTYPE_ARRAY = 3,
	CU_MEMORYTYPE_UNIFIED = 4,
} CUmemorytype;

typedef enum CUctx_flags_enum {
	CU_CTX_SCHED_AUTO = 0x00,
	CU_CTX_SCHED_SPIN = 0x01,
	CU_CTX_SCHED_YIELD = 0x02,
	CU_CTX_SCHED_BLOCKING_SYNC = 0x04,
	CU_CTX_MAP_HOST = 0x08,
	CU_CTX_FLAGS_MASK = 0xff,
} CUctx_flags;

typedef enum CUstream_flags_enum {
	CU_STREAM_DEFAULT = 0x0,
	CU_STREAM_NON_BLOCKING = 0x1,
} CUstream_flags;

typedef enum CUevent_flags_enum {
	CU_EVENT_DEFAULT = 0x0,
	CU_EVENT_BLOCKING_SYNC = 0x1,
	CU_EVENT_DISABLE_TIMING = 0x2,
	CU_EVENT_INTERPROCESS = 0x4,
} CUevent_flags;

typedef enum CUevent_record_flags_enum {
	CU_EVENT_RECORD_DEFAULT = 0x0,
	CU_EVENT_RECORD_EXTERNAL = 0x1, /* in a capture: a node that records; invalid elsewhere */
} CUevent_record_flags;

typedef enum CUevent_wait_flags_enum {
	CU_EVENT_WAIT_DEFAULT = 0x0,
	CU_EVENT_WAIT_EXTERNAL = 0x1, /* in a capture: a node that waits; invalid elsewhere */
} CUevent_wait_flags;

typedef enum CUstreamWaitValue_flags_enum {
	CU_STREAM_WAIT_VALUE_GEQ = 0x0, /* cyclic: (int)(*addr - value) >= 0 */
	CU_STREAM_WAIT_VALUE_EQ = 0x1,
	CU_STREAM_WAIT_VALUE_AND = 0x2, /* (*addr & value) != 0 */
	CU_STREAM_WAIT_VALUE_NOR = 0x3, /* ~(*addr | value) != 0 */
	CU_STREAM_WAIT_VALUE_FLUSH = 1 << 30,
} CUstreamWaitValue_flags;

typedef enum CUstreamWriteValue_flags_enum {
	CU_STREAM_WRITE_VALUE_DEFAULT = 0x0,
	CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 0x1,
} CUstreamWriteValue_flags;

typedef enum CUstreamBatchMemOpType_enum {
	CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
	CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
	CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
	CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
	CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
	CU_STREAM_MEM_OP_BARRIER = 6,
} CUstreamBatchMemOpType;

typedef union CUstreamBatchMemOpParams_union {
	CUstreamBatchMemOpType operation;
	struct CUstreamMemOpWaitValueParams_st {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			cuuint32_t value;
			cuuint64_t value64;
		};
		unsigned int flags;
		CUdeviceptr alias;
	} waitValue;
	struct CUstreamMemOpWriteValueParams_st {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			cuuint32_t value;
			cuuint64_t value64;
		};
		unsigned int flags;
		CUdeviceptr alias;
	} writeValue;
	struct CUstreamMemOpFlushRemoteWritesParams_st {
		CUstreamBatchMemOpType operation;
		unsigned int flags;
	} flushRemoteWrites;
	struct CUstreamMemOpMemoryBarrierParams_st {
		CUstreamBatchMemOpType operation;
		unsigned int flags;
	} memoryBarrier;
	cuuint64_t pad[6];
} CUstreamBatchMemOpParams;

typedef enum CUstreamCaptureStatus_enum {
	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
	CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
} CUstreamCaptureStatus;

typedef enum CUstreamCaptureMode_enum {
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;

typedef enum CUgraphNodeType_enum {
	CU_GRAPH_NODE_TYPE_KERNEL = 0,
	CU_GRAPH_NODE_TYPE_MEMCPY = 1,
	CU_GRAPH_NODE_TYPE_MEMSET = 2,
	CU_GRAPH_NODE_TYPE_HOST = 3,
	CU_GRAPH_NODE_TYPE_GRAPH = 4,
	CU_GRAPH_NODE_TYPE_EMPTY = 5,
	CU_GRAPH_NODE_TYPE_WAIT_EVENT = 6,
	CU_GRAPH_NODE_TYPE_EVENT_RECORD = 7,
	CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL = 8,
	CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT = 9,
	CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
	CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
	CU_GRAPH_NODE_TYPE_BATCH_MEM_OP = 12,
	CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
} CUgraphNodeType;

typedef enum CUgraphInstantiate_flags_enum {
	CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
	CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2,
	CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH = 4,
	CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY = 8,
} CUgraphInstantiate_flags;

typedef struct CUgraphEdgeData_st {
	unsigned char from_port;
	unsigned char to_port;
	unsigned char type;
	unsigned char reserved[5];
} CUgraphEdgeData;

typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st {
	CUcontext ctx;
	unsigned int count;
	CUstreamBatchMemOpParams *paramArray;
	unsigned int flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

typedef enum CUmemAllocationHandleType_enum {
	CU_MEM_HANDLE_TYPE_NONE = 0x0,
	CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 0x1,
	CU_MEM_HANDLE_TYPE_FABRIC = 0x8,
	CU_MEM_HANDLE_TYPE_MAX = 0x7fffffff,
} CUmemAllocationHandleType;

typedef enum CUmemAccess_flags_enum {
	CU_MEM_ACCESS_FLAGS_PROT_NONE = 0x0,
	CU_MEM_ACCESS_FLAGS_PROT_READ = 0x1,
	CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 0x3,
	CU_MEM_ACCESS_FLAGS_PROT_MAX = 0x7fffffff,
} CUmemAccess_flags;

typedef enum CUmemLocationType_enum {
	CU_MEM_LOCATION_TYPE_INVALID = 0x0,
	CU_MEM_LOCATION_TYPE_DEVICE = 0x1,
	CU_MEM_LOCATION_TYPE_HOST = 0x2,
	CU_MEM_LOCATION_TYPE_HOST_NUMA = 0x3,
	CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT = 0x4,
	CU_MEM_LOCATION_TYPE_MAX = 0x7fffffff,
} CUmemLocationType;

typedef enum CUmemAllocationType_enum {
	CU_MEM_ALLOCATION_TYPE_INVALID = 0x0,
	CU_MEM_ALLOCATION_TYPE_PINNED = 0x1,
	CU_MEM_ALLOCATION_TYPE_MAX = 0x7fffffff,
} CUmemAllocationType;

typedef enum CUmemAllocationGranularity_flags_enum {
	CU_MEM_ALLOC_GRANULARITY_MINIMUM = 0x0,
	CU_MEM_ALLOC_GRANULARITY_RECOMMENDED = 0x1,
} CUmemAllocationGranularity_flags;

typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef enum CUdriverProcAddressQueryResult_enum {
	CU_GET_PROC_ADDRESS_SUCCESS = 0,
	CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
	CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
} CUdriverProcAddressQueryResult;

typedef enum CUdriverProcAddress_flags_enum {
	CU_GET_PROC_ADDRESS_DEFAULT = 0,
	CU_GET_PROC_ADDRESS_LEGACY_STREAM = 1 << 0,
	CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM = 1 << 1,
} CUdriverProcAddress_flags;

typedef void(CUDA_CB *CUhostFn)(void *userData);

typedef struct CUDA_MEMCPY2D_st {
	size_t srcXInBytes;
	size_t srcY;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch;
	size_t dstXInBytes;
	size_t dstY;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch;
	size_t WidthInBytes;
	size_t Height;
} CUDA_MEMCPY2D;

static_assert(sizeof(CUmemAllocationProp) == 32, "driver ABI");
static_assert(sizeof(CUmemLocation) == 8, "driver ABI");
static_assert(sizeof(CUmemAccessDesc) == 12, "driver ABI");
static_assert(sizeof(CUstreamBatchMemOpParams) == 48, "driver ABI");
static_assert(sizeof(CUuuid) == 16, "driver ABI");
static_assert(sizeof(CUgraphEdgeData) == 8, "driver ABI");
static_assert(sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS) == 32, "driver ABI");
static_assert(sizeof(CUDA_MEMCPY2D) == 128, "driver ABI");

#endif /* CUDA_VERSION */

/*
 * Every entry point in use: X(REQUIRED or OPTIONAL, name, ABI version, parameters), in the order of
 * the table, at whose end new ones are added. The version is an argument of cuGetProcAddress_v2 and
 * selects the symbol behind the name (cuMemGetInfo at 3020 is cuMemGetInfo_v2).
 */
#define MM_GPU_ENTRIES(X)                                                                          \
	X(REQUIRED, cuInit, 2000, (unsigned int flags))                                            \
	X(REQUIRED, cuDriverGetVersion, 2020, (int *version))                                      \
	X(REQUIRED, cuGetErrorName, 6000, (CUresult error, const char **name))                     \
	X(REQUIRED, cuGetErrorString, 6000, (CUresult error, const char **text))                   \
	X(REQUIRED, cuDeviceGet, 2000, (CUdevice * device, int ordinal))                           \
	X(REQUIRED, cuDeviceGetCount, 2000, (int *count))                                          \
	X(REQUIRED, cuDeviceGetName, 2000, (char *name, int len, CUdevice device))                 \
	X(REQUIRED, cuDeviceGetUuid, 11040, (CUuuid * uuid, CUdevice device))                      \
	X(REQUIRED, cuDeviceTotalMem, 3020, (size_t * bytes, CUdevice device))                     \
	X(REQUIRED, cuDeviceGetAttribute, 2000,                                                    \
	  (int *value, CUdevice_attribute attribute, CUdevice device))                             \
	X(OPTIONAL, cuDeviceGetPCIBusId, 4010, (char *id, int len, CUdevice device))               \
	X(REQUIRED, cuDevicePrimaryCtxRetain, 7000, (CUcontext * ctx, CUdevice device))            \
	X(REQUIRED, cuDevicePrimaryCtxRelease, 11000, (CUdevice device))                           \
	X(OPTIONAL, cuDevicePrimaryCtxGetState, 7000,                                              \
	  (CUdevice device, unsigned int *flags, int *active))                                     \
	X(OPTIONAL, cuDevicePrimaryCtxSetFlags, 11000, (CUdevice device, unsigned int flags))      \
	X(OPTIONAL, cuDevicePrimaryCtxReset, 11000, (CUdevice device))                             \
	X(REQUIRED, cuCtxSetCurrent, 4000, (CUcontext ctx))                                        \
	X(REQUIRED, cuCtxGetCurrent, 4000, (CUcontext * ctx))                                      \
	X(REQUIRED, cuCtxPushCurrent, 4000, (CUcontext ctx))                                       \
	X(REQUIRED, cuCtxPopCurrent, 4000, (CUcontext * ctx))                                      \
	X(REQUIRED, cuCtxGetDevice, 2000, (CUdevice * device))                                     \
	X(REQUIRED, cuCtxSynchronize, 2000, (void))                                                \
	X(OPTIONAL, cuCtxGetStreamPriorityRange, 5050, (int *least, int *greatest))                \
	X(REQUIRED, cuMemGetInfo, 3020, (size_t * free_bytes, size_t * total_bytes))               \
	X(REQUIRED, cuMemAlloc, 3020, (CUdeviceptr * va, size_t bytes))                            \
	X(REQUIRED, cuMemFree, 3020, (CUdeviceptr va))                                             \
	X(REQUIRED, cuMemGetAllocationGranularity, 10020,                                          \
	  (size_t * granularity, const CUmemAllocationProp *prop,                                  \
	   CUmemAllocationGranularity_flags option))                                               \
	X(REQUIRED, cuMemCreate, 10020,                                                            \
	  (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop,   \
	   unsigned long long flags))                                                              \
	X(REQUIRED, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle))                    \
	X(REQUIRED, cuMemAddressReserve, 10020,                                                    \
	  (CUdeviceptr * va, size_t bytes, size_t alignment, CUdeviceptr hint_va,                  \
	   unsigned long long flags))                                                              \
	X(REQUIRED, cuMemAddressFree, 10020, (CUdeviceptr va, size_t bytes))                       \
	X(REQUIRED, cuMemMap, 10020,                                                               \
	  (CUdeviceptr va, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,       \
	   unsigned long long flags))                                                              \
	X(REQUIRED, cuMemUnmap, 10020, (CUdeviceptr va, size_t bytes))                             \
	X(REQUIRED, cuMemSetAccess, 10020,                                                         \
	  (CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc, size_t count))               \
	X(REQUIRED, cuMemGetAccess, 10020,                                                         \
	  (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr va))              \
	X(REQUIRED, cuMemExportToShareableHandle, 10020,                                           \
	  (void *os_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,   \
	   unsigned long long flags))                                                              \
	X(REQUIRED, cuMemImportFromShareableHandle, 10020,                                         \
	  (CUmemGenericAllocationHandle * handle, void *os_handle,                                 \
	   CUmemAllocationHandleType type))                                                        \
	X(REQUIRED, cuMemGetAllocationPropertiesFromHandle, 10020,                                 \
	  (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle))                       \
	X(REQUIRED, cuMemRetainAllocationHandle, 11000,                                            \
	  (CUmemGenericAllocationHandle * handle, void *addr))                                     \
	X(REQUIRED, cuPointerGetAttribute, 4000,                                                   \
	  (void *data, CUpointer_attribute attribute, CUdeviceptr va))                             \
	X(REQUIRED, cuMemHostRegister, 6050, (void *addr, size_t bytes, unsigned int flags))       \
	X(REQUIRED, cuMemHostUnregister, 4000, (void *addr))                                       \
	X(REQUIRED, cuMemHostGetDevicePointer, 3020,                                               \
	  (CUdeviceptr * va, void *addr, unsigned int flags))                                      \
	X(OPTIONAL, cuMemHostAlloc, 2020, (void **addr, size_t bytes, unsigned int flags))         \
	X(OPTIONAL, cuMemFreeHost, 2000, (void *addr))                                             \
	X(REQUIRED, cuMemcpyHtoD, 3020, (CUdeviceptr dst, const void *src, size_t bytes))          \
	X(REQUIRED, cuMemcpyDtoH, 3020, (void *dst, CUdeviceptr src, size_t bytes))                \
	X(REQUIRED, cuMemcpyDtoD, 3020, (CUdeviceptr dst, CUdeviceptr src, size_t bytes))          \
	X(REQUIRED, cuMemcpyAsync, 4000,                                                           \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                       \
	X(REQUIRED, cuMemcpyHtoDAsync, 3020,                                                       \
	  (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream))                       \
	X(REQUIRED, cuMemcpyDtoHAsync, 3020,                                                       \
	  (void *dst, CUdeviceptr src, size_t bytes, CUstream stream))                             \
	X(REQUIRED, cuMemcpyDtoDAsync, 3020,                                                       \
	  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream))                       \
	X(REQUIRED, cuMemsetD8Async, 3020,                                                         \
	  (CUdeviceptr va, unsigned char value, size_t count, CUstream stream))                    \
	X(REQUIRED, cuMemsetD32Async, 3020,                                                        \
	  (CUdeviceptr va, unsigned int value, size_t count, CUstream stream))                     \
	X(REQUIRED, cuStreamCreateWithPriority, 5050,                                              \
	  (CUstream * stream, unsigned int flags, int priority))                                   \
	X(REQUIRED, cuStreamCreate, 2000, (CUstream * stream, unsigned int flags))                 \
	X(REQUIRED, cuStreamDestroy, 4000, (CUstream stream))                                      \
	X(REQUIRED, cuStreamSynchronize, 2000, (CUstream stream))                                  \
	X(REQUIRED, cuStreamQuery, 2000, (CUstream stream))                                        \
	X(REQUIRED, cuStreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned int flags)) \
	X(REQUIRED, cuStreamWaitValue32, 11070,                                                    \
	  (CUstream stream, CUdeviceptr va, cuuint32_t value, unsigned int flags))                 \
	X(REQUIRED, cuStreamWaitValue64, 11070,                                                    \
	  (CUstream stream, CUdeviceptr va, cuuint64_t value, unsigned int flags))                 \
	X(REQUIRED, cuStreamWriteValue32, 11070,                                                   \
	  (CUstream stream, CUdeviceptr va, cuuint32_t value, unsigned int flags))                 \
	X(REQUIRED, cuStreamWriteValue64, 11070,                                                   \
	  (CUstream stream, CUdeviceptr va, cuuint64_t value, unsigned int flags))                 \
	X(OPTIONAL, cuStreamBatchMemOp, 11070,                                                     \
	  (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,                     \
	   unsigned int flags))                                                                    \
	X(OPTIONAL, cuStreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus * status)) \
	X(OPTIONAL, cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode))      \
	X(OPTIONAL, cuStreamEndCapture, 10000, (CUstream stream, CUgraph * graph))                 \
	X(OPTIONAL, cuStreamGetCaptureInfo, 12030,                                                 \
	  (CUstream stream, CUstreamCaptureStatus * status, cuuint64_t * id, CUgraph * graph,      \
	   const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count))        \
	X(OPTIONAL, cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode * mode))        \
	X(OPTIONAL, cuGraphCreate, 10000, (CUgraph * graph, unsigned int flags))                   \
	X(OPTIONAL, cuGraphDestroy, 10000, (CUgraph graph))                                        \
	X(OPTIONAL, cuGraphGetNodes, 10000, (CUgraph graph, CUgraphNode * nodes, size_t * count))  \
	X(OPTIONAL, cuGraphNodeGetType, 10000, (CUgraphNode node, CUgraphNodeType * type))         \
	X(OPTIONAL, cuGraphAddBatchMemOpNode, 11070,                                               \
	  (CUgraphNode * node, CUgraph graph, const CUgraphNode *dependencies, size_t count,       \
	   const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))                                           \
	X(OPTIONAL, cuGraphInstantiateWithFlags, 11040,                                            \
	  (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                           \
	X(OPTIONAL, cuGraphExecBatchMemOpNodeSetParams, 11070,                                     \
	  (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))       \
	X(OPTIONAL, cuGraphUpload, 11010, (CUgraphExec exec, CUstream stream))                     \
	X(OPTIONAL, cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream))                     \
	X(OPTIONAL, cuGraphExecDestroy, 10000, (CUgraphExec exec))                                 \
	X(REQUIRED, cuEventCreate, 2000, (CUevent * event, unsigned int flags))                    \
	X(REQUIRED, cuEventDestroy, 4000, (CUevent event))                                         \
	X(REQUIRED, cuEventRecord, 2000, (CUevent event, CUstream stream))                         \
	X(OPTIONAL, cuEventRecordWithFlags, 11010,                                                 \
	  (CUevent event, CUstream stream, unsigned int flags))                                    \
	X(REQUIRED, cuEventQuery, 2000, (CUevent event))                                           \
	X(REQUIRED, cuEventSynchronize, 2000, (CUevent event))                                     \
	X(REQUIRED, cuEventElapsedTime, 2000, (float *ms, CUevent start, CUevent end))             \
	X(REQUIRED, cuLaunchHostFunc, 10000, (CUstream stream, CUhostFn fn, void *arg))            \
	X(REQUIRED, cuModuleLoad, 2000, (CUmodule * module, const char *path))                     \
	X(REQUIRED, cuModuleLoadData, 2000, (CUmodule * module, const void *image))                \
	X(REQUIRED, cuModuleUnload, 2000, (CUmodule module))                                       \
	X(REQUIRED, cuModuleGetFunction, 2000,                                                     \
	  (CUfunction * function, CUmodule module, const char *name))                              \
	X(OPTIONAL, cuFuncLoad, 12040, (CUfunction function))                                      \
	X(OPTIONAL, cuFuncGetAttribute, 2020,                                                      \
	  (int *value, CUfunction_attribute attribute, CUfunction function))                       \
	X(REQUIRED, cuLaunchKernel, 4000,                                                          \
	  (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,     \
	   unsigned int block_x, unsigned int block_y, unsigned int block_z,                       \
	   unsigned int shared_bytes, CUstream stream, void **params, void **extra))               \
	X(REQUIRED, cuMemcpy2DAsync, 3020, (const CUDA_MEMCPY2D *copy, CUstream stream))

/*
 * cuDriverGetVersion() of the oldest driver that is supported: it was checked to have all entries.
 */
#define MM_GPU_VERSION_MIN  12040
#define MM_GPU_VERSION_TEXT "12.4"

/* A loaded driver: gpu->cuMemCreate(...) is the driver's cuMemCreate. */
struct mm_gpu_api {
	/*
	 * sizeof(struct mm_gpu_api) of the version that filled it. Entries are added at the end
	 * only, and none is removed. libclient copies an engine's table: what it lacks is NULL, so
	 * that libclient needs no entry that was added after version 1. An engine compares the size
	 * with its own before it calls one that was added later.
	 */
	size_t size;
	void *library; /* dlopen() handle, NULL when closed */
#define MM_GPU_MEMBER(need, name, version, params) CUresult(CUDAAPI *name) params;
	MM_GPU_ENTRIES(MM_GPU_MEMBER)
#undef MM_GPU_MEMBER
};

/**
 * mm_gpu_open() - load a driver library and look up every entry point
 * @driver:    "software", "cuda", or the path of a library; NULL: the environment's MM_DRIVER, or
 *             "software" if that is not set
 * @ret_gpu:   written only on success; give back with mm_gpu_close()
 * @err:       receives one line on failure: what is missing; may be NULL
 * @err_bytes: size of @err
 *
 * "software" is the environment's MM_SOFTGPU_LIB, or libmm-softgpu.so beside the object that
 * contains this function, in its ../lib, or wherever the dynamic linker finds it. "cuda" is
 * libcuda.so.1.
 *
 * Return: 0; -ENOENT no such library; -ENOSYS the library cannot be used as driver: it is a stub,
 * too old, or without required entries (@err lists them as name(ABI version)).
 */
int mm_gpu_open(const char *driver, struct mm_gpu_api *ret_gpu, char *err, size_t err_bytes);

/**
 * mm_gpu_close() - close the library
 * @gpu: filled or zeroed; no work that was started through it may be running
 */
void mm_gpu_close(struct mm_gpu_api *gpu);

/**
 * mm_gpu_init() - start the driver: cuInit(0)
 * @gpu:       filled by mm_gpu_open()
 * @err:       receives one line on failure: what is wrong and what to do; may be NULL
 * @err_bytes: size of @err
 *
 * Return: 0; or mm_gpu_errno() of the driver's result.
 */
int mm_gpu_init(const struct mm_gpu_api *gpu, char *err, size_t err_bytes);

/**
 * mm_gpu_load_module() - load a file of kernels
 * @gpu:        filled by mm_gpu_open(); a context is current
 * @path:       of a fatbin, or of a file that the software GPU can run
 * @ret_module: written only on success
 * @err:        receives one line on failure: what is wrong and what to do; may be NULL
 * @err_bytes:  size of @err
 *
 * Return: 0; -ENOEXEC the file has no code for this driver and device; otherwise mm_gpu_errno() of
 * the driver's result.
 */
int mm_gpu_load_module(const struct mm_gpu_api *gpu, const char *path, CUmodule *ret_module,
		       char *err, size_t err_bytes);

/**
 * mm_gpu_kernel() - look up a kernel of a module and load it
 * @gpu:          filled by mm_gpu_open()
 * @module:       from mm_gpu_load_module()
 * @name:         name of the kernel
 * @ret_function: written only on success
 *
 * Drivers otherwise load a kernel at its first launch, and may wait for the whole context then,
 * which must not happen while streams wait at a gate.
 */
CUresult mm_gpu_kernel(const struct mm_gpu_api *gpu, CUmodule module, const char *name,
		       CUfunction *ret_function);

/**
 * mm_gpu_is_software() - whether this is the software GPU, whatever its file name
 * @gpu: filled or zeroed
 */
bool mm_gpu_is_software(const struct mm_gpu_api *gpu);

/**
 * mm_gpu_strerror() - the driver's name of a result, for messages
 * @gpu:    filled by mm_gpu_open()
 * @result: any value
 *
 * Return: a static string such as "CUDA_ERROR_OUT_OF_MEMORY"; never NULL.
 */
const char *mm_gpu_strerror(const struct mm_gpu_api *gpu, CUresult result);

/**
 * mm_gpu_errno() - convert a driver's result to a negative errno
 * @result: any value
 *
 * Return: 0 for CUDA_SUCCESS; -ENOMEM, -EINVAL, -EBUSY (not ready), -EFAULT (the context is lost to
 * a device fault), -ENODEV, -EPERM, -EOPNOTSUPP, -ENOENT, -ETIMEDOUT; -EIO for all else.
 */
int mm_gpu_errno(CUresult result);
