/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - the results of a case, as a table and as JSON, from the simulator and from a timed run
 *
 * Concept:    Both programs write the same table and the same JSON (Documentation/mmbench.md
 *             explains each field). A program fills in the records, one for each policy and window.
 * Ownership:  everything is borrowed.
 * Threading:  one thread.
 */
#pragma once

#include <jansson.h>

#include "tools/lab/workload/record.h"
#include "tools/lab/workload/sizes.h"
#include "tools/lab/workload/stats.h"

#define MM_WL_CONFIDENCE 0.95

struct mm_wl_report {
	const char *mode; /* "simulated" or "timed" */
	const struct mm_wl_opts *opts;
	const struct mm_wl_sizes *sizes;
	const struct mm_wl_case *cases;     /* [windows] */
	const struct mm_wl_record *records; /* [policies][windows] */
	const struct mm_wl_slo *slo;        /* NULL: no goodput */
	uint32_t windows;
	json_t *more; /* the program's own members, merged into the object; NULL: none */
};

/* Returns the record of policy @policy in window @window. */
static inline const struct mm_wl_record *mm_wl_report_record(const struct mm_wl_report *report,
							     uint32_t policy, uint32_t window)
{
	return &report->records[(size_t)policy * report->windows + window];
}

/* Print the table, or the JSON, on stdout. Return: 0; negative errno. */
int mm_wl_report_table(const struct mm_wl_report *report);
int mm_wl_report_print(const struct mm_wl_report *report);

/* Return: the JSON object, a reference that the caller owns; NULL: no memory. */
json_t *mm_wl_report_json(const struct mm_wl_report *report);
