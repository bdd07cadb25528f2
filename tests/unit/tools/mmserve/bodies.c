/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of mmserve's server that need no server: characters, texts in pieces, samples, keys. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/inbox.h"
#include "tools/mmserve/http/buffer.h"
#include "tools/mmserve/http/keys.h"
#include "tools/mmserve/http/metrics.h"
#include "tools/mmserve/http/output.h"
#include "tools/mmserve/text/folder.h"
#include "tools/mmserve/text/utf8.h"
#include "tools/mmserve/text/vocab.h"

#define NOT MM_UTF8_REPLACEMENT

static const struct {
	const char *bytes, *want;
} utf8_cases[] = {
	{ "plain", "plain" },
	{ "\xc3\xa9", "\xc3\xa9" },
	{ "\xe2\x82\xac!", "\xe2\x82\xac!" },
	{ "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
	{ "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" },
	{ "\x80", NOT },
	{ "\xc3", NOT },
	{ "\xc3(", NOT "(" },
	{ "\xc0\xaf", NOT NOT },                 /* longer than needed */
	{ "\xe0\x9f\xbf", NOT NOT NOT },         /* the same */
	{ "\xed\xa0\x80", NOT NOT NOT },         /* a surrogate */
	{ "\xf4\x90\x80\x80", NOT NOT NOT NOT }, /* beyond the last */
	{ "\xf8x", NOT "x" },
	{ "\xe2\x82\xe2\x82\xac", NOT NOT "\xe2\x82\xac" },
	{ "\xf0\x9f\x98", NOT NOT NOT },
};

/* However the bytes are cut, the same characters come out, and each part ends with a whole one. */
static void test_utf8(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(utf8_cases); i++) {
		const char *bytes = utf8_cases[i].bytes;

		for (size_t piece = 1; piece <= 5; piece++) {
			struct mm_utf8 utf8 = { 0 }, whole = { 0 };
			char out[128] = "", check[512];
			size_t n = 0, part;

			for (size_t at = 0; at < strlen(bytes); at += piece) {
				part = mm_utf8_push(&utf8, bytes + at,
						    MM_MIN(piece, strlen(bytes) - at), out + n);
				assert_int_equal(mm_utf8_push(&whole, out + n, part, check), part);
				assert_int_equal(whole.n, 0);
				n += part;
			}
			n += mm_utf8_end(&utf8, out + n);
			assert_int_equal(n, strlen(utf8_cases[i].want));
			assert_memory_equal(out, utf8_cases[i].want, n);
		}
	}
}

/* Makes a folder with one file. */
static void folder_make(char *dir, const char *file, const char *text)
{
	char path[128];
	FILE *out;

	snprintf(path, sizeof(path), "/tmp/mm-bodies.XXXXXX");
	assert_non_null(mkdtemp(path));
	strcpy(dir, path);
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	out = fopen(path, "we");
	assert_non_null(out);
	fputs(text, out);
	fclose(out);
}

static void folder_remove(const char *dir, const char *file)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	unlink(path);
	rmdir(dir);
}

#define WORDS(rest) \
	"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"ab\":0,\"cd\":1,\"e\":2}" rest "}}"

static void test_words(void **state)
{
	char dir[64], err[MM_VOCAB_ERROR_BYTES], piece[MM_VOCAB_PIECE_BYTES];
	struct mm_vocab *v = NULL;
	uint32_t *ids;
	size_t n;

	(void)state;
	folder_make(dir, "tokenizer.json", WORDS(""));
	assert_int_equal(mm_vocab_open(dir, 3, &v, err), 0);
	assert_int_equal(mm_vocab_encode(v, " e\tab\n", true, &ids, &n, err), 0);
	assert_int_equal(n, 2);
	assert_int_equal(ids[0], 2);
	assert_int_equal(ids[1], 0);
	free(ids);
	assert_int_equal(mm_vocab_encode(v, "e fg", true, &ids, &n, err), MM_E_RANGE);
	assert_non_null(strstr(err, "'fg' is not in the model's vocabulary"));
	assert_int_equal(mm_vocab_piece(v, 1, true, piece), 2);
	assert_memory_equal(piece, "cd", 2);
	assert_int_equal(mm_vocab_piece(v, 1, false, piece), 3);
	assert_memory_equal(piece, " cd", 3);
	assert_int_equal(mm_vocab_piece(v, 3, false, piece), 0);
	mm_vocab_close(v);
	v = NULL;
	assert_true(mm_vocab_open(dir, 2, &v, err) < 0); /* an id beyond the model's */
	assert_null(v);
	folder_remove(dir, "tokenizer.json");
	assert_int_equal(mm_vocab_open(dir, 2, &v, err), MM_E_EMPTY);
}

