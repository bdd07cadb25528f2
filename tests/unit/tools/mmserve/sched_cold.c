/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch scheduler with a cold pool in seeded random runs. Contents are symbols: a block, a slot
 * and a streamed row each hold which tokens of which request they have. Rows are streamed by a
 * bitmap that is read at random times, some versions late, and a step reads a cold word only from
 * the row. Copies to entries end at random times, and some fail.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tests/unit/tools/mmserve/sched.h"

#define REQUESTS   40u
#define BLOCKS_MAX 1024u
#define SLOTS_MAX  256u
#define CLASSES    3u

struct cold_sim {
	struct mm_sched s;
	struct mm_sched_config config;
	uint64_t rng, now_ns, version;
	uint32_t content[BLOCKS_MAX]; /* request << 12 | tokens written */
	uint32_t slot[SLOTS_MAX];
	uint32_t row[CLASSES][SLOTS_MAX]; /* what each class's part of the window holds */
	uint64_t live[SLOTS_MAX / 64];    /* the tenant's bits */
	uint64_t seen[CLASSES];           /* the version that each class's transfer began with */
	struct mm_sched_swap flying[SLOTS_MAX];
	uint32_t n_flying;
	uint32_t output[REQUESTS], sampled[REQUESTS], added, done;
	uint32_t retired[BLOCKS_MAX], n_retired;
	uint64_t cold_reads, cooled, kept;
	bool shrinks;
};

static uint32_t cold_draw(struct cold_sim *w, uint32_t below)
{
	return (uint32_t)mm_random_below(&w->rng, below);
}

static void world_init(struct cold_sim *w, uint64_t seed)
{
	uint32_t slots, entries;

	*w = (struct cold_sim){ .rng = seed * 2654435761u + 7 };
	w->config = (struct mm_sched_config){
		.max_seqs = 4 + cold_draw(w, 20),
		.max_batch = 1 + cold_draw(w, 8),
		.max_tokens = 60,
		.block_tokens = 1 + cold_draw(w, 5),
		.kv_blocks_per_chunk = 1 + cold_draw(w, 6),
	};
	w->config.max_batched_tokens = w->config.max_batch + cold_draw(w, 20);
	w->config.lookahead_blocks = cold_draw(w, 3);
	w->config.swap_tokens = cold_draw(w, 12);
	w->config.slice_tokens = cold_draw(w, 2) * (1 + cold_draw(w, 6));
	w->config.admit = (enum mm_admit)cold_draw(w, MM_ADMIT_COUNT);
	w->config.kv_chunks = 60 / w->config.kv_blocks_per_chunk + 1 + cold_draw(w, 6);
	assert_int_equal(mm_sched_init(&w->s, &w->config), 0);
	entries = 1 + cold_draw(w, 100);
	slots = entries + cold_draw(w, 100);
	assert_int_equal(mm_sched_set_swap(&w->s, slots), 0);
	assert_int_equal(mm_sched_set_cold(&w->s, entries), 0);
	mm_sched_cold_room(&w->s, entries);
	w->shrinks = cold_draw(w, 2);
}

static void world_swaps(struct cold_sim *w, const struct mm_sched_plan *p)
{
	for (uint32_t i = 0; i < p->n_swaps; i++) {
		const struct mm_sched_swap *x = &p->swaps[i];

		assert_true(x->slot < w->s.n_slots);
		if (p->swaps_in)
			w->content[x->block] = w->slot[x->slot];
		else
			w->slot[x->slot] = w->content[x->block];
	}
	for (uint32_t i = 0; i < p->n_swaps; i++)
		if (cold_draw(w, 60) == 0)
			mm_sched_swap_failed(&w->s, p->swaps[i].seq, w->now_ns);
	sched_check(&w->s);
}

