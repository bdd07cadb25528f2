/* SPDX-License-Identifier: Apache-2.0 */
/*
 * honest - an engine whose every token is checked, and the time between any two of them
 *
 * Concept:   An mmserve answers the same few prompts again and again, for as long as it is let.
 *            What it has to answer was computed without mmd before. Its output is read as it comes:
 *            tokens that differ are counted, and each gap between two tokens of a request is kept
 *            with the moment at which it ended.
 * Ownership: mm_honest_done() ends the engine and frees the gaps; accepts a zeroed one.
 * Threading: one thread.
 * Errors:    a sentence in @err, MM_SERVE_ERROR_BYTES, and negative errno.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/lab/mmbench/arena.h"

#define MM_HONEST_PROMPTS 12
#define MM_HONEST_TOKENS  48

struct mm_honest_gap {
	uint64_t end_ns; /* CLOCK_MONOTONIC */
	uint64_t gap_ns;
};

struct mm_honest {
	const struct mm_arena *arena;
	char name[24];
	bool turns;        /* it computes in turns; set before its start */
	const char *batch; /* sequences that run at once; NULL: two */
	/*
	 * As of struct mm_child. An engine of which the scheduler runs all threads on one processor
	 * has steps that are a third longer than one that it gives two, and it goes from one to the
	 * other by itself, every few seconds: what is compared stays on one.
	 */
	uint32_t processor;
	char requests[MM_ARENA_PATH_BYTES], output[MM_ARENA_PATH_BYTES], log[MM_ARENA_PATH_BYTES];
	uint32_t want[MM_HONEST_PROMPTS][MM_HONEST_TOKENS];
	struct mm_child child;
	FILE *file; /* its output, as far as it was read */
	uint64_t start_ns;
	bool ready, done; /* it said so */
	struct mm_honest_gap *gap;
	size_t n_gaps, room;
	uint64_t tokens, mismatches, refused, starts;
};

/* Makes the prompts and computes the answers. Return: 0; negative errno. */
int mm_honest_init(struct mm_honest *honest, const struct mm_arena *arena, const char *name,
		   uint64_t seed, char *err);

/* Starts the engine, which goes on by itself. Return: 0; negative errno. */
int mm_honest_start(struct mm_honest *honest, char *err);

/*
 * Takes what it has answered so far, and lets it begin once it has its model. Return: 1 it serves;
 * 0 not yet; -ENODATA it is done with all requests; -ECHILD it has ended otherwise, with a
 * sentence.
 */
int mm_honest_poll(struct mm_honest *honest, char *err);

/* Kills it. What it has answered counts. */
void mm_honest_stop(struct mm_honest *honest);
void mm_honest_done(struct mm_honest *honest);

/* Sorts by size the gaps that ended within, and began within, [from, to). Return: how many. */
size_t mm_honest_gaps(const struct mm_honest *honest, uint64_t from_ns, uint64_t to_ns,
		      double *into, size_t max);
