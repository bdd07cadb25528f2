/* SPDX-License-Identifier: Apache-2.0 */
/* report - results as JSON and as rows of a table, progress, and the list of what there is. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/json.h"
#include "tools/lab/gpubench/gpubench.h"
#include "tools/lab/gpubench/measure.h"

int mm_gpu_fail(struct mm_gpu_bench *bench, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(bench->err, sizeof(bench->err), format, args);
	va_end(args);
	return error;
}

/* A line that shows progress on a terminal is overwritten by the next one. */
static const char *line_start(void)
{
	return isatty(STDERR_FILENO) ? "\r\033[K" : "";
}

void mm_gpu_progress(const struct mm_gpu_bench *bench, const char *format, ...)
{
	char text[MM_SERVE_ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "%sgpubench: %s: %s\n", line_start(), bench->part, text);
}

void mm_gpu_progress_round(const struct mm_gpu_bench *bench, const char *label, uint32_t round,
			   uint32_t rounds)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "%sgpubench: %s (%u of %u): %.80s: round %u of %u", line_start(),
			bench->part, bench->part_at, bench->parts, label, round, rounds);
	else if (round == 1)
		mm_gpu_progress(bench, "%s", label);
}

static const struct { /* by enum mm_gpu_unit */
	const char *name, *better;
	struct {
		const char *name;
		double least, by;
	} scales[3]; /* for people, the largest first */
} units[MM_GPU_UNITS] = {
	[MM_GPU_SECONDS] = { "s",
			     "less is better",
			     { { "s", 1, 1 }, { "ms", 1e-3, 1e3 }, { "us", 0, 1e6 } } },
	[MM_GPU_BYTES_PER_S] = { "bytes_per_s", "more is better", { { "GB/s", 0, 1e-9 } } },
	[MM_GPU_FLOP_PER_S] = { "flop_per_s", "more is better", { { "TFLOP/s", 0, 1e-12 } } },
};

const char *mm_gpu_unit_name(enum mm_gpu_unit unit)
{
	return units[unit].name;
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

	mm_json_put_text(row, "reference_name", result->reference_name);
	mm_json_put(row, "reference", summary_json(&reference));
	if (ratio > 0) {
		mm_json_put_real(row, "ratio", ratio);
		mm_json_put_real(row, "ratio_p10", pairs.p10);
		mm_json_put_real(row, "ratio_p90", pairs.p90);
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
	for (size_t i = 0; i < MM_GPU_UNITS; i++)
		for (size_t k = 0; !strcmp(units[i].name, unit) && units[i].scales[k].name; k++) {
			if (value < units[i].scales[k].least)
				continue;
			snprintf(text, bytes, "%.4g %s", value * units[i].scales[k].by,
				 units[i].scales[k].name);
			return;
		}
	snprintf(text, bytes, "%.4g %s", value, unit);
}

static bool is_size(const char *key)
{
	return !strcmp(key, "page") || !strcmp(key, "chunk") || !strcmp(key, "bytes") ||
	       !strcmp(key, "row");
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

void mm_gpu_params_print(const json_t *params, char *text, size_t bytes)
{
	json_t *value;
	const char *key;
	size_t at = 0;

	*text = '\0';
	json_object_foreach((json_t *)params, key, value) {
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
		 least ? json_number_value(least) : mm_json_real(goal, "at_most"),
		 rehearsal                  ? ""
		 : json_is_true(reached)    ? ", reached"
		 : json_is_boolean(reached) ? ", MISSED"
					    : ", not judged");
}

void mm_gpu_row_print(const json_t *row, bool rehearsal)
{
	const char *unit = mm_json_text(row, "unit");
	const json_t *figure = json_object_get(row, "figure");
	const json_t *reference = json_object_get(row, "reference");
	char name[160], params[112], value[32], p10[32], p90[32], other[32] = "", ratio[24] = "";
	char goal[48], spread[72];

	if (!*unit || !figure)
		return;
	mm_gpu_params_print(json_object_get(row, "params"), params, sizeof(params));
	snprintf(name, sizeof(name), "%s %s%s", mm_json_text(row, "part"),
		 mm_json_text(row, "name"), params);
	print_value(mm_json_real(figure, "median"), unit, value, sizeof(value));
	print_value(mm_json_real(figure, "p10"), unit, p10, sizeof(p10));
	print_value(mm_json_real(figure, "p90"), unit, p90, sizeof(p90));
	snprintf(spread, sizeof(spread), "(%s - %s)", p10, p90);
	if (reference)
		print_value(mm_json_real(reference, "median"), unit, other, sizeof(other));
	if (json_object_get(row, "ratio"))
		snprintf(ratio, sizeof(ratio), "%.3f", mm_json_real(row, "ratio"));
	print_goal(row, rehearsal, goal, sizeof(goal));
	printf("%-60s %12s  %-26s %12s %8s  %s\n", name, value, spread, other, ratio, goal);
}

/* ---- the list ---- */

static void row_list(const struct mm_gpu_row *row)
{
	printf("  %-17s %s, %s: %s\n", row->name, units[row->unit].name, units[row->unit].better,
	       row->what);
	if (!row->reference_name)
		return;
	printf("  %-17s reference: %s", "", row->reference_name);
	if (row->goal.kind != MM_GOAL_NONE)
		printf("; goal: ratio %s %.3g",
		       row->goal.kind == MM_GOAL_AT_LEAST ? ">=" : "<=", row->goal.bound);
	putchar('\n');
}

void mm_gpu_list(void)
{
	for (uint32_t i = 0; mm_gpu_groups[i]; i++) {
		const struct mm_gpu_group *group = mm_gpu_groups[i];

		printf("%-10s %s\n", group->name, group->what);
		for (uint32_t k = 0; group->measurements[k]; k++)
			for (uint32_t n = 0; n < group->measurements[k]->n_rows; n++)
				row_list(&group->measurements[k]->rows[n]);
	}
}
