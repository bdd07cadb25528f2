/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reply - answers as OpenAI's API writes them: objects, and events of a stream
 *
 * Concept:    a struct mm_reply says what an answer is about; a struct mm_part which tokens and
 *             which text of it are written now: all, or those of one event. Usage is the number of
 *             tokens, whether they have become text or not.
 * Ownership:  everything is borrowed; the text goes to the caller's buffer.
 * Threading:  none; the caller's.
 */
#pragma once

#include <time.h>

#include "tools/mmserve/http/ask.h"
#include "tools/mmserve/http/buffer.h"
#include "tools/mmserve/text/vocab.h"

struct mm_reply {
	enum mm_ask_kind kind;
	char id[48];
	time_t created;
	const char *model;
	bool ids;      /* token ids are wanted */
	bool logprobs; /* and the logarithms of probabilities */
	const struct mm_job *job;
	const struct mm_vocab *vocab; /* NULL: there is no text */
};

struct mm_part {
	const char *text;
	size_t bytes;
	uint32_t from, to;  /* output tokens */
	size_t offset;      /* characters of text before */
	const char *finish; /* why the output ended; NULL: it goes on */
	bool usage;         /* an event has the usage so far */
};

/* An event of a stream; the first one of a chat says the role besides. */
void mm_reply_event(struct mm_buffer *b, const struct mm_reply *reply, const struct mm_part *part,
		    bool first);
/* The event with the usage of @n tokens of output, and the end of the stream. */
void mm_reply_usage(struct mm_buffer *b, const struct mm_reply *reply, uint32_t n);
void mm_reply_end(struct mm_buffer *b);
/* An error in a stream that has begun. */
void mm_reply_broken(struct mm_buffer *b, const struct mm_refusal *refusal);

/* The whole answer, with the usage. */
void mm_reply_whole(struct mm_buffer *b, const struct mm_reply *reply, const struct mm_part *part);

void mm_reply_refusal(struct mm_buffer *b, const struct mm_refusal *refusal);
void mm_reply_models(struct mm_buffer *b, const char *model, time_t created, uint32_t tokens_max);
/* Ids of a text, and the text of ids. */
void mm_reply_tokens(struct mm_buffer *b, const uint32_t *ids, size_t n, uint32_t tokens_max);
void mm_reply_text(struct mm_buffer *b, const char *text, size_t bytes);

/* Return: the characters of a text in UTF-8. */
size_t mm_reply_characters(const char *text, size_t bytes);
