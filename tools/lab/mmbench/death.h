/* SPDX-License-Identifier: Apache-2.0 */
/*
 * death - `mmbench death`: how long pages take from a tenant that dies to another one
 *
 * Concept:   A tenant holds all pages of an mmd on a software GPU and is killed; another one asks
 *            for as many at that moment. The time from the kill until it has been granted the last
 *            of them counts: mmd proves that the dead one cannot reach them, scrubs them and sends
 *            them. Beside each death the bare scrub is timed: as many pages of our own are filled
 *            at once through the same driver.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/support/options.h"

struct mm_death_opts {
	uint64_t pages, page_bytes;
	uint32_t deaths;
	const char *keep_dir;
	bool json;
};

extern const struct mm_opt mm_death_options[]; /* into struct mm_death_opts */

/* The subcommand. Return: the exit status. */
int mm_bench_death(const struct mm_death_opts *opts);
