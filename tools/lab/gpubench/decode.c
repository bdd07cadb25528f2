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
#include "tools/lab/gpubench/parts.h"

#define REPEATS_MAX 4096u /* launches of the load in a layer */

struct decode {
	struct mm_gpu_bench *bench;
	struct mm_gpu_dev dev;
	struct mm_gpu_tenant tenant;
	struct mm_gpu_host host;
	struct mm_gpu_range range; /* destination of the bare loop's copies */
	struct mm_gpu_module module;
	struct mm_gpu_load load;
	struct mm_gpu_engine engine;
	double t_c_s, t_t_s;
	struct mm_series base; /* steps with no layer away */
};

/* ---- what is known of the device ---- */

static int measure_transfer(struct decode *d)
{
	const uint64_t piece = MM_MIN(d->tenant.page_bytes, d->tenant.chunk_bytes);
	struct mm_series rates = { 0 };
	int r = 0;

	for (uint32_t i = 0; !r && i <= 3; i++) {
		double took_s = 0;

		r = mm_gpu_copy_loop(&d->dev, d->range.va, &d->host, d->host.bytes, piece, &took_s);
		if (i)
			mm_series_add(&rates, (double)d->host.bytes / took_s);
	}
	d->t_t_s = (double)d->tenant.layer_bytes / mm_series_summary(&rates).median;
	mm_series_done(&rates);
	return r;
}

/* Sets a layer's computation to @part of its transfer, in whole launches, and measures it. */
static int measure_compute(struct decode *d, double part)
{
	const double repeats = part * d->t_t_s / d->load.launch_s;
	struct mm_plan_set set;
	int r = mm_gpu_tenant_plan(&d->tenant, 0, 1, &set);

	d->load.repeats = repeats < 1             ? 1
			  : repeats > REPEATS_MAX ? REPEATS_MAX
						  : (uint32_t)(repeats + 0.5);
	mm_series_done(&d->base);
	mm_gpu_engine_drop_graph(&d->engine);
	d->engine.captured = false;
	if (!r)
		r = mm_gpu_engine_steps(&d->engine, d->bench->sizes.steps, &d->base);
	d->t_c_s = mm_series_summary(&d->base).median / d->tenant.layers;
	return r;
}

/* ---- plans ---- */

static json_t *plan_params(const struct decode *d, uint32_t alpha, const struct mm_plan_set *set)
{
	return json_pack("{s:f,s:i,s:i,s:i,s:s}", "t_c/t_t", d->t_c_s / d->t_t_s, "away",
			 (int)alpha, "slots", (int)set->beta, "cycling", (int)set->m, "graphs",
			 d->engine.captured ? "on" : "off");
}

static int plan_report(struct decode *d, uint32_t alpha, const struct mm_plan_set *set,
		       const struct mm_series *figure, const struct mm_series *bound)
{
	const struct mm_gpu_result step = {
		.name = "step",
		.unit = "s",
		.figure = figure,
		.reference = bound,
		.reference_name = "the bound by computation and transfer",
		.goal = { MM_GOAL_AT_MOST, 1.05 },
		.params = plan_params(d, alpha, set),
		.more = json_pack("{s:f,s:f,s:i}", "t_c_s", d->t_c_s, "t_t_s", d->t_t_s, "layers",
				  (int)d->tenant.layers),
	};
	const struct mm_gpu_result beside = {
		.name = "step_hidden",
		.unit = "s",
		.figure = figure,
		.reference = &d->base,
		.reference_name = "the same step with nothing away",
		.params = plan_params(d, alpha, set),
	};
	const bool hidden = mm_plan_hidden(set, d->tenant.layers, (uint64_t)(d->t_c_s * 1e9),
					   (uint64_t)(d->t_t_s * 1e9));
	int r = mm_gpu_result(d->bench, &step);

	/* A plan whose transfers are hidden shows the bandwidth that they take from computation. */
	if (!r && hidden)
		return mm_gpu_result(d->bench, &beside);
	json_decref(beside.params);
	return r;
}

static int measure_steps(struct decode *d, uint32_t alpha, const struct mm_plan_set *set)
{
	const double bound_s = 1e-9 * (double)mm_plan_set_step_ns(set, d->tenant.layers,
								  (uint64_t)(d->t_c_s * 1e9),
								  (uint64_t)(d->t_t_s * 1e9));
	struct mm_series figure = { 0 }, bound = { 0 };
	int r = mm_gpu_engine_steps(&d->engine, d->bench->sizes.steps, &figure);

	for (uint32_t i = 0; !r && i < figure.n; i++)
		mm_series_add(&bound, bound_s);
	if (!r)
		r = plan_report(d, alpha, set, &figure, &bound);
	mm_series_done(&figure);
	mm_series_done(&bound);
	return r;
}

