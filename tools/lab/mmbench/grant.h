/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant - `mmbench grant`: what a journal and images cost in a grant and in a step
 *
 * Concept:   Three mmd run side by side, each on a software GPU of its own: the product, the
 *            product once more, and mmd-unkept, whose core keeps neither a journal nor images
 *            (unkept.c). Grants are taken from one after the other in turn, single ones, so that
 *            whatever else the machine does meets all three. Steps are those of an engine in each,
 *            at the same time. The two that are the same show what the ratio means on this machine.
 * Rounds:    Where the memory of a process lies changes its speed by a percent or so, for as long
 *            as it lives. So all three are started anew several times, and medians of rounds count.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/support/options.h"

struct mm_grant_opts {
	uint32_t rounds, grants, pages;
	double seconds;
	uint64_t seed;
	bool json;
};

extern const struct mm_opt mm_grant_options[]; /* into struct mm_grant_opts */

/* The subcommand. Return: the exit status. */
int mm_bench_grant(const struct mm_grant_opts *opts);
