/* SPDX-License-Identifier: Apache-2.0 */
/* A file with drop-ins: what counts, where it comes from, and what is printed of the table. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "mmd/config/table.h"

static char folder[] = "/tmp/mmd-files-XXXXXX";
static char file[64], dropins[64];

static void file_write(const char *path, const char *text)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	assert_true(fputs(text, out) >= 0);
	assert_int_equal(fclose(out), 0);
}

static void dropin_write(const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dropins, name);
	file_write(path, text);
}

static void dropin_remove(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dropins, name);
	assert_int_equal(unlink(path), 0);
}

static int files_begin(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/mmd-files-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/m.conf", folder);
	snprintf(dropins, sizeof(dropins), "%s/m.conf.d", folder);
	assert_int_equal(mkdir(dropins, 0700), 0);
	return 0;
}

static int files_end(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

static int files_read(struct mm_config *ret, char *error, const char *word)
{
	char *argv[] = { (char *)(uintptr_t) "mmd",      (char *)(uintptr_t) "--dir=/tmp/x",
			 (char *)(uintptr_t) "--config", file,
			 (char *)(uintptr_t)word,        NULL };

	memset(ret, 0, sizeof(*ret));
	return mm_config_read(word ? 5 : 4, argv, ret, error);
}

static void origin_check(struct mm_config *c, const char *name, enum mm_origin_kind kind,
			 const char *where)
{
	const struct mm_opt *o = mm_opt_find(mm_config_options, name, strlen(name));
	const struct mm_origin *origin = mm_config_origin(c, o);
	char text[MM_CONFIG_FILE_BYTES + 16], *slash;

	assert_int_equal(origin->kind, kind);
	if (kind != MM_ORIGIN_FILE)
		return;
	snprintf(text, sizeof(text), "%s:%u", c->sources.path[origin->file], origin->line);
	slash = strrchr(text, '/');
	assert_string_equal(slash + 1, where);
}

/* The later one of two files counts, accounts and knobs key by key, and the command line most. */
static void test_later_wins(void **state)
{
	struct mm_config c;
	char error[MM_CONFIG_ERROR_BYTES] = "";

	(void)state;
	file_write(file, "# comment\npool: 64M\npage: 64K # of all\nkill-max: 3\n"
			 "controller:\n  dwell-ms: 7\n  mode: beside\n"
			 "accounts:\n  - name: a\n    uid: 5\n    weight: 7\n    min: 1M\n"
			 "  - name: b\n    gid: 6\n");
	dropin_write("10.conf", "kill-max: 4\ncontroller: { mode: turns }\n");
	dropin_write("9.conf", "kill-max: 5\naccounts:\n  - { name: a, cgroup: /x, max: 2M }\n"
			       "  - { name: c, uid: 9 }\n");
	dropin_write("99.txt", "no: drop-in\n");
	dropin_write(".hidden.conf", "no: drop-in\n");
	if (files_read(&c, error, "--page=128K") != MM_OPT_RUN)
		fail_msg("%s", error);
	assert_int_equal(c.kill_max, 5);
	assert_int_equal(mm_config_at(&c.pool_bytes, 0), 64 << 20);
	assert_int_equal(mm_config_at(&c.page_bytes, 0), 128 << 10);
	assert_string_equal(c.controller, "dwell-ms=7,mode=turns");
	assert_int_equal(c.accounts.n, 3);
	assert_string_equal(c.accounts.account[0].name, "a");
	assert_int_equal(c.accounts.account[0].by, MM_BY_CGROUP);
	assert_int_equal(c.accounts.account[0].weight, 7);
	assert_int_equal(c.accounts.account[0].min_bytes, 1 << 20);
	assert_int_equal(c.accounts.account[0].max_bytes, 2 << 20);
	assert_string_equal(c.accounts.account[2].name, "c");
	assert_int_equal(c.sources.n, 3);
	assert_string_equal(c.sources.dropins, dropins);
	origin_check(&c, "kill-max", MM_ORIGIN_FILE, "9.conf:1");
	origin_check(&c, "controller", MM_ORIGIN_FILE, "10.conf:2");
	origin_check(&c, "pool", MM_ORIGIN_FILE, "m.conf:2");
	origin_check(&c, "page", MM_ORIGIN_LINE, NULL);
	origin_check(&c, "policy", MM_ORIGIN_DEFAULT, NULL);
	assert_int_equal(c.sources.account[1].file, 0);
	assert_int_equal(c.sources.account[1].line, 13);
	assert_int_equal(c.sources.account[2].file, 2);
}

