/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal - what the parts of libclient share: the client object and its connection
 *
 * Concept:   client.c opens and closes a client; connect.c does the handshake; link.c sends
 *            requests and declares the connection dead; service.c is the thread that receives the
 *            events of mmd; model.c, kv.c and step.c implement the public API of the same names,
 *            each with its handlers of events; plan.c maps the plans of mmd. The machine in
 *            protocol/steps.h decides when steps may run.
 * Ownership: struct mm_client owns everything here.
 * Threading: each field is marked with the lock that guards it. `lock` is never held over a driver
 *            call, a system call that can block or a wait other than for `changed`. `map_lock`
 *            guards the mapper and is taken first where both are needed. Fields that are set
 *            before the service thread starts are constant.
 * Death:     mm_link_fail() is final: every later call fails with its errno, all gates are aborted,
 *            and mappings stay until mm_client_close().
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/client/dir.h"
#include "libclient/client/sized.h"
#include "libclient/ipc/region.h"
#include "libclient/ipc/ring.h"
#include "libclient/client/mapper.h"
#include "libclient/protocol/steps.h"
#include "libclient/support/lock.h"
#include "libclient/base/base.h"
#include "mm/client.h"
#include "mm/gpu.h"

/* `lock` and `map_lock` of struct mm_client. */
MM_LOCK_KIND(mm_client_lock);
MM_LOCK_KIND(mm_map_lock);

#define MM_ERROR_BYTES 320
/* Flags of struct mm_client_opts. */
#define MM_CLIENT_KNOWN (MM_CLIENT_NO_REMAP | MM_CLIENT_NO_VOID)
/* how long a client whose steps are never void waits for the reason of aborted gates */
#define MM_END_WAIT_NS   (2 * MM_NS_PER_S)
#define MM_SIZE_TEXT     "a size that cannot be, or a field is set that this library does not know"
#define MM_EVENTS_MAX    64
#define MM_FD_NONE       (-1)
#define MM_LINK_RETRY_NS (MM_NS_PER_MS / 5) /* between two attempts to use a full queue */
#define MM_RING_NS       MM_NS_PER_S        /* between two doorbells of a call that waits */
#define MM_SILENT_NS     (2 * MM_NS_PER_S)  /* unanswered for longer, mmd counts as silent */
#define MM_FDS_RETRIES   256                /* truncated batches in a row that are accepted */

/* A call that waits for the reply to its request; it lives on the caller's stack. */
struct mm_wait {
	struct mm_wait *next;
	uint64_t id;
	bool done;
	struct mm_msg reply;
};

enum mm_client_model_phase {
	MM_CLIENT_MODEL_NONE,
	MM_CLIENT_MODEL_LOADING, /* a call of mm_model_load() is in progress */
	MM_CLIENT_MODEL_LOADED,  /* the directory was read and addresses are reserved */
	MM_CLIENT_MODEL_READY,
	MM_CLIENT_MODEL_UNLOADING, /* no layer of it runs any more, and mmd was told so */
	MM_CLIENT_MODEL_REFUSED,   /* mmd refused the model; the loading call cleans up */
	MM_CLIENT_MODEL_BROKEN,    /* a load was given up half-way: no other can begin */
};

struct mm_model {
	struct mm_client *client;
	struct mm_directory dir;
	struct mm_region store;
	uint64_t head_bytes;   /* that are mapped: the whole store, or its directory */
	struct mm_span *spans; /* by group */
	bool *cycles;          /* by group: streamed; changes only while no step is open */
	uint32_t load_flags;
	uint64_t pages;
};

