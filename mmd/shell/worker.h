/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker - core's end of a device's xfer
 *
 * Concept:    DOWN -> SETUP (started, told what is wanted) -> UP (it said what the device is) ->
 *             DYING (its socket ended or it was killed; reaping is awaited) -> DOWN. A new one gets
 *             all pages, stores and tenants before the core hears that it is there. Messages with
 *             fds and jobs leave in the order in which they were queued. One that is UP is proven
 *             once it has done a job, or has lived for MM_WORKER_PROVEN_NS; until then its death
 *             counts as a failure to start, and a device that was down stays so.
 * Ownership:  owns the fd of every page of the pool. The fd of a page that is to be recreated is
 *             closed before the job goes out; one that a dead xfer was creating is closed with it.
 * Trust:      xfer loads foreign code: its completions and fds are checked; a lie ends it.
 * Threading:  core's thread.
 */
#pragma once

#include <stdbool.h>

#include "libclient/ipc/region.h"
#include "libclient/ipc/ring.h"
#include "mmd/common/fifo.h"
#include "mmd/common/loop.h"
#include "mmd/common/proto.h"

#define MM_WORKER_JOBS_MAX  1024
#define MM_POOL_PAGES_MAX   (1u << 20)
#define MM_HELLO_WAIT_NS    (120 * MM_NS_PER_S) /* a driver may take its time to start */
#define MM_WORKER_PROVEN_NS (3 * MM_NS_PER_S)

struct mm_pool;

enum mm_worker_state { MM_WORKER_DOWN, MM_WORKER_SETUP, MM_WORKER_UP, MM_WORKER_DYING };

struct mm_worker_job {
	uint64_t id;           /* 0 = free */
	uint32_t first, count; /* pages that it creates; 0 = none */
	uint64_t store;        /* that it drops; 0 = none */
	bool scrub;
	bool works; /* the device does something for it */
};

struct mm_device {
	uint64_t page_bytes, total_bytes;
	uint32_t pages;
	uint32_t driver_kind;
	int numa_node;        /* of the host's memory next to it; -1 = not known */
	uint64_t stage_bytes; /* of its xfer's ring for stores on disk */
	bool stage_pread;     /* without io_uring */
	struct mm_xfacts facts;
	uint8_t uuid[16];
	char name[MM_TEXT_BYTES];
};

struct mm_worker {
	enum mm_worker_state state;
	uint64_t epoch, restarts;
	int64_t pid;
	bool proven;
	uint64_t proven_at_ns; /* at the latest; UINT64_MAX = proven, or not up */
	bool was_up, fault;    /* of the one that is dying: it worked; it is to blame for its end */
	int fd;
	struct mm_loop_source source;
	struct mm_region jobs_region, done_region;
	struct mm_ring jobs, done;
	struct mm_fifo queue;
	struct mm_worker_job job[MM_WORKER_JOBS_MAX];
	uint32_t jobs_running;
	int scrub_error;     /* of the last scrub that failed; 0 = none did */
	uint64_t own_serial; /* of jobs that the core does not know */
	uint64_t hello_by_ns;
	struct mm_device device; /* valid once known */
	bool known;
	int *page_fd;      /* by page id, -1 = none */
	uint64_t retry_ns; /* the queue could not be sent, or a store is still in use */
	bool busy, bell, want_write;
};

void mm_worker_init(struct mm_pool *pool);
void mm_worker_done(struct mm_pool *pool);

/* Asks keeper for a new one. */
void mm_worker_start(struct mm_pool *pool);
/* Keeper: started, @fd (taken over) is our end; reaped. */
void mm_worker_started(struct mm_pool *pool, uint64_t epoch, int64_t pid, int fd);
void mm_worker_gone(struct mm_pool *pool, uint64_t epoch, int status);

/* The device is of no use any more: xfer is ended, the device is down until one comes up again. */
void mm_worker_lost(struct mm_pool *pool);

/* Queue: a job of the core; what xfer needs to know. Nothing is queued while none is up. */
void mm_worker_job(struct mm_pool *pool, const struct mm_msg *msg);
void mm_worker_tenant(struct mm_pool *pool, uint32_t tenant);
void mm_worker_swap(struct mm_pool *pool, uint32_t tenant);
void mm_worker_store(struct mm_pool *pool, uint64_t store);
void mm_worker_store_drop(struct mm_pool *pool, uint64_t store);

bool mm_worker_service(struct mm_pool *pool, uint64_t now_ns);
void mm_worker_ring(struct mm_pool *pool);
uint64_t mm_worker_deadline(const struct mm_worker *worker);
