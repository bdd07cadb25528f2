/* SPDX-License-Identifier: Apache-2.0 */
/* The roofline, copies, and what a step costs against numbers worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/stepcost/stepcost.h"

static const struct mm_profile device = {
	.hbm_bps = 2e12,
	.h2d_bps = 5e11,
	.d2h_bps = 2.5e11,
	.duplex_loss = 0.5,
	.link_slows_in = 0.25,
	.link_slows_out = 0.125,
	.f16_flops = 2e14,
	.mem_efficiency = 0.5,
	.flop_efficiency = 0.5,
	.kernel_ns = 2000,
	.copy_ns = 1000,
};

static void the_slower_decides(void **state)
{
	(void)state;
	/* 1e12 B/s, 1e14 FLOP/s */
	assert_int_equal(mm_cost_ns(&device, &(struct mm_cost){ 5e6, 1e8 }), 5000);
	assert_int_equal(mm_cost_ns(&device, &(struct mm_cost){ 5e6, 1e9 }), 10000);
	assert_int_equal(mm_cost_ns(&device, &(struct mm_cost){ 1e6, 1e6 }), 2000);
	assert_int_equal(mm_cost_ns(&device, &(struct mm_cost){ 0, 0 }), 2000);
	/* The largest numbers that a tenant's arguments can have still fit. */
	assert_true(mm_cost_ns(&device, &(struct mm_cost){ 1e30, 1e300 }) < UINT64_MAX / 1000);
}

static void copies_share_the_link(void **state)
{
	(void)state;
	assert_int_equal(mm_cost_copy_ns(&device, MM_LINK_H2D, 1000000000, 0), 2000000);
	assert_int_equal(mm_cost_copy_ns(&device, MM_LINK_D2H, 1000000000, 0), 4000000);
	assert_int_equal(mm_cost_copy_ns(&device, MM_LINK_D2H, 1000000000, 1), 8000000);
	assert_int_equal(mm_cost_copy_ns(&device, MM_LINK_H2D, 8, 0), 1000);
	assert_int_equal(mm_cost_device_copy_ns(&device, 1000000000), 2000000);
	assert_int_equal(mm_cost_fill_ns(&device, 1000000000), 1000000);
}

static void copies_slow_kernels_down(void **state)
{
	(void)state;
	assert_true(mm_cost_slowdown(&device, 0, 0) == 1);
	assert_true(mm_cost_slowdown(&device, 1, 0) == 1.25);
	assert_true(mm_cost_slowdown(&device, 0, 1) == 1.125);
	assert_true(mm_cost_slowdown(&device, 1, 1) == 1.375);
	assert_true(mm_cost_slowdown(&device, 0.5, 0.5) == 1.1875);
}

/* The closed forms against the loops that they stand for. */
static void chunks_read_by_tiles(void **state)
{
	(void)state;
	for (uint64_t first = 0; first < 300; first += 37)
		for (uint64_t tokens = 0; tokens < 300; tokens++) {
			uint64_t pairs = 0, context = 0;

			for (uint64_t t = 0; t < tokens; t++) {
				pairs += first + t + 1;
				if ((t + 1) % MM_COST_QUERY_TILE == 0 || t + 1 == tokens)
					context += first + t + 1;
			}
			assert_int_equal(mm_cost_context(first, tokens), context);
			assert_int_equal(mm_cost_pairs(first, tokens), pairs);
		}
}

static struct mm_arch opt_13b(void)
{
	struct mm_arch a = { .family = MM_FAMILY_OPT,
			     .layers = 40,
			     .hidden = 5120,
			     .heads = 40,
			     .ffn = 20480,
			     .vocab = 50272,
			     .max_position = 2048,
			     .tied = true };

	mm_arch_fill(&a);
	return a;
}

static uint64_t step_ns(const struct mm_profile *p, const struct mm_arch *a,
			const struct mm_step_batch *batch)
{
	const struct mm_step_opts opts = { 2, 2, false };
	struct mm_step_model m;
	struct mm_step_ns ns;

	mm_step_model_init(&m, p, a, &opts);
	mm_step_cost(&m, batch, &ns);
	return ns.before + a->layers * ns.layer + ns.after;
}

