/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - what a server counts, as Prometheus reads it
 *
 * Concept:    counters and histograms of the server's thread, and beside them what the engine
 *             publishes after each step (inbox.h). Names and units are Prometheus': seconds,
 *             bytes, _total for what only grows.
 * Ownership:  plain values.
 * Threading:  the server's thread; the engine's words are read relaxed, each by itself.
 */
#pragma once

#include <stdint.h>

#include "tools/mmserve/engine/inbox.h"
#include "tools/mmserve/http/buffer.h"

#define MM_LATENCY_BUCKETS 15u

struct mm_latency { /* [i]: above bound i - 1, at most bound i; the last one: above all */
	uint64_t buckets[MM_LATENCY_BUCKETS + 1];
	uint64_t n;
	double sum;
};

struct mm_http_counts {
	uint64_t answers[6];                /* by the first digit of the status */
	uint64_t ended[MM_JOB_ABORTED + 1]; /* jobs, by how they ended */
	uint64_t prompt_tokens;
	uint64_t connections, refused, slow; /* let in, one too many, closed for taking too long */
	uint64_t full;                       /* requests refused because too many were open */
	struct mm_latency ttft, tpot, whole;
};

void mm_latency_add(struct mm_latency *latency, double seconds);

/* Writes what /metrics answers. @connections: that are open. */
void mm_metrics_write(struct mm_buffer *b, const struct mm_http_counts *counts,
		      const struct mm_inbox_stats *engine, uint32_t connections);
