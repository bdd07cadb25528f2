/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/softgpu/range.h"

#define SPACE 512

static void test_neighbours(void **state)
{
	struct sg_ranges r = { 0 };

	(void)state;
	assert_int_equal(sg_ranges_add(&r, 20, 30, NULL), 0);
	assert_int_equal(sg_ranges_add(&r, 10, 20, NULL), 0);
	assert_int_equal(sg_ranges_add(&r, 30, 31, NULL), 0);
	assert_int_equal(sg_ranges_add(&r, 5, 11, NULL), -EEXIST);
	assert_int_equal(sg_ranges_add(&r, 25, 26, NULL), -EEXIST);
	assert_int_equal(sg_ranges_add(&r, 0, 100, NULL), -EEXIST);
	assert_null(sg_ranges_find(&r, 9));
	assert_int_equal(sg_ranges_find(&r, 10)->start, 10);
	assert_int_equal(sg_ranges_find(&r, 19)->start, 10);
	assert_int_equal(sg_ranges_find(&r, 20)->start, 20);
	assert_null(sg_ranges_find(&r, 31));
	sg_ranges_remove(&r, 0, 2);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.items[0].start, 30);
	free(r.items);
}

/* Against a table of who owns which byte. */
static void test_random(void **state)
{
	const void *owner[SPACE] = { NULL };
	struct sg_ranges r = { 0 };
	unsigned int seed = 7;

	(void)state;
	for (int step = 0; step < 20000; step++) {
		uint64_t start = (uint64_t)rand_r(&seed) % SPACE;
		uint64_t end = start + 1 + (uint64_t)rand_r(&seed) % 20;
		struct sg_range *found = sg_ranges_find(&r, start);
		bool taken = false;

		if (end > SPACE)
			end = SPACE;
		assert_ptr_equal(found ? found->value : NULL, owner[start]);
		if (found && step % 2) {
			for (uint64_t i = found->start; i < found->end; i++)
				owner[i] = NULL;
			sg_ranges_remove(&r, (size_t)(found - r.items),
					 (size_t)(found - r.items) + 1);
			continue;
		}
		for (uint64_t i = start; i < end; i++)
			taken |= owner[i] != NULL;
		assert_int_equal(sg_ranges_overlaps(&r, start, end), taken);
		assert_int_equal(sg_ranges_add(&r, start, end, (char *)&seed + step),
				 taken ? -EEXIST : 0);
		for (uint64_t i = start; i < end && !taken; i++)
			owner[i] = (char *)&seed + step;
		for (size_t i = 1; i < r.n; i++)
			assert_true(r.items[i - 1].end <= r.items[i].start);
	}
	free(r.items);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
