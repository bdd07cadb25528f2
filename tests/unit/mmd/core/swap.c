/* SPDX-License-Identifier: Apache-2.0 */
/* Swap: lists of pieces, their results, and the pages that they name. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "tests/sim/world.h"

#define PAGE   4096u
#define RANGES 2u
#define RPAGES 3u /* pages of a chunk in a range */

static struct world world;
static struct world *w = &world;

static void world_begin(enum mm_policy policy, uint64_t account_max)
{
	struct mm_core_opts opts = { .pages = 60,
				     .page_bytes = PAGE,
				     .policy = policy,
				     .swap_max_bytes = 64 * PAGE,
				     .swap_account_max_bytes = account_max };

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

/*
 * A tenant with chunks of three pages in each of two ranges; it holds two, and its swap space has
 * room for both.
 */
static struct w_proc *tenant_with_chunks(uint32_t account)
{
	struct w_proc *p = w_join(w, account, MM_FEAT_KNOWN);

	assert_non_null(p);
	w_kv_declare(w, p, RPAGES, RANGES, 4, 2);
	w_kv_want(w, p, 2);
	w_run(w);
	assert_int_equal(p->held, 2);
	assert_int_equal(w_swap_open(w, p, 2 * RANGES * RPAGES * PAGE), 0);
	return p;
}

static struct mm_swap_piece piece_of(uint32_t range, uint64_t at, uint64_t swap, uint32_t bytes)
{
	return (struct mm_swap_piece){ at, swap, bytes, range };
}

static void outcome_expect(struct w_proc *p, int result)
{
	uint32_t swapped = p->swapped;

	w_run(w);
	assert_int_equal(p->swapped, swapped + 1);
	assert_int_equal(p->swap_result, result);
}

static void pieces_are_cut_at_pages_and_joined(void **state)
{
	const struct mm_swap_piece all[] = {
		piece_of(0, 100, 0, 1000),
		piece_of(0, 1100, 1000, 6000),      /* they are joined, over two pages */
		piece_of(1, 7100, 7000, 10),        /* another range */
		piece_of(1, 7110, 8000, 10),        /* contiguous in the arena only */
		piece_of(1, 3 * PAGE - 1, 9000, 2), /* across the end of chunk 0 */
	};
	const struct {
		uint64_t offset, swap, bytes;
	} want[] = { { 100, 0, PAGE - 100 },    { 0, PAGE - 100, 7100 - PAGE },
		     { 7100 - PAGE, 7000, 10 }, { 7110 - PAGE, 8000, 10 },
		     { PAGE - 1, 9000, 1 },     { 0, 9001, 1 } };
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = tenant_with_chunks(0);
	assert_true(w_swap(w, p, false, all, MM_ARRAY_SIZE(all)));
	assert_int_equal(w->jobs, MM_ARRAY_SIZE(want));
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++) {
		assert_int_equal(w->job[i].opcode, MM_XOP_SWAP_OUT);
		assert_int_equal(w->job[i].arg[1] % PAGE, want[i].offset);
		assert_int_equal(w->job[i].arg[2], want[i].swap);
		assert_int_equal(w->job[i].arg[3], want[i].bytes);
	}
	outcome_expect(p, 0);
	assert_true(w_swap(w, p, true, all, 1));
	assert_int_equal(w->job[0].opcode, MM_XOP_SWAP_IN);
	outcome_expect(p, 0);
}

