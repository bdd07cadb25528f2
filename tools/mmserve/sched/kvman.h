/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvman - when the engine wants chunks of KV, gives them back, and gives up
 *
 * Concept:    between two steps: ask for chunks ahead of need, never waiting for them; give back
 *             what has been empty for a while; empty what is asked back. A chunk that goes back is
 *             drained, emptied by copies on the device, retired, and released when the device has
 *             done all that could touch it. Chunks that are asked back have until half of their
 *             time to empty by themselves or by copies; then, or at once while it is somebody
 *             else's turn, sequences are preempted, to the swap space where there is one. The
 *             scheduler has the blocks, this has the policy; the caller has the memory, by a table
 *             of functions.
 * Pure:       same state, arguments and answers, same calls. No clock, driver, syscall; no
 *             allocation after mm_kvman_init(). Runs in the engine, in tests and in the simulator.
 * Ownership:  borrows the scheduler, which must outlive it; owns its lists.
 * Threading:  the engine's thread only. The functions of the table must not call back.
 * Limits:     times that are passed in never go back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/mmserve/sched/sched.h"

struct mm_kvman_load { /* what the memory's owner is told */
	uint32_t chunks_used;
	uint32_t waiting;
	uint32_t running;
};

struct mm_kvman_ops { /* negative errno other than named here: the run is over */
	/* So many chunks in all. Return: 0 they are there; -EAGAIN mm_kvman_granted() or
	 * mm_kvman_denied() will follow; -ENOSPC, -EDQUOT no. */
	int (*want)(void *context, uint32_t chunks_total);
	/* One bit for each chunk that may be used. */
	void (*usable)(void *context, uint64_t *ret_bitmap, size_t words);
	/* How many of them are asked back and not released yet, now. */
	uint32_t (*owed)(void *context);
	int (*release)(void *context, uint32_t chunk);
	/* Copy blocks, in order, behind everything that was enqueued before; @n is at least 1. */
	int (*move)(void *context, const struct mm_sched_move *moves, uint32_t n);
	/* Remember this point, behind everything that was enqueued before. */
	int (*mark)(void *context);
	/* Return: 0 everything up to the last mark is done; -EAGAIN not yet. */
	int (*marked)(void *context);
	void (*load)(void *context, const struct mm_kvman_load *load);
};

struct mm_kvman_config {
	uint32_t share_chunks; /* of a static split */
	/* of those that it has, stay although they are empty, until they are asked back */
	uint32_t keep_chunks;
	bool fixed;          /* KV never grows beyond the share, and is never given back */
	uint64_t idle_ns;    /* chunks that stay empty for so long are given back */
	uint64_t timeout_ns; /* nothing can run for so long: the oldest is refused */
	uint64_t answer_ns;  /* a wish without an answer for so long counts as denied */
	uint64_t retry_ns;   /* between two wishes for the same */
};

/* What engines take for answer_ns and retry_ns. */
#define MM_KVMAN_ANSWER_NS (2 * MM_NS_PER_S)
#define MM_KVMAN_RETRY_NS  (100 * MM_NS_PER_MS)

/*
 * Of the share, kept by engines that are timed: who gives all back waits for a grant at the next
 * request.
 */
#define MM_KVMAN_KEEP_PERMILLE      125u
#define MM_KVMAN_KEEP_PERMILLE_TEXT "125"

/*
 * For mm_sched_config.swap_tokens. A step reads all weights, whatever it computes: so few tokens of
 * a prompt take hardly more than that, on all devices that compute at least some hundred times for
 * each byte that they read; two copies would stop the engine twice.
 */
#define MM_KVMAN_SWAP_TOKENS 128u

/* Blocks ahead of need, per sequence: for mm_sched_config.lookahead_blocks. */
#define MM_KVMAN_LOOKAHEAD_BLOCKS 2u

struct mm_kvman {
	struct mm_kvman_config config;
	const struct mm_kvman_ops *ops;
	void *context;
	struct mm_sched *sched;
	struct mm_sched_move *moves; /* [blocks_per_chunk] */
	uint64_t *usable;            /* bitmap of chunks */
	uint32_t *retired;           /* [n_chunks] whose release waits for the device */
	uint32_t n_retired;
	uint32_t wanted; /* chunks, when last looked at */
	uint32_t chunks_asked;
	bool may_grow;             /* asked, and not denied yet */
	bool off_turn;             /* somebody else computes */
	uint64_t answer_due_ns;    /* no answer until then: denied */
	uint64_t retry_at_ns;      /* earliest time to ask for the same again */
	uint64_t stuck_since_ns;   /* 0: something could run */
	uint64_t surplus_since_ns; /* 0: all chunks are wanted */
	uint64_t step_ns;          /* of the last step */
	uint64_t chunks_released;
	uint64_t blocks_moved;
	uint32_t chunks_max; /* that were usable at once */
};

