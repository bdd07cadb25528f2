/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client - the library by which an LLM serving engine uses memory that mmd lends
 *
 * Concept:   An engine opens a client, loads one model (its tensors get fixed device addresses that
 *            never change again) and one KV arena (ranges of fixed addresses that grow and shrink
 *            by chunks). It brackets every forward step with mm_step_begin/end and every layer with
 *            mm_layer_begin/end on its own stream. In return mmd may take layers' pages away and
 *            stream them back in time; pointers, kernels and graphs stay valid. A client uses one
 *            device. A process that uses several opens a client on each: they are separate tenants
 *            with separate arenas, models, steps and event fds, in one account.
 * Ownership: the client owns all objects that were opened with it; mm_client_close() frees them.
 *            Strings and structs that are returned are copies.
 * Threading: any thread; calls on one client are serialised inside, except that steps of several
 *            threads may be open at once. One service thread per client handles the events of mmd;
 *            it runs no code of the engine. After fork() only the parent may use the client; calls
 *            in a child return -ECHILD.
 * Errors:    negative errno; mm_client_error() returns the sentence. The library never logs, exits,
 *            aborts or raises. If the daemon breaks the protocol, hangs or dies, calls fail with
 *            -ECONNRESET or -EPROTO, and no stream hangs: gates are aborted.
 * Units:     bytes, nanoseconds (CLOCK_MONOTONIC), layers counted from 0.
 * Sizes:     each struct that a caller fills or receives begins with `size`, which the caller sets
 *            to its sizeof, also where the library fills it. A struct grows at its end only; old
 *            programs work with new libraries and new ones with old: what the caller's version
 *            lacks counts as 0 and is not written; what the library's version lacks must be 0 when
 *            it is given, and comes back as 0. Reserved fields must be 0. A size that cannot be is
 *            -EINVAL, and nothing has happened then. A list has the size of its elements beside it.
 *            Only struct mm_swap_piece has no size: it lies in shared memory and never changes.
 * Driver:    no header of a driver is needed. A device address is a uint64_t, to which and from
 *            which a CUdeviceptr converts; a stream is a void *, to which a CUstream or a
 *            cudaStream_t converts in C and in C++.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mm_gpu_api; /* mm/gpu.h: only code that uses the table of mm_client_gpu() needs it */

#define MM_API __attribute__((visibility("default")))

/*
 * The version of this interface, not of mmd or of the wire. MAJOR is the library's soname; MINOR is
 * counted up by whatever is added. Functions have symbol versions LIBMM_CLIENT_<MAJOR>.<MINOR>.
 */
#define MM_CLIENT_ABI_MAJOR 0
#define MM_CLIENT_ABI_MINOR 3
#define MM_CLIENT_ABI       (((uint32_t)MM_CLIENT_ABI_MAJOR << 16) | MM_CLIENT_ABI_MINOR)

#define MM_SOCKET_ENV    "MMD_SOCKET" /* variable that is used first if socket_path is NULL */
#define MM_TIMEOUT_NEVER UINT64_MAX

struct mm_client;
struct mm_model;
struct mm_kv;
struct mm_swap;

struct mm_client_opts {
	size_t size; /* = sizeof(struct mm_client_opts) */
	/* NULL: $MMD_SOCKET, $XDG_RUNTIME_DIR/mmd/tenant.sock, /run/mmd/tenant.sock */
	const char *socket_path;
	const char *name; /* shown by mmctl; NULL = the program's name */
	/* Borrowed for the client's life; NULL = opened by the client. */
	const struct mm_gpu_api *gpu;
	uint64_t timeout_ns; /* of each call that waits for mmd; 0 = 120 s */
	int32_t device;      /* ordinal in this process; mmd receives the device's UUID */
	uint32_t flags;      /* MM_CLIENT_*; an unknown bit is -EINVAL */
};

#define MM_CLIENT_NO_REMAP 1u /* layers are not bracketed: mmd must never take them */
/* Since 0.3: no step is ever void; it waits, or the connection ends (client.md). */
#define MM_CLIENT_NO_VOID 2u

struct mm_client_info {
	size_t size; /* = sizeof(struct mm_client_info) */
	uint32_t tenant_id;
	uint32_t reserved;
	char policy[MM_NAME_BYTES]; /* mmd's, by its name */
	char driver[MM_NAME_BYTES]; /* of mmd's device: software, cuda, or a later one */
	uint64_t features;          /* MM_FEAT_*: what both sides use, and facts of mmd */
	uint64_t page_bytes;
	uint64_t pool_pages;
	uint8_t device_uuid[16];
	uint32_t layers_remapped; /* alpha of the plan in force */
	uint32_t layers_cycling;  /* m */
	uint64_t plan_epoch;
	uint64_t plan_changes;
	uint64_t plan_held_ns; /* time in all during which a plan change kept steps out */
};

