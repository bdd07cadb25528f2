/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restart - `mmbench restart`: how long tenants wait for the core that follows one that was killed
 *
 * Concept:   An mmd on a software GPU with a pool of as many pages as asked for, and tenants that
 *            hold some of them. Core is killed again and again; each time all tenants ask
 *            something, and the time until the last of them has its answer counts. Beside each kill
 *            the bare cost is measured of what a successor cannot do without: a process gets as
 *            many descriptors from another one, and maps the regions among them.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/support/options.h"

struct mm_restart_opts {
	uint64_t pages;
	uint32_t tenants, kills;
	const char *keep_dir;
	bool json;
};

extern const struct mm_opt mm_restart_options[]; /* into struct mm_restart_opts */

/* The subcommand. Return: the exit status. */
int mm_bench_restart(const struct mm_restart_opts *opts);
