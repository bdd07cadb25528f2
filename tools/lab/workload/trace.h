/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - who asks for what, when
 *
 * Concept:   A trace is a list of requests sorted by arrival, each of one tenant. It comes from a
 *            CSV file (`arrival_s,prompt_tokens,output_tokens[,tenant]`) or from a seed. Without a
 *            tenant column each tenant gets a contiguous window of the rows, its arrivals counted
 *            from the window's first: real traces keep their bursts that way.
 * Ownership: the caller owns the struct; rows are freed by mm_trace_done().
 * Limits:    MM_TRACE_ROWS_MAX rows; token counts up to MM_TRACE_TOKENS_MAX.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MM_TRACE_ROWS_MAX    1000000
#define MM_TRACE_TOKENS_MAX  1000000
#define MM_TRACE_TENANTS_MAX 65536

struct mm_trace_row {
	double arrival_s;
	uint32_t prompt_tokens;
	uint32_t output_tokens;
	uint32_t tenant;
};

struct mm_trace {
	struct mm_trace_row *rows;
	size_t n, room;
};

struct mm_trace_shape { /* what is kept of a file's rows, and how a synthetic trace looks */
	uint32_t tenants;
	double duration_s;  /* later arrivals, as they come, are dropped; <= 0: all */
	double speed;       /* arrivals come this much faster */
	double token_scale; /* token counts times this, at least 1 */
	uint64_t seed;      /* synthetic only */
};

/**
 * mm_trace_read() - a trace from a CSV file
 * @path:      of the file
 * @shape:     tenants and cuts
 * @ret_trace: written only on success
 * @errbuf:    gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG malformed; errno of opening or reading.
 */
int mm_trace_read(const char *path, const struct mm_trace_shape *shape, struct mm_trace *ret_trace,
		  char *errbuf, size_t errbuf_bytes);

/**
 * mm_trace_read_rows() - a file's rows as they are
 * @path:         of the file
 * @lengths_only: the column arrival_s may be missing; times are then 0
 * @ret_trace:    written only on success
 * @errbuf:       gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG malformed; -ENOMEM; errno of opening or reading.
 */
int mm_trace_read_rows(const char *path, bool lengths_only, struct mm_trace *ret_trace,
		       char *errbuf, size_t errbuf_bytes);

/**
 * mm_trace_synthesize() - bursts that alternate between the tenants, from a seed
 * @shape:     tenants, duration and seed
 * @ret_trace: written only on success
 *
 * While one tenant's burst runs the others are mostly idle; every third burst two overlap.
 * Return: 0; -ENOMEM.
 */
int mm_trace_synthesize(const struct mm_trace_shape *shape, struct mm_trace *ret_trace);

/* How many requests are @tenant's. */
size_t mm_trace_rows(const struct mm_trace *trace, uint32_t tenant);

/**
 * mm_trace_write() - one tenant's rows as a CSV file, without the tenant column
 * @trace:  any
 * @tenant: whose
 * @path:   created or truncated
 *
 * Return: how many rows, or negative errno.
 */
int mm_trace_write(const struct mm_trace *trace, uint32_t tenant, const char *path);

void mm_trace_done(struct mm_trace *trace);
