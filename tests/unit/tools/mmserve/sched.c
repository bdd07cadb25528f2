/* SPDX-License-Identifier: Apache-2.0 */
/* Single decisions of the batch scheduler; sched_random.c has whole runs. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "libclient/base/base.h"
#include "tests/unit/tools/mmserve/sched.h"

static const struct mm_sched_config small = {
	.max_seqs = 8,
	.max_batch = 4,
	.max_batched_tokens = 8,
	.max_tokens = 64,
	.block_tokens = 4,
	.kv_chunks = 4,
	.kv_blocks_per_chunk = 4,
};

static void sched_init(struct mm_sched *s, const struct mm_sched_config *config, uint32_t chunks)
{
	assert_int_equal(mm_sched_init(s, config), 0);
	for (uint32_t i = 0; i < chunks; i++)
		mm_kvblocks_add_chunk(&s->kv, i, 0);
}

static uint32_t sched_add(struct mm_sched *s, uint32_t prompt, uint32_t output)
{
	uint32_t seq = 99;

	assert_int_equal(mm_sched_add(s, prompt, output, 0, &seq), 0);
	return seq;
}

static const struct mm_sched_plan *sched_run(struct mm_sched *s, bool may_grow)
{
	uint64_t finished[16];
	const struct mm_sched_plan *p = mm_sched_step(s, 0, may_grow);

	sched_check(s);
	mm_sched_commit(s, 0, finished);
	sched_check(s);
	return p;
}

static void test_init_refuses(void **state)
{
	struct mm_sched_config c = small;
	struct mm_sched s;

	(void)state;
	c.max_batched_tokens = c.max_batch - 1;
	assert_int_equal(mm_sched_init(&s, &c), -EINVAL);
	c = small;
	c.block_tokens = 0;
	assert_int_equal(mm_sched_init(&s, &c), -EINVAL);
	c = small;
	c.kv_chunks = 1u << 20;
	c.kv_blocks_per_chunk = 1u << 20;
	assert_int_equal(mm_sched_init(&s, &c), -EINVAL);
}

static void test_add_refuses(void **state)
{
	struct mm_sched s;
	uint32_t seq;

	(void)state;
	sched_init(&s, &small, 4);
	assert_int_equal(mm_sched_add(&s, 0, 1, 0, &seq), MM_E_RANGE);
	assert_int_equal(mm_sched_add(&s, 1, 0, 0, &seq), MM_E_RANGE);
	assert_int_equal(mm_sched_add(&s, 60, 5, 0, &seq), MM_E_RANGE);
	assert_int_equal(mm_sched_add(&s, UINT32_MAX, UINT32_MAX, 0, &seq), MM_E_RANGE);
	for (int i = 0; i < 8; i++)
		sched_add(&s, 60, 4);
	assert_int_equal(mm_sched_add(&s, 1, 1, 0, &seq), MM_E_FULL);
	sched_check(&s);
	mm_sched_done(&s);
}

/* A long prompt is computed in pieces, while a decoding sequence gets a token in every step. */
static void test_chunked_prefill(void **state)
{
	const struct mm_sched_plan *p;
	struct mm_sched s;
	uint32_t a, b;

	(void)state;
	sched_init(&s, &small, 4);
	a = sched_add(&s, 3, 10);
	p = mm_sched_step(&s, 0, false);
	assert_int_equal(p->n_items, 1);
	assert_int_equal(p->tokens, 3);
	assert_true(p->items[0].samples);
	sched_run(&s, false);
	b = sched_add(&s, 16, 4);
	for (uint32_t first = 0; first < 16; first += 7) {
		p = mm_sched_step(&s, 0, false);
		assert_int_equal(p->n_items, 2);
		assert_int_equal(p->items[0].seq, a);
		assert_int_equal(p->items[0].tokens, 1);
		assert_int_equal(p->items[1].seq, b);
		assert_int_equal(p->items[1].first, first);
		assert_int_equal(p->items[1].tokens, MM_MIN(16 - first, 7));
		assert_int_equal(p->items[1].samples, first == 14);
		sched_run(&s, false);
	}
	mm_sched_done(&s);
}

/*
 * 4 blocks of 4 tokens: two prompts of 7 fill them with 8 tokens each; the ninth token preempts the
 * youngest.
 */
