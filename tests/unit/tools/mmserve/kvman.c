/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's KV decisions, with a fake memory that records its calls: single decisions, then
 * seeded random runs in which the memory grants late, denies and reclaims.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tools/mmserve/sched/kvman.h"

#define CHUNKS 16u

struct fake {
	struct mm_sched s;
	struct mm_kvman k;
	uint64_t usable;
	int answer; /* to every demand; 0 makes as many chunks usable */
	int release_error;
	bool busy; /* the device has not reached the mark yet */
	bool marked;
	uint32_t asked, wants, moves, marks, releases, evicted, swaps;
	uint32_t owed;
	struct mm_kvman_load load;
	uint32_t stalled; /* that of the last plan */
};

static int fake_want(void *context, uint32_t chunks_total)
{
	struct fake *f = context;

	f->asked = chunks_total;
	f->wants++;
	for (uint32_t i = 0; i < CHUNKS && !f->answer; i++)
		if ((uint32_t)__builtin_popcountll(f->usable) < chunks_total)
			f->usable |= UINT64_C(1) << i;
	return f->answer;
}

static void fake_usable(void *context, uint64_t *ret_bitmap, size_t words)
{
	const struct fake *f = context;

	assert_int_equal(words, 1);
	*ret_bitmap = f->usable;
}

static int fake_release(void *context, uint32_t chunk)
{
	struct fake *f = context;

	assert_true(f->usable >> chunk & 1);
	assert_true(f->marked && !f->busy); /* else the device might still touch it */
	f->releases++;
	if (f->release_error)
		return f->release_error;
	f->usable &= ~(UINT64_C(1) << chunk);
	f->owed -= f->owed != 0;
	return 0;
}

static uint32_t fake_owed(void *context)
{
	const struct fake *f = context;

	return f->owed;
}

