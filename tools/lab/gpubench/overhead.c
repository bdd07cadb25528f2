/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overhead - the cost of memory from mmd for an engine, while nothing is remapped
 *
 * Concept:   mmserve serves the same requests alternately with memory of its own (--plain:
 *            cuMemAlloc()) and with mmd's, whose KV share has room for all of them. The median time
 *            from one token of a sequence to the next is compared, by the device's clock.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/common/footprint.h"
#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/groups.h"

#define ARGS_MAX 40
#define POLL_MS  5

struct overhead {
	struct mm_gpu_bench *bench;
	struct mm_bench_mmd mmd;
	char model[PATH_MAX], trace[PATH_MAX + 32], errors[PATH_MAX + 32];
	uint64_t share_bytes, pool_bytes;
	bool has_graphs; /* the driver has them */
	const char *graphs;
	uint32_t batch;
};

enum overhead_side { ON_MMD, PLAIN, SIDES };

/* The values of each kind are by side. */
enum overhead_value { STEP, GAP = STEP + SIDES };

/* ---- one run ---- */

static void add_args(const struct overhead *o, bool plain, char **argv)
{
	size_t n = 0;

	while (argv[n])
		n++;
	if (plain) {
		argv[n++] = "--plain";
	} else {
		argv[n++] = "--socket";
		argv[n++] = (char *)o->mmd.socket;
	}
	argv[n++] = "--graphs";
	argv[n++] = (char *)o->graphs;
	if (o->bench->opts.kernels) {
		argv[n++] = "--kernels";
		argv[n++] = (char *)o->bench->opts.kernels;
	}
	argv[n] = NULL;
}

/* Reads the summary, which is mmserve's last line on stdout. */
static int summary_read(struct overhead *o, struct mm_child *child, json_t **ret_summary)
{
	const uint64_t deadline_ns = mm_now_ns() + MM_GPU_TIMEOUT_NS;
	char line[MM_CHILD_LINE_BYTES], how[64], words[1024];
	int got;

	*ret_summary = NULL;
	while ((got = mm_child_line(child, line, sizeof(line))) >= 0) {
		if (got) {
			json_decref(*ret_summary);
			*ret_summary = json_loads(line, 0, NULL);
			continue;
		}
		if (mm_now_ns() > deadline_ns)
			return mm_gpu_fail(o->bench, -ETIMEDOUT, "mmserve does not end in time");
		if (mm_bench_mmd_pause(&o->mmd, POLL_MS, o->bench->err))
			return -ECHILD;
	}
	if (!mm_child_wait(child, deadline_ns) || child->status || !*ret_summary)
		return mm_gpu_fail(o->bench, -ECHILD, "mmserve failed (%s): %s",
				   mm_child_how(child, how, sizeof(how)),
				   mm_child_last_words(child, words, sizeof(words)));
	return 0;
}

static int mmserve_run(struct overhead *o, bool plain, json_t **ret_summary)
{
	struct mm_gpu_bench *b = o->bench;
	char program[PATH_MAX + 16], device[16], share[32], batch[16];
	char *argv[ARGS_MAX] = {
		program,          "--model",    o->model,  "--driver",   (char *)b->opts.driver,
		"--device",       device,       "--trace", o->trace,     "--ignore-arrivals",
		"--device-times", "--kv-dtype", "f16",     "--kv-share", share,
		"--max-batch",    batch,        "--json"
	};
	struct mm_child child = { .name = "mmserve", .err_path = o->errors };
	int r;

	snprintf(program, sizeof(program), "%s/mmserve", b->bin_dir);
	snprintf(device, sizeof(device), "%u", b->opts.device);
	snprintf(share, sizeof(share), "%" PRIu64, o->share_bytes);
	snprintf(batch, sizeof(batch), "%u", b->sizes.requests);
	add_args(o, plain, argv);
	r = mm_child_start(&child, argv);
	if (r)
		return mm_gpu_fail(b, r, "cannot start mmserve: %s", strerror(-r));
	r = summary_read(o, &child, ret_summary);
	mm_child_done(&child);
	return r;
}

static int requests_serve(void *state, uint32_t which, double *value)
{
	struct overhead *o = state;
	json_t *summary;
	int r = mmserve_run(o, which == PLAIN, &summary);

	if (!r && json_integer_value(json_object_get(summary, "layers_remapped_max")))
		r = mm_gpu_fail(o->bench, -EBUSY, "layers were remapped: the share was too small");
	if (!r && json_integer_value(json_object_get(summary, "refused")))
		r = mm_gpu_fail(o->bench, -ENOSPC, "requests were refused");
	value[STEP + which] = json_number_value(json_object_get(summary, "tbt_p50_s"));
	value[GAP + which] = json_number_value(json_object_get(summary, "gap_p50_s"));
	json_decref(summary);
	return r;
}

/* ---- the statement ---- */

static void overhead_sweep(const void *state, uint32_t *ret_sizes)
{
	const struct overhead *o = state;

	ret_sizes[0] = o->has_graphs ? 2 : 1;
}

static int overhead_prepare(void *state, const uint32_t *at)
{
	struct overhead *o = state;

	o->graphs = at[0] ? "on" : "off";
	return 0;
}

static uint32_t overhead_rounds(const void *state)
{
	const struct overhead *o = state;

	return o->bench->sizes.serve_repeat;
}

