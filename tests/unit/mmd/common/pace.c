/* SPDX-License-Identifier: Apache-2.0 */
/* Buckets of time: a burst, then so often and no more; whoever does what it must is not held up. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mm/abi.h"
#include "mmd/common/pace.h"

#define START UINT64_C(1000000000000)

static void test_burst(void **state)
{
	struct mm_pace pace = { 0 };
	uint64_t at, n = 0;

	(void)state;
	while (!(at = mm_pace_spend(&pace, 10, 1000, START)))
		n++;
	assert_int_equal(n, 100);
	assert_int_equal(at, START + 10);
	/* A refusal has cost nothing. */
	assert_int_equal(mm_pace_spend(&pace, 10, 1000, START), at);
	assert_int_equal(mm_pace_spend(&pace, 10, 1000, at), 0);
	assert_int_equal(mm_pace_spend(&pace, 10, 1000, at), at + 10);
	/* After a long absence the burst is there again, and no more. */
	for (n = 0; !mm_pace_spend(&pace, 10, 1000, START + 1000000);)
		n++;
	assert_int_equal(n, 100);
}

static void test_price_above_burst(void **state)
{
	struct mm_pace pace = { 0 };

	(void)state;
	assert_int_equal(mm_pace_spend(&pace, 5000, 1000, START), 0);
	assert_int_equal(mm_pace_spend(&pace, 5000, 1000, START), START + 5000);
	assert_int_equal(mm_pace_spend(&pace, 0, 1000, START), 0);
}

static void test_charge(void **state)
{
	struct mm_pace pace = { 0 };

	(void)state;
	mm_pace_charge(&pace, 1500, START);
	assert_int_equal(mm_pace_spend(&pace, 10, 1000, START), START + 510);
}

/* A request that is bounded by what mmd has given costs nothing, any other something. */
static void test_prices(void **state)
{
	(void)state;
	for (uint16_t op = 0; op <= MM_OP_COUNT; op++)
		assert_true(mm_pace_price(op) <= MM_PACE_ASK_NS);
	assert_int_equal(mm_pace_price(MM_OP_KV_RELEASE), 0);
	assert_int_equal(mm_pace_price(MM_OP_COMMITTED), 0);
	assert_int_equal(mm_pace_price(MM_OP_KV_WANT), MM_PACE_WANT_NS);
	assert_int_equal(mm_pace_price(MM_OP_NOP), MM_PACE_ASK_NS);
}

static void test_users(void **state)
{
	static struct mm_pace_users users;
	struct mm_pace *pace, *shared;

	(void)state;
	for (uint32_t uid = 0; uid < MM_PACE_USERS; uid++) {
		pace = mm_pace_of_user(&users, uid, START);
		mm_pace_charge(pace, 100 + uid, START);
		assert_ptr_equal(mm_pace_of_user(&users, uid, START), pace);
	}
	shared = mm_pace_of_user(&users, 5000, START);
	assert_ptr_equal(shared, &users.user[MM_PACE_USERS].pace);
	assert_ptr_equal(mm_pace_of_user(&users, 5001, START), shared);
	/* The first ones are full again. */
	pace = mm_pace_of_user(&users, 5000, START + 150);
	assert_ptr_not_equal(pace, shared);
	mm_pace_charge(pace, 100, START + 150);
	assert_ptr_equal(mm_pace_of_user(&users, 5000, START + 150), pace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_burst),  cmocka_unit_test(test_price_above_burst),
		cmocka_unit_test(test_charge), cmocka_unit_test(test_prices),
		cmocka_unit_test(test_users),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
