/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpubench - costs of the mechanism on this device, each against a reference
 *
 * Concept:   A part measures one thing. It runs in a child process of its own, which opens the
 *            driver, starts an mmd where it needs one, and writes a line of JSON for each result
 *            into a pipe. The parent never opens the driver; it ends a part that takes too long,
 *            with all its descendants, and goes on with the next. Results until then are in the
 *            file already. A result is a figure and its reference, measured alternately within
 *            one run (series.h).
 * Ownership: the parent owns struct mm_gpu_bench; each part works on the copy that fork() made.
 * Threading: one thread per process.
 * Errors:    a part returns negative errno with the sentence in bench->err; -EOPNOTSUPP means that
 *            the device lacks the feature that the part measures, which is no failure.
 */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/base/base.h"
#include "tools/lab/common/series.h"
#include "tools/mmserve/engine/config.h"

#define MM_GPU_PAGES_MAX  8
#define MM_GPU_ROWS       6
#define MM_GPU_SWAP_PARTS 16 /* registrations of swap_bytes */

struct mm_gpu_group;

extern const struct mm_gpu_group *const mm_gpu_groups[]; /* ends with NULL */
#define MM_GPU_PARTS_MAX 16

struct mm_gpu_opts {
	bool part[MM_GPU_PARTS_MAX];
	const char *driver;
	uint32_t device;
	uint64_t pages[MM_GPU_PAGES_MAX];
	uint32_t n_pages; /* 0: as suits the device */
	uint32_t repeat;  /* 0: as suits the device */
	uint64_t timeout_s;
	const char *out_path, *keep_dir, *kernels, *model;
	bool quick, json, list;
};

/* Reads the command line. Return: -1 the program is to run; else its exit status. */
int mm_gpu_options(int argc, char **argv, struct mm_gpu_opts *ret_opts);

/* Writes what is left of standard output, before main() returns. Return: the exit status. */
int mm_gpu_flush(int status);

struct mm_gpu_shape { /* shape of a model of OPT's family */
	uint32_t layers, hidden, heads, vocab, positions;
};

/* Sizes and counts of all measurements: one set for a device, one for a rehearsal. */
struct mm_gpu_sizes {
	uint64_t pages[MM_GPU_PAGES_MAX];
	uint32_t n_pages;
	uint32_t repeat;
	uint64_t grant_bytes;  /* KV that is wanted at once */
	uint64_t buffer_bytes; /* larger than the device's caches */
	uint64_t load_bytes;   /* each array of a load: more than caches hold, yet a short launch */
	uint64_t arena_bytes;  /* keys and values */
	uint32_t row_hidden;   /* elements of a row of activations */
	uint64_t copied_bytes; /* by a bare loop of copies, in one measurement */
	uint64_t swap_bytes;   /* cold blocks in host memory */
	uint64_t row_bytes[MM_GPU_ROWS];                 /* units of cold blocks */
	uint64_t pool_bytes;                             /* managed by mmd, beside the weights */
	struct mm_gpu_shape cycling;                     /* the model whose layers cycle */
	struct mm_gpu_shape served;                      /* the model that mmserve serves */
	uint32_t requests, prompt_tokens, output_tokens; /* what mmserve serves */
	uint32_t serve_repeat;                           /* how often, in each way of serving */
	uint32_t steps;                                  /* in one measurement */
};

struct mm_gpu_bench {
	struct mm_gpu_opts opts;
	struct mm_gpu_sizes sizes;
	bool rehearsal; /* the device is a software GPU, whose numbers mean nothing */
	bool timed;     /* the software GPU keeps the time of a modelled device; needs no bytes */
	char bin_dir[PATH_MAX], work_dir[PATH_MAX];
	int signals, out;
	const char *part;
	uint32_t part_at, parts; /* counted from 1, of those that were asked for */
	char err[MM_SERVE_ERROR_BYTES];
};

/* Writes a sentence into bench->err. Return: @error. */
MM_PRINTF(3, 4) int mm_gpu_fail(struct mm_gpu_bench *bench, int error, const char *format, ...);

/* Prints a line on stderr. */
MM_PRINTF(2, 3) void mm_gpu_progress(const struct mm_gpu_bench *bench, const char *format, ...);

/* Shows which round of which case runs: each on a terminal, in one line; else only the case. */
void mm_gpu_progress_round(const struct mm_gpu_bench *bench, const char *label, uint32_t round,
			   uint32_t rounds);

/* Prints parameters as " page=2M rows=4"; sizes get a unit. */
void mm_gpu_params_print(const json_t *params, char *text, size_t bytes);

struct mm_gpu_result {
	const char *name;
	const char *unit; /* "s", "bytes_per_s", ... */
	const struct mm_series *figure;
	const struct mm_series *reference; /* NULL: none */
	const char *reference_name;
	struct mm_goal goal; /* for figure / reference */
	json_t *params;      /* taken over; NULL: none */
	json_t *more;        /* further members, taken over; NULL: none */
};

/* Sends a result to the parent. Return: 0; negative errno, with the sentence in bench->err. */
int mm_gpu_result(struct mm_gpu_bench *bench, const struct mm_gpu_result *result);

/* Prints the JSON of a result as a row of a table. */
void mm_gpu_row_print(const json_t *row, bool rehearsal);

/* Prints all groups with their measurements: units, goals and references. */
void mm_gpu_list(void);

/* Runs the parts that the options name, and prints their results. Return: the exit status. */
int mm_gpu_run(const struct mm_gpu_opts *opts);
