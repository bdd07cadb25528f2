/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record - the times of each request of a run, and the numbers that follow from them
 *
 * Concept:    A run of a case reports each output token here. The record keeps the first and last
 *             time of each request, and all gaps between neighbouring tokens of one request in a
 *             histogram (histogram.h), so that a run of hours takes no memory per token. Throughput
 *             is all output tokens over the time from 0 to the last one. Delaying work cannot
 *             improve it: every request must be served in full, a policy that starves a tenant ends
 *             later, and a token that was computed twice counts once. The rate of tokens while
 *             requests arrive is reported, too, but it would favour a policy that serves cheap
 *             requests first. Goodput is the throughput of requests that meet their limits: time to
 *             first token at most 5 times the model's unloaded median, plus, under turns, one turn
 *             for each other tenant; mean time per output token at most 5 times its unloaded
 *             median. As these limits grow with turns and with the case, they do not compare one
 *             way of sharing with another. The fixed goals do: a request attains them if its first
 *             token comes within a time that is the same for all (--slo-ttft), plus --slo-factor
 *             times its own time alone on the device, and its mean time per output token is at most
 *             that factor times its own alone. A request that is not served in full attains
 *             nothing.
 * Ownership:  mm_wl_record_done() frees the record.
 * Threading:  one thread.
 */
#pragma once

#include <stdbool.h>

#include "tools/lab/workload/case.h"
#include "libclient/base/histogram.h"

#define MM_WL_SLO_FACTOR 5

struct mm_wl_served {
	uint64_t first_ns, last_ns; /* times of the first and the last output token so far */
	uint32_t tokens;
};

struct mm_wl_counters {       /* counters of a run; one that it does not have is 0 */
	uint64_t preemptions; /* sequences that were preempted */
	uint64_t recomputed_tokens;
	uint64_t swapped_bytes; /* out and in */
	uint64_t streamed_bytes;
	uint64_t plan_changes;
	uint64_t layers_remapped_max; /* most layers away at one time, of all tenants together */
	uint64_t kv_peak_bytes;       /* most KV in use at one time, of all tenants together */
	uint64_t steps, turns;
	uint64_t stall_ns; /* time that steps waited for a layer */
	uint64_t refused;  /* requests that were not served at all */
};

struct mm_wl_record {
	const struct mm_wl_case *c;
	struct mm_wl_served *served[MM_WL_TENANTS_MAX];
	struct mm_histogram *gaps;                 /* [tenants] */
	uint64_t window_tokens[MM_WL_TENANTS_MAX]; /* before the end of the arrivals' seconds */
	uint64_t window_ns;
	struct mm_wl_counters counters;
	/* quality of the run itself; 0: does not apply */
	double wall_s;                  /* host time of the run */
	double late_mean_s, late_max_s; /* timed run: how late effects of the device were */
};

/*
 * Initializes a record. @c must outlive it; @seconds: the time in which its requests arrive.
 * Return: 0; -ENOMEM.
 */
int mm_wl_record_init(struct mm_wl_record *record, const struct mm_wl_case *c, double seconds);
void mm_wl_record_done(struct mm_wl_record *record);

/*
 * Records the next output token of a request, at @now_ns of the window. Times of one request must
 * not decrease.
 */
static inline void mm_wl_record_token(struct mm_wl_record *record, uint32_t tenant,
				      uint32_t request, uint64_t now_ns)
{
	struct mm_wl_served *s = &record->served[tenant][request];

	if (s->tokens++)
		mm_histogram_add(&record->gaps[tenant], now_ns - s->last_ns, 1);
	else
		s->first_ns = now_ns;
	s->last_ns = now_ns;
	record->window_tokens[tenant] += now_ns < record->window_ns;
}

/* Whether a request that was served in full did not attain the fixed goals of @opts. */
bool mm_wl_is_late(const struct mm_wl_opts *opts, const struct mm_wl_request *request,
		   const struct mm_wl_served *served);

struct mm_wl_slo { /* unloaded medians of each tenant; 0 = no limit */
	uint64_t ttft_median_ns[MM_WL_TENANTS_MAX], tpot_median_ns[MM_WL_TENANTS_MAX];
	uint64_t turns_ns; /* allowance for TTFT: (tenants - 1) turns */
	/* fixed goals, the same for every policy and way of sharing */
	uint64_t goal_ttft_ns;
	double goal_factor; /* 0: none */
};

/**
 * mm_wl_slo_of() - compute limits from a run in which each request was alone
 * @opts:    has the duration of turns, and the fixed goals
 * @record:  of such a run
 * @ret_slo: medians of its requests
 *
 * Return: 0; -ENOMEM.
 */
int mm_wl_slo_of(const struct mm_wl_opts *opts, const struct mm_wl_record *record,
		 struct mm_wl_slo *ret_slo);

/**
 * mm_wl_case_alone() - pick a few requests of a case, for a run with one request at a time
 * @c:        the case
 * @each:     most requests of each tenant
 * @apart_ns: time between two arrivals, more than any request takes
 * @ret_case: as for mm_wl_case_make()
 *
 * Return: 0; -ENOMEM.
 */
int mm_wl_case_alone(const struct mm_wl_case *c, uint32_t each, uint64_t apart_ns,
		     struct mm_wl_case *ret_case);

struct mm_wl_metrics {
	uint64_t requests, completed, good;
	uint64_t attained;                     /* requests that attain the fixed goals */
	uint64_t output_tokens, prompt_tokens; /* of completed requests */
	double seconds;                        /* from 0 to the last token */
	double throughput_tok_s;               /* output tokens / seconds */
	double total_tok_s;                    /* output and prompt tokens / seconds */
	double window_tok_s;                   /* output tokens within [0, S) / S */
	double own_tok_s; /* output tokens / seconds until the last one of these tenants */
	double goodput_tok_s, goodput_req_s;
	double attainment;     /* attained / requests */
	double attained_tok_s; /* output tokens of these requests / seconds */
	double ttft_p50_s, ttft_p99_s, ttft_mean_s;
	double tbt_p50_s, tbt_p99_s, tbt_mean_s; /* over all gaps */
	double tpot_p50_s, tpot_p99_s;           /* over all requests: mean gap of each */
};

#define MM_WL_ALL UINT32_MAX

/**
 * mm_wl_measure() - compute the numbers of one or several runs
 * @records: of the same tenants, e.g. all windows under one policy
 * @n:       number of records
 * @tenant:  index of a tenant, or MM_WL_ALL
 * @slo:     NULL: no goodput, nothing attained
 *
 * Times of several runs are added up, latencies are pooled. Return: 0; -ENOMEM.
 */
int mm_wl_measure(const struct mm_wl_record *const *records, uint32_t n, uint32_t tenant,
		  const struct mm_wl_slo *slo, struct mm_wl_metrics *ret_metrics);
