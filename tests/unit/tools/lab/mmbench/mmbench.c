/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/mmbench/results.h"
#include "tools/lab/workload/trace.h"

#define HEADER "arrival_s,prompt_tokens,output_tokens\n"

static char path[64];

static const char *write_file(const char *text)
{
	FILE *file;

	strcpy(path, "/tmp/mm-test-bench.XXXXXX");
	file = fdopen(mkstemp(path), "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	return path;
}

static const struct mm_trace_shape plain_opts = { .tenants = 2, .speed = 1, .token_scale = 1 };

static const struct {
	const char *name, *text, *what;
} bad_traces[] = {
	{ "empty", "", ":0: no rows" },
	{ "header only", HEADER, ":1: no rows" },
	{ "no header", "0,1,2\n", ":1: unknown column '0'" },
	{ "missing column", "arrival_s,prompt_tokens\n0,1\n", ":1: no column 'output_tokens'" },
	{ "column twice", "arrival_s,arrival_s,prompt_tokens,output_tokens\n",
	  ":1: column 'arrival_s'" },
	{ "too few fields", HEADER "0,1\n", ":2: 2 fields" },
	{ "too many fields", HEADER "0,1,2,3\n", ":2: 4 fields" },
	{ "blank line", HEADER "0,1,2\n\n1,1,2\n", ":3: 1 fields" },
	{ "not a number", HEADER "x,1,2\n", ":2: arrival_s 'x'" },
	{ "not a time", HEADER "nan,1,2\n", ":2: arrival_s 'nan'" },
	{ "negative time", HEADER "-1,1,2\n", ":2: arrival_s '-1'" },
	{ "not sorted", HEADER "1,1,2\n0.5,1,2\n", ":3: arrival_s 0.5 is before" },
	{ "no prompt", HEADER "0,0,2\n", ":2: prompt_tokens 0" },
	{ "negative count", HEADER "0,1,-2\n", ":2: output_tokens '-2'" },
	{ "huge count", HEADER "0,1,1000001\n", ":2: output_tokens 1000001" },
	{ "overflow", HEADER "0,99999999999999999999,1\n", ":2: prompt_tokens '9999" },
	{ "fraction", HEADER "0,1.5,1\n", ":2: prompt_tokens '1.5'" },
	{ "unknown tenant", "arrival_s,prompt_tokens,output_tokens,tenant\n0,1,1,2\n",
	  ":2: tenant 2" },
};

static void test_bad_traces(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_traces); i++) {
		struct mm_trace trace = { 0 };
		char why[256] = "", want[160];
		int r = mm_trace_read(write_file(bad_traces[i].text), &plain_opts, &trace, why,
				      sizeof(why));

		unlink(path);
		print_message("%s: %s\n", bad_traces[i].name, why);
		snprintf(want, sizeof(want), "%s%s", path, bad_traces[i].what);
		assert_int_equal(r, -EBADMSG);
		assert_memory_equal(why, want, strlen(want));
	}
}

/* Tenant 0 gets rows 0 1 and tenant 1 gets rows 2 3, each counted from second 0. */
static void test_windows(void **state)
{
	struct mm_trace trace;
	char why[256];

	(void)state;
	assert_int_equal(mm_trace_read(write_file(HEADER "0,1,2\n1,3,4\n10,5,6\n12.5,7,8\n"),
				       &plain_opts, &trace, why, sizeof(why)),
			 0);
	unlink(path);
	assert_int_equal(trace.n, 4);
	assert_int_equal(trace.rows[0].tenant, 0);
	assert_int_equal(trace.rows[1].tenant, 1);
	assert_true(trace.rows[1].arrival_s == 0);
	assert_int_equal(trace.rows[1].prompt_tokens, 5);
	assert_true(trace.rows[3].arrival_s == 2.5);
	assert_int_equal(trace.rows[3].tenant, 1);
	mm_trace_done(&trace);
}

static void test_reshape(void **state)
{
	struct mm_trace_shape shape = {
		.tenants = 1, .speed = 2, .token_scale = 0.1, .duration_s = 3
	};
	struct mm_trace trace;
	char why[256];

	(void)state;
	assert_int_equal(mm_trace_read(write_file(HEADER "0,100,2\n4,30,40\n6,5,6\n"), &shape,
				       &trace, why, sizeof(why)),
			 0);
	unlink(path);
	assert_int_equal(trace.n, 2);
	assert_true(trace.rows[1].arrival_s == 2);
	assert_int_equal(trace.rows[0].prompt_tokens, 10);
	assert_int_equal(trace.rows[0].output_tokens, 1);
	mm_trace_done(&trace);
}

static void test_synthetic_repeats(void **state)
{
	struct mm_trace_shape shape = {
		.tenants = 3, .duration_s = 20, .seed = 7, .speed = 1, .token_scale = 1
	};
	struct mm_trace a, b, c;

	(void)state;
	assert_int_equal(mm_trace_synthesize(&shape, &a), 0);
	assert_int_equal(mm_trace_synthesize(&shape, &b), 0);
	shape.seed = 8;
	assert_int_equal(mm_trace_synthesize(&shape, &c), 0);
	assert_int_equal(a.n, b.n);
	for (uint32_t t = 0; t < 3; t++)
		assert_true(mm_trace_rows(&a, t) > 0);
	for (size_t i = 0; i < a.n; i++) {
		assert_int_equal(a.rows[i].tenant, b.rows[i].tenant);
		assert_int_equal(a.rows[i].output_tokens, b.rows[i].output_tokens);
		assert_true(!i || a.rows[i].arrival_s >= a.rows[i - 1].arrival_s);
	}
	assert_true(a.n != c.n || a.rows[0].output_tokens != c.rows[0].output_tokens ||
		    a.rows[1].output_tokens != c.rows[1].output_tokens);
	mm_trace_done(&a);
	mm_trace_done(&b);
	mm_trace_done(&c);
}

