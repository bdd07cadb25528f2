/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A summary for a person contains every number that is not 0, with its unit, and no group of which
 * nothing happened.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/mmserve/engine/print.h"
#include "tools/mmserve/engine/report.h"

/* Makes the report of a run with given numbers in it. */
static json_t *summary_make(void)
{
	struct mm_requests none = { 0 };
	struct mm_stats stats = { .end_s = 4 };
	json_t *summary = mm_report_summary(&none, &stats);

	assert_non_null(summary);
	return summary;
}

static char *text_of(const json_t *summary)
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	mm_print_summary(out, summary);
	assert_int_equal(fclose(out), 0);
	return text;
}

static bool ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/*
 * Each member gets a number that no other has, and the text must contain it as it is written for
 * its unit.
 */
static void test_nothing_is_left_out(void **state)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	json_t *summary = summary_make(), *value;
	char want[64][24];
	const char *key;
	size_t n = 0;

	(void)state;
	json_object_set_new(summary, "weights_tensor_bytes", json_integer(0));
	json_object_set_new(summary, "weights_device_bytes", json_integer(0));
	json_object_set_new(summary, "weights_waste_bytes", json_integer(0));
	json_object_foreach(summary, key, value) {
		const int i = 101 + (int)n;

		if (!strcmp(key, "schema"))
			continue;
		assert_true(n < MM_ARRAY_SIZE(want));
		if (ends_with(key, "_bytes")) {
			json_integer_set(value, (json_int_t)i << 20);
			snprintf(want[n++], sizeof(want[0]), "%d.0 MiB", i);
		} else if (json_is_integer(value)) {
			json_integer_set(value, 1000 + i);
			snprintf(want[n++], sizeof(want[0]), "%d", 1000 + i);
		} else if (!strcmp(key, "throughput_tok_s")) {
			json_real_set(value, i + 0.5);
			snprintf(want[n++], sizeof(want[0]), "%d.5 tokens/s", i);
		} else {
			json_real_set(value, i / 1e3);
			snprintf(want[n++], sizeof(want[0]), "%d.00 ms", i);
		}
	}
	text = text_of(summary);
	for (size_t i = 0; i < n; i++) {
		if (!strstr(text, want[i]))
			fail_msg("%s is not in:\n%s", want[i], text);
	}
	assert_true(n > 40);
	json_decref(summary);
}

static void test_what_did_not_happen(void **state)
{
	static const char *const groups[] = { "Layers", "swap",    "host memory", "graphs",
					      "repeat", "Weights", "checksums" };
	json_t *summary = summary_make();
	char *text = text_of(summary);

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(groups); i++)
		assert_null(strstr(text, groups[i]));
	assert_non_null(strstr(text, "Served\n"));
	assert_non_null(strstr(text, "Latency"));
	free(text);
	json_object_set_new(summary, "graph_launches", json_integer(1));
	json_object_set_new(summary, "plan_changes", json_integer(1));
	json_object_set_new(summary, "swaps_failed", json_integer(1));
	json_object_set_new(summary, "checksum_failures", json_integer(1));
	text = text_of(summary);
	assert_non_null(strstr(text, "graphs"));
	assert_non_null(strstr(text, "Layers that mmd took"));
	assert_non_null(strstr(text, "to host memory"));
	assert_non_null(strstr(text, "WRONG BYTES"));
	free(text);
	json_decref(summary);
}

static void test_units(void **state)
{
	static const struct {
		double s;
		const char *want;
	} cases[] = { { 0, " 0 us" },     { 0.0000123, " 12 us" }, { 0.0123456, " 12.35 ms" },
		      { 1.5, " 1.50 s" }, { 99.9, " 99.90 s" },    { 1234.5, " 1234 s" } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		mm_cleanup(mm_free_ptr) char *text = NULL;
		json_t *summary = summary_make();

		json_object_set_new(summary, "ttft_p50_s", json_real(cases[i].s));
		text = text_of(summary);
		if (!strstr(text, cases[i].want))
			fail_msg("%s is not in:\n%s", cases[i].want, text);
		json_decref(summary);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_left_out),
		cmocka_unit_test(test_what_did_not_happen),
		cmocka_unit_test(test_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
