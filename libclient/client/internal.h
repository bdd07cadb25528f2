/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal - what the parts of libclient share: the client object and its connection
 *
 * Concept:   client.c opens and closes; connect.c shakes hands; link.c sends requests and declares
 *            the connection dead; service.c is the one thread that takes in what mmd says; model.c,
 *            kv.c and step.c are the nouns of the public API, each with its half of the service;
 *            plan.c maps what mmd plans. When steps may run is decided by a machine,
 *            protocol/steps.h.
 * Ownership: struct mm_client owns everything here.
 * Threading: `lock` guards what is marked; it is never held over a driver call, a system call that
 *            can block or a wait other than for `changed`. `map_lock` guards the mapper and is
 *            taken first where both are needed. What is set before the service thread starts is
 *            constant.
 * Death:     mm_link_fail() is final: every later call fails with its errno, all gates are aborted,
 *            and mappings stay until mm_client_close().
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/client/dir.h"
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

#define MM_ERROR_BYTES   320
#define MM_EVENTS_MAX    64
#define MM_FD_NONE       (-1)
#define MM_LINK_RETRY_NS (MM_NS_PER_MS / 5) /* between two tries of a full queue */
#define MM_FDS_RETRIES   256                /* of one truncated batch, before we give up */

/* A call that waits for the reply to its request; lives on the caller's stack. */
struct mm_wait {
	struct mm_wait *next;
	uint64_t id;
	bool done;
	struct mm_msg reply;
};

enum mm_client_model_phase {
	MM_CLIENT_MODEL_NONE,
	MM_CLIENT_MODEL_LOADING, /* a call of mm_model_load() is at work */
	MM_CLIENT_MODEL_LOADED,  /* the directory is here, addresses are reserved */
	MM_CLIENT_MODEL_READY,
	MM_CLIENT_MODEL_REFUSED, /* by mmd; the loading call cleans up */
	MM_CLIENT_MODEL_BROKEN,  /* a load was given up half-way: no other can be tried */
};

struct mm_model {
	struct mm_client *client;
	struct mm_directory dir;
	struct mm_region store;
	uint64_t head_bytes;   /* of the store: all of it, or its directory */
	struct mm_span *spans; /* by group */
	bool *cycles;          /* by group; changes only while no step is open */
	uint32_t load_flags;
	uint64_t pages;
};

struct mm_kv {
	struct mm_client *client;
	uint64_t chunk_bytes;
	uint32_t ranges;
	uint32_t chunks_max;
	uint32_t pages_per_range;                          /* of one chunk */
	CUdeviceptr *va;                                   /* by range */
	uint64_t *usable MM_PT_GUARDED_BY(mm_client_lock); /* bitmap */
	uint32_t n_usable MM_GUARDED_BY(mm_client_lock);
	/* The standing wish. */
	uint32_t wanted MM_GUARDED_BY(mm_client_lock);
	/* The wish that the last denial was for, and its error; 0 = none yet. */
	uint32_t denied_wanted MM_GUARDED_BY(mm_client_lock);
	int denied_error MM_GUARDED_BY(mm_client_lock);
	/* Chunks, so far; and of them, those that the return of a wait has told of. */
	uint64_t granted MM_GUARDED_BY(mm_client_lock);
	uint64_t reported MM_GUARDED_BY(mm_client_lock);
	/* Chunks that mmd was told, or is about to be told, so far. */
	uint64_t released MM_GUARDED_BY(mm_client_lock);
	struct { /* what mmd last asked back */
		uint32_t chunks;
		uint64_t deadline_ns;
		uint64_t known; /* of `released`, those that it knew of then */
	} reclaim MM_GUARDED_BY(mm_client_lock);
};

#define MM_STEP_STREAMS 16 /* joined to one step */
#define MM_STEP_BEGUN   16 /* layers of one step that are begun and not ended, on several streams */

/* A layer that is in use on a stream. */
struct mm_begun {
	uint32_t layer;
	CUstream stream;
};

