/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON reader must get the values of a request from its line, for every id. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/mmserve/engine/report.h"

static json_t *line_of(const struct mm_request *q)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	json_error_t where;
	json_t *line;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	assert_int_equal(mm_report_request(out, q), 0);
	fclose(out);
	assert_int_equal(text[bytes - 1], '\n');
	assert_ptr_equal(strchr(text, '\n'), text + bytes - 1);
	line = json_loads(text, JSON_REJECT_DUPLICATES, &where);
	if (!line)
		fail_msg("%s: %s", where.text, text);
	return line;
}

static void check_real(const json_t *line, const char *key, double want)
{
	const json_t *value = json_object_get(line, key);

	assert_true(json_is_real(value));
	assert_true(fabs(json_real_value(value) - want) <= 0.5000001e-6);
}

static void test_served(void **state)
{
	static const char *const ids[] = { "a", "7", "a \"b\" \\ \n \x01 ü", "" };
	uint32_t tokens[] = { 9, 0, UINT32_MAX, 10 };
	double times[] = { 0.0000004, 1.5, 123456.7890126 };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(ids); i++) {
		struct mm_request q = { .arrival_s = -0.25,
					.n_prompt = 1,
					.max_tokens = 3,
					.ids = tokens,
					.times = times,
					.n_output = 3,
					.preemptions = 12,
					.finish_s = 123456.7890126 };
		const json_t *list;
		json_t *line;

		snprintf(q.id, sizeof(q.id), "%s", ids[i]);
		line = line_of(&q);
		assert_string_equal(json_string_value(json_object_get(line, "id")), ids[i]);
		assert_int_equal(json_integer_value(json_object_get(line, "preemptions")), 12);
		check_real(line, "arrival_s", -0.25);
		check_real(line, "finish_s", q.finish_s);
		check_real(line, "first_token_s", times[0]);
		assert_null(json_object_get(line, "error"));
		list = json_object_get(line, "ids");
		assert_int_equal(json_array_size(list), 3);
		for (size_t k = 0; k < 3; k++)
			assert_int_equal(json_integer_value(json_array_get(list, k)),
					 tokens[k + 1]);
		list = json_object_get(line, "times");
		assert_int_equal(json_array_size(list), 3);
		for (size_t k = 0; k < 3; k++)
			assert_true(fabs(json_real_value(json_array_get(list, k)) - times[k]) <
				    0.51e-6);
		json_decref(line);
	}
}

static void test_refused(void **state)
{
	struct mm_request q = { .id = "x" };
	json_t *line;

	(void)state;
	memset(q.error, 1, sizeof(q.error) - 1); /* the longest sentence when it is escaped */
	memset(q.id, 2, sizeof(q.id) - 1);
	line = line_of(&q);
	assert_string_equal(json_string_value(json_object_get(line, "error")), q.error);
	assert_null(json_object_get(line, "finish_s"));
	assert_null(json_object_get(line, "first_token_s"));
	assert_int_equal(json_array_size(json_object_get(line, "ids")), 0);
	json_decref(line);
}

static void test_says_that_it_cannot_write(void **state)
{
	const struct mm_request q = { .id = "x" };
	FILE *full = fopen("/dev/full", "we");

	(void)state;
	assert_non_null(full);
	assert_true(mm_report_request(full, &q) < 0);
	fclose(full);
}

static void test_summary(void **state)
{
	struct mm_requests none = { 0 };
	struct mm_stats stats = { .steps = 4, .step_s = 2 };
	json_t *o;

	(void)state;
	for (int i = 0; i < 1000; i++)
		mm_samples_add(&stats.gaps_s, i % 100 * 1e-3);
	o = mm_report_summary(&none, &stats);
	check_real(o, "step_mean_s", 0.5);
	check_real(o, "gap_p50_s", 0.049);
	check_real(o, "gap_p99_s", 0.098);
	check_real(o, "stall_p50_s", 0);
	json_decref(o);
	mm_stats_done(&stats);
}

/*
 * Gated steps that are not timed count with the mean of those that are. A wait in a step without
 * layers that cycle is one for mappings.
 */
static void test_untold_stalls(void **state)
{
	struct mm_requests none = { 0 };
	struct mm_stats stats = { .steps = 20, .gated_steps = 10, .stall_s = 0.5 };
	json_t *o;

	(void)state;
	for (int i = 0; i < 4; i++)
		mm_samples_add(&stats.stalls_s, 0.1);
	o = mm_report_summary(&none, &stats);
	check_real(o, "stall_total_s", 0.5 + 6 * 0.1);
	assert_int_equal(json_integer_value(json_object_get(o, "gated_steps")), 10);
	assert_int_equal(json_integer_value(json_object_get(o, "stall_samples")), 4);
	json_decref(o);
	mm_stats_done(&stats);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_served),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_says_that_it_cannot_write),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_untold_stalls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
