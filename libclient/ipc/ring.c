/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ipc/ring.h"

#include <string.h>

#include "libclient/base/base.h"

void mm_ring_init(struct mm_ring *ring, mm_msg_slot *slots, uint32_t capacity,
		  struct mm_cursor *shared_mine, const struct mm_cursor *shared_peer)
{
	mm_assert(capacity && !(capacity & (capacity - 1)));
	*ring = (struct mm_ring){
		.capacity = capacity,
		.shared_mine = shared_mine,
		.shared_peer = shared_peer,
		.slots = slots,
	};
}

/* The kept cursor comes first: a successor publishes it again, but may not go back behind it. */
static void ring_publish(struct mm_ring *ring)
{
	if (ring->kept)
		__atomic_store_n(ring->kept, ring->mine, __ATOMIC_RELEASE);
	__atomic_store_n(&ring->shared_mine->value, ring->mine, __ATOMIC_RELEASE);
}

void mm_ring_keep(struct mm_ring *ring, uint32_t *kept)
{
	ring->kept = kept;
	ring->mine = *kept;
	ring_publish(ring);
}

int mm_ring_push(struct mm_ring *ring, const struct mm_msg *msg)
{
	uint64_t *slot = ring->slots[ring->mine & (ring->capacity - 1)];
	uint64_t words[MM_MSG_WORDS];
	uint32_t used;

	/* A1 pairs with R2: slots that the consumer has passed are no longer being read. */
	used = ring->mine - __atomic_load_n(&ring->shared_peer->value, __ATOMIC_ACQUIRE);
	if (used > ring->capacity)
		return MM_E_PROTOCOL;
	if (used == ring->capacity)
		return MM_E_FULL;
	memcpy(words, msg, sizeof(words));
	for (size_t i = 0; i < MM_MSG_WORDS; i++)
		__atomic_store_n(&slot[i], words[i], __ATOMIC_RELAXED);
	/* R1 pairs with A2: the slot is complete before the cursor passes it. */
	ring->mine++;
	ring_publish(ring);
	return 0;
}

int mm_ring_peek(const struct mm_ring *ring, struct mm_msg *ret_msg)
{
	const uint64_t *slot = ring->slots[ring->mine & (ring->capacity - 1)];
	uint64_t words[MM_MSG_WORDS];
	uint32_t ready;

	/* A2 pairs with R1. The peer writes this number: it is bounded before it is used. */
	ready = __atomic_load_n(&ring->shared_peer->value, __ATOMIC_ACQUIRE) - ring->mine;
	if (ready > ring->capacity)
		return MM_E_PROTOCOL;
	if (ready == 0)
		return MM_E_EMPTY;
	for (size_t i = 0; i < MM_MSG_WORDS; i++)
		words[i] = __atomic_load_n(&slot[i], __ATOMIC_RELAXED);
	memcpy(ret_msg, words, sizeof(words));
	return 0;
}

void mm_ring_drop(struct mm_ring *ring)
{
	/* R2 pairs with A1: the reads are done before the slot may be used again. */
	ring->mine++;
	ring_publish(ring);
}

int mm_ring_pop(struct mm_ring *ring, struct mm_msg *ret_msg)
{
	int r = mm_ring_peek(ring, ret_msg);

	if (!r)
		mm_ring_drop(ring);
	return r;
}

uint32_t mm_ring_ready(const struct mm_ring *ring)
{
	/* A2 pairs with R1, as in pop. */
	uint32_t tail = __atomic_load_n(&ring->shared_peer->value, __ATOMIC_ACQUIRE);

	return MM_MIN(tail - ring->mine, ring->capacity);
}