static void what_is_not_its_own_is_refused(void **state)
{
	const uint64_t space = 2 * RANGES * RPAGES * PAGE, chunk = RPAGES * PAGE;
	const struct {
		struct mm_swap_piece piece;
		int want;
	} cases[] = {
		{ piece_of(RANGES, 0, 0, 1), -ERANGE },
		{ piece_of(0, 0, 0, 0), -ERANGE },
		{ piece_of(0, 4 * chunk, 0, 1), -ERANGE },
		{ piece_of(0, 4 * chunk - 1, 0, 2), -ERANGE },
		{ piece_of(0, UINT64_MAX, 0, 2), -ERANGE },
		{ piece_of(0, 0, space, 1), -ERANGE },
		{ piece_of(0, 0, space - 1, 2), -ERANGE },
		{ piece_of(0, 0, UINT64_MAX, 2), -ERANGE },
		{ piece_of(0, 2 * chunk, 0, 1), -ENOENT },
		{ piece_of(0, 2 * chunk - 1, 0, 2), -ENOENT },
		{ piece_of(1, 2 * chunk - 1, space - 1, 1), 0 },
	};
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = tenant_with_chunks(0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		print_message("case %zu\n", i);
		assert_true(w_swap(w, p, false, &cases[i].piece, 1));
		assert_int_equal(w->jobs, !cases[i].want);
		outcome_expect(p, cases[i].want);
	}
}

/* A tenant with so many chunks that the map of those held has whole words between two ends. */
static struct w_proc *tenant_of_many(uint32_t chunks)
{
	struct mm_core_opts opts = { .pages = chunks,
				     .page_bytes = PAGE,
				     .policy = MM_POLICY_ELASTIC,
				     .swap_max_bytes = (uint64_t)chunks * PAGE };
	struct w_proc *p;

	w_init(w, &opts, 1);
	w_xfer_up(w);
	p = w_join(w, 0, MM_FEAT_KNOWN);
	assert_non_null(p);
	w_kv_declare(w, p, 1, 1, chunks, 0);
	w_run(w);
	assert_int_equal(w_swap_open(w, p, (uint64_t)chunks * PAGE), 0);
	return p;
}

/*
 * Swaps every range of chunks between two of the ends: those without a gap in one list, those with
 * the gap in a list each.
 */
static void look_at_ranges(struct w_proc *p, uint32_t gap, const uint32_t *end, uint32_t n_ends)
{
	struct mm_swap_piece good[MM_SWAP_PIECES];
	uint32_t n = 0;

	for (uint32_t i = 0; i < n_ends * n_ends; i++) {
		const uint32_t first = end[i / n_ends], last = end[i % n_ends];
		struct mm_swap_piece one =
			piece_of(0, first * PAGE + PAGE - 1, 0, (last - first) * PAGE + 1);

		if (first > last)
			continue;
		if (gap < first || gap > last) {
			good[n++] = one;
			continue;
		}
		assert_true(w_swap(w, p, false, &one, 1));
		assert_int_equal(w->jobs, 0);
		outcome_expect(p, -ENOENT);
	}
	assert_true(w_swap(w, p, false, good, n));
	w_xfer_work(w, 1, -EIO); /* the jobs are not needed */
	outcome_expect(p, -EIO);
}

static void a_gap_is_seen_wherever_it_is(void **state)
{
	const uint32_t gaps[] = { 0, 1, 62, 63, 64, 127, 128, 150, 191, 192, 200, 209, UINT32_MAX };
	const uint32_t ends[] = { 0, 1, 63, 64, 100, 127, 128, 191, 192, 208, 209 };
	const uint32_t chunks = 210;
	struct w_proc *p;

	(void)state;
	p = tenant_of_many(chunks);
	for (size_t i = 0; i < MM_ARRAY_SIZE(gaps); i++) {
		w_kv_want(w, p, chunks);
		w_run(w);
		assert_int_equal(p->held, chunks);
		if (gaps[i] < chunks)
			w_kv_release_chunk(w, p, gaps[i]);
		w_run(w);
		look_at_ranges(p, gaps[i], ends, MM_ARRAY_SIZE(ends));
	}
}

static int swap_of(struct w_proc *p, uint64_t lot, uint64_t n, uint64_t in)
{
	const struct mm_msg msg = { .opcode = MM_OP_SWAP, .user_data = 77, .arg = { lot, n, in } };
	const struct mm_swap_piece one = piece_of(0, 0, 0, 1);

	return mm_core_on_swap(w->core, w->now_ns, p->tenant, &msg, &one);
}

