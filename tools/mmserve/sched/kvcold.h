/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcold - the entries of a cold pool: full blocks that are streamed from the swap space each step
 *
 * Concept:    entry e is slot e of the swap space. A block that is full and will not be written
 *             again is copied to the slot of a free entry (COPYING), and the copy has landed some
 *             time later (LANDED): from then on its live bit is to be set. With the next commit of
 *             the bits the entry has a version (LIVE), and once the streaming has acknowledged this
 *             version, a table may name the entry in place of the block (USABLE). It stays usable
 *             until it is freed. A free entry may also serve as a plain slot (SLOT): it is not
 *             streamed.
 * Ownership:  only mm_kvcold_init() allocates. What an entry belongs to is the scheduler's.
 * Threading:  the engine's thread only.
 * Invariants: mm_kvcold_check(). Exactly the entries from LANDED to USABLE are to be live. All
 *             entries at or above the room are FREE, SLOT, or were handed out before it shrank.
 * Limits:     versions that are passed in only grow; 0 is none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_KV_COLD (UINT32_C(1) << 31) /* a word of a block table: the rest is an entry */

enum mm_kvcold_state {
	MM_KVCOLD_FREE,
	MM_KVCOLD_SLOT,    /* a slot of a sequence that was swapped out */
	MM_KVCOLD_COPYING, /* a list under way copies its block */
	MM_KVCOLD_LANDED,  /* copied, but no version has it */
	MM_KVCOLD_LIVE,    /* its version is not acknowledged yet */
	MM_KVCOLD_USABLE,
};

struct mm_kvcold_entry {
	enum mm_kvcold_state state;
	uint32_t seq;   /* the scheduler's, from COPYING to LIVE; MM_KV_NONE: it has gone */
	uint32_t index; /* block of the sequence, from COPYING to LIVE */
	uint32_t block; /* while it is COPYING: the block that must stay as it is */
	uint64_t version;
	uint32_t at; /* index in mm_kvcold.pending, from COPYING to LIVE */
};

struct mm_kvcold {
	struct mm_kvcold_entry *entries;
	uint64_t *free;    /* one bit per entry */
	uint64_t *live;    /* one bit per entry: it is to be streamed */
	uint64_t *sent;    /* the bits as of the last commit */
	uint32_t *pending; /* entries from COPYING to LIVE, in no order */
	uint32_t n_entries, n_free, n_live, n_pending;
	uint32_t unversioned; /* entries that are LANDED */
	uint32_t room;        /* entries below this may be streamed */
	uint64_t acked;
};

/* @entries: at least 1. Return: 0; -ENOMEM. To be given back with mm_kvcold_done(). */
int mm_kvcold_init(struct mm_kvcold *c, uint32_t entries);
void mm_kvcold_done(struct mm_kvcold *c);

/* Return: the lowest free entry below the room, or MM_KV_NONE. */
uint32_t mm_kvcold_lowest(const struct mm_kvcold *c);

/* Takes the highest free entry as a slot; there is one. Return: the entry. */
uint32_t mm_kvcold_take_slot(struct mm_kvcold *c);

/* A copy of @block, block @index of sequence @seq, to the free entry @entry begins. */
void mm_kvcold_copy(struct mm_kvcold *c, uint32_t entry, uint32_t seq, uint32_t index,
		    uint32_t block);

/* The copy to an entry has succeeded: it is to be live. */
void mm_kvcold_land(struct mm_kvcold *c, uint32_t entry);

/* The version of an entry that is LIVE is acknowledged, and the caller has put it into a table. */
void mm_kvcold_use(struct mm_kvcold *c, uint32_t entry);

/* An entry that is not COPYING becomes a plain slot: it is not streamed any more. */
void mm_kvcold_park(struct mm_kvcold *c, uint32_t entry);

/* Frees an entry in any state. */
void mm_kvcold_put(struct mm_kvcold *c, uint32_t entry);

/**
 * mm_kvcold_changed() - find an entry whose live bit is not as it was last committed
 * @c:         any
 * @ret_entry: the entry, which counts as sent from now on
 * @ret_live:  its bit
 *
 * Return: false if there is none.
 */
bool mm_kvcold_changed(struct mm_kvcold *c, uint32_t *ret_entry, bool *ret_live);

/* Return: whether a commit is due, apart from bits that have changed. */
static inline bool mm_kvcold_is_due(const struct mm_kvcold *c)
{
	return c->unversioned != 0;
}

/* Is @slot an entry that a table may name? It may be any slot of the swap space. */
static inline bool mm_kvcold_is_usable(const struct mm_kvcold *c, uint32_t slot)
{
	return slot < c->n_entries && c->entries[slot].state == MM_KVCOLD_USABLE;
}

/* The bits were committed as @version. */
void mm_kvcold_committed(struct mm_kvcold *c, uint64_t version);

/* Return: NULL if all invariants hold, else the one that does not. */
const char *mm_kvcold_check(const struct mm_kvcold *c);