struct mm_kv {
	struct mm_client *client;
	uint64_t chunk_bytes;
	uint32_t ranges;
	uint32_t chunks_max;
	uint32_t pages_per_range; /* pages of one chunk in each range */
	CUdeviceptr *va;          /* by range */
	bool contiguous;          /* the ranges are one reservation */
	bool backed;              /* what is not granted is the filler */
	bool holes;               /* the device did not map it everywhere */
	uint32_t filler;          /* a page of mm_mem_alloc() */
	uint64_t filler_va;
	uint64_t generation; /* written with the lock, read atomically without */
	uint64_t *usable MM_PT_GUARDED_BY(mm_client_lock); /* bitmap, by chunk */
	/* Bitmap of chunks that are mapped here, and not yet on all ranks of the group. */
	uint64_t *pending MM_PT_GUARDED_BY(mm_client_lock);
	uint32_t n_usable MM_GUARDED_BY(mm_client_lock);
	/* The demand: chunks in all, as mmd knows it. */
	uint32_t wanted MM_GUARDED_BY(mm_client_lock);
	uint32_t wanted_first MM_GUARDED_BY(mm_client_lock); /* chunks from it on come first */
	/* The demand that mmd denied last, and the error; the error is 0 while there was none. */
	uint32_t denied_wanted MM_GUARDED_BY(mm_client_lock);
	int denied_error MM_GUARDED_BY(mm_client_lock);
	/* Chunks granted so far, and those of them that the return of a wait has reported. */
	uint64_t granted MM_GUARDED_BY(mm_client_lock);
	uint64_t reported MM_GUARDED_BY(mm_client_lock);
	/* Chunks released so far, also where the request is not sent yet. */
	uint64_t released MM_GUARDED_BY(mm_client_lock);
	struct { /* the last reclaim of mmd */
		uint32_t chunks;
		uint64_t deadline_ns;
		uint64_t known; /* the part of `released` that mmd had counted when it sent this */
	} reclaim MM_GUARDED_BY(mm_client_lock);
};

#define MM_STEP_STREAMS 16 /* most streams of one step */
#define MM_STEP_BEGUN \
	16 /* most layers of one step, on several streams, that have begun and not ended */

/* A layer that is in use on a stream. */
struct mm_begun {
	uint32_t layer;
	CUstream stream;
};

struct mm_step {
	struct mm_step *next MM_GUARDED_BY(mm_client_lock);
	bool open MM_GUARDED_BY(mm_client_lock);
	bool closing MM_GUARDED_BY(mm_client_lock); /* a thread is ending or abandoning it */
	uint64_t thread
		MM_GUARDED_BY(mm_client_lock); /* thread_number() of the thread that opened it */
	/* The rest belongs to the thread that opened the step. */
	uint64_t begin_ns;
	int64_t last_layer;
	uint32_t n_begun, n_streams;
	struct mm_begun begun[MM_STEP_BEGUN];
	CUstream streams[MM_STEP_STREAMS];
	bool times_all;              /* a plan is being mapped: any layer may wait */
	bool due;                    /* the step is to be a sample */
	bool captured;               /* layers were captured in it */
	bool replayed;               /* graphs run its layers */
	bool unknown;                /* at least one wait could not be timed */
	struct mm_gate_times *times; /* events of the graph that is captured or replayed, or NULL */
	uint32_t gated;
	uint32_t n_timed; /* waits between events[2 * i] and events[2 * i + 1] */
	uint32_t n_events;
	CUevent *events;
	uint64_t group_step; /* its number on all ranks of the group; 0: there is none */
	/* A step that runs on after its thread has let go of it (async.c). */
	struct mm_client *client;
	uint64_t number;
	uint32_t marks;  /* streams that have not come to its end; atomic */
	uint64_t end_ns; /* when the last one came there; before `marks` is 0 */
	bool submitted MM_GUARDED_BY(mm_client_lock); /* until its outcome is taken */
	bool finishing MM_GUARDED_BY(mm_client_lock); /* a thread finds out its outcome */
	bool ended MM_GUARDED_BY(mm_client_lock);     /* the outcome is known: */
	int error;                                    /* device, see mm_step_wait() */
	bool aborted;
	struct mm_step_info info;
};

#define MM_STEPS_SUBMITTED 2 /* most steps of one thread whose outcome was not taken */

struct mm_ending { /* of a step */
	CUresult res;
	bool abandoned; /* by the engine */
	bool aborted;
	int dead;
};

struct mm_sampling {    /* which steps report how long they waited */
	uint64_t epoch; /* of the plan that the other fields are about */
	uint64_t samples;
	uint64_t stall_ns; /* of the last step that was timed */
	uint32_t n;        /* samples under this plan; counts up to SAMPLES_FIRST */
	uint32_t skipped;  /* steps since the last sample */
	bool graphs;       /* a step was replayed: graphs are in use */
};