static void sched_preempt(struct mm_sched *s, uint32_t *old, uint32_t *young)
{
	struct mm_sched_config c = small;

	c.max_batched_tokens = 32;
	sched_init(s, &c, 1);
	*old = sched_add(s, 7, 8);
	*young = sched_add(s, 7, 8);
	sched_run(s, false);
	sched_run(s, false);
	assert_int_equal(s->kv.free_blocks, 0);
}

static void test_preempts_youngest(void **state)
{
	const struct mm_sched_plan *p;
	uint32_t old, young;
	struct mm_sched s;

	(void)state;
	sched_preempt(&s, &old, &young);
	p = mm_sched_step(&s, 0, false);
	assert_int_equal(p->n_preempted, 1);
	assert_int_equal(p->preempted[0], young);
	assert_int_equal(p->n_items, 1);
	assert_int_equal(p->items[0].seq, old);
	assert_int_equal(s.seqs[young].state, MM_SEQ_WAITING);
	assert_int_equal(s.seqs[young].total, 9); /* it keeps the tokens that it has generated */
	assert_int_equal(s.seqs[young].preemptions, 1);
	sched_check(&s);
	while (s.seqs[old].state != MM_SEQ_FREE)
		sched_run(&s, false);
	p = mm_sched_step(&s, 0, false);
	assert_int_equal(p->items[0].seq, young);
	assert_int_equal(p->items[0].first, 0);
	assert_int_equal(p->items[0].tokens, 9); /* and computes them again */
	mm_sched_done(&s);
}

static void test_waits_while_it_may_grow(void **state)
{
	const struct mm_sched_plan *p;
	uint32_t old, young;
	struct mm_sched s;

	(void)state;
	sched_preempt(&s, &old, &young);
	p = mm_sched_step(&s, 0, true);
	assert_int_equal(p->n_preempted, 0);
	assert_int_equal(p->stalled, 2);
	assert_int_equal(p->n_items, 0);
	mm_kvblocks_add_chunk(&s.kv, 1, 0);
	p = mm_sched_step(&s, 0, true);
	assert_int_equal(p->n_items, 2);
	sched_check(&s);
	mm_sched_done(&s);
}

static void test_admits_when_the_prompt_fits(void **state)
{
	struct mm_sched s;
	uint32_t a;

	(void)state;
	sched_init(&s, &small, 1);
	a = sched_add(&s, 17, 4);
	assert_int_equal(mm_sched_step(&s, 0, false)->n_items, 0);
	assert_int_equal(s.seqs[a].state, MM_SEQ_WAITING);
	assert_int_equal(mm_sched_blocks_wanted(&s), 5);
	mm_kvblocks_add_chunk(&s.kv, 3, 0);
	assert_int_equal(mm_sched_step(&s, 0, false)->tokens, 8);
	mm_sched_done(&s);
}

/* MM_ADMIT_CHUNK: admitted for what one step computes, then extended; the youngest is preempted. */
static void test_admits_by_chunks(void **state)
{
	struct mm_sched_config c = small;
	const struct mm_sched_plan *p;
	struct mm_sched s;
	uint32_t a, b;

	(void)state;
	c.admit = MM_ADMIT_CHUNK;
	sched_init(&s, &c, 1);
	a = sched_add(&s, 4, 6);
	sched_run(&s, false);
	b = sched_add(&s, 14, 2);
	p = mm_sched_step(&s, 0, false);
	assert_int_equal(p->tokens, 8);
	assert_int_equal(s.seqs[b].n_blocks, 2);
	assert_int_equal(s.kv.free_blocks, 0);
	sched_run(&s, false);
	/* b lacks a block for its next piece, and is the youngest: it is preempted itself. */
	p = mm_sched_step(&s, 0, false);
	assert_int_equal(p->n_preempted, 1);
	assert_int_equal(p->preempted[0], b);
	assert_int_equal(p->n_items, 1);
	assert_int_equal(s.seqs[b].computed, 0);
	sched_check(&s);
	while (s.seqs[a].state != MM_SEQ_FREE)
		sched_run(&s, false);
	while (s.seqs[b].state != MM_SEQ_FREE) {
		assert_true(mm_sched_step(&s, 0, false)->tokens > 0);
		sched_run(&s, false);
	}
	mm_sched_done(&s);
}

