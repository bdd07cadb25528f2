/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker - core's end of a device's xfer
 *
 * Concept:    DOWN -> SETUP (started; SETUP was sent) -> UP (its HELLO described the device) ->
 *             DYING (its socket ended or it was killed; it is not reaped yet) -> DOWN. A new xfer
 *             gets all pages, stores and tenants before it is reported to the core. Messages with
 *             fds and jobs leave in the order in which they were queued. An xfer that is UP is
 *             proven once it has done a job that needs the device, or has lived for
 *             MM_WORKER_PROVEN_NS; until then its death counts as a failure to start, and a device
 *             that was down stays down.
 * Ownership:  owns the fd of every page of the pool, of which keeper holds another one (held.h):
 *             before the completion of the job that created the page counts, and until keeper has
 *             acknowledged its close, before the job that recreates the page goes out. One that a
 *             dead xfer was creating is closed with it.
 * Trust:      xfer loads foreign code: its completions and fds are checked, and it is killed when
 *             one is wrong.
 * Threading:  core's thread.
 */
#pragma once

#include <stdbool.h>

#include "libclient/ipc/region.h"
#include "mmd/common/fifo.h"
#include "mmd/common/loop.h"
#include "mmd/common/proto.h"
#include "mmd/shell/pushed.h"
#include "mmd/shell/told.h"

#define MM_POOL_PAGES_MAX   (1u << 20)
#define MM_HELLO_WAIT_NS    (120 * MM_NS_PER_S) /* a driver may take that long to start */
#define MM_WORKER_PROVEN_NS (3 * MM_NS_PER_S)

struct mm_pool;

enum mm_worker_state { MM_WORKER_DOWN, MM_WORKER_SETUP, MM_WORKER_UP, MM_WORKER_DYING };

struct mm_device {
	uint64_t page_bytes, total_bytes;
	uint32_t pages;
	uint32_t driver_kind;
	int numa_node;        /* of the host's memory next to the device; -1 = not known */
	uint64_t stage_bytes; /* size of its xfer's ring for stores on disk */
	bool stage_pread;     /* the ring is read without io_uring */
	struct mm_xfacts facts;
	uint8_t uuid[16];
	char name[MM_TEXT_BYTES];
};

/* The part that outlives core (kept.h). */
struct mm_worker_kept {
	uint32_t state;  /* enum mm_worker_state */
	uint32_t known;  /* the device is known */
	uint32_t proven; /* bool */
	/* Bools: whether the dying xfer had come up, and whether its end is its own fault. */
	uint32_t was_up, fault;
	int32_t scrub_error; /* error of the last scrub that failed; 0 = none did */
	uint64_t epoch, restarts;
	int64_t pid;
	uint64_t own_serial; /* last serial number of the shell's own jobs */
	struct mm_device device;
	struct mm_told_kept told;
	struct mm_pushed_kept pushed;
};

struct mm_worker {
	struct mm_worker_kept *kept;
	/* When it is proven at the latest; UINT64_MAX = proven already, or not up. */
	uint64_t proven_at_ns;
	int fd;
	struct mm_loop_source source;
	struct mm_region jobs_region, done_region;
	struct mm_pushed pushed;
	struct mm_fifo queue;
	uint64_t hello_by_ns;
	struct mm_device device; /* valid when known is set */
	int *page_fd;            /* indexed by page id; -1 = none */
	uint64_t retry_ns; /* when the queue is sent again; UINT64_MAX = nothing holds it back */
	bool busy, bell, want_write;
	/*
	 * The next message of xfer waits: core has no room for its fds, or it was handled and
	 * keeper does not hold them yet.
	 */
	bool stalled, handled;
	bool resuming; /* between mm_worker_resume() and mm_worker_resume_end() */
	bool overrun;  /* its queue is full: it takes no jobs, and is killed in the next round */
};

void mm_worker_init(struct mm_pool *pool);
void mm_worker_done(struct mm_pool *pool);

/**
 * mm_worker_resume() - take over the xfer of a core that has died
 * @pool: has its core, its sessions and its stores again
 *
 * Jobs and all else for xfer is ignored from now on until mm_worker_resume_end(), which finds out
 * what xfer lacks. Return: 0; negative errno.
 */
int mm_worker_resume(struct mm_pool *pool);
/*
 * All that was under way is done. Queues what xfer lacks; if that xfer cannot go on a new one is
 * started.
 */
void mm_worker_resume_end(struct mm_pool *pool);

/* Requests a new xfer from keeper. */
void mm_worker_start(struct mm_pool *pool);
/* Messages of keeper: an xfer was started, @fd (taken over) is our end; an xfer was reaped. */
void mm_worker_started(struct mm_pool *pool, uint64_t epoch, int64_t pid, int fd);
void mm_worker_gone(struct mm_pool *pool, uint64_t epoch, int status);

/* Gives the device up: its xfer is killed, and the device is down until another xfer is proven. */
void mm_worker_lost(struct mm_pool *pool);

/*
 * Queue a job of the core, or a tenant, swap space or store for xfer. While no xfer is up nothing
 * is queued.
 */
void mm_worker_job(struct mm_pool *pool, const struct mm_msg *msg);
void mm_worker_tenant(struct mm_pool *pool, uint32_t tenant);
void mm_worker_swap(struct mm_pool *pool, uint32_t tenant);
void mm_worker_store(struct mm_pool *pool, uint64_t store);
void mm_worker_store_drop(struct mm_pool *pool, uint64_t store);

bool mm_worker_service(struct mm_pool *pool, uint64_t now_ns);
void mm_worker_ring(struct mm_pool *pool);
uint64_t mm_worker_deadline(const struct mm_worker *worker);

/* ---- for the parts of worker: worker_send.h, worker_receive.h ---- */

/*
 * Stops using the xfer, which died, broke the protocol or hangs, and kills it; a new one starts
 * once it was reaped.
 */
void mm_worker_down(struct mm_pool *pool, const char *reason);
/* As mm_worker_down() for an xfer that broke the protocol or hangs: its end is its own fault. */
void mm_worker_fault(struct mm_pool *pool, const char *reason);

/* The xfer is proven: keeper resets its count of failures, and a device that was down is up. */
void mm_worker_proven(struct mm_pool *pool);

/* Handles xfer's HELLO; of its fds those that are taken over become -1. */
void mm_worker_on_hello(struct mm_pool *pool, struct mm_xmsg *msg, int *fds, size_t n_fds);

/* Closes the connection, empties the table of jobs and drops the pages that were being created. */
void mm_worker_disconnect(struct mm_pool *pool);

/* Begins to receive from the socket. */
int mm_worker_listen(struct mm_pool *pool);

/* The name that a page's fd has at keeper. */
static inline struct mm_held_name mm_worker_page_name(uint32_t pool, uint32_t page)
{
	return (struct mm_held_name){ .kind = MM_HELD_PAGE, .index = pool, .id = page };
}

/* Closes the fds of some pages, here and at keeper. */
void mm_worker_pages_close(struct mm_pool *pool, uint32_t first, uint32_t count);