enum mm_client_hold { MM_CLIENT_HOLD_NONE, MM_CLIENT_HOLD_CHANGING, MM_CLIENT_HOLD_ON };

enum mm_client_group_state {
	MM_CLIENT_GROUP_NONE,
	MM_CLIENT_GROUP_JOINING,
	MM_CLIENT_GROUP_JOINED
};

struct mm_client_group {
	uint32_t state; /* enum mm_client_group_state; written with the lock, read atomically */
	/* Constant from JOINED on. */
	char name[MM_GROUP_NAME_BYTES + 1];
	uint32_t rank, size;
	struct mm_region region;
	struct mm_group_region *shared;
	bool complete MM_GUARDED_BY(mm_client_lock);  /* all ranks have joined */
	uint32_t left MM_GUARDED_BY(mm_client_lock);  /* 1 + a rank that has left; 0: none has */
	uint64_t steps MM_GUARDED_BY(mm_client_lock); /* begun so far */
};

struct mm_client {
	/* Constant while the service thread runs. */
	uint64_t id;     /* unique in the process; for mm_client_error() */
	bool *fork_mark; /* on a page of its own that the kernel zeroes in every child */
	struct mm_client *fork_next; /* list of the process's clients (fork.c) */
	uint64_t timeout_ns;
	bool no_void; /* MM_CLIENT_NO_VOID */
	const struct mm_gpu_api *gpu;
	struct mm_gpu_api gpu_own; /* opened by the client, or a copy of the engine's table */
	bool gpu_opened;           /* by the client */
	CUdevice device;
	uint8_t device_uuid[16]; /* all 0 while no driver is open */
	CUcontext context;
	struct mm_welcome welcome;
	int sock;
	int wake_fd;      /* eventfd that ends the service thread */
	int mark_fd;      /* eventfd: streams have come to the end of a step */
	uint32_t marking; /* threads of the driver that note it right now; atomic */
	struct mm_region tenant_region;
	struct mm_region mmd_region;
	struct mm_region gate_region;
	struct mm_tenant_region *tenant;
	const struct mm_mmd_region *mmd;
	struct mm_gate_region *gates;
	CUdeviceptr gates_va;
	bool gates_registered;
	pthread_t service;
	bool service_runs;

	uint64_t silent_beat_ns; /* the beat when a call last timed out on a silent mmd; atomic */

	/* Only the service thread uses these. */
	struct mm_ring cq;
	uint64_t batches;     /* number of the last batch that was taken in */
	uint32_t fds_refused; /* truncated batches in a row */
	char end_text[MM_END_BYTES + 32];
	struct { /* chunks that were granted and are not mapped yet */
		uint64_t first;
		uint32_t n;
	} granted;

	struct mm_map_lock map_lock;
	struct mm_mapper mapper MM_GUARDED_BY(mm_map_lock);
	bool closing MM_GUARDED_BY(mm_map_lock); /* nothing more may be mapped */

	struct mm_client_lock lock;
	pthread_cond_t changed; /* a field below has changed; its clock is CLOCK_MONOTONIC */
	struct mm_ring sq MM_GUARDED_BY(mm_client_lock);
	struct mm_wait *waits MM_GUARDED_BY(mm_client_lock);
	uint64_t last_wait_id MM_GUARDED_BY(mm_client_lock);
	int dead MM_GUARDED_BY(mm_client_lock); /* 0, or the errno that every call returns */
	char dead_text[MM_ERROR_BYTES];         /* constant once `dead` is set */

	/* The machine that decides when steps may run. */
	struct mm_steps steps MM_GUARDED_BY(mm_client_lock);
	uint64_t parked_ns MM_GUARDED_BY(mm_client_lock); /* since when no step can begin, or 0 */
	/* How long no step could begin, summed over all plan changes. */
	uint64_t held_ns MM_GUARDED_BY(mm_client_lock);
	uint64_t plan_changes MM_GUARDED_BY(mm_client_lock);
	/* mm_turn_want() returned without the turn: its begin is to be reported by an event. */
	bool turn_event_due MM_GUARDED_BY(mm_client_lock);

