/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole engine with cold blocks, on a memory that streams them as mmd does. A request's ids and
 * logits are those that it has when it is served alone from hot blocks, for each number of classes
 * and for models that no number divides, with few entries and with many, while limits change,
 * chunks are reclaimed and steps are repeated.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "tests/unit/tools/mmserve/rig.h"

#define REQUESTS 16u

static const struct {
	const char *name;
	struct mm_arch arch;
} models[] = {
	{ "8 layers, 4 classes", { RIG_SIZES(32, 48, 8, 4, 2, 200, 256), .tied = true } },
	{ "6 layers, 3 classes",
	  { RIG_SIZES(32, 48, 6, 2, 0, 200, 256), .tied = true, .family = MM_FAMILY_OPT } },
	{ "5 layers, 2 classes", { RIG_SIZES(32, 48, 5, 4, 1, 200, 256) } },
	{ "4 layers, 2 classes",
	  { RIG_SIZES(32, 48, 4, 2, 0, 200, 256), .tied = true, .family = MM_FAMILY_OPT } },
};

/* Shares are in blocks of the model, plus the window. */
static const struct {
	const char *name;
	struct rig_run run;
	uint32_t hot; /* blocks of a fixed share; 0: lent */
} runs[] = {
	{ "1 entry", { RIG_LIMITS(4, 8, 31), .cold = 1 }, 40 },
	{ "7 entries", { RIG_LIMITS(4, 8, 31), .cold = 7, .admit = MM_ADMIT_CHUNK }, 40 },
	{ "many entries", { RIG_LIMITS(4, 8, 31), .cold = 100 }, 40 },
	{ "lent, seed 1", { RIG_LIMITS(4, 9, 20), .cold = 40, .lend = 1, .lend_pages = 400 }, 0 },
	{ "lent, seed 2",
	  { RIG_LIMITS(2, 9, 64), .cold = 60, .admit = MM_ADMIT_CHUNK, .lend = 2, .lend_pages = 400,
	    .patient = true },
	  0 },
	{ "lent, seed 3",
	  { RIG_LIMITS(4, 6, 20), .cold = 70, .admit = MM_ADMIT_FULL, .lend = 3,
	    .lend_pages = 400 },
	  0 },
};

static struct rig_result alone[REQUESTS], results[REQUESTS];

static void run_cold(const char *dir, const struct mm_arch *arch,
		     const struct mm_requests *requests, size_t i, struct mm_stats *sums,
		     uint32_t *window_given)
{
	struct rig_run run = runs[i].run;
	const uint64_t unit = 2 * mm_forward_part_bytes(arch, run.block_tokens, MM_DTYPE_F32);
	const uint64_t window = unit * (4 * (run.cold - 1) + arch->layers);

	run.kv_share_bytes = runs[i].hot ? runs[i].hot * unit * arch->layers + window : 0;
	run.swap_bytes = (run.cold + 60) * unit * arch->layers;
	rig_serve(dir, requests, &run, results);
	print_message("%s: %llu preemptions, %llu steps, %llu blocks cold, %llu at once, %.0f %%\n",
		      runs[i].name, (unsigned long long)run.stats.preemptions,
		      (unsigned long long)run.stats.steps,
		      (unsigned long long)run.stats.blocks_cooled,
		      (unsigned long long)run.stats.cold_entries_max,
		      100.0 * (double)run.stats.cold_read / (double)run.stats.blocks_read);
	rig_compare(runs[i].name, requests, results, alone);
	assert_true(run.stats.cold_entries_max <= run.cold);
	if (runs[i].hot)
		assert_true(run.stats.cold_read > 0);
	sums->cold_read += run.stats.cold_read;
	sums->preemptions += run.stats.preemptions;
	sums->swaps_failed += run.stats.swaps_failed;
	*window_given += run.window_given;
}

static void test_cold_identity(void **state)
{
	struct mm_stats sums = { 0 };
	uint32_t window_given = 0;
	struct mm_requests requests;
	char dir[256];

	(void)state;
	for (size_t m = 0; m < MM_ARRAY_SIZE(models); m++) {
		struct mk_random random = rig_random(&models[m].arch, 17 + m);
		const struct mk_source source = { random.arch, mk_random_row, &random };
		struct rig_run hot = { RIG_LIMITS(16, 1, 256) };

		print_message("%s\n", models[m].name);
		rig_model(&source, &(struct mk_format){ MM_DTYPE_F16, MM_DTYPE_F16, 0, false }, dir,
			  sizeof(dir));
		rig_requests(&requests, REQUESTS, random.arch.vocab, 21 + m);
		rig_serve(dir, &requests, &hot, alone);
		for (size_t i = 0; i < MM_ARRAY_SIZE(runs); i++)
			run_cold(dir, &random.arch, &requests, i, &sums, &window_given);
		mm_requests_done(&requests);
		rig_remove(dir);
	}
	/* Without this the runs above would have tested nothing. */
	assert_true(sums.cold_read > 1000 && sums.preemptions > 10 && sums.swaps_failed > 3);
	print_message("%u chunks of windows given back\n", window_given);
	assert_true(window_given > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cold_identity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