/**
 * mm_client_abi() - the version of the interface that the loaded library has
 *
 * For programs that load the library by dlopen(): all functions and fields up to the minor version
 * are there.
 * Return: MM_CLIENT_ABI of the header that the library was compiled with.
 */
MM_API uint32_t mm_client_abi(void);

/**
 * mm_client_version() - the release of mmd that the loaded library is of, for messages
 *
 * Return: a static string such as "0.1.0".
 */
MM_API const char *mm_client_version(void);

/**
 * mm_client_open() - connect to mmd and start the service thread
 * @opts:       may be NULL: all defaults
 * @ret_client: written only on success; give back with mm_client_close()
 *
 * Retains the device's primary context for as long as the client lives.
 * Return: 0; -EINVAL @opts: a size that cannot be, or a field or flag is set that this version does
 * not know; -ECONNREFUSED or -ENOENT no daemon; -EPROTO it has another ABI; -EACCES refused;
 * -ENODEV no driver, no such device, or none of mmd's (the sentence lists its devices);
 * -ETIMEDOUT; -ENOMEM. @errbuf (may be NULL) gets the sentence.
 */
MM_API int mm_client_open(const struct mm_client_opts *opts, struct mm_client **ret_client,
			  char *errbuf, size_t errbuf_bytes);

/**
 * mm_client_close() - unmap and give back everything, end the connection
 * @client: may be NULL
 *
 * The caller's streams must be idle. Waits for mmd's reply within the client's timeout.
 * Return: NULL, for `client = mm_client_close(client)`.
 */
MM_API struct mm_client *mm_client_close(struct mm_client *client);

/**
 * mm_client_error() - the sentence that belongs to this thread's last failed call on @client
 * @client: any
 *
 * Return: what failed, where, and what to do about it; "" if no call failed. Valid until this
 * thread's next call.
 */
MM_API const char *mm_client_error(const struct mm_client *client);

/**
 * mm_client_gpu() - the driver table in use
 * @client: any
 *
 * Return: borrowed; lives as long as @client. mm/gpu.h describes it.
 */
MM_API const struct mm_gpu_api *mm_client_gpu(const struct mm_client *client);

/**
 * mm_client_info() - properties of the tenant, and the plan in force
 * @client:   any
 * @ret_info: written only on success
 *
 * Return: 0; -EINVAL a size that cannot be; -ECONNRESET.
 */
MM_API int mm_client_info(struct mm_client *client, struct mm_client_info *ret_info);

/* ---- events: one pollable fd, no callbacks ---- */

/* More kinds may come: an engine passes over those that it does not know. */
enum mm_event_kind {
	MM_EVENT_NONE,
	MM_EVENT_KV_GRANTED,   /* chunks became usable; count */
	MM_EVENT_KV_DENIED,    /* mmd cannot give more now; error = -ENOSPC or -EDQUOT; preempt */
	MM_EVENT_KV_RECLAIM,   /* count chunks are owed now: give them back before deadline_ns */
	MM_EVENT_PLAN_CHANGED, /* count = layers remapped now */
	MM_EVENT_SWAPPED,      /* count lists were copied: mm_swap_next() returns them */
	MM_EVENT_TURN_BEGIN,   /* steps may run */
	MM_EVENT_TURN_END,     /* the turn ends with the open step; deadline_ns */
	MM_EVENT_DISCONNECTED, /* error; every address is void; close the client */
	MM_EVENT_STEP_ENDED,   /* count steps of mm_step_end_async() ended: mm_step_wait() */
	MM_EVENT_LEAVE,        /* finish, and close the client before deadline_ns */
	MM_EVENT_COLD,         /* a limit, or a window of cold blocks: mm_cold_state() */
};

struct mm_event {
	size_t size;   /* = sizeof(struct mm_event) */
	uint32_t kind; /* enum mm_event_kind */
	uint32_t count;
	int32_t error;
	uint32_t reserved;
	uint64_t deadline_ns;
};

/**
 * mm_client_event_fd() - the fd that is readable while an event is queued
 * @client: any
 *
 * Return: an fd that the client owns; poll it, do not read or close it.
 */
MM_API int mm_client_event_fd(const struct mm_client *client);

/**
 * mm_client_next_event() - take the oldest event
 * @client:    any
 * @ret_event: written only on success
 *
 * Never blocks. At most one MM_EVENT_KV_RECLAIM is queued: a newer one replaces it, and its count
 * is the number of chunks owed when it is taken (mm_kv_owed()). An outcome that a call has returned
 * is not queued. After MM_EVENT_DISCONNECTED, mm_client_error() returns why the connection ended.
 * Return: 0; -EAGAIN no event is queued; -EINVAL a size that cannot be; the event stays queued.
 */