	/* Steps that are open, and closed ones that are kept to be used again. */
	struct mm_step *step_list MM_GUARDED_BY(mm_client_lock);
	uint64_t step_number MM_GUARDED_BY(mm_client_lock);   /* of the last one submitted */
	uint64_t step_finished MM_GUARDED_BY(mm_client_lock); /* of the last one that ended */
	uint64_t step_end_ns MM_GUARDED_BY(mm_client_lock);   /* when that was */
	uint64_t step_seq MM_GUARDED_BY(mm_client_lock);
	uint64_t steps_done MM_GUARDED_BY(mm_client_lock);
	uint64_t stall_total_ns MM_GUARDED_BY(mm_client_lock);
	struct mm_sampling sampling MM_GUARDED_BY(mm_client_lock);
	struct mm_gate_times *gate_times MM_GUARDED_BY(mm_client_lock);

	/* Set by mm_model_phase_set() only, since mm_client_layers() reads it without the lock. */
	enum mm_client_model_phase model_phase MM_GUARDED_BY(mm_client_lock);
	bool unloading MM_GUARDED_BY(mm_client_lock); /* a call of mm_model_unload() waits */
	/* The service thread sets it at LOADED. */
	struct mm_model *model MM_GUARDED_BY(mm_client_lock);
	/* Channel to load, and store, that arrived and were not taken yet. */
	int load_fd MM_GUARDED_BY(mm_client_lock);
	int store_fd MM_GUARDED_BY(mm_client_lock);
	int group_fd MM_GUARDED_BY(mm_client_lock);
	int refused_result MM_GUARDED_BY(mm_client_lock);
	enum mm_refusal refused_why MM_GUARDED_BY(mm_client_lock);

	struct mm_kv *kv MM_GUARDED_BY(mm_client_lock);
	struct mm_swap *swap MM_GUARDED_BY(mm_client_lock);
	struct mm_cold *cold MM_GUARDED_BY(mm_client_lock);
	/* The last version of the live entries, of whichever declaration. */
	uint64_t cold_version MM_GUARDED_BY(mm_client_lock);
	struct mm_mem *mem MM_GUARDED_BY(mm_client_lock);
	/* A call of mm_mem_alloc() waits for mmd. */
	bool mem_asking MM_GUARDED_BY(mm_client_lock);

	enum mm_client_hold hold MM_GUARDED_BY(mm_client_lock);
	struct mm_client_group group;

	int event_fd;
	uint32_t events_first MM_GUARDED_BY(mm_client_lock);
	uint32_t events_n MM_GUARDED_BY(mm_client_lock);
	struct mm_event events[MM_EVENTS_MAX] MM_GUARDED_BY(mm_client_lock);
};

/* Sets the phase, and publishes the model to mm_client_layers() if the phase is READY. */
static inline void mm_model_phase_set(struct mm_client *c, enum mm_client_model_phase phase)
	MM_REQUIRES(mm_client_lock)
{
	__atomic_store_n(&c->model_phase, phase, __ATOMIC_RELEASE);
}

/*
 * Layers of the client's model; 0 while it has none that can run. Not checked: a thread with a step
 * open calls it without the lock. The model can get ready meanwhile, therefore the read is atomic;
 * a model that can run stays while a step is open.
 */
static inline uint32_t mm_client_layers(const struct mm_client *c) MM_NO_THREAD_SAFETY_ANALYSIS
{
	enum mm_client_model_phase phase = __atomic_load_n(&c->model_phase, __ATOMIC_ACQUIRE);

	return phase == MM_CLIENT_MODEL_READY ? c->model->dir.n_groups - 1 : 0;
}

/* The client's model, while it can run. Not checked, for the same reason. */
static inline struct mm_model *
mm_client_model(const struct mm_client *c) MM_NO_THREAD_SAFETY_ANALYSIS
{
	return c->model;
}

/* ---- client.c ---- */

/*
 * Every public call begins with it. Return: 0; -ECHILD after fork; the errno of a dead connection.
 */
int mm_enter(struct mm_client *client) MM_EXCLUDES(mm_client_lock);
/* Stores the sentence for mm_client_error() and returns @error. */
int mm_fail(const struct mm_client *client, int error, const char *format, ...) MM_PRINTF(3, 4);
/* Return: 0; -EINVAL, with the sentence, the caller's struct has a size that cannot be. */
int mm_size_check(const struct mm_client *client, const void *theirs, size_t v1_bytes);
/* Ends the text of a peer and replaces bytes that are not printable ASCII. */
void mm_sanitize(char *text, size_t bytes);

