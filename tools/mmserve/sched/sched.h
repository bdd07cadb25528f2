/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched - decides what each step of the engine computes
 *
 * Concept:    continuous batching. A sequence waits, runs (with a row of the batch and blocks of
 *             KV), and finishes. Between steps it may be preempted: its blocks are freed, and it
 *             waits again, with the tokens it has generated as part of its prompt (recompute). If
 *             there is room in a swap space, its blocks are copied there first, and back when it is
 *             admitted again. In each step every decoding sequence gets one token, and the rest of
 *             the token budget goes to prompts, in pieces, oldest first. The engine executes the
 *             plan and commits it; if the step was void, it executes the same plan again.
 * Pure:       the same state and arguments lead to the same plan. No syscall, clock or driver; no
 *             allocation after mm_sched_init(). Runs in the engine, in tests and in the simulator.
 * Ownership:  the scheduler owns the sequences and the block manager; the caller owns the token
 *             ids, which the scheduler never gets.
 * Threading:  none; the caller's.
 * Cost:       a step takes some nanoseconds for each running sequence, and nothing for waiting
 *             sequences, for chunks, or for blocks that stay where they are.
 *             With slice_tokens and a swap space, a sequence that waits and does not fit takes the
 *             place of those that have had so many tokens since they were admitted: these are
 *             swapped out and go to the end of the queue.
 * Cold:       with mm_sched_set_cold(), full blocks may be copied to entries of a cold pool
 *             (kvcold.h) while their sequence runs, and are freed once the entry is usable. A word
 *             of a block table is then a block, or MM_KV_COLD | entry. The block that a sequence
 *             writes next is never cold. A sequence that is preempted keeps its usable entries, and
 *             needs no copy of them, neither then nor when it is admitted again. Moves, drains and
 *             retirement of chunks concern blocks alone.
 * Invariants: mm_sched_check(). Admission and preemption follow one order, first come first served:
 *             the youngest is preempted, the oldest admitted; no sequence starves, since only a
 *             slice that it has had makes one younger. Only for reclaimed chunks the cheapest
 *             sequence is preempted, and never the oldest while others run.
 * Limits:     those of struct mm_sched_config, preallocated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/mmserve/sched/kvblocks.h"
#include "tools/mmserve/sched/kvcold.h"

/* How many free blocks a waiting sequence needs to be admitted (Documentation/baseline.md). */
enum mm_admit {
	MM_ADMIT_WHOLE, /* those of all its tokens and one more; gets those of its tokens at once */
	MM_ADMIT_FULL,  /* those of all its tokens; gets those that the step computes: vLLM V1 */
	MM_ADMIT_CHUNK, /* those that the step computes, which it gets: vLLM V1 before 2026 */
	MM_ADMIT_COUNT
};

struct mm_sched_config {
	uint32_t max_seqs;           /* sequences that wait or run at once */
	uint32_t max_batch;          /* sequences that run at once */
	uint32_t max_batched_tokens; /* tokens of one step; at least max_batch */
	uint32_t max_tokens;         /* tokens of one sequence, prompt and output */
	uint32_t block_tokens;
	uint32_t kv_chunks;
	uint32_t kv_blocks_per_chunk;
	uint32_t lookahead_blocks; /* blocks to request for each sequence ahead of need */
	uint32_t swap_tokens;      /* a sequence with fewer computed tokens is evicted unswapped */
	uint32_t slice_tokens; /* output after which a sequence makes room; 0: at its end only */
	enum mm_admit admit;
};

struct mm_sched_swap { /* the copy of a block to a slot of the swap space, or back */
	uint32_t seq;
	uint32_t block;
	uint32_t slot;
};

enum mm_seq_state { MM_SEQ_FREE, MM_SEQ_WAITING, MM_SEQ_RUNNING };

