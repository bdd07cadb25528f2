/* SPDX-License-Identifier: Apache-2.0 */
/* The upper bound of throughput, against closed forms and a search; limits of single requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/workload/alone.h"
#include "tools/lab/workload/bound.h"

#define GIB UINT64_C(1073741824)
#define N   2000u

static const struct mm_profile device = {
	.hbm_bps = 4e12,
	.mem_efficiency = 0.5,
	.f16_flops = 4e15,
	.flop_efficiency = 0.5,
	.h2d_bps = 4e11,
	.d2h_bps = 4e11,
	.kernel_ns = 1000,
};

static struct mm_wl_request stream_requests[2][N];

/* Makes a case of @n requests of each tenant, which all arrive at once. */
static void case_fill(struct mm_wl_case *c, uint32_t tenants, uint32_t n, uint32_t prompt,
		      uint32_t output)
{
	*c = (struct mm_wl_case){ .tenants = tenants };
	for (uint32_t t = 0; t < tenants; t++) {
		c->stream[t] = (struct mm_wl_stream){ .request = stream_requests[t], .n = n };
		for (uint32_t i = 0; i < n; i++)
			stream_requests[t][i] = (struct mm_wl_request){ .prompt_tokens = prompt,
									.output_tokens = output };
	}
}

static void opts_make(uint32_t tenants, enum mm_wl_sharing sharing, struct mm_wl_opts *o,
		      struct mm_wl_sizes *s)
{
	char why[256];

	*o = (struct mm_wl_opts){ .tenants = tenants,
				  .seconds = 10,
				  .page_bytes = 16 << 20,
				  .max_seqs = 256,
				  .batched_tokens = 2048,
				  .block_tokens = 16,
				  .sharing = sharing };
	for (uint32_t t = 0; t < tenants; t++)
		o->tenant[t] = (struct mm_wl_tenant){ .shape = mm_shape_find("OPT-13B"),
						      .share_permille = 350,
						      .tokens_max = 2048 };
	assert_int_equal(mm_wl_sizes(o, 96 * GIB, s, why, sizeof(why)), 0);
}

static double weights_expected(void)
{
	return 40 * (double)mm_arch_layer_bytes(&mm_shape_find("OPT-13B")->arch, 2);
}

/* 512 requests of one prompt token and two output tokens take about four steps of 256. */
static void test_compute(void **state)
{
	struct mm_wl_bound bound;
	struct mm_wl_sizes s;
	struct mm_wl_opts o;
	struct mm_wl_case c;
	double seconds;

	(void)state;
	opts_make(1, MM_WL_TEMPORAL, &o, &s);
	case_fill(&c, 1, 512, 1, 2);
	seconds = (4 * weights_expected() + 512 * 2 * 819200.0) / 2e12;
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	assert_true(fabs(bound.busy_s - seconds) < 1e-5 * seconds);
	assert_true(fabs(bound.throughput_tok_s - 1024 / seconds) < 1e-4 * 1024 / seconds);
	/* Two models on one device take twice the time, as on half of a device each. */
	opts_make(2, MM_WL_SPATIAL, &o, &s);
	case_fill(&c, 2, 512, 1, 2);
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	assert_true(fabs(bound.busy_s - 2 * seconds) < 1e-5 * seconds);
	opts_make(2, MM_WL_MIG, &o, &s);
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	assert_true(fabs(bound.busy_s - 2 * seconds) < 1e-5 * seconds);
}

static void test_flops(void **state)
{
	struct mm_wl_bound bound;
	struct mm_wl_sizes s;
	struct mm_wl_opts o;
	struct mm_wl_case c;
	double seconds;

	(void)state;
	opts_make(1, MM_WL_TEMPORAL, &o, &s);
	case_fill(&c, 1, 1000, 2047, 1);
	seconds = weights_expected() * 1000 * 2047 /
		  2e15; /* two operations a weight, two bytes a weight */
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	assert_true(fabs(bound.busy_s - seconds) < 1e-5 * seconds);
}

