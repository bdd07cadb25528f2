/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evaluate - `mmbench evaluate`: the papers' evaluation, through the simulator
 *
 * Concept:    A point is one run of mmsim: a case at one load, under all policies, over several
 *             windows of the trace. Points that differ in load alone are a curve of a chart; charts
 *             belong to a section, which is a figure of the paper or a question of our own.
 *             points.c lists the points, evaluate.c runs them, figures.c writes the results, and
 *             targets.c compares them with the targets. Every number comes from the runs.
 * Ownership:  struct mm_eval owns its points; mm_eval_done() frees them.
 * Threading:  one thread.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/lab/workload/bound.h"
#include "tools/lab/workload/options.h"

enum mm_eval_section {
	MM_EVAL_FIG8,
	MM_EVAL_FIG9,
	MM_EVAL_FIG10,
	MM_EVAL_FIG11,
	MM_EVAL_FIG12,
	MM_EVAL_FIG13,
	MM_EVAL_FIG15,
	MM_EVAL_FIG16,
	MM_EVAL_FIG17,
	MM_EVAL_PCIE,
	MM_EVAL_LINK,
	MM_EVAL_ABLATION, /* each knob of the controller switched off */
	MM_EVAL_GRID,     /* many cases, in none of which remap may be worse */
	MM_EVAL_SECTIONS
};

#define MM_EVAL_LINE_BYTES 1024

struct mm_eval_point {
	enum mm_eval_section section;
	char id[128];
	char chart[64];                /* chart of the section that the point belongs to */
	char variant[64];              /* curve of the chart; "": the curves are the policies */
	char line[MM_EVAL_LINE_BYTES]; /* flags of mmsim */
	double load; /* rate / the most that the device could serve; 0: the rate is given */
	double rate; /* requests/s of all tenants together */
	/* set by the run */
	json_t *json;      /* NULL: the run failed */
	char failure[256]; /* why it failed */
	double wall_s;
	double bound_tok_s;   /* certified bound of throughput; mean of the windows */
	double kv_fits_bytes; /* KV for which weights make room without a step that waits */
};

struct mm_eval_opts {
	bool quick;
	const char *out_dir;
	const char *trace_path, *alpaca; /* if NULL, or "alpaca": made from the seed */
	const char *simulator;
	const char *only; /* names of the sections to run; NULL: all */
	uint32_t jobs, windows;
	uint64_t seed;
	double seconds;
};

struct mm_eval {
	struct mm_eval_opts opts;
	struct mm_eval_point *point;
	size_t n, room;
	double wall_s;
	bool plots; /* gnuplot is installed */
};

/* ---- results ---- */

/* The number @key of a policy over all windows; NAN if the point has none. */
double mm_eval_value(const struct mm_eval_point *point, const char *policy, const char *key);
bool mm_eval_has(const struct mm_eval_point *point, const char *policy);

/* The ratio of policy @a to policy @b, window by window, with its interval of 95 %. */
struct mm_ratio;
struct mm_ratio mm_eval_ratio(const struct mm_eval_point *point, const char *a, const char *b,
			      const char *key);

/*
 * G = (policy - recompute) / (unlimited - recompute) of throughput; NAN where there is nothing to
 * gain.
 */
double mm_eval_gain(const struct mm_eval_point *point, const char *policy);

/* Does the peak of KV under unlimited memory fit what weights can make room for? */
bool mm_eval_fits(const struct mm_eval_point *point);

/* The subcommand `mmbench evaluate`; @argv[0] is "evaluate". Return: the exit status. */
int mm_bench_evaluate(int argc, char **argv);
