/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode - the time of a step whose layers cycle, against what computation and transfer allow
 *
 * Concept:   Plans are set through mmd's admin socket; a layer's computation is a load of known
 *            duration. Before the plans of each duration, a step with no layer away gives the
 *            computation time T_c, and a bare loop of copies gives the transfer time T_t of a
 *            layer. The bound is mm_plan_set_step_ns() (Documentation/controller.md) for the set
 *            that mmd chose. It leaves out mmd's own delays, and the memory bandwidth that
 *            transfers take from computation, so both show in the ratio. If the driver has graphs,
 *            steps are also measured as one graph, which was captured once for all plans, with its
 *            gates.
 */
#include <errno.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/groups.h"

#define REPEATS_MAX     4096u /* launches of the load in a layer */
#define WARM_UP_STEPS   3u    /* until slots have the occupants of a running cycle */
#define TRANSFER_ROUNDS 3u

static const double computed_parts[] = { 1.0 / 16, 1.0 / 4, 1, 2 }; /* of a layer's transfer */

enum decode_value { STEP, BOUND, BASE, TRANSFER };

struct decode {
	struct mm_gpu_bed bed;
	struct mm_gpu_tenant tenant;
	struct mm_gpu_host host;
	struct mm_gpu_range range; /* destination of the bare loop's copies */
	struct mm_gpu_load load;
	struct mm_gpu_engine engine;
	double t_c_s, t_t_s, ratio; /* of a layer: computation, transfer; of the two */
	uint32_t point;             /* which of computed_parts */
	struct mm_series base;      /* steps with no layer away */
	uint32_t base_at;           /* the next one that is recalled, round and round */
	/* the plan of a case */
	uint32_t alpha;
	const char *graphs;
	struct mm_plan_set set;
	double last_s; /* the step before */
};

/* ---- steps ---- */

/*
 * Runs a step. Its value is the mean with the one before, because with two slots and an odd number
 * of cycling layers every second step differs.
 */
static int cycle_step(void *state, uint32_t which, double *value)
{
	struct decode *d = state;
	double step_s = 0;
	int r = mm_gpu_engine_step(&d->engine, &step_s);

	value[which] = (d->last_s + step_s) / 2;
	d->last_s = step_s;
	return r;
}

static int bound_compute(void *state, uint32_t which, double *value)
{
	struct decode *d = state;

	value[which] = 1e-9 * (double)mm_plan_set_step_ns(&d->set, d->tenant.layers,
							  (uint64_t)(d->t_c_s * 1e9),
							  (uint64_t)(d->t_t_s * 1e9));
	return 0;
}

/* Recalls the steps with no layer away that were measured before the plans. */
static int base_recall(void *state, uint32_t which, double *value)
{
	struct decode *d = state;

	value[which] = d->base.at[d->base_at++ % d->base.n];
	return 0;
}

/* The first step that counts is then compared with the first one of these. */
static void base_rewind(struct decode *d)
{
	d->base_at = (d->base.n - 1) * WARM_UP_STEPS;
}

static uint32_t decode_rounds(const void *state)
{
	const struct decode *d = state;

	return d->bed.dev.bench->sizes.steps;
}

static int plan_set(struct decode *d, uint32_t alpha, uint32_t beta)
{
	d->alpha = alpha;
	d->last_s = 0;
	d->engine.captured = false;
	base_rewind(d);
	return mm_gpu_tenant_plan(&d->tenant, alpha, beta, &d->set);
}

/* ---- a bare loop of copies, before all steps ---- */

static int transfer_prepare(void *state, const uint32_t *at)
{
	const struct decode *d = state;

	(void)at;
	return d->t_t_s > 0 ? MM_E_EMPTY : 0;
}

static int transfer_copy(void *state, uint32_t which, double *value)
{
	struct decode *d = state;

	return mm_gpu_copy_loop(&d->bed.dev, d->range.va, &d->host, d->host.bytes,
				MM_MIN(d->tenant.page_bytes, d->tenant.chunk_bytes), &value[which]);
}

static uint32_t transfer_rounds(const void *state)
{
	(void)state;
	return TRANSFER_ROUNDS;
}

static int transfer_measured(void *state, struct mm_series *values)
{
	struct decode *d = state;
	const double part = (double)d->tenant.layer_bytes / (double)d->host.bytes;

	d->t_t_s = mm_series_summary(&values[TRANSFER]).median * part;
	return 0;
}

static const struct mm_gpu_side transfer_sides[] = {
	{ "a loop of copies", TRANSFER, .run = transfer_copy },
};

