/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvman - decides when the engine requests chunks of KV, releases them, and gives up
 *
 * Concept:    between two steps it requests chunks ahead of need, without waiting for them,
 *             releases chunks that have been empty for a while, and empties those that are
 *             reclaimed. A chunk that is to be released is drained, emptied by copies on the
 *             device, retired, and released when the device has done all work that could touch it.
 *             Reclaimed chunks have half of the time until the deadline to become empty by
 *             sequences that end or by copies; after that, or at once while another tenant has the
 *             turn, sequences are preempted, to the swap space if there is one. The scheduler
 *             keeps the blocks, this file has the policy, and the caller provides the memory
 *             through a table of functions.
 *             With a cold pool it has blocks copied to entries ahead of need, when fewer blocks are
 *             free than the running sequences want next and the oldest waiting one needs. Blocks
 *             that are in entries are not requested of mmd; those that could be are, since memory
 *             that is to be had is better than the link's time.
 * Pure:       the same state, arguments and answers lead to the same calls. No clock, driver or
 *             syscall; no allocation after mm_kvman_init(). Runs in the engine, in tests and in the
 *             simulator.
 * Ownership:  borrows the scheduler, which must outlive it; owns its lists.
 * Threading:  the engine's thread only. The functions of the table must not call back.
 * Limits:     times that are passed in never decrease.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/mmserve/sched/sched.h"

struct mm_kvman_load { /* the engine's load, which is reported to the memory's owner */
	uint32_t chunks_used;
	uint32_t chunks_queued; /* part of the demand, for sequences that wait */
	uint32_t waiting;
	uint32_t running;
};

struct mm_kvman_ops { /* a negative errno that is not named here ends the run */
	/* Requests @chunks_total chunks in all. Return: 0 they are there; -EAGAIN
	 * mm_kvman_granted() or mm_kvman_denied() will follow; -ENOSPC, -EDQUOT denied. */
	int (*want)(void *context, uint32_t chunks_total);
	/* Sets one bit for each chunk that may be used. */
	void (*usable)(void *context, uint64_t *ret_bitmap, size_t words);
	/* Return: how many chunks are reclaimed and not released yet. */
	uint32_t (*owed)(void *context);
	int (*release)(void *context, uint32_t chunk);
	/* Copies blocks, in order, behind all work enqueued before; @n is at least 1. */
	int (*move)(void *context, const struct mm_sched_move *moves, uint32_t n);
	/* Sets a mark behind all work enqueued before. */
	int (*mark)(void *context);
	/* Return: 0 all work up to the last mark is done; -EAGAIN not yet. */
	int (*marked)(void *context);
	void (*load)(void *context, const struct mm_kvman_load *load);
	/* Begins to copy blocks to entries of the cold pool; @n is at least 1. NULL: there is none.
	 * Return: 0 mm_sched_cooled() will follow for each; -EAGAIN none, to be tried again. */
	int (*cool)(void *context, const struct mm_sched_swap *swaps, uint32_t n);
};

struct mm_kvman_config {
	uint32_t share_chunks; /* chunks of a static split */
	/* chunks that stay although they are empty, until they are reclaimed */
	uint32_t keep_chunks;
	bool fixed;          /* KV never grows beyond the share, and is never released */
	uint64_t idle_ns;    /* chunks that stay empty for this long are released */
	uint64_t timeout_ns; /* when nothing could run for this long, the oldest is refused */
	uint64_t answer_ns;  /* a demand that is not answered for this long counts as denied */
	uint64_t retry_ns;   /* time between two demands for the same number of chunks */
};

/* The values of answer_ns and retry_ns that engines use. */
#define MM_KVMAN_ANSWER_NS (2 * MM_NS_PER_S)
#define MM_KVMAN_RETRY_NS  (100 * MM_NS_PER_MS)

/* The most blocks that begin to be copied to entries between two steps. */
#define MM_KVMAN_COOLS 32u

/*
 * The default of mm_sched_config.swap_tokens. A step reads all weights, however many tokens it
 * computes. On devices that can do some hundred operations for each byte that they read, to compute
 * this few tokens again makes a step hardly longer, whereas a copy out and a copy in stop the
 * engine twice.
 */
#define MM_KVMAN_SWAP_TOKENS 128u

/* The value of mm_sched_config.lookahead_blocks that engines use. */
#define MM_KVMAN_LOOKAHEAD_BLOCKS 2u

struct mm_kvman {
	struct mm_kvman_config config;
	const struct mm_kvman_ops *ops;
	void *context;
	struct mm_sched *sched;
	struct mm_sched_move *moves; /* [blocks_per_chunk] */
	uint64_t *usable;            /* bitmap of chunks */
	uint32_t *retired;           /* [n_chunks] released once the device is done with them */
	uint32_t n_retired;
	uint32_t wanted;           /* chunks, as of the last mm_kvman_manage() */
	uint32_t chunks_asked;     /* the last demand; 0 after a chunk was released */
	bool may_grow;             /* the demand is not denied yet */
	bool off_turn;             /* another tenant has the turn */
	bool cools_more;           /* the last call began MM_KVMAN_COOLS copies, and wants more */
	uint64_t answer_due_ns;    /* without an answer until then, the demand counts as denied */
	uint64_t retry_at_ns;      /* earliest time to repeat the same demand */
	uint64_t stuck_since_ns;   /* since when nothing could run; 0: something could */
	uint64_t surplus_since_ns; /* since when not all chunks are wanted; 0: all are */
	uint64_t step_ns;          /* duration of the last step */
	uint64_t chunks_released;
	uint64_t blocks_moved;
	uint64_t blocks_cooled; /* that began to be copied to entries */
	uint32_t chunks_max;    /* most chunks that were usable at once */
};

