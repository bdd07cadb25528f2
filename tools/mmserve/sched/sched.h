/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched - decides what each step of the engine computes
 *
 * Concept:    continuous batching. A sequence waits, runs (holding a row of the batch and blocks of
 *             KV), and finishes; between steps it may be preempted: its blocks are freed, and it
 *             waits again with the tokens it has generated as part of its prompt (recompute); with
 *             a swap space, as long as there is room, its blocks are copied there first, and back
 *             when it is let in again. Each step, every decoding sequence gets one token, the rest
 *             of the token budget goes to prompts, in chunks, oldest first. The engine executes the
 *             plan and commits it; a plan whose step was void is simply executed again.
 * Pure:       same state and arguments, same plan. No syscall, clock, driver; no allocation after
 *             mm_sched_init(). Runs in the engine, in tests and in the simulator.
 * Ownership:  the scheduler owns sequences and block manager; the caller owns token ids, which the
 *             scheduler never sees.
 * Cost:       of a step, some nanoseconds for each sequence that runs; nothing for those that wait,
 *             for chunks, or for blocks that stay.
 * Invariants: mm_sched_check(). Admission and preemption follow one order, first come first served:
 *             the youngest is preempted, the oldest admitted; no sequence starves. Only for chunks
 *             that must be given back the cheapest is preempted, and never the oldest while others
 *             run.
 * Limits:     those of struct mm_sched_config, preallocated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/mmserve/sched/kvblocks.h"

/* Who waits is let in when the free blocks suffice ... (Documentation/baseline.md) */
enum mm_admit {
	MM_ADMIT_WHOLE, /* for all its tokens and one more; it gets those of its tokens at once */
	MM_ADMIT_FULL,  /* for all its tokens; it gets those that the step computes: vLLM V1 */
	MM_ADMIT_CHUNK, /* for what the step computes; it gets those: vLLM V1 of before 2026 */
	MM_ADMIT_COUNT
};

struct mm_sched_config {
	uint32_t max_seqs;           /* that wait or run at once */
	uint32_t max_batch;          /* that run at once */
	uint32_t max_batched_tokens; /* of one step; at least max_batch */
	uint32_t max_tokens;         /* of one sequence, prompt and output */
	uint32_t block_tokens;
	uint32_t kv_chunks;
	uint32_t kv_blocks_per_chunk;
	uint32_t lookahead_blocks; /* that a sequence is wanted to have ahead of need */
	uint32_t swap_tokens;      /* who has computed fewer is evicted without being swapped out */
	enum mm_admit admit;
};

struct mm_sched_swap { /* of a sequence's block, out to a slot of the swap space or in from it */
	uint32_t seq;
	uint32_t block;
	uint32_t slot;
};

enum mm_seq_state { MM_SEQ_FREE, MM_SEQ_WAITING, MM_SEQ_RUNNING };

struct mm_seq {
	enum mm_seq_state state;
	uint64_t order;    /* of arrival; lower is older */
	uint64_t user;     /* the caller's */
	uint32_t prompt;   /* tokens */
	uint32_t limit;    /* prompt and all output it may make */
	uint32_t total;    /* prompt and output so far: tokens whose ids are known */
	uint32_t computed; /* of them, whose KV is in blocks */
	uint32_t n_blocks;
	uint32_t n_slots; /* of the swap space, while waiting: the blocks of its computed tokens */
	uint32_t slot;    /* the first of them; s->slots leads to the next */
	uint32_t row;     /* of the batch, while running */
	uint32_t preemptions;
	uint32_t want; /* blocks, with those ahead of need */
	uint32_t next; /* in the queue while waiting, of the free ones; MM_KV_NONE ends it */
};

struct mm_sched_item {
	uint32_t seq;
	uint32_t first;  /* position of the first token to compute */
	uint32_t tokens; /* how many */
	bool samples;    /* the last of them yields the next token */
};

