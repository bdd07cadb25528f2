/* SPDX-License-Identifier: Apache-2.0 */
/* Which knobs of the controller a profile sets, and that --controller goes before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/workload/knobs.h"

static const struct mm_profile device = { .link_slows_in = 0.0927,
					  .link_slows_out = 0.1048,
					  .rho = 0.25 };

static void profile_sets_what_is_not_set(void **state)
{
	struct mm_core_opts opts = { 0 }, given = { .link_slows_permille = 160 };

	(void)state;
	mm_wl_knobs_set(&device, &opts);
	assert_int_equal(opts.link_slows_permille, 105); /* the larger one, rounded */
	assert_int_equal(opts.rho_permille, 250);
	mm_wl_knobs_set(&device, &given);
	assert_int_equal(given.link_slows_permille, 160);
	assert_int_equal(given.rho_permille, 250);
}

/* A knob that is 0 is not set, and none is more than 1000. */
static void values_are_those_of_knobs(void **state)
{
	const struct mm_profile extreme = { .link_slows_in = 7, .rho = 0.0001 };
	struct mm_core_opts opts = { 0 };

	(void)state;
	mm_wl_knobs_set(&extreme, &opts);
	assert_int_equal(opts.link_slows_permille, 1000);
	assert_int_equal(opts.rho_permille, 1);
}

static void text_has_each_knob_once(void **state)
{
	static const struct {
		const char *controller, *want;
	} cases[] = {
		{ NULL, "link-slows=105,rho=250" },
		{ "reversion=off", "reversion=off,link-slows=105,rho=250" },
		{ "rho=700", "rho=700,link-slows=105" },
		{ "link-slows=9,rho=700", "link-slows=9,rho=700" },
	};
	char text[64];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		mm_wl_knobs_text(&device, cases[i].controller, text, sizeof(text));
		assert_string_equal(text, cases[i].want);
	}
}

/* Operations and bytes a second as kernels reach them; their ratio is where both take as long. */
static void tokens_follow_the_device(void **state)
{
	static const struct {
		double flops, bps;
		uint32_t given, seqs, want;
	} cases[] = {
		{ 544e12, 3.4e12, 0, 256, 512 },  /* gh200-96: even at 160 */
		{ 203e12, 1.64e12, 0, 256, 512 }, /* a100-pcie4: at 124 */
		{ 512e12, 2e12, 0, 256, 512 },     { 514e12, 2e12, 0, 256, 1024 },
		{ 9e15, 2e12, 0, 256, 2048 },      { 544e12, 3.4e12, 0, 600, 600 },
		{ 544e12, 3.4e12, 300, 256, 300 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const struct mm_profile p = { .f16_flops = 2 * cases[i].flops,
					      .flop_efficiency = 0.5,
					      .hbm_bps = 4 * cases[i].bps,
					      .mem_efficiency = 0.25 };
		struct mm_wl_opts o = { .batched_tokens = cases[i].given,
					.max_seqs = cases[i].seqs };

		mm_wl_tokens_set(&p, &o);
		assert_int_equal(o.batched_tokens, cases[i].want);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(profile_sets_what_is_not_set),
		cmocka_unit_test(values_are_those_of_knobs),
		cmocka_unit_test(text_has_each_knob_once),
		cmocka_unit_test(tokens_follow_the_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