/* Its first piece fits, but never the whole: it must not compute that piece again and again. */
static void test_admits_by_chunks_what_can_end(void **state)
{
	struct mm_sched_config c = small;
	struct mm_sched s;

	(void)state;
	c.admit = MM_ADMIT_CHUNK;
	sched_init(&s, &c, 1);
	sched_add(&s, 17, 4);
	assert_int_equal(mm_sched_step(&s, 0, false)->n_items, 0);
	mm_kvblocks_add_chunk(&s.kv, 1, 0);
	assert_int_equal(mm_sched_step(&s, 0, false)->tokens, 8);
	mm_sched_done(&s);
}

/* MM_ADMIT_FULL: admitted only when all of it fits, with blocks for one step's tokens. */
static void test_admits_in_full(void **state)
{
	struct mm_sched_config c = small;
	struct mm_sched s;
	uint32_t a, b;

	(void)state;
	c.admit = MM_ADMIT_FULL;
	sched_init(&s, &c, 2);
	a = sched_add(&s, 4, 2);
	b = sched_add(&s, 28, 2);
	assert_int_equal(mm_sched_step(&s, 0, false)->n_items, 2);
	assert_int_equal(s.seqs[b].n_blocks, 1);
	sched_run(&s, false);
	mm_sched_remove(&s, a, 0);
	mm_sched_remove(&s, b, 0);
	a = sched_add(&s, 5, 2);
	sched_run(&s, false);
	b = sched_add(&s, 25, 2);
	assert_int_equal(mm_sched_step(&s, 0, false)->n_items, 1);
	assert_int_equal(s.seqs[b].state, MM_SEQ_WAITING);
	sched_run(&s, false);
	assert_int_equal(s.seqs[a].state, MM_SEQ_FREE);
	assert_int_equal(mm_sched_step(&s, 0, false)->tokens, 8);
	sched_check(&s);
	mm_sched_done(&s);
}

/*
 * The blocks wanted grow with each token, up to what a sequence will ever need. Waiting sequences
 * count as far as the batch has room for them.
 */
static void test_wants_ahead(void **state)
{
	struct mm_sched_config c = small;
	struct mm_sched s;
	uint32_t a;

	(void)state;
	c.lookahead_blocks = 2;
	sched_init(&s, &c, 4);
	a = sched_add(&s, 3, 10);
	assert_int_equal(mm_sched_blocks_wanted(&s), 3);
	sched_run(&s, false);
	assert_int_equal(mm_sched_blocks_wanted(&s), 3);
	sched_run(&s, false);
	assert_int_equal(s.seqs[a].total, 5);
	assert_int_equal(mm_sched_blocks_wanted(&s), 4);
	for (int i = 0; i < 5; i++)
		sched_add(&s, 1, 2);
	assert_int_equal(mm_sched_blocks_wanted(&s), 4 + 3);
	while (s.n_running || s.n_waiting) {
		assert_true(mm_sched_blocks_wanted(&s) <= 4 + 3);
		sched_run(&s, false);
	}
	assert_int_equal(mm_sched_blocks_wanted(&s), 0);
	mm_sched_done(&s);
}

static void test_removes(void **state)
{
	struct mm_sched s;
	uint32_t a, b;

	(void)state;
	sched_init(&s, &small, 4);
	a = sched_add(&s, 5, 5);
	sched_run(&s, false);
	b = sched_add(&s, 5, 5);
	mm_sched_remove(&s, b, 0);
	mm_sched_remove(&s, a, 0);
	sched_check(&s);
	assert_int_equal(s.n_running + s.n_waiting, 0);
	assert_int_equal(s.kv.used_blocks, 0);
	mm_sched_done(&s);
}

