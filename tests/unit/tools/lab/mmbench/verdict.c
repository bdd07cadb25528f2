/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences about a set of runs follow from its numbers: gains, losses, and reasons. */
#undef NDEBUG
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/mmbench/verdict.h"

struct runs {
	struct mm_run_result result[3];
	struct mm_bench_opts opts;
	struct mm_report report;
};

/* Runs as on a busy machine: remap has a lower throughput, and is better in all else. */
static void runs_init(struct runs *r)
{
	*r = (struct runs){
		.result = { { .policy = MM_POLICY_RECOMPUTE,
			      .latency = { 94, 8663, 500, 1.0, 6.4, 0.010, 0.2 },
			      .preemptions = 98,
			      .steps = 1000 },
			    { .policy = MM_POLICY_ELASTIC,
			      .latency = { 94, 8663, 505, 0.5, 3.2, 0.010, 0.2 },
			      .preemptions = 49,
			      .steps = 1000 },
			    { .policy = MM_POLICY_REMAP,
			      .latency = { 94, 8663, 400, 0.1, 1.2, 0.020, 0.1 },
			      .preemptions = 11,
			      .steps = 500,
			      .layers_remapped_max = 24,
			      .bytes_streamed = UINT64_C(100) << 20,
			      .stall_total_s = 0.34 } },
		.opts = { .driver = "software", .n_policies = 3, .repeat = 1 },
	};
	r->report = (struct mm_report){ .result = r->result, .opts = &r->opts };
}

static char *words_of(const struct runs *r)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	mm_verdict_print(out, &r->report);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void check_says(const struct runs *r, const char *want, bool said)
{
	mm_cleanup(mm_free_ptr) char *text = words_of(r);

	if (!strstr(text, want) == said)
		fail_msg("'%s' is %sin:\n%s", want, said ? "not " : "", text);
}

static void test_slower_on_a_busy_machine(void **state)
{
	struct runs r;

	(void)state;
	runs_init(&r);
	check_says(&r, "What it means: remap against recompute", true);
	check_says(&r, "1.2 s instead of 6.4 s, 5.3 times sooner", true);
	check_says(&r, "lost their KV 11 times instead of 98", true);
	check_says(&r, "20 % fewer tokens/s, 400.0 against 500.0", true);
	check_says(&r, "computes and copies on the same processor cores", true);
	check_says(&r, "carries more: 17.3 tokens, not 8.7", true);
	check_says(&r, "up to 24 layers were away at one time, and 100.0 MiB", true);
	check_says(&r, "waited 0.34 s", true);
	check_says(&r, "not one of 8663 differs", true);
	check_says(&r, "What to try next", true);
}

/* A reason is given only if it can apply. */
static void test_slower_for_another_reason(void **state)
{
	struct runs r;

	(void)state;
	runs_init(&r);
	r.result[2].bytes_streamed = r.result[2].layers_remapped_max = 0;
	check_says(&r, "fewer tokens/s", true);
	check_says(&r, "same processor cores", false);
	check_says(&r, "No layer was streamed", true);
	check_says(&r, "no layer was away", true);
	runs_init(&r);
	r.opts.driver = "cuda";
	check_says(&r, "same processor cores", false);
	check_says(&r, "Its streams waited 0.34 s", true);
	check_says(&r, "what a GPU would do", false);
	runs_init(&r);
	r.result[2].steps = 1000;
	check_says(&r, "carries more", false);
}

static void test_faster(void **state)
{
	struct runs r;

	(void)state;
	runs_init(&r);
	r.result[2].latency.throughput_tok_s = 650;
	check_says(&r, "30 % more tokens/s, 650.0 against 500.0", true);
	check_says(&r, "same processor cores", false);
	r.result[2].latency.throughput_tok_s = 510;
	check_says(&r, "Throughput: about the same, 510.0 tokens/s against 500.0", true);
	r.result[2].latency.ttft_p99_s = 12.8;
	check_says(&r, "12.8 s instead of 6.4 s, 2.0 times later", true);
}

static void test_nothing_to_win(void **state)
{
	struct runs r;

	(void)state;
	runs_init(&r);
	r.result[0].preemptions = r.result[2].preemptions = 0;
	check_says(&r, "memory was not short in this run", true);
	check_says(&r, "make memory short", true);
	r.result[2].preemptions = 3;
	check_says(&r, "3 times instead of 0", true);
}

static void test_tokens_that_differ(void **state)
{
	struct runs r;

	(void)state;
	runs_init(&r);
	r.report.token_mismatches = 7;
	check_says(&r, "7 DIFFER", true);
	check_says(&r, "not one of", false);
}

static void test_what_is_compared(void **state)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	struct runs r;

	(void)state;
	runs_init(&r);
	r.opts.n_policies = 1;
	text = words_of(&r);
	assert_string_equal(text, "");
	runs_init(&r);
	r.opts.n_policies = 2; /* no remap */
	check_says(&r, "What it means: elastic against recompute", true);
	check_says(&r, "The price", false);
	runs_init(&r);
	r.report.result = &r.result[1]; /* no recompute */
	r.opts.n_policies = 2;
	assert_int_equal(mm_verdict_base(&r.report), 0);
	check_says(&r, "What it means: remap against elastic", true);
	r.result[1].policy = MM_POLICY_REMAP;
	r.result[2].policy = MM_POLICY_ELASTIC;
	check_says(&r, "What it means: elastic against remap", true);
	runs_init(&r); /* recompute is not the first policy */
	r.result[0].policy = MM_POLICY_REMAP;
	r.result[2].policy = MM_POLICY_RECOMPUTE;
	assert_int_equal(mm_verdict_base(&r.report), 2);
	check_says(&r, "What it means: remap against recompute", true);
}

static double real_of(const json_t *json, const char *policy, const char *key)
{
	const json_t *value = json_object_get(json_object_get(json, policy), key);

	assert_true(json_is_real(value));
	return json_real_value(value);
}

static void test_json(void **state)
{
	struct runs r;
	json_t *json;

	(void)state;
	runs_init(&r);
	r.result[0].latency.tbt_p99_s = 0;
	json = mm_verdict_json(&r.report);
	assert_int_equal(json_object_size(json), 2);
	assert_true(fabs(real_of(json, "remap", "throughput") - 0.8) < 1e-9);
	assert_true(fabs(real_of(json, "remap", "ttft_p99") - 0.1875) < 1e-9);
	assert_true(fabs(real_of(json, "elastic", "preemptions") - 0.5) < 1e-9);
	assert_true(json_is_null(json_object_get(json_object_get(json, "remap"), "tbt_p99")));
	json_decref(json);
	check_says(&r, "nothing to compare with", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slower_on_a_busy_machine),
		cmocka_unit_test(test_slower_for_another_reason),
		cmocka_unit_test(test_faster),
		cmocka_unit_test(test_nothing_to_win),
		cmocka_unit_test(test_tokens_that_differ),
		cmocka_unit_test(test_what_is_compared),
		cmocka_unit_test(test_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
