/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a device's lock is a UUID: keeper removes the file of that name, as root. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/common/devlock.h"

#define UUID "0123456789abcdef0123456789abcdef"

static const char *const wrong[] = {
	"",
	"..",
	"../../etc/passwd",
	UUID "0",
	"0123456789ABCDEF0123456789abcdef",
	"0123456789abcdef0123456789abcde/",
	"../../../../../../../../etc/shad",
};

static void test_name(void **state)
{
	struct mm_devlock lock = MM_DEVLOCK_NULL;

	(void)state;
	assert_true(mm_devlock_name(&lock, UUID));
	assert_string_equal(lock.uuid, UUID);
	for (size_t i = 0; i < MM_ARRAY_SIZE(wrong); i++) {
		assert_false(mm_devlock_name(&lock, wrong[i]));
		assert_string_equal(lock.uuid, UUID);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
