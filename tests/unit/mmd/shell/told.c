/* SPDX-License-Identifier: Apache-2.0 */
/* An xfer was told of an id once, until that is struck out. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mmd/shell/told.h"

static size_t told_count(const struct mm_told_kept *told, enum mm_told_kind kind)
{
	size_t at = 0, n = 0;
	uint64_t id;

	while (mm_told_next(told, kind, &at, &id)) {
		assert_true(mm_told_has(told, kind, id));
		n++;
	}
	return n;
}

static void test_kinds(void **state)
{
	static const struct {
		enum mm_told_kind kind;
		size_t max;
	} kinds[] = {
		{ MM_TOLD_TENANT, MM_TOLD_TENANTS },
		{ MM_TOLD_SWAP, MM_TOLD_TENANTS },
		{ MM_TOLD_STORE, MM_TOLD_STORES },
	};
	struct mm_told_kept told = { 0 };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		for (uint64_t id = 0; id < kinds[i].max; id++) {
			assert_false(mm_told_has(&told, kinds[i].kind, id));
			assert_true(mm_told_has_room(&told, kinds[i].kind));
			mm_told_add(&told, kinds[i].kind, id);
			mm_told_add(&told, kinds[i].kind, id / 2);
			assert_int_equal(told_count(&told, kinds[i].kind), id + 1);
		}
		assert_false(mm_told_has_room(&told, kinds[i].kind));
	}
	for (size_t i = 0; i < 3; i++) {
		mm_told_remove(&told, kinds[i].kind, 1000);
		for (uint64_t id = 0; id < kinds[i].max; id++) {
			mm_told_remove(&told, kinds[i].kind, id);
			assert_false(mm_told_has(&told, kinds[i].kind, id));
			assert_int_equal(told_count(&told, kinds[i].kind), kinds[i].max - id - 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
