/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xlink - the link from the host to the device, shared by bytes and weights
 *
 * Concept:   A transfer copies a range of a store into a list of pages, in chunks; or it copies
 *            between pages and a swap space, in either direction. Each direction is a lane with a
 *            stream and chunks of its own: what leaves the device does not stand before a layer.
 *            Transfers wait in flows (one per tenant, one for core's copy jobs). Whenever a lane
 *            has room, the flow that was served least in it issues the next chunk of its transfer
 *            that is due first, of several such the oldest (start-time fair queueing: a flow that
 *            was idle starts level with the others and gets no credit for the idle time).
 *            A byte of a flow of weight w counts 1/w: core's copies bring layers home for good, so
 *            they go before layers that cycle, but leave these a part: their tenants compute.
 *            Few chunks are on the device at once. The rest can still be cancelled, so that a
 *            quiesce is prompt. Chunks of a store on disk are read ahead into the ring of stage.h
 *            in the same order; a transfer whose next chunk has not been read yet lets others go
 *            first.
 * Ownership: flows and transfers are the caller's and must not move: a transfer until its landed()
 *            was called, a flow until mm_xlink_leave().
 * Threading: one thread. Completion is by events, within a lane in order of issue.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "mmd/xfer/pool.h"
#include "mmd/xfer/store.h"

/* The result of a transfer whose store could not be read from disk. */
#define MM_XLINK_UNREADABLE (-EREMOTEIO)

#define MM_XLINK_CHUNKS 8 /* chunks of a lane on the device at once, at most */
#define MM_XLINK_DEPTH  3 /* whole chunks' worth of bytes of a lane on the device at once */

#define MM_XLINK_WEIGHT        1 /* of a tenant's flow */
#define MM_XLINK_WEIGHT_COPIES 4 /* of the flow of core's copy jobs */

struct mm_xrows; /* mmd/xfer/cold.h */

struct mm_xtransfer {
	/* set by the caller before mm_xlink_start() */
	struct mm_xstore *store;
	uint64_t store_offset;
	char *host;            /* in place of a store: memory within one registration */
	bool to_host;          /* with host: from the pages to host */
	struct mm_xrows *rows; /* in place of host, page and page_offset: rows of cold blocks */
	uint64_t page_offset;  /* offset into the first page */
	uint64_t bytes;        /* <= n_pages * page_bytes - page_offset */
	const uint32_t *page;
	bool zero_tail;     /* fill the rest of the last page with zeros */
	uint64_t due;       /* the least goes first; compared within a flow and a lane only */
	uint64_t caused_ns; /* mm_xpace: device time of the event that caused it */
	uint64_t landed_ns; /* mm_xpace: device time at which it landed */
	void (*landed)(struct mm_xtransfer *transfer, int result);
	/* private */
	struct mm_xflow *flow;
	uint64_t issued_bytes;
	uint64_t staged_bytes;  /* on disk: bytes whose reads were requested */
	struct mm_xbufs staged; /* buffers of chunks that are not issued yet, in order */
	uint32_t in_flight;     /* chunks on the device */
	bool queued;
	int result;
	TAILQ_ENTRY(mm_xtransfer) entry;
};

TAILQ_HEAD(mm_xqueue, mm_xtransfer);

enum mm_xlane_id { MM_XLANE_IN, MM_XLANE_OUT, MM_XLANES }; /* to the device; from it */

struct mm_xflow {
	uint64_t served_bytes[MM_XLANES]; /* virtual bytes, comparable between flows */
	uint64_t weight;
	struct mm_xqueue queue[MM_XLANES]; /* by due, then by age */
	TAILQ_ENTRY(mm_xflow) entry;
};

struct mm_xchunk {
	CUevent done;
	struct mm_xtransfer *transfer;
	/* buffer that the chunk is copied from; NULL: the store is in memory */
	struct mm_xbuf *buffer;
	uint64_t bytes;
};

struct mm_xlane {
	CUstream stream; /* the device's */
	uint64_t in_flight_bytes;
	uint64_t virtual_bytes; /* served_bytes of the flow that was served last */
	uint32_t head, tail;    /* positions in chunk[], free-running */
	struct mm_xchunk chunk[MM_XLINK_CHUNKS];
};

struct mm_xlink {
	struct mm_xpool *pool;
	struct mm_xstores *stores;
	uint64_t chunk_bytes;
	struct mm_xlane lane[MM_XLANES];
	TAILQ_HEAD(, mm_xflow) flows;
};

int mm_xlink_init(struct mm_xlink *link, struct mm_xpool *pool, struct mm_xstores *stores,
		  uint64_t chunk_bytes);
void mm_xlink_done(struct mm_xlink *link);

/* @weight: at least 1; the flow's part of the link is in proportion while others use it, too. */
void mm_xlink_join(struct mm_xlink *link, struct mm_xflow *flow, uint64_t weight);
/* No transfer of @flow may be left. */
void mm_xlink_leave(struct mm_xlink *link, struct mm_xflow *flow);

/*
 * Queues @transfer behind those of @flow that are due before it or at once with it. mm_xlink_run()
 * or mm_xlink_cancel() calls landed().
 */
void mm_xlink_start(struct mm_xlink *link, struct mm_xflow *flow, struct mm_xtransfer *transfer);

/* Changes when @transfer is due, which is queued or not. */
void mm_xtransfer_set_due(struct mm_xtransfer *transfer, uint64_t due);

/*
 * Issues no more of @transfer. landed(-ECANCELED) is called when the device has done what was
 * issued; at once, if nothing was.
 */
void mm_xlink_cancel(struct mm_xlink *link, struct mm_xtransfer *transfer);

static inline bool mm_xtransfer_on_disk(const struct mm_xtransfer *transfer)
{
	return transfer->store && mm_xstore_on_disk(transfer->store);
}

static inline enum mm_xlane_id mm_xtransfer_lane(const struct mm_xtransfer *transfer)
{
	return transfer->to_host ? MM_XLANE_OUT : MM_XLANE_IN;
}

/* True if the next chunk of @transfer can be issued. */
static inline bool mm_xtransfer_ready(const struct mm_xtransfer *transfer)
{
	return !mm_xtransfer_on_disk(transfer) || transfer->issued_bytes == transfer->bytes ||
	       mm_xstage_ready(&transfer->staged);
}

/*
 * Takes the chunks that have landed, issues as many as there is room for. Return: whether anything
 * landed.
 */
bool mm_xlink_run(struct mm_xlink *link);

/* True while a chunk is on the device. */
static inline bool mm_xlink_busy(const struct mm_xlink *link)
{
	return link->lane[MM_XLANE_IN].head != link->lane[MM_XLANE_IN].tail ||
	       link->lane[MM_XLANE_OUT].head != link->lane[MM_XLANE_OUT].tail;
}