MM_API int mm_client_next_event(struct mm_client *client, struct mm_event *ret_event);

/* ---- load hints for mmd's controller ---- */

struct mm_load_hint {
	size_t size;             /* = sizeof(struct mm_load_hint) */
	uint32_t kv_chunks_used; /* chunks that hold live blocks */
	uint32_t waiting;        /* requests that wait for KV memory */
	uint32_t running;        /* requests in the batch; both 0: the engine is idle */
	uint32_t reserved;
	/*
	 * Since version 0.2; 0: not said. The chunks that waiting requests would take which the
	 * batch has room for, whether the demand of mm_kv_want() includes them or not: all that the
	 * engine could use is the larger of that demand and of kv_chunks_used + kv_chunks_queued.
	 */
	uint32_t kv_chunks_queued;
	uint32_t reserved2;
	/* Requests that ended, ever, and those of them that missed the engine's own goals. */
	uint64_t requests_done;
	uint64_t requests_late;
};

/**
 * mm_client_hint() - report the engine's load to mmd; cheap enough for each step
 * @client: any
 * @hint:   copied
 *
 * Return: 0; -EINVAL a size that cannot be, or a reserved field is set; -ECHILD. It does not fail
 * when the connection is over: another call reports that.
 */
MM_API int mm_client_hint(struct mm_client *client, const struct mm_load_hint *hint);

/* ---- model ---- */

/*
 * One rule of a packing list: its members are placed one after the other without padding, so that
 * one kernel can take them as one matrix; struct mm_load_pack (abi.h) lists what they must have in
 * common. A '*' stands for the number of a layer; either all names of a rule have one, and the rule
 * holds for every layer, or none has.
 */
struct mm_pack {
	const char *name; /* of the whole pack as one tensor; NULL = it has no name */
	const char *const *members;
	uint32_t n_members; /* 1 .. MM_PACK_MEMBERS_MAX */
	uint32_t flags;     /* MM_PACK_TRANSPOSE, MM_PACK_OPTIONAL */
};

struct mm_model_opts {
	size_t size;                 /* = sizeof(struct mm_model_opts) */
	const struct mm_pack *packs; /* the packing list, in any order; copied */
	size_t n_packs;              /* <= MM_LOAD_PACKS_MAX */
	size_t pack_size;            /* = sizeof(struct mm_pack) */
	uint32_t n_layers;           /* since version 0.3: for mm_model_load_files() only, else 0 */
	uint32_t reserved;
	const void *key;  /* likewise, or NULL: by which mm_model_load_key() finds the model */
	size_t key_bytes; /* <= MM_MODEL_KEY_BYTES */
};

struct mm_model_info {
	size_t size; /* = sizeof(struct mm_model_info) */
	uint32_t n_layers;
	uint32_t n_tensors;
	uint64_t resident_bytes; /* embeddings, norms, biases, head: never cycle */
	uint64_t layer_bytes;    /* of the largest layer */
	uint64_t device_bytes;   /* whole pages, all groups */
	uint64_t tensor_bytes;   /* of all tensors, without padding */
	uint64_t waste_bytes;    /* part of device_bytes: lost to alignment and whole pages */
	uint64_t store_bytes;    /* host copy */
	uint32_t load_flags;     /* MM_LOAD_F_*: shared host copy, buffered, pread */
	uint32_t reserved;
	uint8_t digest[MM_MODEL_DIGEST_BYTES]; /* since 0.3: the same for the same content */
};

struct mm_tensor {
	size_t size;    /* = sizeof(struct mm_tensor) */
	uint64_t va;    /* fixed for the client's life; meaningless if bytes is 0 */
	uint32_t dtype; /* enum mm_dtype */
	uint32_t rank;
	uint64_t shape[4];
	uint64_t bytes;
	int32_t layer;  /* -1: resident group */
	uint32_t flags; /* MM_TENSOR_*: a pack, member of one, transposed */
};

