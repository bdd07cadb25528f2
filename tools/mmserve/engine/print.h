/* SPDX-License-Identifier: Apache-2.0 */
/*
 * print - a run's summary for a person: groups of lines with units
 *
 * Concept: the numbers are those of mm_report_summary(), by their keys. A group of which nothing
 *          happened (no layer was away, nothing swapped, no graph) is left out; a number that is
 *          not 0 never is.
 */
#pragma once

#include <jansson.h>
#include <stdio.h>

void mm_print_summary(FILE *out, const json_t *summary);