struct mm_sched_plan {
	struct mm_sched_item *items; /* max_batch */
	uint32_t n_items;
	uint32_t tokens;
	uint32_t *preempted; /* max_batch: sequences that lost their blocks to this plan */
	uint32_t n_preempted;
	/* to be done before anything else, whether the items are or not */
	struct mm_sched_swap *swaps;
	uint32_t n_swaps;
	bool swaps_in;    /* the direction of all */
	uint32_t stalled; /* sequences that must wait for a block that may still be granted */
};

struct mm_sched_move { /* copy block @from to block @to before anything else runs */
	uint32_t from;
	uint32_t to;
};

struct mm_sched {
	struct mm_sched_config config;
	struct mm_kvblocks kv;
	struct mm_seq *seqs;
	uint32_t *tables;  /* [max_batch][table_stride] block numbers, by row */
	uint32_t *running; /* [max_batch] sequences, oldest first */
	uint32_t *rows;    /* [max_batch - n_running] that are free */
	uint32_t *owner;   /* [blocks] the sequence that has a block in use */
	uint32_t *slots;   /* [n_slots] the next of the same sequence, or the next free one */
	uint32_t n_slots, free_slots, free_slot;
	struct mm_sched_plan plan;
	uint64_t next_order;
	uint64_t preemptions;
	uint64_t force_ns; /* chunks that drain are emptied at any price from then on */
	uint32_t table_stride;
	uint32_t n_running;
	uint32_t n_waiting;
	uint32_t n_prompts;    /* of the running, those with more than one token to compute */
	uint32_t queue, tail;  /* of the waiting; tail only if there is a head */
	uint32_t free_seq;     /* head of the free */
	uint64_t want_running; /* blocks, sum */
	uint64_t want_waiting; /* of those that the batch has room for; right only if known */
	bool want_known;
};

/**
 * mm_sched_init() - an idle scheduler without KV
 * @s:      any bytes; give back with mm_sched_done()
 * @config: copied
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
int mm_sched_init(struct mm_sched *s, const struct mm_sched_config *config);
void mm_sched_done(struct mm_sched *s);

/**
 * mm_sched_set_swap() - preempted sequences may be swapped out
 * @s:     before the first request
 * @slots: so many blocks have room
 *
 * Return: 0; -ENOMEM: they will be computed again.
 */
int mm_sched_set_swap(struct mm_sched *s, uint32_t slots);

/* A swap of the plan failed: @seq has lost its KV and computes it again. If it was one in, the plan's
 * items are void. */
void mm_sched_swap_failed(struct mm_sched *s, uint32_t seq, uint64_t now_ns);

/* Blocks that @tokens tokens take. */
uint32_t mm_sched_blocks(const struct mm_sched *s, uint32_t tokens);

/**
 * mm_sched_add() - a request arrives
 * @s:       any
 * @prompt:  tokens, at least 1
 * @output:  tokens, at least 1
 * @user:    kept in the sequence
 * @ret_seq: written only on success; valid until the sequence finishes or is removed
 *
 * Return: 0; MM_E_RANGE it could never run (longer than max_tokens, or than the whole arena);
 * MM_E_FULL no sequence is free: ask again later.
 */
int mm_sched_add(struct mm_sched *s, uint32_t prompt, uint32_t output, uint64_t user,
		 uint32_t *ret_seq);

/* Drops a sequence, whatever it is doing. Not between plan and commit. */
void mm_sched_remove(struct mm_sched *s, uint32_t seq, uint64_t now_ns);

/**
 * mm_sched_step() - plan the next step
 * @s:        the previous plan was committed, or never executed
 * @now_ns:   time stamp of blocks that fall free
 * @may_grow: chunks were asked for and not denied yet: a sequence that lacks a block waits for them
 *            instead of taking the youngest's
 *
 * Return: the plan, valid until the next call; no items = nothing can run now.
 */
const struct mm_sched_plan *mm_sched_step(struct mm_sched *s, uint64_t now_ns, bool may_grow);