/*
 * By hand, for a device without a least time: a decode of one token moves all weights but the table
 * that only gives a row, and the KV; activations are 1e-4 of it. OPT-13B: 25.7 GB of weights, of
 * which positions 21 MB; 819,200 bytes of KV a token.
 */
static void decoding_moves_the_weights(void **state)
{
	struct mm_profile p = device;
	const struct mm_arch a = opt_13b();
	struct mm_step_batch batch = { 0 };
	double seconds, by_hand;

	(void)state;
	p.kernel_ns = 0;
	mm_step_batch_add(&batch, 999, 1, true);
	seconds = (double)step_ns(&p, &a, &batch) / 1e9;
	by_hand = (25706946560.0 - 20992000.0 + 1000 * 819200.0) / 1e12;
	assert_true(seconds > by_hand && seconds < by_hand * 1.005);
}

/*
 * Prefill of 2,048: 2 operations a weight and token, 4 a pair and width, per layer; one head row.
 */
static void prefill_computes(void **state)
{
	struct mm_profile p = device;
	const struct mm_arch a = opt_13b();
	const double weights = 12.0 * 5120 * 5120 * 40, width = 5120.0 * 40;
	struct mm_step_batch batch = { 0 };
	double seconds, by_hand;

	(void)state;
	p.kernel_ns = 0;
	p.hbm_bps = 1e18; /* nothing but operations */
	mm_step_batch_add(&batch, 0, 2048, true);
	by_hand = (2.0 * 2048 * weights + 4.0 * (2048.0 * 2049 / 2) * width) / 1e14;
	seconds = (double)step_ns(&p, &a, &batch) / 1e9;
	assert_true(seconds > by_hand && seconds < by_hand * 1.01);
}

/* With nothing to do, the kernels are counted: OPT's layer has 19, 3 + 4 are around the layers. */
static void small_kernels_take_their_least(void **state)
{
	struct mm_arch a = { .family = MM_FAMILY_OPT,
			     .layers = 2,
			     .hidden = 4,
			     .heads = 2,
			     .ffn = 8,
			     .vocab = 16,
			     .max_position = 32 };
	struct mm_step_batch batch = { 0 };

	(void)state;
	mm_arch_fill(&a);
	mm_step_batch_add(&batch, 3, 1, true);
	assert_int_equal(step_ns(&device, &a, &batch), (2 * 19 + 2 + 4) * 2000);
	batch.samples = 0;
	assert_int_equal(step_ns(&device, &a, &batch), (2 * 19 + 2) * 2000);
	a.family = MM_FAMILY_LLAMA;
	batch.samples = 1;
	assert_int_equal(step_ns(&device, &a, &batch), (2 * 16 + 1 + 4) * 2000);
}

/* Documentation/timing.md gives these, and what is known of such devices besides. */
static const struct {
	const char *profile;
	double least_ms, most_ms;
} decode_of_one[] = {
	{ "h100-pcie5", 10.0, 10.3 },
	{ "gh200-96", 8.5, 8.8 },
	{ "h200-pcie5", 7.3, 7.5 },
	{ "a100-pcie4", 17.0, 17.2 },
};

/* OPT-13B, one sequence of 512 tokens. */
static void shipped_profiles_are_plausible(void **state)
{
	const struct mm_arch a = opt_13b();
	char err[MM_PROFILE_ERROR_BYTES];
	struct mm_step_batch batch = { 0 };
	struct mm_profile p;

	(void)state;
	mm_step_batch_add(&batch, 511, 1, true);
	for (size_t i = 0; i < MM_ARRAY_SIZE(decode_of_one); i++) {
		double ms;

		if (mm_profile_load(decode_of_one[i].profile, &p, err, sizeof(err)))
			fail_msg("%s", err);
		ms = (double)step_ns(&p, &a, &batch) / 1e6;
		if (ms < decode_of_one[i].least_ms || ms > decode_of_one[i].most_ms)
			fail_msg("%s: %.2f ms", decode_of_one[i].profile, ms);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_slower_decides),
		cmocka_unit_test(copies_share_the_link),
		cmocka_unit_test(copies_slow_kernels_down),
		cmocka_unit_test(chunks_read_by_tiles),
		cmocka_unit_test(decoding_moves_the_weights),
		cmocka_unit_test(prefill_computes),
		cmocka_unit_test(small_kernels_take_their_least),
		cmocka_unit_test(shipped_profiles_are_plausible),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
