/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each fault point of xfer fails once: it is set up, creates pages, gets a store and a tenant,
 * copies, scrubs, swaps, recreates a page, ends. Whichever fails, xfer either reports it in a
 * result and succeeds when the job is issued again, or ends by itself without a leak, upon which
 * core starts a new one; no job is reported as done that is not.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/common/log.h"
#include "mmd/xfer/xfer.h"
#include "tests/fault/points.h"
#include "tests/unit/mmd/xfer/core.h"

#define POINTS_MAX  300
#define PAGES       8
#define STORE_BYTES (GRANULE + 4096)

static void be_xfer(int argc, char **argv)
{
	if (argc != 3 || strcmp(argv[1], "--xfer") != 0)
		return;
	mm_log_init("xfer", MM_LOG_ERROR);
	point_arm();
	point_exit(mm_xfer_main(atoi(argv[2])));
}

/* A job that failed once must not fail a second time. */
static bool job_insist(struct core *core, enum mm_xop op, uint64_t a, uint64_t b, uint64_t c,
		       uint64_t d)
{
	int r = core->died ? -ECONNRESET : core_do(core, op, 0, a, b, c, d);

	if (r < 0 && !core->died)
		r = core_do(core, op, 0, a, b, c, d);
	if (r < 0 && !core->died)
		fail_msg("op %d: %d, though it was asked twice", op, r);
	return r == 0;
}

static void check_page(struct core *core, uint32_t page, uint64_t words_copied)
{
	static uint64_t words[GRANULE / 8];

	core_read(core, page, 0, words, GRANULE);
	for (uint64_t w = 0; w < GRANULE / 8; w++)
		assert_int_equal(words[w], w < words_copied ? core_pattern(w) : 0);
}

/* Copies page 1 to page 4 by way of a swap space. */
static void swap_there_and_back(struct core *core)
{
	mm_cleanup(mm_region_done) struct mm_region space = MM_REGION_NULL;
	struct mm_xmsg msg = { .magic = MM_PROTO_MAGIC,
			       .kind = MM_X_SWAP,
			       .count = 1,
			       .id = TENANT,
			       .bytes = GRANULE };
	uint64_t *words;

	if (core->died)
		return;
	assert_int_equal(mm_region_create(GRANULE, MM_REGION_SHARED, "swap", &space), 0);
	words = space.base;
	core_send(core, &msg, &space.fd, 1);
	core_fill(core, 4, 0);
	if (!job_insist(core, MM_XOP_SWAP_OUT, TENANT, GRANULE, 8192, 4096))
		return;
	for (uint64_t w = 0; w < GRANULE / 8; w++)
		assert_int_equal(words[w], w >= 1024 && w < 1536 ? core_pattern(w - 1024) : 0);
	if (job_insist(core, MM_XOP_SWAP_IN, TENANT, 4 * GRANULE, 8192, 4096))
		check_page(core, 4, 4096 / 8);
}

static void xfer_live(struct core *core)
{
	/* Pages of an xfer that died after a CREATE may have been lost with its socket. */
	if (!job_insist(core, MM_XOP_CREATE, 0, PAGES, 0, 0) || core->died)
		return;
	for (uint32_t i = 0; i < PAGES; i++)
		assert_true(core->page_fd[i] >= 0);
	core_fill(core, 1, 0xee);
	core_fill(core, 2, 0xee);
	core_make_store(core, STORE_BYTES);
	core_send_store(core);
	core_send_tenant(core);
	if (job_insist(core, MM_XOP_COPY, 1, STORE, 0, 4096))
		check_page(core, 1, 4096 / 8);
	if (job_insist(core, MM_XOP_SCRUB, 2, 0, 0, 0))
		check_page(core, 2, 0);
	if (job_insist(core, MM_XOP_RECREATE, 3, 0, 0, 0) && !core->died)
		assert_int_equal(core->page_messages, PAGES + 1);
	swap_there_and_back(core);
	(void)job_insist(core, MM_XOP_DETACH, TENANT, 0, 0, 0);
	(void)job_insist(core, MM_XOP_STORE_DROP, STORE, 0, 0, 0);
}

static bool child_run(uint64_t nth)
{
	struct core *core;
	void *state = NULL;
	int status;

	point_choose(nth);
	assert_int_equal(core_setup(&state), 0);
	core = state;
	core->may_die = true;
	core_start(core);
	if (!core->died && core->hello.result == 0)
		xfer_live(core);
	else
		assert_true(core->died || core->hello.text[0]);
	status = core_end(core);
	if ((status & ~POINT_FIRED) > 1)
		fail_msg("point %lu: xfer ended with status %d", nth, status);
	if (!(status & POINT_FIRED))
		assert_true(status == 0 && !core->died);
	assert_int_equal(core_teardown(&state), 0);
	return status & POINT_FIRED;
}

static void test_every_point(void **state)
{
	uint64_t n;

	(void)state;
	for (n = 1; n < POINTS_MAX && child_run(n); n++)
		;
	print_message("%lu points\n", n - 1);
	assert_in_range(n, 20, POINTS_MAX - 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_point) };

	be_xfer(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
