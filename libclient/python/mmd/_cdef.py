# SPDX-License-Identifier: Apache-2.0
# Written by libclient/python/cdef from include/mm: do not edit.
"""What the client library has: its constants, and its declarations for cffi."""

from typing import Final

MM_NAME_BYTES: Final = 32
MM_FEAT_REMAP: Final = 1
MM_FEAT_RECLAIM: Final = 2
MM_FEAT_PARTIAL: Final = 4
MM_FEAT_REASON: Final = 8
MM_FEAT_KV_FIXED: Final = 16
MM_FEAT_KV_SWAP: Final = 32
MM_FEAT_RESUME: Final = 64
MM_FEAT_DEMAND: Final = 128
MM_FEAT_MEM: Final = 256
MM_FEAT_HOLD: Final = 512
MM_FEAT_GROUP: Final = 1024
MM_FEAT_KEY: Final = 2048
MM_FEAT_UNLOAD: Final = 4096
MM_FEAT_LEAVE: Final = 8192
MM_FEAT_COLD: Final = 0x4000
MM_LAYERS_MAX: Final = 1023
MM_LOAD_FILES_MAX: Final = 256
MM_LOAD_PACKS_MAX: Final = 64
MM_PACK_MEMBERS_MAX: Final = 16
MM_TENSOR_NAME_BYTES: Final = 120
MM_MODEL_KEY_BYTES: Final = 256
MM_MODEL_DIGEST_BYTES: Final = 32
MM_PACK_TRANSPOSE: Final = 1
MM_PACK_OPTIONAL: Final = 2
MM_TENSOR_PACK: Final = 1
MM_TENSOR_MEMBER: Final = 2
MM_TENSOR_TRANSPOSED: Final = 4
MM_LOAD_F_SHARED: Final = 1
MM_LOAD_F_BUFFERED: Final = 2
MM_LOAD_F_PREAD: Final = 4
MM_TURN_PRIORITY_MAX: Final = 7
MM_SWAP_LOTS: Final = 8
MM_SWAP_PIECES: Final = 512
MM_COLD_MAX: Final = 0x10000
MM_COLD_CLASSES_MAX: Final = 4
MM_COLD_UNIT_BYTES: Final = 64
MM_CLIENT_ABI_MAJOR: Final = 0
MM_CLIENT_ABI_MINOR: Final = 3
MM_CLIENT_ABI: Final = 3
MM_TIMEOUT_NEVER: Final = 0xffffffffffffffff
MM_CLIENT_NO_REMAP: Final = 1
MM_CLIENT_NO_VOID: Final = 2
MM_KV_BACKED: Final = 1
MM_KV_CONTIGUOUS: Final = 2

