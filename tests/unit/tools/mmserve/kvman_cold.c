/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine copies blocks to entries of a cold pool. A fake memory never grants more: single
 * decisions, then seeded random runs in which copies end late, fail, or are refused.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tests/unit/tools/mmserve/sched.h"
#include "tools/mmserve/sched/kvman.h"

#define COLD_CHUNKS 16u
#define FLYING_MAX  64u

struct cold_fake {
	struct mm_sched s;
	struct mm_kvman k;
	uint64_t usable, version;
	uint32_t asked, owed, calls;
	int cool_answer;
	struct mm_sched_swap flying[FLYING_MAX];
	uint32_t n_flying;
};

static int cold_fake_want(void *context, uint32_t chunks_total)
{
	struct cold_fake *f = context;

	f->asked = chunks_total;
	f->calls++;
	return -ENOSPC;
}

static void cold_fake_usable(void *context, uint64_t *ret_bitmap, size_t words)
{
	const struct cold_fake *f = context;

	assert_int_equal(words, 1);
	*ret_bitmap = f->usable;
}

static uint32_t cold_fake_owed(void *context)
{
	const struct cold_fake *f = context;

	return f->owed;
}

static int cold_fake_release(void *context, uint32_t chunk)
{
	struct cold_fake *f = context;

	f->usable &= ~(UINT64_C(1) << chunk);
	f->owed -= f->owed != 0;
	f->calls++;
	return 0;
}

/* A block that is being copied stays where it is. */
static int cold_fake_move(void *context, const struct mm_sched_move *moves, uint32_t n)
{
	struct cold_fake *f = context;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < f->n_flying; j++)
			assert_int_not_equal(moves[i].from, f->flying[j].block);
	f->calls++;
	return 0;
}

static int cold_fake_mark(void *context)
{
	(void)context;
	return 0;
}

static void cold_fake_load(void *context, const struct mm_kvman_load *load)
{
	(void)context;
	(void)load;
}

static int cold_fake_cool(void *context, const struct mm_sched_swap *swaps, uint32_t n)
{
	struct cold_fake *f = context;

	assert_in_range(n, 1, MM_KVMAN_COOLS);
	f->calls++;
	if (f->cool_answer)
		return f->cool_answer;
	for (uint32_t i = 0; i < n; i++)
		f->flying[f->n_flying++] = swaps[i];
	return 0;
}

static const struct mm_kvman_ops cold_ops = {
	.want = cold_fake_want,
	.usable = cold_fake_usable,
	.owed = cold_fake_owed,
	.release = cold_fake_release,
	.move = cold_fake_move,
	.mark = cold_fake_mark,
	.marked = cold_fake_mark,
	.load = cold_fake_load,
	.cool = cold_fake_cool,
};

/* Idle chunks stay for the whole of a test, but for those of the random runs. */
static void cold_start(struct cold_fake *f, uint32_t chunks, uint32_t entries, uint32_t room)
{
	static const struct mm_sched_config config = {
		.max_seqs = 64,
		.max_batch = 8,
		.max_batched_tokens = 256,
		.max_tokens = 64,
		.block_tokens = 4,
		.kv_chunks = COLD_CHUNKS,
		.kv_blocks_per_chunk = 4,
		.lookahead_blocks = MM_KVMAN_LOOKAHEAD_BLOCKS,
	};
	static const struct mm_kvman_config times = {
		.idle_ns = 1000000, .timeout_ns = 5000, .answer_ns = 1000, .retry_ns = 50
	};

	*f = (struct cold_fake){ .usable = (UINT64_C(1) << chunks) - 1 };
	assert_int_equal(mm_sched_init(&f->s, &config), 0);
	assert_int_equal(mm_sched_set_swap(&f->s, entries + 20), 0);
	assert_int_equal(mm_sched_set_cold(&f->s, entries), 0);
	mm_sched_cold_room(&f->s, room);
	assert_int_equal(mm_kvman_init(&f->k, &times, &f->s, &cold_ops, f), 0);
	mm_kvman_granted(&f->k, 0);
}

