/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/support/cleanup.h"
#include "mmd/config/config.h"
#include "tools/lab/common/device.h"
#include "tools/lab/common/dirs.h"
#include "tools/lab/common/footprint.h"
#include "tools/lab/common/procs.h"
#include "tools/lab/mmbench/report.h"

#define START_NS (120 * MM_NS_PER_S)  /* to load all models; generous: sanitizers, two cores */
#define LARGE_NS (1800 * MM_NS_PER_S) /* the same on hardware, where a model may be tens of GB */
#define SERVE_NS (1800 * MM_NS_PER_S)

/* Memory of the software GPU that mmd leaves to contexts and workspaces, as it does on hardware. */
#define HEADROOM_BYTES (UINT64_C(64) << 20)

struct bench {
	struct mm_bench_opts opts;
	struct mm_trace trace;
	struct mm_run_plan plan;
	uint64_t kv_share_bytes;
	struct mm_run_result result[MM_POLICY_COUNT]; /* the run of median throughput */
	struct mm_run_result first; /* the run that all others are compared with */
	bool have_first;
	uint64_t token_mismatches, checksum_failures;
	char work_dir[PATH_MAX], bin_dir[PATH_MAX];
	int signals;
};

static void bench_done(struct bench *bench)
{
	for (size_t i = 0; i < MM_POLICY_COUNT; i++)
		mm_run_result_done(&bench->result[i]);
	mm_run_result_done(&bench->first);
	mm_trace_done(&bench->trace);
	mm_close_fd(&bench->signals);
	if (*bench->work_dir && !bench->opts.keep_dir)
		mm_work_dir_remove(bench->work_dir);
}

static void bench_put(struct bench **bench)
{
	if (*bench)
		bench_done(*bench);
	free(*bench);
}

static int make_trace(struct bench *bench)
{
	char why[PATH_MAX + 200] = "out of memory";
	int r = bench->opts.trace_path ? mm_trace_read(bench->opts.trace_path, &bench->opts.shape,
						       &bench->trace, why, sizeof(why))
				       : mm_trace_synthesize(&bench->opts.shape, &bench->trace);

	if (r) {
		fprintf(stderr, "mmbench: %s\n", why);
		return r;
	}
	for (uint32_t t = 0; t < bench->opts.shape.tenants; t++) {
		if (mm_trace_rows(&bench->trace, t))
			continue;
		fprintf(stderr,
			"mmbench: the trace has no request for tenant %u of %u; use a longer "
			"one, or a longer --duration\n",
			t, bench->opts.shape.tenants);
		return -EINVAL;
	}
	return 0;
}

/* Sums up, per device, the pages of the tenants' weights, and the number of tenants. */
static int weights_per_device(const struct mm_bench_opts *opts, uint64_t *weights,
			      uint64_t *tenants)
{
	char why[PATH_MAX + 400] = "out of memory";

	for (uint32_t t = 0; t < opts->shape.tenants; t++) {
		uint64_t pages;
		int r = mm_footprint(opts->model[t], opts->page_bytes, &pages, why, sizeof(why));

		if (r) {
			fprintf(stderr, "mmbench: %s\n", why);
			return r;
		}
		weights[t % opts->devices] += pages;
		tenants[t % opts->devices]++;
	}
	return 0;
}

static int size_pool(struct bench *bench)
{
	const struct mm_bench_opts *opts = &bench->opts;
	uint64_t weights[MM_BENCH_DEVICES_MAX] = { 0 }, tenants[MM_BENCH_DEVICES_MAX] = { 0 };
	uint64_t pool = opts->pool_bytes / opts->page_bytes, kv_pages = UINT64_MAX;
	int r = weights_per_device(opts, weights, tenants);

	if (r)
		return r;
	for (uint32_t d = 0; !opts->pool_bytes && d < opts->devices; d++)
		pool = MM_MAX(pool, weights[d] * 8 / 5);
	for (uint32_t d = 0; d < opts->devices; d++) {
		uint64_t each = pool > weights[d] ? (pool - weights[d]) / tenants[d] : 0;

		kv_pages = MM_MIN(kv_pages, each);
		if (each)
			continue;
		fprintf(stderr,
			"mmbench: --pool: the weights on device %u take %" PRIu64
			" pages of %" PRIu64 ", which leaves no KV page for each of %" PRIu64
			" tenants\n",
			d, weights[d], pool, tenants[d]);
		return -ENOSPC;
	}
	bench->plan.pool_bytes = pool * opts->page_bytes;
	bench->kv_share_bytes =
		opts->kv_share_bytes ? opts->kv_share_bytes : kv_pages * opts->page_bytes;
	return 0;
}

static int serve_write_trace(const void *user, uint32_t tenant, const char *path)
{
	return mm_trace_write(user, tenant, path);
}