static const struct mm_gpu_measurement decode_transfer = {
	.name = "transfer",
	.sides = transfer_sides,
	.n_sides = MM_ARRAY_SIZE(transfer_sides),
	.warm_up = 1,
	.rounds = transfer_rounds,
	.prepare = transfer_prepare,
	.measured = transfer_measured,
};

/* ---- steps with no layer away, before the plans ---- */

/* Sets a layer's computation to a part of its transfer, in whole launches. */
static int base_prepare(void *state, const uint32_t *at)
{
	struct decode *d = state;
	const double part = computed_parts[d->point];
	const double repeats = part * d->t_t_s / d->load.launch_s;

	(void)at;
	mm_gpu_progress(d->bed.dev.bench, "a layer computes %g of its transfer", part);
	d->load.repeats = repeats < 1             ? 1
			  : repeats > REPEATS_MAX ? REPEATS_MAX
						  : (uint32_t)(repeats + 0.5);
	mm_series_done(&d->base);
	mm_gpu_engine_drop_graph(&d->engine);
	return plan_set(d, 0, 1);
}

static int base_measured(void *state, struct mm_series *values)
{
	struct decode *d = state;

	d->t_c_s = mm_series_summary(&values[STEP]).median / d->tenant.layers;
	d->ratio = d->t_c_s / d->t_t_s;
	d->base = values[STEP];
	values[STEP] = (struct mm_series){ 0 };
	return 0;
}

static const struct mm_gpu_side base_sides[] = {
	{ "a step", STEP, .run = cycle_step },
};

static const struct mm_gpu_measurement decode_base = {
	.name = "nothing away",
	.sides = base_sides,
	.n_sides = MM_ARRAY_SIZE(base_sides),
	.warm_up = WARM_UP_STEPS,
	.rounds = decode_rounds,
	.prepare = base_prepare,
	.measured = base_measured,
};

/* ---- steps under a plan ---- */

static uint32_t alpha_at(const struct decode *d, uint32_t i)
{
	const uint32_t n = d->tenant.layers;
	const uint32_t alphas[] = { MM_MAX(n / 8, 1u), n / 4, n / 2, n - 2 };

	return alphas[i];
}

static void plans_sweep(const void *state, uint32_t *ret_sizes)
{
	(void)state;
	ret_sizes[0] = 4; /* layers away */
	ret_sizes[1] = 2; /* slots */
	ret_sizes[2] = 2; /* graphs off, and on */
}

static int plans_prepare(void *state, const uint32_t *at)
{
	struct decode *d = state;
	const bool quick = d->bed.dev.bench->opts.quick;
	const uint32_t alpha = alpha_at(d, at[0]), beta = at[1] + 1;
	int r;

	if (!d->base.n || (quick && (at[0] % 2 == 0 || beta == 1)) ||
	    (at[0] && alpha <= alpha_at(d, at[0] - 1)) ||
	    !mm_plan_possible(d->tenant.layers, alpha, beta))
		return MM_E_EMPTY;
	if (at[2] && !mm_gpu_has_graphs(&d->bed.dev.gpu))
		return MM_E_EMPTY;
	/* The plan is in force already where the same steps are now replayed as a graph. */
	r = at[2] ? 0 : plan_set(d, alpha, beta);
	d->engine.captured = at[2];
	d->graphs = at[2] ? "on" : "off";
	base_rewind(d);
	return r;
}

static const struct mm_gpu_param plans_params[] = {
	MM_GPU_PARAM("t_c/t_t", struct decode, ratio),
	MM_GPU_PARAM("away", struct decode, alpha),
	MM_GPU_PARAM("slots", struct decode, set.beta),
	MM_GPU_PARAM("cycling", struct decode, set.m),
	MM_GPU_PARAM("graphs", struct decode, graphs),
	{ 0 },
};

static const struct mm_gpu_param plans_more[] = {
	MM_GPU_PARAM("t_c_s", struct decode, t_c_s),
	MM_GPU_PARAM("t_t_s", struct decode, t_t_s),
	MM_GPU_PARAM("layers", struct decode, tenant.layers),
	{ 0 },
};

/* A plan whose transfers are hidden shows the bandwidth that they take from computation. */
static bool plan_is_hidden(const void *state)
{
	const struct decode *d = state;

	return mm_plan_hidden(&d->set, d->tenant.layers, (uint64_t)(d->t_c_s * 1e9),
			      (uint64_t)(d->t_t_s * 1e9));
}