/**
 * mm_model_load() - load an HF-layout directory: config.json and *.safetensors, or those of them
 * that model.safetensors.index.json names
 * @client:    one model at a time
 * @dir:       opened with the caller's own rights; the files' fds are passed, no path is
 * @opts:      the packing list; NULL = none
 * @ret_model: written only on success; lives as long as @client, or until mm_model_unload()
 *
 * Blocks until every byte is in device memory. Tenants of the same files and packs share a copy.
 * Return: 0; -ENOENT, -EACCES the files; -EBADMSG malformed, with tensor and reason in
 * mm_client_error(); -EINVAL a packing list that does not fit the model, with rule and reason;
 * -ENOTSUP dtype or layout; -EDQUOT over the account's max; -ENOSPC larger than the device, or than
 * its free memory; -EEXIST the client has a model; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_model_load(struct mm_client *client, const char *dir,
			 const struct mm_model_opts *opts, struct mm_model **ret_model);

/**
 * mm_model_load_files() - load a model from .safetensors files, or memfds, that the engine made
 * @client:    one model at a time
 * @fds:       opened for reading; their order is part of the identity; they stay the caller's
 * @n:         1 to 255
 * @opts:      n_layers must be set: how many layers the tensors' names have; the packing list
 * @ret_model: as of mm_model_load()
 *
 * A memfd sealed against writing, growing and shrinking is known by its content: tenants that pass
 * the same bytes share one host copy. One that is not sealed is never shared; a file with a path is
 * known as by mm_model_load(). The descriptors may be closed when the call has returned. Since 0.3.
 * Return: as mm_model_load(); -EINVAL n_layers is 0, or @n is; -E2BIG; -EBADF; -EPERM not a file or
 * memfd that mmd reads; -ESTALE changed while it was read; with a key as client_model.h says.
 */
MM_API int mm_model_load_files(struct mm_client *client, const int *fds, size_t n,
			       const struct mm_model_opts *opts, struct mm_model **ret_model);

/**
 * mm_model_info() - sizes of a loaded model
 * @model:    any
 * @ret_info: written only on success
 *
 * Return: 0; -EINVAL a size that cannot be.
 */
MM_API int mm_model_info(const struct mm_model *model, struct mm_model_info *ret_info);

/**
 * mm_model_tensor() - look a tensor up by its name in the checkpoint
 * @model:      any
 * @name:       e.g. "model.layers.3.self_attn.q_proj.weight", or of a pack
 * @ret_tensor: written only on success
 *
 * Return: 0; -ENOENT no such tensor; -EINVAL a size that cannot be.
 */
MM_API int mm_model_tensor(const struct mm_model *model, const char *name,
			   struct mm_tensor *ret_tensor);

/**
 * mm_model_tensor_at() - walk all tensors of the model, in the order of their names
 * @model:      any
 * @index:      0 .. n_tensors - 1 of mm_model_info(); packs with a name are among them
 * @ret_name:   written only on success, with its NUL
 * @name_bytes: room at @ret_name; MM_TENSOR_NAME_BYTES suffices for all
 * @ret_tensor: written only on success
 *
 * Since 0.3. Return: 0; -ENOENT no such index; -EINVAL the name is longer, or size cannot be.
 */
MM_API int mm_model_tensor_at(const struct mm_model *model, uint32_t index, char *ret_name,
			      size_t name_bytes, struct mm_tensor *ret_tensor);

/**
 * mm_model_compute() - set how long the layers compute, in relation to each other
 * @model:    any
 * @weights:  of each layer in order, > 0, e.g. microseconds; copied
 * @n_layers: number of layers of the model
 *
 * Useful for models whose layers take unequally long for their bytes. mmd uses the weights to
 * choose the layers of this model that it takes first, and for nothing that concerns other tenants.
 * Before the first call a layer counts by its bytes. A later call replaces the weights.
 * Return: 0; -EINVAL not as many weights as the model has layers, or a weight of 0.
 */
MM_API int mm_model_compute(const struct mm_model *model, const uint16_t *weights,
			    uint32_t n_layers);

/**
 * mm_model_store() - the model's host bytes, read-only, to check device bytes against
 * @model:     any
 * @name:      name of a tensor
 * @ret_bytes: length of the tensor
 *
 * Return: borrowed, lives as long as @model; NULL no such tensor, or it is on a disk.
 */
MM_API const void *mm_model_store(const struct mm_model *model, const char *name,
				  uint64_t *ret_bytes);

/* ---- KV arena ---- */

struct mm_kv_opts {
	size_t size;           /* = sizeof(struct mm_kv_opts) */
	uint64_t chunk_bytes;  /* size of one chunk in one range; multiple of the page size */
	uint32_t ranges;       /* R; e.g. 2 = K and V apart; 0 = 1 */
	uint32_t chunks_max;   /* chunks that addresses are reserved for */
	uint32_t share_chunks; /* what the engine would get from a static split; under the policy
				* `recompute` it gets exactly these, all at once, and no more */
	uint32_t flags;        /* MM_KV_*, since version 0.3; an unknown bit is -EINVAL */
};

/* Chunks that are not granted can be touched: one page of scratch is behind them (client.md). */
#define MM_KV_BACKED 1u
/* The ranges follow each other at a stride of chunks_max * chunk_bytes, in one reservation. */
#define MM_KV_CONTIGUOUS 2u

