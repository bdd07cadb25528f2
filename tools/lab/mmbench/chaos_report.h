/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chaos_report - what a run of chaos has found, in words and as JSON
 *
 * Concept:   Plain numbers. What must be 0 is judged here, for both forms and the exit status.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>

#include "tools/lab/common/series.h"

struct mm_chaos_result {
	uint64_t seed;
	double seconds;
	uint64_t tenant_kills, xfer_kills, core_kills, kills_missed;
	uint64_t hostile_acts, hostile_rounds, hostile_unexpected;
	uint64_t driver_faults, plan_changes;
	uint64_t tokens, token_mismatches, refused, engine_ends;
	uint64_t pages_unread; /* in the end */
	uint64_t pages_read, pages_leaked, foreign_bytes, lost_bytes, canary_ends;
	uint64_t witness_ends; /* of a connection that only asks */
	struct mm_series recovery_ms, xfer_recovery_ms;
	double step_p50_ratio, stall_p99_ratio;         /* over loops; 0: too few steps */
	double step_p50_over_calm, stall_p99_over_calm; /* over engines beside loops alone */
	char first[512]; /* the first thing that was wrong, in a sentence; "" */
};

void mm_chaos_result_done(struct mm_chaos_result *result);

/* Notes a sentence, if none was noted before. */
void mm_chaos_note(struct mm_chaos_result *result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Whether nothing is wrong that must not be. */
bool mm_chaos_is_clean(const struct mm_chaos_result *result);

void mm_chaos_print(const struct mm_chaos_result *result);

/* Return: 0; negative errno. */
int mm_chaos_print_json(const struct mm_chaos_result *result);