/* With long requests and little memory, the bound is what a search over the steps finds. */
static void test_memory(void **state)
{
	const double kv = 819200, decoded = 199, prompt = 1800;
	const double context = N * kv * (decoded * prompt + decoded * (decoded + 1) / 2);
	struct mm_wl_bound bound, endless;
	struct mm_wl_sizes s;
	struct mm_wl_opts o;
	struct mm_wl_case c;
	double best = INFINITY, room, least = N * 200 / 256.0;

	(void)state;
	opts_make(1, MM_WL_TEMPORAL, &o, &s);
	case_fill(&c, 1, N, 1800, 200);
	room = (double)s.pool_bytes - (double)s.tenant[0].weight_bytes;
	for (double steps = least; steps < 1e6; steps *= 1.0001) {
		const double compute = (steps * weights_expected() + context) / 2e12;
		const double link = fmax(0, context - steps * room) / 4e11;

		best = fmin(best, fmax(compute, link));
	}
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	mm_wl_bound(&o, &s, &device, &c, false, &endless);
	assert_true(fabs(bound.busy_s - best) < 1e-3 * best);
	assert_true(bound.busy_s > 1.2 * endless.busy_s);
}

/* No request is served before it arrives, or in less time than its own steps take. */
static void test_arrivals(void **state)
{
	struct mm_wl_bound bound;
	struct mm_wl_sizes s;
	struct mm_wl_opts o;
	struct mm_wl_case c;
	double seconds;

	(void)state;
	opts_make(1, MM_WL_TEMPORAL, &o, &s);
	case_fill(&c, 1, 2, 10, 100);
	stream_requests[0][1].arrival_ns = 9 * MM_NS_PER_S;
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	seconds = 9 + 100 * weights_expected() / 2e12;
	assert_true(fabs(bound.seconds - seconds) < 1e-6 * seconds);
	assert_true(fabs(bound.throughput_tok_s - 200 / seconds) < 1e-4);
	/* All requests arrive at second 0, so no later instant counts. */
	stream_requests[0][1].arrival_ns = 0;
	mm_wl_bound(&o, &s, &device, &c, true, &bound);
	seconds = 100 * weights_expected() / 2e12;
	assert_true(fabs(bound.seconds - seconds) < 1e-6 * seconds);
}

static void test_lendable(void **state)
{
	const double layer = weights_expected() / 40;
	struct mm_wl_sizes s;
	struct mm_wl_opts o;

	(void)state;
	/* Transfer : compute = 5 : 1, so of 40 layers floor(40 / 6) = 6 cycle, 5 are away. */
	opts_make(2, MM_WL_TEMPORAL, &o, &s);
	assert_int_equal(mm_wl_lendable(&o, &s, &device), (uint64_t)(layer * (5 + 39)));
	opts_make(2, MM_WL_SPATIAL, &o, &s);
	assert_int_equal(mm_wl_lendable(&o, &s, &device), (uint64_t)(layer * 10));
}

/* A step takes as long as reading its weights, apart from KV and vectors. */
static void test_alone(void **state)
{
	const uint64_t step_ns = (uint64_t)(weights_expected() / 2e12 * 1e9);
	struct mm_wl_sizes s;
	struct mm_wl_slo slo;
	struct mm_wl_opts o;
	struct mm_wl_case c;

	(void)state;
	opts_make(2, MM_WL_TEMPORAL, &o, &s);
	o.turns = MM_WL_QUANTUM;
	o.quantum_ms = 70;
	case_fill(&c, 2, 5, 10, 30);
	assert_int_equal(mm_wl_slo_alone(&o, &s, &device, &c, 3, &slo), 0);
	assert_int_equal(slo.turns_ns, 70 * MM_NS_PER_MS);
	for (uint32_t t = 0; t < 2; t++) {
		assert_true(slo.tpot_median_ns[t] >= step_ns &&
			    slo.tpot_median_ns[t] < step_ns * 5 / 4);
		assert_true(slo.ttft_median_ns[t] >= step_ns &&
			    slo.ttft_median_ns[t] < step_ns * 5 / 4);
	}
	/* A prompt with more tokens than a step may have takes two steps. */
	case_fill(&c, 2, 5, 2047, 1);
	o.batched_tokens = 1024;
	assert_int_equal(mm_wl_slo_alone(&o, &s, &device, &c, 3, &slo), 0);
	assert_true(slo.ttft_median_ns[0] > 2 * step_ns);
	assert_int_equal(slo.tpot_median_ns[0], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compute),  cmocka_unit_test(test_flops),
		cmocka_unit_test(test_memory),   cmocka_unit_test(test_arrivals),
		cmocka_unit_test(test_lendable), cmocka_unit_test(test_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
