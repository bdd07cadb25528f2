/* SPDX-License-Identifier: Apache-2.0 */
/* Histogram, Student's quantiles, paired ratios, and the numbers of a run, against known values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/base/random.h"
#include "tools/lab/workload/report.h"

static bool is_near(double a, double b, double relative)
{
	return fabs(a - b) <= relative * fabs(b);
}

/* ---- histogram ---- */

static void test_buckets(void **state)
{
	uint32_t last = 0;

	(void)state;
	for (uint64_t v = 0; v < 128; v++)
		assert_int_equal(mm_histogram_bucket(v), v);
	/* Buckets increase by at most one, and never decrease. */
	for (uint64_t v = 1; v < 1 << 16; v++) {
		uint32_t b = mm_histogram_bucket(v);

		assert_true(b == last || b == last + 1);
		last = b;
	}
	assert_int_equal(mm_histogram_bucket(UINT64_MAX), MM_HISTOGRAM_BUCKETS - 1);
}

static void test_percentiles(void **state)
{
	struct mm_histogram *h = calloc(2, sizeof(*h));
	const size_t n = 5000;
	double *exact = calloc(n, sizeof(*exact));
	uint64_t random = 1;

	(void)state;
	assert_non_null(h);
	assert_non_null(exact);
	assert_int_equal(mm_histogram_percentile(h, 99), 0);
	for (size_t i = 0; i < n; i++) {
		const uint64_t v = (uint64_t)exp(20 * mm_random_unit(&random));

		exact[i] = (double)v;
		mm_histogram_add(&h[i % 2], v, 1);
	}
	mm_histogram_merge(&h[0], &h[1]);
	assert_int_equal(h[0].n, n);
	for (double p = 1; p <= 100; p++)
		assert_true(is_near((double)mm_histogram_percentile(&h[0], p),
				    mm_percentile(exact, n, p), 1.0 / 256));
	assert_int_equal(mm_histogram_percentile(&h[0], 100), (uint64_t)exact[n - 1]);
	assert_int_equal(mm_histogram_percentile(&h[0], 0), (uint64_t)exact[0]);
	free(exact);
	free(h);
}

/* ---- Student ---- */

/* The expected quantiles are from tables. */
static void test_quantiles(void **state)
{
	(void)state;
	assert_true(is_near(mm_t_quantile(0.975, 1), 12.7062, 1e-5));
	assert_true(is_near(mm_t_quantile(0.975, 2), 4.30265, 1e-5));
	assert_true(is_near(mm_t_quantile(0.975, 7), 2.36462, 1e-5));
	assert_true(is_near(mm_t_quantile(0.95, 7), 1.89458, 1e-5));
	assert_true(is_near(mm_t_quantile(0.995, 30), 2.75000, 1e-5));
	assert_true(is_near(mm_t_quantile(0.975, 1e6), 1.95997, 1e-5));
	assert_true(is_near(mm_t_quantile(0.025, 7), -2.36462, 1e-5));
	assert_true(fabs(mm_t_quantile(0.5, 7)) < 1e-6);
}

static void test_ratio(void **state)
{
	/* Logarithms of the ratios are (1, 1, 3) ln 2, with mean 5/3 and deviation 2/sqrt 3. */
	const double a[] = { 2, 20, 8 }, b[] = { 1, 10, 1 };
	const double half = 4.30265 * (2 / sqrt(3)) / sqrt(3) * log(2);
	struct mm_ratio r = mm_ratio_of(a, b, 3, 0.95);

	(void)state;
	assert_int_equal(r.n, 3);
	assert_true(is_near(r.ratio, pow(2, 5.0 / 3), 1e-9));
	assert_true(is_near(r.low, r.ratio * exp(-half), 1e-4));
	assert_true(is_near(r.high, r.ratio * exp(half), 1e-4));
	r = mm_ratio_of(a, b, 1, 0.95);
	assert_true(r.n == 1 && is_near(r.ratio, 2, 1e-12) && r.low == r.ratio &&
		    r.high == r.ratio);
	r = mm_ratio_of(a, a, 3, 0.95);
	assert_true(r.ratio == 1 && r.low == 1 && r.high == 1);
	/* A pair with a = 0 has no ratio, ... */
	r = mm_ratio_of((double[]){ 0, 3 }, (double[]){ 1, 1 }, 2, 0.95);
	assert_true(r.n == 1 && is_near(r.ratio, 3, 1e-12));
	/* ... but it is counted as lost. */
	assert_true(r.lost == 1 && r.low == 0);
	r = mm_ratio_of((double[]){ 1, 3 }, (double[]){ 0, 1 }, 2, 0.95);
	assert_true(r.n == 1 && !r.lost && is_near(r.low, 3, 1e-12));
	r = mm_ratio_of((double[]){ 0, 0 }, (double[]){ 1, 0 }, 2, 0.95);
	assert_true(!r.n && r.lost == 1 && r.low == 0);
	assert_int_equal(mm_ratio_of(a, b, 0, 0.95).n, 0);
}