static int fake_move(void *context, const struct mm_sched_move *moves, uint32_t n)
{
	struct fake *f = context;

	assert_true(n > 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_not_equal(moves[i].from, moves[i].to);
	f->moves += n;
	f->marked = false;
	return 0;
}

static int fake_mark(void *context)
{
	struct fake *f = context;

	f->marked = true;
	f->marks++;
	return 0;
}

static int fake_marked(void *context)
{
	const struct fake *f = context;

	return f->busy ? -EAGAIN : 0;
}

static void fake_load(void *context, const struct mm_kvman_load *load)
{
	struct fake *f = context;

	f->load = *load;
}

static const struct mm_kvman_ops ops = {
	.want = fake_want,
	.usable = fake_usable,
	.owed = fake_owed,
	.release = fake_release,
	.move = fake_move,
	.mark = fake_mark,
	.marked = fake_marked,
	.load = fake_load,
};

static const struct mm_sched_config small = {
	.max_seqs = 64,
	.max_batch = 8,
	.max_batched_tokens = 64,
	.max_tokens = 64,
	.block_tokens = 4,
	.kv_chunks = CHUNKS,
	.kv_blocks_per_chunk = 4,
	.lookahead_blocks = MM_KVMAN_LOOKAHEAD_BLOCKS,
};

static const struct mm_kvman_config times = {
	.share_chunks = 3, .idle_ns = 100, .timeout_ns = 5000, .answer_ns = 1000, .retry_ns = 50
};

static void fake_start(struct fake *f, const struct mm_kvman_config *config, uint64_t usable)
{
	*f = (struct fake){ .answer = -EAGAIN, .usable = usable };
	assert_int_equal(mm_sched_init(&f->s, &small), 0);
	assert_int_equal(mm_kvman_init(&f->k, config, &f->s, &ops, f), 0);
	mm_kvman_granted(&f->k, 0);
}

static void fake_end(struct fake *f)
{
	const char *wrong = mm_sched_check(&f->s);

	if (wrong)
		fail_msg("%s", wrong);
	mm_kvman_done(&f->k);
	mm_sched_done(&f->s);
}

static uint32_t fake_add(struct fake *f, uint32_t prompt, uint32_t output)
{
	uint32_t seq;

	assert_int_equal(mm_sched_add(&f->s, prompt, output, 0, &seq), 0);
	return seq;
}

static void fake_manage(struct fake *f, uint64_t now_ns)
{
	const struct mm_sched_plan *p = mm_kvman_evict(&f->k, now_ns);

	f->evicted += p->n_preempted;
	f->swaps += p->n_swaps;
	assert_int_equal(mm_kvman_manage(&f->k, now_ns), 0);
}

static void fake_reclaim(struct fake *f, uint32_t chunks, uint64_t deadline_ns, uint64_t now_ns)
{
	f->owed = chunks;
	mm_kvman_reclaim(&f->k, deadline_ns, now_ns);
}

/* Return: how many sequences the plan had work for. */
static uint32_t fake_iterate(struct fake *f, uint64_t now_ns)
{
	const struct mm_sched_plan *p;
	uint64_t finished[8];
	uint32_t items;

	fake_manage(f, now_ns);
	p = mm_kvman_plan(&f->k, now_ns);
	items = p->n_items;
	f->stalled = p->stalled;
	if (items) {
		mm_kvman_runs(&f->k);
		mm_sched_commit(&f->s, now_ns, finished);
	}
	return items;
}

static void test_sizes(void **state)
{
	static const struct {
		struct mm_kvman_arena arena;
		uint32_t chunks, share;
	} cases[] = {
		/* 8 sequences of 64 tokens: 16 blocks each, 4 blocks per chunk */
		{ { 4096, 4096, 1000, 0, false }, 32, 32 },
		{ { 4096, 4096, 20, 0, false }, 20, 20 },
		{ { 8192, 4096, 20, 0, false }, 10, 10 },
		{ { 8192, 4096, 1, 0, false }, 1, 1 },
		{ { 4096, 4096, 1000, 5 * 4096 + 4095, false }, 32, 5 },
		{ { 4096, 4096, 1000, 5 * 4096, true }, 5, 5 },
		{ { 4096, 4096, 1000, 1, true }, 1, 1 },
		{ { 4096, 4096, 1000, UINT64_MAX, false }, 32, 32 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_sched_config c = small;

		assert_int_equal(mm_kvman_size_arena(&cases[i].arena, &c), cases[i].share);
		assert_int_equal(c.kv_chunks, cases[i].chunks);
	}
}

static void test_asks_ahead_and_waits(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 1);
	fake_add(&f, 7, 30);
	assert_int_equal(fake_iterate(&f, 10), 1);
	assert_int_equal(f.wants, 0); /* 2 blocks and 2 ahead are one chunk */
	assert_int_equal(f.load.waiting, 1);
	assert_int_equal(f.load.chunks_queued, 1);
	fake_iterate(&f, 20);
	assert_int_equal(f.load.running, 1);
	assert_int_equal(f.load.chunks_queued, 0);
	assert_int_equal(f.load.chunks_used, 1);
	fake_iterate(&f, 30); /* total is 9: 5 blocks */
	assert_int_equal(f.wants, 1);
	assert_int_equal(f.asked, 2);
	fake_iterate(&f, 35);
	assert_int_equal(f.wants, 1);
	for (uint64_t now = 40; now < 100; now += 10)
		fake_iterate(&f, now);
	assert_int_equal(f.s.preemptions, 0);
	while (f.s.kv.free_blocks)
		fake_iterate(&f, 100);
	fake_iterate(&f, 100);
	fake_iterate(&f, 100);
	fake_iterate(&f, 100);
	assert_int_equal(fake_iterate(&f, 100), 0);
	assert_int_equal(f.stalled, 1);
	f.usable = 3;
	mm_kvman_granted(&f.k, 110);
	assert_int_equal(fake_iterate(&f, 110), 1);
	assert_int_equal(f.k.chunks_max, 2);
	assert_int_equal(f.s.preemptions, 0);
	fake_end(&f);
}

static void test_denied(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 0);
	f.answer = -ENOSPC;
	assert_false(mm_kvman_yields(&f.k)); /* there is nothing to do */
	fake_add(&f, 7, 30);
	assert_int_equal(fake_iterate(&f, 10), 0);
	assert_int_equal(f.wants, 1);
	assert_true(mm_kvman_yields(&f.k));
	fake_iterate(&f, 59);
	assert_int_equal(f.wants, 1);
	fake_add(&f, 7, 30); /* a larger demand is sent at once */
	fake_iterate(&f, 59);
	assert_int_equal(f.wants, 2);
	assert_int_equal(f.asked, 2);
	assert_int_equal(mm_kvman_next_ns(&f.k), 109);
	fake_iterate(&f, 109);
	assert_int_equal(f.wants, 3);
	f.answer = -EAGAIN;
	fake_iterate(&f, 159);
	assert_true(f.k.may_grow);
	assert_false(mm_kvman_yields(&f.k)); /* the demand may still be granted */
	mm_kvman_denied(&f.k, 160);
	assert_false(f.k.may_grow);
	assert_true(mm_kvman_yields(&f.k));
	fake_iterate(&f, 209);
	assert_int_equal(f.wants, 4);
	fake_add(&f, 14, 30); /* soon after a denial no grant is expected */
	fake_iterate(&f, 209);
	assert_int_equal(f.wants, 5);
	assert_false(f.k.may_grow);
	f.answer = 0;
	fake_iterate(&f, 2209);
	assert_int_equal(f.s.kv.usable_chunks, 4);
	fake_end(&f);
}

