/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares each logit of each output token, for every family, variant and dtype, with a separate
 * implementation in double precision, and RoPE's scaled frequencies with numbers computed
 * elsewhere.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tests/unit/tools/mmserve/reference.h"
#include "tests/unit/tools/mmserve/rig.h"
#include "tools/mmserve/engine/packs.h"
#include "tools/mmserve/engine/rope.h"

#define REQUESTS 4u
#define SIZES(hidden, layers, heads, kv_heads) \
	RIG_SIZES(hidden, 50, layers, heads, kv_heads, 90, 128)

static const struct {
	const char *name;
	struct mm_arch arch;
	struct mk_format format;
} models[] = {
	{ "Llama, GQA, tied",
	  { SIZES(32, 2, 4, 2), .tied = true, .rope = { .theta = 5e5 } },
	  { MM_DTYPE_F32, MM_DTYPE_F32, 0, false } },
	{ "Llama 3, scaled",
	  { SIZES(64, 2, 2, 1), .rope = { .theta = 1e3,
					  .scaling = MM_ROPE_LLAMA3,
					  .factor = 8,
					  .low_factor = 1,
					  .high_factor = 4,
					  .original = 60 } },
	  { MM_DTYPE_BF16, MM_DTYPE_BF16, 3, false } },
	{ "Llama, stretched linearly",
	  { SIZES(32, 1, 2, 0), .rope = { .scaling = MM_ROPE_LINEAR, .factor = 2.5 } },
	  { MM_DTYPE_F16, MM_DTYPE_F32, 0, false } },
	{ "Qwen 2, tied, norms wider than matrices",
	  { SIZES(32, 2, 4, 1), .tied = true, .family = MM_FAMILY_QWEN2, .rope = { .theta = 1e6 } },
	  { MM_DTYPE_BF16, MM_DTYPE_F32, 2, false } },
	{ "Qwen 2, untied",
	  { SIZES(32, 2, 4, 2), .family = MM_FAMILY_QWEN2 },
	  { MM_DTYPE_F16, MM_DTYPE_F16, 0, false } },
	{ "OPT",
	  { SIZES(30, 2, 2, 0), .tied = true, .family = MM_FAMILY_OPT },
	  { MM_DTYPE_F16, MM_DTYPE_F16, 2, false } },
	{ "OPT, untied, norms narrower than matrices",
	  { SIZES(32, 2, 4, 0), .family = MM_FAMILY_OPT },
	  { MM_DTYPE_F32, MM_DTYPE_BF16, 0, false } },
	{ "OPT, norms behind, projected",
	  { SIZES(32, 2, 4, 0), .tied = true, .family = MM_FAMILY_OPT, .embed_dim = 44,
	    .post_norm = true },
	  { MM_DTYPE_F32, MM_DTYPE_F32, 0, false } },
	{ "OPT without a last norm",
	  { SIZES(32, 2, 4, 0), .tied = true, .family = MM_FAMILY_OPT, .no_final_norm = true },
	  { MM_DTYPE_BF16, MM_DTYPE_BF16, 0, false } },
};

struct kept { /* [request][output][vocab] */
	uint32_t vocab;
	float *logits;
};

static void logits_keep(void *context, uint64_t request, uint32_t output, const float *logits)
{
	const struct kept *k = context;

	memcpy(k->logits + (request * RIG_OUTPUT_MAX + output) * k->vocab, logits,
	       k->vocab * sizeof(*logits));
}

static void compare_row(const float *got, const double *want, uint32_t vocab, uint32_t id)
{
	double largest = 0, best = -INFINITY;

	for (uint32_t i = 0; i < vocab; i++) {
		largest = fmax(largest, fabs(want[i]));
		best = fmax(best, want[i]);
	}
	for (uint32_t i = 0; i < vocab; i++)
		if (!(fabs((double)got[i] - want[i]) <= 2e-5 * largest))
			fail_msg("logit %u is %.9g, not %.9g", i, (double)got[i], want[i]);
	assert_true(want[id] >= best - 4e-5 * largest);
}

static void logits_compare(const struct reference *r, const struct mm_request *q,
			   const struct rig_result *result, const float *logits)
{
	const uint32_t vocab = reference_vocab(r), n = q->n_prompt + result->n;
	double *want = calloc((size_t)n * vocab, sizeof(*want));
	uint32_t *ids = calloc(n, sizeof(*ids));

	assert_true(want && ids && !result->error[0]);
	memcpy(ids, q->ids, q->n_prompt * sizeof(*ids));
	memcpy(ids + q->n_prompt, result->ids, result->n * sizeof(*ids));
	reference_logits(r, ids, n, want);
	for (uint32_t i = 0; i < result->n; i++)
		compare_row(logits + (size_t)i * vocab,
			    want + (size_t)(q->n_prompt - 1 + i) * vocab, vocab, result->ids[i]);
	free(want);
	free(ids);
}

static void check_model(const struct mm_arch *arch, const struct mk_format *format,
			const char *module, bool fused)
{
	static struct rig_result results[REQUESTS];
	struct mk_random random = rig_random(arch, 21);
	const struct mk_source source = { random.arch, mk_random_row, &random };
	struct kept kept = { arch->vocab,
			     calloc((size_t)REQUESTS * RIG_OUTPUT_MAX * arch->vocab, 4) };
	struct rig_run run = {
		RIG_LIMITS(8, REQUESTS, 40), .module = module, .fused = fused, .verify = true,
		.on_logits = logits_keep,    .context = &kept
	};
	struct mm_requests requests;
	struct reference *r;
	char dir[256];

	assert_non_null(kept.logits);
	rig_model(&source, format, dir, sizeof(dir));
	rig_requests(&requests, REQUESTS, arch->vocab, 4);
	rig_serve(dir, &requests, &run, results);
	assert_int_equal(run.stats.checksum_failures, 0);
	r = reference_open(dir);
	for (uint32_t i = 0; i < REQUESTS; i++)
		logits_compare(r, &requests.all[i], &results[i],
			       kept.logits + (size_t)i * RIG_OUTPUT_MAX * arch->vocab);
	reference_close(r);
	mm_requests_done(&requests);
	free(kept.logits);
	rig_remove(dir);
}

