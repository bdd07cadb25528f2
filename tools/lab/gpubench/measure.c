/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/measure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/gpubench/gpubench.h"

struct measuring {
	struct mm_gpu_bench *bench;
	const struct mm_gpu_group *group;
	void *state;
	struct mm_series values[MM_GPU_VALUES_MAX];
	uint32_t rows, skipped;
	char label[192];                /* the case, for messages */
	char why[MM_SERVE_ERROR_BYTES]; /* the reason why the last case was skipped */
};

/* Puts @where in front of the sentence of an error. Return: @error. */
static int error_place(struct measuring *m, int error, const char *where)
{
	char sentence[MM_SERVE_ERROR_BYTES];

	if (error >= 0)
		return error;
	snprintf(sentence, sizeof(sentence), "%s",
		 *m->bench->err ? m->bench->err : strerror(-error));
	return mm_gpu_fail(m->bench, error, "%s: %.4000s", where, sentence);
}

/* ---- a case ---- */

static int side_run(struct measuring *m, const struct mm_gpu_side *side, double *value, bool first)
{
	int r = side->reset ? side->reset(m->state, side->which) : 0;

	if (!r)
		r = side->run(m->state, side->which, value);
	if (!r && first && side->check && !m->bench->timed)
		r = side->check(m->state, side->which);
	if (!r && side->undo)
		r = side->undo(m->state, side->which);
	return r == MM_E_EMPTY ? 0 : error_place(m, r, side->name);
}

static int round_run(struct measuring *m, const struct mm_gpu_measurement *what, uint32_t round)
{
	double value[MM_GPU_VALUES_MAX];
	int r = 0;

	for (uint32_t i = 0; i < MM_GPU_VALUES_MAX; i++)
		value[i] = NAN;
	for (uint32_t i = 0; !r && i < what->n_sides; i++) {
		const bool backwards = what->alternates && round % 2;
		const uint32_t at = backwards ? what->n_sides - 1 - i : i;

		r = side_run(m, &what->sides[at], value, !round);
	}
	for (uint32_t i = 0; !r && round >= what->warm_up && i < MM_GPU_VALUES_MAX; i++) {
		if (isnan(value[i]))
			continue;
		mm_series_add(&m->values[i], value[i]);
		if (m->values[i].lost)
			r = mm_gpu_fail(m->bench, -ENOMEM, "out of memory");
	}
	return r;
}

static int rounds_run(struct measuring *m, const struct mm_gpu_measurement *what)
{
	const uint32_t counted = what->rounds ? what->rounds(m->state) : m->bench->sizes.repeat;
	const uint32_t rounds = what->warm_up + counted;
	int r = 0;

	for (uint32_t i = 0; !r && i < rounds; i++) {
		mm_gpu_progress_round(m->bench, m->label, i + 1, rounds);
		r = round_run(m, what, i);
	}
	return r;
}

/* ---- rows ---- */

static json_t *param_json(const struct mm_gpu_param *param, const void *state)
{
	const void *field = (const char *)state + param->at;

	switch (param->type) {
	case MM_GPU_U32:
		return json_integer(*(const uint32_t *)field);
	case MM_GPU_U64:
		return json_integer((json_int_t) * (const uint64_t *)field);
	case MM_GPU_REAL:
		return json_real(*(const double *)field);
	default:
		return json_string(*(const char *const *)field);
	}
}

static json_t *params_json(const struct mm_gpu_param *params, const void *state)
{
	json_t *object = json_object();

	for (; params && params->name; params++)
		json_object_set_new(object, params->name, param_json(params, state));
	return object;
}

/* Copies the values of a side, as rates if there is @work behind each. */
static int series_convert(const struct mm_series *from, double work, struct mm_series *ret_series)
{
	for (uint32_t i = 0; i < from->n; i++)
		mm_series_add(ret_series, work > 0 ? work / from->at[i] : from->at[i]);
	return ret_series->lost ? -ENOMEM : 0;
}

static int row_report(struct measuring *m, const struct mm_gpu_measurement *what,
		      const struct mm_gpu_row *row, const struct mm_summary *summaries)
{
	mm_cleanup(mm_series_done) struct mm_series figure = { 0 }, reference = { 0 };
	const double work = row->work ? row->work(m->state) : 0;
	const double other = row->reference_work ? row->reference_work(m->state) : work;
	const struct mm_gpu_param *params = row->params ? row->params : what->params;
	const bool has_goal = !row->has_goal || row->has_goal(m->state);
	struct mm_gpu_result result = {
		.name = what->case_name ? what->case_name(m->state) : row->name,
		.unit = mm_gpu_unit_name(row->unit),
		.figure = &figure,
		.reference = row->reference_name ? &reference : NULL,
		.reference_name = row->reference_name,
		.goal = has_goal ? row->goal : (struct mm_goal){ 0 },
	};

	if (series_convert(&m->values[row->figure], work, &figure) ||
	    (result.reference && series_convert(&m->values[row->reference], other, &reference)))
		return mm_gpu_fail(m->bench, -ENOMEM, "out of memory");
	result.params = params_json(params, m->state);
	result.more = params_json(row->more, m->state);
	if (row->computed) {
		json_t *computed = row->computed(m->state, row, summaries);

		json_object_update(result.more, computed);
		json_decref(computed);
	}
	m->rows++;
	return mm_gpu_result(m->bench, &result);
}