/* After a release the same demand may be sent again. */
static void test_asks_anew_after_a_release(void **state)
{
	struct mm_kvman_config c = times;
	struct fake f;

	(void)state;
	c.retry_ns = 100000;
	fake_start(&f, &c, 3);
	f.answer = -ENOSPC;
	fake_add(&f, 7, 50);
	fake_add(&f, 7, 50);
	fake_add(&f, 7, 50);
	fake_iterate(&f, 1);
	assert_int_equal(f.wants, 1);
	mm_kvman_manage(&f.k, 2);
	assert_int_equal(f.wants, 1);
	fake_reclaim(&f, 1, 3, 3);
	fake_manage(&f, 3);
	assert_int_equal(f.releases, 1);
	assert_int_equal(f.wants, 1);
	assert_int_equal(mm_kvman_next_ns(&f.k), 0);
	mm_kvman_manage(&f.k, 4);
	assert_int_equal(f.wants, 2);
	fake_end(&f);
}

static void test_no_answer_is_a_denial(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 0);
	fake_add(&f, 7, 30);
	fake_iterate(&f, 10);
	assert_true(f.k.may_grow);
	assert_int_equal(mm_kvman_next_ns(&f.k), 1010);
	fake_iterate(&f, 1009);
	assert_true(f.k.may_grow);
	fake_iterate(&f, 1010); /* a sequence that lacks a block need not wait any more */
	assert_false(f.k.may_grow);
	assert_int_equal(f.wants, 1);
	assert_int_equal(mm_kvman_next_ns(&f.k), 1060);
	fake_iterate(&f, 1060);
	assert_true(f.k.may_grow);
	assert_int_equal(f.wants, 2);
	f.answer = -ECONNRESET;
	fake_add(&f, 7, 30);
	fake_add(&f, 7, 30);
	assert_int_equal(mm_kvman_manage(&f.k, 1061), -ECONNRESET);
	fake_end(&f);
}

/* The whole share of a static split is requested at once, and kept. */
static void test_fixed(void **state)
{
	struct mm_kvman_config c = times;
	struct fake f;

	(void)state;
	c.fixed = true;
	fake_start(&f, &c, 0);
	f.answer = 0;
	fake_iterate(&f, 1);
	assert_int_equal(f.asked, 3);
	assert_int_equal(f.s.kv.usable_chunks, 3);
	for (uint64_t now = 2; now < 1000; now++)
		fake_iterate(&f, now);
	assert_int_equal(f.releases, 0);
	fake_end(&f);
}