struct mm_step {
	struct mm_step *next MM_GUARDED_BY(mm_client_lock);
	bool open MM_GUARDED_BY(mm_client_lock);
	bool closing MM_GUARDED_BY(mm_client_lock);    /* a thread ends or abandons it */
	uint64_t thread MM_GUARDED_BY(mm_client_lock); /* that opened it; thread_number() */
	uint64_t begin_ns;                             /* the rest is the opening thread's */
	int64_t last_layer;
	uint32_t n_begun, n_streams;
	struct mm_begun begun[MM_STEP_BEGUN];
	CUstream streams[MM_STEP_STREAMS];
	bool times_all;              /* a plan is being mapped: any layer may wait */
	bool due;                    /* for a sample */
	bool captured;               /* layers were captured in it */
	bool replayed;               /* graphs run its layers */
	bool unknown;                /* a wait could not be timed */
	struct mm_gate_times *times; /* of the graph that is captured or replayed; NULL: none */
	uint32_t gated;
	uint32_t n_timed; /* waits with events around them: events[2 * i], [2 * i + 1] */
	uint32_t n_events;
	CUevent *events;
};

struct mm_sampling {    /* which steps tell what they waited */
	uint64_t epoch; /* of the plan that the others are about */
	uint64_t samples;
	uint64_t stall_ns; /* of the last step that was timed */
	uint32_t n;        /* samples, not counted beyond the first ones */
	uint32_t skipped;  /* steps since the last sample */
	bool graphs;       /* steps are replayed */
};

struct mm_client {
	/* constant while the service thread runs */
	uint64_t id;     /* of this client among all of the process, for mm_client_error() */
	bool *fork_mark; /* a page of its own; false in every child */
	struct mm_client *fork_next; /* of the process's clients; fork.c */
	uint64_t timeout_ns;
	const struct mm_gpu_api *gpu;
	struct mm_gpu_api gpu_own; /* library != NULL: opened by us */
	CUdevice device;
	uint8_t device_uuid[16]; /* all 0 while no driver was asked */
	CUcontext context;
	struct mm_welcome welcome;
	int sock;
	int wake_fd; /* eventfd: the service thread is to end */
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
	struct mm_ring cq;                /* service thread only */
	uint32_t fds_refused;             /* service thread only: truncated batches in a row */
	char end_text[MM_END_BYTES + 32]; /* service thread only */
	struct { /* service thread only: chunks that were granted and are not mapped yet */
		uint64_t first;
		uint32_t n;
	} granted;

	struct mm_map_lock map_lock;
	struct mm_mapper mapper MM_GUARDED_BY(mm_map_lock);
	bool closing MM_GUARDED_BY(mm_map_lock); /* nothing is mapped any more */

	struct mm_client_lock lock;
	pthread_cond_t changed; /* of anything below; CLOCK_MONOTONIC */
	struct mm_ring sq MM_GUARDED_BY(mm_client_lock);
	struct mm_wait *waits MM_GUARDED_BY(mm_client_lock);
	uint64_t last_wait_id MM_GUARDED_BY(mm_client_lock);
	int dead MM_GUARDED_BY(mm_client_lock); /* 0 or the errno that every call returns */
	char dead_text[MM_ERROR_BYTES];

	/* When steps may run. */
	struct mm_steps steps MM_GUARDED_BY(mm_client_lock);
	uint64_t parked_ns MM_GUARDED_BY(mm_client_lock); /* since when no step can begin */
	/* For how long that was, of all plan changes. */
	uint64_t held_ns MM_GUARDED_BY(mm_client_lock);
	uint64_t plan_changes MM_GUARDED_BY(mm_client_lock);
	/* A call that did not wait was promised the event of its begin. */
	bool turn_event_due MM_GUARDED_BY(mm_client_lock);

	/* Steps that are open, and closed ones to be used again. */
	struct mm_step *step_list MM_GUARDED_BY(mm_client_lock);
	uint64_t step_seq MM_GUARDED_BY(mm_client_lock);
	uint64_t steps_done MM_GUARDED_BY(mm_client_lock);
	uint64_t stall_total_ns MM_GUARDED_BY(mm_client_lock);
	struct mm_sampling sampling MM_GUARDED_BY(mm_client_lock);
	struct mm_gate_times *gate_times MM_GUARDED_BY(mm_client_lock);

	enum mm_client_model_phase model_phase MM_GUARDED_BY(mm_client_lock);
	/* Set by the service thread at LOADED. */
	struct mm_model *model MM_GUARDED_BY(mm_client_lock);
	/* Channel to load that came and was not taken yet. */
	int load_fd MM_GUARDED_BY(mm_client_lock);
	int store_fd MM_GUARDED_BY(mm_client_lock);
	int refused_result MM_GUARDED_BY(mm_client_lock);
	enum mm_refusal refused_why MM_GUARDED_BY(mm_client_lock);

