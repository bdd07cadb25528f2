/* SPDX-License-Identifier: Apache-2.0 */
/* Costs of streaming for some numbers of layers: which ones, when known, how many at once. */
#undef NDEBUG
#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/market/cost.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/points.h"
#include "mmd/core/plan/sets.h"
#include "tests/unit/mmd/core/story.h"

#define LAYERS      16
#define STEP_NS     (16 * MM_NS_PER_MS)
#define TRANSFER_NS (4 * MM_NS_PER_MS)

static uint64_t samples;

/* Under a policy that lends nothing the core looks at no points by itself. */
static struct w_proc *tenant_alone(uint32_t layers)
{
	story_begin(MM_POLICY_RECOMPUTE, 250);
	return tenant_with(0, layers, 2);
}

static const struct mm_c_points *points_of(const struct w_proc *p)
{
	return &w->core->tenant[MM_TENANT_INDEX(p->tenant)].lends->points;
}

static void steps_take(struct w_proc *p, uint64_t step_ns, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct mm_tenant_stats s = { .step_seq = 2 * (samples + 1),
					     .samples = samples + 1,
					     .step_ns = step_ns };

		samples++;
		mm_core_on_stats(w->core, w->now_ns, p->tenant, &s);
		w_drain(w);
	}
}

static void transfers_take(struct w_proc *p, uint64_t ns)
{
	mm_core_on_streamed(w->core, p->tenant, ns);
}

static void assert_listed(const struct mm_c_points *points, uint32_t alpha, uint32_t most)
{
	assert_in_range(points->n, 2, MM_VIEW_POINTS);
	assert_int_equal(points->point[0].alpha, 0);
	assert_int_equal(points->point[points->n - 1].alpha, most);
	for (uint32_t i = 1; i < points->n; i++)
		assert_true(points->point[i].alpha > points->point[i - 1].alpha);
	/* The present number and two neighbours on either side are among them. */
	for (uint32_t near = alpha > 2 ? alpha - 2 : 0; near <= MM_MIN(alpha + 2, most); near++) {
		bool found = false;

		for (uint32_t i = 0; i < points->n; i++)
			found |= points->point[i].alpha == near;
		assert_true(found);
	}
}

/* Until steps and the link are measured each number but none costs one does not know what. */
static void costs_are_unknown_before_they_are_measured(void **state)
{
	const struct mm_c_points *points;
	struct w_proc *p;

	(void)state;
	p = tenant_alone(LAYERS);
	points = points_of(p);
	mm_c_points_update(w->core);
	assert_listed(points, 0, LAYERS - 1);
	assert_int_equal(points->point[0].slow_permille, 0);
	for (uint32_t i = 1; i < points->n; i++)
		assert_int_equal(points->point[i].slow_permille, UINT32_MAX);
	steps_take(p, STEP_NS, MM_STEPS_LEAST - 1);
	transfers_take(p, TRANSFER_NS);
	mm_c_points_update(w->core);
	assert_int_equal(points->point[1].slow_permille, UINT32_MAX);
	steps_take(p, STEP_NS, 1);
	mm_c_points_update(w->core);
	mm_c_points_update(w->core);
	for (uint32_t i = 0; i < points->n; i++)
		assert_true(points->point[i].slow_permille != UINT32_MAX);
}

/* A step hides some transfers; with all layers away it takes as long as the link does. */
static void costs_grow_with_layers(void **state)
{
	const struct mm_c_points *points;
	struct w_proc *p;

	(void)state;
	p = tenant_alone(LAYERS);
	points = points_of(p);
	steps_take(p, STEP_NS, MM_STEPS_LEAST);
	transfers_take(p, TRANSFER_NS);
	mm_c_points_update(w->core);
	mm_c_points_update(w->core);
	assert_listed(points, 0, LAYERS - 1);
	assert_int_equal(points->point[0].slow_permille, 0);
	assert_int_equal(points->point[0].link_permille, 0);
	for (uint32_t i = 1; i < points->n; i++)
		assert_true(points->point[i].slow_permille >= points->point[i - 1].slow_permille);
	/* 16 transfers of 4 ms, of which no more than the step hides. */
	assert_in_range(points->point[points->n - 1].slow_permille, 2500, 4500);
	assert_in_range(points->point[points->n - 1].link_permille, 800, 1000);
}

/* One look computes a few; the old costs stay until the new ones are complete. */
static void a_look_computes_a_few(void **state)
{
	const struct mm_c_points *points;
	uint32_t looks = 0, slow;
	struct w_proc *p;

	(void)state;
	p = tenant_alone(LAYERS);
	points = points_of(p);
	steps_take(p, STEP_NS, MM_STEPS_LEAST);
	transfers_take(p, TRANSFER_NS);
	do
		mm_c_points_update(w->core);
	while (points->next_n);
	slow = points->point[points->n - 1].slow_permille;
	steps_take(p, STEP_NS / 4, 200);
	do {
		assert_int_equal(points->point[points->n - 1].slow_permille, slow);
		mm_c_points_update(w->core);
		assert_true(!points->next_n || points->next_at <= ++looks * MM_POINTS_WORK);
	} while (points->next_n);
	assert_int_equal(looks, (points->n - 1) / MM_POINTS_WORK);
	assert_true(points->point[points->n - 1].slow_permille > 2 * slow);
}

/* Times that hardly change leave the costs as they are. */
static void small_changes_do_not_count(void **state)
{
	const struct mm_c_points *points;
	struct mm_c_points before;
	struct w_proc *p;

	(void)state;
	p = tenant_alone(6);
	points = points_of(p);
	steps_take(p, STEP_NS, 100);
	transfers_take(p, TRANSFER_NS);
	mm_c_points_update(w->core);
	before = *points;
	steps_take(p, STEP_NS + STEP_NS / 32, 100);
	mm_c_points_update(w->core);
	assert_memory_equal(&before, points, sizeof(before));
	steps_take(p, STEP_NS + STEP_NS / 4, 100);
	mm_c_points_update(w->core);
	assert_true(points->step_ns > before.step_ns);
	assert_true(points->point[3].slow_permille < before.point[3].slow_permille);
}

/* The next look goes on with those that the last one had no time for. */
static void each_tenant_has_its_look(void **state)
{
	struct w_proc *p[5];
	uint32_t looks = 0, known;

	(void)state;
	p[0] = tenant_alone(LAYERS);
	for (uint32_t i = 1; i < 5; i++)
		p[i] = tenant_with(0, LAYERS, 2);
	for (uint32_t i = 0; i < 5; i++) {
		steps_take(p[i], STEP_NS, MM_STEPS_LEAST);
		transfers_take(p[i], TRANSFER_NS);
	}
	do {
		known = 0;
		mm_c_points_update(w->core);
		for (uint32_t i = 0; i < 5; i++)
			known += points_of(p[i])->n &&
				 points_of(p[i])->point[1].slow_permille != UINT32_MAX;
		assert_true(++looks <= 10);
	} while (known < 5);
	/* Sixteen numbers of layers each: one tenant a look. */
	assert_int_equal(looks, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(costs_are_unknown_before_they_are_measured),
		TEST(costs_grow_with_layers),
		TEST(a_look_computes_a_few),
		TEST(small_changes_do_not_count),
		TEST(each_tenant_has_its_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
