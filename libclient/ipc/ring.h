/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ring - one end of a single-producer single-consumer queue of struct mm_msg
 *
 * Concept:   Slots and the producer's cursor are in memory that only the producer may write; the
 *            consumer's cursor is in memory that only the consumer may write (abi.h). Each end
 *            keeps its own cursor privately and only publishes it, so overwriting the published one
 *            does not mislead its owner; the peer's cursor is bounded before it is used.
 * Kept:      an end that outlives its process has its own cursor in memory that does, too
 *            (mm_ring_keep()). It is stored after the slot and before it is published, so that a
 *            successor which publishes it again repeats nothing and loses nothing.
 * Ownership: the caller owns the memory; a ring is a view, and needs no release.
 * Threading: one thread at a time per end. The two ends are in different threads or processes:
 *              A1 producer acquires head  <- R2 consumer releases head: slots are free again
 *              A2 consumer acquires tail  <- R1 producer releases tail: slots are complete
 * Model:     tests/model/ring.pml has both ends with their doorbell.
 * Limits:    capacity is a power of two; cursors are free-running and wrap at 2^32.
 */
#pragma once

#include <stdint.h>

#include "mm/abi.h"

struct mm_ring {
	uint32_t mine; /* this end's cursor; shared_mine is its published copy */
	uint32_t capacity;
	struct mm_cursor *shared_mine;
	const struct mm_cursor *shared_peer;
	mm_msg_slot *slots;
	uint32_t
		*kept; /* where this end's cursor is stored before it is published; NULL: nowhere */
};

/**
 * mm_ring_init() - make an end of a ring in fresh (zeroed) memory
 * @ring:        written
 * @slots:       @capacity slots; the consumer may have them mapped read-only
 * @capacity:    power of two
 * @shared_mine: this end's cursor: the tail of a producer, the head of a consumer
 * @shared_peer: the peer's cursor
 */
void mm_ring_init(struct mm_ring *ring, mm_msg_slot *slots, uint32_t capacity,
		  struct mm_cursor *shared_mine, const struct mm_cursor *shared_peer);

/**
 * mm_ring_keep() - go on from the cursor of a predecessor, and store it there from now on
 * @ring: was made by mm_ring_init() over memory that is not fresh any more, or is
 * @kept: the cursor; outlives the ring. 0 at first
 *
 * Publishes the cursor.
 */
void mm_ring_keep(struct mm_ring *ring, uint32_t *kept);

/**
 * mm_ring_push() - producer: append a message; ring the doorbell afterwards
 * @ring: producer's end
 * @msg:  copied
 *
 * Return: 0; MM_E_FULL; MM_E_PROTOCOL the consumer's cursor is impossible.
 */
int mm_ring_push(struct mm_ring *ring, const struct mm_msg *msg);

/**
 * mm_ring_pop() - consumer: take the oldest message
 * @ring:    consumer's end
 * @ret_msg: a private copy, written only on success; nothing in it has been checked
 *
 * Return: 0; MM_E_EMPTY; MM_E_PROTOCOL the producer's cursor is impossible.
 */
int mm_ring_pop(struct mm_ring *ring, struct mm_msg *ret_msg);

/**
 * mm_ring_peek() - consumer: read the oldest message, which stays
 * @ring:    consumer's end
 * @ret_msg: as mm_ring_pop(); the producer may write another one there meanwhile
 *
 * Return: as mm_ring_pop().
 */
int mm_ring_peek(const struct mm_ring *ring, struct mm_msg *ret_msg);

/* Consumer: drops the message that mm_ring_peek() has read. */
void mm_ring_drop(struct mm_ring *ring);

/**
 * mm_ring_ready() - consumer: count the messages that are waiting
 * @ring: consumer's end
 *
 * Return: at most the capacity, whatever cursor the producer published (if it is impossible, the
 * next pop returns MM_E_PROTOCOL).
 */
uint32_t mm_ring_ready(const struct mm_ring *ring);
