/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as humans see them; tests/unit/mmd/load/keys.c has which messages are refused. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/common/key.h"

static const struct {
	const char *key;
	size_t bytes;
	const char *text;
} keys[] = {
	{ "", 0, "" },
	{ "llama@4f2a tp0/1", 16, "llama@4f2a tp0/1" },
	{ "a\0", 2, "a\\x00" },
	{ "a\\x00", 5, "a\\x5cx00" },
	{ "\x1b[31m\n", 6, "\\x1b[31m\\x0a" },
	{ "\xff\x7f", 2, "\\xff\\x7f" },
	{ "a\"b", 3, "a\\x22b" },
};

static void test_print(void **state)
{
	char text[MM_KEY_TEXT_BYTES];
	uint8_t longest[MM_MODEL_KEY_BYTES] = { 0 };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(keys); i++)
		assert_string_equal(mm_key_print((const uint8_t *)keys[i].key, keys[i].bytes, text),
				    keys[i].text);
	assert_int_equal(strlen(mm_key_print(longest, sizeof(longest), text)),
			 MM_KEY_TEXT_BYTES - 1);
}

static void test_check(void **state)
{
	struct mm_load_key key = { .magic = MM_ABI_MAGIC,
				   .kind = MM_LOAD_KEY,
				   .key_bytes = MM_MODEL_KEY_BYTES };

	(void)state;
	assert_null(mm_key_check(&key)); /* any bytes, 0 too */
	key.flags = MM_LOAD_KEY_ATTACH | MM_LOAD_KEY_DIGEST;
	assert_null(mm_key_check(&key));
	key.magic++;
	assert_non_null(mm_key_check(&key));
	key.magic--;
	key.kind = MM_LOAD_END;
	assert_non_null(mm_key_check(&key));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_print),
		cmocka_unit_test(test_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
