/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is neither weights nor KV: charged, bounded by the share, and never taken back. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "tests/sim/world.h"

#define PAGES 60

static struct world world;
static struct world *w = &world;

static void world_begin(void)
{
	struct mm_core_opts opts = { .pages = PAGES,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .reclaim_ns = 20 * MM_NS_PER_MS };

	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

static int teardown(void **state)
{
	(void)state;
	w_done(w);
	return 0;
}

static struct w_proc *tenant(uint32_t account)
{
	struct w_proc *p = w_join(w, account, MM_FEAT_KNOWN);

	assert_non_null(p);
	return p;
}

static int alloc(struct w_proc *p, uint32_t pages)
{
	assert_true(w_mem_alloc(w, p, pages));
	w_run(w);
	assert_int_equal(p->mem_asked, 0);
	return p->mem_result;
}

static struct mm_core_tenant tenant_now(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t;
}

static uint64_t pages_in(enum mm_page_state state)
{
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	return s.pages[state];
}

static void it_is_charged_and_comes_back(void **state)
{
	struct mm_core_account a;
	struct w_proc *p;

	(void)state;
	world_begin();
	p = tenant(0);
	assert_int_equal(alloc(p, 7), 0);
	assert_int_equal(tenant_now(p).pages_mem, 7);
	assert_int_equal(pages_in(MM_PAGE_MEM), 7);
	assert_true(mm_core_account_find(w->core, 1000, &a));
	assert_int_equal(a.charged, 7);
	assert_int_equal(w_mem_free(w, p, 3), 3);
	w_run(w);
	assert_int_equal(pages_in(MM_PAGE_MEM), 4);
	assert_int_equal(pages_in(MM_PAGE_FREE), PAGES - 4);
	assert_true(mm_core_account_find(w->core, 1000, &a));
	assert_int_equal(a.charged, 4);
	/* The entries in front of the others are used again, with clean pages. */
	assert_int_equal(alloc(p, 3), 0);
	w_mem_verify(w, p);
	w_kill(w, p);
	w_run(w);
	assert_int_equal(pages_in(MM_PAGE_FREE), PAGES);
}

static void a_share_is_what_a_split_would_give(void **state)
{
	const struct mm_core_quota heavy = { .weight = 300, .max_pages = PAGES };
	struct w_proc *a, *b, *c;

	(void)state;
	world_begin();
	a = tenant(0);
	assert_int_equal(alloc(a, 50), 0); /* alone, the pool is its share */
	assert_int_equal(w_mem_free(w, a, 50), 50);
	w_account_add(w, 1, 1, &heavy);
	b = tenant(1);
	/* Weights 100 and 300: a quarter and three quarters. */
	assert_int_equal(alloc(a, 16), -EDQUOT);
	assert_int_equal(a->mem_there, 15);
	assert_int_equal(alloc(a, 15), 0);
	assert_int_equal(alloc(a, 1), -EDQUOT);
	assert_int_equal(a->mem_there, 0);
	assert_int_equal(alloc(b, 45), 0);
	assert_int_equal(w_mem_free(w, b, 45), 45);
	/* Tenants of one account divide its part; what one has stays its own. */
	c = tenant(0);
	assert_int_equal(alloc(c, 8), -EDQUOT);
	assert_int_equal(c->mem_there, 7);
	assert_int_equal(alloc(c, 7), 0);
	assert_int_equal(tenant_now(a).pages_mem, 15);
}

static void a_min_is_a_share_and_is_kept(void **state)
{
	const struct mm_core_quota least = { .min_pages = 40, .max_pages = PAGES };
	struct w_proc *a, *b;

	(void)state;
	world_begin();
	w_account_add(w, 0, 0, &least);
	a = tenant(0);
	b = tenant(1);
	w_run(w);
	assert_int_equal(alloc(b, 21), -ENOSPC);
	assert_int_equal(b->mem_there, 20);
	assert_int_equal(alloc(b, 20), 0);
	assert_int_equal(alloc(a, 40), 0);
}

static void nobody_gives_for_it(void **state)
{
	struct mm_core_stats before, after;
	struct w_proc *a, *b;

	(void)state;
	world_begin();
	a = tenant(0);
	b = tenant(1);
	w_kv_declare(w, a, 1, 1, 50, 1);
	w_kv_want(w, a, 50);
	w_run(w);
	assert_int_equal(a->held, 50);
	mm_core_stats(w->core, &before);
	assert_int_equal(alloc(b, 11), -ENOSPC);
	assert_int_equal(b->mem_there, 10);
	w_tick(w, MM_NS_PER_S);
	mm_core_stats(w->core, &after);
	assert_int_equal(after.reclaims, before.reclaims);
	assert_int_equal(a->held, 50);
	assert_true(w_kv_release(w, a));
	assert_int_equal(alloc(b, 11), 0);
}

static void it_is_never_taken_back(void **state)
{
	struct w_proc *a, *b;

	(void)state;
	world_begin();
	a = tenant(0);
	b = tenant(1);
	assert_int_equal(alloc(a, 30), 0);
	w_model(w, b, 1, 4, 2, 1);
	w_kv_declare(w, b, 1, 1, 50, 50);
	w_run(w);
	w_kv_want(w, b, 50);
	for (uint32_t i = 0; i < 200; i++) {
		w_tick(w, 10 * MM_NS_PER_MS);
		w_run(w);
	}
	assert_int_equal(tenant_now(a).pages_mem, 30);
	w_mem_verify(w, a);
	assert_in_range(b->held, 1, PAGES - 30 - 9);
}

static void it_waits_for_pages_that_are_being_scrubbed(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin();
	p = tenant(0);
	assert_int_equal(alloc(p, 40), 0);
	assert_int_equal(w_mem_free(w, p, 40), 40);
	assert_true(w_mem_alloc(w, p, 40));
	assert_int_equal(p->mem_asked, 40);
	assert_int_equal(pages_in(MM_PAGE_MEM), 0);
	w_run(w);
	assert_int_equal(p->mem_result, 0);
	assert_int_equal(pages_in(MM_PAGE_MEM), 40);
	/* Not for ever, though: xfer may be gone. */
	assert_int_equal(w_mem_free(w, p, 40), 40);
	w_xfer_kill(w, false);
	assert_true(w_mem_alloc(w, p, 40));
	w_tick(w, MM_NS_PER_S);
	while (w_proc_event(w, p))
		;
	assert_int_equal(p->mem_asked, 40);
	w_tick(w, MM_NS_PER_S);
	while (w_proc_event(w, p))
		;
	assert_int_equal(p->mem_asked, 0);
	assert_int_equal(p->mem_result, -ENOSPC);
	assert_int_equal(p->mem_there, 20);
}

static void pages_that_it_waits_for_are_kept(void **state)
{
	struct w_proc *a, *b;

	(void)state;
	world_begin();
	a = tenant(0);
	b = tenant(1);
	assert_int_equal(alloc(a, 30), 0);
	w_kv_declare(w, b, 1, 1, 60, 60);
	w_run(w);
	assert_int_equal(w_mem_free(w, a, 30), 30);
	assert_true(w_mem_alloc(w, a, 30));
	w_kv_want(w, b, 60);
	w_run(w);
	assert_int_equal(a->mem_result, 0);
	assert_int_equal(tenant_now(a).pages_mem, 30);
	assert_int_equal(b->held, 30);
}

static int send(struct w_proc *p, enum mm_op op, uint64_t entry, uint64_t pages)
{
	const struct mm_msg msg = { .opcode = (uint16_t)op, .arg = { entry, pages } };

	return w_send(w, p, &msg);
}

static void what_cannot_be_ends_the_connection(void **state)
{
	const struct {
		enum mm_op op;
		uint64_t entry, pages;
	} bad[] = {
		{ MM_OP_MEM_ALLOC, MM_MAP_ENTRIES - 1, 0 },
		{ MM_OP_MEM_ALLOC, MM_MAP_ENTRIES - 1, 2 },
		{ MM_OP_MEM_ALLOC, MM_MAP_ENTRIES, 1 },
		{ MM_OP_MEM_ALLOC, MM_MAP_KV_BASE - 1, 1 },
		{ MM_OP_MEM_ALLOC, MM_MAP_KV_BASE + 9, 1 }, /* in its arena */
		{ MM_OP_MEM_ALLOC, MM_MAP_ENTRIES - 4, 2 }, /* it has one of them */
		{ MM_OP_MEM_ALLOC, UINT64_MAX, 2 },
		{ MM_OP_MEM_ALLOC, (UINT64_C(1) << 32) + MM_MAP_ENTRIES - 1, 1 },
		{ MM_OP_MEM_ALLOC, MM_MAP_ENTRIES - 1, (UINT64_C(1) << 32) + 1 },
		{ MM_OP_MEM_FREE, MM_MAP_ENTRIES - 4, 3 }, /* it has two of them */
		{ MM_OP_MEM_FREE, MM_MAP_ENTRIES - 60, 1 },
		{ MM_OP_MEM_FREE, MM_MAP_ENTRIES - 3, 0 },
		{ MM_OP_MEM_FREE, MM_MAP_KV_BASE, 1 }, /* that is KV */
		{ MM_OP_MEM_FREE, UINT64_MAX, UINT64_MAX },
	};

	(void)state;
	world_begin();
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++) {
		struct w_proc *p = tenant(0);

		p->hostile = true;
		w_kv_declare(w, p, 1, 1, 10, 1);
		w_kv_want(w, p, 1);
		assert_int_equal(send(p, MM_OP_MEM_ALLOC, MM_MAP_ENTRIES - 4, 2), 0);
		w_run(w);
		assert_int_equal(tenant_now(p).pages_mem, 2);
		assert_int_equal(send(p, bad[i].op, bad[i].entry, bad[i].pages), MM_E_PROTOCOL);
		w_kill(w, p);
		w_run(w);
		assert_int_equal(pages_in(MM_PAGE_FREE), PAGES);
	}
}