static int rows_report(struct measuring *m, const struct mm_gpu_measurement *what)
{
	struct mm_summary summaries[MM_GPU_VALUES_MAX];
	int r = 0;

	for (uint32_t i = 0; i < MM_GPU_VALUES_MAX; i++)
		summaries[i] = mm_series_summary(&m->values[i]);
	for (uint32_t i = 0; !r && i < what->n_rows; i++) {
		const struct mm_gpu_row *row = &what->rows[i];

		if (m->values[row->figure].n && (!row->applies || row->applies(m->state)))
			r = row_report(m, what, row, summaries);
	}
	return r;
}

/* ---- cases, measurements and points ---- */

static void case_label(struct measuring *m, const struct mm_gpu_measurement *what)
{
	json_t *params = params_json(what->params, m->state);
	char text[112] = "";

	mm_gpu_params_print(params, text, sizeof(text));
	snprintf(m->label, sizeof(m->label), "%s%s",
		 what->case_name ? what->case_name(m->state) : what->name, text);
	json_decref(params);
}

static int case_measure(struct measuring *m, const struct mm_gpu_measurement *what,
			const uint32_t *at)
{
	int r;

	*m->bench->err = '\0';
	snprintf(m->label, sizeof(m->label), "%s", what->name);
	r = what->prepare ? what->prepare(m->state, at) : 0;
	if (!r) {
		case_label(m, what);
		r = rounds_run(m, what);
	}
	if (!r && what->measured)
		r = what->measured(m->state, m->values);
	return r ? r : rows_report(m, what);
}

/* Return: as a function of a statement, but a case that is skipped or does not exist is 0. */
static int case_run(struct measuring *m, const struct mm_gpu_measurement *what, const uint32_t *at)
{
	int r = case_measure(m, what, at);

	if (what->finish)
		what->finish(m->state);
	for (uint32_t i = 0; i < MM_GPU_VALUES_MAX; i++)
		mm_series_done(&m->values[i]);
	r = error_place(m, r, m->label);
	if (r == -EOPNOTSUPP) {
		m->skipped++;
		memcpy(m->why, m->bench->err, sizeof(m->why));
		mm_gpu_progress(m->bench, "skipped: %.4000s", m->why);
		return 0;
	}
	return r == MM_E_EMPTY ? 0 : r;
}

/* Goes through all combinations; the last parameter varies fastest. */
static int sweep_run(struct measuring *m, const struct mm_gpu_measurement *what)
{
	uint32_t sizes[MM_GPU_SWEEP_MAX] = { 1, 1, 1 }, at[MM_GPU_SWEEP_MAX];
	uint32_t cases = 1;
	int r = 0;

	if (what->sweep)
		what->sweep(m->state, sizes);
	for (uint32_t i = 0; i < MM_GPU_SWEEP_MAX; i++)
		cases *= sizes[i];
	for (uint32_t n = 0; !r && n < cases; n++) {
		uint32_t rest = n;

		for (uint32_t i = MM_GPU_SWEEP_MAX; i-- > 0; rest /= sizes[i])
			at[i] = rest % sizes[i];
		r = case_run(m, what, at);
	}
	return r;
}

static int point_run(struct measuring *m, uint32_t point)
{
	const struct mm_gpu_group *group = m->group;
	int r = group->enter ? group->enter(m->state, point) : 0;

	for (uint32_t i = 0; !r && group->measurements[i]; i++)
		r = sweep_run(m, group->measurements[i]);
	if (group->leave)
		group->leave(m->state);
	return r;
}

int mm_gpu_measure(struct mm_gpu_bench *bench, const struct mm_gpu_group *group)
{
	struct measuring m = { .bench = bench, .group = group };
	mm_cleanup(mm_free_ptr) void *state = calloc(1, group->state_bytes);
	uint32_t points = 1;
	int r;

	if (!state)
		return mm_gpu_fail(bench, -ENOMEM, "out of memory");
	m.state = state;
	r = group->open ? group->open(state, bench) : 0;
	if (!r && group->points)
		points = group->points(state);
	for (uint32_t i = 0; !r && i < points; i++)
		r = point_run(&m, i);
	if (group->close)
		group->close(state);
	if (!r && !m.rows && m.skipped)
		r = mm_gpu_fail(bench, -EOPNOTSUPP, "%.4000s", m.why);
	return r;
}
