/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile - `mmbench hostile`: what comes of each act of a hostile tenant, and what it costs others
 *
 * Concept:   A real mmd on the software GPU serves an honest engine, whose tokens are all checked.
 *            Beside it each act is done again and again for a while, in turn with busy loops that
 *            take as much of the processors as the hostile tenant did. The engine's time for a
 *            step is compared between the two.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/support/options.h"

struct mm_hostile_opts {
	const char *act; /* name; "all" */
	const char *keep_dir;
	double seconds; /* for each act, half of it beside busy loops */
	uint64_t seed;
	bool list, json;
};

extern const struct mm_opt mm_hostile_options[]; /* into struct mm_hostile_opts */

/* Return: 0; -EINVAL there is no such act. */
int mm_hostile_settle(const struct mm_hostile_opts *opts, char *why);

/* The subcommand. Return: the exit status. */
int mm_bench_hostile(const struct mm_hostile_opts *opts);
