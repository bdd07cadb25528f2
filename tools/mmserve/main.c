/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmserve, the reference tenant: opens everything that the options name, lets the engine serve, and
 * writes the summary.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"
#include "libclient/support/options.h"
#include "tools/mmserve/engine/check.h"
#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/engine.h"
#include "tools/mmserve/engine/module.h"
#include "tools/mmserve/engine/options.h"
#include "tools/mmserve/engine/packs.h"
#include "tools/mmserve/engine/print.h"
#include "tools/mmserve/engine/progress.h"
#include "tools/mmserve/speak.h"

static volatile sig_atomic_t stop_requested;

struct serve { /* zeroed: there is nothing to close */
	struct mm_serve_options o;
	struct mm_arch arch;
	struct mm_requests requests;
	struct mm_gpu_api gpu;
	CUdevice device;
	bool context;
	struct mm_memory memory;
	struct mm_serve_packs packs;
	struct mm_weights weights;
	struct mm_engine engine;
	struct mm_speak speak;
	FILE *out;
	struct mm_progress progress;
	char err[MM_SERVE_ERROR_BYTES];
};

static void mmserve_on_signal(int signal)
{
	(void)signal;
	stop_requested = 1;
}

static void serve_done(struct serve *s)
{
	mm_progress_stop(&s->progress);
	mm_speak_close(&s->speak);
	mm_engine_done(&s->engine);
	mm_weights_done(&s->weights);
	mm_memory_close(&s->memory);
	if (s->context)
		s->gpu.cuDevicePrimaryCtxRelease(s->device);
	if (s->gpu.library)
		mm_gpu_close(&s->gpu);
	mm_requests_done(&s->requests);
	if (s->out)
		fclose(s->out);
}

static int mmserve_fail(struct serve *s, int status)
{
	mm_progress_stop(&s->progress);
	fprintf(stderr, "mmserve: %s\n", s->err);
	return status;
}

static int read_requests(struct serve *s)
{
	const struct mm_serve_options *o = &s->o;
	const struct mm_requests_opts opts = {
		.seed = o->seed,
		.vocab = o->vocab_limit ? MM_MIN(o->vocab_limit, s->arch.vocab) : s->arch.vocab,
		.limit = o->limit,
		.max_prompt = o->max_prompt,
		.max_output = o->max_output,
		.at_once = o->ignore_arrivals,
	};

	if (o->listen)
		return mm_speak_open(&s->speak, o, &s->arch, s->err);
	return mm_requests_read(o->trace ? o->trace : o->requests, o->trace != NULL, &opts,
				&s->requests, s->err);
}

static int open_output(struct serve *s)
{
	if (!s->o.output)
		return 0;
	s->out = fopen(s->o.output, "we");
	if (s->out)
		return 0;
	snprintf(s->err, sizeof(s->err), "%.4000s: %s", s->o.output, strerror(errno));
	return -errno;
}

static int open_gpu(struct serve *s)
{
	CUcontext context;
	CUresult r;

	if (mm_gpu_open(s->o.driver, &s->gpu, s->err, sizeof(s->err)) ||
	    mm_gpu_init(&s->gpu, s->err, sizeof(s->err)))
		return -ENODEV;
	r = s->gpu.cuDeviceGet(&s->device, (int)MM_MIN(s->o.device, (uint32_t)INT32_MAX));
	if (!r)
		r = s->gpu.cuDevicePrimaryCtxRetain(&context, s->device);
	if (!r) {
		s->context = true;
		r = s->gpu.cuCtxSetCurrent(context);
	}
	if (r)
		snprintf(s->err, sizeof(s->err), "cannot use the device: %s",
			 mm_gpu_strerror(&s->gpu, r));
	return mm_gpu_errno(r);
}

