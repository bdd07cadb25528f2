/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch scheduler in seeded random runs: every invariant is checked after every step, and at
 * the end of a run every request must have got exactly its tokens.
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

#define SIM_REQUESTS 60u

struct sim {
	struct mm_sched s;
	struct mm_sched_config config;
	uint64_t rng;
	uint32_t prompt[SIM_REQUESTS], output[SIM_REQUESTS], sampled[SIM_REQUESTS];
	uint32_t content[4096]; /* by block: request << 12 | tokens written, to find lost copies */
	uint32_t slot[256];     /* the same by slot of the swap space */
	uint32_t swapped;
	bool finished[SIM_REQUESTS];
	uint32_t added, done;
	uint32_t retired[64], n_retired; /* chunks whose moves are enqueued */
	uint64_t now_ns;
};

static uint32_t sim_draw(struct sim *sim, uint32_t below)
{
	return (uint32_t)mm_random_below(&sim->rng, below);
}

static void sim_init(struct sim *sim, uint64_t seed)
{
	*sim = (struct sim){ .rng = seed * 2654435761u + 1 };
	sim->config = (struct mm_sched_config){
		.max_seqs = 4 + sim_draw(sim, 30),
		.max_batch = 1 + sim_draw(sim, 8),
		.max_tokens = 40,
		.block_tokens = 1 + sim_draw(sim, 7),
		.kv_blocks_per_chunk = 1 + sim_draw(sim, 6),
	};
	sim->config.max_batched_tokens = sim->config.max_batch + sim_draw(sim, 20);
	sim->config.lookahead_blocks = sim_draw(sim, 3);
	sim->config.swap_tokens = sim_draw(sim, 12);
	sim->config.slice_tokens = sim_draw(sim, 2) * (1 + sim_draw(sim, 6));
	sim->config.admit = (enum mm_admit)sim_draw(sim, MM_ADMIT_COUNT);
	sim->config.kv_chunks = 40 / sim->config.kv_blocks_per_chunk + 1 + sim_draw(sim, 10);
	assert_int_equal(mm_sched_init(&sim->s, &sim->config), 0);
	if (sim_draw(sim, 2))
		assert_int_equal(mm_sched_set_swap(&sim->s, 1 + sim_draw(sim, 60)), 0);
	for (uint32_t i = 0; i < SIM_REQUESTS; i++) {
		sim->prompt[i] = 1 + sim_draw(sim, 20);
		sim->output[i] = 1 + sim_draw(sim, 20);
	}
}

/* Does a plan's swaps, even if its items are not executed; some of them fail. */
static void sim_swaps(struct sim *sim, const struct mm_sched_plan *p)
{
	for (uint32_t i = 0; i < p->n_swaps; i++) {
		const struct mm_sched_swap *w = &p->swaps[i];

		assert_true(w->slot < sim->s.n_slots);
		sim->swapped++;
		if (p->swaps_in)
			sim->content[w->block] = sim->slot[w->slot];
		else
			sim->slot[w->slot] = sim->content[w->block];
	}
	for (uint32_t i = 0; i < p->n_swaps; i++)
		if (sim_draw(sim, 30) == 0)
			mm_sched_swap_failed(&sim->s, p->swaps[i].seq, 0);
	sched_check(&sim->s);
}

static void sim_chunks(struct sim *sim)
{
	struct mm_sched_move moves[8];
	uint32_t chunk, n;
	uint64_t deadline_ns;

	sim->now_ns += sim_draw(sim, 4);
	if (sim_draw(sim, 2))
		sim_swaps(sim, mm_sched_evict(&sim->s, sim->now_ns, sim_draw(sim, 4) == 0));
	if (sim_draw(sim, 3) == 0)
		mm_kvblocks_add_chunk(&sim->s.kv, sim_draw(sim, sim->config.kv_chunks), 0);
	if (sim_draw(sim, 24) == 0) {
		deadline_ns = sim->now_ns + sim_draw(sim, 20);
		mm_sched_reclaim(&sim->s, 1 + sim_draw(sim, 3), deadline_ns);
	}
	while (sim_draw(sim, 4) && !(sim_draw(sim, 99) ? mm_sched_retire : mm_sched_compact)(
					   &sim->s, sim->now_ns, &chunk, moves, &n)) {
		sched_check(&sim->s);
		for (uint32_t i = 0; i < n; i++) {
			assert_int_not_equal(moves[i].to / sim->config.kv_blocks_per_chunk, chunk);
			sim->content[moves[i].to] = sim->content[moves[i].from];
		}
		sim->retired[sim->n_retired++] = chunk;
	}
	while (sim->n_retired && sim_draw(sim, 3)) {
		chunk = sim->retired[--sim->n_retired];
		for (uint32_t i = 0; i < sim->config.kv_blocks_per_chunk; i++)
			sim->content[chunk * sim->config.kv_blocks_per_chunk + i] = UINT32_MAX;
		mm_kvblocks_remove_chunk(&sim->s.kv, chunk);
	}
	sched_check(&sim->s);
}

