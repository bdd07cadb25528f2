/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that are read again: which count at once, and which need a restart. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/json.h"
#include "mmd/config/reload.h"
#include "mmd/config/table.h"

#define WORDS_MAX 12

/* Settings of a command line; each array ends with NULL. */
static void settings(struct mm_config *c, const char *const *words)
{
	char *argv[WORDS_MAX + 3] = { (char *)(uintptr_t) "mmd",
				      (char *)(uintptr_t) "--dir=/tmp/x" };
	char error[MM_CONFIG_ERROR_BYTES] = "";
	int argc = 2;

	for (; words[argc - 2]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 2];
	memset(c, 0, sizeof(*c));
	if (mm_config_read(argc, argv, c, error) != MM_OPT_RUN)
		fail_msg("%s", error);
}

static const json_t *change_of(const json_t *changes, const char *key)
{
	const json_t *change;
	size_t i;

	json_array_foreach(changes, i, change) {
		if (strcmp(mm_json_text(change, "key"), key) == 0)
			return change;
	}
	return NULL;
}

static const char *const lines[][2] = {
	{ "--driver=software", NULL },
	{ "--device=1", NULL },
	{ "--pool=64M", NULL },
	{ "--headroom=1G", NULL },
	{ "--page=64K", NULL },
	{ "--policy=elastic", NULL },
	{ "--slots=2", NULL },
	{ "--plan-change=full", NULL },
	{ "--chunk=1M", NULL },
	{ "--account-max=5M", NULL },
	{ "--turn-quantum-max=7", NULL },
	{ "--turn-priority-max=3", NULL },
	{ "--on-timeout=quarantine", NULL },
	{ "--reclaim-timeout=5", NULL },
	{ "--stop-timeout=5", NULL },
	{ "--kill-max=5", NULL },
	{ "--kill-window=5", NULL },
	{ "--idle-timeout=5", NULL },
	{ "--core-timeout=5", NULL },
	{ "--host-store-max=5G", NULL },
	{ "--store-dir=/s", NULL },
	{ "--swap-max=5G", NULL },
	{ "--swap-account-max=5G", NULL },
	{ "--hugepages=2M", NULL },
	{ "--passed-fds=discard", NULL },
	{ "--sandbox=log", NULL },
	{ "--log-level=debug", NULL },
	{ "--view-group=none", NULL },
	{ "--audit=stderr", NULL },
};

/* Each key of the table is taken over if it is live, and only then. */
static void test_each_key(void **state)
{
	struct mm_config now, read, next;
	char error[MM_CONFIG_ERROR_BYTES];
	size_t keys = 0;

	(void)state;
	settings(&now, (const char *const[]){ NULL });
	for (const struct mm_opt *o = mm_config_options; o->name; o++)
		keys += !o->line_only && !mm_config_is_accounts(o) && !mm_config_is_knobs(o);
	/*
	 * But for three: the directory is in each line, node 0 is the only one that every host has,
	 * and a stage needs a store.
	 */
	assert_int_equal(keys, MM_ARRAY_SIZE(lines) + 3);
	for (size_t i = 0; i < MM_ARRAY_SIZE(lines); i++) {
		const char *name = lines[i][0] + 2;
		const struct mm_opt *o = mm_opt_find(mm_config_options, name, strcspn(name, "="));
		json_t *changes = NULL;
		char *a, *b;

		settings(&read, lines[i]);
		assert_int_equal(mm_config_merge(&now, &read, &next, &changes, error), 0);
		assert_int_equal(json_array_size(changes), 1);
		assert_int_equal(mm_json_flag(json_array_get(changes, 0), "applied"), o->live);
		assert_string_equal(mm_json_text(json_array_get(changes, 0), "key"), o->name);
		a = mm_config_value(o->live ? &read : &now, o);
		b = mm_config_value(&next, o);
		assert_string_equal(a, b);
		memset(&next.sources, 0, sizeof(next.sources));
		memset(&read.sources, 0, sizeof(read.sources));
		assert_int_equal(memcmp(&next, &read, sizeof(next)) == 0, o->live);
		free(a);
		free(b);
		json_decref(changes);
	}
}

