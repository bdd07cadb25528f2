/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each fault point of a load fails once. Whichever fails, load ends by itself and leaks nothing;
 * the model is either there in full or refused with a sentence; and neither core nor the tenant
 * gets a report of success for a load that failed.
 */
#undef NDEBUG
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "mmd/load/load.h"
#include "mmd/common/log.h"
#include "tests/fault/points.h"
#include "tests/unit/mmd/load/model.h"

#define POINTS_MAX 200
#define FILES      2

static const struct tensor model[] = {
	{ "embed.weight", "F32", 2, { 700, 900 }, 0 },
	{ "layers.0.q.weight", "BF16", 2, { 129, 31 }, 0 },
	{ "layers.1.q.weight", "F16", 2, { 1500, 1001 }, 1 },
};

/* ---- load ---- */

static void be_load(int argc, char **argv)
{
	if (argc != 5 || strcmp(argv[1], "--load") != 0)
		return;
	mm_log_init("load", MM_LOG_ERROR);
	mm_fault_arm(strtoull(argv[4], NULL, 10));
	point_exit(mm_load_main(atoi(argv[2]), atoi(argv[3])));
}

/* ---- core and tenant ---- */

static int setup(void **state)
{
	(void)state;
	model_dir_make("/tmp");
	model_write_config("{\"num_hidden_layers\":2}");
	model_write(model, MM_ARRAY_SIZE(model), 0);
	model_write_index(model, MM_ARRAY_SIZE(model));
	return 0;
}

static bool on_disk;

/* Plays core until load sends DONE or has gone. */
static bool core_heard_done(struct load *load)
{
	while (load_receive(load)) {
		if (load->ident.op == MM_L_DONE)
			return true;
		assert_int_equal(load->ident.op, MM_L_IDENT);
		on_disk ? load_alloc_disk(load) : load_alloc(load);
	}
	return false;
}

/* Plays the tenant: receives statuses until the last one, or load has gone. */
static bool tenant_heard_done(struct load *load)
{
	while (!load->status.done) {
		size_t len = 0;
		int r;

		r = mm_sock_wait(load->tenant, POLLIN, mm_deadline_ns(WAIT_S * MM_NS_PER_S));
		assert_int_equal(r, 0);
		r = mm_sock_recv_nofds(load->tenant, &load->status, sizeof(load->status), &len);
		if (r == -ECONNRESET)
			return false;
		assert_int_equal(r, 0);
		assert_int_equal(len, sizeof(load->status));
	}
	return true;
}

static void check_refusal(uint64_t nth, const char *who, int result, const char *text)
{
	if (result >= 0 || !*text)
		fail_msg("point %lu: %s was told %d '%s' of a load that failed", nth, who, result,
			 text);
}

static bool child_run(uint64_t nth)
{
	const struct mm_load_pack rule = pack_rule(MM_PACK_TRANSPOSE, "layers.*.t",
						   (const char *const[4]){ "layers.*.q.weight" });
	bool core, tenant;
	struct load load;
	char number[24];
	int status;

	snprintf(number, sizeof(number), "%lu", nth);
	load_start(&load, number);
	load_pass_index(&load);
	load_pass_rule(&load, &rule);
	load_pass_model(&load, FILES);
	core = core_heard_done(&load);
	tenant = tenant_heard_done(&load);
	assert_int_equal(waitpid(load.pid, &status, 0), load.pid);
	load.pid = 0;
	if (!WIFEXITED(status) || (WEXITSTATUS(status) & ~POINT_FIRED) > 1)
		fail_msg("point %lu: load ended with status %#x", nth, (unsigned int)status);
	status = WEXITSTATUS(status);
	if (!(status & ~POINT_FIRED)) {
		assert_true(core && load.ident.result == 0);
		assert_true(!tenant || load.status.result == 0);
		if (on_disk)
			load_join(&load);
		store_check(&load, model, MM_ARRAY_SIZE(model));
	} else {
		/*
		 * A load that does not reach core tells nobody, and both take it for dead; where
		 * the tenant is not reached core is.
		 */
		if (core)
			check_refusal(nth, "core", load.ident.result, load.ident.text);
		if (tenant)
			check_refusal(nth, "the tenant", load.status.result, load.status.text);
	}
	load_done(&load);
	assert_true((status & POINT_FIRED) || status == 0);
	return status & POINT_FIRED;
}

static void test_every_point(void **state)
{
	uint64_t n;

	(void)state;
	for (n = 1; n < POINTS_MAX && child_run(n); n++)
		;
	print_message("%lu points\n", n - 1);
	assert_in_range(n, 15, POINTS_MAX - 1);
}

static void test_every_point_on_disk(void **state)
{
	on_disk = true;
	test_every_point(state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_every_point, setup, model_dir_remove),
		cmocka_unit_test_setup_teardown(test_every_point_on_disk, setup, model_dir_remove),
	};

	be_load(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