/**
 * mm_kv_open() - reserve the arena's addresses and register it with mmd
 * @client: one arena per client
 * @opts:   sizes
 * @ret_kv: written only on success; lives as long as @client
 *
 * No memory is granted yet (but see share_chunks).
 * Return: 0; -EINVAL misaligned or zero; -E2BIG more map entries than the ABI has; -EEXIST;
 * -ENOMEM no address space; -ECONNRESET; with MM_KV_BACKED as mm_mem_alloc(), or -EIO.
 */
MM_API int mm_kv_open(struct mm_client *client, const struct mm_kv_opts *opts,
		      struct mm_kv **ret_kv);

/**
 * mm_kv_range_va() - the address of a range; chunk c is c * chunk_bytes behind it
 * @kv:    any
 * @range: < ranges
 *
 * Return: a device address, fixed for the arena's life; 0 for a range that does not exist.
 */
MM_API uint64_t mm_kv_range_va(const struct mm_kv *kv, uint32_t range);

/**
 * mm_kv_want() - request @chunks_total chunks in all (absolute; replaces the last demand)
 * @kv:           any
 * @chunks_total: includes the chunks held; a smaller number requests no more
 * @timeout_ns:   0 = do not wait
 *
 * While a step of any thread is open it never waits, whatever @timeout_ns is: a tenant that waited
 * there for pages that it must give up itself would deadlock. Otherwise it waits until the demand
 * is granted or denied; it then returns the outcome, and the grants or the denial that it waited
 * for are not queued as events. After any other return they are. Granted pages are scrubbed.
 * Return: 0 the arena has @chunks_total usable chunks; -EAGAIN requested, watch the events;
 * -ENOSPC, -EDQUOT denied, it stands; -ETIMEDOUT; -EINVAL above chunks_max; -ECONNRESET.
 */
MM_API int mm_kv_want(struct mm_kv *kv, uint32_t chunks_total, uint64_t timeout_ns);

/**
 * mm_kv_usable() - copy the bitmap of the chunks that are mapped
 * @kv:         any
 * @ret_bitmap: chunks_max bits, lowest first, rounded up to 64; may be NULL
 * @words:      length of @ret_bitmap in words of 64 bits
 *
 * Return: how many chunks are usable.
 */
MM_API uint32_t mm_kv_usable(struct mm_kv *kv, uint64_t *ret_bitmap, size_t words);

/**
 * mm_kv_generation() - a number that changes whenever the set of usable chunks does
 * @kv: any
 *
 * A copy of mm_kv_usable() holds as long as it is that of before. Never blocks. Since version 0.3.
 */
MM_API uint64_t mm_kv_generation(const struct mm_kv *kv);

/**
 * mm_kv_release() - give one chunk back
 * @kv:    any
 * @chunk: usable; no work that touches it may be enqueued any more
 *
 * Unmaps at once; also lowers the demand. After -EIO (the device does not unmap it) and -ETIMEDOUT
 * (mmd takes no requests) the chunk is no longer usable, and still owed if it was.
 * Return: 0; -ENOENT not usable; -EBUSY a list that names it is being swapped; -EIO; -ETIMEDOUT;
 * -ECONNRESET.
 */
MM_API int mm_kv_release(struct mm_kv *kv, uint32_t chunk);

/**
 * mm_kv_release_many() - give several chunks back
 * @kv:     any
 * @chunks: of each what mm_kv_release() wants of one; in any order, none twice
 * @n:      length of @chunks; with 0 nothing happens
 *
 * If one of them cannot be released as it is, none is. The outcomes of the device and of the
 * connection are per chunk: after -EIO, -ETIMEDOUT or -ECONNRESET none is usable any more, and as
 * many as mmd was not told of are still owed if they were (mm_kv_owed()). Since version 0.3.
 * Return: 0; the first error: -ENOENT a chunk is not usable, or is named twice; -EBUSY a list that
 * names one is being swapped; -EIO; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_kv_release_many(struct mm_kv *kv, const uint32_t *chunks, uint32_t n);

/**
 * mm_kv_owed() - how many chunks mmd reclaims now
 * @kv:              any
 * @ret_deadline_ns: CLOCK_MONOTONIC; deadline of the release; 0: none are owed; may be NULL
 *
 * The number of the last reclaim, less all chunks released since, for whatever reason; never more
 * than are usable. Chunks stay owed after the deadline, until they are released or another reclaim
 * replaces this one. Any thread; never blocks, never fails.
 * Return: the number of chunks; 0 none, or the connection is over, or in a child after fork().
 */
MM_API uint32_t mm_kv_owed(struct mm_kv *kv, uint64_t *ret_deadline_ns);

/* ---- memory that is neither weights nor KV ---- */

