/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speak - what mmserve --listen has besides the engine: an inbox, a tokenizer, the server
 *
 * Concept:    all that can be wrong with options and files is found before the model is loaded; the
 *             server begins once the engine is there. A build without libmicrohttpd refuses.
 * Ownership:  mm_speak_close() closes everything; zeroed there is nothing. The engine uses the
 *             inbox: it is closed after the engine has ended, and may be closed twice.
 * Threading:  the caller's; the server has a thread of its own.
 */
#pragma once

#include <stdio.h>

#include "libclient/model/arch.h"
#include "tools/mmserve/engine/inbox.h"
#include "tools/mmserve/engine/options.h"
#include "tools/mmserve/http/keys.h"
#include "tools/mmserve/http/server.h"
#include "tools/mmserve/text/vocab.h"

struct mm_speak {
	struct mm_inbox inbox;
	struct mm_vocab *vocab; /* NULL: token ids only */
	char no_text[MM_VOCAB_ERROR_BYTES];
	char no_chat[128]; /* "": there is chat */
	char name[1024];
	uint32_t ends[MM_JOB_ENDS_MAX / 2];
	struct mm_keys keys;
	struct mm_http *http;
};

/* Reads the model's tokenizer and the keys, and binds the address. Return: 0; negative errno. */
int mm_speak_open(struct mm_speak *s, const struct mm_serve_options *o, const struct mm_arch *arch,
		  char *err);

/* Begins to serve, and prints where to @out unless that is NULL. Return: 0; negative errno. */
int mm_speak_start(struct mm_speak *s, FILE *out, char *err);

void mm_speak_close(struct mm_speak *s);
