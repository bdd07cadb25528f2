/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report - reports what was served: one JSON line per request, one object for the run
 *
 * Concept:    a line for each request as it finishes: id, arrival_s, first_token_s, finish_s, ids,
 *             times, preemptions; if it was refused, error instead of finish_s. The last line is
 *             {"summary": {...}}; a file without it is from a run that did not end. Times are
 *             seconds since the run's start, by the host's or the device's clock (stamps.h); ids
 *             and times are those of the output tokens.
 * Ownership:  mm_stats owns its samples; mm_stats_done() frees them.
 * Threading:  the engine's thread.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/mmserve/engine/requests.h"

struct mm_samples {
	double *all;
	size_t n, room;
	size_t max, at; /* so many are kept, the oldest go; 0: all are. Where the next one goes */
};

struct mm_stats {               /* counted by the engine */
	uint64_t requests_done; /* served, or refused because no KV memory came */
	uint64_t requests_late; /* of these, those that missed a goal */
	uint64_t steps;
	uint64_t steps_void;   /* repeated, because gates were aborted */
	uint64_t steps_broken; /* how many of these the engine broke off */
	uint64_t computed_tokens;
	uint64_t preemptions;
	uint64_t slices; /* of these, sequences that made room after --slice-tokens */
	uint64_t checksum_failures;
	uint64_t plan_changes;
	double plan_held_s;   /* time in which plan changes kept steps from beginning */
	double stall_s;       /* time in which streams waited at gates, in all timed steps */
	uint64_t gated_steps; /* steps in which layers cycled */
	uint64_t graph_captures;
	uint64_t graph_launches;
	uint64_t chunks_released;
	uint64_t blocks_moved;
	uint64_t swapped_out_bytes;
	uint64_t swapped_in_bytes;
	uint64_t blocks_cooled;    /* to entries of the cold pool */
	uint64_t cold_out_bytes;   /* of them, those that were copied */
	uint64_t cold_entries_max; /* most that were live at once */
	uint64_t blocks_read;      /* words of all tables of all steps */
	uint64_t cold_read;        /* of these, entries */
	uint64_t swaps_failed;     /* lists that failed, whose sequences are computed again */
	uint32_t kv_chunks_max;
	uint32_t batch_max;
	uint32_t layers_remapped_max;
	double step_s;              /* time in steps */
	double swap_s;              /* time in which the engine waited for swaps, between steps */
	struct mm_samples stalls_s; /* one for each timed step in which layers cycled */
	struct mm_samples gaps_s;   /* times between two steps that follow each other */
	/* The next are of jobs (live.h); those of requests of a file are theirs. */
	uint64_t served, refused, cancelled, tokens;
	struct mm_samples ttft_s, tbt_s;
	double end_s;
};

/* Adds @value; drops it if there is no memory. */
void mm_samples_add(struct mm_samples *samples, double value);
void mm_stats_done(struct mm_stats *stats);

/**
 * mm_report_request() - write the line of a request
 * @out:     where to write
 * @request: finished or refused
 *
 * Return: 0; -EIO.
 */
int mm_report_request(FILE *out, const struct mm_request *request);

/* Return: the run's object, to be freed with json_decref(); NULL if there is no memory. */
json_t *mm_report_summary(const struct mm_requests *requests, const struct mm_stats *stats);