struct mm_seq {
	enum mm_seq_state state;
	uint64_t order;     /* order of arrival, or of its last slice; lower is older */
	uint64_t user;      /* value of the caller's */
	uint32_t prompt;    /* tokens of the prompt */
	uint32_t limit;     /* tokens of the prompt and of the longest allowed output */
	uint32_t total;     /* prompt and output so far: tokens whose ids are known */
	uint32_t computed;  /* how many of them have KV, in blocks or in slots */
	uint32_t n_blocks;  /* words of its table: blocks, and entries in place of them */
	uint32_t n_cold;    /* usable entries: of its table, or while it waits, of its slots */
	uint32_t n_backed;  /* its blocks whose entries are copied, but not usable yet */
	uint32_t n_copying; /* its blocks that are being copied to entries */
	uint32_t n_slots;   /* while waiting: slots of the swap space with its computed tokens */
	uint32_t slot;      /* the first of these slots; mm_sched.slots has the next */
	uint32_t row;       /* row of the batch, while running */
	uint32_t preemptions;
	uint32_t resumed; /* total when it was admitted */
	uint32_t want;    /* blocks, those ahead of need included */
	uint32_t next;    /* next in the queue, or next free sequence; MM_KV_NONE: none */
};

/* Return: whether a sequence has more than one token to compute. */
static inline bool mm_seq_is_prompt(const struct mm_seq *seq)
{
	return seq->total - seq->computed > 1;
}

struct mm_sched_item {
	uint32_t seq;
	uint32_t first;  /* position of the first token to compute */
	uint32_t tokens; /* how many to compute */
	bool samples;    /* the last of them yields the next token */
};

struct mm_sched_plan {
	struct mm_sched_item *items; /* [max_batch] */
	uint32_t n_items;
	uint32_t tokens;
	uint32_t *preempted; /* [max_batch] sequences that lost their blocks to this plan */
	uint32_t n_preempted;
	/* To be done before anything else, even if the items are not executed. */
	struct mm_sched_swap *swaps;
	uint32_t n_swaps;
	bool swaps_in;    /* all swaps are in, else all are out */
	uint32_t stalled; /* sequences that wait for a block that may still be granted */
};

struct mm_sched_move { /* the copy of a block, to be done before anything else runs */
	uint32_t from;
	uint32_t to;
};

struct mm_sched {
	struct mm_sched_config config;
	struct mm_kvblocks kv;
	struct mm_seq *seqs;
	uint32_t *tables;  /* [max_batch][table_stride] block numbers, by row */
	uint32_t *backing; /* [max_batch][table_stride] entries or MM_KV_NONE; NULL: no cold pool */
	uint32_t *running; /* [max_batch] sequences, oldest first */
	uint32_t *rows;    /* [max_batch - n_running] free rows */
	uint32_t *owner;   /* [blocks] the sequence that a block in use belongs to */
	uint32_t *slots;   /* [n_slots] the next slot of the same sequence, or the next free one */
	uint32_t n_slots, free_slots, free_slot; /* free_slots: free entries of cold included */
	struct mm_kvcold cold;                   /* n_entries 0: none */
	uint32_t n_orphans; /* blocks whose sequence has gone while they were being copied */
	uint32_t *copying;  /* [kv_chunks] blocks that are being copied to entries */
	bool cold_shrunk;   /* a running sequence may have a usable entry beyond the room */
	struct mm_sched_plan plan;
	uint64_t next_order;
	uint64_t preemptions; /* those at the end of a slice included */
	uint64_t slices;      /* that ended because another sequence did not fit */
	uint64_t force_ns;    /* time from which sequences are preempted for draining chunks */
	uint32_t table_stride;
	uint32_t n_running;
	uint32_t n_waiting;
	uint32_t n_prompts;    /* running sequences with more than one token to compute */
	uint32_t queue, tail;  /* first and last waiting sequence; tail is set only if queue is */
	uint32_t free_seq;     /* first free sequence */
	uint64_t want_running; /* blocks that the running sequences want */
	uint64_t want_waiting; /* same for the waiting ones that fit the batch, if want_known */
	bool want_known;
};

/**
 * mm_sched_init() - set up an idle scheduler without KV
 * @s:      any bytes; give back with mm_sched_done()
 * @config: copied
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
int mm_sched_init(struct mm_sched *s, const struct mm_sched_config *config);
void mm_sched_done(struct mm_sched *s);

/**
 * mm_sched_set_swap() - allow preempted sequences to be swapped out
 * @s:     before the first request
 * @slots: blocks that the swap space has room for
 *
 * Return: 0; -ENOMEM: preempted sequences will be computed again.
 */
int mm_sched_set_swap(struct mm_sched *s, uint32_t slots);