static const struct mm_gpu_param overhead_params[] = {
	MM_GPU_PARAM("graphs", struct overhead, graphs),
	MM_GPU_PARAM("batch", struct overhead, batch),
	{ 0 },
};

static const struct mm_gpu_param gap_params[] = {
	MM_GPU_PARAM("graphs", struct overhead, graphs),
	{ 0 },
};

static const struct mm_gpu_side overhead_sides[] = {
	{ "mmserve on mmd's memory", ON_MMD, .run = requests_serve },
	{ "mmserve --plain", PLAIN, .run = requests_serve },
};

static const struct mm_gpu_row overhead_rows[] = {
	{ "token_to_token",
	  "from a sequence's token to its next, on mmd's memory with nothing remapped",
	  MM_GPU_SECONDS, STEP + ON_MMD, .reference = STEP + PLAIN,
	  .reference_name = "mmserve --plain", .goal = { MM_GOAL_AT_MOST, 1.01 } },
	{ "between_steps", "of it, from the end of a step to the beginning of the next",
	  MM_GPU_SECONDS, GAP + ON_MMD, .reference = GAP + PLAIN,
	  .reference_name = "mmserve --plain", .params = gap_params },
};

/* The order of the two alternates, as the second run finds warm caches. */
static const struct mm_gpu_measurement overhead_serving = {
	.name = "serving",
	MM_GPU_STATEMENT(overhead_sides, overhead_rows),
	.rounds = overhead_rounds,
	.alternates = true,
	.sweep = overhead_sweep,
	.prepare = overhead_prepare,
	.params = overhead_params,
};

/* ---- what is served ---- */

static int requests_write(struct overhead *o)
{
	const struct mm_gpu_sizes *s = &o->bench->sizes;
	FILE *file;

	snprintf(o->trace, sizeof(o->trace), "%s/overhead.csv", o->bench->work_dir);
	snprintf(o->errors, sizeof(o->errors), "%s/mmserve.log", o->bench->work_dir);
	file = fopen(o->trace, "we");
	if (!file)
		return mm_gpu_fail(o->bench, -errno, "%s: %m", o->trace);
	fputs("arrival_s,prompt_tokens,output_tokens\n", file);
	for (uint32_t i = 0; i < s->requests; i++)
		fprintf(file, "0,%u,%u\n", s->prompt_tokens, s->output_tokens);
	return fclose(file) ? mm_gpu_fail(o->bench, -EIO, "%s: %m", o->trace) : 0;
}

static int choose_model(struct overhead *o)
{
	struct mm_gpu_bench *b = o->bench;
	const uint64_t page = UINT64_C(2) << 20;
	const uint64_t tokens = (uint64_t)b->sizes.requests *
				(b->sizes.prompt_tokens + b->sizes.output_tokens + 32);
	struct mm_arch arch = { .layers = b->sizes.served.layers,
				.kv_heads = b->sizes.served.heads,
				.head_dim = b->sizes.served.hidden / b->sizes.served.heads };
	uint64_t weights = mm_gpu_shape_bytes(&b->sizes.served), pages;
	int r = 0;

	if (b->opts.model) {
		snprintf(o->model, sizeof(o->model), "%s", b->opts.model);
		r = mm_config_load(o->model, &arch, b->err);
		if (!r)
			r = mm_footprint(o->model, page, &pages, b->err, sizeof(b->err));
		weights = r ? 0 : pages * page;
	} else {
		r = mm_gpu_model(b, &b->sizes.served, "served", o->model);
	}
	/* A chunk has the size of a page, and each sequence may leave most of one empty. */
	o->share_bytes = tokens * 4 * arch.layers * arch.kv_heads * arch.head_dim +
			 b->sizes.pages[b->sizes.n_pages - 1] * b->sizes.requests;
	o->pool_bytes = weights + weights / 4 + 2 * o->share_bytes + b->sizes.pool_bytes;
	return r;
}

/* Checks for the module of kernels, without which mmserve cannot run. */
static int look_for_kernels(struct mm_gpu_bench *bench, bool *ret_graphs)
{
	struct mm_gpu_bed bed = { 0 };
	int r = mm_gpu_bed_open(&bed, bench);

	*ret_graphs = !r && mm_gpu_has_graphs(&bed.dev.gpu);
	mm_gpu_bed_close(&bed);
	return r;
}

static int overhead_open(void *state, struct mm_gpu_bench *bench)
{
	struct overhead *o = state;
	int r = look_for_kernels(bench, &o->has_graphs);

	o->bench = bench;
	o->batch = bench->sizes.requests;
	if (!r)
		r = choose_model(o);
	if (!r)
		r = requests_write(o);
	return r ? r : mm_gpu_daemon_start(bench, &o->mmd, 0, o->pool_bytes);
}

static void overhead_close(void *state)
{
	struct overhead *o = state;

	mm_bench_mmd_stop(&o->mmd);
}

const struct mm_gpu_group mm_gpu_overhead = {
	.name = "overhead",
	.what = "an engine with nothing remapped, against itself on plain allocations",
	.state_bytes = sizeof(struct overhead),
	.open = overhead_open,
	.close = overhead_close,
	.measurements = (const struct mm_gpu_measurement *const[]){ &overhead_serving, NULL },
};
