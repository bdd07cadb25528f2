/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sentences - text for people, a few whole sentences at a time
 *
 * Concept:   A list of whole sentences for people. What does not fit is cut off.
 * Ownership: the caller owns it; no pointers.
 * Threading: any.
 */
#pragma once

#include <stdint.h>

#include "libclient/base/base.h"

#define MM_SENTENCES_MAX  16
#define MM_SENTENCE_BYTES 400
#define MM_AMOUNT_BYTES   24

struct mm_sentences {
	uint32_t n;
	char sentence[MM_SENTENCES_MAX][MM_SENTENCE_BYTES];
};

/* Adds a sentence. */
void mm_sentences_add(struct mm_sentences *text, const char *format, ...) MM_PRINTF(2, 3);
/* Adds to the last sentence. */
void mm_sentences_more(struct mm_sentences *text, const char *format, ...) MM_PRINTF(2, 3);
/* Writes "250 us", "12 ms" or "1.5 s" to @to and returns it. */
const char *mm_sentences_time(uint64_t ns, char to[MM_AMOUNT_BYTES]);
/* Writes "1 layer" or "3 layers" to @to and returns it. */
const char *mm_sentences_count(uint64_t n, const char *noun, char to[MM_AMOUNT_BYTES]);