/* Return: 0, or the status to exit with. */
static int open_memory(struct serve *s)
{
	const struct mm_client_opts opts = {
		.size = sizeof(opts),
		.socket_path = s->o.socket,
		.name = s->o.name,
		.gpu = &s->gpu,
		.device = s->device,
	};
	const struct mm_model_opts *packed = s->o.fused ? &s->packs.opts : NULL;
	const struct mm_turn_opts turns = { .size = sizeof(turns),
					    .mode = (enum mm_turn_mode)s->o.turn_mode,
					    .priority = s->o.turn_priority,
					    .quantum_ns = s->o.turn_quantum_ms * MM_NS_PER_MS };
	bool reachable = true;
	int r;

	mm_serve_packs_make(&s->arch, &s->packs);
	if (s->o.plain)
		r = mm_memory_plain_open(&s->gpu, s->o.model, packed, &s->memory, s->err);
	else
		r = mm_memory_mmd_open(&opts, s->o.model, packed, &s->memory, &reachable, s->err);
	if (!r && turns.mode != MM_TURN_NONE)
		r = mm_memory_mmd_take_turns(&s->memory, &turns, s->err);
	if (!r)
		return 0;
	return reachable ? MM_EXIT_FAILED : MM_EXIT_UNREACHABLE;
}

/*
 * By default graphs are used only on a CUDA device: on the software GPU launches cost nothing, and
 * a step that is replayed yields fewer times.
 */
static int choose_graphs(struct serve *s, struct mm_engine_opts *opts)
{
	const bool possible = mm_graphs_possible(&s->gpu);

	opts->graphs_must = s->o.graphs == MM_GRAPHS_ON;
	if (opts->graphs_must ||
	    (s->o.graphs == MM_GRAPHS_AUTO && possible && !mm_gpu_is_software(&s->gpu)))
		opts->graphs_max = s->o.graphs_max;
	if (possible || !opts->graphs_must)
		return 0;
	snprintf(s->err, sizeof(s->err), "--graphs on: the driver cannot capture streams");
	return -ENOSYS;
}

/*
 * The kernels of the software GPU run on processors: there each token of a prompt delays those of
 * others for so long that larger steps save nothing.
 */
static uint32_t step_tokens(const struct serve *s)
{
	if (s->o.max_batched_tokens)
		return s->o.max_batched_tokens;
	return MM_MAX(mm_gpu_is_software(&s->gpu) ? MM_STEP_TOKENS_SOFTWARE : MM_STEP_TOKENS,
		      s->o.max_batch);
}

static int start_engine(struct serve *s)
{
	char module[PATH_MAX];
	struct mm_engine_opts opts = {
		.module = module,
		.block_tokens = s->o.block_tokens,
		.max_batch = s->o.max_batch,
		.max_batched_tokens = step_tokens(s),
		.admit = (enum mm_admit)s->o.admit,
		.kv_dtype = (enum mm_dtype)s->o.kv_dtype,
		.kv_order = (enum mm_kv_order)s->o.kv_order,
		.kv_share_bytes = s->o.kv_share_bytes,
		.swap_bytes = s->o.swap_bytes,
		.cold = s->o.cold,
		.swap_tokens = s->o.swap_tokens,
		.slice_tokens = s->o.slice_tokens,
		.kv_keep_permille = (uint32_t)s->o.kv_keep_permille,
		.kv_idle_ns = s->o.kv_idle_ms * MM_NS_PER_MS,
		.kv_timeout_ns = s->o.kv_timeout_ms * MM_NS_PER_MS,
		.goals = { .ttft_s = (double)s->o.ttft_goal_ms / 1e3,
			   .per_token_s = (double)s->o.tpot_goal_us / 1e6 },
		.time_scale = s->o.time_scale,
		.device_times = s->o.device_times,
		.break_permille = s->o.break_permille,
		.break_seed = s->o.seed,
		.verify = s->o.verify,
		.fast = s->o.fast,
		.out = s->out,
		.progress = s->progress.on ? &s->progress : NULL,
		.stop = &stop_requested,
		.inbox = s->o.listen ? &s->speak.inbox : NULL,
		.max_length = s->o.max_length,
	};
	int r = mm_serve_module(&s->o, &s->gpu, module, &opts.gemm, s->err);

	if (!r)
		r = choose_graphs(s, &opts);
	if (r)
		return r;
	r = mm_weights_bind(&s->memory, &s->arch, s->o.verify, &s->weights, s->err);
	if (!r && s->o.fused)
		r = mm_weights_fuse(&s->weights, s->err);
	if (r)
		return r;
	return mm_engine_init(&s->engine, &opts, &s->memory, &s->weights, &s->requests, s->err);
}

