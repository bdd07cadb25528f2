/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes the way of tokens to text: whatever bytes tokens have and however they are cut, events are
 * JSON, and the texts of all events together are that of the whole answer.
 */
#include <string.h>

#include "tests/fuzz/input.h"
#include "tools/mmserve/http/output.h"
#include "tools/mmserve/http/reply.h"

#define TOKENS_MAX 256

/* Writes a folder with a tokenizer of few words, once. */
static struct mm_vocab *vocab_make(void)
{
	static const char text[] =
		"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"
		"\"\\u00e9\":3,\"\\\"\":4,\"\\\\\":5,\"\\ud83d\\ude00\":6,\"aab\":7}}}";
	static struct mm_vocab *vocab;
	char dir[] = "/tmp/mm-fuzz.XXXXXX", path[64], err[MM_VOCAB_ERROR_BYTES];
	FILE *out;

	if (vocab)
		return vocab;
	mm_assert(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
	out = fopen(path, "we");
	mm_assert(out && fputs(text, out) > 0 && !fclose(out));
	mm_assert(mm_vocab_open(dir, 8, &vocab, err) == 0);
	unlink(path);
	rmdir(dir);
	return vocab;
}

static void event_check(const struct mm_reply *reply, const struct mm_part *part, bool whole)
{
	struct mm_buffer b = { 0 };
	const char *begin;
	json_t *answer;

	if (whole)
		mm_reply_whole(&b, reply, part);
	else
		mm_reply_event(&b, reply, part, part->from == 0);
	mm_assert(!b.failed);
	begin = whole ? b.text : b.text + strlen("data: ");
	answer = json_loadb(begin, b.n - (size_t)(begin - b.text), 0, NULL);
	mm_assert(json_is_object(answer));
	json_decref(answer);
	mm_buffer_done(&b);
}

/* Runs @ids, and writes an event after each @every tokens. Return: the text of all. */
static struct mm_buffer output_run(const struct mm_reply *reply, const struct mm_output *begin,
				   const uint32_t *ids, uint32_t n, uint32_t every)
{
	struct mm_output o = *begin;
	struct mm_buffer all = { 0 };
	uint32_t from = 0;

	for (uint32_t i = 0; i <= n; i++) {
		if (i < n)
			mm_output_add(&o, ids[i]);
		else
			mm_output_end(&o);
		if (i < n && (i + 1) % every)
			continue;
		event_check(reply,
			    &(struct mm_part){ .text = o.text.text ? o.text.text : "",
					       .bytes = o.ready,
					       .from = from,
					       .to = MM_MIN(i + 1, n),
					       .finish = i == n ? "stop" : NULL },
			    every > n);
		from = MM_MIN(i + 1, n);
		mm_buffer_put(&all, o.text.text ? o.text.text : "", o.ready);
		mm_output_taken(&o);
	}
	mm_output_done(&o);
	return all;
}

/* Raw bytes in pieces of each size give the same characters. */
static void bytes_check(const uint8_t *data, size_t n)
{
	static char whole[3 * (4096 + 8)], cut[3 * (4096 + 8)];
	struct mm_utf8 a = { 0 }, b = { 0 };
	size_t n_whole, n_cut = 0;
	json_t *whole_text;

	n = MM_MIN(n, 4096);
	n_whole = mm_utf8_push(&a, (const char *)data, n, whole);
	n_whole += mm_utf8_end(&a, whole + n_whole);
	for (size_t i = 0; i < n; i++)
		n_cut += mm_utf8_push(&b, (const char *)data + i, 1, cut + n_cut);
	n_cut += mm_utf8_end(&b, cut + n_cut);
	mm_assert(n_cut == n_whole && !memcmp(cut, whole, n_cut));
	whole_text = json_stringn(cut, n_cut);
	mm_assert(whole_text);
	json_decref(whole_text);
}

#define STOP_BYTES_MAX 64

/* Makes a stop string of what precedes a zero byte. It is UTF-8, as mm_ask_read() has them. */
static size_t stop_make(const char *bytes, char *ret_stop)
{
	struct mm_utf8 utf8 = { 0 };
	size_t n = mm_utf8_push(&utf8, bytes, strnlen(bytes, STOP_BYTES_MAX), ret_stop);

	n += mm_utf8_end(&utf8, ret_stop + n);
	ret_stop[n] = '\0';
	return n;
}

/*
 * Input, also as hexadecimal digits (input.h): kind, step, up to two stop strings that end with a
 * zero byte, and a token in each byte.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static uint32_t ids[TOKENS_MAX + 1];
	static float logprobs[TOKENS_MAX + 1];
	struct mm_job job = { .request = { .ids = ids }, .logprobs = logprobs };
	struct mm_output o = { .vocab = vocab_make(), .n_stops = 0 };
	static char made[2][3 * (STOP_BYTES_MAX + 8)];
	const char *const stops[2] = { made[0], made[1] };
	struct mm_reply reply = { .id = "id", .model = "m", .job = &job, .vocab = o.vocab };
	struct mm_buffer one, many;
	uint32_t n = 0, every;
	uint8_t *digits = malloc(size_bytes + 1);
	size_t at = 2;

	mm_assert(digits);
	data = input_bytes(data, &size_bytes, digits);
	bytes_check(data, size_bytes);
	if (size_bytes < 2) {
		free(digits);
		return 0;
	}
	reply.kind = data[0] & 1 ? MM_ASK_CHAT : MM_ASK_COMPLETION;
	reply.ids = data[0] & 2;
	reply.logprobs = data[0] & 4;
	o.at_start = data[0] & 1;
	every = 1 + data[1] % 8;
	o.stops = stops;
	while (o.n_stops < 2 && memchr(data + at, 0, size_bytes - at)) {
		const char *stop = (const char *)data + at;

		at += strlen(stop) + 1;
		if (stop_make(stop, made[o.n_stops]))
			o.n_stops++;
	}
	for (; at < size_bytes && n < TOKENS_MAX; at++)
		ids[n++] = data[at] % 9;
	one = output_run(&reply, &o, ids, n, TOKENS_MAX + 1);
	many = output_run(&reply, &o, ids, n, every);
	mm_assert(one.n == many.n && (!one.n || !memcmp(one.text, many.text, one.n)));
	for (size_t i = 0; i < o.n_stops; i++)
		mm_assert(!one.n || !memmem(one.text, one.n, stops[i], strlen(stops[i])));
	mm_buffer_done(&one);
	mm_buffer_done(&many);
	free(digits);
	return 0;
}