/* Adds tokens one by one, and shows what may be shown. */
static void output_run(struct mm_output *o, const uint32_t *ids, size_t n, char *shown)
{
	*shown = '\0';
	for (size_t i = 0; i <= n; i++) {
		if (i < n)
			mm_output_add(o, ids[i]);
		else
			mm_output_end(o);
		strncat(shown, o->text.text ? o->text.text : "", o->ready);
		mm_output_taken(o);
	}
}

static void test_stops(void **state)
{
	static const uint32_t ids[] = { 0, 1, 0, 2, 1 }; /* "ab cd ab e cd" */
	static const struct {
		const char *stops[2], *want;
	} cases[] = {
		{ { "nix", "nor this" }, "ab cd ab e cd" },
		{ { "cd ab e c", "nix" }, "ab " },
		{ { "d a", "cd" }, "ab " },
		{ { "cd!", "ab e" }, "ab cd " },
		{ { "a", "cd" }, "" },
		{ { "cdcd", "e cdx" }, "ab cd ab e cd" },
	};
	char dir[64], err[MM_VOCAB_ERROR_BYTES], shown[64];
	struct mm_vocab *v;

	(void)state;
	folder_make(dir, "tokenizer.json", WORDS(""));
	assert_int_equal(mm_vocab_open(dir, 3, &v, err), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_output o = {
			.vocab = v, .stops = cases[i].stops, .n_stops = 2, .at_start = true
		};

		output_run(&o, ids, MM_ARRAY_SIZE(ids), shown);
		assert_string_equal(shown, cases[i].want);
		assert_int_equal(o.stopped, strcmp(cases[i].want, "ab cd ab e cd") != 0);
		mm_output_done(&o);
	}
	mm_vocab_close(v);
	folder_remove(dir, "tokenizer.json");
}

static void test_ends(void **state)
{
	static const char config[] = "{\"eos_token_id\":[2,700,\"x\",5]}";
	char dir[64], name[16];
	uint32_t ids[4];

	(void)state;
	folder_make(dir, "generation_config.json", config);
	assert_int_equal(mm_folder_ends(dir, 512, ids, 4), 2);
	assert_int_equal(ids[0], 2);
	assert_int_equal(ids[1], 5);
	assert_int_equal(mm_folder_ends(dir, 512, ids, 1), 1);
	assert_false(mm_folder_has_template(dir));
	assert_memory_equal(mm_folder_name(dir, name, sizeof(name)), "mm-bodies.", 10);
	folder_remove(dir, "generation_config.json");
}

#define DRAWS 20000

static void test_sample(void **state)
{
	static const float logits[] = { 0, NAN, 2, 1, -INFINITY, 2 };
	struct mm_sampling s = { .top_p = 1, .logprobs = true };
	struct mm_sample_scratch scratch[6];
	const double sum = 1 + exp(1) + 2 * exp(2);
	uint32_t counts[6] = { 0 };
	float logprob;

	(void)state;
	assert_int_equal(mm_sample(logits, 6, &s, 0, scratch, &logprob),
			 2); /* the first of equals */
	assert_true(fabs((double)logprob - log(exp(2) / sum)) < 1e-5);
	s.temperature = 1;
	for (uint32_t i = 0; i < DRAWS; i++) {
		s.seed = i;
		counts[mm_sample(logits, 6, &s, i, scratch, &logprob)]++;
	}
	assert_int_equal(counts[1] + counts[4], 0);
	/* Far beyond what chance does: ten times the deviation. */
	assert_true(fabs(counts[0] / (double)DRAWS - 1 / sum) < 0.03);
	assert_true(fabs(counts[3] / (double)DRAWS - exp(1) / sum) < 0.03);
	s.top_p = 0.99 * exp(2) / sum; /* of the two equals only the first */
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(mm_sample(logits, 6, &s, i, scratch, &logprob), 2);
	s.top_p = 0.9;
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_not_equal(mm_sample(logits, 6, &s, i, scratch, &logprob), 0);
}

