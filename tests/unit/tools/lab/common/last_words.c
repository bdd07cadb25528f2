/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence by which a program ended, among all that stands on its stderr. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/common/procs.h"

static const struct {
	const char *text, *words;
} cases[] = {
	{ "", "" },
	{ "one\ntwo\n", "two" },
	{ "one\n\n", "one" },
	{ "mmd: no driver\nts=1 level=info\n", "mmd: no driver" },
	{ "ts=1 a\nts=2 b\nts=3 c\nts=4 d\n", "ts=2 b | ts=3 c | ts=4 d" },
	{ "mmd: no driver\n==7==Unable to get registers from thread 9.\n", "mmd: no driver" },
	{ "ts=1 a\n==7==ABORTING\n", "ts=1 a" },
};

static void test_last_words(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		char path[] = "/tmp/mm-words-XXXXXX", buf[200];
		FILE *file = fdopen(mkstemp(path), "w");
		const struct mm_child child = { .err_path = path };

		assert_non_null(file);
		assert_true(fputs(cases[i].text, file) >= 0);
		assert_int_equal(fclose(file), 0);
		assert_string_equal(mm_child_last_words(&child, buf, sizeof(buf)), cases[i].words);
		assert_int_equal(unlink(path), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_last_words) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
