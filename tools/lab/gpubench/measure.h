/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure - statements of what is measured against which reference, and the driver of them all
 *
 * Concept:   A statement is data. A group has what its measurements share: a state, and points that
 *            it goes through, such as sizes of pages. At each point its measurements follow each
 *            other. A measurement has a sweep, of which each combination is a case. Within a case
 *            the sides, subject and references, run in turn, round after round; a run records
 *            values. A row says which value is the figure and which is its reference. Only
 *            mm_gpu_measure() repeats, collects, checks, compares and reports.
 * Ownership: the driver allocates the state, zeroed. Whatever `open`, `enter` or `prepare` makes is
 *            undone by `close`, `leave` or `finish`, which run after a failure too and accept a
 *            state that is half made.
 * Errors:    a function returns 0 or negative errno with the sentence in bench->err; the driver
 *            puts in front of it which case and which side it was. -EOPNOTSUPP skips the case, or,
 *            from `open` and `enter` or if no case is left, the group. MM_E_EMPTY from `prepare` or
 *            a side is no failure: this case does not exist, or this side has no part in it.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/lab/common/series.h"

struct mm_gpu_bench;

#define MM_GPU_VALUES_MAX 16 /* values of a case */
#define MM_GPU_SWEEP_MAX  3  /* parameters that a sweep varies */

/* Less is better with times, more with rates. A figure and its reference have the same unit. */
enum mm_gpu_unit { MM_GPU_SECONDS, MM_GPU_BYTES_PER_S, MM_GPU_FLOP_PER_S, MM_GPU_UNITS };

/* The name of a unit in JSON: "s", "bytes_per_s" or "flop_per_s". */
const char *mm_gpu_unit_name(enum mm_gpu_unit unit);

/* A member of a JSON object, by its place in the state. A name of NULL ends a list. */
struct mm_gpu_param {
	const char *name;
	enum { MM_GPU_U32, MM_GPU_U64, MM_GPU_REAL, MM_GPU_TEXT } type;
	size_t at;
};

/* clang-format off */
#define MM_GPU_PARAM_TYPE(field)                                                                   \
	_Generic((field), uint32_t: MM_GPU_U32, uint64_t: MM_GPU_U64, double: MM_GPU_REAL,         \
		 const char *: MM_GPU_TEXT)
#define MM_GPU_PARAM(key, owner, field)                                                            \
	{ .name = (key), .type = MM_GPU_PARAM_TYPE(((owner *)NULL)->field),                        \
	  .at = offsetof(owner, field) }
/* clang-format on */

struct mm_gpu_side {
	const char *name; /* in messages */
	uint32_t which;   /* is passed to the functions below, which several sides may share */
	/* One iteration. It writes values that it has to @value[MM_GPU_VALUES_MAX]; times in s. */
	int (*run)(void *state, uint32_t which, double *value);
	/*
	 * Is the result of the first run of a case right? Negative errno if it is not. It is not
	 * called where the device computes no bytes. NULL: nothing that could be wrong.
	 */
	int (*check)(void *state, uint32_t which);
	int (*reset)(void *state, uint32_t which); /* before each run, outside of its time; NULL */
	int (*undo)(void *state, uint32_t which);  /* after each run, outside of its time; NULL */
};

struct mm_gpu_row {
	const char *name;
	const char *what; /* for --list */
	enum mm_gpu_unit unit;
	uint32_t figure, reference; /* indices of values; the second one counts with a name */
	const char *reference_name; /* NULL: there is no reference */
	/* Bytes or operations behind a value, in a row of rates. Both have @work by default. */
	double (*work)(const void *state);
	double (*reference_work)(const void *state);
	struct mm_goal goal;                 /* for figure / reference */
	bool (*has_goal)(const void *state); /* NULL: in each case */
	bool (*applies)(const void *state);  /* NULL: in each case that has the figure */
	const struct mm_gpu_param *params;   /* in place of the measurement's; NULL */
	const struct mm_gpu_param *more;     /* further members; NULL: none */
	/* As many again that are computed. @values: summaries of all values of the case. */
	json_t *(*computed)(const void *state, const struct mm_gpu_row *row,
			    const struct mm_summary *values);
};

struct mm_gpu_measurement {
	const char *name; /* in messages */
	const struct mm_gpu_side *sides;
	uint32_t n_sides;
	const struct mm_gpu_row *rows;
	uint32_t n_rows;
	/* In place of @name, and of the names of rows; NULL: they are constant. */
	const char *(*case_name)(const void *state);
	uint32_t warm_up;                      /* rounds that come first and do not count */
	uint32_t (*rounds)(const void *state); /* that count; NULL: as many as sizes.repeat */
	bool alternates;                       /* every second round runs the sides backwards */
	/* Writes how many values each parameter has; those left alone have one. NULL: one case. */
	void (*sweep)(const void *state, uint32_t *ret_sizes);
	int (*prepare)(void *state, const uint32_t *at);        /* @at: indices of the parameters */
	int (*measured)(void *state, struct mm_series *values); /* before rows; may take series */
	void (*finish)(void *state);
	const struct mm_gpu_param *params; /* what was varied; NULL: nothing */
};

/* Initializes a measurement's sides and rows with two arrays. */
#define MM_GPU_STATEMENT(side_array, row_array)                                           \
	.sides = (side_array), .n_sides = MM_ARRAY_SIZE(side_array), .rows = (row_array), \
	.n_rows = MM_ARRAY_SIZE(row_array)

struct mm_gpu_group {
	const char *name, *what; /* for --list */
	size_t state_bytes;
	int (*open)(void *state, struct mm_gpu_bench *bench);
	void (*close)(void *state);
	uint32_t (*points)(const void *state); /* NULL: one */
	int (*enter)(void *state, uint32_t point);
	void (*leave)(void *state);
	const struct mm_gpu_measurement *const *measurements; /* ends with NULL */
};

/* Runs all of a group. Return: 0; negative errno with the sentence in bench->err. */
int mm_gpu_measure(struct mm_gpu_bench *bench, const struct mm_gpu_group *group);