/* Drop-ins alone are enough, and without either there is nothing to read. */
static void test_missing_file(void **state)
{
	struct mm_config c;
	char error[MM_CONFIG_ERROR_BYTES] = "";

	(void)state;
	dropin_write("a.conf", "kill-max: 9\n");
	assert_int_equal(files_read(&c, error, NULL), MM_OPT_RUN);
	assert_int_equal(c.kill_max, 9);
	dropin_write("a.conf", "");
	assert_int_equal(files_read(&c, error, NULL), MM_OPT_RUN);
	assert_int_equal(c.kill_max, 0);
	dropin_remove("a.conf");
	assert_int_equal(files_read(&c, error, NULL), -EINVAL);
	assert_non_null(strstr(error, "m.conf: No such file"));
}

static const struct {
	const char *text, *where, *names;
} wrong[] = {
	{ "pool: 1G\npolcy: remap\n", "z.conf:2: polcy: ", "did you mean policy?" },
	{ "pool: many\n", "z.conf:1: pool: ", "many" },
	{ "pool:\n", "z.conf:1: pool: ", "size" },
	{ "a: &x 1\n", "z.conf:1: ", "anchors" },
	{ "a: *x\n", "z.conf:1: ", "anchors" },
	{ "pool: !!str 1G\n", "z.conf:1: ", "tags" },
	{ "pool: 1G\n---\npool: 2G\n", "z.conf:2: ", "second document" },
	{ "[[[[[[[[[[1]]]]]]]]]]\n", "z.conf:1: ", "deep" },
	{ "pool: 1G\n\npool: 2G\n", "z.conf:3: pool: ", "duplicate" },
	{ "? [a]\n: 1\n", "z.conf:1: ", "no word" },
	{ "pool: \"1\\0G\"\n", "z.conf:1: ", "byte that is 0" },
	{ "pool: \"1G\n", "z.conf:2: ", "scalar" },
	{ "pool:\n\t1G\n", "z.conf:2: ", "character" },
	{ "\x80\n", "z.conf: byte 0: ", "UTF-8" },
	{ "7\n", "z.conf:1: ", "object" },
	{ "controller:\n  dwell-ms: 1\n  mde: auto\n", "z.conf:3: controller: ", "mode?" },
	{ "accounts:\n  - name: a\n  - name: a\n", "z.conf:3: accounts: 'a': ", "twice" },
	{ "accounts:\n  - uid: 7\n", "z.conf:2: accounts: ", "name is missing" },
	{ "accounts: [7]\n", "z.conf:1: accounts: ", "object" },
	{ "accounts:\n  - name: q\n    uid: 1\n    weigth: 5\n",
	  "z.conf:4: accounts: 'q': ", "weight?" },
	{ "accounts:\n  - name: q\n    weight: 5\n", "z.conf:2: accounts: 'q': ", "cgroup" },
	{ "pool: 1M\naccounts:\n  - name: q\n    uid: 5\n    min: 2M\n",
	  "z.conf:2: accounts: ", "sum up" },
	{ "stage: 1G\n", "z.conf:1: stage: ", "store-dir" },
	{ "config: /etc/passwd\n", "z.conf:1: config: ", "unknown key" },
	{ "check-config: 1\n", "z.conf:1: check-config: ", "unknown key" },
	{ "role: core\n", "z.conf:1: role: ", "unknown key" },
	{ "devices:\n  - device: 0\n    policy: swap\n", "z.conf:3: devices: ", "policy" },
};

