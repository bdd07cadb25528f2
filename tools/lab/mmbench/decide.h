/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - `mmbench decide`: the processor time that the core's decisions cost
 *
 * Concept:    The core runs under a busy load in virtual time, with nothing around it but a model
 *             of the answers: tenants whose KV demand comes in bursts, which run idle and resume,
 *             and which park, map and release when they are asked to; jobs that take the time of a
 *             link. Only the core's own time is measured: each event with everything that settles
 *             after it, and taking its actions out.
 * Threading:  one thread.
 */
#pragma once

/* The subcommand `mmbench decide`; @argv[0] is its name. Return: the exit status. */
int mm_bench_decide(int argc, char **argv);
