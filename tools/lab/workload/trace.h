/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - requests with their arrival times and lengths
 *
 * Concept:   A trace is a list of requests sorted by arrival, each of one tenant. It comes from a
 *            CSV file (`arrival_s,prompt_tokens,output_tokens[,tenant]`) or from a seed. Without a
 *            tenant column each tenant gets a contiguous window of the rows, with arrivals counted
 *            from the window's first row, so that real traces keep their bursts.
 * Ownership: the caller owns the struct; rows are freed by mm_trace_done().
 * Threading: one thread.
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

/* How a file's rows are cut and scaled, and how a synthetic trace is made. */
struct mm_trace_shape {
	uint32_t tenants;
	double duration_s;  /* later arrivals, after scaling, are dropped; <= 0: none */
	double speed;       /* factor by which requests arrive faster */
	double token_scale; /* factor of token counts; the result is at least 1 */
	uint64_t seed;      /* of a synthetic trace */
};

/**
 * mm_trace_read() - read a trace from a CSV file
 * @path:      of the file
 * @shape:     tenants and cuts
 * @ret_trace: written only on success
 * @errbuf:    gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG malformed; negative errno of opening or reading.
 */
int mm_trace_read(const char *path, const struct mm_trace_shape *shape, struct mm_trace *ret_trace,
		  char *errbuf, size_t errbuf_bytes);

/**
 * mm_trace_read_rows() - read the rows of a file without changes
 * @path:         of the file
 * @lengths_only: the column arrival_s may be missing; arrivals are then 0
 * @ret_trace:    written only on success
 * @errbuf:       gets "file:line: what is wrong"
 *
 * Return: 0; -EBADMSG malformed; -ENOMEM; errno of opening or reading.
 */
int mm_trace_read_rows(const char *path, bool lengths_only, struct mm_trace *ret_trace,
		       char *errbuf, size_t errbuf_bytes);

/**
 * mm_trace_synthesize() - make bursts that alternate between the tenants, from a seed
 * @shape:     tenants, duration and seed
 * @ret_trace: written only on success
 *
 * During one tenant's burst the others are mostly idle; at every third burst two overlap.
 * Return: 0; -ENOMEM.
 */
int mm_trace_synthesize(const struct mm_trace_shape *shape, struct mm_trace *ret_trace);

/* Counts the requests of @tenant. */
size_t mm_trace_rows(const struct mm_trace *trace, uint32_t tenant);

/**
 * mm_trace_write() - write one tenant's rows to a CSV file, without the tenant column
 * @trace:  the trace
 * @tenant: index of the tenant
 * @path:   created or truncated
 *
 * Return: the number of rows, or negative errno.
 */
int mm_trace_write(const struct mm_trace *trace, uint32_t tenant, const char *path);

void mm_trace_done(struct mm_trace *trace);
