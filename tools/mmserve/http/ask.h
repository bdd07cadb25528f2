/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - what the body of a request asks for, and what is wrong with it
 *
 * Concept:    OpenAI's completions and chat completions, with what vLLM adds (token ids as prompts,
 *             ignore_eos, stop_token_ids, return_token_ids). One table has every field that is
 *             known: it is read, or it has a value that changes nothing, or it is refused by name.
 *             A field that is not in the table is refused, too: nothing is ignored that a client
 *             may rely on.
 * Pure:       bytes in, a struct out; no clock, no random number, no model.
 * Ownership:  mm_ask_done() frees; it accepts zeroed and half-read ones.
 * Threading:  any.
 * Trust:      the bytes are anybody's. UTF-8 is checked, and there are no zero bytes in strings.
 * Limits:     those below, and of the tokens those of the caller.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/inbox.h"

#define MM_ASK_STOPS_MAX      16u
#define MM_ASK_STOP_BYTES_MAX 1024u

enum mm_ask_kind { MM_ASK_COMPLETION, MM_ASK_CHAT, MM_ASK_TOKENIZE, MM_ASK_DETOKENIZE };

/* Why a request is refused, as OpenAI's API says it. */
struct mm_refusal {
	int status;        /* of HTTP */
	const char *type;  /* "invalid_request_error" and the like */
	char param[48];    /* the field; "": none */
	const char *code;  /* NULL: none */
	char message[512]; /* one sentence */
};

struct mm_ask_limits {
	const char *model;   /* the served name; the request may leave it out */
	uint32_t vocab;      /* ids are below this */
	uint32_t tokens_max; /* of a prompt */
};

struct mm_ask {
	enum mm_ask_kind kind;
	json_t *body; /* strings below live in it */
	uint32_t *ids;
	size_t n_ids;        /* of a prompt of token ids */
	char *text;          /* of one of text; NULL: it has ids */
	uint32_t max_tokens; /* 0: not given */
	struct mm_sampling sampling;
	bool seeded; /* the seed was given */
	bool stream;
	bool include_usage, each_usage; /* at the end of the stream; in each event */
	bool ignore_eos, return_ids, special;
	const char *stops[MM_ASK_STOPS_MAX];
	size_t n_stops;
	uint32_t stop_ids[MM_JOB_ENDS_MAX];
	uint32_t n_stop_ids;
};

/**
 * mm_ask_read() - read the body of a request
 * @kind:        of the address that it was sent to
 * @bytes:       of @body, which need not be terminated
 * @limits:      borrowed during the call
 * @ret_ask:     always written; give back with mm_ask_done()
 * @ret_refusal: written if it is refused
 *
 * Return: 0; MM_E_PROTOCOL it is refused; -ENOMEM.
 */
int mm_ask_read(enum mm_ask_kind kind, const char *body, size_t bytes,
		const struct mm_ask_limits *limits, struct mm_ask *ret_ask,
		struct mm_refusal *ret_refusal);
void mm_ask_done(struct mm_ask *ask);

/* Writes a refusal. Return: MM_E_PROTOCOL. */
int mm_ask_refuse(struct mm_refusal *ret_refusal, int status, const char *param, const char *format,
		  ...) MM_PRINTF(4, 5);