#define SUMMARY                                                                           \
	"{\"summary\":{\"swapped_out_bytes\":7,\"swapped_in_bytes\":5,\"preemptions\":3," \
	"\"steps\":9,\"stall_p99_s\":0.5}}\n"

static void read_results(struct mm_results *results, const char *text)
{
	char why[256], all[1024];

	snprintf(all, sizeof(all), "%s" SUMMARY, text);
	assert_int_equal(mm_results_init(results, 1), 0);
	assert_int_equal(mm_results_read(results, 0, 2, write_file(all), why, sizeof(why)), 0);
	assert_int_equal(results->tenant[0].preemptions, 3);
	assert_int_equal(results->tenant[0].swapped_out_bytes, 7);
	assert_int_equal(results->tenant[0].swapped_in_bytes, 5);
	assert_int_equal(results->tenant[0].steps, 9);
	assert_true(results->tenant[0].stall_p99_s == 0.5);
	unlink(path);
}

#define REQUEST(id, ids, times) \
	"{\"id\":" #id ",\"arrival_s\":1.0,\"ids\":" ids ",\"times\":" times "}\n"

static const struct {
	const char *name, *a, *b;
	uint64_t want;
} mismatch_cases[] = {
	{ "same", REQUEST(0, "[5,6]", "[1.5,2]") REQUEST(1, "[7]", "[2]"),
	  REQUEST(1, "[7]", "[9]") REQUEST(0, "[5,6]", "[3,4]"), 0 },
	{ "one token", REQUEST(0, "[5,6]", "[1.5,2]") REQUEST(1, "[7]", "[2]"),
	  REQUEST(0, "[5,8]", "[1.5,2]") REQUEST(1, "[7]", "[2]"), 1 },
	{ "shorter", REQUEST(0, "[5,6]", "[1.5,2]") REQUEST(1, "[7]", "[2]"),
	  REQUEST(0, "[5]", "[1.5]") REQUEST(1, "[7]", "[2]"), 1 },
	{ "missing request", REQUEST(0, "[5,6]", "[1.5,2]") REQUEST(1, "[7]", "[2]"),
	  REQUEST(1, "[7]", "[2]"), 2 },
	{ "refused", REQUEST(0, "[5,6]", "[1.5,2]") REQUEST(1, "[]", "[]"),
	  REQUEST(0, "[5,6]", "[1.5,2]") REQUEST(1, "[]", "[]"), 1 },
	{ "missing in both", REQUEST(1, "[7]", "[2]"), REQUEST(1, "[7]", "[2]"), 1 },
};

static const struct {
	const char *name, *text;
} bad_results[] = {
	{ "no summary", REQUEST(0, "[5]", "[1.5]") },
	{ "after the summary", SUMMARY REQUEST(0, "[5]", "[1.5]") },
	{ "twice", REQUEST(0, "[5]", "[1.5]") REQUEST(0, "[5]", "[1.5]") SUMMARY },
	{ "unknown request", REQUEST(2, "[5]", "[1.5]") SUMMARY },
	{ "a request below all", REQUEST(-1, "[5]", "[1.5]") SUMMARY },
	{ "no row's number", REQUEST("0", "[5]", "[1.5]") SUMMARY },
	{ "a time is missing", REQUEST(0, "[5,6]", "[1.5]") SUMMARY },
	{ "not JSON", "{" },
	{ "cut off", REQUEST(0, "[5]", "[1.5]") "{\"summary\"" },
};

static void test_bad_results(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad_results); i++) {
		struct mm_results results;
		char why[256] = "";

		assert_int_equal(mm_results_init(&results, 1), 0);
		assert_int_equal(mm_results_read(&results, 0, 2, write_file(bad_results[i].text),
						 why, sizeof(why)),
				 -EBADMSG);
		unlink(path);
		print_message("%s: %s\n", bad_results[i].name, why);
		assert_memory_equal(why, path, strlen(path));
		mm_results_done(&results);
	}
}

static void test_mismatches(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(mismatch_cases); i++) {
		struct mm_results a, b;

		print_message("%s\n", mismatch_cases[i].name);
		read_results(&a, mismatch_cases[i].a);
		read_results(&b, mismatch_cases[i].b);
		assert_int_equal(mm_results_mismatches(&a, &b), mismatch_cases[i].want);
		mm_results_done(&a);
		mm_results_done(&b);
	}
}

static void test_latency(void **state)
{
	struct mm_results results;
	struct mm_latency latency;

	(void)state;
	read_results(&results, REQUEST(0, "[5,6,7]", "[2,2.5,4]") REQUEST(1, "[7]", "[5]"));
	assert_int_equal(mm_results_latency(&results, &latency), 0);
	assert_int_equal(latency.requests, 2);
	assert_int_equal(latency.tokens, 4);
	assert_true(latency.throughput_tok_s == 1.0);
	assert_true(latency.ttft_p50_s == 1.0 && latency.ttft_p99_s == 4.0);
	assert_true(latency.tbt_p50_s == 0.5 && latency.tbt_p99_s == 1.5);
	mm_results_done(&results);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_traces),  cmocka_unit_test(test_windows),
		cmocka_unit_test(test_reshape),     cmocka_unit_test(test_synthetic_repeats),
		cmocka_unit_test(test_mismatches),  cmocka_unit_test(test_latency),
		cmocka_unit_test(test_bad_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
