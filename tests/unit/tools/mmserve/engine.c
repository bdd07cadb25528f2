/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole engine on the software GPU. A request's ids, and every bit of its logits, must be those
 * it has when it is served alone: in any batch, for any size of prompt pieces and blocks, after
 * preemptions, with memory that is granted late, denied and reclaimed, in either layout of the KV,
 * and with steps that are repeated. The rig counts graphs: no more exist than are to be kept.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "tests/unit/tools/mmserve/rig.h"

#define REQUESTS 24u

static const struct {
	const char *name;
	struct mm_arch arch;
	enum mm_dtype dtype;
	enum mm_dtype kv_dtype;
} models[] = {
	{ "GQA, tied, F32",
	  { RIG_SIZES(64, 172, 3, 8, 4, 300, 256), .tied = true },
	  MM_DTYPE_F32,
	  MM_DTYPE_F32 },
	{ "MHA, untied, F16",
	  { RIG_SIZES(48, 100, 2, 4, 4, 257, 256) },
	  MM_DTYPE_F16,
	  MM_DTYPE_F32 },
	{ "MHA, untied, F16, and its KV",
	  { RIG_SIZES(48, 100, 2, 4, 4, 257, 256) },
	  MM_DTYPE_F16,
	  MM_DTYPE_F16 },
	{ "MQA, untied, BF16, and its KV",
	  { RIG_SIZES(64, 96, 2, 2, 1, 300, 256) },
	  MM_DTYPE_BF16,
	  MM_DTYPE_BF16 },
	{ "OPT, F16",
	  { RIG_SIZES(48, 100, 2, 3, 0, 300, 256), .tied = true, .family = MM_FAMILY_OPT },
	  MM_DTYPE_F16,
	  MM_DTYPE_F32 },
	{ "OPT with norms behind, projected, F32",
	  { RIG_SIZES(48, 100, 2, 3, 0, 300, 256), .tied = true, .family = MM_FAMILY_OPT,
	    .embed_dim = 24, .post_norm = true },
	  MM_DTYPE_F32,
	  MM_DTYPE_F32 },
	{ "Qwen 2, untied, BF16",
	  { RIG_SIZES(64, 96, 2, 4, 2, 300, 256), .family = MM_FAMILY_QWEN2 },
	  MM_DTYPE_BF16,
	  MM_DTYPE_F32 },
};

static const struct {
	const char *name;
	struct rig_run run;
} runs[] = {
	{ "one by one", { RIG_LIMITS(16, 1, 256) } },
	{ "one by one, chunked", { RIG_LIMITS(16, 1, 7) } },
	{ "together", { RIG_LIMITS(16, 24, 256) } },
	{ "fused, graphs",
	  { RIG_LIMITS(16, 24, 256), .fused = true, .verify = true, .graphs_max = 24 } },
	{ "chunks of 5", { RIG_LIMITS(3, 5, 5), .admit = MM_ADMIT_FULL } },
	{ "little memory",
	  { RIG_LIMITS(4, 12, 31), .admit = MM_ADMIT_CHUNK, .kv_share_bytes = 160 << 10 } },
	{ "lent, seed 1", { RIG_LIMITS(4, 9, 20), .lend = 1 } },
	{ "lent, seed 2", { RIG_LIMITS(8, 16, 64), .admit = MM_ADMIT_CHUNK, .lend = 2 } },
	{ "lent, seed 3", { RIG_LIMITS(4, 4, 9), .admit = MM_ADMIT_FULL, .lend = 3 } },
	{ "separate",
	  { RIG_LIMITS(5, 12, 31), .kv_order = MM_KV_SEPARATE, .kv_share_bytes = 200 << 10 } },
	{ "swapped",
	  { RIG_LIMITS(4, 12, 31), .kv_share_bytes = 160 << 10, .swap_bytes = 128 << 10 } },
	{ "separate, swapped, few graphs",
	  { RIG_LIMITS(5, 12, 31), .kv_order = MM_KV_SEPARATE, .kv_share_bytes = 200 << 10,
	    .swap_bytes = 1 << 20, .graphs_max = 2 } },
	{ "lent and swapped", { RIG_LIMITS(4, 9, 20), .swap_bytes = 200 << 10, .lend = 5 } },
	{ "separate, lent, with time, graphs",
	  { RIG_LIMITS(8, 12, 40), .kv_order = MM_KV_SEPARATE, .lend = 4, .lend_pages = 120,
	    .patient = true, .graphs_max = 16 } },
};

