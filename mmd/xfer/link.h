/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xlink - the link from the host to the device, shared fairly by bytes
 *
 * Concept:   A transfer brings a range of a store into a list of pages, in chunks; or it copies
 *            between pages and a swap space, in either direction. Transfers wait in flows (one per
 *            tenant, one for core's copy jobs). Whenever the link has room, the flow that was
 *            served least issues the next chunk of its oldest transfer (start-time fair queueing: a
 *            flow that was idle starts level with the others, it saves up nothing). Few chunks are
 *            on the device at once: what is not issued can still be cancelled, so a quiesce is
 *            prompt. Chunks of a store on disk are read ahead into the ring of stage.h in the same
 *            order; a transfer whose next chunk is not there yet lets others go first.
 * Ownership: flows and transfers are the caller's and stay where they are: a transfer until its
 *            landed() was called, a flow until mm_xlink_leave().
 * Threading: one thread. Completion is by events, in order of issue.
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

#define MM_XLINK_CHUNKS 8 /* on the device at once, at most */
#define MM_XLINK_DEPTH  3 /* whole chunks' worth of bytes on the device at once */

struct mm_xtransfer {
	/* the caller's, set before mm_xlink_start() */
	struct mm_xstore *store;
	uint64_t store_offset;
	char *host;           /* instead of a store: one registration */
	bool to_host;         /* with host: the other way */
	uint64_t page_offset; /* in the first page */
	uint64_t bytes;       /* <= n_pages * page_bytes - page_offset */
	const uint32_t *page;
	bool zero_tail;     /* of the last page */
	uint64_t caused_ns; /* mm_xpace: by what was seen then */
	uint64_t landed_ns; /* likewise, when it landed */
	void (*landed)(struct mm_xtransfer *transfer, int result);
	/* private */
	struct mm_xflow *flow;
	uint64_t issued_bytes;
	uint64_t staged_bytes;  /* of a store on disk: asked for so far */
	struct mm_xbufs staged; /* not issued yet, in order */
	uint32_t in_flight;     /* chunks */
	bool queued;
	int result;
	TAILQ_ENTRY(mm_xtransfer) entry;
};

struct mm_xflow {
	uint64_t served_bytes; /* virtual: comparable between flows */
	TAILQ_HEAD(, mm_xtransfer) queue;
	TAILQ_ENTRY(mm_xflow) entry;
};

struct mm_xchunk {
	CUevent done;
	struct mm_xtransfer *transfer;
	struct mm_xbuf *buffer; /* that it is copied from; NULL = a store in memory */
	uint64_t bytes;
};

struct mm_xlink {
	struct mm_xpool *pool;
	struct mm_xstores *stores;
	uint64_t chunk_bytes;
	uint64_t in_flight_bytes;
	uint64_t virtual_bytes; /* served_bytes of the flow served last */
	uint32_t head, tail;    /* of chunk[], free-running */
	struct mm_xchunk chunk[MM_XLINK_CHUNKS];
	TAILQ_HEAD(, mm_xflow) flows;
};

int mm_xlink_init(struct mm_xlink *link, struct mm_xpool *pool, struct mm_xstores *stores,
		  uint64_t chunk_bytes);
void mm_xlink_done(struct mm_xlink *link);

void mm_xlink_join(struct mm_xlink *link, struct mm_xflow *flow);
/* No transfer of @flow may be left. */
void mm_xlink_leave(struct mm_xlink *link, struct mm_xflow *flow);

/* Queue behind the older transfers of @flow. landed() comes from mm_xlink_run(). */
void mm_xlink_start(struct mm_xlink *link, struct mm_xflow *flow, struct mm_xtransfer *transfer);

/*
 * Issue nothing more of it. landed(-ECANCELED) comes when the device is done with what was issued:
 * at once where nothing was.
 */
void mm_xlink_cancel(struct mm_xlink *link, struct mm_xtransfer *transfer);

/* ahead.c: ask the disk for the next chunks, as far as there are buffers. */
void mm_xlink_read_ahead(struct mm_xlink *link);

static inline bool mm_xtransfer_on_disk(const struct mm_xtransfer *transfer)
{
	return transfer->store && mm_xstore_on_disk(transfer->store);
}

/* May its next chunk be issued? */
static inline bool mm_xtransfer_ready(const struct mm_xtransfer *transfer)
{
	return !mm_xtransfer_on_disk(transfer) || transfer->issued_bytes == transfer->bytes ||
	       mm_xstage_ready(&transfer->staged);
}

/* Take what has landed, issue what there is room for. Return: whether anything landed. */
bool mm_xlink_run(struct mm_xlink *link);

/* Is anything on the device? */
static inline bool mm_xlink_busy(const struct mm_xlink *link)
{
	return link->head != link->tail;
}