/**
 * mm_sched_set_cold() - let the lowest slots of the swap space be entries of a cold pool
 * @s:       has a swap space; before the first request
 * @entries: at most the slots; none may be used before mm_sched_cold_room()
 *
 * Return: 0; -ENOMEM.
 */
int mm_sched_set_cold(struct mm_sched *s, uint32_t entries);

/*
 * Only entries below @room may be streamed from now on. Sequences that have higher ones in their
 * tables are preempted by the next mm_sched_evict().
 */
void mm_sched_cold_room(struct mm_sched *s, uint32_t room);

/**
 * mm_sched_cool() - choose blocks to be copied to entries
 * @s:         not between plan and commit
 * @want:      at most so many
 * @ret_swaps: gets them; the slot is the entry
 *
 * Only full blocks whose tokens are all computed, those of the sequence first that has most of
 * them, and of a sequence the lowest first. Blocks stay where they are until mm_sched_cooled().
 * Return: how many.
 */
uint32_t mm_sched_cool(struct mm_sched *s, uint32_t want, struct mm_sched_swap *ret_swaps);

/* The copy to @entry is done, or failed. To be called once for each that mm_sched_cool() chose. */
void mm_sched_cooled(struct mm_sched *s, uint32_t entry, bool failed, uint64_t now_ns);

/*
 * The streaming has acknowledged version @acked: blocks whose entries have become usable are freed.
 * To be called before a step is planned, not between plan and commit.
 */
void mm_sched_cold_acked(struct mm_sched *s, uint64_t acked, uint64_t now_ns);

/* Return: the entry behind block @at of a running sequence, or MM_KV_NONE. */
static inline uint32_t mm_sched_backing(const struct mm_sched *s, const struct mm_seq *q,
					uint32_t at)
{
	return s->backing ? s->backing[q->row * (size_t)s->table_stride + at] : MM_KV_NONE;
}

/* Return: blocks in use that will be free without more copies, as their entries become usable. */
uint32_t mm_sched_cooling(const struct mm_sched *s);

/* Return: the words of running sequences that are entries. */
uint32_t mm_sched_cold_words(const struct mm_sched *s);

/*
 * A swap of the plan failed: @seq has lost its KV, which will be computed again. If the sequence
 * was being swapped in, the plan's items are void.
 */
void mm_sched_swap_failed(struct mm_sched *s, uint32_t seq, uint64_t now_ns);

/* Return: the blocks of all chunks. */
static inline uint64_t mm_sched_arena_blocks(const struct mm_sched *s)
{
	return (uint64_t)s->kv.n_chunks * s->kv.blocks_per_chunk;
}

/* Return: the blocks that a sequence wants, those ahead of need included. */
uint32_t mm_sched_seq_wants(const struct mm_sched *s, const struct mm_seq *seq);

/* Return: the blocks that @tokens tokens take. */
uint32_t mm_sched_blocks(const struct mm_sched *s, uint32_t tokens);

/**
 * mm_sched_add() - add a sequence for a request that has arrived
 * @s:       any
 * @prompt:  tokens of the prompt, at least 1
 * @output:  tokens of the output, at least 1
 * @user:    kept in the sequence
 * @ret_seq: written only on success; valid until the sequence finishes or is removed
 *
 * Return: 0; MM_E_RANGE it could never run (longer than max_tokens, or than the whole arena);
 * MM_E_FULL no sequence is free: to be tried again later.
 */
int mm_sched_add(struct mm_sched *s, uint32_t prompt, uint32_t output, uint64_t user,
		 uint32_t *ret_seq);

/* Removes a sequence in any state. Not to be called between plan and commit. */
void mm_sched_remove(struct mm_sched *s, uint32_t seq, uint64_t now_ns);

/**
 * mm_sched_step() - plan the next step
 * @s:        the previous plan was committed, or never executed
 * @now_ns:   time stamp of blocks that are freed
 * @may_grow: a demand for chunks was not denied yet: a sequence that lacks a block waits for them
 *            instead of preempting the youngest
 *
 * Return: the plan, valid until the next call; without items if nothing can run now.
 */
const struct mm_sched_plan *mm_sched_step(struct mm_sched *s, uint64_t now_ns, bool may_grow);