/* ---- a run ---- */

static struct mm_wl_request first[] = {
	{ .arrival_ns = 0, .prompt_tokens = 10, .output_tokens = 3 },
	{ .arrival_ns = 1000000000, .prompt_tokens = 20, .output_tokens = 1 }
};
static struct mm_wl_request second[] = {
	{ .arrival_ns = 500000000, .prompt_tokens = 30, .output_tokens = 2 },
	{ .arrival_ns = 0, .prompt_tokens = 5, .output_tokens = 9 }
};
static const struct mm_wl_case two = {
	.tenants = 2,
	.stream = { { .request = first, .n = 2, .trace_s = 1 },
		    { .request = second, .n = 2, .trace_s = 1 } },
};

#define MS UINT64_C(1000000)

/* Records tokens of two tenants; the last request of the second one gets none. */
static void request_serve(struct mm_wl_record *r)
{
	assert_int_equal(mm_wl_record_init(r, &two, 2), 0);
	mm_wl_record_token(r, 0, 0, 100 * MS);
	mm_wl_record_token(r, 0, 0, 200 * MS);
	mm_wl_record_token(r, 0, 0, 500 * MS);
	mm_wl_record_token(r, 1, 0, 1500 * MS);
	mm_wl_record_token(r, 0, 1, 1200 * MS);
	mm_wl_record_token(r, 1, 0, 4000 * MS);
}

static void test_measure(void **state)
{
	struct mm_wl_slo slo = { .ttft_median_ns = { 50 * MS, 100 * MS },
				 .tpot_median_ns = { 40 * MS, 1000 * MS },
				 .turns_ns = 500 * MS };
	struct mm_wl_record r;
	const struct mm_wl_record *one = &r, *both[] = { &r, &r };
	struct mm_wl_metrics m;

	(void)state;
	request_serve(&r);
	assert_int_equal(mm_wl_measure(&one, 1, MM_WL_ALL, &slo, &m), 0);
	assert_int_equal(m.requests, 4);
	assert_int_equal(m.completed, 3);
	assert_int_equal(m.output_tokens, 6);
	assert_int_equal(m.prompt_tokens, 60);
	assert_true(is_near(m.seconds, 4, 1e-9));
	assert_true(is_near(m.throughput_tok_s, 1.5, 1e-9));
	assert_true(is_near(m.total_tok_s, 66 / 4.0, 1e-9));
	assert_true(is_near(m.window_tok_s, 2.5, 1e-9)); /* 5 tokens within 2 s */
	/* TTFT: 0.1, 0.2, 1.0; gaps: 0.1, 0.3, 2.5; mean gaps: 0.2, 2.5 */
	assert_true(is_near(m.ttft_p50_s, 0.2, 1e-9) && is_near(m.ttft_p99_s, 1.0, 1e-9));
	assert_true(is_near(m.ttft_mean_s, 1.3 / 3, 1e-9));
	assert_true(is_near(m.tbt_p50_s, 0.3, 0.004) && is_near(m.tbt_p99_s, 2.5, 0.004));
	assert_true(is_near(m.tbt_mean_s, 2.9 / 3, 1e-9));
	assert_true(is_near(m.tpot_p50_s, 0.2, 1e-9) && is_near(m.tpot_p99_s, 2.5, 1e-9));
	/* Limits: 0.75 and 0.2 s for the first tenant, 1.0 and 5 s for the second; all are met. */
	assert_int_equal(m.good, 3);
	assert_true(is_near(m.goodput_tok_s, 1.5, 1e-9) && is_near(m.goodput_req_s, 0.75, 1e-9));
	slo.tpot_median_ns[0] = 40 * MS - 1;
	assert_int_equal(mm_wl_measure(&one, 1, MM_WL_ALL, &slo, &m), 0);
	assert_int_equal(m.good, 2);
	slo.turns_ns -= 1;
	assert_int_equal(mm_wl_measure(&one, 1, MM_WL_ALL, &slo, &m), 0);
	assert_int_equal(m.good, 1);
	assert_true(is_near(m.goodput_tok_s, 0.25, 1e-9));
	/* One tenant's numbers have the time of the whole run. */
	assert_int_equal(mm_wl_measure(&one, 1, 0, NULL, &m), 0);
	assert_true(m.requests == 2 && m.good == 0 && is_near(m.throughput_tok_s, 1, 1e-9));
	/* Two equal runs together have the same rates. */
	assert_int_equal(mm_wl_measure(both, 2, MM_WL_ALL, &slo, &m), 0);
	assert_true(m.requests == 8 && is_near(m.seconds, 8, 1e-9) &&
		    is_near(m.throughput_tok_s, 1.5, 1e-9) && is_near(m.ttft_p50_s, 0.2, 1e-9));
	mm_wl_record_done(&r);
}