struct mm_kvman_arena {       /* the sizes from which that of an arena is computed */
	uint64_t chunk_bytes; /* a chunk in all ranges together */
	uint64_t page_bytes;
	uint64_t pages_max;   /* most pages that an arena can have */
	uint64_t share_bytes; /* of a static split; 0: as much as the batch can ever use */
	bool fixed;           /* as in mm_kvman_config */
};

/**
 * mm_kvman_size_arena() - compute how many chunks an arena has
 * @arena:  its sizes
 * @config: all but kv_chunks is set; kv_chunks is written: the chunks that the batch can ever use,
 *          bounded by the pages; in a fixed arena, the share
 *
 * Return: the share, in chunks.
 */
uint32_t mm_kvman_size_arena(const struct mm_kvman_arena *arena, struct mm_sched_config *config);

/**
 * mm_kvman_init() - start without usable chunks and without a demand
 * @k:       any bytes; give back with mm_kvman_done()
 * @config:  copied
 * @sched:   initialised, borrowed
 * @ops:     borrowed
 * @context: passed to the functions of @ops
 *
 * Return: 0; -ENOMEM.
 */
int mm_kvman_init(struct mm_kvman *k, const struct mm_kvman_config *config, struct mm_sched *sched,
		  const struct mm_kvman_ops *ops, void *context);
void mm_kvman_done(struct mm_kvman *k);

/*
 * Chunks were granted: adds all that are usable now and were not before. To be called once before
 * the first step, too.
 */
void mm_kvman_granted(struct mm_kvman *k, uint64_t now_ns);

/* The demand was denied. It may be repeated after retry_ns. */
void mm_kvman_denied(struct mm_kvman *k, uint64_t now_ns);

/**
 * mm_kvman_reclaim() - chunks are reclaimed: as many as the function owed returns
 * @k:           any
 * @deadline_ns: time by which they are to be released
 * @now_ns:      time
 *
 * A repeated call for the same number of chunks has no further effect.
 */
void mm_kvman_reclaim(struct mm_kvman *k, uint64_t deadline_ns, uint64_t now_ns);

/*
 * Notes whether this tenant has the turn, where tenants share the device in time. Until the first
 * call it has.
 */
void mm_kvman_turn(struct mm_kvman *k, bool may_run);

/**
 * mm_kvman_evict() - preempt the sequences that must make room for chunks that are reclaimed
 * @k:      not between plan and commit
 * @now_ns: time; the same as for the mm_kvman_manage() that follows
 *
 * To be called between two steps, before mm_kvman_manage().
 * Return: a plan whose swaps, if it has any, are to be done before the next call.
 */
const struct mm_sched_plan *mm_kvman_evict(struct mm_kvman *k, uint64_t now_ns);

/**
 * mm_kvman_manage() - between two steps: report the load; request, release, trim, retire chunks
 * @k:      not between plan and commit
 * @now_ns: time
 *
 * Return: 0; the negative errno of a function of the table.
 */
int mm_kvman_manage(struct mm_kvman *k, uint64_t now_ns);

/* Plans a step by mm_sched_step(), which waits for blocks while a demand may still be granted. */
const struct mm_sched_plan *mm_kvman_plan(struct mm_kvman *k, uint64_t now_ns);

/* Notes that a plan had items. */
void mm_kvman_runs(struct mm_kvman *k);

/* Notes that a step was computed and took @step_ns. */
void mm_kvman_ran(struct mm_kvman *k, uint64_t step_ns);

/**
 * mm_kvman_yields() - should the tenant give its turn up?
 * @k: after a plan without items
 *
 * Return: true if there is work, it cannot run for lack of memory, and no answer to a demand is due
 * that could change this. If the tenant kept its turn then, no tenant would compute, and those
 * whose sequences would end and leave memory would wait.
 */
bool mm_kvman_yields(const struct mm_kvman *k);

/**
 * mm_kvman_stuck() - note that a plan had no items, and decide whether to refuse a sequence
 * @k:      any
 * @now_ns: time
 *
 * Return: the sequence to refuse because nothing could run for timeout_ns: the oldest, which blocks
 * the others; else MM_KV_NONE. The caller passes it to mm_sched_remove().
 */
uint32_t mm_kvman_stuck(struct mm_kvman *k, uint64_t now_ns);

/**
 * mm_kvman_next_ns() - compute when the functions above are to be called again
 * @k: after mm_kvman_manage(), and after mm_kvman_stuck() if nothing runs; after a plan that
 *     preempted a sequence, mm_kvman_manage() is to be called at once
 *
 * Return: the time from which, without any event, mm_kvman_manage(), a plan or mm_kvman_stuck() may
 * do something that it would not do before; UINT64_MAX: never. The end of moves (n_retired) is an
 * event.
 */
uint64_t mm_kvman_next_ns(const struct mm_kvman *k);