static void a_list_that_cannot_be_ends_the_connection(void **state)
{
	const struct mm_swap_piece one = piece_of(0, 0, 0, 1);
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = w_join(w, 0, MM_FEAT_KNOWN);
	assert_int_equal(swap_of(p, 0, 1, 0), MM_E_PROTOCOL); /* no space */
	p = tenant_with_chunks(0);
	assert_int_equal(swap_of(p, MM_SWAP_LOTS, 1, 0), MM_E_PROTOCOL);
	assert_int_equal(swap_of(p, UINT64_C(1) << 32, 1, 0), MM_E_PROTOCOL);
	assert_int_equal(swap_of(p, 0, 0, 0), MM_E_PROTOCOL);
	assert_int_equal(swap_of(p, 0, MM_SWAP_PIECES + 1, 0), MM_E_PROTOCOL);
	assert_int_equal(swap_of(p, 0, 1, 2), MM_E_PROTOCOL);
	assert_true(w_swap(w, p, false, &one, 1));
	assert_int_equal(swap_of(p, 0, 1, 0), MM_E_PROTOCOL); /* it is under way */
	w_drain(w);
	outcome_expect(p, 0);
}

static void spaces_are_bounded(void **state)
{
	struct w_proc *p, *q;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 20 * PAGE);
	p = w_join(w, 0, MM_FEAT_KNOWN);
	assert_int_equal(w_swap_open(w, p, PAGE), -EINVAL); /* no arena */
	w_kv_declare(w, p, 1, 1, 1, 0);
	assert_int_equal(w_swap_open(w, p, 21 * PAGE), -EDQUOT);
	assert_int_equal(w_swap_open(w, p, 15 * PAGE), 0);
	assert_int_equal(w_swap_open(w, p, PAGE), -EEXIST);
	q = w_join(w, 0, MM_FEAT_KNOWN);
	w_kv_declare(w, q, 1, 1, 1, 0);
	assert_int_equal(w_swap_open(w, q, 6 * PAGE),
			 -EDQUOT); /* together with p's it is beyond the account's */
	assert_int_equal(w_swap_open(w, q, 5 * PAGE), 0);
	for (uint32_t i = 1; i < 4; i++) {
		q = w_join(w, i, MM_FEAT_KNOWN);
		w_kv_declare(w, q, 1, 1, 1, 0);
		assert_int_equal(w_swap_open(w, q, 20 * PAGE), i < 3 ? 0 : -EDQUOT);
	}
	/*
	 * A space that the shell could not create, and that of a tenant that is gone, is not
	 * charged.
	 */
	mm_core_on_swap_failed(w->core, p->tenant);
	assert_int_equal(w_swap_open(w, p, 15 * PAGE), 0);
	w_bye(w, p);
	w_run(w);
	assert_int_equal(w_swap_open(w, q, 16 * PAGE), 0);
}

static void a_chunk_under_a_copy_stays(void **state)
{
	const struct mm_swap_piece one = piece_of(0, RPAGES * PAGE - 5, 0, 10); /* of both chunks */
	struct mm_msg release = { .opcode = MM_OP_KV_RELEASE, .arg = { 1 } };
	struct mm_core_tenant t;
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = tenant_with_chunks(0);
	assert_true(w_swap(w, p, true, &one, 1));
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, p->tenant, &release), 0);
	w_drain(w);
	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	assert_int_equal(t.kv_chunks, 2);
	outcome_expect(p, 0);
	assert_true(w_kv_release(w, p));
	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	assert_int_equal(t.kv_chunks, 1);
}

static void pages_wait_for_the_copies_of_a_dead_tenant(void **state)
{
	const struct mm_swap_piece one = piece_of(0, 0, 0, RPAGES * PAGE);
	struct mm_core_stats s;

	(void)state;
	for (uint32_t done = 0; done <= RPAGES; done++) {
		struct w_proc *p;

		world_begin(MM_POLICY_ELASTIC, 0);
		p = tenant_with_chunks(0);
		assert_true(w_swap(w, p, false, &one, 1));
		assert_int_equal(w->jobs, RPAGES);
		for (uint32_t i = 0; i < done; i++)
			w_xfer_work(w, 1, 0);
		w_kill(w, p);
		for (uint32_t i = done; i < RPAGES; i++) {
			mm_core_stats(w->core, &s);
			assert_int_equal(s.pages[MM_PAGE_REVOKING], 2 * RANGES * RPAGES);
			for (uint32_t j = 0; j < w->jobs; j++)
				assert_int_not_equal(w->job[j].opcode, MM_XOP_DETACH);
			w_xfer_work(w, 1, 0);
		}
		assert_int_equal(w->job[0].opcode, MM_XOP_DETACH);
		w_run(w);
		mm_core_stats(w->core, &s);
		assert_int_equal(s.pages[MM_PAGE_FREE], 60);
		if (done < RPAGES)
			w_done(w);
	}
}

