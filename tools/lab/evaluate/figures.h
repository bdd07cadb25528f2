/* SPDX-License-Identifier: Apache-2.0 */
/*
 * figures - the report's sections
 *
 * Concept:   Each section has the paper's results, tables of these results, and why they differ.
 * Threading: one thread.
 */
#pragma once

#include <stdio.h>

#include "tools/lab/evaluate/evaluate.h"

/* Writes the sections with their tables, and plots beside them. Return: 0 or negative errno. */
int mm_eval_figures(struct mm_eval *eval, FILE *out);
