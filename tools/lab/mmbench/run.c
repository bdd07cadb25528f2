/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/base/base.h"
#include "mmd/config/config.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/lab/common/daemon.h"
#include "tools/lab/common/device.h"
#include "tools/lab/common/procs.h"

#define SAMPLE_MS  50
#define START_NS   (120 * MM_NS_PER_S) /* for mmd to start; generous: sanitizers, two cores */
#define STOP_NS    (60 * MM_NS_PER_S)
#define PATH_BYTES 512

#define WORDS_MAX (48 + MM_BENCH_EXTRA_MAX)

enum phase { PHASE_LOADING, PHASE_READY, PHASE_DONE };

struct tenant {
	struct mm_child child;
	enum phase phase;
	size_t rows;
	char name[16];
	char trace[PATH_BYTES], output[PATH_BYTES], errors[PATH_BYTES];
	char last_line[MM_CHILD_LINE_BYTES];
};

struct run {
	const struct mm_run_plan *plan;
	char dir[PATH_BYTES - 64], mmd_dir[PATH_BYTES];
	struct mm_bench_mmd mmd;
	struct tenant tenant[MM_BENCH_TENANTS_MAX];
	uint32_t n;
	uint64_t layers_remapped_max, bytes_streamed, plan_changes, turns;
};

