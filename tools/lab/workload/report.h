/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - what people and programs get to read about a case, from the simulator and from a timed
 * run
 *
 * Concept:    the same table and the same JSON from both (Documentation/mmbench.md says what each
 *             field means). A program fills in the records, one for each policy and window.
 * Ownership:  everything is borrowed.
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
	json_t *more; /* members of the program's own, merged into the object; NULL: none */
};

/* Of policy @policy in window @window. */
static inline const struct mm_wl_record *mm_wl_report_record(const struct mm_wl_report *report,
							     uint32_t policy, uint32_t window)
{
	return &report->records[(size_t)policy * report->windows + window];
}

/* Return: 0; -ENOMEM. Both write to stdout. */
int mm_wl_report_table(const struct mm_wl_report *report);
int mm_wl_report_print(const struct mm_wl_report *report);

/* Return: the object, the caller's; NULL: no memory. */
json_t *mm_wl_report_json(const struct mm_wl_report *report);