static void cold_end(struct cold_fake *f)
{
	sched_check(&f->s);
	mm_kvman_done(&f->k);
	mm_sched_done(&f->s);
}

static void cold_add(struct cold_fake *f, uint32_t prompt, uint32_t output)
{
	uint32_t seq;

	assert_int_equal(mm_sched_add(&f->s, prompt, output, 0, &seq), 0);
}

/* The copy of list @at ends. */
static void cold_land(struct cold_fake *f, uint32_t at, bool failed, uint64_t now_ns)
{
	const struct mm_sched_swap x = f->flying[at];

	f->flying[at] = f->flying[--f->n_flying];
	mm_sched_cooled(&f->s, x.slot, failed, now_ns);
	sched_check(&f->s);
}

/* All bits are committed. With @late, what has changed is streamed from the next call on. */
static void cold_commit(struct cold_fake *f, bool late, uint64_t now_ns)
{
	uint32_t entry;
	bool live, any = false;

	while (mm_kvcold_changed(&f->s.cold, &entry, &live))
		any = true;
	f->version += any;
	mm_kvcold_committed(&f->s.cold, f->version);
	mm_sched_cold_acked(&f->s, f->version - (late && any), now_ns);
	sched_check(&f->s);
}

/* Return: how many sequences the plan had work for. */
static uint32_t cold_iterate(struct cold_fake *f, uint64_t now_ns)
{
	const struct mm_sched_plan *p = mm_kvman_evict(&f->k, now_ns);
	uint64_t finished[8];
	uint32_t items;

	assert_int_equal(mm_kvman_manage(&f->k, now_ns), 0);
	sched_check(&f->s);
	p = mm_kvman_plan(&f->k, now_ns);
	items = p->n_items;
	if (items) {
		mm_kvman_runs(&f->k);
		mm_sched_commit(&f->s, now_ns, finished);
	}
	return items;
}

/* Two sequences in eight blocks, each of which grows to eight. */
static void two_in_eight(struct cold_fake *f, uint32_t room)
{
	cold_start(f, 2, 16, room);
	cold_add(f, 14, 18);
	cold_add(f, 14, 18);
	assert_int_equal(cold_iterate(f, 1), 2);
}