/* Two chunks with two blocks in use each, and an empty one. */
static void half_full(struct fake *f)
{
	uint32_t seq[4];

	fake_start(f, &times, 7);
	for (int i = 0; i < 4; i++)
		seq[i] = fake_add(f, 6, 2);
	assert_int_equal(fake_iterate(f, 1), 4);
	mm_sched_remove(&f->s, seq[0], 2);
	mm_sched_remove(&f->s, seq[2], 2);
	assert_int_equal(f->s.kv.used_chunks, 2);
}

static void test_reclaim_in_two_phases(void **state)
{
	struct fake f;

	(void)state;
	half_full(&f);
	f.busy = true;
	fake_reclaim(&f, 1, 1000, 2);
	assert_int_equal(mm_kvman_manage(&f.k, 2), 0);
	assert_int_equal(f.marks,
			 1); /* nothing to move, but the device may be at the step before */
	/* Two chunks are reclaimed in all: the first is one of them. */
	fake_reclaim(&f, 2, 1000, 3);
	assert_int_equal(mm_kvman_manage(&f.k, 3), 0);
	assert_int_equal(f.moves, 2);
	assert_int_equal(f.marks, 2);
	assert_int_equal(f.releases, 0);
	f.busy = false;
	assert_int_equal(mm_kvman_manage(&f.k, 4), 0);
	assert_int_equal(f.k.chunks_released, 2);
	assert_int_equal(f.k.blocks_moved, 2);
	assert_int_equal(f.s.kv.usable_chunks, 1);
	assert_int_equal(f.s.preemptions, 0);
	f.release_error = -EPROTO;
	fake_reclaim(&f, 9, 0, 5);
	mm_kvman_evict(&f.k, 5);
	assert_int_equal(mm_kvman_manage(&f.k, 5), -EPROTO);
	fake_end(&f);
}

/* All is in use, and the same chunk is reclaimed every 200 while steps take 1000: one goes. */
static void test_asked_again_for_the_same(void **state)
{
	uint64_t now = 1, finished[8];
	struct fake f;

	(void)state;
	fake_start(&f, &times, 0xf);
	for (int i = 0; i < 4; i++)
		fake_add(&f, 14, 40);
	assert_int_equal(fake_iterate(&f, now), 4);
	for (int i = 0; i < 3; i++) {
		fake_manage(&f, now);
		mm_kvman_plan(&f.k, now);
		for (uint64_t end = now + 1000; now < end; now += 200)
			fake_reclaim(&f, 2 - f.releases, now + 200, now);
		mm_kvman_runs(&f.k);
		mm_kvman_ran(&f.k, 1000);
		mm_sched_commit(&f.s, now, finished);
		f.busy = i == 0; /* retired at first, and reclaimed once more */
	}
	fake_manage(&f, now);
	assert_int_equal(f.k.chunks_released, 2);
	assert_int_equal(f.releases, 2);
	assert_int_equal(f.s.kv.usable_chunks, 2);
	assert_int_equal(f.s.kv.draining_chunks, 0);
	fake_end(&f);
}

/*
 * Fewer chunks are owed than before, because fewer are reclaimed or some were released: the others
 * stay.
 */
static void test_owes_less(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 0xf);
	for (int i = 0; i < 4; i++)
		fake_add(&f, 14, 40);
	assert_int_equal(fake_iterate(&f, 1), 4);
	fake_reclaim(&f, 3, 1000, 2);
	assert_int_equal(f.s.kv.draining_chunks, 3);
	fake_reclaim(&f, 2, 1000, 3);
	assert_int_equal(f.s.kv.draining_chunks, 2);
	f.owed = 1;
	fake_manage(&f, 4);
	assert_int_equal(f.s.kv.draining_chunks, 1);
	assert_null(mm_sched_check(&f.s));
	f.owed = 0;
	fake_manage(&f, 2000);
	assert_int_equal(f.s.kv.draining_chunks, 0);
	assert_int_equal(f.evicted, 0);
	assert_int_equal(f.releases, 0);
	assert_int_equal(fake_iterate(&f, 2001), 4);
	fake_end(&f);
}