static void test_keys(void **state)
{
	char dir[64], path[80], err[512];
	struct mm_keys none = { 0 }, keys;

	(void)state;
	folder_make(dir, "keys", "one\r\n\ntwo-two\n");
	snprintf(path, sizeof(path), "%s/keys", dir);
	assert_int_equal(mm_keys_read(path, &keys, err, sizeof(err)), 0);
	assert_int_equal(keys.n, 2);
	assert_true(mm_keys_allow(&keys, "Bearer one") && mm_keys_allow(&keys, "bearer two-two"));
	assert_false(mm_keys_allow(&keys, NULL) || mm_keys_allow(&keys, "Bearer ") ||
		     mm_keys_allow(&keys, "Bearer on") || mm_keys_allow(&keys, "Bearer onee") ||
		     mm_keys_allow(&keys, "one") || mm_keys_allow(&keys, "Bearer two-twO"));
	assert_true(mm_keys_allow(&none, NULL));
	mm_keys_done(&keys);
	folder_remove(dir, "keys");
	assert_true(mm_keys_read(path, &keys, err, sizeof(err)) < 0);
}

static void test_buffer(void **state)
{
	struct mm_buffer b = { 0 };

	(void)state;
	mm_buffer_string(&b, "a\"\\\n\x01\x7f\xc3\xa9", 8);
	assert_string_equal(b.text, "\"a\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\"");
	mm_buffer_drop(&b, b.n - 1);
	assert_string_equal(b.text, "\"");
	mm_buffer_done(&b);
}

static void test_inbox(void **state)
{
	struct mm_job jobs[5] = { 0 };
	struct mm_inbox inbox;

	(void)state;
	assert_int_equal(mm_inbox_init(&inbox, 5), 0);
	for (int round = 0; round < 3; round++) {
		assert_null(mm_inbox_pop(&inbox));
		for (int i = 0; i < 5; i++)
			mm_inbox_push(&inbox, &jobs[i]);
		for (int i = 0; i < 5; i++)
			assert_ptr_equal(mm_inbox_pop(&inbox), &jobs[i]);
	}
	mm_inbox_cancel(&inbox, &jobs[2]);
	assert_true(jobs[2].cancelled && !jobs[1].cancelled && inbox.cancels == 1);
	mm_inbox_done(&inbox);
}

static void test_metrics(void **state)
{
	struct mm_http_counts counts = { .connections = 3 };
	struct mm_inbox_stats engine = { .steps = 2, .step_ns = 3000000 };
	struct mm_buffer b = { 0 };

	(void)state;
	mm_latency_add(&counts.ttft, 0.004);
	mm_latency_add(&counts.ttft, 1e9);
	mm_metrics_write(&b, &counts, &engine, 1);
	assert_non_null(
		strstr(b.text, "\nmmserve_time_to_first_token_seconds_bucket{le=\"0.0025\"} 0\n"));
	assert_non_null(
		strstr(b.text, "\nmmserve_time_to_first_token_seconds_bucket{le=\"0.005\"} 1\n"));
	assert_non_null(
		strstr(b.text, "\nmmserve_time_to_first_token_seconds_bucket{le=\"50\"} 1\n"));
	assert_non_null(
		strstr(b.text, "\nmmserve_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
	assert_non_null(strstr(b.text, "\nmmserve_connections_total 3\n"));
	mm_buffer_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_utf8),    cmocka_unit_test(test_words),
		cmocka_unit_test(test_stops),   cmocka_unit_test(test_ends),
		cmocka_unit_test(test_sample),  cmocka_unit_test(test_keys),
		cmocka_unit_test(test_buffer),  cmocka_unit_test(test_inbox),
		cmocka_unit_test(test_metrics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
