/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chaos - `mmbench chaos`: everything wrong at once, beside honest tenants
 *
 * Concept:   Honest engines whose tokens are all checked, canaries that look at every byte of every
 *            page, and hostile tenants share an mmd on the software GPU, while tenants, xfer and
 *            core are killed, plans change and the device fails. What happens when is drawn from
 *            the seed before it begins. In the end every page has to be free, and is read once more
 *            for what others have written.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/support/options.h"

struct mm_chaos_opts {
	double seconds;
	double rate; /* all that happens comes so many times as often */
	uint64_t seed;
	uint32_t hostiles;  /* hostile tenants at one time */
	double core_rate;   /* kills of core a second */
	bool no_core_kills; /* core lives */
	const char *keep_dir;
	bool json;
};

extern const struct mm_opt mm_chaos_options[]; /* into struct mm_chaos_opts */

/* The subcommand. Return: the exit status. */
int mm_bench_chaos(const struct mm_chaos_opts *opts);
