/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/steps.h"
#include "tools/lab/mmbench/steps_report.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/percentile.h"
#include "libclient/support/cleanup.h"
#include "tools/lab/common/daemon.h"
#include "tools/lab/common/dirs.h"
#include "tools/lab/common/procs.h"
#include "tools/lab/mmbench/report.h"
#include "tools/lab/mmbench/stepper.h"
#include "libclient/model/shapes.h"
#include "tools/lab/stepcost/stepcost.h"

#define TIMEOUT_NS   (600 * MM_NS_PER_S) /* for each wait; generous, as the device is dilated */
#define PATH_BYTES   512
#define ERR_BYTES    MM_SERVE_ERROR_BYTES
#define HEADROOM_MIB 2048u /* device memory that mmd leaves to activations */
#define F16_BYTES    2
#define SWAP_BYTES   "1T" /* no limit: only what is touched takes memory, and nothing is */

struct steps {
	struct mm_bench_steps_opts opts;
	struct mm_bench_steps_result result;
	struct mm_stepper stepper;
	struct mm_bench_mmd mmd;
	char dir[64], mmd_dir[PATH_BYTES];
	char model[PATH_MAX]; /* folder */
	char bin_dir[PATH_BYTES], kernels[PATH_BYTES + 64];
	int signals;
	char err[ERR_BYTES];
};

static void steps_put(struct steps **steps)
{
	struct steps *s = *steps;

	if (!s)
		return;
	mm_stepper_close(&s->stepper);
	mm_bench_mmd_stop(&s->mmd);
	mm_procs_sweep();
	mm_close_fd(&s->signals);
	if (*s->dir)
		mm_work_dir_remove(s->dir);
	free(s);
}

static int steps_error(const struct steps *s, int error)
{
	fprintf(stderr, "mmbench: %s\n", s->err);
	return error;
}

static int MM_PRINTF(3, 4) steps_fail(struct steps *s, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->err, sizeof(s->err), format, args);
	va_end(args);
	return steps_error(s, error);
}

/* ---- the daemon ---- */

static int find_programs(struct steps *s)
{
	static const char *const places[] = { MM_BIN_TO_LIB, "../lib" };
	char self[PATH_BYTES] = "";

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return steps_fail(s, -errno, "/proc/self/exe: %m");
	snprintf(s->bin_dir, sizeof(s->bin_dir), "%s", dirname(self));
	for (size_t i = 0; i < MM_ARRAY_SIZE(places); i++) {
		snprintf(s->kernels, sizeof(s->kernels), "%.400s/%s/libmm-kernels-host.so",
			 s->bin_dir, places[i]);
		if (access(s->kernels, F_OK) == 0)
			return 0;
	}
	return steps_fail(s, -ENOENT, "there is no libmm-kernels-host.so beside %s", s->bin_dir);
}

/* Sets the environment that describes the device, for mmd and for this process. */
static int steps_set_environment(struct steps *s)
{
	char gpu[PATH_BYTES], memory[32], dilation[32];

	snprintf(gpu, sizeof(gpu), "%s/gpu", s->dir);
	snprintf(memory, sizeof(memory), "%" PRIu64, s->result.profile.memory_bytes);
	snprintf(dilation, sizeof(dilation), "%.9g", s->opts.dilation);
	if (mkdir(gpu, 0700) < 0)
		return steps_fail(s, -errno, "%s: %m", gpu);
	if (setenv("MM_SOFTGPU_DIR", gpu, 1) < 0 || setenv("MM_SOFTGPU_MEMORY", memory, 1) < 0 ||
	    setenv("MM_SOFTGPU_PROFILE", s->opts.profile, 1) < 0 ||
	    setenv("MM_SOFTGPU_DILATION", dilation, 1) < 0)
		return steps_fail(s, -errno, "the environment: %m");
	return 0;
}

static int make_folders(struct steps *s)
{
	strcpy(s->dir, "/dev/shm/mmbench.XXXXXX"); /* the device must be on tmpfs */
	if (!mkdtemp(s->dir)) {
		*s->dir = '\0';
		return steps_fail(s, -errno, "/dev/shm: cannot create a folder: %m");
	}
	snprintf(s->mmd_dir, sizeof(s->mmd_dir), "%s/mmd", s->dir);
	snprintf(s->mmd.errors, sizeof(s->mmd.errors), "%s/mmd.log", s->dir);
	return 0;
}