static const struct mk_format f32 = { MM_DTYPE_F32, MM_DTYPE_F32, 0, false };
static const struct mk_format bf16 = { MM_DTYPE_BF16, MM_DTYPE_BF16, 0, false };
static struct rig_result alone[REQUESTS], results[REQUESTS];

static void test_batch_invariance(void **state)
{
	uint64_t preemptions = 0, moved = 0, released = 0, repeated = 0, swapped = 0, failed = 0;
	uint64_t captures = 0, launches = 0, evictions = 0;
	struct mm_requests requests;
	char dir[256];

	(void)state;
	for (size_t m = 0; m < MM_ARRAY_SIZE(models); m++) {
		struct mk_random random = rig_random(&models[m].arch, 7 + m);
		const struct mk_source source = { random.arch, mk_random_row, &random };

		rig_model(&source,
			  &(struct mk_format){ models[m].dtype, models[m].dtype, 0, false }, dir,
			  sizeof(dir));
		rig_requests(&requests, REQUESTS, random.arch.vocab, 11 + m);
		for (size_t i = 0; i < MM_ARRAY_SIZE(runs); i++) {
			struct rig_run run = runs[i].run;

			run.kv_dtype = models[m].kv_dtype;
			rig_serve(dir, &requests, &run, i ? results : alone);
			print_message("%s, %s: %llu preemptions, %llu steps\n", models[m].name,
				      runs[i].name, (unsigned long long)run.stats.preemptions,
				      (unsigned long long)run.stats.steps);
			assert_int_equal(run.stats.checksum_failures, 0);
			if (i)
				rig_compare(runs[i].name, &requests, results, alone);
			preemptions += run.stats.preemptions;
			moved += run.stats.blocks_moved;
			released += run.stats.chunks_released;
			repeated += run.stats.steps_void;
			swapped += run.stats.swapped_in_bytes;
			failed += run.stats.swaps_failed;
			captures += run.stats.graph_captures;
			launches += run.stats.graph_launches;
			/* Two of each size are kept. */
			evictions += run.stats.graph_captures > 2 * run.graphs_max;
		}
		mm_requests_done(&requests);
		rig_remove(dir);
	}
	/* Without this the runs above would have tested nothing. */
	assert_true(swapped > 100000 && failed > 3);
	assert_true(captures > 20 && launches > 2 * captures && evictions > 0);
	assert_true(preemptions > 10 && moved > 10 && released > 10 && repeated > 10);
}

static uint32_t differing_requests(const struct mm_requests *requests)
{
	uint32_t n = 0;

	for (size_t i = 0; i < requests->n; i++)
		n += memcmp(results[i].logits, alone[i].logits, sizeof(alone[i].logits)) != 0;
	return n;
}

/* Batch invariance with a BLAS that chooses the order of sums by the size of a product. */
static void test_batch_invariance_of_cublas(void **state)
{
	static const size_t of_models[] = { 1, 3, 5 }; /* F16, BF16, F32 */
	static const size_t of_runs[] = { 0, 1, 2, 7, 12 };
	struct mm_requests requests;
	uint32_t differ = 0;
	char dir[256];

	(void)state;
	for (size_t m = 0; m < MM_ARRAY_SIZE(of_models); m++) {
		const enum mm_dtype dtype = models[of_models[m]].dtype;
		struct mk_random random = rig_random(&models[of_models[m]].arch, 7 + m);
		const struct mk_source source = { random.arch, mk_random_row, &random };

		rig_model(&source, &(struct mk_format){ dtype, dtype, 0, false }, dir, sizeof(dir));
		rig_requests(&requests, 8, random.arch.vocab, 11 + m);
		for (size_t i = 0; i < MM_ARRAY_SIZE(of_runs); i++) {
			struct rig_run run = runs[of_runs[i]].run;

			run.gemm = MM_GEMM_CUBLAS;
			rig_serve(dir, &requests, &run, i ? results : alone);
			if (!i)
				continue;
			rig_compare(runs[of_runs[i]].name, &requests, results, alone);
			run = runs[of_runs[i]].run;
			run.gemm = MM_GEMM_CUBLAS;
			run.fast = true;
			rig_serve(dir, &requests, &run, results);
			differ += differing_requests(&requests);
		}
		mm_requests_done(&requests);
		rig_remove(dir);
	}
	print_message("fast: %u requests differ\n", differ);
	assert_true(differ > 0); /* else the comparisons above have tested nothing */
}

