/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - mmbench decide: what deciding costs
 *
 * Concept:    the core under a busy load in virtual time, around nothing but answers: tenants whose
 *             KV demand comes in bursts, that run idle and come back, park, map and give back as
 *             they are asked; jobs that take the time of a link. Only the core's own time is
 *             measured: each event with all that settles behind it, and taking its actions out.
 * Threading:  one thread.
 */
#pragma once

/* A program of its own: argv[0] is its name. Returns the exit status. */
int mm_bench_decide(int argc, char **argv);
