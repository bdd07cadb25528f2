/* SPDX-License-Identifier: Apache-2.0 */
/* The table of named fds: against a naive list, with names that collide. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "mmd/common/fdtab.h"

#define NAMES 96
#define STEPS 20000

/* Few kinds, indices and ids, so that names differ in one word only. */
static struct mm_held_name name_at(unsigned int n)
{
	return (struct mm_held_name){ .kind = MM_HELD_PAGE + n % 2,
				      .index = n / 2 % 3,
				      .id = n / 6 };
}

static int fd_new(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void table_compare(const struct mm_fdtab *tab, const int *naive)
{
	const struct mm_fdtab_entry *entry;
	size_t at = 0, n = 0, expected = 0;

	for (unsigned int i = 0; i < NAMES; i++) {
		assert_int_equal(mm_fdtab_find(tab, name_at(i)), naive[i]);
		expected += naive[i] >= 0;
	}
	while ((entry = mm_fdtab_next(tab, &at))) {
		assert_int_equal(mm_fdtab_find(tab, entry->name), entry->fd);
		n++;
	}
	assert_int_equal(n, expected);
	assert_int_equal(tab->count, expected);
}

static void test_random(void **state)
{
	struct mm_fdtab tab;
	uint64_t random = 1;
	int naive[NAMES], old;

	(void)state;
	mm_fdtab_init(&tab);
	for (unsigned int i = 0; i < NAMES; i++)
		naive[i] = -1;
	table_compare(&tab, naive);
	for (int step = 0; step < STEPS; step++) {
		unsigned int i;

		random = random * UINT64_C(6364136223846793005) + 1;
		i = (unsigned int)(random >> 40) % NAMES;
		if (random >> 63) {
			int fd = fd_new();

			assert_int_equal(mm_fdtab_put(&tab, name_at(i), fd, &old), 0);
			assert_int_equal(old, naive[i]);
			naive[i] = fd;
		} else {
			old = mm_fdtab_take(&tab, name_at(i));
			assert_int_equal(old, naive[i]);
			naive[i] = -1;
		}
		if (old >= 0)
			close(old);
		if (step % 64 == 0)
			table_compare(&tab, naive);
	}
	table_compare(&tab, naive);
	mm_fdtab_done(&tab);
	for (unsigned int i = 0; i < NAMES; i++)
		assert_true(naive[i] < 0 || fcntl(naive[i], F_GETFD) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