/*
 * Blocks in use stay for half of the time, or, if steps are long, until two steps are left.
 */
static void test_reclaim_forces(void **state)
{
	for (uint64_t step_ns = 0; step_ns <= 300; step_ns += 300) {
		const uint64_t force = step_ns ? 10 + 1000 - 600 : 10 + 500;
		struct fake f;

		(void)state;
		fake_start(&f, &times, 1);
		fake_add(&f, 14, 30);
		fake_iterate(&f, 1);
		mm_kvman_ran(&f.k, step_ns);
		fake_reclaim(&f, 1, 1010, 10);
		fake_iterate(&f, force - 1);
		assert_int_equal(mm_kvman_next_ns(&f.k), force);
		assert_int_equal(f.releases, 0);
		assert_int_equal(f.s.preemptions, 0);
		fake_iterate(&f, force);
		assert_int_equal(f.s.preemptions, 1);
		assert_int_equal(f.releases, 1);
		fake_end(&f);
	}
}

/*
 * Off turn no sequence ends by itself: all blocks in reclaimed chunks are swapped out at once.
 */
static void test_reclaim_off_turn(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 3);
	assert_int_equal(mm_sched_set_swap(&f.s, 16), 0);
	fake_add(&f, 14, 30);
	fake_add(&f, 14, 30);
	fake_iterate(&f, 1);
	assert_int_equal(f.s.n_running, 2);
	mm_kvman_turn(&f.k, true);
	fake_reclaim(&f, 2, 1010, 10);
	fake_manage(&f, 10);
	assert_int_equal(f.evicted, 0);
	mm_kvman_turn(&f.k, false);
	assert_int_equal(mm_kvman_next_ns(&f.k), 0);
	fake_manage(&f, 11);
	assert_int_equal(f.evicted, 2);
	assert_int_equal(f.swaps, 8);
	assert_int_equal(f.releases, 2);
	f.usable = 3;
	mm_kvman_granted(&f.k, 12);
	assert_int_equal(fake_iterate(&f, 13), 2);
	assert_int_equal(f.s.preemptions, 2);
	fake_end(&f);
}

/* A denial of the time without the turn says nothing of what comes in it. */
static void test_turn_ends_a_denial(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 0);
	mm_kvman_turn(&f.k, false);
	fake_add(&f, 7, 30);
	fake_manage(&f, 10);
	assert_int_equal(f.wants, 1);
	mm_kvman_denied(&f.k, 20);
	fake_manage(&f, 30);
	assert_int_equal(f.wants, 1);
	assert_true(mm_kvman_yields(&f.k));
	mm_kvman_turn(&f.k, true);
	assert_int_equal(fake_iterate(&f, 31), 0);
	assert_int_equal(f.wants, 2);
	assert_false(mm_kvman_yields(&f.k));
	/* One in the turn counts. */
	mm_kvman_denied(&f.k, 40);
	mm_kvman_turn(&f.k, true);
	assert_int_equal(fake_iterate(&f, 41), 0);
	assert_int_equal(f.wants, 2);
	assert_true(mm_kvman_yields(&f.k));
	fake_end(&f);
}

static void test_trims(void **state)
{
	struct fake f;

	(void)state;
	fake_start(&f, &times, 0xff);
	fake_add(&f, 7, 50);
	for (uint64_t now = 1; now < 100; now += 20)
		fake_iterate(&f, now);
	assert_int_equal(f.releases, 0);
	assert_true(mm_kvman_next_ns(&f.k) <= 100);
	fake_iterate(&f, 100);
	assert_int_equal(f.s.kv.usable_chunks, 2);
	assert_int_equal(f.usable, 3); /* the highest chunks are released */
	fake_end(&f);
}