	struct mm_kv *kv MM_GUARDED_BY(mm_client_lock);
	struct mm_swap *swap MM_GUARDED_BY(mm_client_lock);

	int event_fd;
	uint32_t events_first MM_GUARDED_BY(mm_client_lock);
	uint32_t events_n MM_GUARDED_BY(mm_client_lock);
	struct mm_event events[MM_EVENTS_MAX] MM_GUARDED_BY(mm_client_lock);
};

/*
 * Of its model; 0 while it has none that can run. Not checked: a thread with a step open calls it
 * without the lock, and the model that can run stays until the client is closed.
 */
static inline uint32_t mm_client_layers(const struct mm_client *c) MM_NO_THREAD_SAFETY_ANALYSIS
{
	return c->model_phase == MM_CLIENT_MODEL_READY ? c->model->dir.n_groups - 1 : 0;
}

/* The model that can run. Not checked, for the same reason. */
static inline struct mm_model *
mm_client_model(const struct mm_client *c) MM_NO_THREAD_SAFETY_ANALYSIS
{
	return c->model;
}

/* ---- client.c ---- */

/* The gate of every public call: 0; -ECHILD after fork; the errno of a dead connection. */
int mm_enter(struct mm_client *client) MM_EXCLUDES(mm_client_lock);
/* Notes the sentence for mm_client_error() and returns @error. */
int mm_fail(const struct mm_client *client, int error, const char *format, ...) MM_PRINTF(3, 4);
/* Makes bytes that a peer wrote fit to be shown. */
void mm_sanitize(char *text, size_t bytes);

/* ---- fork.c ---- */

/* From here on calls in a child are refused, and the child's fds are closed. */
int mm_fork_watch(struct mm_client *client);
/* By the owner only; accepts a client that is not watched. */
void mm_fork_unwatch(struct mm_client *client);
bool mm_fork_is_child(const struct mm_client *client);
void mm_fork_close_fds(struct mm_client *client);

/*
 * ---- connect.c: @errbuf gets the sentence; after a refusal, and only then, it may be called again
 * ----
 */

int mm_connect(struct mm_client *client, const struct mm_client_opts *opts, char *errbuf,
	       size_t errbuf_bytes);

/* ---- link.c ---- */

/*
 * Queues a request and rings. -ETIMEDOUT mmd does not take any; or the errno of a dead connection.
 */
int mm_link_push(struct mm_client *client, const struct mm_msg *msg) MM_EXCLUDES(mm_client_lock);
/* Queues @msg and waits for the reply, which replaces it. Also -ETIMEDOUT without a reply. */
int mm_link_call(struct mm_client *client, struct mm_msg *msg) MM_EXCLUDES(mm_client_lock);
/* Wakes the call that waits for @reply; one that nobody waits for is dropped. */
void mm_link_reply(struct mm_client *client, const struct mm_msg *reply)
	MM_EXCLUDES(mm_client_lock);
/* The connection is over: frees every stream and every waiting call. The first cause counts. */
void mm_link_fail(struct mm_client *client, int error, const char *text)
	MM_EXCLUDES(mm_client_lock);