static void test_blocks_lowest_first(void **state)
{
	struct mm_kvblocks b;

	(void)state;
	assert_int_equal(mm_kvblocks_init(&b, 3, 2), 0);
	assert_int_equal(mm_kvblocks_get(&b), MM_KV_NONE);
	mm_kvblocks_add_chunk(&b, 2, 10);
	mm_kvblocks_add_chunk(&b, 0, 20);
	assert_int_equal(mm_kvblocks_get(&b), 0);
	assert_int_equal(mm_kvblocks_get(&b), 1);
	assert_int_equal(mm_kvblocks_get(&b), 4);
	mm_kvblocks_put(&b, 1, 30);
	assert_int_equal(mm_kvblocks_get(&b), 1);
	assert_int_equal(mm_kvblocks_idle_chunk(&b, 100), MM_KV_NONE);
	mm_kvblocks_put(&b, 4, 50);
	assert_int_equal(mm_kvblocks_idle_chunk(&b, 49), MM_KV_NONE);
	assert_int_equal(mm_kvblocks_idle_chunk(&b, 50), 2);
	assert_int_equal(mm_kvblocks_cheapest_chunk(&b), 2);
	mm_kvblocks_drain_chunk(&b, 2);
	assert_int_equal(mm_kvblocks_get(&b), MM_KV_NONE);
	assert_null(mm_kvblocks_check(&b));
	mm_kvblocks_remove_chunk(&b, 2);
	assert_null(mm_kvblocks_check(&b));
	assert_int_equal(b.used_chunks, 1);
	mm_kvblocks_done(&b);
}

/* The blocks in use fit into one of two chunks: those of the cheaper move; none is preempted. */
static void test_reclaim_moves(void **state)
{
	struct mm_sched_move moves[4];
	struct mm_sched s;
	uint32_t chunk, n, a;

	(void)state;
	sched_init(&s, &small, 2);
	a = sched_add(&s, 8, 20);
	sched_run(&s, false);
	sched_add(&s, 7, 9);
	sched_run(&s, false);
	assert_int_equal(s.kv.used_blocks, 5);
	mm_sched_remove(&s, a, 0);
	assert_int_equal(mm_sched_retire(&s, 0, &chunk, moves, &n), MM_E_EMPTY);
	mm_sched_reclaim(&s, 1, UINT64_MAX);
	assert_int_equal(mm_sched_owed(&s), 1);
	assert_int_equal(mm_sched_retire(&s, 0, &chunk, moves, &n), 0);
	assert_int_equal(s.preemptions, 0);
	assert_int_equal(mm_sched_owed(&s), 0);
	sched_check(&s);
	/* The chunk is retired and not yet removed: none of its blocks is handed out. */
	sched_add(&s, 1, 30);
	sched_run(&s, false);
	assert_int_equal(s.kv.chunks[chunk].used, 0);
	mm_kvblocks_remove_chunk(&s.kv, chunk);
	sched_check(&s);
	assert_int_equal(s.kv.usable_chunks, 1);
	mm_sched_done(&s);
}

/* One chunk, all of it in use: nothing is preempted before force_ns, and nothing is admitted. */
static void test_reclaim_waits_then_preempts(void **state)
{
	struct mm_sched_move moves[4];
	uint32_t old, young, chunk, n;
	struct mm_sched s;

	(void)state;
	sched_preempt(&s, &old, &young);
	mm_sched_reclaim(&s, 5, 100);
	assert_int_equal(mm_sched_evict(&s, 99, false)->n_preempted, 0);
	assert_int_equal(mm_sched_retire(&s, 99, &chunk, moves, &n), MM_E_FULL);
	mm_kvblocks_add_chunk(&s.kv, 1, 0);
	sched_add(&s, 1, 1);
	assert_int_equal(mm_sched_step(&s, 0, true)->n_items, 2);
	assert_int_equal(s.n_waiting, 1);
	sched_check(&s);
	mm_sched_remove(&s, young, 0);
	assert_int_equal(mm_sched_retire(&s, 99, &chunk, moves, &n),
			 0); /* the blocks in use fit into chunk 1 */
	assert_int_equal(s.preemptions, 0);
	mm_kvblocks_remove_chunk(&s.kv, chunk);
	mm_sched_reclaim(&s, 1, 100);
	assert_int_equal(mm_sched_evict(&s, 100, false)->n_preempted, 1);
	assert_int_equal(mm_sched_retire(&s, 100, &chunk, moves, &n), 0);
	assert_int_equal(s.preemptions, 1);
	assert_int_equal(n, 0);
	mm_kvblocks_remove_chunk(&s.kv, chunk);
	sched_check(&s);
	assert_int_equal(s.n_waiting, 2);
	mm_sched_reclaim(&s, 1, 0);
	assert_int_equal(mm_sched_retire(&s, 0, &chunk, moves, &n), MM_E_EMPTY);
	mm_sched_done(&s);
}

