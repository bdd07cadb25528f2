/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include "mmd/config/tune.h"

static struct world world;
struct world *const w = &world;

void story_begin(enum mm_policy policy, uint32_t pages)
{
	struct mm_core_opts opts = { .pages = pages, .page_bytes = 4096, .policy = policy };

	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

void begin_with(const char *knobs, uint32_t pages)
{
	struct mm_core_opts opts = { .pages = pages,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP };
	char error[MM_TUNE_ERROR_BYTES];

	assert_int_equal(mm_tune_parse(knobs, &opts, error), 0);
	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

int story_teardown(void **state)
{
	(void)state;
	w_done(w);
	return 0;
}

struct mm_core_stats story_stats(void)
{
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	return s;
}

const struct mm_core_plan *story_plan(const struct w_proc *p)
{
	return mm_core_plan(w->core, p->tenant);
}

struct w_proc *tenant_that(uint64_t features, uint32_t account, uint32_t layers,
			   uint32_t layer_pages)
{
	struct w_proc *p = w_join(w, account, features);

	assert_non_null(p);
	w_model(w, p, 1 + (uint64_t)(p - w->proc), layers, layer_pages, 1);
	w_run(w);
	return p;
}

struct w_proc *tenant_with(uint32_t account, uint32_t layers, uint32_t layer_pages)
{
	return tenant_that(MM_FEAT_KNOWN, account, layers, layer_pages);
}

void pass_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 5) {
		w_tick(w, 5 * MM_NS_PER_MS);
		w_run(w);
	}
}

void story_steps(struct w_proc *p, uint32_t n)
{
	for (uint64_t until = p->steps + n, tries = 0; p->steps < until; tries++) {
		assert_true(tries < 10000);
		w_proc_step(w, p);
		w_xfer_stream(w, p);
		w_xfer_work(w, 1, 0);
		w_proc_event(w, p);
	}
}

void story_plan_by_hand(struct w_proc *p, int32_t alpha)
{
	uint32_t max;

	assert_int_equal(mm_core_plan_set(w->core, w->now_ns, p->tenant, alpha, 0, &max), 0);
	w_drain(w);
}