static void test_knobs(void **state)
{
	struct mm_config now, read, next;
	char error[MM_CONFIG_ERROR_BYTES];
	json_t *changes = NULL;

	(void)state;
	settings(&now, (const char *const[]){ "--controller=time-scale=3,dwell-ms=5", NULL });
	settings(&read, (const char *const[]){ "--controller=mode=turns,idle-ms=100", NULL });
	assert_int_equal(mm_config_merge(&now, &read, &next, &changes, error), 0);
	assert_string_equal(next.controller, "idle-ms=100,time-scale=3,mode=turns");
	/* The default of idle-ms is what was said of it. */
	assert_int_equal(json_array_size(changes), 3);
	assert_true(mm_json_flag(change_of(changes, "controller.mode"), "applied"));
	assert_true(mm_json_flag(change_of(changes, "controller.dwell-ms"), "applied"));
	assert_false(mm_json_flag(change_of(changes, "controller.time-scale"), "applied"));
	json_decref(changes);
}

/* Accounts keep their places, whatever the order of the files. */
static void test_accounts(void **state)
{
	struct mm_config now, read, next;
	char error[MM_CONFIG_ERROR_BYTES];
	json_t *changes = NULL;

	(void)state;
	settings(&now, (const char *const[]){ "--accounts=[{\"name\":\"a\",\"uid\":1},"
					      "{\"name\":\"b\",\"uid\":2,\"domain\":\"d\"},"
					      "{\"name\":\"c\",\"uid\":3}]",
					      NULL });
	settings(&read, (const char *const[]){ "--accounts=[{\"name\":\"n\",\"uid\":9},"
					       "{\"name\":\"c\",\"gid\":3,\"weight\":4},"
					       "{\"name\":\"b\",\"uid\":2,\"domain\":\"e\"}]",
					       NULL });
	assert_int_equal(mm_config_merge(&now, &read, &next, &changes, error), 0);
	assert_int_equal(next.accounts.n, 4);
	assert_string_equal(next.accounts.account[0].name, "a");
	assert_string_equal(next.accounts.account[1].domain, "d");
	assert_int_equal(next.accounts.account[2].by, MM_BY_GID);
	assert_int_equal(next.accounts.account[2].weight, 4);
	assert_string_equal(next.accounts.account[3].name, "n");
	assert_false(mm_json_flag(change_of(changes, "accounts.a"), "applied"));
	assert_false(mm_json_flag(change_of(changes, "accounts.b.domain"), "applied"));
	assert_true(mm_json_flag(change_of(changes, "accounts.c.gid"), "applied"));
	assert_true(mm_json_flag(change_of(changes, "accounts.c.weight"), "applied"));
	assert_true(mm_json_flag(change_of(changes, "accounts.n"), "applied"));
	json_decref(changes);
	/* An account that stays until a restart still has its user. */
	settings(&read, (const char *const[]){ "--accounts=[{\"name\":\"z\",\"uid\":1}]", NULL });
	assert_int_equal(mm_config_merge(&now, &read, &next, &changes, error), -EINVAL);
	assert_non_null(strstr(error, "matches the same as account 'a'"));
}

/* There is no room for more than the table has, with those that were removed. */
static void test_no_room(void **state)
{
	static char lists[2][4096];
	struct mm_config now, read, next;
	char error[MM_CONFIG_ERROR_BYTES] = "";
	json_t *changes = NULL;

	(void)state;
	for (int k = 0; k < 2; k++) {
		size_t at = (size_t)snprintf(lists[k], sizeof(lists[k]), "--accounts=[");

		for (int i = 0; i < MM_ACCOUNTS_NAMED_MAX; i++)
			at += (size_t)snprintf(lists[k] + at, sizeof(lists[k]) - at,
					       "%s{\"name\":\"a%d\",\"uid\":%d}", i ? "," : "",
					       i + k, i + k);
		snprintf(lists[k] + at, sizeof(lists[k]) - at, "]");
	}
	settings(&now, (const char *const[]){ lists[0], NULL });
	settings(&read, (const char *const[]){ lists[1], NULL });
	assert_int_equal(mm_config_merge(&now, &read, &next, &changes, error), -EINVAL);
	assert_non_null(strstr(error, "'a32': there is no room until a restart"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_key),
		cmocka_unit_test(test_knobs),
		cmocka_unit_test(test_accounts),
		cmocka_unit_test(test_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