/* Frees every stream. */
void mm_link_abort_gates(struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* Waits for `changed`. -ETIMEDOUT; the errno of a dead connection; 0 = look again. */
int mm_link_wait(struct mm_client *client, uint64_t deadline_ns) MM_REQUIRES(mm_client_lock);

/* ---- service.c ---- */

int mm_service_start(struct mm_client *client);
void mm_service_stop(struct mm_client *client);

/* ---- events.c ---- */

void mm_event_push(struct mm_client *client, const struct mm_event *event)
	MM_REQUIRES(mm_client_lock);
/*
 * A call has returned what @count of the newest of that kind would tell: as far as unread, they go.
 */
void mm_event_drop(struct mm_client *client, enum mm_event_kind kind, uint64_t count)
	MM_REQUIRES(mm_client_lock);

/* ---- model.c ---- */

/* 0, or a negative errno with *ret_text set: mmd broke the protocol. */
int mm_model_on_loaded(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_model_on_ready(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
void mm_model_destroy(struct mm_model *model) MM_REQUIRES(mm_map_lock);

/* ---- files.c ---- */

struct mm_model_files;
/* Opens what a model's directory holds, with the caller's rights; copies the packing list. */
int mm_model_files_open(struct mm_client *client, const char *path,
			const struct mm_model_opts *opts, struct mm_model_files **ret);
void mm_model_files_close(struct mm_model_files **files);
/* Passes them to load and waits for its verdict. -EPIPE: load died, another may come. */
int mm_model_files_pass(struct mm_client *client, const struct mm_model_files *files, int fd,
			uint32_t *ret_flags);

/* ---- packs.c ---- */

/* The packing list as load takes it, the caller's to free(); none where @opts has none. */
int mm_packs_copy(struct mm_client *client, const struct mm_model_opts *opts,
		  struct mm_load_pack **ret_rules, size_t *ret_count);

/* ---- kv.c ---- */

/* Neighbours that are granted one after the other are mapped together, by mm_kv_take_grants(). */
int mm_kv_on_grant(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_kv_on_denied(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_kv_on_reclaim(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* Chunks that are to be given back now. @kv may be NULL. */
uint32_t mm_kv_count_owed(const struct mm_kv *kv) MM_REQUIRES(mm_client_lock);
/* Maps what was granted; before any other event is looked at, and when there is none. */
int mm_kv_take_grants(struct mm_client *client, const char **ret_text);

/* Takes all mappings of the arena away and frees it. */
void mm_kv_destroy(struct mm_kv *kv) MM_REQUIRES(mm_map_lock);

bool mm_kv_is_usable(const struct mm_kv *kv, uint32_t chunk) MM_REQUIRES(mm_client_lock);

/* ---- swap.c ---- */

int mm_swap_on_swapped(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* Does a list under way name it? @swap may be NULL. */
bool mm_swap_names(const struct mm_swap *swap, uint32_t chunk) MM_REQUIRES(mm_client_lock);
void mm_swap_destroy(struct mm_swap *swap);

/* ---- turn.c ---- */

int mm_turn_on_begin(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
int mm_turn_on_end(struct mm_client *client, const struct mm_msg *msg, const char **ret_text);
/* A call that waited for the turn returns. */
void mm_turn_event_drop(struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* Says that there is work; the lock is let go meanwhile. */
int mm_turn_request(struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* The engine has nothing to do: a turn is not kept for work that may come. */
void mm_turn_out_of_work(struct mm_client *client);

/* ---- plan.c ---- */

int mm_client_plan_on_prepare(struct mm_client *client, const struct mm_msg *msg,
			      const char **ret_text);
int mm_client_plan_on_switch(struct mm_client *client, const struct mm_msg *msg,
			     const char **ret_text);

/* ---- step.c ---- */

void mm_step_destroy_all(struct mm_client *client);
/* What the machine of steps wants done, but for what it wants said. */
void mm_step_out_perform(struct mm_client *client, const struct mm_steps_out *out)
	MM_REQUIRES(mm_client_lock);
/*
 * All that it wants; lets the lock go. What two threads say may overtake each other then.
 * Return: 0; of what mmd does not take, the first error.
 */
int mm_step_unlock(struct mm_client *client, const struct mm_steps_out *out)
	MM_RELEASE(mm_client_lock);
/* The caller's open step. -EINVAL there is none; -ECHILD. */
int mm_step_mine(struct mm_client *client, struct mm_step **ret_step);
/*
 * A thread without a context, or with one of another device, gets the device's primary one for a
 * call; true: give it back.
 */
bool mm_context_borrow(struct mm_client *client);
void mm_context_give_back(struct mm_client *client, bool borrowed);

/* ---- times.c ---- */

struct mm_timed { /* a wait at a gate, and the events around it; NULL: it is not timed */
	CUevent *events;
	bool captured;
};

/* Around the wait for @layer. What fails fails a capture only; a step goes on untimed. */
CUresult mm_times_before(struct mm_client *client, struct mm_step *step, uint32_t layer,
			 CUstream stream, struct mm_timed *ret);
CUresult mm_times_after(struct mm_client *client, struct mm_step *step, struct mm_timed *timed,
			CUstream stream);
/*
 * The step's streams were synchronised: what they waited at gates. false: that is not known, and 0.
 */
bool mm_times_read(struct mm_client *client, const struct mm_step *step, uint64_t *ret_stall_ns);
/* Should the step that begins be a sample? */
bool mm_times_due(const struct mm_client *client) MM_REQUIRES(mm_client_lock);
/* The step ended well. */
void mm_times_account(struct mm_client *client, const struct mm_step *step,
		      const struct mm_step_info *info) MM_REQUIRES(mm_client_lock);
void mm_times_destroy(struct mm_client *client);