/* Three run: of the two younger ones, the one with fewer tokens is preempted first. */
static void test_reclaim_preempts_the_cheapest(void **state)
{
	struct mm_sched_config c = small;
	struct mm_sched_move moves[4];
	uint32_t seq[3], chunk, n;
	struct mm_sched s;

	(void)state;
	c.max_batched_tokens = 32;
	sched_init(&s, &c, 2);
	seq[0] = sched_add(&s, 2, 8);
	seq[1] = sched_add(&s, 3, 8);
	seq[2] = sched_add(&s, 17, 8);
	sched_run(&s, false);
	assert_int_equal(s.kv.used_blocks, 7);
	mm_sched_reclaim(&s, 1, 0);
	assert_int_equal(mm_sched_evict(&s, 0, false)->n_swaps, 0);
	sched_check(&s);
	assert_int_equal(mm_sched_retire(&s, 0, &chunk, moves, &n), 0);
	sched_check(&s);
	assert_int_equal(s.seqs[seq[0]].state, MM_SEQ_RUNNING);
	assert_int_equal(s.seqs[seq[1]].state, MM_SEQ_WAITING);
	assert_int_equal(s.seqs[seq[2]].state, MM_SEQ_WAITING); /* to preempt one was not enough */
	assert_int_equal(s.preemptions, 2);
	mm_sched_done(&s);
}

/*
 * A preempted sequence keeps its computed tokens in slots; if there are not enough, it starts from
 * the beginning.
 */
static void test_swaps_the_youngest(void **state)
{
	(void)state;
	for (uint32_t slots = 1; slots <= 3; slots++) {
		const struct mm_sched_plan *p;
		uint32_t old, young;
		struct mm_sched s;

		sched_preempt(&s, &old, &young);
		assert_int_equal(mm_sched_set_swap(&s, slots), 0);
		p = mm_sched_step(&s, 0, false);
		sched_check(&s);
		assert_int_equal(p->n_preempted, 1);
		assert_int_equal(p->n_swaps, slots < 2 ? 0 : 2); /* 8 computed tokens */
		assert_int_equal(s.seqs[young].computed, slots < 2 ? 0 : 8);
		assert_int_equal(s.free_slots, slots < 2 ? slots : slots - 2);
		while (s.seqs[old].state != MM_SEQ_FREE)
			sched_run(&s, false);
		p = mm_sched_step(&s, 0, false);
		sched_check(&s);
		assert_int_equal(p->items[0].seq, young);
		assert_int_equal(p->items[0].first, slots < 2 ? 0 : 8);
		assert_int_equal(p->n_swaps, slots < 2 ? 0 : 2);
		assert_int_equal(s.free_slots, slots);
		if (p->n_swaps) {
			assert_true(p->swaps_in);
			mm_sched_swap_failed(&s, young, 0);
			sched_check(&s);
			assert_int_equal(p->n_items, 0);
			assert_int_equal(mm_sched_step(&s, 0, false)->items[0].tokens, 9);
		}
		mm_sched_done(&s);
	}
}

/*
 * A sequence that is preempted for reclaimed chunks keeps its computed tokens, and goes on with
 * them.
 */
