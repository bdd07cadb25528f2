/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps_options - the options of `mmbench steps`
 *
 * Concept:   A table, and what must hold of several options together.
 * Ownership: strings point into argv.
 * Threading: one thread.
 */
#pragma once

#include "libclient/support/options.h"
#include "tools/lab/mmbench/steps.h"

extern const struct mm_opt mm_bench_steps_options[]; /* into struct mm_bench_steps_opts */

/**
 * mm_bench_steps_settle() - check options together
 * @opts: as a command line was read into it
 * @why:  MM_OPT_ERROR_BYTES: on failure what is wrong
 *
 * Return: 0; -EINVAL.
 */
int mm_bench_steps_settle(const struct mm_bench_steps_opts *opts, char *why);