/* Goals of each request: 0.1 s + 2 x its own first token alone, and 2 x its own gap alone. */
static void test_attained(void **state)
{
	const struct mm_wl_slo slo = { .goal_ttft_ns = 100 * MS, .goal_factor = 2 };
	const struct mm_wl_record *one;
	struct mm_wl_record r;
	struct mm_wl_metrics m;
	/* Each row makes one request miss, which has one time more than it may have. */
	const struct {
		uint64_t ttft, tpot;
		uint32_t attained;
		double tok_s;
	} cases[] = {
		{ 50 * MS, 100 * MS, 3, 1.5 },
		{ 50 * MS, 100 * MS - 1, 2, 0.75 },
		{ 50 * MS - 1, 100 * MS, 2, 1.25 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		first[0].alone_ttft_ns = 0;
		first[0].alone_tpot_ns = cases[i].tpot;
		first[1].alone_ttft_ns = cases[i].ttft;
		second[0].alone_ttft_ns = 450 * MS;
		second[0].alone_tpot_ns = 1250 * MS;
		request_serve(&r);
		one = &r;
		assert_int_equal(mm_wl_measure(&one, 1, MM_WL_ALL, &slo, &m), 0);
		assert_int_equal(m.attained, cases[i].attained);
		assert_true(is_near(m.attained_tok_s, cases[i].tok_s, 1e-9));
		/* The request that was not served counts, too. */
		assert_true(is_near(m.attainment, cases[i].attained / 4.0, 1e-9));
		mm_wl_record_done(&r);
	}
	request_serve(&r);
	/* The first tenant's last token comes after 1.2 s. */
	assert_int_equal(mm_wl_measure(&one, 1, 0, NULL, &m), 0);
	assert_true(is_near(m.own_tok_s, 4 / 1.2, 1e-9) && !m.attained);
	mm_wl_record_done(&r);
}

static void test_jain(void **state)
{
	(void)state;
	assert_true(mm_jain_index((double[]){ 0.3, 0.3, 0.3 }, 3) > 1 - 1e-12);
	assert_true(is_near(mm_jain_index((double[]){ 0.5, 0, 0, 0 }, 4), 0.25, 1e-12));
	assert_true(is_near(mm_jain_index((double[]){ 1, 3 }, 2), 0.8, 1e-12));
	assert_true(mm_jain_index((double[]){ 0, 0 }, 2) == 1);
}

static void test_slo(void **state)
{
	struct mm_wl_opts o = { .tenants = 2, .turns = MM_WL_QUANTUM, .quantum_ms = 30 };
	struct mm_wl_record r;
	struct mm_wl_slo slo;

	(void)state;
	request_serve(&r);
	assert_int_equal(mm_wl_slo_of(&o, &r, &slo), 0);
	assert_int_equal(slo.ttft_median_ns[0], 100 * MS); /* of 0.1 and 0.2 */
	assert_int_equal(slo.tpot_median_ns[0], 200 * MS);
	assert_int_equal(slo.ttft_median_ns[1], 1000 * MS);
	assert_int_equal(slo.tpot_median_ns[1], 2500 * MS);
	assert_int_equal(slo.turns_ns, 30 * MS);
	o.sharing = MM_WL_SPATIAL;
	assert_int_equal(mm_wl_slo_of(&o, &r, &slo), 0);
	assert_int_equal(slo.turns_ns, 0);
	mm_wl_record_done(&r);
}

static void test_alone(void **state)
{
	struct mm_wl_case alone;

	(void)state;
	assert_int_equal(mm_wl_case_alone(&two, 1, 7000, &alone), 0);
	assert_int_equal(alone.stream[0].n, 1);
	assert_int_equal(alone.stream[1].request[0].arrival_ns, 7000);
	assert_int_equal(alone.stream[1].request[0].prompt_tokens, 30);
	mm_wl_case_done(&alone);
	assert_int_equal(mm_wl_case_alone(&two, 9, 7000, &alone), 0);
	assert_int_equal(alone.stream[1].n, 2);
	assert_int_equal(alone.stream[1].request[1].arrival_ns, 21000);
	mm_wl_case_done(&alone);
}

static void test_report(void **state)
{
	const struct mm_shape *shape = mm_shape_find("OPT-13B");
	struct mm_wl_opts o = {
		.profile = "x",
		.tenants = 2,
		.tenant = { { .shape = shape, .lengths = "a" },
			    { .shape = shape, .lengths = "b" } },
		.policies = 2,
		.policy = { { .name = "recompute" }, { .name = "remap" } },
	};
	struct mm_wl_record records[2];
	struct mm_wl_sizes sizes = { .tenants = 2 };
	struct mm_wl_report report = { .mode = "simulated",
				       .opts = &o,
				       .sizes = &sizes,
				       .cases = &two,
				       .records = records,
				       .windows = 1,
				       .more = json_pack("{s:i}", "dilation", 4) };
	const json_t *remap;
	json_t *json;

	(void)state;
	request_serve(&records[0]);
	request_serve(&records[1]);
	records[1].counters.streamed_bytes = 77;
	json = mm_wl_report_json(&report);
	assert_non_null(json);
	remap = json_object_get(json_object_get(json, "results"), "remap");
	assert_int_equal(json_integer_value(json_object_get(remap, "bytes_streamed")), 77);
	assert_true(
		is_near(json_real_value(json_object_get(remap, "throughput_tok_s")), 1.5, 1e-9));
	assert_int_equal(json_array_size(json_object_get(remap, "tenants")), 2);
	assert_int_equal(json_integer_value(json_object_get(json, "dilation")), 4);
	remap = json_object_get(json_object_get(json, "paired"), "remap");
	assert_true(json_real_value(
			    json_object_get(json_object_get(remap, "throughput"), "ratio")) == 1);
	assert_int_equal(json_array_size(json_object_get(remap, "tenants")), 2);
	remap = json_array_get(json_object_get(remap, "tenants"), 1);
	assert_true(json_real_value(
			    json_object_get(json_object_get(remap, "own_tok_s"), "ratio")) == 1);
	assert_null(json_object_get(json_object_get(json, "paired"), "recompute"));
	assert_int_equal(mm_wl_report_table(&report), 0);
	json_decref(json);
	json_decref(report.more);
	mm_wl_record_done(&records[0]);
	mm_wl_record_done(&records[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),   cmocka_unit_test(test_percentiles),
		cmocka_unit_test(test_quantiles), cmocka_unit_test(test_ratio),
		cmocka_unit_test(test_measure),   cmocka_unit_test(test_attained),
		cmocka_unit_test(test_jain),      cmocka_unit_test(test_slo),
		cmocka_unit_test(test_alone),     cmocka_unit_test(test_report),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
