/* SPDX-License-Identifier: Apache-2.0 */
/* Whole numbers and sizes: what strtoul() would take besides digits is refused. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/support/number.h"
#include "libclient/support/size.h"

static const struct {
	const char *text;
	int begin, whole, size;
	uint64_t number; /* where the text begins with one */
} texts[] = {
	{ "0", 0, 0, 0, 0 },
	{ "007", 0, 0, 0, 7 },
	{ "18446744073709551615", 0, 0, 0, UINT64_MAX },
	{ "18446744073709551616", -ERANGE, -ERANGE, -ERANGE, 0 },
	{ "7,8", 0, -EINVAL, -EINVAL, 7 },
	{ "7 ", 0, -EINVAL, -EINVAL, 7 },
	{ "0x10", 0, -EINVAL, -EINVAL, 0 },
	{ "2K", 0, -EINVAL, 0, 2 },
	{ "2KB", 0, -EINVAL, -EINVAL, 2 },
	{ "18446744073709551615T", 0, -EINVAL, -ERANGE, UINT64_MAX },
	{ "", -EINVAL, -EINVAL, -EINVAL, 0 },
	{ " 7", -EINVAL, -EINVAL, -EINVAL, 0 },
	{ "+7", -EINVAL, -EINVAL, -EINVAL, 0 },
	{ "-7", -EINVAL, -EINVAL, -EINVAL, 0 },
	{ "x", -EINVAL, -EINVAL, -EINVAL, 0 },
};

static void test_numbers(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(texts); i++) {
		uint64_t number = 12345, whole = 12345, size = 12345;
		const char *end = NULL;

		print_message("'%s'\n", texts[i].text);
		assert_int_equal(mm_number_begin(texts[i].text, &number, &end), texts[i].begin);
		assert_int_equal(mm_number_parse(texts[i].text, &whole), texts[i].whole);
		assert_int_equal(mm_size_parse(texts[i].text, &size), texts[i].size);
		assert_true(number == (texts[i].begin ? 12345 : texts[i].number));
		assert_true(whole == (texts[i].whole ? 12345 : texts[i].number));
		assert_true(!texts[i].begin == !!end);
		assert_true(texts[i].size    ? size == 12345
			    : texts[i].whole ? size == 2048
					     : size == texts[i].number);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