static int measure_plan(struct decode *d, uint32_t alpha, uint32_t beta)
{
	struct mm_plan_set set;
	int r = mm_gpu_tenant_plan(&d->tenant, alpha, beta, &set);

	d->engine.captured = false;
	if (!r)
		r = measure_steps(d, alpha, &set);
	d->engine.captured = mm_gpu_has_graphs(&d->dev.gpu);
	if (!r && d->engine.captured)
		r = measure_steps(d, alpha, &set);
	return r;
}

static int measure_plans(struct decode *d)
{
	const uint32_t n = d->tenant.layers;
	const uint32_t alphas[] = { MM_MAX(n / 8, 1u), n / 4, n / 2, n - 2 };
	const bool quick = d->bench->opts.quick;
	int r = 0;

	for (size_t i = quick ? 1 : 0; !r && i < MM_ARRAY_SIZE(alphas); i += quick ? 2 : 1)
		for (uint32_t beta = quick ? 2 : 1; !r && beta <= 2; beta++)
			if ((!i || alphas[i] > alphas[i - 1]) &&
			    mm_plan_possible(n, alphas[i], beta))
				r = measure_plan(d, alphas[i], beta);
	return r;
}

/* Measures steps with no layer away again, to show how much the device itself has drifted. */
static int measure_drift(struct decode *d)
{
	struct mm_series again = { 0 };
	const struct mm_gpu_result drift = {
		.name = "drift",
		.unit = "s",
		.figure = &again,
		.reference = &d->base,
		.reference_name = "steps with nothing away, before the plans",
		.params = json_pack("{s:f}", "t_c/t_t", d->t_c_s / d->t_t_s),
	};
	struct mm_plan_set set;
	int r = mm_gpu_tenant_plan(&d->tenant, 0, 1, &set);

	d->engine.captured = false;
	if (!r)
		r = mm_gpu_engine_steps(&d->engine, d->bench->sizes.steps, &again);
	if (!r)
		r = mm_gpu_result(d->bench, &drift);
	else
		json_decref(drift.params);
	mm_series_done(&again);
	return r;
}

static int plans_measure(struct decode *d)
{
	static const double parts[] = { 1.0 / 16, 1.0 / 4, 1, 2 };
	int r = measure_transfer(d);

	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(parts); i++) {
		if (d->bench->opts.quick && i % 2 == 0)
			continue;
		mm_gpu_progress(d->bench, "a layer computes %g of its transfer", parts[i]);
		r = measure_compute(d, parts[i]);
		if (!r)
			r = measure_plans(d);
		if (!r)
			r = measure_drift(d);
	}
	return r;
}

/* ---- all of it ---- */

static int decode_prepare(struct decode *d)
{
	const struct mm_gpu_sizes *sizes = &d->bench->sizes;
	int r = mm_gpu_dev_open(&d->dev, d->bench);

	if (!r)
		r = mm_gpu_module_open(&d->module, &d->dev);
	if (!r)
		r = mm_gpu_load_open(&d->load, &d->module, sizes->load_bytes, 0);
	if (!r)
		r = mm_gpu_host_open(&d->dev, sizes->copied_bytes / 4, &d->host);
	if (!r)
		r = mm_gpu_range_open(&d->dev, d->host.bytes, 0, &d->range);
	if (!r)
		r = mm_gpu_tenant_open(&d->tenant, &d->dev, &d->dev.gpu, 0,
				       mm_gpu_tenant_pool(d->bench));
	if (!r)
		r = mm_gpu_tenant_load(&d->tenant);
	if (!r)
		r = mm_gpu_engine_open(&d->engine, &d->tenant);
	d->engine.load = &d->load;
	return r;
}

int mm_gpu_decode_run(struct mm_gpu_bench *bench)
{
	struct decode d = { .bench = bench };
	int r = decode_prepare(&d);

	if (!r)
		r = plans_measure(&d);
	mm_gpu_engine_close(&d.engine);
	mm_gpu_tenant_close(&d.tenant);
	mm_gpu_range_close(&d.dev, &d.range);
	mm_gpu_host_close(&d.dev, &d.host);
	mm_gpu_load_close(&d.load);
	mm_gpu_module_close(&d.module);
	mm_gpu_dev_close(&d.dev);
	mm_series_done(&d.base);
	return r;
}
