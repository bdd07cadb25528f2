/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server - speaks HTTP, as OpenAI's API has it, for an engine behind an inbox
 *
 * Concept:    one thread, with libmicrohttpd for the protocol and an epoll of its own for what that
 *             does not watch: who connects, who hangs up while it waits, and the engine's news. It
 *             reads bodies, makes jobs of them, and turns tokens into text; the engine's thread
 *             does none of this. Connections, bodies, headers, and requests that wait are bounded;
 *             what is beyond is refused at once. A client has so long to send a request, and so
 *             long to take what is left of an answer. One that closes its connection cancels.
 * Ownership:  mm_http_open() and mm_http_close(); everything in the options is borrowed.
 * Threading:  the caller's thread opens, starts and closes; the inbox is between it and the engine.
 * Trust:      whoever can connect is let in, unless there are keys; what clients send is anybody's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tools/mmserve/engine/inbox.h"
#include "tools/mmserve/http/keys.h"
#include "tools/mmserve/text/vocab.h"

#define MM_HTTP_ERROR_BYTES 512

struct mm_http_opts {
	const char *listen; /* listen.h */
	bool anywhere;
	const char *model; /* the name that clients use */
	struct mm_inbox *inbox;
	struct mm_vocab *vocab; /* NULL: there is no text */
	const char *no_text;    /* why not, in one sentence */
	const char *no_chat;    /* why there is no chat, in one sentence; NULL: there is */
	const uint32_t *ends;   /* the model's end tokens */
	uint32_t n_ends;        /* at most half of MM_JOB_ENDS_MAX */
	const struct mm_keys *keys;
	uint32_t connections_max;
	uint64_t body_max;
	uint64_t timeout_ns;
};

struct mm_http; /* opaque */

/**
 * mm_http_open() - bind the address
 * @opts:     copied; what it points to is borrowed
 * @ret_http: written only on success
 * @err:      MM_HTTP_ERROR_BYTES; gets one sentence
 *
 * Return: 0; negative errno.
 */
int mm_http_open(const struct mm_http_opts *opts, struct mm_http **ret_http, char *err);

/* Begins to serve: the inbox's limits are known. Return: 0; negative errno, with the sentence. */
int mm_http_start(struct mm_http *http, char *err);

/* Where it listens, as a URL. */
const char *mm_http_name(const struct mm_http *http);

/*
 * Ends what is left and closes. The engine has ended: nobody takes jobs out of the inbox any more.
 * Accepts NULL.
 */
void mm_http_close(struct mm_http *http);
