/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/text/vocab.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/mmserve/text/pieces.h"

#define BLANK       "\xe2\x96\x81" /* U+2581, SentencePiece's blank */
#define BLANK_BYTES 3
#define WHITE       " \t\n\v\f\r"
#define NO_ID       UINT32_MAX

struct mm_vocab {
	uint32_t n;               /* ids are below this */
	bool bos_wanted;          /* text begins with a BOS */
	json_t *file;             /* of WordLevel: the whole file */
	const json_t *ids;        /* its vocabulary: word to id */
	const char **words;       /* [n] id to word; NULL: none */
	uint32_t unknown;         /* the id of unknown words; NO_ID: they are refused */
	uint32_t bos;             /* NO_ID: there is none */
	struct mm_pieces *pieces; /* of SentencePiece; else NULL */
};

static int vocab_fail(char *err, int error, const char *dir, const char *file, const char *why)
{
	snprintf(err, MM_VOCAB_ERROR_BYTES, "%.200s/%s: %.200s", dir, file, why);
	return error;
}

static bool vocab_path(const char *dir, const char *file, char *ret_path)
{
	const int n = snprintf(ret_path, PATH_MAX, "%s/%s", dir, file);

	return n > 0 && n < PATH_MAX && access(ret_path, F_OK) == 0;
}

/* ---- WordLevel ---- */

static int words_fill(struct mm_vocab *v, const char *dir, char *err)
{
	const char *word;
	json_t *id;

	v->words = calloc(v->n, sizeof(*v->words));
	if (!v->words)
		return vocab_fail(err, -ENOMEM, dir, "tokenizer.json", "out of memory");
	json_object_foreach((json_t *)v->ids, word, id) {
		uint64_t value;

		if (!mm_json_is_whole(id, 0, v->n - 1, &value))
			return vocab_fail(err, -EBADMSG, dir, "tokenizer.json",
					  "an id is not below the model's vocabulary");
		v->words[value] = word;
	}
	return 0;
}

static uint32_t word_id(const struct mm_vocab *v, const char *word)
{
	const json_t *id = word ? json_object_get(v->ids, word) : NULL;

	return id ? (uint32_t)json_integer_value(id) : NO_ID;
}

static int words_open(struct mm_vocab *v, const char *dir, char *err)
{
	char path[PATH_MAX];
	struct mm_json_reader reader = { .path = path,
					 .err = err,
					 .err_bytes = MM_VOCAB_ERROR_BYTES };
	const char *type;
	const json_t *model;

	vocab_path(dir, "tokenizer.json", path);
	if (mm_json_read_file(&reader, &v->file))
		return reader.error;
	model = json_object_get(v->file, "model");
	type = mm_json_text(model, "type");
	if (strcmp(type, "WordLevel") != 0) {
		snprintf(err, MM_VOCAB_ERROR_BYTES,
			 "the model's tokenizer.json is of type %.40s, and mmserve reads "
			 "WordLevel%s: "
			 "send token ids",
			 *type ? type : "unknown", MM_PIECES ? " and tokenizer.model" : "");
		return MM_E_EMPTY;
	}
	v->ids = json_object_get(model, "vocab");
	if (!json_is_object(v->ids))
		return vocab_fail(err, -EBADMSG, dir, "tokenizer.json", "model.vocab is missing");
	if (words_fill(v, dir, err))
		return -EBADMSG;
	v->unknown = word_id(v, json_string_value(json_object_get(model, "unk_token")));
	return 0;
}

/* ---- SentencePiece ---- */

#if MM_PIECES
static int pieces_open(struct mm_vocab *v, const char *dir, char *err)
{
	char path[PATH_MAX], why[200];
	int r;

	vocab_path(dir, "tokenizer.model", path);
	r = mm_pieces_open(path, &v->pieces, why, sizeof(why));
	if (r)
		return vocab_fail(err, r, dir, "tokenizer.model", why);
	if (mm_pieces_count(v->pieces) > v->n)
		return vocab_fail(err, -EBADMSG, dir, "tokenizer.model",
				  "it has more tokens than the model");
	v->bos = mm_pieces_bos(v->pieces) < 0 ? NO_ID : (uint32_t)mm_pieces_bos(v->pieces);
	return 0;
}

/* Writes a piece with blanks for U+2581. Return: bytes written. */
static size_t pieces_write(const struct mm_vocab *v, uint32_t id, bool first, char *out)
{
	enum mm_piece_kind kind;
	size_t bytes, written = 0;
	const char *text = mm_pieces_text(v->pieces, id, &bytes, &kind);
	unsigned int byte;

	if (kind == MM_PIECE_CONTROL)
		return 0;
	if (kind == MM_PIECE_BYTE && sscanf(text, "<0x%2x>", &byte) == 1) {
		*out = (char)byte;
		return 1;
	}
	bytes = MM_MIN(bytes, MM_VOCAB_PIECE_BYTES);
	for (size_t i = 0; i < bytes;) {
		const bool blank =
			bytes - i >= BLANK_BYTES && !memcmp(text + i, BLANK, BLANK_BYTES);

		if (!blank || !first || i)
			out[written++] = blank ? ' ' : text[i];
		i += blank ? BLANK_BYTES : 1;
	}
	return written;
}
#endif

