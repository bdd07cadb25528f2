/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve - `mmbench serve --models`: a trace under each policy, and whether the tokens are the same
 *
 * Concept:   The same requests are served once under each policy and repetition, by a fresh mmd
 *            each time (run.h); then the runs are compared.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmbench/options.h"

/* Runs `mmbench serve --models`; @opts are settled. Return: the exit status. */
int mm_bench_serve(const struct mm_bench_opts *opts);
