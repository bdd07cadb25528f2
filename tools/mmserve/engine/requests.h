/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests - reads the requests that the engine is to serve from a file
 *
 * Concept:    either JSONL, one object per line: {"id": "a", "arrival_s": 0.5, "prompt": [1, 7],
 *             "max_tokens": 20}; or a CSV trace with the header
 *             arrival_s,prompt_tokens,output_tokens, whose prompt ids are made from a seed: those
 *             of request i depend on the seed and i only. A line of JSONL may have "prompt_tokens":
 *             2 instead of its prompt; the ids are those that row i of a trace would have. The id
 *             of a request is that of its line, a whole number of 64 bits or a string; the id of a
 *             row is its number, from 0. Anything else is refused with file and line.
 * Ownership:  mm_requests_done() frees all; it accepts zeroed and half-built ones.
 * Threading:  none; the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MM_REQUEST_ID_BYTES 64

struct mm_request {
	char id[MM_REQUEST_ID_BYTES];
	bool id_is_number; /* the id was read, and is written, as a JSON number */
	double arrival_s;
	uint32_t n_prompt;
	uint32_t max_tokens;
	uint32_t *ids; /* prompt, with room for the output behind it */
	double *times; /* [max_tokens] time of each output token, seconds since the start */
	uint32_t n_output;
	uint32_t preemptions;
	double finish_s;
	char error[160]; /* why the request was refused; "": it was not */
};

struct mm_request_goals {   /* 0: none */
	double ttft_s;      /* from the arrival to the first token */
	double per_token_s; /* mean time from one token to the next */
};

struct mm_requests {
	struct mm_request *all; /* in order of arrival */
	size_t n;
};

struct mm_requests_opts {
	uint64_t seed;
	uint32_t vocab;      /* ids must be below this */
	uint32_t limit;      /* only the first requests are read, this many; 0: all */
	uint32_t max_prompt; /* longer prompts of a trace are cut; 0: none is */
	uint32_t max_output; /* longer outputs of a trace are cut; 0: none is */
	bool at_once;        /* all requests arrive at 0 */
};

/**
 * mm_requests_read() - read a file to its end
 * @path:         JSONL or, with @csv, a trace; "-" is standard input
 * @opts:         which requests to read, and how
 * @ret_requests: written only on success; give back with mm_requests_done()
 * @err:          gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG malformed; other negative errno.
 */
int mm_requests_read(const char *path, bool csv, const struct mm_requests_opts *opts,
		     struct mm_requests *ret_requests, char *err);
void mm_requests_done(struct mm_requests *requests);

/* Return: whether a request that ended missed a goal; one that was refused missed any. */
bool mm_request_is_late(const struct mm_request *request, const struct mm_request_goals *goals);