/*
 * Writes the plan's tokens into the blocks, after a check that the earlier ones are still there.
 */
static void sim_compute(struct sim *sim, const struct mm_sched_plan *p)
{
	for (uint32_t i = 0; i < p->n_items; i++) {
		const struct mm_sched_item *item = &p->items[i];
		const struct mm_seq *q = &sim->s.seqs[item->seq];
		const uint32_t *table = mm_sched_table(&sim->s, item->seq);
		const uint32_t bt = sim->config.block_tokens;

		assert_int_equal(item->first, q->computed);
		for (uint32_t t = 0; t < item->first; t += bt)
			assert_int_equal(sim->content[table[t / bt]],
					 q->user << 12 | MM_MIN(bt, item->first - t));
		for (uint32_t t = item->first; t < item->first + item->tokens; t++)
			sim->content[table[t / bt]] = (uint32_t)(q->user << 12 | (t % bt + 1));
		sim->sampled[q->user] += item->samples;
	}
}

static uint64_t sim_wanted(const struct mm_sched *s)
{
	uint32_t room = s->config.max_batch - s->n_running;
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < s->n_running; i++)
		blocks += s->seqs[s->running[i]].want;
	for (uint32_t i = s->queue; i != MM_KV_NONE && room; i = s->seqs[i].next, room--)
		blocks += s->seqs[i].want;
	return MM_MIN(blocks, (uint64_t)s->kv.n_chunks * s->kv.blocks_per_chunk);
}

static void sim_step(struct sim *sim)
{
	uint64_t finished[16];
	const struct mm_sched_plan *p = mm_sched_step(&sim->s, 0, sim_draw(sim, 2));
	uint32_t n;

	if (sim_draw(sim, 2)) /* the sum is cached between calls, so it is read at random times */
		assert_int_equal(mm_sched_blocks_wanted(&sim->s), sim_wanted(&sim->s));

	sched_check(&sim->s);
	assert_true(p->tokens <= sim->config.max_batched_tokens);
	sim_swaps(sim, p);
	if (sim_draw(sim, 10) == 0) /* a plan that is not executed has no effect */
		return;
	sim_compute(sim, p);
	n = mm_sched_commit(&sim->s, 0, finished);
	sched_check(&sim->s);
	for (uint32_t i = 0; i < n; i++) {
		assert_false(sim->finished[finished[i]]);
		sim->finished[finished[i]] = true;
		assert_int_equal(sim->sampled[finished[i]], sim->output[finished[i]]);
		sim->done++;
	}
}

static uint64_t sim_swapped;

static void sim_run(uint64_t seed)
{
	static struct sim sim;
	uint32_t seq, steps = 0;

	sim_init(&sim, seed);
	while (sim.done < SIM_REQUESTS) {
		if (++steps > 100000)
			fail_msg("seed=%llu: does not end", (unsigned long long)seed);
		while (sim.added < SIM_REQUESTS && sim_draw(&sim, 4) == 0 &&
		       !mm_sched_add(&sim.s, sim.prompt[sim.added], sim.output[sim.added],
				     sim.added, &seq))
			sim.added++;
		sim_chunks(&sim);
		sim_step(&sim);
	}
	assert_int_equal(sim.s.kv.used_blocks, 0);
	assert_int_equal(sim.s.free_slots, sim.s.n_slots);
	sim_swapped += sim.swapped;
	mm_sched_done(&sim.s);
}

static uint64_t sim_seed;

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
	for (sim_seed = 0; sim_seed < 400; sim_seed++)
		sim_run(sim_seed);
	assert_true(sim_swapped > 1000); /* else nothing was tested */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_random_runs, print_seed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
