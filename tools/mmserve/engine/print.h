/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print - prints a run's summary for a person: groups of lines with units
 *
 * Concept:   the numbers are those of mm_report_summary(), looked up by their keys. A group is left
 *            out if nothing of its kind happened (no layer was away, nothing was swapped, no graph
 *            was used); a number that is not 0 is always printed.
 * Threading: none; the caller's.
 */
#pragma once

#include <jansson.h>
#include <stdio.h>

void mm_print_summary(FILE *out, const json_t *summary);