static void an_arena_finds_its_entries_taken(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin();
	p = tenant(0);
	p->hostile = true;
	assert_int_equal(send(p, MM_OP_MEM_ALLOC, MM_MAP_KV_BASE + 100, 1), 0);
	w_run(w);
	send(p, MM_OP_KV_DECLARE, 4096, 1);
	w_run(w);
	assert_int_equal(tenant_now(p).kv_chunks_max, 0);
	assert_int_equal(
		w_send(w, p,
		       &(struct mm_msg){ .opcode = MM_OP_KV_DECLARE, .arg = { 4096, 1, 101, 0 } }),
		0);
	w_run(w);
	assert_int_equal(tenant_now(p).kv_chunks_max, 0);
	assert_int_equal(
		w_send(w, p,
		       &(struct mm_msg){ .opcode = MM_OP_KV_DECLARE, .arg = { 4096, 1, 100, 0 } }),
		0);
	w_run(w);
	assert_int_equal(tenant_now(p).kv_chunks_max, 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(it_is_charged_and_comes_back, teardown),
		cmocka_unit_test_teardown(a_share_is_what_a_split_would_give, teardown),
		cmocka_unit_test_teardown(a_min_is_a_share_and_is_kept, teardown),
		cmocka_unit_test_teardown(nobody_gives_for_it, teardown),
		cmocka_unit_test_teardown(it_is_never_taken_back, teardown),
		cmocka_unit_test_teardown(it_waits_for_pages_that_are_being_scrubbed, teardown),
		cmocka_unit_test_teardown(pages_that_it_waits_for_are_kept, teardown),
		cmocka_unit_test_teardown(what_cannot_be_ends_the_connection, teardown),
		cmocka_unit_test_teardown(an_arena_finds_its_entries_taken, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
