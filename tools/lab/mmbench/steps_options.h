/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps_options - the command line of `mmbench steps`
 *
 * Concept:   The command line is parsed and checked once.
 * Ownership: strings point into argv.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmbench/steps.h"

/*
 * Reads the command line. Return: 0; 1 there is nothing more to do; negative errno with a sentence
 * on stderr.
 */
int mm_bench_steps_options(int argc, char **argv, struct mm_bench_steps_opts *ret_opts);