/* Makes the first of the models in F32, and requests for it. */
static void make_first_model(struct mm_requests *requests, char *ret_dir, size_t dir_bytes)
{
	struct mk_random random = rig_random(&models[0].arch, 5);
	const struct mk_source source = { random.arch, mk_random_row, &random };

	rig_requests(requests, REQUESTS, random.arch.vocab, 3);
	rig_model(&source, &f32, ret_dir, dir_bytes);
}

/*
 * The driver fails to capture a graph: that step is repeated kernel by kernel, and no other step
 * uses a graph.
 */
static void test_graphs_that_cannot_be(void **state)
{
	struct rig_run run = runs[2].run;
	struct mm_requests requests;
	char dir[256];

	(void)state;
	make_first_model(&requests, dir, sizeof(dir));
	rig_serve(dir, &requests, &run, alone);
	run.graphs_max = 8;
	run.graphs_fail = true;
	rig_serve(dir, &requests, &run, results);
	rig_compare("graphs that cannot be", &requests, results, alone);
	assert_int_equal(run.stats.steps_void, 1);
	assert_int_equal(run.stats.graph_captures, 0);
	assert_int_equal(run.stats.graph_launches, 0);
	mm_requests_done(&requests);
	rig_remove(dir);
}

#define KV_VOCAB 300u

struct firsts { /* the logits of each request's first token */
	float logits[REQUESTS][KV_VOCAB];
};

static void keep_first(void *context, uint64_t request, uint32_t output, const float *logits)
{
	struct firsts *f = context;

	if (!output)
		memcpy(f->logits[request], logits, sizeof(f->logits[request]));
}

/* Keys and values of half the size give logits that are nearly, and not quite, the same. */
static void test_kv_dtypes_differ_little(void **state)
{
	static struct firsts exact, narrow;
	struct rig_run run = runs[2].run;
	struct mm_requests requests;
	char dir[256];

	(void)state;
	make_first_model(&requests, dir, sizeof(dir));
	run.on_logits = keep_first;
	run.context = &exact;
	rig_serve(dir, &requests, &run, results);
	run.context = &narrow;
	for (run.kv_dtype = MM_DTYPE_F16; run.kv_dtype <= MM_DTYPE_BF16; run.kv_dtype++) {
		/* Half and bfloat16 round by 2^-11 and 2^-8, and layers add up what they round. */
		const double bound = run.kv_dtype == MM_DTYPE_F16 ? 0x1p-6 : 0x1p-3;
		double size = 0, worst = 0;

		rig_serve(dir, &requests, &run, results);
		for (uint32_t i = 0; i < REQUESTS; i++) {
			for (uint32_t k = 0; k < KV_VOCAB; k++) {
				const double want = (double)exact.logits[i][k];

				size = fmax(size, fabs(want));
				worst = fmax(worst, fabs((double)narrow.logits[i][k] - want));
			}
		}
		print_message("error %g of %g\n", worst, size);
		assert_true(worst > 0 && worst <= bound * size);
	}
	mm_requests_done(&requests);
	rig_remove(dir);
}

/*
 * Times by the device's clock and by the host's are in order and within the run, whose length
 * depends on the time scale.
 */
static void test_times(void **state)
{
	struct mm_requests requests;
	char dir[256];

	(void)state;
	make_first_model(&requests, dir, sizeof(dir));
	for (int i = 0; i < 3; i++) {
		struct rig_run run = runs[2].run;
		const uint64_t before_ns = mm_now_ns();

		run.device_times = i > 0;
		run.time_scale = i < 2 ? 1 : 1000;
		rig_serve(dir, &requests, &run, results);
		assert_true(run.stats.end_s > 0);
		assert_true(run.stats.end_s * run.time_scale <=
			    (double)(mm_now_ns() - before_ns) / 1e9);
		assert_true(run.stats.gaps_s.n > 0 && run.stats.gaps_s.n < run.stats.steps);
		for (uint32_t q = 0; q < REQUESTS; q++) {
			const struct rig_result *r = &results[q];

			for (uint32_t k = 1; k < r->n; k++)
				assert_true(r->times[k - 1] < r->times[k]);
			assert_true(r->finish_s >= r->times[r->n - 1]);
			/* The clocks were aligned with an error of the time that this took. */
			if (!i)
				assert_true(r->times[0] > 0 && r->finish_s <= run.stats.end_s);
		}
		/* The functional device's clock does not depend on the scale. */
		if (i < 2)
			assert_true(run.stats.step_s <= run.stats.end_s);
	}
	mm_requests_done(&requests);
	rig_remove(dir);
}