/* When there is nothing to do for long, chunks of --kv-keep stay until they are reclaimed. */
static void test_keeps(void **state)
{
	struct mm_kvman_config config = times;
	struct fake f;

	(void)state;
	config.keep_chunks = 3;
	fake_start(&f, &config, 0xff);
	for (uint64_t now = 1; now < 1000; now += 50)
		mm_kvman_manage(&f.k, now);
	assert_int_equal(f.s.kv.usable_chunks, 3);
	assert_int_equal(mm_kvman_next_ns(&f.k), UINT64_MAX);
	fake_reclaim(&f, 2, 2000, 1000);
	mm_kvman_manage(&f.k, 1000);
	assert_int_equal(f.s.kv.usable_chunks, 1);
	fake_end(&f);
}

/* When the blocks in use have fitted into one chunk for a while, the other one is emptied. */
static void test_compacts(void **state)
{
	struct fake f;

	(void)state;
	half_full(&f);
	mm_kvman_manage(&f.k, 2);
	mm_kvman_manage(&f.k, 101); /* the empty chunk is released */
	assert_int_equal(f.releases, 1);
	assert_int_equal(f.moves, 0);
	mm_kvman_manage(&f.k, 102);
	assert_int_equal(f.releases, 2);
	assert_int_equal(f.moves, 2);
	assert_int_equal(f.s.kv.usable_chunks, 1);
	for (uint64_t now = 103; now < 500; now++)
		mm_kvman_manage(&f.k, now);
	assert_int_equal(f.releases, 2);
	assert_int_equal(f.s.preemptions, 0);
	fake_end(&f);
}

static void test_stuck(void **state)
{
	struct mm_kvman_config c = times;
	uint32_t old, young;
	struct fake f;

	(void)state;
	c.retry_ns = 100000;
	fake_start(&f, &c, 0);
	f.answer = -ENOSPC;
	assert_int_equal(mm_kvman_stuck(&f.k, 1), MM_KV_NONE);
	old = fake_add(&f, 9, 9);
	young = fake_add(&f, 9, 9);
	fake_iterate(&f, 10);
	assert_int_equal(mm_kvman_stuck(&f.k, 10), MM_KV_NONE);
	assert_int_equal(mm_kvman_next_ns(&f.k), 5010);
	assert_int_equal(mm_kvman_stuck(&f.k, 5009), MM_KV_NONE);
	assert_int_equal(mm_kvman_stuck(&f.k, 5010), old);
	mm_sched_remove(&f.s, old, 5010);
	assert_int_equal(mm_kvman_stuck(&f.k, 5011), MM_KV_NONE);
	mm_kvman_runs(&f.k);
	assert_int_equal(mm_kvman_stuck(&f.k, 10011), MM_KV_NONE);
	assert_int_equal(mm_kvman_stuck(&f.k, 15011), young);
	fake_end(&f);
}

/* ---- random runs ---- */

static uint64_t sim_seed, sim_quiet;

static uint32_t random_draw(uint64_t *rng, uint32_t below)
{
	return (uint32_t)mm_random_below(rng, below);
}

static void something_happens(struct fake *f, uint64_t *rng, uint64_t now_ns, uint32_t *left)
{
	uint32_t seq, number;

	/* Compilers differ in the order of arguments, so that no call draws two numbers. */
	switch (random_draw(rng, 8)) {
	case 0:
		f->usable |= UINT64_C(1) << random_draw(rng, CHUNKS);
		mm_kvman_granted(&f->k, now_ns);
		break;
	case 1:
		mm_kvman_denied(&f->k, now_ns);
		break;
	case 2:
		number = 1 + random_draw(rng, 3);
		fake_reclaim(f, number, now_ns + random_draw(rng, 600), now_ns);
		break;
	case 3:
		f->busy = random_draw(rng, 2);
		break;
	case 4:
		mm_kvman_turn(&f->k, random_draw(rng, 2));
		f->answer = (int[]){ 0, -EAGAIN, -ENOSPC }[random_draw(rng, 3)];
		break;
	default:
		number = 1 + random_draw(rng, 30);
		if (*left && !mm_sched_add(&f->s, number, 1 + random_draw(rng, 30), 0, &seq))
			--*left;
		break;
	}
}