/* Makes a model of the given shape, as sparse files. */
static int steps_make_model(struct steps *s)
{
	char program[PATH_BYTES + 16];
	char *argv[] = { program, "sparse", s->model, "--shape", (char *)s->opts.shape, NULL };
	struct mm_child child = { .name = "mkmodel", .err_path = s->mmd.errors };
	int r;

	if (!s->opts.shape) {
		snprintf(s->model, sizeof(s->model), "%s", s->opts.model);
		return 0;
	}
	snprintf(s->model, sizeof(s->model), "%s/model", s->dir);
	snprintf(program, sizeof(program), "%s/mkmodel", s->bin_dir);
	r = mm_child_run(&child, argv, TIMEOUT_NS, s->err, sizeof(s->err));
	return r ? steps_error(s, r) : 0;
}

static int steps_start_mmd(struct steps *s)
{
	char headroom[16], page[32];
	char *flags[] = { "--driver", "software", "--headroom", headroom,   "--page", page,
			  "--policy", "remap",    "--swap-max", SWAP_BYTES, NULL };
	int r;

	snprintf(headroom, sizeof(headroom), "%uM", HEADROOM_MIB);
	snprintf(page, sizeof(page), "%" PRIu64, s->opts.page_bytes);
	s->mmd.timeout_ns = TIMEOUT_NS;
	s->mmd.signals = s->signals;
	r = mm_bench_mmd_start(&s->mmd, s->bin_dir, s->mmd_dir, flags, s->err);
	return r ? steps_error(s, r) : 0;
}

/* ---- what is expected ---- */

static void know_device(struct steps *s)
{
	const struct mm_arch *a = &s->stepper.arch;
	const struct mm_step_opts opts = { F16_BYTES, F16_BYTES, false };
	struct mm_bench_steps_result *r = &s->result;
	struct mm_step_batch batch = { 0 };
	struct mm_step_model model;
	struct mm_step_ns ns;

	for (uint32_t i = 0; i < s->opts.batch; i++)
		mm_step_batch_add(&batch, s->opts.context - 1, 1, true);
	mm_step_model_init(&model, &r->profile, a, &opts);
	mm_step_cost(&model, &batch, &ns);
	r->layers = a->layers;
	r->layer_bytes = mm_arch_layer_bytes(a, F16_BYTES);
	r->t_t_ns = mm_cost_copy_ns(&r->profile, MM_LINK_H2D, r->layer_bytes, 0);
	r->t_c_ns = ns.layer + (ns.before + ns.after) / a->layers;
	r->t_kv_ns = (double)s->stepper.kv.block_bytes / a->layers / r->profile.h2d_bps *
		     (double)MM_NS_PER_S;
}

/*
 * Computes a step's duration as the controller does, with a layer's computation as mmd would
 * measure it under this plan: streaming takes memory bandwidth from the layers that compute
 * meanwhile. With one slot no weights are streamed while a cycling layer computes. Cold blocks are
 * streamed beside them in the order in which layers are needed, so only the link's sum counts.
 */
static uint64_t expected_ns(const struct mm_bench_steps_result *r,
			    const struct mm_bench_steps_plan *plan)
{
	const struct mm_plan_set *set = &plan->set;
	const double more = mm_cost_slowdown(&r->profile, 1, 0) - 1;
	const double cold = plan->cold * r->t_kv_ns * r->layers;
	const double streaming = (double)set->m * (double)r->t_t_ns + cold;
	const uint32_t beside = set->beta == 1 && !plan->cold ? r->layers - set->m : r->layers;
	const double both = MM_MIN(streaming, beside * (double)r->t_c_ns * (1 + more));
	const double slower = both * more / (1 + more) / r->layers;

	return MM_MAX(mm_plan_set_step_ns(set, r->layers, r->t_c_ns + (uint64_t)slower, r->t_t_ns),
		      plan->cold ? (uint64_t)streaming : 0);
}

/* ---- measuring ---- */

/* Takes medians. Pairs are averaged, as with two slots and odd alpha every second step differs. */
static void take_median(uint64_t *ns, uint32_t n, struct mm_bench_steps_plan *plan)
{
	for (uint32_t i = 0; i + 1 < n; i++)
		ns[i] = (ns[i] + ns[i + 1]) / 2;
	plan->least_ns = mm_percentile_u64(ns, n - 1, 0);
	plan->median_ns = mm_percentile_u64(ns, n - 1, 50);
	plan->most_ns = mm_percentile_u64(ns, n - 1, 100);
}