static void serve_make_plan(struct bench *bench)
{
	const struct mm_bench_opts *opts = &bench->opts;
	struct mm_run_plan *plan = &bench->plan;

	plan->work_dir = bench->work_dir;
	plan->bin_dir = bench->bin_dir;
	plan->signals = bench->signals;
	plan->page_bytes = plan->granularity_bytes = opts->page_bytes;
	plan->slots = opts->slots;
	plan->devices = opts->devices;
	plan->block_tokens = opts->block_tokens;
	plan->batch_max = opts->batch_max;
	plan->batched_tokens_max = opts->batched_tokens_max;
	plan->mmd = opts->mmd;
	plan->mmserve = opts->mmserve;
	plan->verify = opts->verify;
	plan->tenants = opts->shape.tenants;
	for (uint32_t t = 0; t < plan->tenants; t++)
		plan->tenant[t] = (struct mm_run_tenant){ .model = opts->model[t],
							  .kv_share_bytes = bench->kv_share_bytes,
							  .seed = opts->shape.seed + t,
							  .device = t % opts->devices };
	plan->write_trace = serve_write_trace;
	plan->user = &bench->trace;
	plan->headroom_bytes = HEADROOM_BYTES;
	plan->driver = opts->driver;
	plan->start_ns = mm_device_is_software(opts->driver) ? START_NS : LARGE_NS;
	plan->serve_ns = SERVE_NS;
}

static int bench_prepare(struct bench *bench)
{
	int r = mm_bin_dir(bench->bin_dir);

	if (!r)
		r = make_trace(bench);
	if (!r)
		r = size_pool(bench);
	if (!r)
		r = mm_work_dir_make(bench->opts.keep_dir, bench->work_dir);
	if (r)
		return r;
	bench->signals = mm_signals_open();
	if (bench->signals < 0)
		return bench->signals;
	serve_make_plan(bench);
	return 0;
}

static int by_throughput(const void *a, const void *b)
{
	return mm_double_compare(&((const struct mm_run_result *)a)->latency.throughput_tok_s,
				 &((const struct mm_run_result *)b)->latency.throughput_tok_s);
}

/* Compares a run's tokens with those of the very first run, then frees them unless it is that. */
static void tokens_compare(struct bench *bench, struct mm_run_result *run)
{
	bench->checksum_failures += run->checksum_failures;
	if (bench->have_first) {
		bench->token_mismatches +=
			mm_results_mismatches(&bench->first.results, &run->results);
		mm_run_result_done(run);
		return;
	}
	bench->first = *run;
	bench->have_first = true;
	/* Compared with itself, so that missing tokens count even if it is the only run. */
	bench->token_mismatches +=
		mm_results_mismatches(&bench->first.results, &bench->first.results);
	run->results = (struct mm_results){ 0 };
}

static int run_policy(struct bench *bench, uint32_t index)
{
	mm_cleanup(mm_free_ptr) struct mm_run_result *runs =
		calloc(bench->opts.repeat, sizeof(*runs));

	if (!runs)
		return -ENOMEM;
	for (uint32_t i = 0; i < bench->opts.repeat; i++) {
		int r;

		fprintf(stderr, "mmbench: %s, run %u of %u\n",
			mm_policy_name(bench->opts.policy[index]), i + 1, bench->opts.repeat);
		bench->plan.policy = bench->opts.policy[index];
		bench->plan.label = mm_policy_name(bench->plan.policy);
		bench->plan.index = i;
		r = mm_run(&bench->plan, &runs[i]);
		if (r)
			return r;
		tokens_compare(bench, &runs[i]);
	}
	qsort(runs, bench->opts.repeat, sizeof(*runs), by_throughput);
	bench->result[index] = runs[mm_percentile_rank(bench->opts.repeat, 50) - 1];
	return 0;
}

static int bench_report(struct bench *bench)
{
	struct mm_report report = {
		.result = bench->result,
		.token_mismatches = bench->token_mismatches,
		.checksum_failures = bench->checksum_failures,
		.opts = &bench->opts,
		.pool_bytes = bench->plan.pool_bytes,
		.kv_share_bytes = bench->kv_share_bytes,
	};

	mm_report_table(&report);
	return mm_report_end(bench->opts.json ? mm_report_json(&report) : 0);
}

int mm_bench_serve(const struct mm_bench_opts *opts)
{
	mm_cleanup(bench_put) struct bench *bench = calloc(1, sizeof(*bench));
	int r;

	if (!bench) {
		fputs("mmbench: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	bench->signals = -1;
	bench->opts = *opts;
	r = bench_prepare(bench);
	for (uint32_t i = 0; !r && i < bench->opts.n_policies; i++)
		r = run_policy(bench, i);
	if (!r)
		r = bench_report(bench);
	return r || bench->token_mismatches || bench->checksum_failures ? MM_EXIT_FAILED
									: MM_EXIT_DONE;
}
