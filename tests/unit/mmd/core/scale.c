/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As many tenants and accounts as a core can have, with a device on which every job succeeds.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/core.h"

#define PAGES    2048
#define JOBS_MAX 4096

static struct mm_core *core;
static uint64_t now_ns = MM_NS_PER_S;
static uint32_t tenant[MM_CORE_TENANTS_MAX];
static uint64_t granted, freed;

static int core_create(uint32_t tenants, uint32_t accounts, uint8_t tag)
{
	const struct mm_core_opts opts = { .pages = PAGES,
					   .page_bytes = 4096,
					   .policy = MM_POLICY_REMAP,
					   .tenants_max = tenants,
					   .accounts_max = accounts,
					   .tag = tag };

	return mm_core_create(&opts, &core);
}

/* Takes out actions until there are none. Returns the number of jobs; their ids are in @job. */
static uint32_t actions_take(uint64_t *job, uint32_t room)
{
	struct mm_action a;
	uint32_t jobs = 0;

	while (mm_core_next(core, &a)) {
		granted += a.kind == MM_ACT_EVENT && a.msg.opcode == MM_EV_KV_GRANT;
		freed += a.kind == MM_ACT_TENANT_FREE;
		if (a.kind != MM_ACT_JOB)
			continue;
		assert_true(jobs < room);
		job[jobs++] = a.msg.user_data;
	}
	return jobs;
}

/* Each job succeeds when the queue is empty, before any other event. */
static void core_run(void)
{
	static uint64_t job[JOBS_MAX];
	uint32_t head = 0, tail = actions_take(job, JOBS_MAX);

	while (head < tail) {
		now_ns += 1000;
		assert_int_equal(mm_core_on_job_done(core, now_ns, job[head++], 0), 0);
		if (head == tail)
			head = tail = 0;
		tail += actions_take(job + tail, JOBS_MAX - tail);
	}
}

static void request_send(uint32_t id, enum mm_op op, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	const struct mm_msg msg = { .opcode = (uint16_t)op, .arg = { a, b, c, d } };

	assert_int_equal(mm_core_on_request(core, now_ns, id, &msg), 0);
	core_run();
}

static int teardown(void **state)
{
	(void)state;
	core = mm_core_destroy(core);
	return 0;
}

static void limits_are_checked(void **state)
{
	(void)state;
	assert_int_equal(core_create(MM_CORE_TENANTS_MAX + 1, 0, 0), -EINVAL);
	assert_int_equal(core_create(0, MM_CORE_ACCOUNTS_MAX + 1, 0), -EINVAL);
	assert_int_equal(core_create(0, 1, 0),
			 -EINVAL); /* fewer than are kept free for new accounts */
	assert_int_equal(core_create(0, 0, MM_TAGS_MAX), -EINVAL);
	assert_null(core);
}

static void join_all(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct mm_core_join join = { .account = 7000 + i, .features = MM_FEAT_KNOWN };

		assert_int_equal(mm_core_on_join(core, now_ns, &join, &tenant[i]), 0);
		assert_int_equal(MM_TENANT_INDEX(tenant[i]), i);
		assert_int_equal(tenant[i] >> MM_TENANT_TAG_SHIFT & (MM_TAGS_MAX - 1),
				 MM_TAGS_MAX - 1);
		core_run();
	}
}

/* Each of a thousand tenants has a chunk, demands a second one, gets it in order, and leaves. */
static void a_thousand_tenants(void **state)
{
	const struct mm_core_join late = { .account = 1 };
	struct mm_core_tenant t;
	uint32_t n = MM_CORE_TENANTS_MAX, none;

	(void)state;
	assert_int_equal(core_create(n, MM_CORE_ACCOUNTS_MAX, MM_TAGS_MAX - 1), 0);
	mm_core_on_xfer_up(core, now_ns, 1);
	core_run();
	join_all(n);
	assert_int_equal(mm_core_on_join(core, now_ns, &late, &none), MM_E_FULL);
	for (uint32_t i = 0; i < n; i++) {
		request_send(tenant[i], MM_OP_KV_DECLARE, 4096, 1, 2, 0);
		request_send(tenant[i], MM_OP_KV_WANT, 2, 0, 0, 0);
	}
	mm_core_check(core);
	assert_int_equal(granted, PAGES);
	assert_int_equal(mm_core_accounts_end(core), n);
	for (uint32_t i = 0; i < n; i++) {
		assert_true(mm_core_tenant(core, tenant[i], &t));
		assert_int_equal(t.account, 7000 + i);
		assert_int_equal(t.kv_chunks, 2);
	}
	for (uint32_t i = 0; i < n; i++) {
		mm_core_on_dead(core, now_ns, tenant[i]);
		core_run();
		assert_false(mm_core_tenant(core, tenant[i], &t));
	}
	assert_int_equal(freed, n);
	mm_core_check(core);
	assert_int_equal(mm_core_on_join(core, now_ns, &late, &none), 0);
	assert_int_not_equal(none, tenant[0]); /* the same index: the next generation */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(limits_are_checked, teardown),
		cmocka_unit_test_teardown(a_thousand_tenants, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
