/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/output.h"

#include <string.h>

/* Cuts the text at the first stop string that ends behind @from. Return: whether there was one. */
static bool output_cut(struct mm_output *o, size_t from)
{
	size_t cut = o->text.n + 1;

	for (size_t i = 0; i < o->n_stops && o->text.n; i++) {
		const size_t bytes = strlen(o->stops[i]);
		const size_t begin = from > bytes ? from - bytes : 0;
		const char *found =
			memmem(o->text.text + begin, o->text.n - begin, o->stops[i], bytes);

		if (found)
			cut = MM_MIN(cut, (size_t)(found - o->text.text));
	}
	if (cut > o->text.n)
		return false;
	o->text.n = cut;
	o->text.text[cut] = '\0';
	return true;
}

/* Return: bytes at the end of the text that a stop string may begin with. */
static size_t output_doubtful(const struct mm_output *o)
{
	size_t most = 0;

	for (size_t i = 0; i < o->n_stops; i++) {
		size_t bytes = MM_MIN(strlen(o->stops[i]) - 1, o->text.n);

		while (bytes > most &&
		       memcmp(o->text.text + o->text.n - bytes, o->stops[i], bytes) != 0)
			bytes--;
		most = MM_MAX(most, bytes);
	}
	return most;
}

static void output_append(struct mm_output *o, const char *text, size_t bytes)
{
	const size_t before = o->text.n;

	mm_buffer_put(&o->text, text, bytes);
	o->stopped = output_cut(o, before);
	o->ready = o->stopped ? o->text.n : o->text.n - output_doubtful(o);
}

void mm_output_add(struct mm_output *o, uint32_t id)
{
	char piece[MM_VOCAB_PIECE_BYTES], text[3 * (MM_VOCAB_PIECE_BYTES + 4)];
	size_t bytes;

	if (!o->vocab || o->stopped)
		return;
	bytes = mm_vocab_piece(o->vocab, id, o->at_start, piece);
	o->at_start = false;
	bytes = mm_utf8_push(&o->utf8, piece, bytes, text);
	output_append(o, text, bytes);
}

void mm_output_end(struct mm_output *o)
{
	char text[12];

	if (!o->stopped)
		output_append(o, text, mm_utf8_end(&o->utf8, text));
	o->ready = o->text.n;
}

void mm_output_taken(struct mm_output *o)
{
	mm_buffer_drop(&o->text, o->ready);
	o->ready = 0;
}

void mm_output_done(struct mm_output *o)
{
	mm_buffer_done(&o->text);
	*o = (struct mm_output){ 0 };
}
