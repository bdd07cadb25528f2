/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as text: escapes, names that are too many, answers that are not mmd's, and the table. */
#undef NDEBUG
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
#include "tools/mmctl/exposition.h"
#include "tools/mmctl/metrics_table.h"

#define WAIT "mmd_account_grant_wait_seconds"
#define OF_A "device=\"0\",account=\"a\""

static struct mmctl_names names;

static char *text_of(bool open, json_t *answer)
{
	mm_cleanup(mm_json_done) json_t *own = json_pack("{s:i}", "up", answer != NULL);
	mm_cleanup(mm_json_done) json_t *mine = answer;
	size_t bytes;
	char *text;
	FILE *to = open_memstream(&text, &bytes);

	assert_non_null(to);
	mmctl_exposition_write(to, open, own, mine, &names);
	assert_int_equal(fclose(to), 0);
	return text;
}

static void text_expect(json_t *answer, const char *part, bool there)
{
	mm_cleanup(mm_free_ptr) char *text = text_of(true, answer);

	if ((strstr(text, part) != NULL) != there)
		fail_msg("%s%s in:\n%s", there ? "no " : "", part, text);
}

static json_t *tenant_named(const char *account, const char *tenant, int place)
{
	return json_pack("{s:[{s:i,s:s,s:s,s:i,s:i}]}", "tenants", "device", 3, "account", account,
			 "tenant", tenant, "place", place, "layers", 7);
}

static void test_escapes(void **state)
{
	(void)state;
	names.n = 0;
	text_expect(tenant_named("a\"b", "c\\d\ne", 5),
		    "\nmmd_tenant_layers{device=\"3\",account=\"a\\\"b\",tenant=\"c\\\\d\\ne\","
		    "place=\"5\"} 7\n",
		    true);
	text_expect(tenant_named("x", "\"} 1\nmmd_up 0\n", 5), "\nmmd_up 0", false);
}

/* Each account has so many names of its own, and there is a bound on all. */
static void test_names_are_bounded(void **state)
{
	char name[32];

	(void)state;
	names.n = 0;
	names.n = 0;
	for (int i = 0; i < MMCTL_NAMES_EACH + 5; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		text_expect(tenant_named("one", name, i), "tenant=\"other\"",
			    i >= MMCTL_NAMES_EACH);
	}
	text_expect(tenant_named("one", "n0", 1), "tenant=\"n0\"", true);
	text_expect(tenant_named("two", "fresh", 1), "tenant=\"fresh\"", true);
	text_expect(tenant_named("two",
				 "longer-than-any-name-that-mmd-lets-in-by-a-good-deal-indeed-"
				 "and-more",
				 1),
		    "tenant=\"other\"", true);
	for (int i = 0; names.n < MMCTL_NAMES_MAX; i++) {
		snprintf(name, sizeof(name), "account%d", i);
		text_expect(tenant_named(name, "t", i), "tenant=\"other\"", false);
	}
	text_expect(tenant_named("last", "t", 1), "tenant=\"other\"", true);
}

static void test_histogram(void **state)
{
	json_t *answer =
		json_pack("{s:[i,I], s:[{s:i,s:s,s:{s:[i,i,i],s:I}}]}", "bounds_ns", 500000,
			  (json_int_t)10000000000, "accounts", "device", 0, "account", "a",
			  "grant_times", "counts", 1, 2, 4, "sum_ns", (json_int_t)12000000003);
	mm_cleanup(mm_free_ptr) char *text = text_of(true, answer);

	(void)state;
	assert_non_null(strstr(text,
			       "# TYPE " WAIT " histogram\n"
			       "# UNIT " WAIT " seconds\n" WAIT "_bucket{" OF_A
			       ",le=\"0.0005\"} 1\n" WAIT "_bucket{" OF_A ",le=\"10.0\"} 3\n" WAIT
			       "_bucket{" OF_A ",le=\"+Inf\"} 7\n" WAIT "_sum{" OF_A
			       "} 12.000000003\n" WAIT "_count{" OF_A "} 7\n"));
}

/* An answer that is not mmd's gives fewer samples, and nothing else. */
static void test_strange_answers(void **state)
{
	static const char *const answers[] = {
		"{}",
		"{\"tenants\":7,\"node\":[],\"devices\":{},\"accounts\":null}",
		"{\"tenants\":[7,null,[],{\"layers\":\"x\",\"grant_times\":7}]}",
		"{\"tenants\":[{\"grant_times\":{\"counts\":{},\"sum_ns\":[]}}],\"bounds_ns\":{}}",
		("{\"bounds_ns\":[\"x\",-1],"
		 "\"accounts\":[{\"grant_times\":{\"counts\":[1,\"\",-3]}}]}"),
		"{\"devices\":[{\"pool_bytes\":{\"a\\\"\":1,\"b\":\"c\"},\"device\":[]}]}",
	};

	(void)state;
	names.n = 0;
	text_expect(NULL, "\nmmd_up 0\n", true);
	for (size_t i = 0; i < MM_ARRAY_SIZE(answers); i++) {
		text_expect(json_loads(answers[i], 0, NULL), "\nmmd_up 1\n", true);
		text_expect(json_loads(answers[i], 0, NULL), "\n# EOF\n", true);
	}
}

static void test_accept(void **state)
{
	static const struct {
		const char *accept;
		bool open;
	} cases[] = {
		{ NULL, false },
		{ "", false },
		{ "*/*", false },
		{ "application/openmetrics-text", true },
		{ "Application/OpenMetrics-Text ; version=1.0.0", true },
		{ "application/openmetrics-text;q=0", false },
		{ "application/openmetrics-text;q=0.000", false },
		{ "application/openmetrics-text;q=x", false },
		{ "application/openmetrics-text;q=0.5,text/plain;q=0.5", true },
		{ "application/openmetrics-text;q=0.5,text/plain;q=0.501", false },
		{ "text/plain, application/openmetrics-text;version=0.0.1;q=0.75", false },
		{ "application/openmetrics-text;version=1.0.0,"
		  "application/openmetrics-text;version=0.0.1;q=0.75,"
		  "text/plain;version=0.0.4;q=0.5,"
		  "*/*;q=0.1",
		  true },
		{ "application/openmetrics-textual", false },
		{ ",,;;q=,;=q", false },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		if (mmctl_exposition_is_open(cases[i].accept) != cases[i].open)
			fail_msg("%s", cases[i].accept);
}

/* Names are unique and well-formed, and end in their unit. */
static void test_table(void **state)
{
	(void)state;
	for (size_t i = 0; i < mmctl_metrics_n; i++) {
		const struct mmctl_metric *m = &mmctl_metrics[i];

		assert_int_equal(strspn(m->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(m->name));
		assert_true(strncmp(m->name, "mmd_", 4) == 0);
		assert_true(!m->unit ||
			    strcmp(m->name + strlen(m->name) - strlen(m->unit), m->unit) == 0);
		assert_true((m->scale == MMCTL_NANO) <= (m->unit && !strcmp(m->unit, "seconds")));
		assert_true(m->claim == (strstr(m->name, "_claimed_") != NULL));
		assert_true(m->help[0] && m->help[strlen(m->help) - 1] != '.');
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(m->name, mmctl_metrics[j].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_escapes),   cmocka_unit_test(test_names_are_bounded),
		cmocka_unit_test(test_histogram), cmocka_unit_test(test_strange_answers),
		cmocka_unit_test(test_accept),    cmocka_unit_test(test_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