/* Four blocks are full, and two more of each sequence are wanted ahead: four are copied. */
static void test_cools_what_is_wanted_ahead(void **state)
{
	struct cold_fake f;

	(void)state;
	two_in_eight(&f, 16);
	assert_int_equal(mm_kvman_manage(&f.k, 2), 0);
	assert_int_equal(f.k.blocks_cooled, 4);
	assert_int_equal(f.n_flying, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(f.flying[i].slot, i);
	/* Blocks whose copies are under way, or whose entries are not usable yet, count as free. */
	assert_int_equal(mm_kvman_manage(&f.k, 3), 0);
	while (f.n_flying)
		cold_land(&f, 0, false, 3);
	cold_commit(&f, true, 3);
	assert_int_equal(mm_kvman_manage(&f.k, 3), 0);
	assert_int_equal(f.k.blocks_cooled, 4);
	assert_int_equal(f.s.kv.free_blocks, 0);
	cold_commit(&f, false, 4);
	assert_int_equal(f.s.kv.free_blocks, 4);
	assert_int_equal(mm_sched_cold_words(&f.s), 4);
	cold_end(&f);
}

static uint64_t preemptions_with(uint32_t room)
{
	struct cold_fake f;
	uint64_t preemptions, now = 2;

	two_in_eight(&f, room);
	while (f.s.n_running || f.s.n_waiting) {
		while (f.n_flying)
			cold_land(&f, 0, false, now);
		cold_commit(&f, true, now);
		cold_iterate(&f, now++);
		assert_true(now < 1000);
	}
	preemptions = f.s.preemptions;
	assert_int_equal(f.s.cold.n_live, 0);
	assert_int_equal(f.s.free_slots, f.s.n_slots);
	cold_end(&f);
	return preemptions;
}

static void test_cold_blocks_spare_preemptions(void **state)
{
	(void)state;
	assert_true(preemptions_with(0) > 0);
	assert_int_equal(preemptions_with(16), 0);
}

/* Blocks that are in entries are not requested; those that could be are. */
static void test_asks_for_hot_blocks_only(void **state)
{
	struct cold_fake f;

	(void)state;
	two_in_eight(&f, 0);
	assert_int_equal(mm_kvman_manage(&f.k, 100), 0);
	assert_int_equal(f.asked, 3); /* for 12 blocks */
	assert_int_equal(f.k.blocks_cooled, 0);
	mm_sched_cold_room(&f.s, 4);
	f.asked = 0;
	assert_int_equal(mm_kvman_manage(&f.k, 200), 0);
	assert_int_equal(f.asked, 3);
	while (f.n_flying)
		cold_land(&f, 0, false, 250);
	cold_commit(&f, false, 250);
	assert_int_equal(mm_sched_cold_words(&f.s), 4);
	f.asked = 0;
	assert_int_equal(mm_kvman_manage(&f.k, 300), 0);
	assert_int_equal(f.asked, 0); /* 8 blocks are there */
	cold_end(&f);
}

/* A refusal leaves all as it was, and is repeated; an error ends the run. */
static void test_copies_are_refused(void **state)
{
	struct cold_fake f;

	(void)state;
	two_in_eight(&f, 16);
	f.cool_answer = -EAGAIN;
	for (uint64_t now = 2; now < 4; now++) {
		assert_int_equal(mm_kvman_manage(&f.k, now), 0);
		assert_int_equal(f.s.cold.n_free, 16);
		assert_int_equal(mm_sched_cooling(&f.s), 0);
		sched_check(&f.s);
	}
	assert_int_equal(f.k.blocks_cooled, 0);
	f.cool_answer = -EIO;
	assert_int_equal(mm_kvman_manage(&f.k, 4), -EIO);
	sched_check(&f.s);
	f.cool_answer = 0;
	assert_int_equal(mm_kvman_manage(&f.k, 5), 0);
	assert_int_equal(f.k.blocks_cooled, 4);
	cold_end(&f);
}

/* Chunks that are reclaimed are emptied by copies to entries, in as many calls as it takes. */
static void test_reclaimed_chunks_cool(void **state)
{
	struct cold_fake f;

	(void)state;
	cold_start(&f, 16, 100, 100);
	for (uint32_t i = 0; i < 4; i++)
		cold_add(&f, 61, 2);
	assert_int_equal(cold_iterate(&f, 1), 4);
	f.owed = 14;
	mm_kvman_reclaim(&f.k, 1000, 2);
	assert_int_equal(mm_kvman_manage(&f.k, 2), 0);
	assert_int_equal(f.k.blocks_cooled, MM_KVMAN_COOLS);
	assert_int_equal(mm_kvman_next_ns(&f.k), 0);
	assert_int_equal(mm_kvman_manage(&f.k, 2), 0);
	assert_true(f.k.blocks_cooled > MM_KVMAN_COOLS && f.k.blocks_cooled <= 60);
	assert_int_not_equal(mm_kvman_next_ns(&f.k), 0);
	assert_int_equal(f.k.chunks_released, 0);
	while (f.n_flying)
		cold_land(&f, 0, false, 3);
	cold_commit(&f, false, 3);
	assert_int_equal(mm_kvman_manage(&f.k, 3), 0);
	assert_int_equal(f.k.chunks_released, 14);
	assert_int_equal(f.s.preemptions, 0);
	assert_int_equal(f.s.n_running, 4);
	cold_end(&f);
}

/* ---- random runs ---- */

static uint64_t cold_seed, cold_quiet, cold_copies;

static uint32_t chance(uint64_t *rng, uint32_t below)
{
	return (uint32_t)mm_random_below(rng, below);
}

static void cold_happens(struct cold_fake *f, uint64_t *rng, uint64_t now_ns, uint32_t *left)
{
	uint32_t seq, number;

	switch (chance(rng, 6)) {
	case 0:
		f->usable |= UINT64_C(1) << chance(rng, COLD_CHUNKS);
		mm_kvman_granted(&f->k, now_ns);
		break;
	case 1:
		f->owed = 1 + chance(rng, 2);
		mm_kvman_reclaim(&f->k, now_ns + chance(rng, 600), now_ns);
		break;
	case 2:
		f->cool_answer = chance(rng, 3) ? 0 : -EAGAIN;
		break;
	case 3:
		number = chance(rng, f->s.cold.n_entries + 1);
		mm_sched_cold_room(&f->s, chance(rng, 2) ? number : f->s.cold.n_entries);
		break;
	default:
		number = 1 + chance(rng, 30);
		if (*left && !mm_sched_add(&f->s, number, 1 + chance(rng, 30), 0, &seq))
			--*left;
		break;
	}
	while (f->n_flying && chance(rng, 4)) {
		number = chance(rng, f->n_flying);
		cold_land(f, number, chance(rng, 20) == 0, now_ns);
	}
	cold_commit(f, chance(rng, 2), now_ns);
}

/* Before next_ns, and without an event, nothing is called. */
static void cold_quiet_until(struct cold_fake *f, uint64_t *rng, uint64_t *now_ns)
{
	uint64_t next;
	uint32_t calls;

	mm_kvman_evict(&f->k, *now_ns);
	assert_int_equal(mm_kvman_manage(&f->k, *now_ns), 0);
	next = mm_kvman_next_ns(&f->k);
	calls = f->calls;
	if (next <= *now_ns || f->k.n_retired || f->cool_answer)
		return;
	*now_ns += chance(rng, (uint32_t)MM_MIN(next - *now_ns, 3000));
	mm_kvman_evict(&f->k, *now_ns);
	assert_int_equal(mm_kvman_manage(&f->k, *now_ns), 0);
	assert_int_equal(f->calls, calls);
	cold_quiet++;
}

static void cold_run(uint64_t seed)
{
	uint64_t rng = seed * 2654435761u + 3, now = 1;
	uint32_t left = 40, turns = 0;
	struct cold_fake f;

	cold_start(&f, 1 + chance(&rng, 6), 40, 40);
	while (left || f.s.n_running || f.s.n_waiting) {
		uint32_t stuck;

		if (++turns > 100000)
			fail_msg("seed=%llu: does not end", (unsigned long long)seed);
		now += chance(&rng, 40);
		if (chance(&rng, 2))
			cold_happens(&f, &rng, now, &left);
		if (!cold_iterate(&f, now)) {
			stuck = mm_kvman_stuck(&f.k, now);
			if (stuck != MM_KV_NONE)
				mm_sched_remove(&f.s, stuck, now);
			cold_quiet_until(&f, &rng, &now);
		}
		sched_check(&f.s);
	}
	while (f.n_flying)
		cold_land(&f, 0, false, now);
	assert_int_equal(f.s.kv.used_blocks, 0);
	assert_int_equal(f.s.free_slots, f.s.n_slots);
	cold_copies += f.k.blocks_cooled;
	cold_end(&f);
}

/* Runs after a failure, too, and prints the seed that failed. */
static int print_cold_seed(void **state)
{
	(void)state;
	print_message("seeds from 0 to %llu: %llu blocks cooled, %llu times quiet\n",
		      (unsigned long long)cold_seed, (unsigned long long)cold_copies,
		      (unsigned long long)cold_quiet);
	return 0;
}

static void test_cold_runs(void **state)
{
	(void)state;
	for (cold_seed = 0; cold_seed < 200; cold_seed++)
		cold_run(cold_seed);
	assert_true(cold_quiet > 500 && cold_copies > 1000); /* else nothing was tested */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cools_what_is_wanted_ahead),
		cmocka_unit_test(test_cold_blocks_spare_preemptions),
		cmocka_unit_test(test_asks_for_hot_blocks_only),
		cmocka_unit_test(test_copies_are_refused),
		cmocka_unit_test(test_reclaimed_chunks_cool),
		cmocka_unit_test_teardown(test_cold_runs, print_cold_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