static void a_list_survives_xfer(void **state)
{
	const struct mm_swap_piece one = piece_of(1, 7, 0, 2 * RPAGES * PAGE - 7);
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = tenant_with_chunks(0);
	assert_true(w_swap(w, p, false, &one, 1));
	for (uint32_t i = 0; i < 3; i++) {
		w_xfer_work(w, 1, 0);
		w_xfer_kill(w, true);
		w_tick(w, MM_NS_PER_MS);
		w_xfer_up(w);
	}
	outcome_expect(p, 0);
}

static void a_copy_that_fails_is_reported(void **state)
{
	const struct mm_swap_piece one = piece_of(0, 0, 0, 2 * RPAGES * PAGE);
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = tenant_with_chunks(0);
	assert_true(w_swap(w, p, false, &one, 1));
	w_xfer_work(w, 1, -EIO);
	outcome_expect(p, -EIO);
	assert_true(w_swap(w, p, false, &one, 1));
	for (uint32_t i = 0; i < 2; i++) {
		w_xfer_kill(w, true);
		w_xfer_up(w);
	}
	outcome_expect(p, -EIO); /* xfer has ended twice during its first job */
	assert_true(w_swap(w, p, false, &one, 1));
	outcome_expect(p, 0);
}

/* A tenant has few jobs at a time, so that jobs of another one do not wait for all of them. */
static void tenants_are_served_round_robin(void **state)
{
	struct mm_swap_piece many[40];
	struct w_proc *p, *q;
	uint32_t of_q = 0;

	(void)state;
	world_begin(MM_POLICY_ELASTIC, 0);
	p = tenant_with_chunks(0);
	q = tenant_with_chunks(1);
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(many); i++)
		many[i] = piece_of(0, i * 100, i * 200, 50);
	assert_true(w_swap(w, p, false, many, MM_ARRAY_SIZE(many)));
	assert_true(w->jobs < 20);
	assert_true(w_swap(w, q, false, many, MM_ARRAY_SIZE(many)));
	for (uint32_t i = 0; i < w->jobs; i++)
		of_q += (uint32_t)w->job[i].arg[0] == q->tenant;
	assert_true(of_q >= 10);
	w_run(w);
	assert_int_equal(p->swapped + q->swapped, 2);
}

static void the_policy_gives_the_share(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(MM_POLICY_SWAP, 0);
	p = tenant_with_chunks(0);
	w_kv_want(w, p, 4);
	w_run(w);
	assert_int_equal(p->held, 2);
	assert_int_equal(p->denied, -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(pieces_are_cut_at_pages_and_joined, teardown),
		cmocka_unit_test_teardown(what_is_not_its_own_is_refused, teardown),
		cmocka_unit_test_teardown(a_gap_is_seen_wherever_it_is, teardown),
		cmocka_unit_test_teardown(a_list_that_cannot_be_ends_the_connection, teardown),
		cmocka_unit_test_teardown(spaces_are_bounded, teardown),
		cmocka_unit_test_teardown(a_chunk_under_a_copy_stays, teardown),
		cmocka_unit_test_teardown(pages_wait_for_the_copies_of_a_dead_tenant, teardown),
		cmocka_unit_test_teardown(a_list_survives_xfer, teardown),
		cmocka_unit_test_teardown(a_copy_that_fails_is_reported, teardown),
		cmocka_unit_test_teardown(tenants_are_served_round_robin, teardown),
		cmocka_unit_test_teardown(the_policy_gives_the_share, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
