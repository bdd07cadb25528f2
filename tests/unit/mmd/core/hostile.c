/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's claims affect what is taken from it, and no other tenant. One story per test.
 */
#undef NDEBUG
#include "mmd/core/book/book.h"
#include "mmd/core/book/emit.h"
#include "tests/unit/mmd/core/story.h"

static struct mm_tenant_stats claims_of(const struct w_proc *p)
{
	return (struct mm_tenant_stats){ .step_seq = 2 * p->steps,
					 .steps = p->steps,
					 .samples = p->steps,
					 .step_ns = 100000 * p->n_groups,
					 .kv_chunks_used = p->held };
}

static void stats_claim(const struct w_proc *p, const struct mm_tenant_stats *s)
{
	mm_core_on_stats(w->core, w->now_ns, p->tenant, s);
	w_drain(w);
}

/* A tenant that could lend layers, one that holds 45 chunks, and one that holds none yet. */
static struct w_proc *begin_with_holder(struct w_proc **ret_holder, struct w_proc **ret_other)
{
	struct w_proc *lender;

	story_begin(MM_POLICY_REMAP, 80);
	lender = tenant_with(0, 8, 4);
	*ret_holder = w_join(w, 1, MM_FEAT_KNOWN);
	*ret_other = w_join(w, 2, MM_FEAT_KNOWN);
	w_kv_declare(w, *ret_holder, 1, 1, 60, 1);
	w_kv_declare(w, *ret_other, 1, 1, 20, 1);
	w_kv_want(w, *ret_holder, 45);
	w_run(w);
	return lender;
}

/* A tenant claims that its chunks are empty, gets a reclaim each time, and releases none. */
static void who_never_gives_back_is_not_counted_on(void **state)
{
	struct w_proc *lender, *unresponsive, *victim;
	struct mm_tenant_stats s;

	(void)state;
	lender = begin_with_holder(&unresponsive, &victim);
	assert_int_equal(unresponsive->held, 45);
	w_kv_want(w, victim, 10);
	for (uint32_t i = 0; i < 100; i++) {
		s = claims_of(unresponsive);
		s.kv_chunks_used = 0;
		stats_claim(unresponsive, &s);
		pass_ms(50);
	}
	assert_int_equal(unresponsive->held, 45);
	assert_true(story_stats().reclaims > 1);
	assert_true(story_plan(lender)->alpha > 0);
	assert_int_equal(victim->held, 10);
}

/* Chunks are taken first from a tenant that releases them, however often it gets a reclaim. */
static void who_gives_back_is_counted_on_again(void **state)
{
	struct w_proc *lender, *holder, *other;
	struct mm_tenant_stats s;

	(void)state;
	lender = begin_with_holder(&holder, &other);
	s = claims_of(holder);
	s.kv_chunks_used = 0;
	stats_claim(holder, &s);
	pass_ms(3000); /* after that it is idle */
	for (uint32_t want = 4; want <= 12; want += 4) {
		w_kv_want(w, other, want);
		for (uint32_t i = 0; i < 60 && other->held < want; i++) {
			s = claims_of(holder);
			s.kv_chunks_used = 0;
			stats_claim(holder, &s);
			while (holder->reclaim && w_kv_release(w, holder))
				;
			pass_ms(50);
		}
		assert_int_equal(other->held, want);
		pass_ms(300); /* the deadline has passed */
	}
	assert_int_equal(story_plan(lender)->alpha, 0);
}

/*
 * Absurd numbers, each alone and all together: nothing breaks, and other tenants' demands are met.
 */
static void numbers_without_sense(void **state)
{
	static const uint64_t values[] = {
		0, 1, UINT32_MAX, UINT64_C(1) << 40, INT64_MAX, UINT64_C(1) << 63, UINT64_MAX
	};
	struct w_proc *unresponsive, *victim;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	unresponsive = tenant_with(0, 12, 3);
	w_kv_declare(w, unresponsive, 1, 1, 40, 1);
	victim = w_join(w, 1, MM_FEAT_KNOWN);
	w_kv_declare(w, victim, 1, 1, 60, 1);
	w_kv_want(w, unresponsive, 20);
	w_run(w);
	for (uint32_t i = 0; i < 8 * MM_ARRAY_SIZE(values) * 4; i++) {
		struct mm_tenant_stats s = claims_of(unresponsive);
		uint64_t v = values[i % MM_ARRAY_SIZE(values)];
		uint64_t *field[] = { &s.step_seq,      &s.steps,        &s.samples,
				      &s.step_ns,       &s.stall_ns,     &s.kv_chunks_used,
				      &s.waiting,       &s.running,      &s.kv_chunks_queued,
				      &s.requests_done, &s.requests_late };
		uint32_t at = i / MM_ARRAY_SIZE(values) % (MM_ARRAY_SIZE(field) + 1);

		s.steps = s.samples = i;
		for (uint32_t k = 0; k < MM_ARRAY_SIZE(field); k++)
			if (k == at || at == MM_ARRAY_SIZE(field))
				*field[k] = v;
		for (uint32_t l = 0; l < MM_COMPUTE_WEIGHTS; l++)
			s.compute[l] = (uint16_t)(i % 3 ? v >> l % 32 : 0);
		mm_core_on_streamed(w->core, unresponsive->tenant, v);
		stats_claim(unresponsive, &s);
		w_kv_want(w, victim, 10 + i % 40);
		pass_ms(20);
	}
	w_kv_want(w, unresponsive, 20);
	w_kv_want(w, victim, 30);
	pass_ms(4000);
	assert_true(victim->held >= 30);
}

static const struct mm_tenant_stats *load_of(const struct w_proc *p)
{
	return &mm_c_tenant(w->core, p->tenant)->load.last;
}

/* The queue's demand fits the arena, and requests late are done; without the feature all are 0. */
static void demand_is_bounded(void **state)
{
	struct w_proc *p, *old;
	struct mm_tenant_stats s;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 4);
	old = tenant_that(MM_FEAT_KNOWN & ~MM_FEAT_DEMAND, 1, 8, 4);
	w_kv_declare(w, p, 1, 1, 60, 1);
	w_kv_declare(w, old, 1, 1, 60, 1);
	s = claims_of(p);
	s.kv_chunks_queued = 7;
	s.requests_done = 5;
	s.requests_late = 2;
	stats_claim(p, &s);
	stats_claim(old, &s);
	assert_int_equal(load_of(p)->kv_chunks_queued, 7);
	assert_int_equal(load_of(p)->requests_done, 5);
	assert_int_equal(load_of(p)->requests_late, 2);
	assert_int_equal(load_of(old)->kv_chunks_queued, 0);
	assert_int_equal(load_of(old)->requests_done, 0);
	assert_int_equal(load_of(old)->requests_late, 0);
	s.kv_chunks_queued = UINT64_MAX;
	s.requests_late = UINT64_MAX;
	stats_claim(p, &s);
	assert_int_equal(load_of(p)->kv_chunks_queued, 60);
	assert_int_equal(load_of(p)->requests_late, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_never_gives_back_is_not_counted_on),
		TEST(who_gives_back_is_counted_on_again),
		TEST(numbers_without_sense),
		TEST(demand_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
