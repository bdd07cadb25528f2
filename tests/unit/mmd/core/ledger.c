/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "mmd/core/book/account.h"
#include "mmd/core/book/ledger.h"

#define PAGES 8
#define JOB   1

static struct mm_ledger ledger;
static struct mm_page page[PAGES];

static int setup(void **state)
{
	(void)state;
	mm_ledger_init(&ledger, page, PAGES);
	return 0;
}

static void make_free(uint32_t p)
{
	mm_ledger_created(&ledger, p);
	mm_ledger_scrub_begin(&ledger, p, JOB, false);
	mm_ledger_scrub_end(&ledger, p);
}

/* Returns whether @what panics; it runs in a child, since a panic ends the process. */
static bool call_panics(void (*what)(uint32_t), uint32_t p)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid) {
		close(STDERR_FILENO);
		what(p);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

static void pages_circulate(void **state)
{
	uint32_t p;

	(void)state;
	make_free(3);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
	p = mm_ledger_reserve(&ledger, 5, 1, 1);
	assert_int_equal(p, 3);
	assert_int_equal(page[3].state, MM_PAGE_DIRTY);
	mm_ledger_charge(&ledger, 3, 1, false);
	mm_ledger_give(&ledger, 3, MM_PAGE_PARAM);
	mm_ledger_give(&ledger, 3, MM_PAGE_SLOT);
	mm_ledger_revoke(&ledger, 3);
	assert_int_equal(ledger.revoking[5].length, 1);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
	mm_ledger_drop(&ledger, 3);
	assert_int_equal(ledger.scrub.length, 1);
	assert_int_equal(ledger.inflight[1], 1);
	mm_ledger_scrub_begin(&ledger, 3, JOB, false);
	mm_ledger_charge(&ledger, 3, MM_DOMAIN_NONE, false);
	mm_ledger_scrub_end(&ledger, 3);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
	assert_int_equal(ledger.count[MM_PAGE_FREE], 1);
}

static void a_domain_keeps_its_pages(void **state)
{
	(void)state;
	make_free(0);
	make_free(1);
	assert_int_equal(mm_ledger_grantable(&ledger, 2), 2);
	assert_int_equal(mm_ledger_reserve(&ledger, 0, 2, 2), 0);
	mm_ledger_drop(&ledger, 0);
	mm_ledger_scrub_begin(&ledger, 0, JOB, false);
	mm_ledger_scrub_end(&ledger, 0);
	assert_int_equal(mm_ledger_grantable(&ledger, 2), 2);
	assert_int_equal(mm_ledger_grantable(&ledger, 3), 1);
	assert_int_equal(mm_ledger_reserve(&ledger, 1, 3, 3), 1);
	assert_int_equal(mm_ledger_reserve(&ledger, 1, 3, 3), MM_NO_PAGE);
	/* A page that was created anew may be granted in any domain, but only after a scrub. */
	mm_ledger_scrub_begin(&ledger, 0, JOB, true);
	assert_int_equal(ledger.inflight[MM_DOMAIN_NONE], 1);
	mm_ledger_scrub_end(&ledger, 0);
	assert_int_equal(page[0].state, MM_PAGE_DIRTY);
	assert_int_equal(mm_ledger_reserve(&ledger, 1, 3, 3), MM_NO_PAGE);
	mm_ledger_scrub_begin(&ledger, 0, JOB, false);
	mm_ledger_scrub_end(&ledger, 0);
	assert_int_equal(mm_ledger_reserve(&ledger, 1, 3, 3), 0);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
}

static void own_pages_go_first(void **state)
{
	(void)state;
	make_free(0);
	make_free(1);
	assert_int_equal(mm_ledger_reserve(&ledger, 0, 2, 2), 0);
	mm_ledger_drop(&ledger, 0);
	mm_ledger_scrub_begin(&ledger, 0, JOB, false);
	mm_ledger_scrub_end(&ledger, 0);
	assert_int_equal(mm_ledger_reserve(&ledger, 0, 2, 2), 0);
	assert_int_equal(mm_ledger_reserve(&ledger, 0, 2, 2), 1);
}

static void a_written_page_waits_for_its_job(void **state)
{
	(void)state;
	make_free(0);
	assert_int_equal(mm_ledger_reserve(&ledger, 0, 0, 0), 0);
	mm_ledger_job(&ledger, 0, JOB);
	mm_ledger_drop(&ledger, 0);
	assert_int_equal(ledger.scrub.length, 0);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
	mm_ledger_job(&ledger, 0, 0);
	assert_int_equal(ledger.scrub.length, 1);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
}

static void a_quarantined_page_is_made_anew(void **state)
{
	(void)state;
	make_free(0);
	mm_ledger_scrub_begin(&ledger, 0, JOB, true);
	mm_ledger_quarantine(&ledger, 0, false);
	assert_int_equal(ledger.quarantine.length, 1);
	mm_ledger_retry(&ledger, 0, JOB);
	mm_ledger_scrub_end(&ledger, 0);
	assert_int_equal(page[0].state, MM_PAGE_DIRTY);
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
}

static void try_scrub_plain(uint32_t p)
{
	mm_ledger_scrub_begin(&ledger, p, JOB, false);
}

static void try_give(uint32_t p)
{
	mm_ledger_give(&ledger, p, MM_PAGE_KV);
}

static void try_drop(uint32_t p)
{
	mm_ledger_drop(&ledger, p);
}

static void try_scrub_end(uint32_t p)
{
	mm_ledger_scrub_end(&ledger, p);
}

static void try_revoke(uint32_t p)
{
	mm_ledger_revoke(&ledger, p);
}

static void try_retry(uint32_t p)
{
	mm_ledger_retry(&ledger, p, JOB);
}

static void try_check(uint32_t p)
{
	ledger.page[p].state = MM_PAGE_KV;
	mm_ledger_check(&ledger, MM_CORE_ACCOUNTS_DEFAULT, MM_CORE_TENANTS_DEFAULT);
}

static void only_the_drawn_transitions_exist(void **state)
{
	(void)state;
	make_free(0); /* FREE */
	make_free(1);
	assert_int_equal(mm_ledger_reserve(&ledger, 0, 0, 0), 0); /* 0: DIRTY, owned */
	mm_ledger_job(&ledger, 0, JOB);                           /* and a job writes it */
	mm_ledger_created(&ledger, 2);                            /* DIRTY, without an owner */
	assert_true(call_panics(try_scrub_plain, 1));
	assert_true(call_panics(try_scrub_plain, 0));
	assert_true(call_panics(try_give, 0));
	assert_true(call_panics(try_give, 1));
	assert_true(call_panics(try_give, 2));
	assert_true(call_panics(try_drop, 1));
	assert_true(call_panics(try_scrub_end, 1));
	assert_true(call_panics(try_revoke, 2));
	assert_true(call_panics(try_retry, 1));
	assert_true(call_panics(try_check, 1));
	assert_false(call_panics(try_scrub_plain, 2));
}

static void accounts_are_charged(void **state)
{
	const struct mm_core_quota quota = { .min_pages = 2, .max_pages = 3, .weight = 100 };
	struct mm_account table[MM_CORE_ACCOUNTS_DEFAULT] = { { 0 } },
			  *a = mm_account_open(table, MM_CORE_ACCOUNTS_DEFAULT, 42, &quota);

	(void)state;
	assert_ptr_equal(mm_account_find(table, 1, 42), a);
	assert_null(mm_account_find(table, MM_CORE_ACCOUNTS_DEFAULT, 43));
	assert_int_equal(mm_account_charge(a, 2), 0);
	assert_int_equal(mm_account_charge(a, 2), MM_E_QUOTA);
	assert_int_equal(a->charged, 2);
	mm_account_quarantine(a, true);
	assert_int_equal(a->charged, 1);
	assert_int_equal(mm_account_room(a), 1);
	/* A page that was free when it was quarantined counts, too, even beyond the max. */
	mm_account_quarantine(a, false);
	mm_account_quarantine(a, false);
	assert_int_equal(mm_account_room(a), 0);
	mm_account_unquarantine(a);
	mm_account_unquarantine(a);
	mm_account_uncharge(a, 1);
	assert_int_equal(mm_account_room(a), 2);
	assert_int_equal(mm_account_unused_min(a), 1);
	for (uint64_t i = 1; i < MM_CORE_ACCOUNTS_DEFAULT; i++)
		assert_non_null(mm_account_open(table, MM_CORE_ACCOUNTS_DEFAULT, i, &quota));
	assert_null(mm_account_open(table, MM_CORE_ACCOUNTS_DEFAULT, 999, &quota));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(pages_circulate, setup),
		cmocka_unit_test_setup(a_domain_keeps_its_pages, setup),
		cmocka_unit_test_setup(own_pages_go_first, setup),
		cmocka_unit_test_setup(a_written_page_waits_for_its_job, setup),
		cmocka_unit_test_setup(a_quarantined_page_is_made_anew, setup),
		cmocka_unit_test_setup(only_the_drawn_transitions_exist, setup),
		cmocka_unit_test(accounts_are_charged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
