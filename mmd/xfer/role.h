/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xfer - the state of the role: the objects that core has sent, and the jobs in progress
 *
 * Concept:   Jobs arrive in the ring, wait in one list, run side by side and complete in any order.
 *            A job has room for the state that any kind of job needs (struct mm_xjob). When it is
 *            done, its completion waits until the ring has room.
 * Ownership: struct mm_xfer owns all of it, for the life of the process.
 * Threading: one thread, beside the one of mmd/xfer/watch.h.
 * Limits:    MM_XJOBS_MAX jobs are taken out of the ring at a time; the rest wait in it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "libclient/ipc/ring.h"
#include "libclient/protocol/xplan.h"
#include "mmd/common/proto.h"
#include "mmd/xfer/device.h"
#include "mmd/xfer/link.h"
#include "mmd/xfer/pool.h"
#include "mmd/xfer/store.h"
#include "mmd/xfer/swap.h"
#include "mmd/xfer/tenant.h"
#include "mmd/xfer/watch.h"

#define MM_XJOBS_MAX  1024
#define MM_XSCRUB_MAX 64 /* batches of scrubs that may be on the device at once */

enum mm_xjob_state {
	MM_XJOB_NEW,     /* not begun, or to be tried again */
	MM_XJOB_RUNNING, /* the device works on it, or a tenant's copies are landing */
	MM_XJOB_DONE,    /* its result waits for room in the completion ring */
};

/* Pages that are filled before one event; one call fills all neighbours among them. */
struct mm_xscrub {
	CUevent event;
	uint32_t jobs; /* jobs of the batch that have not ended; 0: the batch is free */
	bool recorded; /* the event has been recorded on the stream */
};

struct mm_xscrubs {
	struct mm_xscrub batch[MM_XSCRUB_MAX];
	uint32_t events;        /* events that were created */
	struct mm_xscrub *open; /* the batch that this round of the loop fills; NULL: none yet */
	uint32_t first, n;      /* neighbours in the open batch that are not filled yet */
};

struct mm_xjob {
	struct mm_msg msg;
	enum mm_xjob_state state;
	int result;
	uint64_t progress;            /* CREATE: pages that were created or are there already */
	struct mm_xscrub *scrub;      /* SCRUB: the batch of the job */
	uint32_t page;                /* COPY, SWAP: the transfer's list of one page */
	struct mm_xtransfer transfer; /* COPY, SWAP */
	struct mm_xswap *swap;        /* SWAP */
	struct mm_xfer *x;
	TAILQ_ENTRY(mm_xjob) entry;
};

struct mm_xfer {
	int fd; /* the socket to core */
	struct mm_region jobs_region, completions_region;
	struct mm_ring jobs, completions;
	struct mm_xdev dev;
	struct mm_xwatch watch;
	struct mm_xmsg watch_msg; /* message of the watch that core has not got yet; kind 0: none */
	struct mm_xpool pool;
	struct mm_xstage stage;
	struct mm_xstores stores;
	struct mm_xlink link;
	struct mm_xflow copies; /* the flow of core's COPY jobs */
	struct mm_xtenant *tenants;
	struct mm_xswap *swaps;
	TAILQ_HEAD(, mm_xjob) running; /* in order of arrival */
	TAILQ_HEAD(, mm_xjob) idle;
	struct mm_xjob job[MM_XJOBS_MAX];
	struct mm_xscrubs scrubs;
	bool core_gone;
};

struct mm_xtenant *mm_xfer_tenant(const struct mm_xfer *x, uint64_t id);