/* ---- fork.c ---- */

/* From now on calls in a child of fork() are refused, and the child's fds are closed. */
int mm_fork_watch(struct mm_client *client);
/* Only in the process that opened the client; accepts a client that is not watched. */
void mm_fork_unwatch(struct mm_client *client);
bool mm_fork_is_child(const struct mm_client *client);
void mm_fork_close_fds(struct mm_client *client);

/* ---- capture.c ---- */

/*
 * While a thread captures in mode GLOBAL, the driver refuses calls of all threads that may be
 * unsafe in a capture, and the capture is void; in the other modes it refuses them to the thread
 * that captures. Those are calls that allocate, map or wait. None of this library's has anything
 * to do with a stream of the engine, so it says so wherever it makes them. Until the restore the
 * calling thread may make such calls, whoever captures.
 */
struct mm_capture_mode {
	const struct mm_gpu_api *gpu; /* NULL: no driver, or it has no modes */
	CUstreamCaptureMode mode;     /* to be restored */
};
struct mm_capture_mode mm_capture_relax(const struct mm_gpu_api *gpu);
void mm_capture_restore(struct mm_capture_mode *before);

/* Relaxes the calling thread until the end of the block. */
#define MM_CAPTURE_RELAXED(client)                                          \
	mm_cleanup(mm_capture_restore) struct mm_capture_mode mode_before = \
		mm_capture_relax((client)->gpu);                            \
	(void)mode_before

/* ---- connect.c ---- */

/*
 * @errbuf receives the sentence of an error. After a refusal, and only then, it may be called
 * again.
 */
int mm_connect(struct mm_client *client, const struct mm_client_opts *opts, char *errbuf,
	       size_t errbuf_bytes);

/* ---- link.c ---- */

/*
 * Queues a request and rings the doorbell. Return: 0; -ETIMEDOUT the queue stayed full; or the
 * errno of a dead connection.
 */
int mm_link_push(struct mm_client *client, const struct mm_msg *msg) MM_EXCLUDES(mm_client_lock);
/* Queues @msg and waits for the reply, which replaces it. Return: as mm_link_push(). */
int mm_link_call(struct mm_client *client, struct mm_msg *msg) MM_EXCLUDES(mm_client_lock);
/* Does what mm_link_call() does, with a time limit of the caller's. */
int mm_link_call_for(struct mm_client *client, struct mm_msg *msg, uint64_t timeout_ns)
	MM_EXCLUDES(mm_client_lock);
/* Wakes the call that waits for @reply; a reply for which no call waits is dropped. */
void mm_link_reply(struct mm_client *client, const struct mm_msg *reply)
	MM_EXCLUDES(mm_client_lock);
/* Ends the connection: frees every stream and every waiting call. The first cause counts. */
void mm_link_fail(struct mm_client *client, int error, const char *text)
	MM_EXCLUDES(mm_client_lock);
/* Aborts all gates, so that no stream waits at one. */
void mm_link_abort_gates(struct mm_client *client) MM_REQUIRES(mm_client_lock);

/*
 * How long a call waits for mmd. While it waits it rings the doorbell once a second, and core
 * answers with its beat. Time in which the beat stands still for more than MM_SILENT_NS after a
 * ring does not count, up to as much again as the call may take: mmd is stopped then, or restarts.
 */
struct mm_patience {
	uint64_t deadline_ns; /* moves on while mmd is silent */
	uint64_t spare_ns;    /* by which it may still move on */
	uint64_t looked_ns;   /* 0: not yet */
	uint64_t rung_ns;     /* when the doorbell was last rung, or the wait began */
	uint64_t asked_ns;    /* the first ring since the beat has changed; 0: none */
	uint64_t beat_ns;
};
struct mm_patience mm_patience_of(uint64_t timeout_ns);
/* To be called at least once a second. Return: 0; -ETIMEDOUT. */
int mm_patience_check(struct mm_client *client, struct mm_patience *patience);
/* Whether a call of this client has timed out on a silent mmd, which is silent still. */
bool mm_link_is_silent(const struct mm_client *client);
/* Waits for `changed`, a second at most. Return: as mm_link_wait(). */
int mm_link_wait_for_mmd(struct mm_client *client, struct mm_patience *patience)
	MM_REQUIRES(mm_client_lock);
