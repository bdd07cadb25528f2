/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cooler - full KV blocks of running sequences in host memory, which mmd streams in each step
 *
 * Concept:    with --cold N the lowest N slots of the swap space are entries of the scheduler's
 *             cold pool (kvcold.h). Behind the chunks of hot blocks the arena has those of the
 *             window, which no block is ever in: they are requested first, become the window once
 *             all are granted, and are given back when nothing has been served for --kv-idle, when
 *             mmd allows no entry, when it reclaims more chunks than hot blocks have, or when
 *             nothing can run; after that the next window is half as large. In a share of a fixed
 *             size they stay, and only without an entry allowed there is no window. Between steps
 *             finished copies are taken, live bits and their version committed, and blocks freed
 *             whose entries have become usable. Copies are never waited for.
 * Limit:      all entries are the floor, so it falls by hand, or since the window is owed, with a
 *             deadline. Each that falls is obeyed at once.
 * Ownership:  the engine's.
 * Threading:  the engine's thread, between steps.
 * Invariants: entries are used only below the room, which is 0 unless the window is in force and
 *             stays; the window is ended only when no table has an entry.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/client_cold.h"
#include "tools/mmserve/sched/kvman.h"

#define MM_COOL_LISTS (MM_SWAP_LOTS / 2) /* the others are left for what is preempted */

struct mm_engine;

struct mm_cool_list {
	uint32_t n; /* 0: free */
	uint32_t entries[MM_KVMAN_COOLS];
};

struct mm_cooler {
	uint32_t entries;    /* 0: no block is ever cold */
	uint32_t chunks_max; /* behind those of hot blocks */
	uint32_t classes;
	uint32_t chunks;     /* those of the window */
	uint32_t held;       /* of these, the usable ones */
	bool open;           /* the window is to be in force, or to stay in force */
	bool yields;         /* its chunks are reclaimed, or nothing can run because of it */
	bool starves;        /* that is why */
	uint64_t busy_ns;    /* when a request was last served or waited */
	uint64_t want_ns;    /* from then on its chunks are requested once more, */
	uint64_t request_ns; /* and that they be the window */
	uint32_t asked;      /* chunks of hot blocks that were last requested */
	struct mm_cool_list lists[MM_COOL_LISTS];
	struct mm_cold_state state;
};

/*
 * Computes how many chunks the window may take, before the arena is opened. Return: 0; -EINVAL: the
 * layout or the size of blocks has no entries, with the engine's sentence.
 */
int mm_cooler_reserve(struct mm_engine *e);

/*
 * Takes the window's chunks from those of a share of a fixed size. Return: 0; -E2BIG none would be
 * left, with the engine's sentence.
 */
int mm_cooler_divide(struct mm_engine *e, uint32_t *chunks);

/* Declares the entries, once the swap space is open. Return: 0; negative errno, with a sentence. */
int mm_cooler_open(struct mm_engine *e);

/*
 * Takes what has been copied, commits, frees what has become usable, opens or ends the window. To
 * be called between steps, before sequences are evicted. Return: 0; negative errno, with a
 * sentence.
 */
int mm_cooler_turn(struct mm_engine *e, uint64_t now_ns);

/* Begins to copy blocks to entries. Return: 0; -EAGAIN not now; negative errno, with a sentence. */
int mm_cooler_begin(struct mm_engine *e, const struct mm_sched_swap *swaps, uint32_t n);

/* Return: whether the list that has ended is one of entries, which has been taken then. */
bool mm_cooler_take(struct mm_engine *e, const struct mm_swap_done *done);

/* Requests so many chunks of hot blocks, and those of the window. Return: as mm_kv_want(). */
int mm_cooler_want(struct mm_engine *e, uint32_t chunks_total);

/* Return: the reclaimed chunks of hot blocks. Those of the window go first if all are reclaimed. */
uint32_t mm_cooler_owed(struct mm_engine *e);

/* Return: the address of an entry in a block table, in units of MM_KV_UNIT_BYTES. */
uint32_t mm_cooler_address(const struct mm_engine *e, uint32_t entry);

/* Counts what a step that was planned reads. */
void mm_cooler_count(struct mm_engine *e, const struct mm_sched_plan *plan);
