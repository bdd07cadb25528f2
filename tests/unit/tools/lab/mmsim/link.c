/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's link against times that can be computed by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include <math.h>
#include <string.h>

#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/link.h"

/* A device on which nothing runs, with the flow of COPY jobs and two of a tenant. */
struct bare {
	struct ms_flow in[3], out[3];
	struct ms_tenant tenant;
	struct ms_sim sim;
	struct ms_device dev;
};

static void bare_init(struct bare *b)
{
	memset(b, 0, sizeof(*b));
	b->dev.sim = &b->sim;
	b->tenant.sim = &b->sim;
	b->tenant.dev = &b->dev;
	b->dev.profile = (struct mm_profile){ .h2d_bps = 3e9,
					      .d2h_bps = 1e9,
					      .duplex_loss = 0.2,
					      .link_slows_in = 0.5,
					      .link_slows_out = 0.25 };
	b->dev.compute = (struct ms_compute){ .slow = 1 };
	b->dev.link = (struct ms_link){ .lane = { { .flows = b->in }, { .flows = b->out } },
					.n_flows = MM_ARRAY_SIZE(b->in) };
}

static void bare_done(struct bare *b)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(b->in); i++) {
		assert_null(b->in[i].head);
		assert_null(b->out[i].head);
	}
	for (struct ms_transfer *next, *spare = b->dev.link.spare; spare; spare = next) {
		next = spare->next;
		free(spare);
	}
	ms_heap_done(&b->sim.heap);
	ms_fifo_done(&b->dev.jobs_done);
}

/* Lets transfers go on until one is paused or ends. Return: the time. */
static double bare_run(struct bare *b)
{
	assert_true(b->dev.link.next_ns != UINT64_MAX);
	b->sim.now_ns = b->dev.link.next_ns;
	ms_link_run(&b->dev);
	return (double)b->sim.now_ns;
}

static struct ms_transfer *bare_start(struct bare *b, uint32_t flow, double bytes, bool to_host,
				      uint64_t due)
{
	struct ms_transfer *transfer = ms_link_start(&b->dev, flow, bytes, to_host, due);

	transfer->tenant = &b->tenant;
	transfer->cursor = (uint32_t)due % MM_CYCLES_MAX;
	return transfer;
}

static bool nearly(double a, double b)
{
	return fabs(a - b) < 8; /* each end is rounded up */
}

/* Each direction has a lane; with both busy each loses a part, and kernels are slowed by both. */
static void directions_have_lanes(void **state)
{
	const double in_ns = 1e9 / 3, out_ns = 1e9;
	struct bare b;

	(void)state;
	bare_init(&b);
	bare_start(&b, 1, 1e9, true, 0);
	assert_true(b.dev.compute.slow == 1 / 1.25);
	bare_start(&b, 2, 1e9, false, 0);
	assert_true(fabs(b.dev.compute.slow - 1 / 1.75) < 1e-12);
	/* 20 % are lost while both are busy. */
	assert_true(nearly(bare_run(&b), in_ns / 0.8));
	assert_true(b.dev.compute.slow == 1 / 1.25);
	assert_true(nearly(bare_run(&b), out_ns + in_ns / 0.8 * 0.2));
	assert_true(b.dev.compute.slow == 1);
	assert_true(nearly((double)b.dev.link.lane[MS_LANE_IN].busy_ns, in_ns / 0.8));
	bare_start(&b, 2, 1e9, false, 0);
	assert_true(b.dev.compute.slow == 1 / 1.5);
	bare_run(&b);
	bare_done(&b);
}

/* COPY jobs go before layers that cycle, but leave these a part. */
static void copies_weigh_more(void **state)
{
	const double ns = 1e9 / 3, w = MS_COPIES_WEIGHT;
	struct bare b;

	(void)state;
	bare_init(&b);
	bare_start(&b, 1, 1e9, false, 0);
	bare_start(&b, 0, w * 1e9, false, 0);
	assert_true(nearly((double)b.in[0].stop_ns, (w + 1) * ns));
	assert_true(nearly((double)b.in[1].stop_ns, (w + 1) * ns));
	bare_start(&b, 2, 1e9, false, 0);
	assert_true(nearly((double)b.in[1].stop_ns, (w + 2) * ns));
	while (b.dev.link.next_ns != UINT64_MAX)
		bare_run(&b);
	assert_true(nearly((double)b.sim.now_ns, (w + 2) * ns));
	bare_done(&b);
}

/*
 * A layer that is needed before the one under way comes as soon as that has landed as far as it is
 * on the device; the sum is as long as in any other order.
 */
static void what_is_needed_first_goes_first(void **state)
{
	const double ns = 1e9 / 3, chunks = 3.0 * (double)MM_CHUNK_BYTES_DEFAULT / 3;
	struct ms_transfer *later;
	struct bare b;

	(void)state;
	bare_init(&b);
	later = bare_start(&b, 1, 1e9, false, 8);
	bare_start(&b, 1, 1e9, false, 9);
	b.sim.now_ns = 1000;
	bare_start(&b, 1, 1e9, false, 4);
	assert_ptr_equal(b.in[1].on, later);
	assert_true(nearly(bare_run(&b), 1000 + chunks));
	assert_int_equal(b.in[1].on->due, 4);
	assert_true(nearly(bare_run(&b), 1000 + chunks + ns));
	assert_ptr_equal(b.in[1].on, later);
	assert_true(nearly(bare_run(&b), 2 * ns));
	assert_true(nearly(bare_run(&b), 3 * ns));
	/* Without such a difference the oldest goes first, and nothing is interrupted. */
	later = bare_start(&b, 1, 1e9, false, 20);
	bare_start(&b, 1, 1e9, false, 20);
	assert_ptr_equal(b.in[1].on, later);
	assert_true(nearly(bare_run(&b), 4 * ns));
	assert_true(nearly(bare_run(&b), 5 * ns));
	bare_done(&b);
}

/* A cancelled transfer lands as far as it is on the device, and at once if it waits. */
static void cancelled_transfers_end(void **state)
{
	const double chunks = 3.0 * (double)MM_CHUNK_BYTES_DEFAULT / 3;
	struct ms_transfer *first, *second;
	struct bare b;

	(void)state;
	bare_init(&b);
	first = bare_start(&b, 1, 1e9, false, 1);
	second = bare_start(&b, 1, 1e9, false, 2);
	b.tenant.x.cycle[1].transfer = first;
	b.tenant.x.cycle[2].transfer = second;
	ms_link_cancel(&b.dev, second);
	assert_null(b.tenant.x.cycle[2].transfer);
	assert_int_equal(b.sim.heap.n, 1);
	ms_link_cancel(&b.dev, first);
	assert_non_null(b.tenant.x.cycle[1].transfer);
	assert_true(nearly(bare_run(&b), chunks));
	assert_null(b.tenant.x.cycle[1].transfer);
	assert_int_equal(b.sim.heap.n, 2);
	assert_int_equal(b.dev.link.next_ns, UINT64_MAX);
	bare_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(directions_have_lanes),
		cmocka_unit_test(copies_weigh_more),
		cmocka_unit_test(what_is_needed_first_goes_first),
		cmocka_unit_test(cancelled_transfers_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