/**
 * mm_mem_alloc() - get device memory for activations, workspaces, pools of graphs
 * @client: any
 * @bytes:  rounded up to whole pages of the pool
 * @flags:  none yet: must be 0
 * @ret_va: written only on success; the address stays until mm_mem_free() or mm_client_close()
 *
 * Zeroed, charged to the account, never reclaimed or displaced. In return mmd gives only memory
 * that is free, up to the tenant's share of the pool (client.md, Memory of a third kind). Waits for
 * pages that are being scrubbed, 2 s at most. Since version 0.3. Return: 0; -EINVAL 0 bytes, or a
 * flag; -EDQUOT, -ENOSPC more than its share leaves, than is free; -E2BIG more map entries than the
 * arena leaves; -EOPNOTSUPP an older mmd; -ENOMEM; -EPROTO; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_mem_alloc(struct mm_client *client, uint64_t bytes, uint32_t flags, uint64_t *ret_va);

/**
 * mm_mem_free() - give memory of mm_mem_alloc() back
 * @client: the one that it was allocated with
 * @va:     its first address; no work that touches it may be enqueued any more
 *
 * Unmaps at once. After -EIO (not unmapped) and -ETIMEDOUT it stays charged until the end. Since
 * version 0.3. Return: 0; -ENOENT nothing begins there; -EIO; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_mem_free(struct mm_client *client, uint64_t va);

/* ---- swap space: host memory for the KV of sequences that wait ---- */

struct mm_swap_done {
	size_t size; /* = sizeof(struct mm_swap_done) */
	uint64_t user_data;
	int32_t error; /* 0, or why not all pieces were copied: their destination is undefined */
	uint32_t reserved;
};

/**
 * mm_swap_open() - allocate host memory for blocks that are not needed now
 * @client:   has an arena; one swap space per client
 * @bytes:    of host memory, charged to the account; rounded up to 4 KiB
 * @ret_swap: written only on success; lives as long as @client
 *
 * The memory is mmd's: it is named by offsets and cannot be read or written otherwise.
 * Return: 0; -EINVAL zero, or no arena; -EDQUOT more than mmd allows (option swap-max); -EEXIST;
 * -ENOMEM; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_swap_open(struct mm_client *client, uint64_t bytes, struct mm_swap **ret_swap);

/**
 * mm_swap_out() - begin to copy pieces of the arena into the swap space
 * @swap:      any
 * @pieces:    copied; each in usable chunks. Nothing that writes to them may be enqueued any more
 * @n:         1 to MM_SWAP_PIECES; neighbours in arena and swap space alike are copied as one
 * @user_data: returned by mm_swap_next()
 *
 * Returns at once; MM_EVENT_SWAPPED reports the end. Until then a piece may be read in the arena
 * but not written, its place in the swap space not accessed, and its chunk not released. A list may
 * be copied while steps run. Pieces of one list, and lists, are copied in any order.
 * Return: 0; -EAGAIN MM_SWAP_LOTS lists are in progress or not yet taken; -EINVAL an empty or
 * overlong list; -ERANGE a piece leaves its range or the swap space; -ENOENT a chunk is not usable;
 * -ECONNRESET.
 */
MM_API int mm_swap_out(struct mm_swap *swap, const struct mm_swap_piece *pieces, uint32_t n,
		       uint64_t user_data);

/**
 * mm_swap_in() - begin to copy pieces of the swap space into the arena
 * @swap:      any
 * @pieces:    as mm_swap_out(); nothing that reads or writes them may be enqueued before the end
 * @n:         as mm_swap_out()
 * @user_data: as mm_swap_out()
 *
 * Return: as mm_swap_out().
 */
MM_API int mm_swap_in(struct mm_swap *swap, const struct mm_swap_piece *pieces, uint32_t n,
		      uint64_t user_data);

/**
 * mm_swap_next() - take the outcome of a list that has ended
 * @swap:     any
 * @ret_done: written only on success
 *
 * Never blocks. Return: 0; -EAGAIN none has ended; -ECONNRESET none has, and none will; -EINVAL a
 * size that cannot be.
 */
MM_API int mm_swap_next(struct mm_swap *swap, struct mm_swap_done *ret_done);

/* ---- turns: sharing the device's time ---- */

struct mm_turn_opts {
	size_t size;         /* = sizeof(struct mm_turn_opts) */
	uint32_t mode;       /* enum mm_turn_mode; MM_TURN_NONE leaves */
	uint32_t priority;   /* 0 .. MM_TURN_PRIORITY_MAX; higher goes first, waiting raises it */
	uint64_t quantum_ns; /* length of a turn when others wait; 0 = mmd's default */

	/* The operator may limit priority and quantum for the account. */
};

