/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory errors of the device: pages that were in use are not used again before they were created
 * anew.
 */
#undef NDEBUG
#include <errno.h>

#include "libclient/base/base.h"
#include "tests/unit/mmd/core/story.h"

#define PAGES 60

static uint64_t pages_in_state(enum mm_page_state state)
{
	return story_stats().pages[state];
}

static struct w_proc *with_kv(uint32_t account, uint32_t chunks)
{
	struct w_proc *p = tenant_with(account, 4, 2);

	w_kv_declare(w, p, 1, 2, 8, 0);
	w_kv_want(w, p, chunks);
	w_run(w);
	assert_int_equal(p->held, chunks);
	return p;
}

static uint32_t pages_owned(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t.pages_param + t.pages_slot + t.pages_kv + t.pages_revoking;
}

/* Lets time pass and jobs complete until all quarantined pages were created anew. */
static void wait_for_quarantine(void)
{
	for (int i = 0; i < 100 && pages_in_state(MM_PAGE_QUARANTINE); i++)
		pass_ms(100);
	assert_int_equal(pages_in_state(MM_PAGE_QUARANTINE), 0);
}

static void test_nobody_there(void **state)
{
	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	w_memory_error(w);
	assert_int_equal(story_stats().memory_errors, 1);
	assert_int_equal(story_stats().suspects, 0);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
}

/* The tenant that used the bad memory dies: its pages are created anew, those of others are not. */
static void test_the_victim_dies(void **state)
{
	uint64_t recreated;
	struct w_proc *a, *b;
	uint32_t of_a, of_b;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	a = with_kv(0, 3);
	b = with_kv(1, 2);
	of_a = pages_owned(a);
	of_b = pages_owned(b);
	w_memory_error(w);
	assert_int_equal(story_stats().suspects, of_a + of_b);
	assert_int_equal(pages_in_state(MM_PAGE_QUARANTINE), 0);
	recreated = w->jobs_of[MM_XOP_RECREATE];
	w_kill(w, a);
	w_run(w);
	assert_int_equal(pages_in_state(MM_PAGE_QUARANTINE), of_a);
	assert_int_equal(story_stats().suspects, of_b);
	assert_int_equal(story_stats().suspects_quarantined, of_a);
	wait_for_quarantine();
	assert_int_equal(w->jobs_of[MM_XOP_RECREATE] - recreated, of_a);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES - of_b);
	assert_int_equal(pages_owned(b), of_b);
	story_steps(b, 2);
}

/* Many pages are created anew in one round; those being created are not marked by a new error. */
static void test_many_at_once(void **state)
{
	struct w_proc *p;
	uint32_t n;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = tenant_with(0, 10, 4);
	n = pages_owned(p);
	assert_true(n > 40);
	w_memory_error(w);
	w_kill(w, p);
	w_run(w);
	assert_int_equal(pages_in_state(MM_PAGE_QUARANTINE), n);
	w_tick(w, MM_NS_PER_S);
	assert_int_equal(pages_in_state(MM_PAGE_QUARANTINE), 0);
	assert_int_equal(pages_in_state(MM_PAGE_SCRUBBING), n);
	w_memory_error(w);
	assert_int_equal(story_stats().suspects, 0);
	w_run(w);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
	assert_int_equal(story_stats().suspects_quarantined, n);
}

/*
 * Pages whose descriptor is lost: those that nobody has are created anew at once, those of a tenant
 * when they come free, even if it is cleared of a memory error meanwhile.
 */
