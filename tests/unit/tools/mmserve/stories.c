/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trained model, converted from its llama2.c checkpoint, must produce the data's 200 ids, which
 * come from an independent float64 implementation. Skipped without $MM_TEST_DATA.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tests/unit/tools/mmserve/rig.h"

#define STEPS        200u
#define EXIT_SKIPPED 77

static const struct mk_format f32 = { MM_DTYPE_F32, MM_DTYPE_F32, 0, false };
static const char *data_dir;
static uint32_t expected[STEPS];

static void read_expected(void)
{
	char path[512];
	json_error_t where;
	json_t *root, *ids;

	snprintf(path, sizeof(path), "%s/stories260K_expected.json", data_dir);
	root = json_load_file(path, 0, &where);
	assert_non_null(root);
	ids = json_object_get(root, "greedy_token_ids");
	assert_int_equal(json_array_size(ids), STEPS);
	for (uint32_t i = 0; i < STEPS; i++)
		expected[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
	json_decref(root);
}

static void model_convert(char *dir, size_t dir_bytes)
{
	char path[512], err[MK_ERROR_BYTES];
	struct mk_llama2c ckpt;
	struct mk_source source;

	snprintf(path, sizeof(path), "%s/stories260K.bin", data_dir);
	if (mk_llama2c_open(path, &ckpt, err))
		fail_msg("%s", err);
	source = (struct mk_source){ ckpt.arch, mk_llama2c_row, &ckpt };
	rig_model(&source, &f32, dir, dir_bytes);
	mk_llama2c_close(&ckpt);
}

/* Request i starts from BOS and the first i of the expected ids, and must go on with the rest. */
static void make_requests(struct mm_requests *requests, size_t n)
{
	rig_requests(requests, n, 512, 1);
	for (uint32_t i = 0; i < n; i++) {
		struct mm_request *q = &requests->all[i];
		const uint32_t known = i * 17;

		q->n_prompt = 1 + known;
		q->max_tokens = STEPS - known;
		q->ids = realloc(q->ids, (1 + STEPS) * sizeof(*q->ids));
		q->times = realloc(q->times, STEPS * sizeof(*q->times));
		assert_true(q->ids && q->times);
		q->ids[0] = 1;
		memcpy(q->ids + 1, expected, known * sizeof(*q->ids));
	}
}

static void test_stories(void **state)
{
	static const struct rig_run runs[] = {
		{ .block_tokens = 16, .max_batch = 1, .max_batched_tokens = 256, .verify = true },
		{ .block_tokens = 16, .max_batch = 8, .max_batched_tokens = 64 },
		{ .block_tokens = 5,
		  .max_batch = 8,
		  .max_batched_tokens = 33,
		  .kv_share_bytes = 700 << 10 },
		{ .block_tokens = 8,
		  .max_batch = 6,
		  .max_batched_tokens = 20,
		  .lend = 5,
		  .lend_pages = 120 },
	};
	struct rig_result results[8];
	struct mm_requests requests;
	char dir[256];

	(void)state;
	read_expected();
	model_convert(dir, sizeof(dir));
	make_requests(&requests, MM_ARRAY_SIZE(results));
	for (size_t r = 0; r < MM_ARRAY_SIZE(runs); r++) {
		struct rig_run run = runs[r];

		rig_serve(dir, &requests, &run, results);
		for (uint32_t i = 0; i < requests.n; i++) {
			assert_int_equal(results[i].n, STEPS - i * 17);
			assert_memory_equal(results[i].ids, expected + i * 17,
					    results[i].n * sizeof(*expected));
		}
		assert_int_equal(run.stats.checksum_failures, 0);
		print_message("run %zu: %llu preemptions\n", r,
			      (unsigned long long)run.stats.preemptions);
	}
	mm_requests_done(&requests);
	rig_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_stories) };

	data_dir = getenv("MM_TEST_DATA");
	if (!data_dir) {
		puts("skipped: MM_TEST_DATA is not set");
		return EXIT_SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
