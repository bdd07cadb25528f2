/* SPDX-License-Identifier: Apache-2.0 */
/*
 * points - the cases that the evaluation runs
 *
 * Concept:   A table of curves, each with flags of mmsim and a list of loads, gives the points.
 * Ownership: the points belong to struct mm_eval; mm_eval_done() frees them.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/evaluate/evaluate.h"

/* The name of a section, as --only takes it; NULL: no such section. */
const char *mm_eval_section_name(enum mm_eval_section section);

/**
 * mm_eval_points() - list the points that are to be run
 * @eval: opts are set
 *
 * Errors are reported on stderr. Return: 0 or negative errno.
 */
int mm_eval_points(struct mm_eval *eval);
void mm_eval_done(struct mm_eval *eval);

/* Computes a point's bound over the same windows as its run. Return: 0 or negative errno. */
int mm_eval_check(struct mm_eval_point *point);