/**
 * mm_turn_join() - compute only during turns, as other tenants that joined (temporal sharing)
 * @client: any
 * @opts:   copied
 *
 * A tenant that does not join computes at any time (spatial sharing). While it waits for its turn a
 * tenant counts as idle: its layers may be lent. A turn ends when the hint reports no work, and,
 * once mmd requests it, at the end of the open step. No turn begins before the model is ready;
 * without a model, none begins while the tenant neither holds nor wants KV.
 * Return: 0; -EINVAL; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_turn_join(struct mm_client *client, const struct mm_turn_opts *opts);

/**
 * mm_turn_want() - request the turn, because there is work
 * @client:     any
 * @timeout_ns: 0 = do not wait; MM_EVENT_TURN_BEGIN follows
 *
 * mm_step_begin() does the same and waits; an engine that must handle events meanwhile calls this
 * first. A call that has waited gets no event of it, unless another call returned -EAGAIN before.
 * Return: 0 steps may run (always, for a tenant that has not joined); -EAGAIN requested;
 * -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_turn_want(struct mm_client *client, uint64_t timeout_ns);

/**
 * mm_turn_yield() - give the turn back before mmd requests it
 * @client: any, also one that does not hold the turn
 *
 * Return: 0; -EBUSY a step is open; -ECONNRESET.
 */
MM_API int mm_turn_yield(struct mm_client *client);

/* ---- steps and layers ---- */

struct mm_step_info {
	size_t size;       /* = sizeof(struct mm_step_info) */
	uint64_t step_ns;  /* begin to synchronised end */
	uint64_t stall_ns; /* part of step_ns: waits at gates, from events; 0 if unknown */
	uint32_t gated;    /* layers that cycle under the plan of this step */
	uint32_t timed;    /* 1: stall_ns is known, as it is not with graphs without times */
};

/**
 * mm_step_begin() - open a step: until its end mmd changes no mapping of the model
 * @client: any
 *
 * Waits while a plan change is in progress (writer-preferring), and for the turn if the tenant has
 * joined. A thread has one step open at a time; several threads may have one each. While only one
 * step is open, another thread may continue and end it; while several are open, only the thread
 * that opened a step can end it.
 * Return: 0; -EBUSY this thread has opened a step that is not ended; -ESTALE a limit of cold blocks
 * fell (client_cold.h); -ECONNRESET; -ETIMEDOUT; -ENOMEM; -ECHILD in a child after fork().
 */
MM_API int mm_step_begin(struct mm_client *client);

/**
 * mm_step_join() - have the step's end wait for another stream
 * @client: any
 * @stream: a stream with work of the open step
 *
 * Streams on which layers are begun join automatically; this call is for others.
 * Return: 0; -EINVAL no step is open; -E2BIG more than 16 streams.
 */
MM_API int mm_step_join(struct mm_client *client, void *stream);

/**
 * mm_step_end() - synchronise the step's streams and close the step
 * @client:   any
 * @stream:   a stream with work of the step; those that have joined are synchronised too
 * @ret_info: may be NULL
 *
 * The layers after the last one that was begun need not run; mmd then puts the gates in order
 * before the next step, as after mm_step_abandon().
 * Return: 0; -ECANCELED the gates were aborted: the results are void, repeat the step; -EIO the
 * device failed; -EINVAL no step is open, or another thread is closing it, or a size that cannot
 * be: the step stays open then; -ECONNRESET.
 */
MM_API int mm_step_end(struct mm_client *client, void *stream, struct mm_step_info *ret_info);

/**
 * mm_step_end_async() - close a step that is enqueued, and do not wait for its streams
 * @client:   any
 * @stream:   as for mm_step_end()
 * @ret_step: written only on success; a number for mm_step_wait()
 *
 * The next step may begin at once, with work that is ordered behind this one's. To mmd the step is
 * open until its streams come to its end (MM_EVENT_STEP_ENDED). Layers that it has not begun are
 * passed over. At most two steps of a thread are not waited for. Since version 0.3. Return: 0;
 * -EINVAL no step is open, or a layer has no end, -E2BIG more than 16 streams: it stays open.
 */
MM_API int mm_step_end_async(struct mm_client *client, void *stream, uint64_t *ret_step);

/**
 * mm_step_wait() - wait for a step of mm_step_end_async(), and take its outcome
 * @client:     any
 * @step:       its number; each outcome is taken once, by any thread
 * @timeout_ns: 0 = do not wait
 * @ret_info:   may be NULL; step_ns begins with the end of the step before, if that is later
 *
 * Since version 0.3. Return: as mm_step_end(), or -ETIMEDOUT it runs still; -ENOENT no such step.
 * After -ECANCELED the step that was begun behind it is void, too.
 */
