/* SPDX-License-Identifier: Apache-2.0 */
/* A heap against an array that is searched for its first item; the order of equal items. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/heap.h"
#include "libclient/base/random.h"

#define ITEMS_MAX 200

struct item {
	uint32_t key, order;
	uint8_t odd; /* a size that is no power of two */
};

static bool item_is_before(const void *one, const void *other)
{
	const struct item *a = one, *b = other;

	return a->key != b->key ? a->key < b->key : a->order < b->order;
}

static struct item take_least(struct item *items, size_t n)
{
	struct item least;
	size_t at = 0;

	for (size_t i = 1; i < n; i++) {
		if (item_is_before(&items[i], &items[at]))
			at = i;
	}
	least = items[at];
	items[at] = items[n - 1];
	return least;
}

static void play(uint64_t seed, uint32_t keys)
{
	struct item heap[ITEMS_MAX], list[ITEMS_MAX];
	uint32_t order = 0;
	size_t n = 0;

	for (uint32_t i = 0; i < 5000; i++) {
		/* More come than go at first, fewer later. */
		const bool push = mm_random_next(&seed) % 100 < (i < 2500 ? 60 : 40);

		if (push && n < ITEMS_MAX) {
			const struct item item = { (uint32_t)(mm_random_next(&seed) % keys),
						   order++, (uint8_t)i };

			mm_heap_push(heap, n, sizeof(item), item_is_before, &item);
			list[n++] = item;
		} else if (!push && n > 0) {
			const struct item want = take_least(list, n);
			struct item got;

			mm_heap_pop(heap, n--, sizeof(got), item_is_before, &got);
			assert_int_equal(got.key, want.key);
			assert_int_equal(got.order, want.order);
			assert_int_equal(got.odd, want.odd);
		}
		if (n)
			assert_true(heap[0].key <= list[n - 1].key);
	}
}

static void test_against_a_list(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++)
		play(seed, seed % 3 ? 1000 : 3);
}

static void test_equal_keys_come_as_they_went(void **state)
{
	struct item heap[ITEMS_MAX];
	size_t n = 0;

	(void)state;
	for (uint32_t i = 0; i < ITEMS_MAX; i++) {
		const struct item item = { 7, i, 0 };

		mm_heap_push(heap, n++, sizeof(item), item_is_before, &item);
	}
	for (uint32_t i = 0; i < ITEMS_MAX; i++) {
		struct item got;

		mm_heap_pop(heap, n--, sizeof(got), item_is_before, &got);
		assert_int_equal(got.order, i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_a_list),
		cmocka_unit_test(test_equal_keys_come_as_they_went),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