/* ---- both ---- */

/* Whether text begins with a BOS: as tokenizer_config.json says, else as SentencePiece is used. */
static bool read_bos_wanted(const struct mm_vocab *v, const char *dir)
{
	mm_cleanup(mm_json_done) json_t *file = NULL;
	char path[PATH_MAX], err[MM_VOCAB_ERROR_BYTES];
	struct mm_json_reader reader = { .path = path, .err = err, .err_bytes = sizeof(err) };
	const json_t *wanted;

	if (vocab_path(dir, "tokenizer_config.json", path) && !mm_json_read_file(&reader, &file)) {
		wanted = json_object_get(file, "add_bos_token");
		if (json_is_boolean(wanted))
			return json_is_true(wanted);
	}
	return v->pieces != NULL;
}

void mm_vocab_close(struct mm_vocab *v)
{
	if (!v)
		return;
#if MM_PIECES
	mm_pieces_close(v->pieces);
#endif
	free(v->words);
	json_decref(v->file);
	free(v);
}

static void vocab_drop(struct mm_vocab **v)
{
	mm_vocab_close(*v);
}

int mm_vocab_open(const char *dir, uint32_t vocab, struct mm_vocab **ret_vocab, char *err)
{
	mm_cleanup(vocab_drop) struct mm_vocab *v = calloc(1, sizeof(*v));
	char path[PATH_MAX];
	int r;

	if (!v)
		return vocab_fail(err, -ENOMEM, dir, "tokenizer.json", "out of memory");
	*v = (struct mm_vocab){ .n = vocab, .unknown = NO_ID, .bos = NO_ID };
	if (vocab_path(dir, "tokenizer.model", path)) {
#if MM_PIECES
		r = pieces_open(v, dir, err);
#else
		snprintf(err, MM_VOCAB_ERROR_BYTES,
			 "the model has a tokenizer.model, and this mmserve was built without "
			 "SentencePiece: send token ids");
		r = MM_E_EMPTY;
#endif
	} else if (vocab_path(dir, "tokenizer.json", path)) {
		r = words_open(v, dir, err);
	} else {
		snprintf(
			err, MM_VOCAB_ERROR_BYTES,
			"%.200s has no tokenizer (tokenizer.json, tokenizer.model): send token ids",
			dir);
		r = MM_E_EMPTY;
	}
	if (r)
		return r;
	v->bos_wanted = read_bos_wanted(v, dir) && v->bos != NO_ID;
	*ret_vocab = v;
	v = NULL;
	return 0;
}

const char *mm_vocab_name(const struct mm_vocab *v)
{
	return v->pieces ? "tokenizer.model" : "tokenizer.json, WordLevel";
}

static int words_encode(const struct mm_vocab *v, char *text, uint32_t *ids, size_t *n, char *err)
{
	char *rest;

	for (char *word = strtok_r(text, WHITE, &rest); word; word = strtok_r(NULL, WHITE, &rest)) {
		uint32_t id = word_id(v, word);

		if (id == NO_ID)
			id = v->unknown;
		if (id == NO_ID) {
			snprintf(err, MM_VOCAB_ERROR_BYTES,
				 "'%.60s' is not in the model's vocabulary, whose tokens are words",
				 word);
			return MM_E_RANGE;
		}
		ids[(*n)++] = id;
	}
	return 0;
}

int mm_vocab_encode(struct mm_vocab *v, const char *text, bool special, uint32_t **ret_ids,
		    size_t *ret_n, char *err)
{
	mm_cleanup(mm_free_ptr) uint32_t *ids = NULL;
	mm_cleanup(mm_free_ptr) uint32_t *found = NULL;
	mm_cleanup(mm_free_ptr) char *copy = strdup(text);
	const size_t bytes = strlen(text), bos = special && v->bos_wanted;
	size_t n = 0;
	int r = 0;

	snprintf(err, MM_VOCAB_ERROR_BYTES, "the text cannot be encoded");
#if MM_PIECES
	if (v->pieces)
		r = mm_pieces_encode(v->pieces, text, bytes, &found, &n);
#endif
	if (r)
		return r;
	ids = calloc((v->pieces ? n : bytes) + 2, sizeof(*ids));
	if (!ids || !copy)
		return -ENOMEM;
	if (bos)
		ids[0] = v->bos;
	if (v->pieces)
		memcpy(ids + bos, found, n * sizeof(*ids));
	else
		r = words_encode(v, copy, ids + bos, &n, err);
	if (r)
		return r;
	*ret_n = n + bos;
	*ret_ids = ids;
	ids = NULL;
	return 0;
}

size_t mm_vocab_piece(const struct mm_vocab *v, uint32_t id, bool first, char *out)
{
	size_t bytes;

#if MM_PIECES
	if (v->pieces)
		return id < mm_pieces_count(v->pieces) ? pieces_write(v, id, first, out) : 0;
#endif
	if (id >= v->n || !v->words[id])
		return 0;
	if (!first)
		*out++ = ' ';
	bytes = MM_MIN(strlen(v->words[id]), MM_VOCAB_PIECE_BYTES - 1);
	memcpy(out, v->words[id], bytes);
	return bytes + !first;
}
