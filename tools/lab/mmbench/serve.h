/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve - `mmbench serve`: a trace under each policy in turn, and whether the tokens are the same
 */
#pragma once

/* @argv[0] is "serve". Return: the exit status. */
int mm_bench_serve(int argc, char **argv);