/* The head of an untied model, made equal to its embedding, must give what a tied one gives. */
static void row_with_equal_head(void *context, enum mm_weight weight, uint32_t layer, uint32_t row,
				float *out)
{
	mk_random_row(context, weight == MM_W_HEAD ? MM_W_EMBED : weight, layer, row, out);
}

static void test_tied_is_an_equal_head(void **state)
{
	struct mk_random random = rig_random(
		&(struct mm_arch){ RIG_SIZES(32, 64, 2, 4, 2, 100, 128), .tied = true }, 5);
	struct mk_source source = { random.arch, row_with_equal_head, &random };
	struct rig_run run = runs[2].run;
	struct mm_requests requests;
	char dir[256];

	(void)state;
	rig_requests(&requests, REQUESTS, 100, 3);
	rig_model(&source, &f32, dir, sizeof(dir));
	rig_serve(dir, &requests, &run, alone);
	rig_remove(dir);
	source.arch.tied = false;
	rig_model(&source, &f32, dir, sizeof(dir));
	rig_serve(dir, &requests, &run, results);
	rig_remove(dir);
	rig_compare("untied", &requests, results, alone);
	mm_requests_done(&requests);
}

static void test_verify(void **state)
{
	struct mk_random random =
		rig_random(&(struct mm_arch){ RIG_SIZES(32, 64, 3, 4, 2, 100, 128) }, 5);
	const struct mk_source source = { random.arch, mk_random_row, &random };
	struct rig_run run = runs[2].run;
	struct mm_requests requests;
	char dir[256];

	(void)state;
	rig_requests(&requests, REQUESTS, 100, 3);
	rig_model(&source, &bf16, dir, sizeof(dir));
	run.verify = true;
	rig_serve(dir, &requests, &run, results);
	assert_int_equal(run.stats.checksum_failures, 0);
	run.corrupt = run.stats.steps - 1;
	rig_serve(dir, &requests, &run, results);
	assert_int_equal(run.stats.checksum_failures, 2); /* in the last two steps, one tensor */
	mm_requests_done(&requests);
	rig_remove(dir);
}

/* Only requests that could never run are refused; the others are served. */
static void test_refuses_what_never_fits(void **state)
{
	struct mk_random random = rig_random(
		&(struct mm_arch){ RIG_SIZES(32, 64, 2, 4, 2, 100, 64), .tied = true }, 5);
	const struct mk_source source = { random.arch, mk_random_row, &random };
	struct rig_run run = { RIG_LIMITS(16, 4, 64), .kv_share_bytes = 1 };
	struct mm_requests requests;
	char dir[256];

	(void)state;
	rig_requests(&requests, 6, 100, 3);
	for (size_t i = 0; i < 6; i++) {
		requests.all[i].n_prompt = 1;
		requests.all[i].max_tokens = 1;
	}
	requests.all[1].max_tokens = 1u << 20;
	requests.all[3].max_tokens = 40;
	rig_model(&source, &f32, dir, sizeof(dir));
	rig_serve(dir, &requests, &run, results);
	assert_non_null(strstr(results[1].error, "model's limit is 64"));
	assert_non_null(strstr(results[3].error, "all KV memory holds 16"));
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(results[i].n, i == 1 || i == 3 ? 0 : 1);
	mm_requests_done(&requests);
	rig_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batch_invariance),
		cmocka_unit_test(test_graphs_that_cannot_be),
		cmocka_unit_test(test_batch_invariance_of_cublas),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_kv_dtypes_differ_little),
		cmocka_unit_test(test_tied_is_an_equal_head),
		cmocka_unit_test(test_verify),
		cmocka_unit_test(test_refuses_what_never_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
