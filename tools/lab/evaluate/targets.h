/* SPDX-License-Identifier: Apache-2.0 */
/*
 * targets - the results against the targets
 *
 * Concept:   A target counts the points that reach its limit, and names the one farthest from it.
 * Threading: one thread.
 */
#pragma once

#include <stdio.h>

#include "tools/lab/evaluate/evaluate.h"

/* Writes the table of targets. */
void mm_eval_targets(const struct mm_eval *eval, FILE *out);
