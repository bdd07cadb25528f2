/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output - the text of an output while its tokens come, as far as it may be shown
 *
 * Concept:    shown is what ends with a whole character and cannot become part of a stop string.
 *             The first stop string ends the text, and is not part of it. Without a tokenizer
 *             there is no text, and nothing stops it.
 * Ownership:  vocabulary and stop strings are borrowed; mm_output_done() frees the rest.
 * Threading:  none; the caller's.
 */
#pragma once

#include "tools/mmserve/http/buffer.h"
#include "tools/mmserve/text/utf8.h"
#include "tools/mmserve/text/vocab.h"

struct mm_output {
	const struct mm_vocab *vocab; /* NULL: none */
	const char *const *stops;
	size_t n_stops;
	bool at_start; /* the next token begins a text: without a blank */
	bool stopped;  /* by a stop string: nothing follows */
	struct mm_utf8 utf8;
	struct mm_buffer text; /* that has not been taken */
	size_t ready;          /* bytes of it that may be shown */
};

/* Adds a token. */
void mm_output_add(struct mm_output *o, uint32_t id);
/* No token follows: all may be shown. */
void mm_output_end(struct mm_output *o);
/* Drops what was ready, and has been shown. */
void mm_output_taken(struct mm_output *o);
void mm_output_done(struct mm_output *o);