static int write_summary(struct serve *s, json_t *summary)
{
	mm_cleanup(mm_json_done) json_t *line = json_pack("{s:O}", "summary", summary);
	int r = 0, printed;

	if (s->out && (json_dumpf(line, s->out, JSON_COMPACT | JSON_REAL_PRECISION(12)) ||
		       fputc('\n', s->out) == EOF || fflush(s->out)))
		r = -EIO;
	if (s->o.json) {
		printed = mm_json_print(summary, JSON_COMPACT | JSON_REAL_PRECISION(12));
	} else {
		mm_print_summary(stdout, summary);
		printed = fflush(stdout) ? -EIO : 0;
	}
	return printed ? printed : r;
}

static void add_weights(json_t *summary, const struct mm_model_info *model)
{
	mm_json_put_u64(summary, "weights_tensor_bytes", model->tensor_bytes);
	mm_json_put_u64(summary, "weights_device_bytes", model->device_bytes);
	mm_json_put_u64(summary, "weights_waste_bytes", model->waste_bytes);
}

static int mmserve_report(struct serve *s)
{
	mm_cleanup(mm_json_done) json_t *summary =
		mm_report_summary(&s->requests, &s->engine.stats);
	int r;

	if (s->memory.model.device_bytes)
		add_weights(summary, &s->memory.model);
	r = write_summary(s, summary);
	snprintf(s->err, sizeof(s->err), "cannot write the output");
	return r;
}

/*
 * Waits with everything loaded for a line on stdin, so that several engines can start at the same
 * time.
 */
static int sync_start(struct serve *s, uint64_t *ret_start_ns)
{
	unsigned long long start_ns;
	char line[64];
	int r;

	puts("ready");
	fflush(stdout);
	r = mm_engine_hold(&s->engine, STDIN_FILENO);
	if (r)
		return r;
	if (!fgets(line, sizeof(line), stdin) || sscanf(line, "start %llu\n", &start_ns) != 1) {
		snprintf(s->err, sizeof(s->err), "--sync: no line \"start NS\" on stdin");
		return -EPROTO;
	}
	*ret_start_ns = start_ns;
	return 0;
}

static int mmserve_serve(struct serve *s)
{
	uint64_t start_ns = 0;
	int r = s->o.sync ? sync_start(s, &start_ns) : 0;

	if (!r && s->o.listen)
		r = mm_speak_start(&s->speak, s->o.json ? NULL : stdout, s->err);
	if (!r)
		r = mm_engine_run(&s->engine, start_ns);
	if (s->o.listen)
		mm_speak_close(&s->speak);
	if (r || !s->o.sync)
		return r;
	puts("done");
	fflush(stdout);
	return mm_engine_hold(&s->engine, STDIN_FILENO);
}

static int mmserve_run(struct serve *s)
{
	int r;

	if (mm_config_load(s->o.model, &s->arch, s->err) ||
	    mm_serve_check_files(s->o.model, &s->arch, s->err) || read_requests(s) ||
	    open_output(s) || open_gpu(s))
		return mmserve_fail(s, MM_EXIT_FAILED);
	if (!s->o.json && !s->o.sync && !s->o.listen)
		mm_progress_start(&s->progress, STDERR_FILENO, s->o.model);
	r = open_memory(s);
	if (r)
		return mmserve_fail(s, r);
	if (start_engine(s))
		return mmserve_fail(s, MM_EXIT_FAILED);
	r = mmserve_serve(s);
	mm_progress_stop(&s->progress);
	if (r)
		return mmserve_fail(s, MM_EXIT_FAILED);
	if (mmserve_report(s))
		return mmserve_fail(s, MM_EXIT_FAILED);
	return s->engine.stats.checksum_failures ? MM_EXIT_FAILED : MM_EXIT_DONE;
}

int main(int argc, char **argv)
{
	mm_cleanup(serve_done) struct serve s = { 0 };
	const struct sigaction action = { .sa_handler = mmserve_on_signal };
	const int r = mm_serve_options_parse(argc, argv, &s.o);

	if (r >= 0)
		return r;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	return mmserve_run(&s);
}
