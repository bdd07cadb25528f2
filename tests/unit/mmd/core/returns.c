/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers return to tenants that compute side by side, from KV that others give a little at a time;
 * memory goes from one of them to the other.
 */
#undef NDEBUG
#include "libclient/base/base.h"
#include "tests/unit/mmd/core/story.h"

#define LAYERS      4
#define LAYER_PAGES 12
#define MODEL_PAGES (1 + LAYERS * LAYER_PAGES)
#define SPARE       (4 * LAYER_PAGES) /* pages beside all models: for the last layer and its slot */
#define SHARE       4                 /* chunks of a page */
#define GIVE_MS     150               /* for each chunk that a tenant gives back */
#define MOST_MS     20000
#define STEP_MS     1200 /* so few steps that no cost is known: layers away may not stay */

static struct w_proc *busy_with(uint32_t account)
{
	struct w_proc *p = tenant_with(account, LAYERS, LAYER_PAGES);

	w_kv_declare(w, p, 1, 1, 200, SHARE);
	w_run(w);
	return p;
}

/* One that has work says so, and wants more KV than there is. */
static void works_on(struct w_proc *p)
{
	p->used_chunks = p->held;
	w_stats(w, p, 1);
	w_kv_want(w, p, 200);
	w_run(w);
}

/* Each of @p works; @giver gives a chunk that it was asked for every GIVE_MS. */
static uint32_t ms_until_home(struct w_proc *const *p, uint32_t n, struct w_proc *giver)
{
	for (uint32_t ms = 0, away; ms < MOST_MS; ms += GIVE_MS) {
		away = 0;
		for (uint32_t i = 0; i < n; i++) {
			if (ms % STEP_MS == 0)
				story_steps(p[i], 1);
			works_on(p[i]);
			away += story_plan(p[i])->alpha;
		}
		if (!away)
			return ms;
		pass_ms(GIVE_MS);
		if (giver->reclaim)
			w_kv_release(w, giver);
	}
	return MOST_MS;
}

/* The first one has got KV in the pages of the layers of the others, which were idle. */
static void all_lend_to_the_first(struct w_proc **p, uint32_t n)
{
	begin_with("mode=beside", n * MODEL_PAGES + SPARE);
	for (uint32_t i = 0; i < n; i++)
		p[i] = busy_with(0);
	story_steps(p[0], 1);
	for (uint32_t i = 0; i < 40; i++) {
		works_on(p[0]);
		pass_ms(50);
	}
	for (uint32_t i = 1; i < n; i++)
		assert_true(story_plan(p[i])->alpha > 0);
	assert_true(p[0]->held >= SPARE + (n - 1) * LAYER_PAGES);
}

/*
 * The last layer returns only with the pages of two, which are more than come in a second: they
 * stay collected as long as some come, and are not granted as KV again.
 */
static void pages_that_come_slowly_stay_for_layers(void **state)
{
	struct w_proc *p[2];

	(void)state;
	all_lend_to_the_first(p, 2);
	assert_true(ms_until_home(p, 2, p[0]) < MOST_MS);
	assert_true(p[0]->held >= SHARE);
}

/* Each of several has its own time: that of the next begins when the one before it is done. */
static void several_return_one_after_the_other(void **state)
{
	struct w_proc *p[3];

	(void)state;
	all_lend_to_the_first(p, 3);
	assert_true(ms_until_home(p, 3, p[0]) < MOST_MS);
}

/* Each of two works for @ms, and gives at once what it is asked for. */
static void both_work(struct w_proc *const *p, uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 50) {
		for (uint32_t k = 0; k < 2; k++) {
			while (p[k]->reclaim && w_kv_release(w, p[k]))
				;
			if (p[k]->held)
				story_steps(p[k], 1);
			p[k]->used_chunks = p[k]->held;
			w_stats(w, p[k], p[k]->held != 0);
			w_kv_want(w, p[k], 200);
			w_run(w);
		}
		pass_ms(50);
	}
}

/*
 * Two that want far more than there is and have room on the host: memory is for one of them, and
 * fifteen seconds later for the other.
 */
static void memory_goes_from_one_to_the_other(void **state)
{
	struct mm_core_opts opts = { .pages = 2 * MODEL_PAGES + SHARE,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .swap_max_bytes = 1u << 30 };
	struct w_proc *p[2];
	uint32_t first;

	(void)state;
	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
	for (uint32_t i = 0; i < 2; i++) {
		p[i] = busy_with(0);
		assert_int_equal(w_swap_open(w, p[i], 1u << 20), 0);
	}
	both_work(p, 3000);
	first = p[1]->held > p[0]->held;
	for (uint32_t turn = 0; turn < 4; turn++) {
		struct w_proc *has = p[(first + turn) % 2], *waits = p[(first + turn + 1) % 2];

		assert_true(story_plan(waits)->alpha >= LAYERS - 2);
		assert_int_equal(waits->held, 0);
		assert_true(has->held > LAYER_PAGES);
		both_work(p, 15000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_that_come_slowly_stay_for_layers),
		TEST(several_return_one_after_the_other),
		TEST(memory_goes_from_one_to_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
