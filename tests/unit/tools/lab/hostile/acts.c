/* SPDX-License-Identifier: Apache-2.0 */
/* The table of acts: each has a name of its own, a sentence, and something that it expects. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/lab/hostile/perform.h"

#define OUTCOMES                                                                          \
	(MM_ACT_REFUSED | MM_ACT_ENDED | MM_ACT_IGNORED | MM_ACT_CHARGED | MM_ACT_TAKEN | \
	 MM_ACT_KILLED)

static void test_table(void **state)
{
	size_t n = 0;

	(void)state;
	for (const struct mm_act *act; (act = mm_act_at(n)); n++) {
		assert_true(act->run && strlen(act->text) > 5);
		assert_true(act->expected && !(act->expected & ~(unsigned int)OUTCOMES));
		assert_ptr_equal(mm_act_find(act->name), act);
		assert_true(strlen(act->name) < 24 && !strpbrk(act->name, ", "));
		if (act->reason)
			assert_true(act->expected & MM_ACT_ENDED);
	}
	assert_true(n >= 100 && n <= MM_ACTS_MAX);
	assert_null(mm_act_find("none"));
}

static void test_lists(void **state)
{
	const struct mm_act *act = mm_act_find("flags");

	(void)state;
	assert_true(mm_act_is_listed(act, "all"));
	assert_true(mm_act_is_listed(act, "flags"));
	assert_true(mm_act_is_listed(act, "reserved,flags,epoch"));
	assert_false(mm_act_is_listed(act, "flag,flagss,reserved"));
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(mm_act_outcome_name(MM_ACT_REFUSED), "refused");
	assert_string_equal(mm_act_outcome_name(MM_ACT_FAILED), "failed");
	assert_string_equal(mm_act_outcome_name(MM_ACT_ENDED | MM_ACT_FAILED), "ended");
	assert_string_equal(mm_act_outcome_name(0), "none");
}

static void test_tally(void **state)
{
	static struct mm_act_tally a[MM_ACTS_MAX], b[MM_ACTS_MAX];

	(void)state;
	b[3] = (struct mm_act_tally){ .rounds = 2, .unexpected = 1, .outcomes = MM_ACT_ENDED };
	strcpy(b[3].text, "first");
	mm_tally_add(a, b);
	strcpy(b[3].text, "second");
	mm_tally_add(a, b);
	assert_int_equal(a[3].rounds, 4);
	assert_int_equal(a[3].unexpected, 2);
	assert_int_equal(a[3].outcomes, MM_ACT_ENDED);
	assert_string_equal(a[3].text, "first");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_tally),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
