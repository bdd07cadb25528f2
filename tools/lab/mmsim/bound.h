/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bound - what no policy can exceed in a case, in place of playing it
 *
 * Concept:   `mmsim --bound` prints the certified bound of each window of the case
 *            (tools/lab/workload/bound.h), and how much KV the shares and the weights can make room
 *            for without a step that waits. mmevaluate divides what was reached by it, and derives
 *            loads from busy_s.
 * Ownership: everything is borrowed.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/workload/bound.h"

/**
 * ms_bound_print() - print the bound as a table, or as JSON
 * @opts:    of the case; json chooses the form
 * @sizes:   with limited memory
 * @profile: of the whole device
 * @cases:   opts->windows of them
 *
 * Return: 0 or -ENOMEM.
 */
int ms_bound_print(const struct mm_wl_opts *opts, const struct mm_wl_sizes *sizes,
		   const struct mm_profile *profile, const struct mm_wl_case *cases);