/* Before next_ns nothing but the load is reported, unless the device's work ends. */
static void quiet_until(struct fake *f, uint64_t *rng, uint64_t *now_ns)
{
	uint32_t calls;
	uint64_t next;

	fake_manage(f, *now_ns); /* the plan may have preempted a sequence */
	next = mm_kvman_next_ns(&f->k);
	calls = f->wants + f->moves + f->marks + f->releases + f->evicted;
	if (next <= *now_ns || (f->k.n_retired && !f->busy))
		return;
	*now_ns += random_draw(rng, (uint32_t)MM_MIN(next - *now_ns, 3000));
	fake_manage(f, *now_ns);
	assert_int_equal(f->wants + f->moves + f->marks + f->releases + f->evicted, calls);
	sim_quiet++;
}

static void random_run(uint64_t seed)
{
	uint64_t rng = seed * 2654435761u + 1, now = 1;
	uint32_t left = 40, turns = 0;
	struct fake f;

	fake_start(&f, &times, random_draw(&rng, 1u << CHUNKS));
	if (random_draw(&rng, 2))
		assert_int_equal(mm_sched_set_swap(&f.s, 1 + random_draw(&rng, 60)), 0);
	while (left || f.s.n_running || f.s.n_waiting) {
		uint32_t stuck;

		if (++turns > 100000)
			fail_msg("seed=%llu: does not end", (unsigned long long)seed);
		now += random_draw(&rng, 40);
		if (random_draw(&rng, 2))
			something_happens(&f, &rng, now, &left);
		if (!fake_iterate(&f, now)) {
			stuck = mm_kvman_stuck(&f.k, now);
			if (stuck != MM_KV_NONE)
				mm_sched_remove(&f.s, stuck, now);
			quiet_until(&f, &rng, &now);
		}
		assert_null(mm_sched_check(&f.s));
		assert_int_equal(f.s.kv.usable_chunks, __builtin_popcountll(f.usable));
	}
	f.busy = false;
	f.answer = -ENOSPC;
	for (uint32_t i = 0; i < 9; i++, now += 200)
		fake_iterate(&f, now);
	assert_int_equal(f.s.kv.usable_chunks, 0); /* all are released when idle */
	fake_end(&f);
}

/* Runs after a failure, too, and prints the seed that failed. */
static int print_seed(void **state)
{
	(void)state;
	print_message("seeds from 0 to %llu\n", (unsigned long long)sim_seed);
	return 0;
}

static void test_random_runs(void **state)
{
	(void)state;
	for (sim_seed = 0; sim_seed < 300; sim_seed++)
		random_run(sim_seed);
	assert_true(sim_quiet > 1000); /* else nothing was tested */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_asks_ahead_and_waits),
		cmocka_unit_test(test_denied),
		cmocka_unit_test(test_asks_anew_after_a_release),
		cmocka_unit_test(test_no_answer_is_a_denial),
		cmocka_unit_test(test_fixed),
		cmocka_unit_test(test_reclaim_in_two_phases),
		cmocka_unit_test(test_asked_again_for_the_same),
		cmocka_unit_test(test_owes_less),
		cmocka_unit_test(test_reclaim_forces),
		cmocka_unit_test(test_reclaim_off_turn),
		cmocka_unit_test(test_turn_ends_a_denial),
		cmocka_unit_test(test_trims),
		cmocka_unit_test(test_keeps),
		cmocka_unit_test(test_compacts),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test_teardown(test_random_runs, print_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