MM_PRINTF(1, 2) static void run_error(const char *format, ...)
{
	va_list args;

	fputs("mmbench: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static int complain_of(const struct mm_child *child, const char *what)
{
	char how[64], words[1024];

	run_error("%s: %s (%s): %s", child->name, what, mm_child_how(child, how, sizeof(how)),
		  mm_child_last_words(child, words, sizeof(words)));
	return -ECHILD;
}

/* ---- sampling ---- */

static int run_pause(const struct run *run)
{
	struct pollfd signals = { .fd = run->plan->signals, .events = POLLIN };

	if (poll(&signals, 1, SAMPLE_MS) > 0) {
		run_error("interrupted");
		return -EINTR;
	}
	return 0;
}

/* Return: the answer, a reference that the caller owns; NULL: there is none, which is reported. */
static json_t *run_status(struct run *run)
{
	char why[MM_SERVE_ERROR_BYTES];
	json_t *status = NULL;

	if (mm_bench_mmd_request(&run->mmd, "status", NULL, &status, why))
		run_error("%s", why);
	return status;
}

static int run_sample(struct run *run)
{
	mm_cleanup(mm_json_done) json_t *status = run_status(run);

	if (!status)
		return -ECHILD;
	run->layers_remapped_max =
		MM_MAX(run->layers_remapped_max, mm_json_u64(status, "alpha_sum_max"));
	run->bytes_streamed = MM_MAX(run->bytes_streamed, mm_json_u64(status, "bytes_streamed"));
	run->plan_changes = MM_MAX(run->plan_changes, mm_json_u64(status, "plan_changes"));
	run->turns = MM_MAX(run->turns, mm_json_u64(status, "turns"));
	return 0;
}

/* ---- waiting ---- */

static int tenant_take_lines(struct tenant *tenant)
{
	int got;

	while ((got = mm_child_line(&tenant->child, tenant->last_line, sizeof(tenant->last_line))) >
	       0) {
		if (!strcmp(tenant->last_line, "ready"))
			tenant->phase = PHASE_READY;
		else if (!strcmp(tenant->last_line, "done"))
			tenant->phase = PHASE_DONE;
	}
	return got == -EPIPE ? 0 : got;
}

static int check_alive(struct run *run)
{
	if (mm_child_ended(&run->mmd.child))
		return complain_of(&run->mmd.child, "ended too early");
	for (uint32_t t = 0; t < run->n; t++) {
		struct tenant *tenant = &run->tenant[t];
		int r;

		if (!tenant->child.started)
			continue;
		r = tenant_take_lines(tenant);
		if (r)
			return r;
		if (!mm_child_ended(&tenant->child))
			continue;
		/* If mmd has ended, that is the cause; then report mmd instead of this tenant. */
		r = run_sample(run);
		return r ? r : complain_of(&tenant->child, "ended too early");
	}
	return 0;
}

static int wait_phase(struct run *run, enum phase phase, uint64_t deadline_ns)
{
	for (;;) {
		uint32_t there = 0;
		int r = check_alive(run);

		if (!r)
			r = run_sample(run);
		if (r)
			return r;
		for (uint32_t t = 0; t < run->n; t++)
			there += run->tenant[t].phase >= phase;
		if (there == run->n)
			return 0;
		if (mm_now_ns() > deadline_ns) {
			run_error("%u of %u tenants are not %s in time", run->n - there, run->n,
				  phase == PHASE_READY ? "ready" : "done");
			return -ETIMEDOUT;
		}
		r = run_pause(run);
		if (r)
			return r;
	}
}

/* ---- starting ---- */

static int env_set_u64(const char *variable, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return setenv(variable, text, 1) < 0 ? -errno : 0;
}

static const char *driver_name(const struct run *run)
{
	return run->plan->driver ? run->plan->driver : "software";
}

/* Sets the environment for a software GPU that only this run uses. */
static int run_set_environment(struct run *run)
{
	const struct mm_run_plan *plan = run->plan;
	char gpu[PATH_BYTES];
	int r;

	snprintf(gpu, sizeof(gpu), "%s/gpu", run->dir);
	if (mkdir(gpu, 0700) < 0) {
		run_error("%s: cannot create: %m", gpu);
		return -errno;
	}
	if (setenv("MM_SOFTGPU_DIR", gpu, 1) < 0)
		return -errno;
	r = env_set_u64("MM_SOFTGPU_MEMORY", plan->pool_bytes + plan->headroom_bytes);
	if (!r && plan->profile)
		r = setenv("MM_SOFTGPU_PROFILE", plan->profile, 1) < 0
			    ? -errno
			    : env_set_u64("MM_SOFTGPU_DILATION", plan->dilation);
	if (!r)
		r = env_set_u64("MM_SOFTGPU_GRANULARITY", plan->granularity_bytes);
	return r ? r : env_set_u64("MM_SOFTGPU_DEVICES", plan->devices);
}

static int run_prepare(struct run *run)
{
	const struct mm_run_plan *plan = run->plan;

	snprintf(run->dir, sizeof(run->dir), "%s/%s-%u", plan->work_dir, plan->label, plan->index);
	snprintf(run->mmd_dir, sizeof(run->mmd_dir), "%s/mmd", run->dir);
	snprintf(run->mmd.errors, sizeof(run->mmd.errors), "%s/mmd.log", run->dir);
	if (mkdir(run->dir, 0700) < 0) {
		run_error("%s: cannot create: %m", run->dir);
		return -errno;
	}
	return mm_device_is_software(driver_name(run)) ? run_set_environment(run) : 0;
}

/* Appends the words of the command line to an argv, and ends it with NULL. */
static void argv_add_words(char **argv, const struct mm_bench_words *words)
{
	size_t n = 0;

	while (argv[n])
		n++;
	mm_assert(n + words->n < WORDS_MAX);
	for (uint32_t i = 0; i < words->n; i++)
		argv[n++] = words->word[i];
	argv[n] = NULL;
}

static int run_start_mmd(struct run *run)
{
	const struct mm_run_plan *plan = run->plan;
	char pool[32], page[32], devices[2 * MM_BENCH_DEVICES_MAX + 1], swap[32];
	char why[MM_SERVE_ERROR_BYTES];
	char *argv[WORDS_MAX] = { "--driver",   (char *)driver_name(run),
				  "--device",   devices,
				  "--pool",     pool,
				  "--page",     page,
				  "--policy",   (char *)mm_policy_name(plan->policy),
				  "--slots",    (char *)plan->slots,
				  "--swap-max", swap };
	size_t at = 0;
	int r;

	for (uint32_t i = 0; i < plan->devices; i++)
		at += (size_t)snprintf(devices + at, sizeof(devices) - at, i ? ",%u" : "%u", i);
	snprintf(pool, sizeof(pool), "%" PRIu64, plan->pool_bytes);
	snprintf(page, sizeof(page), "%" PRIu64, plan->page_bytes);
	/* Enough for any engine; engines use swap space only under some policies. */
	snprintf(swap, sizeof(swap), "%" PRIu64, 8 * plan->pool_bytes);
	argv_add_words(argv, &plan->mmd);
	r = mm_bench_mmd_start(&run->mmd, plan->bin_dir, run->mmd_dir, argv, why);
	if (r)
		run_error("%s", why);
	return r;
}

struct tenant_args {
	char program[PATH_BYTES], socket[PATH_BYTES + 16];
	char seed[24], share[24], block[24], batch[24], batched[24], kv_timeout[24], device[12];
};

static void make_args(const struct run *run, uint32_t index, struct tenant_args *args)
{
	const struct mm_run_plan *plan = run->plan;
	const struct mm_run_tenant *tenant = &plan->tenant[index];

	snprintf(args->program, sizeof(args->program), "%s/mmserve", plan->bin_dir);
	snprintf(args->socket, sizeof(args->socket), "%s/tenant.sock", run->mmd_dir);
	snprintf(args->seed, sizeof(args->seed), "%" PRIu64, tenant->seed);
	snprintf(args->share, sizeof(args->share), "%" PRIu64, tenant->kv_share_bytes);
	snprintf(args->device, sizeof(args->device), "%u", tenant->device);
	snprintf(args->block, sizeof(args->block), "%u", plan->block_tokens);
	snprintf(args->batch, sizeof(args->batch), "%u", plan->batch_max);
	snprintf(args->batched, sizeof(args->batched), "%u", plan->batched_tokens_max);
	/* A request that is refused under only one policy would make the runs incomparable. */
	snprintf(args->kv_timeout, sizeof(args->kv_timeout), "%" PRIu64,
		 plan->serve_ns / MM_NS_PER_MS);
}

static int prepare_tenant(struct run *run, uint32_t index)
{
	struct tenant *tenant = &run->tenant[index];
	int rows;

	snprintf(tenant->name, sizeof(tenant->name), "tenant-%u", index);
	snprintf(tenant->trace, sizeof(tenant->trace), "%s/%u.csv", run->dir, index);
	snprintf(tenant->output, sizeof(tenant->output), "%s/%u.jsonl", run->dir, index);
	snprintf(tenant->errors, sizeof(tenant->errors), "%s/%u.log", run->dir, index);
	rows = run->plan->write_trace(run->plan->user, index, tenant->trace);
	if (rows < 0) {
		run_error("%s: cannot write: %s", tenant->trace, strerror(-rows));
		return rows;
	}
	tenant->rows = (size_t)rows;
	tenant->child.name = tenant->name;
	tenant->child.err_path = tenant->errors;
	return 0;
}

static int start_tenant(struct run *run, uint32_t index)
{
	struct tenant *tenant = &run->tenant[index];
	struct tenant_args args;
	char *argv[WORDS_MAX] = { args.program,
				  "--model",
				  (char *)run->plan->tenant[index].model,
				  "--socket",
				  args.socket,
				  "--driver",
				  (char *)driver_name(run),
				  "--trace",
				  tenant->trace,
				  "--output",
				  tenant->output,
				  "--name",
				  tenant->name,
				  "--seed",
				  args.seed,
				  "--kv-share",
				  args.share,
				  "--block-tokens",
				  args.block,
				  "--max-batch",
				  args.batch,
				  "--max-batched-tokens",
				  args.batched,
				  "--kv-timeout",
				  args.kv_timeout,
				  "--device",
				  args.device,
				  "--sync",
				  run->plan->verify ? "--verify" : NULL };
	int r = prepare_tenant(run, index);

	if (r)
		return r;
	make_args(run, index, &args);
	argv_add_words(argv, &run->plan->mmserve);
	r = mm_child_start(&tenant->child, argv);
	if (r)
		run_error("cannot start mmserve: %s", strerror(-r));
	return r;
}

static int start_clock(struct run *run)
{
	uint64_t start_ns = mm_now_ns() + 200 * MM_NS_PER_MS;
	char line[48];

	snprintf(line, sizeof(line), "start %" PRIu64, start_ns);
	for (uint32_t t = 0; t < run->n; t++) {
		int r = mm_child_send(&run->tenant[t].child, line);

		if (r)
			return complain_of(&run->tenant[t].child, "does not listen");
	}
	return 0;
}

/* ---- ending ---- */

static int finish_tenant(struct tenant *tenant)
{
	mm_close_fd(&tenant->child.in);
	if (!mm_child_wait(&tenant->child, mm_now_ns() + STOP_NS))
		return complain_of(&tenant->child, "does not end");
	if (tenant->child.status)
		return complain_of(&tenant->child, "failed");
	return tenant_take_lines(tenant);
}

/* Checks that all pages are free again after the tenants have ended. */
static int check_pages(struct run *run)
{
	uint64_t deadline_ns = mm_now_ns() + STOP_NS, free_pages = 0, pages = 0;

	do {
		mm_cleanup(mm_json_done) json_t *status = run_status(run);

		if (!status)
			return -ECHILD;
		pages = mm_json_u64(status, "pool_pages");
		free_pages = mm_json_u64(json_object_get(status, "pages"), "free");
		if (pages && free_pages == pages)
			return 0;
		if (run_pause(run) < 0)
			return -EINTR;
	} while (mm_now_ns() < deadline_ns);
	run_error("after the last tenant left only %" PRIu64 " of %" PRIu64 " pages are free",
		  free_pages, pages);
	return -EBUSY;
}

static int finish_mmd(struct run *run)
{
	kill(run->mmd.child.pid, SIGTERM);
	if (!mm_child_wait(&run->mmd.child, mm_now_ns() + STOP_NS))
		return complain_of(&run->mmd.child, "does not end");
	if (run->mmd.child.status)
		return complain_of(&run->mmd.child, "failed");
	return 0;
}

static int run_finish(struct run *run)
{
	for (uint32_t t = 0; t < run->n; t++) {
		int r = finish_tenant(&run->tenant[t]);

		if (r)
			return r;
	}
	if (check_pages(run) < 0)
		return -EBUSY;
	return finish_mmd(run);
}

static void run_done(struct run *run)
{
	for (uint32_t t = 0; t < run->n; t++)
		mm_child_done(&run->tenant[t].child);
	mm_child_done(&run->mmd.child);
	mm_close_fd(&run->mmd.rpc);
	mm_procs_sweep();
	free(run);
}

static void run_put(struct run **run)
{
	if (*run)
		run_done(*run);
}

/* ---- collecting ---- */

static int collect_tenant(struct run *run, uint32_t index, struct mm_run_result *result)
{
	const struct mm_results_tenant *got = &result->results.tenant[index];
	const struct tenant *tenant = &run->tenant[index];
	char why[PATH_BYTES + 128] = "out of memory";
	int r = mm_results_read(&result->results, index, tenant->rows, tenant->output, why,
				sizeof(why));

	if (r) {
		run_error("%s: %s", tenant->name, why);
		return r;
	}
	result->preemptions += got->preemptions;
	result->steps += got->steps;
	result->swapped_out_bytes += got->swapped_out_bytes;
	result->swapped_in_bytes += got->swapped_in_bytes;
	result->checksum_failures += got->checksum_failures;
	result->stall_total_s += got->stall_total_s;
	result->stall_p99_s = MM_MAX(result->stall_p99_s, got->stall_p99_s);
	return 0;
}

static int run_collect(struct run *run, struct mm_run_result *ret_result)
{
	mm_cleanup(mm_run_result_done) struct mm_run_result result = {
		.policy = run->plan->policy,
		.layers_remapped_max = run->layers_remapped_max,
		.bytes_streamed = run->bytes_streamed,
		.plan_changes = run->plan_changes,
		.turns = run->turns,
	};
	int r = mm_results_init(&result.results, run->n);

	for (uint32_t t = 0; !r && t < run->n; t++)
		r = collect_tenant(run, t, &result);
	if (!r)
		r = mm_results_latency(&result.results, &result.latency);
	if (r)
		return r;
	*ret_result = result;
	result.results = (struct mm_results){ 0 };
	return 0;
}

void mm_run_result_done(struct mm_run_result *result)
{
	mm_results_done(&result->results);
}

int mm_run(const struct mm_run_plan *plan, struct mm_run_result *ret_result)
{
	mm_cleanup(run_put) struct run *run = calloc(1, sizeof(*run));
	int r;

	if (!run)
		return -ENOMEM;
	run->plan = plan;
	run->mmd.rpc = -1;
	run->mmd.signals = plan->signals;
	run->mmd.timeout_ns = START_NS;
	run->n = plan->tenants;
	r = run_prepare(run);
	if (!r)
		r = run_start_mmd(run);
	for (uint32_t t = 0; !r && t < run->n; t++)
		r = start_tenant(run, t);
	if (!r)
		r = wait_phase(run, PHASE_READY, mm_now_ns() + plan->start_ns);
	if (!r)
		r = start_clock(run);
	if (!r)
		r = wait_phase(run, PHASE_DONE, mm_now_ns() + plan->serve_ns);
	if (!r && plan->served)
		plan->served(plan->served_user);
	if (!r)
		r = run_finish(run);
	return r ? r : run_collect(run, ret_result);
}