static int plan_measure(struct steps *s, uint32_t alpha, uint32_t beta, uint32_t cold)
{
	mm_cleanup(mm_free_ptr) uint64_t *ns = calloc(s->opts.steps, sizeof(*ns));
	struct mm_bench_steps_plan *plan = &s->result.plans[s->result.n];
	uint64_t ignored;
	int r;

	if (!ns)
		return steps_fail(s, -ENOMEM, "out of memory");
	*plan = (struct mm_bench_steps_plan){ .alpha = alpha,
					      .beta = alpha ? beta : 0,
					      .cold = cold };
	r = mm_stepper_stream(&s->stepper, cold, s->err);
	if (r)
		return steps_error(s, mm_bench_mmd_explain(&s->mmd, r, s->err));
	r = mm_bench_mmd_set_plan(&s->mmd, "steps", alpha, beta, s->result.layers, &plan->set,
				  s->err);
	if (r)
		return steps_error(s, r);
	for (uint32_t i = 0; i < s->opts.warmup + s->opts.steps; i++) {
		r = mm_stepper_step(&s->stepper,
				    i < s->opts.warmup ? &ignored : &ns[i - s->opts.warmup],
				    s->err);
		if (r)
			return steps_error(s, mm_bench_mmd_explain(&s->mmd, r, s->err));
		r = mm_bench_mmd_pause(&s->mmd, 0, s->err);
		if (r)
			return steps_error(s, r);
	}
	plan->expected_ns = expected_ns(&s->result, plan);
	take_median(ns, s->opts.steps, plan);
	s->result.worst = MM_MAX(s->result.worst,
				 fabs((double)plan->median_ns / (double)plan->expected_ns - 1));
	s->result.n++;
	return 0;
}

/* Measures a plan with each number of cold blocks. */
static int plan_measure_each(struct steps *s, uint32_t alpha, uint32_t beta)
{
	const struct mm_bench_steps_opts *o = &s->opts;
	int r = 0;

	for (uint32_t i = 0; i < MM_MAX(o->n_cold, 1) && !r; i++)
		r = plan_measure(s, alpha, beta, o->n_cold ? o->cold[i] : 0);
	return r;
}

static void show_progress(const struct steps *s, uint32_t alpha, uint32_t beta)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%u layers away, %u slots: %u plans measured \b", alpha, beta,
			s->result.n);
}

static int steps_measure(struct steps *s)
{
	const struct mm_bench_steps_opts *o = &s->opts;
	const uint32_t n = o->n_alpha ? o->n_alpha : s->result.layers;
	int r = 0;

	for (uint32_t i = 0; i < n && !r; i++) {
		const uint32_t alpha = o->n_alpha ? o->alpha[i] : i;

		for (uint32_t beta = 1; beta <= 2 && !r; beta++) {
			/* With no layer away the number of slots makes no difference. */
			if (!o->beta[beta] || !mm_plan_possible(s->result.layers, alpha, beta) ||
			    (!alpha && beta == 2 && o->beta[1]))
				continue;
			show_progress(s, alpha, beta);
			r = plan_measure_each(s, alpha, beta);
		}
	}
	if (isatty(STDERR_FILENO))
		fputc('\n', stderr);
	return r;
}

static uint32_t most_cold(const struct mm_bench_steps_opts *o)
{
	return o->n_cold ? o->cold[o->n_cold - 1] : 0;
}

static int steps_run(struct steps *s)
{
	const struct mm_stepper_opts stepper = { .model = s->model,
						 .socket = s->mmd.socket,
						 .kernels = s->kernels,
						 .batch = s->opts.batch,
						 .context = s->opts.context,
						 .cold = most_cold(&s->opts) };
	int r;

	if (mm_profile_load(s->opts.profile, &s->result.profile, s->err, sizeof(s->err)))
		return steps_error(s, -EINVAL);
	s->signals = mm_signals_open();
	if (s->signals < 0)
		return steps_fail(s, s->signals, "signals: %s", strerror(-s->signals));
	r = find_programs(s);
	if (!r)
		r = make_folders(s);
	if (!r)
		r = steps_set_environment(s);
	if (!r)
		r = steps_make_model(s);
	if (!r)
		r = steps_start_mmd(s);
	if (r)
		return r;
	r = mm_stepper_open(&s->stepper, &stepper, s->err);
	if (r)
		return steps_error(s, mm_bench_mmd_explain(&s->mmd, r, s->err));
	know_device(s);
	return steps_measure(s);
}

int mm_bench_steps(const struct mm_bench_steps_opts *opts)
{
	mm_cleanup(steps_put) struct steps *s = calloc(1, sizeof(*s));

	if (!s) {
		fputs("mmbench: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	s->signals = -1;
	s->opts = *opts;
	if (steps_run(s))
		return MM_EXIT_FAILED;
	return mm_report_end(mm_bench_steps_report(&s->opts, &s->result)) ? MM_EXIT_FAILED
									  : MM_EXIT_DONE;
}
