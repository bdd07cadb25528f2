/* SPDX-License-Identifier: Apache-2.0 */
/* Matrices of elements of any size are transposed from pieces that end anywhere. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/model/placed.h"

#define ROWS  37
#define COLS  71
#define TRIES 20

static void matrix_move(uint32_t item, uint64_t *random)
{
	static char file[ROWS * COLS * 8], store[ROWS * COLS * 8 + 3];
	const uint64_t bytes = (uint64_t)ROWS * COLS * item;
	const struct mm_placed placed = {
		.bytes = bytes, .store_offset = 3, .item_bytes = item, .rows = ROWS, .cols = COLS
	};

	for (uint64_t i = 0; i < bytes; i++)
		file[i] = (char)mm_random_below(random, 256);
	memset(store, 0, sizeof(store));
	for (uint64_t at = 0; at < bytes;) {
		uint64_t n = 1 + mm_random_below(random, 3 * COLS * item);

		n = MM_MIN(n, bytes - at);
		mm_placed_copy(&placed, at, n, file + at, store);
		at += n;
	}
	for (uint64_t r = 0; r < ROWS; r++)
		for (uint64_t c = 0; c < COLS; c++)
			assert_memory_equal(store + 3 + (c * ROWS + r) * item,
					    file + (r * COLS + c) * item, item);
}

static void test_transposed(void **state)
{
	uint64_t random = 1;

	(void)state;
	for (uint32_t i = 0; i < TRIES; i++)
		for (uint32_t item = 1; item <= 8; item *= 2)
			matrix_move(item, &random);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_transposed) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