CDEF: Final = """
enum mm_dtype { MM_DTYPE_F32 = 1, MM_DTYPE_F16, MM_DTYPE_BF16, MM_DTYPE_F64, MM_DTYPE_F8_E4M3,
    MM_DTYPE_F8_E5M2, MM_DTYPE_F8_E8M0, MM_DTYPE_F6_E2M3, MM_DTYPE_F6_E3M2, MM_DTYPE_F4,
    MM_DTYPE_I8, MM_DTYPE_U8, MM_DTYPE_I16, MM_DTYPE_U16, MM_DTYPE_I32, MM_DTYPE_U32,
    MM_DTYPE_I64, MM_DTYPE_U64, MM_DTYPE_BOOL, MM_DTYPE_C64 };
enum mm_turn_mode { MM_TURN_NONE, MM_TURN_QUANTUM, MM_TURN_DRAIN };
struct mm_swap_piece { uint64_t arena_offset; uint64_t swap_offset; uint32_t bytes; uint32_t
    range; };
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef int CUresult;
struct mm_gpu_api { size_t size; void *library; void *cuInit; void *cuDriverGetVersion;
    CUresult( *cuGetErrorName) (CUresult error, const char **name); void *cuGetErrorString;
    CUresult( *cuDeviceGet) (CUdevice * device, int ordinal); void *cuDeviceGetCount; void
    *cuDeviceGetName; void *cuDeviceGetUuid; void *cuDeviceTotalMem; void *cuDeviceGetAttribute;
    void *cuDeviceGetPCIBusId; CUresult( *cuDevicePrimaryCtxRetain) (CUcontext * ctx, CUdevice
    device); CUresult( *cuDevicePrimaryCtxRelease) (CUdevice device); void
    *cuDevicePrimaryCtxGetState; void *cuDevicePrimaryCtxSetFlags; void
    *cuDevicePrimaryCtxReset; void *cuCtxSetCurrent; void *cuCtxGetCurrent; CUresult(
    *cuCtxPushCurrent) (CUcontext ctx); CUresult( *cuCtxPopCurrent) (CUcontext * ctx); void
    *cuCtxGetDevice; void *cuCtxSynchronize; void *cuCtxGetStreamPriorityRange; void
    *cuMemGetInfo; void *cuMemAlloc; void *cuMemFree; void *cuMemGetAllocationGranularity; void
    *cuMemCreate; void *cuMemRelease; void *cuMemAddressReserve; void *cuMemAddressFree; void
    *cuMemMap; void *cuMemUnmap; void *cuMemSetAccess; void *cuMemGetAccess; void
    *cuMemExportToShareableHandle; void *cuMemImportFromShareableHandle; void
    *cuMemGetAllocationPropertiesFromHandle; void *cuMemRetainAllocationHandle; void
    *cuPointerGetAttribute; void *cuMemHostRegister; void *cuMemHostUnregister; void
    *cuMemHostGetDevicePointer; void *cuMemHostAlloc; void *cuMemFreeHost; CUresult(
    *cuMemcpyHtoD) (CUdeviceptr dst, const void *src, size_t bytes); CUresult( *cuMemcpyDtoH)
    (void *dst, CUdeviceptr src, size_t bytes); void *cuMemcpyDtoD; void *cuMemcpyAsync; void
    *cuMemcpyHtoDAsync; void *cuMemcpyDtoHAsync; void *cuMemcpyDtoDAsync; CUresult(
    *cuMemsetD8Async) (CUdeviceptr va, unsigned char value, size_t count, CUstream stream); void
    *cuMemsetD32Async; void *cuStreamCreateWithPriority; CUresult( *cuStreamCreate) (CUstream *
    stream, unsigned int flags); CUresult( *cuStreamDestroy) (CUstream stream); CUresult(
    *cuStreamSynchronize) (CUstream stream); void *cuStreamQuery; void *cuStreamWaitEvent; void
    *cuStreamWaitValue32; void *cuStreamWaitValue64; void *cuStreamWriteValue32; void
    *cuStreamWriteValue64; void *cuStreamBatchMemOp; void *cuStreamIsCapturing; void
    *cuStreamBeginCapture; void *cuStreamEndCapture; void *cuStreamGetCaptureInfo; void
    *cuThreadExchangeStreamCaptureMode; void *cuGraphCreate; void *cuGraphDestroy; void
    *cuGraphGetNodes; void *cuGraphNodeGetType; void *cuGraphAddBatchMemOpNode; void
    *cuGraphInstantiateWithFlags; void *cuGraphExecBatchMemOpNodeSetParams; void *cuGraphUpload;
    void *cuGraphLaunch; void *cuGraphExecDestroy; void *cuEventCreate; void *cuEventDestroy;
    void *cuEventRecord; void *cuEventRecordWithFlags; void *cuEventQuery; void
    *cuEventSynchronize; void *cuEventElapsedTime; void *cuLaunchHostFunc; void *cuModuleLoad;
    void *cuModuleLoadData; void *cuModuleUnload; void *cuModuleGetFunction; void *cuFuncLoad;
    void *cuFuncGetAttribute; void *cuLaunchKernel; void *cuMemcpy2DAsync; };
struct mm_gpu_api;
struct mm_client;
struct mm_model;
struct mm_kv;
struct mm_swap;
struct mm_client_opts { size_t size; const char *socket_path; const char *name; const struct
    mm_gpu_api *gpu; uint64_t timeout_ns; int32_t device; uint32_t flags; };
struct mm_client_info { size_t size; uint32_t tenant_id; uint32_t reserved; char policy[32];
    char driver[32]; uint64_t features; uint64_t page_bytes; uint64_t pool_pages; uint8_t
    device_uuid[16]; uint32_t layers_remapped; uint32_t layers_cycling; uint64_t plan_epoch;
    uint64_t plan_changes; uint64_t plan_held_ns; };
uint32_t mm_client_abi(void);
const char *mm_client_version(void);
int mm_client_open(const struct mm_client_opts *opts, struct mm_client **ret_client, char
    *errbuf, size_t errbuf_bytes);
struct mm_client *mm_client_close(struct mm_client *client);
const char *mm_client_error(const struct mm_client *client);
const struct mm_gpu_api *mm_client_gpu(const struct mm_client *client);
int mm_client_info(struct mm_client *client, struct mm_client_info *ret_info);
enum mm_event_kind { MM_EVENT_NONE, MM_EVENT_KV_GRANTED, MM_EVENT_KV_DENIED,
    MM_EVENT_KV_RECLAIM, MM_EVENT_PLAN_CHANGED, MM_EVENT_SWAPPED, MM_EVENT_TURN_BEGIN,
    MM_EVENT_TURN_END, MM_EVENT_DISCONNECTED, MM_EVENT_STEP_ENDED, MM_EVENT_LEAVE,
    MM_EVENT_COLD, };
struct mm_event { size_t size; uint32_t kind; uint32_t count; int32_t error; uint32_t reserved;
    uint64_t deadline_ns; };
int mm_client_event_fd(const struct mm_client *client);
int mm_client_next_event(struct mm_client *client, struct mm_event *ret_event);
struct mm_load_hint { size_t size; uint32_t kv_chunks_used; uint32_t waiting; uint32_t running;
    uint32_t reserved; uint32_t kv_chunks_queued; uint32_t reserved2; uint64_t requests_done;
    uint64_t requests_late; };
int mm_client_hint(struct mm_client *client, const struct mm_load_hint *hint);
struct mm_pack { const char *name; const char *const *members; uint32_t n_members; uint32_t
    flags; };
struct mm_model_opts { size_t size; const struct mm_pack *packs; size_t n_packs; size_t
    pack_size; uint32_t n_layers; uint32_t reserved; const void *key; size_t key_bytes; };
struct mm_model_info { size_t size; uint32_t n_layers; uint32_t n_tensors; uint64_t
    resident_bytes; uint64_t layer_bytes; uint64_t device_bytes; uint64_t tensor_bytes; uint64_t
    waste_bytes; uint64_t store_bytes; uint32_t load_flags; uint32_t reserved; uint8_t
    digest[32]; };
struct mm_tensor { size_t size; uint64_t va; uint32_t dtype; uint32_t rank; uint64_t shape[4];
    uint64_t bytes; int32_t layer; uint32_t flags; };
int mm_model_load(struct mm_client *client, const char *dir, const struct mm_model_opts *opts,
    struct mm_model **ret_model);
int mm_model_load_files(struct mm_client *client, const int *fds, size_t n, const struct
    mm_model_opts *opts, struct mm_model **ret_model);
int mm_model_info(const struct mm_model *model, struct mm_model_info *ret_info);
int mm_model_tensor(const struct mm_model *model, const char *name, struct mm_tensor
    *ret_tensor);
int mm_model_tensor_at(const struct mm_model *model, uint32_t index, char *ret_name, size_t
    name_bytes, struct mm_tensor *ret_tensor);
int mm_model_compute(const struct mm_model *model, const uint16_t *weights, uint32_t n_layers);
const void *mm_model_store(const struct mm_model *model, const char *name, uint64_t *ret_bytes);
struct mm_kv_opts { size_t size; uint64_t chunk_bytes; uint32_t ranges; uint32_t chunks_max;
    uint32_t share_chunks; uint32_t flags; };
int mm_kv_open(struct mm_client *client, const struct mm_kv_opts *opts, struct mm_kv **ret_kv);
uint64_t mm_kv_range_va(const struct mm_kv *kv, uint32_t range);
int mm_kv_want(struct mm_kv *kv, uint32_t chunks_total, uint64_t timeout_ns);
uint32_t mm_kv_usable(struct mm_kv *kv, uint64_t *ret_bitmap, size_t words);
uint64_t mm_kv_generation(const struct mm_kv *kv);
int mm_kv_release(struct mm_kv *kv, uint32_t chunk);
int mm_kv_release_many(struct mm_kv *kv, const uint32_t *chunks, uint32_t n);
uint32_t mm_kv_owed(struct mm_kv *kv, uint64_t *ret_deadline_ns);
int mm_mem_alloc(struct mm_client *client, uint64_t bytes, uint32_t flags, uint64_t *ret_va);
int mm_mem_free(struct mm_client *client, uint64_t va);
struct mm_swap_done { size_t size; uint64_t user_data; int32_t error; uint32_t reserved; };
int mm_swap_open(struct mm_client *client, uint64_t bytes, struct mm_swap **ret_swap);
int mm_swap_out(struct mm_swap *swap, const struct mm_swap_piece *pieces, uint32_t n, uint64_t
    user_data);
int mm_swap_in(struct mm_swap *swap, const struct mm_swap_piece *pieces, uint32_t n, uint64_t
    user_data);
int mm_swap_next(struct mm_swap *swap, struct mm_swap_done *ret_done);
struct mm_turn_opts { size_t size; uint32_t mode; uint32_t priority; uint64_t quantum_ns; };
int mm_turn_join(struct mm_client *client, const struct mm_turn_opts *opts);
int mm_turn_want(struct mm_client *client, uint64_t timeout_ns);
int mm_turn_yield(struct mm_client *client);
struct mm_step_info { size_t size; uint64_t step_ns; uint64_t stall_ns; uint32_t gated; uint32_t
    timed; };
int mm_step_begin(struct mm_client *client);
int mm_step_join(struct mm_client *client, void *stream);
int mm_step_end(struct mm_client *client, void *stream, struct mm_step_info *ret_info);
int mm_step_end_async(struct mm_client *client, void *stream, uint64_t *ret_step);
int mm_step_wait(struct mm_client *client, uint64_t step, uint64_t timeout_ns, struct
    mm_step_info *ret_info);
int mm_step_abandon(struct mm_client *client, void *stream);
int mm_layer_begin(struct mm_model *model, uint32_t layer, void *stream);
int mm_layer_end(struct mm_model *model, uint32_t layer, void *stream);
struct mm_gate_times;
int mm_gate_times_open(struct mm_model *model, struct mm_gate_times **ret_times);
int mm_step_capture(struct mm_client *client, struct mm_gate_times *times);
int mm_step_replay(struct mm_client *client, struct mm_gate_times *times);
_Bool mm_step_wants_times(struct mm_client *client);
int mm_group_join(struct mm_client *client, const char *name, uint32_t rank, uint32_t size,
    uint64_t timeout_ns);
int mm_model_load_key(struct mm_client *client, const void *key, size_t key_bytes, const uint8_t
    *digest, struct mm_model **ret_model);
int mm_model_hold(struct mm_model *model, uint64_t timeout_ns);
int mm_model_release(struct mm_model *model);
int mm_layer_home(struct mm_model *model, uint32_t layer);
int mm_model_unload(struct mm_model *model);
struct mm_cold;
struct mm_cold_opts { size_t size; uint64_t unit_bytes; uint32_t layers; uint32_t entries_max;
    uint32_t floor; uint32_t reserved; };
struct mm_cold_state { size_t size; uint64_t acked; uint64_t deadline_ns; uint32_t limit;
    uint32_t entries; uint32_t window_first; uint32_t window_chunks; int32_t error; uint32_t
    pending; };
int mm_cold_open(struct mm_client *client, const struct mm_cold_opts *opts, struct mm_cold
    **ret_cold);
uint32_t mm_cold_classes(const struct mm_cold *cold);
int mm_cold_state(struct mm_cold *cold, struct mm_cold_state *ret_state);
int mm_cold_window(struct mm_cold *cold, uint32_t first_chunk, uint32_t chunks);
int mm_cold_set(struct mm_cold *cold, uint32_t entry, _Bool live);
uint64_t mm_cold_commit(struct mm_cold *cold);
int mm_kv_want_from(struct mm_kv *kv, uint32_t chunks_total, uint32_t first, uint64_t
    timeout_ns);
"""