static void test_evicts_to_the_host(void **state)
{
	struct mm_sched_config c = small;

	(void)state;
	/* Sequences of 3 and 17 tokens have 1 and 5 blocks. */
	for (uint32_t slots = 0; slots <= 6; slots++) {
		const bool one = slots >= 1, both = slots == 6;
		const struct mm_sched_plan *p;
		struct mm_sched_move moves[4];
		uint32_t seq[3], chunk, n;
		struct mm_sched s;

		c.max_batched_tokens = 32;
		sched_init(&s, &c, 2);
		assert_int_equal(mm_sched_set_swap(&s, slots), 0);
		seq[0] = sched_add(&s, 2, 8);
		seq[1] = sched_add(&s, 3, 8);
		seq[2] = sched_add(&s, 17, 8);
		sched_run(&s, false);
		mm_sched_reclaim(&s, 1, 0);
		p = mm_sched_evict(&s, 0, false);
		sched_check(&s);
		assert_int_equal(p->n_items, 0);
		assert_int_equal(p->n_preempted, 2);
		assert_int_equal(p->n_swaps, both ? 6 : one);
		assert_false(p->swaps_in);
		assert_int_equal(s.seqs[seq[1]].computed, one ? 3 : 0);
		assert_int_equal(s.seqs[seq[2]].computed, both ? 17 : 0);
		assert_int_equal(s.free_slots, slots - p->n_swaps);
		if (both) /* a failure costs only time */
			mm_sched_swap_failed(&s, seq[2], 0);
		sched_check(&s);
		assert_int_equal(s.seqs[seq[2]].computed, 0);
		assert_int_equal(mm_sched_evict(&s, 0, false)->n_preempted, 0);
		assert_int_equal(mm_sched_retire(&s, 0, &chunk, moves, &n), 0);
		mm_kvblocks_remove_chunk(&s.kv, chunk);
		sched_check(&s);
		mm_kvblocks_add_chunk(&s.kv, chunk, 0);
		p = mm_sched_step(&s, 0, false);
		sched_check(&s);
		assert_int_equal(p->n_swaps, one);
		assert_int_equal(p->items[1].seq, seq[1]);
		assert_int_equal(p->items[1].first, one ? 3 : 0);
		assert_int_equal(p->items[2].seq, seq[2]);
		assert_int_equal(p->items[2].first, 0);
		assert_int_equal(s.free_slots, slots);
		mm_sched_done(&s);
	}
}

/*
 * Three sequences of up to 4 blocks each do not fit into 8: with slices the third takes the place
 * of the first when that has had its tokens, and the first goes on behind it.
 */
static void test_slices(void **state)
{
	struct mm_sched_config c = small;

	(void)state;
	for (uint32_t slice = 0; slice <= 4; slice += 2) {
		uint32_t seq[3], steps = 0;
		uint64_t done[8];
		struct mm_sched s;

		c.max_batched_tokens = 32;
		c.slice_tokens = slice;
		sched_init(&s, &c, 2);
		assert_int_equal(mm_sched_set_swap(&s, 20), 0);
		for (uint32_t i = 0; i < 3; i++)
			seq[i] = sched_add(&s, 11, 5);
		while (s.seqs[seq[2]].state != MM_SEQ_RUNNING) {
			const struct mm_sched_plan *p = mm_sched_step(&s, steps, false);

			sched_check(&s);
			assert_true(p->n_items || p->n_swaps);
			if (p->n_preempted) {
				assert_int_equal(p->preempted[0], seq[0]);
				assert_int_equal(s.seqs[seq[0]].total - 11, slice);
				assert_int_equal(p->n_swaps, s.seqs[seq[0]].n_slots);
				assert_true(s.seqs[seq[0]].order > s.seqs[seq[2]].order);
			}
			mm_sched_commit(&s, steps++, done);
			assert_true(steps < 100);
		}
		assert_true((s.slices > 0) == (slice > 0));
		mm_sched_done(&s);
	}
}

/* Nobody makes room for a sequence that would not fit beside nobody: it waits for more chunks. */
static void test_slices_for_nothing(void **state)
{
	struct mm_sched_config c = small;
	uint64_t done[8], ended = 0;
	struct mm_sched s;

	(void)state;
	c.admit = MM_ADMIT_CHUNK;
	c.max_batched_tokens = 32;
	c.max_tokens = 64;
	c.slice_tokens = 2;
	sched_init(&s, &c, 2);
	assert_int_equal(mm_sched_set_swap(&s, 20), 0);
	sched_add(&s, 11, 9);
	sched_add(&s, 36, 4); /* 10 blocks, of which 8 are there */
	for (uint32_t steps = 0; !ended; steps++) {
		const struct mm_sched_plan *p = mm_sched_step(&s, steps, false);

		sched_check(&s);
		assert_true(p->n_items && !p->n_preempted);
		ended = mm_sched_commit(&s, steps, done);
	}
	assert_int_equal(s.slices, 0);
	mm_sched_done(&s);
}