struct mm_kvman_arena {       /* what the size of an arena follows from */
	uint64_t chunk_bytes; /* of a chunk, in all ranges */
	uint64_t page_bytes;
	uint64_t pages_max;   /* that an arena can have */
	uint64_t share_bytes; /* of a static split; 0: as much as the batch can ever use */
	bool fixed;
};

/**
 * mm_kvman_size_arena() - how many chunks an arena has
 * @arena:  see there
 * @config: all but kv_chunks is set; kv_chunks is written: what the batch can ever use, as far as
 *          there are pages; of a fixed arena, the share
 *
 * Return: the share, in chunks.
 */
uint32_t mm_kvman_size_arena(const struct mm_kvman_arena *arena, struct mm_sched_config *config);

/**
 * mm_kvman_init() - nothing usable, nothing asked for
 * @k:       any bytes; give back with mm_kvman_done()
 * @config:  copied
 * @sched:   initialised, borrowed
 * @ops:     borrowed
 * @context: passed to them
 *
 * Return: 0; -ENOMEM.
 */
int mm_kvman_init(struct mm_kvman *k, const struct mm_kvman_config *config, struct mm_sched *sched,
		  const struct mm_kvman_ops *ops, void *context);
void mm_kvman_done(struct mm_kvman *k);

/*
 * Chunks came: all that are usable now and were not before are taken. Also once before the first
 * step.
 */
void mm_kvman_granted(struct mm_kvman *k, uint64_t now_ns);

/* The wish is denied, for now. */
void mm_kvman_denied(struct mm_kvman *k, uint64_t now_ns);

/**
 * mm_kvman_reclaim() - chunks are asked back, so many as are owed
 * @k:           any
 * @deadline_ns: they are to be released by then
 * @now_ns:      time
 *
 * Asked again for the same, it does nothing more.
 */
void mm_kvman_reclaim(struct mm_kvman *k, uint64_t deadline_ns, uint64_t now_ns);

/* Where tenants compute in turn: whether this one may now. Until the first time it may. */
void mm_kvman_turn(struct mm_kvman *k, bool may_run);

/**
 * mm_kvman_evict() - between two steps, before mm_kvman_manage(): who must leave for chunks that
 * are asked back
 * @k:      not between plan and commit
 * @now_ns: time; of mm_kvman_manage() too
 *
 * Return: a plan whose swaps, if it has any, are to be done before the next call.
 */
const struct mm_sched_plan *mm_kvman_evict(struct mm_kvman *k, uint64_t now_ns);

/**
 * mm_kvman_manage() - between two steps: tell the load, ask, release, trim, retire
 * @k:      not between plan and commit
 * @now_ns: time
 *
 * Return: 0; negative errno of a function of the table.
 */
int mm_kvman_manage(struct mm_kvman *k, uint64_t now_ns);

/* mm_sched_step(), told whether memory may still come. */
const struct mm_sched_plan *mm_kvman_plan(struct mm_kvman *k, uint64_t now_ns);

/* A plan had items. */
void mm_kvman_runs(struct mm_kvman *k);

/* A step was computed, and took so long. */
void mm_kvman_ran(struct mm_kvman *k, uint64_t step_ns);

/**
 * mm_kvman_yields() - is the turn of no use?
 * @k: after a plan with nothing in it
 *
 * There is work, it cannot run for lack of memory, and no answer is due that would change it: while
 * it keeps its turn nobody computes, and those that would end, and leave their memory, wait.
 */
bool mm_kvman_yields(const struct mm_kvman *k);

/**
 * mm_kvman_stuck() - a plan had no items
 * @k:      any
 * @now_ns: time
 *
 * Return: the sequence to refuse, because memory was denied for too long: the oldest, as it blocks
 * the others; MM_KV_NONE. The caller calls mm_sched_remove().
 */
uint32_t mm_kvman_stuck(struct mm_kvman *k, uint64_t now_ns);

/**
 * mm_kvman_next_ns() - when to look again
 * @k: after mm_kvman_manage(), and mm_kvman_stuck() if nothing runs; a plan that preempted somebody
 *     is reason enough to manage again at once
 *
 * Return: the time at which, if nothing happens, mm_kvman_manage(), a plan or mm_kvman_stuck() may
 * do something that it would not do before; UINT64_MAX never. The end of moves (n_retired) is an
 * event.
 */
uint64_t mm_kvman_next_ns(const struct mm_kvman *k);
