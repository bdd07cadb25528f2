/* SPDX-License-Identifier: Apache-2.0 */
/* report - results of `mmbench gpu` as JSON, and as rows of a table. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/lab/gpubench/gpubench.h"

int mm_gpu_fail(struct mm_gpu_bench *bench, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(bench->err, sizeof(bench->err), format, args);
	va_end(args);
	return error;
}

void mm_gpu_progress(const struct mm_gpu_bench *bench, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "mmbench gpu: %s: %s\n", bench->part, text);
}

static json_t *summary_json(const struct mm_summary *s)
{
	return json_pack("{s:f,s:f,s:f,s:i}", "median", s->median, "p10", s->p10, "p90", s->p90,
			 "n", (int)s->n);
}

static void set_goal(json_t *row, const struct mm_goal *goal, double ratio, bool rehearsal)
{
	bool reached;

	if (goal->kind == MM_GOAL_NONE)
		return;
	json_object_set_new(row, "goal",
			    json_pack("{s:f}",
				      goal->kind == MM_GOAL_AT_LEAST ? "at_least" : "at_most",
				      goal->bound));
	/* In a rehearsal the numbers mean nothing, so a goal is neither reached nor missed. */
	json_object_set_new(row, "reached",
			    !rehearsal && mm_goal_check(goal, ratio, &reached)
				    ? json_boolean(reached)
				    : json_null());
}

static void set_reference(json_t *row, const struct mm_gpu_result *result, double figure,
			  bool rehearsal)
{
	const struct mm_summary reference = mm_series_summary(result->reference);
	const struct mm_summary pairs = mm_series_pairs(result->figure, result->reference);
	const double ratio = reference.median > 0 ? figure / reference.median : 0;

	json_object_set_new(row, "reference_name", json_string(result->reference_name));
	json_object_set_new(row, "reference", summary_json(&reference));
	if (ratio > 0) {
		json_object_set_new(row, "ratio", json_real(ratio));
		json_object_set_new(row, "ratio_p10", json_real(pairs.p10));
		json_object_set_new(row, "ratio_p90", json_real(pairs.p90));
	}
	set_goal(row, &result->goal, ratio, rehearsal);
}

int mm_gpu_result(struct mm_gpu_bench *bench, const struct mm_gpu_result *result)
{
	const struct mm_summary figure = mm_series_summary(result->figure);
	json_t *row = json_pack("{s:s,s:s,s:o,s:s,s:o}", "part", bench->part, "name", result->name,
				"params", result->params ? result->params : json_object(), "unit",
				result->unit, "figure", summary_json(&figure));
	char *line;
	int r = 0;

	if (row && result->reference)
		set_reference(row, result, figure.median, bench->rehearsal);
	if (row && result->more)
		json_object_update(row, result->more);
	json_decref(result->more);
	line = row ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
	if (!line || dprintf(bench->out, "%s\n", line) < 0)
		r = mm_gpu_fail(bench, -ENOMEM, "a result cannot be told");
	free(line);
	json_decref(row);
	return r;
}

/* ---- the table ---- */

static void print_value(double value, const char *unit, char *text, size_t bytes)
{
	static const struct {
		const char *unit, *name;
		double least, by;
	} scales[] = {
		{ "s", "s", 1, 1 },
		{ "s", "ms", 1e-3, 1e3 },
		{ "s", "us", 0, 1e6 },
		{ "bytes_per_s", "GB/s", 0, 1e-9 },
		{ "flop_per_s", "TFLOP/s", 0, 1e-12 },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(scales); i++) {
		if (strcmp(unit, scales[i].unit) || value < scales[i].least)
			continue;
		snprintf(text, bytes, "%.4g %s", value * scales[i].by, scales[i].name);
		return;
	}
	snprintf(text, bytes, "%.4g %s", value, unit);
}

static double json_number(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

static bool is_size(const char *key)
{
	return !strcmp(key, "page") || !strcmp(key, "chunk") || !strcmp(key, "bytes");
}

/* Prints a parameter; a size gets a unit. */
static void print_param(const char *key, const json_t *value, char *text, size_t bytes)
{
	const json_int_t n = json_integer_value(value);

	if (json_is_string(value))
		snprintf(text, bytes, "%s", json_string_value(value));
	else if (json_is_real(value))
		snprintf(text, bytes, "%.4g", json_real_value(value));
	else if (is_size(key) && n >= 1 << 20 && n % (1 << 20) == 0)
		snprintf(text, bytes, "%lldM", (long long)n >> 20);
	else if (is_size(key) && n >= 1 << 10 && n % (1 << 10) == 0)
		snprintf(text, bytes, "%lldK", (long long)n >> 10);
	else
		snprintf(text, bytes, "%lld", (long long)n);
}

static void print_params(const json_t *row, char *text, size_t bytes)
{
	json_t *value;
	const char *key;
	size_t at = 0;

	*text = '\0';
	json_object_foreach(json_object_get(row, "params"), key, value) {
		char printed[64];

		print_param(key, value, printed, sizeof(printed));
		at += (size_t)snprintf(text + at, bytes - at, " %s=%s", key, printed);
		if (at >= bytes)
			break;
	}
}

static void print_goal(const json_t *row, bool rehearsal, char *text, size_t bytes)
{
	const json_t *goal = json_object_get(row, "goal");
	const json_t *least = json_object_get(goal, "at_least");
	const json_t *reached = json_object_get(row, "reached");

	*text = '\0';
	if (!goal)
		return;
	snprintf(text, bytes, "%s %.3g%s", least ? ">=" : "<=",
		 least ? json_number_value(least) : json_number(goal, "at_most"),
		 rehearsal                  ? ""
		 : json_is_true(reached)    ? ", reached"
		 : json_is_boolean(reached) ? ", MISSED"
					    : ", not judged");
}

void mm_gpu_row_print(const json_t *row, bool rehearsal)
{
	const char *unit = json_string_value(json_object_get(row, "unit"));
	const json_t *figure = json_object_get(row, "figure");
	const json_t *reference = json_object_get(row, "reference");
	char name[160], params[112], value[32], p10[32], p90[32], other[32] = "", ratio[24] = "";
	char goal[48], spread[72];

	if (!unit || !figure)
		return;
	print_params(row, params, sizeof(params));
	snprintf(name, sizeof(name), "%s %s%s", json_string_value(json_object_get(row, "part")),
		 json_string_value(json_object_get(row, "name")), params);
	print_value(json_number(figure, "median"), unit, value, sizeof(value));
	print_value(json_number(figure, "p10"), unit, p10, sizeof(p10));
	print_value(json_number(figure, "p90"), unit, p90, sizeof(p90));
	snprintf(spread, sizeof(spread), "(%s - %s)", p10, p90);
	if (reference)
		print_value(json_number(reference, "median"), unit, other, sizeof(other));
	if (json_object_get(row, "ratio"))
		snprintf(ratio, sizeof(ratio), "%.3f", json_number(row, "ratio"));
	print_goal(row, rehearsal, goal, sizeof(goal));
	printf("%-60s %12s  %-26s %12s %8s  %s\n", name, value, spread, other, ratio, goal);
}
