/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xstage - a bounded ring of pinned buffers between stores on disk and the device
 *
 * Concept:   A chunk of a store on disk goes through one buffer: FREE -> READING (requested from
 *            the disk, ahead of need) -> READY (its bytes are there, or its failure) -> HELD (the
 *            device copies out of it) -> FREE. A transfer has a list of its buffers, in order; the
 *            link requests reads in mm_xlink_read_ahead(), most urgent first, and issues a chunk
 *            only when its buffer is READY. A transfer that is cancelled leaves READING buffers
 *            behind, which become FREE when the disk has answered.
 * Ownership: buffers are the ring's, lists are the transfers'. A store must stay while
 *            mm_xstage_reads() returns true for it.
 * Threading: one thread.
 * Limits:    all of the memory is allocated at the start, registered with the driver and with
 *            io_uring, and counted against the host budget; there is never more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "mmd/common/proto.h"
#include "mmd/xfer/device.h"
#include "mmd/xfer/reads.h"

#define MM_XSTAGE_ALIGN MM_STAGE_BLOCK_BYTES /* O_DIRECT: the strictest block size in use */

struct mm_xstore;

enum mm_xbuf_state { MM_XBUF_FREE, MM_XBUF_READING, MM_XBUF_READY, MM_XBUF_HELD };

struct mm_xbuf {
	enum mm_xbuf_state state;
	char *base;
	struct mm_xstore *store;
	uint64_t from;  /* offset in the file of base[0] */
	uint64_t skew;  /* offset in the buffer of the first wanted byte */
	uint64_t bytes; /* wanted */
	uint64_t done;  /* bytes that were read, from base[0] on */
	uint64_t at;    /* offset in the transfer of the first wanted byte */
	uint32_t again; /* how often the disk returned less than was requested */
	int result;     /* READY: 0, or why there are no bytes */
	bool wanted;    /* false: its transfer was cancelled */
	TAILQ_ENTRY(mm_xbuf) entry;
};
TAILQ_HEAD(mm_xbufs, mm_xbuf);

struct mm_xstage {
	struct mm_xdev *dev;
	uint64_t chunk_bytes;
	char *base; /* NULL: there is no ring */
	uint64_t bytes;
	bool registered; /* with the driver */
	uint32_t n;
	uint32_t reading;
	struct mm_xbuf buf[MM_XREADS_MAX];
	struct mm_xbufs free;
	struct mm_xreads reads;
};

/**
 * mm_xstage_init() - allocate and register the ring
 * @stage:       zeroed
 * @dev:         opened; must outlive the ring
 * @bytes:       at most this much memory; 0 = no ring
 * @chunk_bytes: bytes of the store that one buffer holds
 * @numa_node:   whose memory is preferred; -1: any
 *
 * Return: 0; -EINVAL less than two buffers; -ENOMEM.
 */
int mm_xstage_init(struct mm_xstage *stage, struct mm_xdev *dev, uint64_t bytes,
		   uint64_t chunk_bytes, int numa_node);
/* The device must be done with every buffer. Accepts a zeroed @stage. */
void mm_xstage_done(struct mm_xstage *stage);

/* Bytes that one buffer takes of the ring. */
uint64_t mm_xstage_buffer_bytes(uint64_t chunk_bytes);

static inline bool mm_xstage_room(const struct mm_xstage *stage)
{
	return stage->base && !TAILQ_EMPTY(&stage->free);
}

/*
 * Requests [@offset, @offset + @bytes) of @store, at most a chunk, from the disk; there must be
 * room.
 */
void mm_xstage_read(struct mm_xstage *stage, struct mm_xbufs *list, struct mm_xstore *store,
		    uint64_t offset, uint64_t bytes, uint64_t at);

/* Submits the requested reads, takes those that are done. Return: whether any was. */
bool mm_xstage_run(struct mm_xstage *stage);

/* True if the first buffer of @list is READY. */
bool mm_xstage_ready(const struct mm_xbufs *list);
/* Takes the first buffer of @list, which is READY; it is HELD until it is released. */
struct mm_xbuf *mm_xstage_take(struct mm_xbufs *list);
void mm_xstage_release(struct mm_xstage *stage, struct mm_xbuf *buf);
/* Gives up the buffers of @list: their transfer is over or cancelled. */
void mm_xstage_drop(struct mm_xstage *stage, struct mm_xbufs *list);

/* True while a read of @store is under way. */
bool mm_xstage_reads(const struct mm_xstage *stage, const struct mm_xstore *store);

/**
 * mm_xbuf_on_read() - enters the result of a read into its buffer
 * @result: bytes, or negative errno
 *
 * Return: 0 all bytes are there; -EAGAIN read on from ->done, which is aligned; else the failure:
 * -EIO where the file ends before the last wanted byte.
 */
int mm_xbuf_on_read(struct mm_xbuf *buf, int result);
