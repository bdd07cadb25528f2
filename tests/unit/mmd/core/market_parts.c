/* SPDX-License-Identifier: Apache-2.0 */
/* The market beside its decisions: what it makes of them, and keeps from one to the next. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include "mmd/core/book/book.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/market/grant.h"
#include "mmd/core/market/market.h"

/*
 * Pages are kept for layers that return, also while a tenant waits for its first chunk: that it is
 * granted from them, and others are granted none.
 */
static void a_first_chunk_comes_before_layers(void **state)
{
	struct mm_core *c;
	struct w_proc *a, *b;

	(void)state;
	begin_with("mode=beside", 40);
	a = w_join(w, 0, MM_FEAT_KNOWN);
	b = w_join(w, 0, MM_FEAT_KNOWN);
	w_kv_declare(w, a, 1, 1, 40, 0);
	w_kv_declare(w, b, 1, 1, 40, 0);
	w_kv_want(w, a, 1);
	w_run(w);
	c = w->core;
	assert_int_equal(c->tenant[0].kv.held, 1);
	mm_c_demand_set(c, &c->tenant[0], 5);
	mm_c_demand_set(c, &c->tenant[1], 5);
	mm_c_kv_demands_serve(c, 40, 0);
	assert_int_equal(c->tenant[1].kv.held, 0);
	mm_c_kv_demands_serve(c, 0, 40);
	assert_int_equal(c->tenant[0].kv.held, 1);
	assert_int_equal(c->tenant[1].kv.held, 1);
	w_run(w);
}

/* Decisions about a tenant say nothing of the next one of its index. */
static void an_index_that_is_used_again_begins_anew(void **state)
{
	struct mm_market *m = mm_market_create(2, 1);
	struct mm_c_tenant t = { 0 };

	(void)state;
	assert_non_null(m);
	m->memory.taken_ns[0] = m->memory.taken_ns[1] = 5;
	m->targets.tenant[1].kv_most = 3;
	m->memory.memory_of = 1;
	mm_market_join(m, &t, 1, 7);
	assert_int_equal(m->memory.taken_ns[0], 5);
	assert_int_equal(m->memory.taken_ns[1], 0);
	assert_int_equal(m->memory.memory_of, MM_NO_TENANT);
	assert_int_equal(m->memory.memory_was_ns[1], 7);
	assert_int_equal(m->targets.tenant[1].kv_most, UINT32_MAX);
	mm_market_destroy(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_first_chunk_comes_before_layers),
		cmocka_unit_test(an_index_that_is_used_again_begins_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