static void world_chunks(struct cold_sim *w)
{
	struct mm_sched_move moves[8];
	uint32_t chunk, n;

	w->now_ns += cold_draw(w, 4);
	world_swaps(w, mm_sched_evict(&w->s, w->now_ns, cold_draw(w, 4) == 0));
	if (cold_draw(w, 3) == 0)
		mm_kvblocks_add_chunk(&w->s.kv, cold_draw(w, w->config.kv_chunks), 0);
	if (cold_draw(w, 30) == 0)
		mm_sched_reclaim(&w->s, 1 + cold_draw(w, 3), w->now_ns + cold_draw(w, 20));
	while (cold_draw(w, 4) && !(cold_draw(w, 40) ? mm_sched_retire : mm_sched_compact)(
					  &w->s, w->now_ns, &chunk, moves, &n)) {
		sched_check(&w->s);
		for (uint32_t i = 0; i < n; i++) {
			w->content[moves[i].to] = w->content[moves[i].from];
			w->content[moves[i].from] = UINT32_MAX;
		}
		w->retired[w->n_retired++] = chunk;
	}
	while (w->n_retired && cold_draw(w, 3)) {
		chunk = w->retired[--w->n_retired];
		for (uint32_t i = 0; i < w->config.kv_blocks_per_chunk; i++)
			w->content[chunk * w->config.kv_blocks_per_chunk + i] = UINT32_MAX;
		mm_kvblocks_remove_chunk(&w->s.kv, chunk);
	}
	sched_check(&w->s);
}

/* A copy reads its block when it is done, so the block must not have changed until then. */
static void world_land(struct cold_sim *w)
{
	while (w->n_flying && cold_draw(w, 3)) {
		const uint32_t at = cold_draw(w, w->n_flying);
		const struct mm_sched_swap x = w->flying[at];
		const bool failed = cold_draw(w, 20) == 0;

		w->flying[at] = w->flying[--w->n_flying];
		w->slot[x.slot] = failed ? UINT32_MAX : w->content[x.block];
		mm_sched_cooled(&w->s, x.slot, failed, w->now_ns);
		sched_check(&w->s);
	}
}

static void world_commit(struct cold_sim *w)
{
	uint32_t entry;
	bool live, any = false;

	while (mm_kvcold_changed(&w->s.cold, &entry, &live)) {
		const uint64_t bit = UINT64_C(1) << entry % 64;

		w->live[entry / 64] = live ? w->live[entry / 64] | bit : w->live[entry / 64] & ~bit;
		any = true;
	}
	assert_true(any || !w->s.cold.unversioned);
	w->version += any;
	mm_kvcold_committed(&w->s.cold, w->version);
	sched_check(&w->s);
}

/*
 * A class's transfer for the next step may begin between two steps: it takes the version, the bits
 * and the bytes of then. Other classes are left as they were.
 */
static uint64_t world_stream(struct cold_sim *w)
{
	uint64_t acked = UINT64_MAX;

	for (uint32_t k = 0; k < CLASSES; k++) {
		if (cold_draw(w, 2)) {
			w->seen[k] = w->version;
			for (uint32_t i = 0; i < w->s.cold.n_entries; i++)
				w->row[k][i] =
					w->live[i / 64] >> i % 64 & 1 ? w->slot[i] : UINT32_MAX;
		}
		acked = MM_MIN(acked, w->seen[k]);
	}
	return acked;
}

/* Fails unless word @word of a table, read in every class, is @want. */
static void world_read(struct cold_sim *w, uint32_t word, uint32_t want)
{
	if (!(word & MM_KV_COLD)) {
		assert_int_equal(w->content[word], want);
		return;
	}
	for (uint32_t k = 0; k < CLASSES; k++)
		assert_int_equal(w->row[k][word & ~MM_KV_COLD], want);
	w->cold_reads++;
}