/*
 * Waits for `changed`, for a time that the caller of the library chose. Return: 0: check again;
 * -ETIMEDOUT; the errno of a dead connection.
 */
int mm_link_wait(struct mm_client *client, uint64_t deadline_ns) MM_REQUIRES(mm_client_lock);

/* ---- service.c ---- */

int mm_service_start(struct mm_client *client);
void mm_service_stop(struct mm_client *client);

/* ---- events.c ---- */

void mm_event_push(struct mm_client *client, const struct mm_event *event)
	MM_REQUIRES(mm_client_lock);
/* Drops the newest unread @count of a kind: a call has returned what they would report. */
void mm_event_drop(struct mm_client *client, enum mm_event_kind kind, uint64_t count)
	MM_REQUIRES(mm_client_lock);

/* ---- model.c ---- */

/*
 * The handlers of events, here and below, return 0, or a negative errno with *ret_text set, which
 * ends the connection.
 */
int mm_model_on_loaded(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_model_on_ready(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
void mm_model_destroy(struct mm_model *model) MM_REQUIRES(mm_map_lock);
/* Frees the client's model, if it has one, and goes back to the state before a load. */
void mm_model_drop(struct mm_client *client) MM_EXCLUDES(mm_client_lock);

/* ---- files.c ---- */

struct mm_model_files;
/* Opens the files of a model's directory, with the caller's rights; copies the packing list. */
int mm_model_files_open(struct mm_client *client, const char *path,
			const struct mm_model_opts *opts, struct mm_model_files **ret);
int mm_model_files_adopt(struct mm_client *client, const int *fds, size_t n,
			 const struct mm_model_opts *opts, struct mm_model_files **ret);
/* Passes no file, but the key of a model that is there; @digest may be NULL. */
int mm_model_files_by_key(struct mm_client *client, const void *key, size_t key_bytes,
			  const uint8_t *digest, struct mm_model_files **ret);
void mm_model_files_close(struct mm_model_files **files);
/* Passes the files to load and waits for the result. -EPIPE: load died, another may be started. */
int mm_model_files_pass(struct mm_client *client, const struct mm_model_files *files, int fd,
			uint32_t *ret_flags);

/* ---- packs.c ---- */

/*
 * The packing list in load's format, for the caller to free(), none where @opts has none; and a
 * copy of @opts, all 0 where it is NULL.
 */
int mm_packs_copy(struct mm_client *client, const struct mm_model_opts *opts,
		  struct mm_load_pack **ret_rules, size_t *ret_count,
		  struct mm_model_opts *ret_opts);

/* ---- kv.c ---- */

/* Chunks in a row that are granted one after the other are mapped together, later. */
int mm_kv_on_grant(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_kv_on_denied(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_kv_on_reclaim(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_kv_on_usable(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_kv_on_drop(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* How many chunks are to be given back now. @kv may be NULL. */
uint32_t mm_kv_count_owed(const struct mm_kv *kv) MM_REQUIRES(mm_client_lock);
/* Maps the chunks that were granted: before any other event is handled, and after the last. */
int mm_kv_take_grants(struct mm_client *client, const char **ret_text);

/*
 * Whether mmd has granted it, and the device has mapped it. With the lock, or while the arena is
 * being freed.
 */
bool mm_kv_is_mapped(const struct mm_kv *kv, uint32_t chunk);
/* Maps @n chunks by @table, or unmaps them if it is NULL. */
int mm_kv_chunks_map(struct mm_kv *kv, uint32_t chunk, uint32_t n, const uint32_t *table)
	MM_REQUIRES(mm_map_lock);
/*
 * Maps the filler where chunks from @chunk on have no page. The device may refuse that: then it is
 * tried again with the next change, for the whole arena.
 */
int mm_kv_chunks_fill(struct mm_kv *kv, uint32_t chunk, uint32_t n) MM_REQUIRES(mm_map_lock);
/* Words of a bitmap. */
static inline size_t mm_kv_words(uint32_t bits)
{
	return mm_div_up(bits, 64);
}

/* ---- kv_open.c ---- */

/* Unmaps the whole arena and frees it. */
void mm_kv_destroy(struct mm_kv *kv) MM_REQUIRES(mm_map_lock);

bool mm_kv_is_usable(const struct mm_kv *kv, uint32_t chunk) MM_REQUIRES(mm_client_lock);

/* ---- mem.c ---- */

/* The first entry of the map table that memory of mm_mem_alloc() has; MM_MAP_ENTRIES: none. */
uint32_t mm_mem_lowest(const struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* The page at the begin of what begins at @va; -ENOENT. */
int mm_mem_page(struct mm_client *client, uint64_t va, uint32_t *ret_page) MM_REQUIRES(mm_map_lock)
	MM_EXCLUDES(mm_client_lock);
/* Unmaps all of it, and frees it. */
void mm_mem_destroy_all(struct mm_client *client) MM_REQUIRES(mm_map_lock)
	MM_EXCLUDES(mm_client_lock);

/* ---- swap.c ---- */

int mm_swap_on_swapped(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* Whether a list in progress has a piece in @chunk. @swap may be NULL. */
bool mm_swap_names(const struct mm_swap *swap, uint32_t chunk) MM_REQUIRES(mm_client_lock);
void mm_swap_destroy(struct mm_swap *swap);
uint64_t mm_swap_bytes(const struct mm_swap *swap);

/* ---- cold.c ---- */

int mm_cold_on_limit(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* Takes the answer to a window. Return: whether it was one; any other reply is left alone. */
bool mm_cold_on_reply(struct mm_client *client, const struct mm_msg *msg)
	MM_EXCLUDES(mm_client_lock);
/* How many limits fell so far; 0 if there is no @cold. */
uint64_t mm_cold_falls(const struct mm_cold *cold) MM_REQUIRES(mm_client_lock);
/*
 * True if a limit fell that the engine has not read, or since there were @falls: what it has
 * planned may read entries that are not streamed any more.
 */
bool mm_cold_fell(const struct mm_cold *cold, uint64_t falls) MM_REQUIRES(mm_client_lock);
/* Whether @chunk lies in the window, or in the one that is requested. @cold may be NULL. */
bool mm_cold_names(const struct mm_cold *cold, uint32_t chunk) MM_REQUIRES(mm_client_lock);
/* The declaration has ended with the model. */
void mm_cold_drop(struct mm_client *client) MM_EXCLUDES(mm_client_lock);
void mm_cold_destroy(struct mm_cold *cold);

/* ---- group.c ---- */

int mm_group_on_ready(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_group_on_left(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* Whether the client is a rank of a group, and has what it shares with the others. */
static inline bool mm_group_is_joined(const struct mm_client *c)
{
	return __atomic_load_n(&c->group.state, __ATOMIC_ACQUIRE) == MM_CLIENT_GROUP_JOINED;
}
/* Steps that a rank may be ahead of the slowest one, fewer than MM_GROUP_STEPS - 1. */
#define MM_GROUP_AHEAD 3
/*
 * Whether a rank may begin a step; waits for a rank that is several steps behind. Return: 0;
 * -ENOTCONN not all have joined; -EPIPE one has left; the errno of a dead connection.
 */
int mm_group_may_begin(struct mm_client *client) MM_EXCLUDES(mm_client_lock);
/* Tells the other ranks how the step ended here: nothing of it is enqueued any more. */
void mm_group_step_ended(struct mm_client *client, uint64_t step, enum mm_group_outcome outcome);
bool mm_group_all_ended(const struct mm_client *client, uint64_t step);
/* Waits until all ranks have ended @step. Return: 0; -EPIPE; -ETIMEDOUT; dead connection. */
int mm_group_wait(struct mm_client *client, uint64_t step, uint64_t deadline_ns)
	MM_EXCLUDES(mm_client_lock);
/* For a step that all have ended. Return: 0 it counts; -ECANCELED; -EIO. */
int mm_group_outcome(struct mm_client *client, uint64_t step);

/* ---- turn.c ---- */

int mm_turn_on_begin(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_turn_on_end(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/*
 * Drops the event of a turn's begin, because a call that waited for the turn returns. The event
 * stays if another call returned and relies on it: a lost event is worse than a needless one.
 */
void mm_turn_event_drop(struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* Requests the turn; the lock is released meanwhile. */
int mm_turn_request(struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* Yields the turn because the engine has no work: it is not kept for work that may come. */
void mm_turn_out_of_work(struct mm_client *client);

/* ---- plan.c ---- */

int mm_client_plan_on_prepare(struct mm_client *client, const struct mm_msg *msg,
			      const char **ret_text);
int mm_client_plan_on_switch(struct mm_client *client, const struct mm_msg *msg,
			     const char **ret_text);

/* ---- step.c ---- */

void mm_step_destroy_all(struct mm_client *client);
/* Does what the machine of steps has put out, except for its messages. */
void mm_step_out_perform(struct mm_client *client, const struct mm_steps_out *out)
	MM_REQUIRES(mm_client_lock);
/*
 * Does all that the machine has put out: it releases the lock, then sends the messages, so that
 * those of two threads may overtake each other. Return: 0, or the error of the first message that
 * failed.
 */
int mm_step_unlock(struct mm_client *client, const struct mm_steps_out *out)
	MM_RELEASE(mm_client_lock);
/* The caller's open step. Return: 0; -EINVAL no step is open; -ECHILD. */
int mm_step_mine(struct mm_client *client, struct mm_step **ret_step);
/*
 * Pushes the device's primary context, for one driver call, if the thread has no context or one of
 * another device. Return: whether mm_context_give_back() has to pop it.
 */
bool mm_context_borrow(struct mm_client *client);
void mm_context_give_back(struct mm_client *client, bool borrowed);

/* Has the step's end wait for @stream, too. Return: 0; -E2BIG. By the step's thread. */
int mm_step_stream_add(struct mm_client *client, struct mm_step *step, CUstream stream);
/* Marks the caller's step as closing, so that one thread only closes it; NULL: there is none. */
struct mm_step *mm_step_claim(struct mm_client *client);
/*
 * Brings a step that breaks off to its end: layers that have begun are marked as used, and the rest
 * are passed over, so that the gates are in order for the next step and for those of other threads.
 */
CUresult mm_step_complete(struct mm_client *client, struct mm_step *step, CUstream stream);
/* Closes a step whose streams are done. @ret->res is read: what the device said. */
void mm_step_shut(struct mm_client *client, struct mm_step *step, bool abandon,
		  const struct mm_step_info *info, struct mm_ending *ret);
/*
 * Steps of this client are never void, and yet the gates were aborted: mmd does that to tenants
 * that it ends. Waits for the end to arrive, which has the reason. Return: its errno.
 */
int mm_step_end_await(struct mm_client *client);

/* ---- async.c ---- */

/* Finds out the outcome of steps whose streams have come to their end, in their order. */
void mm_steps_finish(struct mm_client *client);
/* No stream comes to the end of a step of this client any more; the client is being closed. */
void mm_steps_settle(struct mm_client *client);

/* ---- times.c ---- */

struct mm_timed {        /* a wait at a gate */
	CUevent *events; /* before it and after it; NULL: it is not timed */
	bool captured;
};

/*
 * Record the events around the wait for @layer. They return an error only in a capture; otherwise
 * the step continues untimed.
 */
CUresult mm_times_before(struct mm_client *client, struct mm_step *step, uint32_t layer,
			 CUstream stream, struct mm_timed *ret);
CUresult mm_times_after(struct mm_client *client, struct mm_step *step, struct mm_timed *timed,
			CUstream stream);
/*
 * How long the streams of a step, which are synchronised now, waited at gates. Return: whether that
 * is known; 0 is written where it is not.
 */
bool mm_times_read(struct mm_client *client, const struct mm_step *step, uint64_t *ret_stall_ns);
/* Whether the step that begins is to be a sample. */
bool mm_times_due(const struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* Counts a step that ended well. */
void mm_times_account(struct mm_client *client, const struct mm_step *step,
		      const struct mm_step_info *info) MM_REQUIRES(mm_client_lock);
/* Frees the gate times that are left: of a model that goes, or of a client that is closed. */
void mm_times_destroy(struct mm_client *client) MM_EXCLUDES(mm_client_lock);