static void test_families(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(models); i++) {
		print_message("%s\n", models[i].name);
		check_model(&models[i].arch, &models[i].format, NULL, false);
		check_model(&models[i].arch, &models[i].format, NULL, true);
	}
}

/* OpenBLAS may round differently, but must compute the same model. */
static void test_fast_kernels(void **state)
{
	const char *module = getenv("MM_KERNELS_FAST");

	(void)state;
	assert_non_null(module);
	for (size_t i = 0; i < MM_ARRAY_SIZE(models); i++) {
		print_message("%s\n", models[i].name);
		check_model(&models[i].arch, &models[i].format, module, i % 2);
	}
}

/*
 * Llama 3.1's scaling (theta 500000, heads of 128, factor 8, low 1, high 4, 8192 positions),
 * computed with 50 decimal digits: whole, blended and scaled pairs.
 */
static const struct {
	uint32_t pair;
	double frequency;
} llama31[] = {
	{ 0, 1 },
	{ 1, 0.81461723385654472 },
	{ 20, 0.016560440080994446 },
	{ 28, 0.0032114459947525909 },
	{ 29, 0.0021665707635033587 },
	{ 30, 0.0013718935677611381 },
	{ 31, 0.00085675141291963208 },
	{ 32, 0.00052484616099295468 },
	{ 33, 0.00031269375038406512 },
	{ 34, 0.00017850781276799641 },
	{ 35, 9.5562123539646833e-05 },
	{ 36, 7.7846552739324498e-05 },
	{ 50, 4.4115346745584042e-06 },
	{ 63, 3.0689259889145111e-07 },
};

static void check_close(double got, double want)
{
	if (!(fabs(got / want - 1) < 1e-13))
		fail_msg("frequency %.17g, not %.17g", got, want);
}

static void test_rope_frequencies(void **state)
{
	struct mm_arch a = { .head_dim = 128,
			     .rope = { .theta = 500000,
				       .scaling = MM_ROPE_LLAMA3,
				       .factor = 8,
				       .low_factor = 1,
				       .high_factor = 4,
				       .original = 8192 } };
	double f[64];

	(void)state;
	mm_rope_frequencies(&a, f);
	for (size_t i = 0; i < MM_ARRAY_SIZE(llama31); i++)
		check_close(f[llama31[i].pair], llama31[i].frequency);
	a.rope.scaling = MM_ROPE_LINEAR;
	mm_rope_frequencies(&a, f);
	check_close(f[0], 0.125);
	check_close(f[32], 0.00017677669529663688);
	a.rope.scaling = MM_ROPE_UNSCALED;
	mm_rope_frequencies(&a, f);
	check_close(f[0], 1);
	check_close(f[32], 0.001414213562373095);
}

/* Adjacent weights are fused; then one fault at a time must prevent it. */
static void lay_adjacent(struct mm_weights *w)
{
	CUdeviceptr at = 4096;

	for (uint32_t layer = 0; layer < w->arch.layers; layer++) {
		for (enum mm_weight role = MM_W_Q; role <= MM_W_V_BIAS; role++) {
			const bool bias = (role - MM_W_Q) % 2;
			const uint64_t bytes = bias ? 64 : 512;

			w->all[layer * MM_W_COUNT + role] =
				(struct mm_bound){ .va = at + (bias ? 1 << 20 : 0) +
							 (role - MM_W_Q) / 2 * bytes,
						   .bytes = bytes,
						   .dtype = bias ? MM_DTYPE_F32 : MM_DTYPE_BF16 };
		}
		w->all[layer * MM_W_COUNT + MM_W_GATE] =
			(struct mm_bound){ .va = 1 << 16, .bytes = 99 };
		w->all[layer * MM_W_COUNT + MM_W_UP] =
			(struct mm_bound){ .va = (1 << 16) + 99, .bytes = 99 };
	}
}

static void test_fuses_what_is_adjacent(void **state)
{
	static const enum mm_weight packed[] = { MM_W_K, MM_W_V, MM_W_Q_BIAS, MM_W_V_BIAS,
						 MM_W_UP };
	struct mm_bound all[2 * MM_W_COUNT] = { 0 };
	struct mm_weights w = { .arch = { .layers = 2, .family = MM_FAMILY_QWEN2 }, .all = all };
	char err[MM_SERVE_ERROR_BYTES];

	(void)state;
	lay_adjacent(&w);
	assert_int_equal(mm_weights_fuse(&w, err), 0);
	assert_true(w.fused);
	for (size_t i = 0; i < 2 * MM_ARRAY_SIZE(packed); i++) {
		struct mm_bound *wrong = &all[MM_W_COUNT + packed[i / 2]];

		lay_adjacent(&w);
		if (i % 2)
			wrong->va += 4;
		else
			wrong->dtype = MM_DTYPE_F16;
		assert_int_equal(mm_weights_fuse(&w, err), -EBADMSG);
		assert_non_null(strstr(err, "layer 1: "));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_fast_kernels),
		cmocka_unit_test(test_rope_frequencies),
		cmocka_unit_test(test_fuses_what_is_adjacent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