static void world_compute(struct cold_sim *w, const struct mm_sched_plan *p)
{
	const uint32_t bt = w->config.block_tokens;

	for (uint32_t i = 0; i < p->n_items; i++) {
		const struct mm_sched_item *item = &p->items[i];
		const struct mm_seq *q = &w->s.seqs[item->seq];
		const uint32_t *table = mm_sched_table(&w->s, item->seq);

		assert_int_equal(item->first, q->computed);
		for (uint32_t t = 0; t < item->first; t += bt)
			world_read(w, table[t / bt],
				   (uint32_t)(q->user << 12 | MM_MIN(bt, item->first - t)));
		for (uint32_t t = item->first; t < item->first + item->tokens; t++) {
			assert_false(table[t / bt] & MM_KV_COLD);
			w->content[table[t / bt]] = (uint32_t)(q->user << 12 | (t % bt + 1));
		}
		w->sampled[q->user] += item->samples;
	}
}

static void world_cool(struct cold_sim *w)
{
	struct mm_sched_swap swaps[16];
	const uint32_t n = mm_sched_cool(&w->s, cold_draw(w, 12), swaps);

	for (uint32_t i = 0; i < n; i++)
		w->flying[w->n_flying++] = swaps[i];
	w->cooled += n;
	sched_check(&w->s);
	if (w->shrinks && cold_draw(w, 50) == 0)
		mm_sched_cold_room(&w->s, cold_draw(w, w->s.cold.n_entries + 1));
	sched_check(&w->s);
}

static void world_step(struct cold_sim *w)
{
	uint64_t finished[16];
	const struct mm_sched_plan *p;
	uint32_t n;

	world_cool(w);
	world_land(w);
	world_commit(w);
	mm_sched_cold_acked(&w->s, world_stream(w), w->now_ns);
	sched_check(&w->s);
	/* Evicts those whose tables have entries beyond the room, so it precedes the step. */
	world_chunks(w);
	p = mm_sched_step(&w->s, w->now_ns, cold_draw(w, 2));
	sched_check(&w->s);
	for (uint32_t i = 0; i < p->n_preempted; i++)
		w->kept += w->s.seqs[p->preempted[i]].n_cold;
	world_swaps(w, p);
	if (cold_draw(w, 10) == 0)
		return;
	world_compute(w, p);
	n = mm_sched_commit(&w->s, w->now_ns, finished);
	sched_check(&w->s);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(w->sampled[finished[i]], w->output[finished[i]]);
	w->done += n;
}

static uint64_t all_reads, all_cooled, all_kept, world_seed;

static void world_run(uint64_t seed)
{
	static struct cold_sim w;
	uint32_t seq, steps = 0;

	world_init(&w, seed);
	while (w.done < REQUESTS) {
		if (++steps > 100000)
			fail_msg("seed=%llu: does not end", (unsigned long long)seed);
		while (w.added < REQUESTS && cold_draw(&w, 4) == 0) {
			w.output[w.added] = 1 + cold_draw(&w, 40);
			if (mm_sched_add(&w.s, 1 + cold_draw(&w, 20), w.output[w.added], w.added,
					 &seq))
				break;
			w.added++;
		}
		world_step(&w);
	}
	while (w.n_flying)
		world_land(&w);
	assert_int_equal(w.s.kv.used_blocks, 0);
	assert_int_equal(w.s.free_slots, w.s.n_slots);
	assert_int_equal(w.s.cold.n_live, 0);
	all_reads += w.cold_reads;
	all_cooled += w.cooled;
	all_kept += w.kept;
	mm_sched_done(&w.s);
}

static int print_world(void **state)
{
	(void)state;
	print_message("seeds to %llu: %llu reads of entries, %llu blocks cooled, %llu kept\n",
		      (unsigned long long)world_seed, (unsigned long long)all_reads,
		      (unsigned long long)all_cooled, (unsigned long long)all_kept);
	return 0;
}

static void test_cold_random_runs(void **state)
{
	(void)state;
	for (world_seed = 0; world_seed < 400; world_seed++)
		world_run(world_seed);
	assert_true(all_reads > 10000 && all_cooled > 1000 && all_kept > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_cold_random_runs, print_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