static void test_wrong(void **state)
{
	(void)state;
	file_write(file, "page: 64K\n");
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++) {
		char error[MM_CONFIG_ERROR_BYTES] = "";
		struct mm_config c;

		dropin_write("z.conf", wrong[i].text);
		assert_int_equal(files_read(&c, error, NULL), -EINVAL);
		if (!strstr(error, wrong[i].where) || !strstr(error, wrong[i].names))
			fail_msg("%s: %s", wrong[i].text, error);
	}
}

/* ---- what is printed ---- */

static char *text_printed(void (*print)(FILE *, const struct mm_opt_file *))
{
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	assert_non_null(out);
	print(out, mm_config_program.file);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void line_is_there(const char *text, const char *name, const char *format, const char *value)
{
	char line[256];

	snprintf(line, sizeof(line), format, name, value);
	if (!strstr(text, line))
		fail_msg("not there: %s", line);
}

/* Writes a name as troff has it. */
static const char *name_troffed(const char *name, char *to)
{
	char *at = to;

	for (; *name; name++) {
		if (*name == '-')
			*at++ = '\\';
		*at++ = *name;
	}
	*at = '\0';
	return to;
}

/* Each key is in both, with its default; and no others are. */
static void table_check(const struct mm_opt *o, const char *example, const char *man)
{
	char name[64];

	for (; o->name; o++) {
		if (o->line_only || strcmp(o->name, "accounts") == 0 ||
		    strcmp(o->name, "controller") == 0)
			continue;
		assert_non_null(o->help);
		line_is_there(example, o->name, "%s: %s\n", o->preset ? o->preset : o->value);
		line_is_there(man, name_troffed(o->name, name), "\\fB%s\\fR: \\fI%s\\fR\n",
			      o->value);
	}
}

static void test_nothing_is_missing(void **state)
{
	char *example = text_printed(mm_opt_print_file), *man = text_printed(mm_opt_print_file_man);

	(void)state;
	table_check(mm_config_options, example, man);
	for (const struct mm_opt_file_part *p = mm_config_program.file->parts; p->key; p++) {
		line_is_there(example, p->key, "\n#%s:%s", "\n");
		table_check(p->keys(), example, man);
	}
	assert_null(strstr(example, "#role: "));
	assert_null(strstr(example, "#config: "));
	free(example);
	free(man);
}

/* The example is a correct file, and so it is with each default that can be written. */
static void test_example(void **state)
{
	char *example = text_printed(mm_opt_print_file), error[MM_CONFIG_ERROR_BYTES] = "";
	struct mm_config c, plain;
	FILE *out;

	(void)state;
	file_write(file, example);
	if (files_read(&plain, error, NULL) != MM_OPT_RUN)
		fail_msg("%s", error);
	out = fopen(file, "w");
	assert_non_null(out);
	for (const char *line = strtok(example, "\n"); line; line = strtok(NULL, "\n")) {
		const struct mm_opt *o =
			mm_opt_find(mm_config_options, line + 1, strcspn(line + 1, ":"));

		fprintf(out, "%s\n", o && o->preset ? line + 1 : line);
	}
	assert_int_equal(fclose(out), 0);
	if (files_read(&c, error, NULL) != MM_OPT_RUN)
		fail_msg("%s", error);
	assert_int_equal(mm_config_origin(&c, mm_opt_find(mm_config_options, "policy", 6))->kind,
			 MM_ORIGIN_FILE);
	memset(&c.sources, 0, sizeof(c.sources));
	memset(&plain.sources, 0, sizeof(plain.sources));
	assert_memory_equal(&c, &plain, sizeof(c));
	free(example);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_later_wins, files_begin, files_end),
		cmocka_unit_test_setup_teardown(test_missing_file, files_begin, files_end),
		cmocka_unit_test_setup_teardown(test_wrong, files_begin, files_end),
		cmocka_unit_test_setup_teardown(test_example, files_begin, files_end),
		cmocka_unit_test(test_nothing_is_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
