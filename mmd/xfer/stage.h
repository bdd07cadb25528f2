/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xstage - a bounded ring of pinned buffers between stores on disk and the device
 *
 * Concept:   A chunk of a store on disk goes through one buffer: FREE -> READING (asked of the
 *            disk, ahead of need) -> READY (its bytes are there, or its failure) -> HELD (the
 *            device copies out of it) -> FREE. Buffers that a transfer waits for hang in its list,
 *            in order; the link asks for them by mm_xlink_read_ahead(), most urgent first, and
 *            issues a chunk only when its buffer is READY. A transfer that is given up leaves
 *            READING buffers behind, which become FREE when the disk has answered.
 * Ownership: buffers are the ring's, lists are the transfers'. A store must stay while
 *            mm_xstage_reads() it.
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
	uint64_t from;  /* of base[0] in the file */
	uint64_t skew;  /* of the first wanted byte in the buffer */
	uint64_t bytes; /* wanted */
	uint64_t done;  /* read, from base[0] on */
	uint64_t at;    /* of the first wanted byte in its transfer */
	uint32_t again; /* how often the disk gave less than was asked for */
	int result;     /* READY: 0, or why there are no bytes */
	bool wanted;    /* false: its transfer was given up */
	TAILQ_ENTRY(mm_xbuf) entry;
};
TAILQ_HEAD(mm_xbufs, mm_xbuf);

struct mm_xstage {
	struct mm_xdev *dev;
	uint64_t chunk_bytes;
	char *base; /* NULL = there is no ring */
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
 * @chunk_bytes: that one buffer holds
 * @numa_node:   where the memory should come from; -1 = anywhere
 *
 * Return: 0; -EINVAL less than two buffers; -ENOMEM.
 */
int mm_xstage_init(struct mm_xstage *stage, struct mm_xdev *dev, uint64_t bytes,
		   uint64_t chunk_bytes, int numa_node);
/* The device must be done with every buffer. Accepts a zeroed one. */
void mm_xstage_done(struct mm_xstage *stage);

/* Bytes that one buffer takes of the ring. */
uint64_t mm_xstage_buffer_bytes(uint64_t chunk_bytes);

static inline bool mm_xstage_room(const struct mm_xstage *stage)
{
	return stage->base && !TAILQ_EMPTY(&stage->free);
}

/* Asks the disk for [@offset, @offset + @bytes) of @store, at most a chunk; there must be room. */
void mm_xstage_read(struct mm_xstage *stage, struct mm_xbufs *list, struct mm_xstore *store,
		    uint64_t offset, uint64_t bytes, uint64_t at);

/* Sends what was asked for, takes what has come. Return: whether anything has. */
bool mm_xstage_run(struct mm_xstage *stage);

/* Is the first buffer of @list READY? */
bool mm_xstage_ready(const struct mm_xbufs *list);
/* The first of @list, READY: out of the list, HELD until it is released. */
struct mm_xbuf *mm_xstage_take(struct mm_xbufs *list);
void mm_xstage_release(struct mm_xstage *stage, struct mm_xbuf *buf);
/* The transfer is over or given up. */
void mm_xstage_drop(struct mm_xstage *stage, struct mm_xbufs *list);

/* Is a read of @store under way? */
bool mm_xstage_reads(const struct mm_xstage *stage, const struct mm_xstore *store);

/**
 * mm_xbuf_took() - what a finished read means for its buffer
 * @result: bytes, or negative errno
 *
 * Return: 0 all bytes are there; -EAGAIN read on from ->done, which is aligned; else the failure:
 * -EIO where the disk holds less than was promised.
 */
int mm_xbuf_took(struct mm_xbuf *buf, int result);