static const struct mm_gpu_side plans_sides[] = {
	{ "a step", STEP, .run = cycle_step },
	{ "the bound", BOUND, .run = bound_compute },
	{ "the step with nothing away", BASE, .run = base_recall },
};

static const struct mm_gpu_row plans_rows[] = {
	{ "step", "a step under a plan", MM_GPU_SECONDS, STEP, .reference = BOUND,
	  .reference_name = "the bound by computation and transfer",
	  .goal = { MM_GOAL_AT_MOST, 1.05 }, .more = plans_more },
	{ "step_hidden", "the same, where the bound says that streaming costs no time",
	  MM_GPU_SECONDS, STEP, .reference = BASE,
	  .reference_name = "the same step with nothing away", .applies = plan_is_hidden },
};

static const struct mm_gpu_measurement decode_plans = {
	.name = "step",
	MM_GPU_STATEMENT(plans_sides, plans_rows),
	.warm_up = WARM_UP_STEPS,
	.rounds = decode_rounds,
	.sweep = plans_sweep,
	.prepare = plans_prepare,
	.params = plans_params,
};

/* ---- steps with no layer away again, to show how much the device itself has drifted ---- */

static int drift_prepare(void *state, const uint32_t *at)
{
	struct decode *d = state;

	(void)at;
	return d->base.n ? plan_set(d, 0, 1) : MM_E_EMPTY;
}

static const struct mm_gpu_param drift_params[] = {
	MM_GPU_PARAM("t_c/t_t", struct decode, ratio),
	{ 0 },
};

static const struct mm_gpu_side drift_sides[] = {
	{ "a step", STEP, .run = cycle_step },
	{ "the step before the plans", BASE, .run = base_recall },
};

static const struct mm_gpu_row drift_rows[] = {
	{ "drift", "a step with nothing away, behind the plans", MM_GPU_SECONDS, STEP,
	  .reference = BASE, .reference_name = "steps with nothing away, before the plans" },
};

static const struct mm_gpu_measurement decode_drift = {
	.name = "drift",
	MM_GPU_STATEMENT(drift_sides, drift_rows),
	.warm_up = WARM_UP_STEPS,
	.rounds = decode_rounds,
	.prepare = drift_prepare,
	.params = drift_params,
};

/* ---- the group: its points are durations of a layer's computation ---- */

static uint32_t decode_points(const void *state)
{
	const struct decode *d = state;
	const uint32_t n = MM_ARRAY_SIZE(computed_parts);

	return d->bed.dev.bench->opts.quick ? n / 2 : n;
}

static int decode_enter(void *state, uint32_t point)
{
	struct decode *d = state;

	d->point = d->bed.dev.bench->opts.quick ? 2 * point + 1 : point;
	return 0;
}

static int decode_open(void *state, struct mm_gpu_bench *bench)
{
	struct decode *d = state;
	const struct mm_gpu_sizes *sizes = &bench->sizes;
	int r = mm_gpu_bed_open(&d->bed, bench);

	if (!r)
		r = mm_gpu_load_open(&d->load, &d->bed.module, sizes->load_bytes, 0);
	if (!r)
		r = mm_gpu_host_open(&d->bed.dev, sizes->copied_bytes / 4, &d->host);
	if (!r)
		r = mm_gpu_range_open(&d->bed.dev, d->host.bytes, 0, &d->range);
	if (!r)
		r = mm_gpu_tenant_start(&d->tenant, &d->bed.dev, 0);
	if (!r)
		r = mm_gpu_engine_open(&d->engine, &d->tenant);
	d->engine.load = &d->load;
	return r;
}

static void decode_close(void *state)
{
	struct decode *d = state;

	mm_gpu_engine_close(&d->engine);
	mm_gpu_tenant_close(&d->tenant);
	mm_gpu_range_close(&d->bed.dev, &d->range);
	mm_gpu_host_close(&d->bed.dev, &d->host);
	mm_gpu_load_close(&d->load);
	mm_gpu_bed_close(&d->bed);
	mm_series_done(&d->base);
}

const struct mm_gpu_group mm_gpu_decode = {
	.name = "decode",
	.what = "steps whose layers cycle, against max(computation, transfer)",
	.state_bytes = sizeof(struct decode),
	.open = decode_open,
	.close = decode_close,
	.points = decode_points,
	.enter = decode_enter,
	.measurements =
		(const struct mm_gpu_measurement *const[]){ &decode_transfer, &decode_base,
							    &decode_plans, &decode_drift, NULL },
};
