/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - what was served: one JSON line a request, one object for the run
 *
 * Concept:    a line per request as it finishes: id, arrival_s, first_token_s, finish_s, ids,
 *             times, preemptions; where it was refused, error instead of finish_s. Then one line
 *             {"summary": {...}}: a file without it is of a run that did not end. Times are seconds
 *             since the run's start, of the device where it is asked (stamps.h); ids and times are
 *             of the output tokens.
 * Ownership:  mm_stats owns its stalls; mm_stats_done() frees them.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/mmserve/engine/requests.h"

struct mm_samples {
	double *all;
	size_t n, room;
};

struct mm_stats { /* counted by the engine */
	uint64_t steps;
	uint64_t steps_void;   /* repeated, because gates were aborted */
	uint64_t steps_broken; /* of them, broken off by ourselves */
	uint64_t computed_tokens;
	uint64_t preemptions;
	uint64_t checksum_failures;
	uint64_t plan_changes;
	double plan_held_s;   /* in which plan changes kept steps out */
	double stall_s;       /* in which streams waited at gates, in all steps that tell */
	uint64_t gated_steps; /* in which layers cycled */
	uint64_t graph_captures;
	uint64_t graph_launches;
	uint64_t chunks_released;
	uint64_t blocks_moved;
	uint64_t swapped_out_bytes;
	uint64_t swapped_in_bytes;
	uint64_t swaps_failed; /* lists; what they had is computed again */
	uint32_t kv_chunks_max;
	uint32_t batch_max;
	uint32_t layers_remapped_max;
	double step_s;              /* sum */
	double swap_s;              /* sum, waited for swaps between steps */
	struct mm_samples stalls_s; /* one per step in which layers cycled, and that tells */
	struct mm_samples gaps_s;   /* between two steps that follow each other */
	double end_s;
};

/* Remembers @value; drops it when memory is short. */
void mm_samples_add(struct mm_samples *samples, double value);
void mm_stats_done(struct mm_stats *stats);

/**
 * mm_report_request() - one line
 * @out:     where to
 * @request: finished or refused
 *
 * Return: 0; -EIO.
 */
int mm_report_request(FILE *out, const struct mm_request *request);

/* Return: the run's object, to be given back with json_decref(); NULL when memory is short. */
json_t *mm_report_summary(const struct mm_requests *requests, const struct mm_stats *stats);
