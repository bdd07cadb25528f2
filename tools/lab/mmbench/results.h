/* SPDX-License-Identifier: Apache-2.0 */
/*
 * results - the output of one run: every token of every request, with its time
 *
 * Concept:   Tenants write a JSON line per finished request and a summary; this room reads them
 *            back, compares the ids of two runs, and computes latencies over all requests of all
 *            tenants together. Time to first token counts from the request's arrival in the trace;
 *            time between tokens is each gap between neighbours.
 * Ownership: mm_results_done() frees everything.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mm_result_request {
	double arrival_s;
	double *time_s; /* when each token came, on the clock of arrival_s */
	uint32_t *id;
	size_t n;
};

struct mm_results_tenant {
	struct mm_result_request *request; /* in the trace's order; n == 0: missing or refused */
	size_t n;
	/* from the tenant's summary of its run */
	uint64_t preemptions, steps, checksum_failures;
	uint64_t swapped_out_bytes, swapped_in_bytes;
	double stall_p99_s, stall_total_s;
	bool complete; /* there was a summary */
};

struct mm_results {
	struct mm_results_tenant *tenant;
	size_t n;
};

struct mm_latency {
	uint64_t requests, tokens;
	double throughput_tok_s;
	double ttft_p50_s, ttft_p99_s, tbt_p50_s, tbt_p99_s;
};

/* Return: 0; -ENOMEM. */
int mm_results_init(struct mm_results *results, size_t tenants);
void mm_results_done(struct mm_results *results);

/**
 * mm_results_read() - read one tenant's output
 * @results: initialised
 * @tenant:  index of the tenant
 * @rows:    how many requests the tenant was given
 * @path:    file of JSON lines
 * @errbuf:  gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG malformed; -ENOMEM; negative errno of opening.
 */
int mm_results_read(struct mm_results *results, size_t tenant, size_t rows, const char *path,
		    char *errbuf, size_t errbuf_bytes);

/* Counts the positions at which two runs differ, with tokens and requests that one run lacks. */
uint64_t mm_results_mismatches(const struct mm_results *a, const struct mm_results *b);

/* Computes throughput and latencies over all tenants. Return: 0; -ENOMEM. */
int mm_results_latency(const struct mm_results *results, struct mm_latency *ret_latency);
