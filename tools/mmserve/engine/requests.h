/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requests - what the engine is to serve, from a file
 *
 * Concept:    either JSONL, one object a line: {"id": "a", "arrival_s": 0.5, "prompt": [1, 7],
 *             "max_tokens": 20}; or a CSV trace with the header
 *             arrival_s,prompt_tokens,output_tokens, whose prompt ids are made from a seed: those
 *             of request i depend on the seed and i only. A line of JSONL may have "prompt_tokens":
 *             2 instead of its prompt; the ids are those that row i of a trace would have. A
 *             request is called what its line says, a whole number of 64 bits or a string; a row by
 *             its number, from 0. Anything else is refused with file and line.
 * Ownership:  mm_requests_done() frees all; accepts zeroed and half-built ones.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MM_REQUEST_ID_BYTES 64

struct mm_request {
	char id[MM_REQUEST_ID_BYTES];
	bool id_is_number; /* it came as a JSON number, and goes out as one */
	double arrival_s;
	uint32_t n_prompt;
	uint32_t max_tokens;
	uint32_t *ids; /* prompt, with room for the output behind it */
	double *times; /* [max_tokens] of each output token, seconds since the start */
	uint32_t n_output;
	uint32_t preemptions;
	double finish_s;
	char error[160]; /* not "": refused, and why */
};

struct mm_requests {
	struct mm_request *all; /* in order of arrival */
	size_t n;
};

struct mm_requests_opts {
	uint64_t seed;
	uint32_t vocab;      /* ids must be below */
	uint32_t limit;      /* first so many of a file; 0 = all */
	uint32_t max_prompt; /* longer prompts are cut, of a trace only; 0 = not */
	uint32_t max_output;
	bool at_once; /* all arrive at 0 */
};

/**
 * mm_requests_read() - read a file to its end
 * @path:         JSONL or, with @csv, a trace; "-" is standard input
 * @opts:         see there
 * @ret_requests: written only on success; give back with mm_requests_done()
 * @err:          gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG malformed; other negative errno.
 */
int mm_requests_read(const char *path, bool csv, const struct mm_requests_opts *opts,
		     struct mm_requests *ret_requests, char *err);
void mm_requests_done(struct mm_requests *requests);