/* Sequences with fewer tokens than swap_tokens are not swapped but computed again. */
static void test_evicts_the_short_without(void **state)
{
	struct mm_sched_config c = small;
	const struct mm_sched_plan *p;
	uint32_t seq[3];
	struct mm_sched s;

	(void)state;
	c.max_batched_tokens = 32;
	c.swap_tokens = 4;
	sched_init(&s, &c, 2);
	assert_int_equal(mm_sched_set_swap(&s, 20), 0);
	seq[0] = sched_add(&s, 2, 8);
	seq[1] = sched_add(&s, 3, 8);
	seq[2] = sched_add(&s, 17, 8);
	sched_run(&s, false);
	mm_sched_reclaim(&s, 1, 0);
	p = mm_sched_evict(&s, 0, false);
	sched_check(&s);
	assert_int_equal(p->n_swaps, 5);
	assert_int_equal(s.seqs[seq[0]].state, MM_SEQ_RUNNING);
	assert_int_equal(s.seqs[seq[1]].computed, 0);
	assert_int_equal(s.seqs[seq[2]].computed, 17);
	mm_sched_done(&s);
}

/* If no sequence can run, eviction does not wait for force_ns and does not spare the oldest. */
static void test_evicts_all_that_cannot_run(void **state)
{
	const struct mm_sched_plan *p;
	struct mm_sched_move moves[4];
	uint32_t old, young, chunk, n;
	struct mm_sched s;

	(void)state;
	sched_preempt(&s, &old, &young);
	assert_int_equal(mm_sched_set_swap(&s, 8), 0);
	assert_int_equal(mm_sched_evict(&s, 0, true)->n_preempted, 0); /* no chunk is reclaimed */
	mm_sched_reclaim(&s, 1, 100);
	assert_int_equal(mm_sched_evict(&s, 99, false)->n_preempted, 0);
	p = mm_sched_evict(&s, 99, true);
	sched_check(&s);
	assert_int_equal(p->n_preempted, 2);
	assert_int_equal(s.n_running, 0);
	assert_true(s.seqs[old].computed && s.seqs[young].computed);
	assert_int_equal(mm_sched_retire(&s, 99, &chunk, moves, &n), 0);
	assert_int_equal(n, 0);
	mm_kvblocks_remove_chunk(&s.kv, chunk);
	mm_kvblocks_add_chunk(&s.kv, 0, 0);
	p = mm_sched_step(&s, 0, false); /* first come, first served */
	sched_check(&s);
	assert_true(p->swaps_in);
	assert_int_equal(p->items[0].seq, old);
	mm_sched_done(&s);
}

/* Blocks scattered over two chunks, for which one is enough: compacting empties the other. */
static void test_compacts(void **state)
{
	struct mm_sched_move moves[4];
	uint32_t seq[4], chunk, n;
	struct mm_sched s;

	(void)state;
	sched_init(&s, &small, 2);
	for (int i = 0; i < 4; i++) {
		seq[i] = sched_add(&s, 7, 1 + (i == 3));
		sched_run(&s, false);
	}
	assert_false(s.seqs[seq[3]].state == MM_SEQ_FREE);
	assert_int_equal(mm_sched_compact(&s, 0, &chunk, moves, &n), 0);
	assert_int_equal(chunk, 1);
	mm_kvblocks_remove_chunk(&s.kv, chunk);
	assert_int_equal(mm_sched_compact(&s, 0, &chunk, moves, &n), MM_E_EMPTY);
	sched_check(&s);
	mm_sched_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_init_refuses),
		cmocka_unit_test(test_add_refuses),
		cmocka_unit_test(test_chunked_prefill),
		cmocka_unit_test(test_preempts_youngest),
		cmocka_unit_test(test_waits_while_it_may_grow),
		cmocka_unit_test(test_admits_when_the_prompt_fits),
		cmocka_unit_test(test_admits_by_chunks),
		cmocka_unit_test(test_admits_by_chunks_what_can_end),
		cmocka_unit_test(test_admits_in_full),
		cmocka_unit_test(test_wants_ahead),
		cmocka_unit_test(test_removes),
		cmocka_unit_test(test_blocks_lowest_first),
		cmocka_unit_test(test_reclaim_moves),
		cmocka_unit_test(test_reclaim_waits_then_preempts),
		cmocka_unit_test(test_reclaim_preempts_the_cheapest),
		cmocka_unit_test(test_compacts),
		cmocka_unit_test(test_swaps_the_youngest),
		cmocka_unit_test(test_evicts_to_the_host),
		cmocka_unit_test(test_evicts_the_short_without),
		cmocka_unit_test(test_slices),
		cmocka_unit_test(test_slices_for_nothing),
		cmocka_unit_test(test_evicts_all_that_cannot_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