/**
 * mm_sched_commit() - the plan's step was computed
 * @s:            of the plan
 * @now_ns:       time stamp
 * @ret_finished: at least max_batch; sequences that reached their limit and are gone
 *
 * Every item that samples has one token more. Return: how many finished.
 */
uint32_t mm_sched_commit(struct mm_sched *s, uint64_t now_ns, uint64_t *ret_finished);

/**
 * mm_sched_blocks_wanted() - what to ask mmd for, ahead of need
 * @s: any
 *
 * Return: blocks that would let everything run that the batch has room for, each sequence with
 * lookahead_blocks more than it has tokens for, as far as it will ever need them.
 */
uint32_t mm_sched_blocks_wanted(struct mm_sched *s);

/**
 * mm_sched_reclaim() - chunks are to be given back
 * @s:        any
 * @chunks:   so many in all, those included that drain already or are retired; more are taken that
 *            are cheapest to empty, and hand out nothing any more; what drains beyond is kept after
 *            all
 * @force_ns: until then there is time for sequences to end by themselves; then they are preempted.
 *            What drains already keeps the earlier time
 *
 * While chunks drain nobody new is admitted.
 */
void mm_sched_reclaim(struct mm_sched *s, uint32_t chunks, uint64_t force_ns);

/*
 * No more than @chunks, those that are retired included, are to be given back: what drains beyond
 * is kept.
 */
void mm_sched_owe_at_most(struct mm_sched *s, uint32_t chunks);

/* Chunks that are to be given back and still have blocks in use, or have not been looked at. */
static inline uint32_t mm_sched_owed(const struct mm_sched *s)
{
	return s->kv.draining_chunks - s->kv.retired_chunks;
}

/**
 * mm_sched_evict() - preempt those for whose blocks there is no other place
 * @s:      not between plan and commit
 * @now_ns: time stamp
 * @idle:   nobody can run for now: waiting for sequences to end is in vain, and the oldest may go
 *       too
 *
 * When it is time to force it: the sequence that is cheapest to compute again, and the next, until
 * what is in chunks that drain fits into the others. Each is swapped out as a whole if it has
 * computed swap_tokens, and there is room; else it is computed again. The blocks fall free here, so
 * the swaps are to be done before anything else is enqueued or released, mm_sched_retire()
 * included.
 * Return: the plan, without items, valid until the next call.
 */
const struct mm_sched_plan *mm_sched_evict(struct mm_sched *s, uint64_t now_ns, bool idle);

/**
 * mm_sched_retire() - empty the next chunk that drains
 * @s:         not between plan and commit
 * @now_ns:    time stamp
 * @ret_chunk: retired: no later plan refers to it. Once the moves, and what was enqueued before
 *             them, have been done by the device, mm_kvblocks_remove_chunk() it
 * @ret_moves: at least blocks_per_chunk; to be enqueued before anything that is planned later
 * @ret_n:     how many moves
 *
 * Blocks move to the lowest free ones; preempts nobody.
 * Return: 0; MM_E_EMPTY no chunk drains; MM_E_FULL the blocks do not fit yet: mm_sched_evict().
 */
int mm_sched_retire(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		    struct mm_sched_move *ret_moves, uint32_t *ret_n);

/**
 * mm_sched_compact() - as mm_sched_retire(), of a chunk that nobody has asked for
 * @s:         not between plan and commit
 * @now_ns:    time stamp
 * @ret_chunk: as there
 * @ret_moves: as there
 * @ret_n:     as there
 *
 * Return: 0; MM_E_EMPTY no chunk's blocks fit into the others.
 */
int mm_sched_compact(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		     struct mm_sched_move *ret_moves, uint32_t *ret_n);

/* The block table of a running sequence. */
const uint32_t *mm_sched_table(const struct mm_sched *s, uint32_t seq);

/* Return: NULL if all invariants hold, else the one that does not. Slow: for tests. */
const char *mm_sched_check(const struct mm_sched *s);