MM_API int mm_step_wait(struct mm_client *client, uint64_t step, uint64_t timeout_ns,
			struct mm_step_info *ret_info);

/**
 * mm_step_abandon() - close a step that broke off between layers
 * @client: any
 * @stream: as for mm_step_end()
 *
 * If layers cycle, the gates are aborted, so that work that was enqueued ends without waiting;
 * steps that other threads have open end with -ECANCELED. mmd then makes a null plan change, which
 * puts the gates in order; the next mm_step_begin() waits for it. With MM_CLIENT_NO_VOID no gate is
 * aborted, and the layers that the step left are passed over on @stream.
 * Return: as mm_step_end(), except -ECANCELED.
 */
MM_API int mm_step_abandon(struct mm_client *client, void *stream);

/**
 * mm_layer_begin() - enqueue the wait for layer @layer's bytes
 * @model:  any
 * @layer:  each layer once per step, ascending
 * @stream: work enqueued after this may read the layer
 *
 * Two stream operations per layer, the same for every plan (protocol.md, Gates). Layers may be on
 * different streams, one begun before another's end, but each on one stream: work on a second
 * stream that reads the layer must be ordered between the two operations by events of the engine. A
 * layer that is skipped is waited for and marked as used on @stream.
 * Return: 0; -EINVAL; -E2BIG more than 16 streams, or layers without an end; -EIO.
 */
MM_API int mm_layer_begin(struct mm_model *model, uint32_t layer, void *stream);

/**
 * mm_layer_end() - enqueue the mark that layer @layer has been used
 * @model:  any
 * @layer:  begun on the same stream
 * @stream: work enqueued after this must not read the layer
 *
 * Return: 0; -EINVAL; -EIO.
 */
MM_API int mm_layer_end(struct mm_model *model, uint32_t layer, void *stream);

/* ---- graphs: steps that are captured once and replayed ---- */

/*
 * mm_layer_begin() and mm_layer_end() work on a stream that is being captured: the wait and the
 * mark become nodes of the graph, with addresses and values that no plan changes. A graph is
 * therefore captured once, in an open step, and fits every plan; none of its work runs before it is
 * launched, in that step or in later ones. Events in the graph (struct mm_gate_times) measure the
 * waits; they cost time themselves, so that an engine captures each graph twice, without and with
 * them, and launches the second if mm_step_wants_times() returns true.
 *
 * Each mode of capture is safe, also CU_STREAM_CAPTURE_MODE_GLOBAL: what the library maps or waits
 * for meanwhile does not void it. An older library needs THREAD_LOCAL or RELAXED.
 */

/*
 * Events before and after the wait of each layer. Graphs that never run at the same time may share
 * them.
 */
struct mm_gate_times;

/**
 * mm_gate_times_open() - create the events
 * @model:     any
 * @ret_times: written only on success; lives as long as the client
 *
 * Return: 0; -EOPNOTSUPP the driver records no events in graphs; -ENOMEM; -EIO; -ECONNRESET.
 */
MM_API int mm_gate_times_open(struct mm_model *model, struct mm_gate_times **ret_times);

/**
 * mm_step_capture() - announce that layers are captured from now on, from the first one again
 * @client: a step is open; call it right before cuStreamBeginCapture()
 * @times:  events to record around the waits; NULL: none
 *
 * The graph must contain all layers: layers that are skipped are in it too, but those after the
 * last one that is begun are not. A capture that breaks off must be ended before mm_step_abandon().
 * A step with a capture does not count as a sample: its time contains the capture.
 * Return: 0; -EINVAL no step is open, a layer has no end, or @times is not of @client.
 */
MM_API int mm_step_capture(struct mm_client *client, struct mm_gate_times *times);

/**
 * mm_step_replay() - announce that graphs run the layers of this step
 * @client: a step is open
 * @times:  events that the graphs were captured with; NULL: none
 *
 * One call suffices for several graphs. They are launched on the stream of mm_step_end(), or on one
 * that has joined the step (mm_step_join()). Without this call mmd learns nothing from the steps of
 * the engine while layers cycle.
 * Return: 0; -EINVAL no step is open, or @times is not of @client.
 */
MM_API int mm_step_replay(struct mm_client *client, struct mm_gate_times *times);

/**
 * mm_step_wants_times() - whether the waits at gates are to be measured in this step
 * @client: a step is open
 *
 * mmd compares computing with transfers, and the time of computing is that of a step without its
 * waits. While layers cycle the first steps of a plan are to be measured, then one of eight; while
 * none cycles, none is: there are no waits.
 */
MM_API bool mm_step_wants_times(struct mm_client *client);

#ifdef __cplusplus
}
#endif