static void test_unheld(void **state)
{
	uint64_t recreated;
	struct w_proc *p;
	uint32_t n, owner;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = with_kv(0, 3);
	n = pages_owned(p);
	recreated = w->jobs_of[MM_XOP_RECREATE];
	for (uint32_t i = 0; i < PAGES; i++)
		assert_true(w_page_unheld(w, i));
	assert_int_equal(pages_in_state(MM_PAGE_FREE), 0);
	w_tick(w, 1);
	assert_int_equal(w->jobs_of[MM_XOP_RECREATE] - recreated, PAGES - n);
	for (uint32_t i = 0; i < PAGES; i++) {
		mm_core_page(w->core, i, &owner);
		assert_int_equal(mm_core_page_is_made(w->core, i), owner == p->tenant);
		assert_int_equal(w_page_unheld(w, i), owner == p->tenant);
	}
	w_run(w);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES - n);
	w_memory_error(w);
	for (int i = 0; i < 3; i++) {
		w_stats(w, p, 1);
		story_steps(p, 1);
	}
	w_stats(w, p, 1);
	assert_int_equal(story_stats().suspects, 0);
	w_kill(w, p);
	w_run(w);
	assert_int_equal(w->jobs_of[MM_XOP_RECREATE] - recreated, PAGES);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
	assert_int_equal(story_stats().suspects_quarantined, 0);
}

/* An xfer that comes later does not have the page: that it cannot be scrubbed says nothing. */
static void test_unheld_in_scrub(void **state)
{
	struct w_proc *p;
	uint32_t n = 0;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = with_kv(0, 3);
	w_kill(w, p);
	while (!pages_in_state(MM_PAGE_SCRUBBING)) /* it is detached first */
		assert_true(w_xfer_work(w, 1, 0));
	for (uint32_t i = 0; i < PAGES; i++)
		if (mm_core_page(w->core, i, NULL) == MM_PAGE_SCRUBBING)
			n += w_page_unheld(w, i);
	assert_true(n > 1);
	assert_true(w_xfer_work(w, 1, -ENOENT));
	w_run(w);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
}

/* A tenant that goes on computing did not use the bad memory; pages that it releases are good. */
static void test_cleared(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = with_kv(0, 3);
	story_steps(p, 5);
	w_memory_error(w);
	w_stats(w, p, 1);
	story_steps(p, 1);
	w_stats(w, p, 1);
	assert_int_equal(story_stats().suspects, pages_owned(p));
	story_steps(p, 1);
	w_stats(w, p, 1);
	assert_int_equal(story_stats().suspects, 0);
	w_kill(w, p);
	w_run(w);
	assert_int_equal(story_stats().suspects_quarantined, 0);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
}

/* A marked page stays marked when its tenant releases it; a page granted later has no mark. */
static void test_given_back_by_a_suspect(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = with_kv(0, 2);
	w_memory_error(w);
	w_kv_want(w, p, 3);
	w_run(w);
	assert_int_equal(p->held, 3);
	w_kv_want(w, p, 0);
	while (w_kv_release(w, p))
		;
	w_run(w);
	assert_int_equal(story_stats().suspects_quarantined, 2 * 2);
	wait_for_quarantine();
}

/*
 * An error is reported several times, also while pages are scrubbed or created anew: no page is
 * lost.
 */
static void test_again_and_again(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = with_kv(0, 3);
	w_memory_error(w);
	w_memory_error(w);
	w_kill(w, p);
	for (int i = 0; i < 400; i++) {
		w_memory_error(w);
		w_xfer_work(w, 3, 0);
		w_tick(w, 20 * MM_NS_PER_MS);
	}
	w_run(w);
	wait_for_quarantine();
	pass_ms(100);
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
	assert_int_equal(story_stats().suspects, 0);
}

/*
 * Marked pages are quarantined and created anew also if xfer has died meanwhile.
 */
static void test_xfer_dies_too(void **state)
{
	struct w_proc *p;
	uint32_t n;

	(void)state;
	story_begin(MM_POLICY_ELASTIC, PAGES);
	p = with_kv(0, 3);
	n = pages_owned(p);
	w_memory_error(w);
	w_xfer_kill(w, true);
	w_kill(w, p);
	w_run(w);
	w_xfer_up(w);
	w_run(w);
	assert_int_equal(story_stats().suspects_quarantined, n);
	wait_for_quarantine();
	assert_int_equal(pages_in_state(MM_PAGE_FREE), PAGES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nobody_there),
		TEST(test_the_victim_dies),
		TEST(test_many_at_once),
		TEST(test_unheld),
		TEST(test_unheld_in_scrub),
		TEST(test_cleared),
		TEST(test_given_back_by_a_suspect),
		TEST(test_again_and_again),
		TEST(test_xfer_dies_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
