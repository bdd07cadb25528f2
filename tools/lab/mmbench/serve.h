/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve - `mmbench serve`: a trace under each policy, and whether the tokens are the same
 *
 * Concept:   The same requests are served once under each policy and repetition, by a fresh mmd
 *            each time (run.h); then the runs are compared.
 * Threading: one thread.
 */
#pragma once

/* The subcommand `mmbench serve`; @argv[0] is "serve". Return: the exit status. */
int mm_bench_serve(int argc, char **argv);
