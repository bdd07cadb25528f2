/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lengths - how long prompts and outputs are
 *
 * Concept:    A source of (prompt, output) pairs: rows of a CSV file, each as likely as any other,
 *             or a named mix generated from a seed. Pairs that a model cannot hold are filtered
 *             before one is drawn, so that the rate of requests stays the given one; they are
 *             counted.
 *
 *             alpaca    log-normal, fitted to the medians and means of Alpaca's 52,002 examples:
 *                       prompt 17 and 21, output 48 and 65.5; at most 606 and 1,228, as in Alpaca
 *             sharegpt  log-normal, prompt and output independent, sigma 0.8, means 1,660 and 373
 *                       (as KunServe publishes) before the cap: an output of at most 1,024, then a
 *                       prompt cut to the rest of 2,048
 *             long      prompt and output together uniform in 1,420..2,048: mean 1,734 (MIRAGE)
 *             short     prompt and output together uniform in 320..948: mean 634 (MIRAGE)
 *             In long and short, 373 / 2,033 of the tokens are output, which is ShareGPT's ratio.
 * Ownership:  mm_wl_lengths_done() frees the source.
 * Threading:  any; drawing changes only the state that the caller passes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mm_wl_length {
	uint32_t prompt_tokens, output_tokens;
};

enum mm_wl_mix {
	MM_WL_ROWS,
	MM_WL_ALPACA,
	MM_WL_SHAREGPT,
	MM_WL_LONG,
	MM_WL_SHORT,
	MM_WL_OF_TRACE
};

struct mm_wl_lengths {
	enum mm_wl_mix mix;
	struct mm_wl_length *row; /* MM_WL_ROWS: the rows that fit */
	size_t n;
	uint64_t filtered; /* rows that did not fit */
	uint32_t tokens_max;
};

/**
 * mm_wl_lengths_open() - open a source by name
 * @name:       a mix, "trace" (each arrival's own lengths), or the path of a CSV file
 * @tokens_max: limit of prompt and output together
 * @ret:        written only on success
 * @err:        gets one sentence
 *
 * Return: 0; -EBADMSG malformed; -ERANGE no row fits; -ENOMEM; negative errno of opening.
 */
int mm_wl_lengths_open(const char *name, uint32_t tokens_max, struct mm_wl_lengths *ret, char *err,
		       size_t err_bytes);
void mm_wl_lengths_done(struct mm_wl_lengths *lengths);

/*
 * Draws the next pair; not for "trace". @random: state of the generator; @filtered: is increased by
 * the number of pairs that were drawn and did not fit.
 */
struct mm_wl_length mm_wl_lengths_draw(const struct mm_wl_lengths *lengths, uint64_t *random,
				       uint64_t *filtered);