/**
 * mm_sched_commit() - record that the plan's step was computed
 * @s:            the scheduler that made the plan
 * @now_ns:       time stamp
 * @ret_finished: at least max_batch; user values of the sequences that reached their limit and were
 *                removed
 *
 * The sequence of every item that samples has one token more afterwards.
 * Return: how many sequences finished.
 */
uint32_t mm_sched_commit(struct mm_sched *s, uint64_t now_ns, uint64_t *ret_finished);

/**
 * mm_sched_blocks_wanted() - compute how many blocks to request, ahead of need
 * @s: any
 *
 * Return: the blocks with which all sequences could run that the batch has room for, each with
 * lookahead_blocks more than its tokens take, but with no more than it will ever need.
 */
uint32_t mm_sched_blocks_wanted(struct mm_sched *s);

/* Return: those of them that the waiting sequences want, at most all of the arena. */
uint32_t mm_sched_blocks_queued(struct mm_sched *s);

/**
 * mm_sched_reclaim() - let chunks drain, which are to be released
 * @s:        any
 * @chunks:   how many in all, those that drain or are retired included. If fewer drain, those that
 *            are cheapest to empty drain, too; if more drain, those beyond are kept
 * @force_ns: time from which sequences are preempted; until then they may end by themselves. While
 *            chunks drain already, the earlier time holds
 *
 * No sequence is admitted while chunks drain.
 */
void mm_sched_reclaim(struct mm_sched *s, uint32_t chunks, uint64_t force_ns);

/*
 * Keeps draining chunks beyond @chunks: no more than that, the retired included, are to be
 * released.
 */
void mm_sched_owe_at_most(struct mm_sched *s, uint32_t chunks);

/* Return: the chunks that are to be released and are not retired yet. */
static inline uint32_t mm_sched_owed(const struct mm_sched *s)
{
	return s->kv.draining_chunks - s->kv.retired_chunks;
}

/**
 * mm_sched_evict() - preempt sequences until the blocks in draining chunks fit into the others
 * @s:      not between plan and commit
 * @now_ns: time stamp
 * @idle:   no sequence can run for now: nothing is gained by waiting until force_ns, and the oldest
 *          may be preempted, too
 *
 * From force_ns on, the sequence that is cheapest to compute again is preempted, then the next
 * cheapest, and so on. Each is swapped out as a whole if it has computed at least swap_tokens and
 * there is room; else it will be computed again. The blocks are freed here, so the swaps are to be
 * done before anything else is enqueued or released, mm_sched_retire() included.
 * Return: the plan, without items, valid until the next call.
 */
const struct mm_sched_plan *mm_sched_evict(struct mm_sched *s, uint64_t now_ns, bool idle);

/**
 * mm_sched_retire() - empty a draining chunk and retire it
 * @s:         not between plan and commit
 * @now_ns:    time stamp
 * @ret_chunk: the retired chunk, to which no later plan refers. It is to be removed by
 *             mm_kvblocks_remove_chunk() once the device has done the moves and all work that was
 *             enqueued before them
 * @ret_moves: at least blocks_per_chunk; to be enqueued before anything that is planned later
 * @ret_n:     how many moves
 *
 * Blocks move to the lowest free ones. No sequence is preempted.
 * Return: 0; MM_E_EMPTY no chunk drains; MM_E_FULL the blocks do not fit yet: mm_sched_evict(), or
 * some are being copied to entries.
 */
int mm_sched_retire(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		    struct mm_sched_move *ret_moves, uint32_t *ret_n);

/**
 * mm_sched_compact() - empty and retire a chunk that is not reclaimed
 * @s:         not between plan and commit
 * @now_ns:    time stamp
 * @ret_chunk: as for mm_sched_retire()
 * @ret_moves: as for mm_sched_retire()
 * @ret_n:     as for mm_sched_retire()
 *
 * Return: 0; MM_E_EMPTY no chunk's blocks fit into the others.
 */
int mm_sched_compact(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		     struct mm_sched_move *ret_moves, uint32_t *ret_n);

/* Return: the block table of a running sequence. */
const uint32_t *mm_sched_table(const struct mm_sched *s, uint32_t seq);

/* Return: NULL if all invariants hold, else the one that does not. Slow: for tests. */
const char *mm_sched_check(const struct mm_sched *s);
