/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/gpubench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/options.h"
#include "tools/lab/common/device.h"
#include "tools/lab/common/dirs.h"
#include "tools/lab/gpubench/device.h"
#include "tools/lab/gpubench/groups.h"
#include "tools/lab/common/procs.h"

#define LINE_BYTES     16384 /* longest line of a result */
#define POLL_MS        20
#define LOOK_S         300 /* timeout for describing the device; generous, for a slow host */
#define EXIT_NO_DEVICE 4   /* of a child */
#define EXIT_ABSENT    3

/* Groups run in this order; those with a goal come first. */
const struct mm_gpu_group *const mm_gpu_groups[] = {
	&mm_gpu_stream,    &mm_gpu_stream2d, &mm_gpu_grant,  &mm_gpu_decode, &mm_gpu_overhead,
	&mm_gpu_attention, &mm_gpu_gemm,     &mm_gpu_memops, &mm_gpu_scrub,  &mm_gpu_pages,
	&mm_gpu_kernels,   &mm_gpu_sharing,  NULL,
};

struct gpu {
	struct mm_gpu_bench bench;
	FILE *out;
	json_t *device, *results, *parts;
	char line[LINE_BYTES];
	size_t fill;
	uint32_t failed;
};

enum outcome { DONE, FAILED, ABSENT, NO_DEVICE, TOO_LONG, INTERRUPTED };

static const char *const outcome_names[] = {
	[DONE] = "done",           [FAILED] = "failed",          [ABSENT] = "absent",
	[NO_DEVICE] = "no device", [TOO_LONG] = "took too long", [INTERRUPTED] = "interrupted",
};

static void gpu_put(struct gpu **gpu)
{
	struct gpu *g = *gpu;

	if (!g)
		return;
	if (g->out)
		fclose(g->out);
	json_decref(g->device);
	json_decref(g->results);
	json_decref(g->parts);
	mm_close_fd(&g->bench.signals);
	if (*g->bench.work_dir && !g->bench.opts.keep_dir)
		mm_work_dir_remove(g->bench.work_dir);
	free(g);
}

/* ---- what there is, and how much of it ---- */

static const struct mm_gpu_sizes sizes_real = {
	.pages = { UINT64_C(2) << 20, UINT64_C(16) << 20, UINT64_C(64) << 20 },
	.n_pages = 3,
	.repeat = 15,
	.grant_bytes = UINT64_C(144) << 20,
	.buffer_bytes = UINT64_C(512) << 20,
	.load_bytes = UINT64_C(64) << 20,
	.row_hidden = 5120,
	.arena_bytes = UINT64_C(6) << 30,
	.copied_bytes = UINT64_C(2) << 30,
	.swap_bytes = UINT64_C(2) << 30,
	.row_bytes = { 64 << 10, 128 << 10, 256 << 10, 320 << 10, 448 << 10, 512 << 10 },
	.pool_bytes = UINT64_C(1) << 30,
	.cycling = { 16, 2048, 16, 512, 256 },
	.served = { 24, 2048, 16, 32000, 512 },
	.requests = 8,
	.prompt_tokens = 128,
	.output_tokens = 96,
	.serve_repeat = 4,
	.steps = 10,
};

static const struct mm_gpu_sizes sizes_rehearsal = {
	.pages = { UINT64_C(64) << 10, UINT64_C(256) << 10 },
	.n_pages = 2,
	.repeat = 3,
	.grant_bytes = UINT64_C(1) << 20,
	.buffer_bytes = UINT64_C(1) << 20,
	.load_bytes = UINT64_C(16) << 10,
	.row_hidden = 64,
	.arena_bytes = UINT64_C(1) << 20,
	.copied_bytes = UINT64_C(4) << 20,
	.swap_bytes = UINT64_C(16) << 20,
	.row_bytes = { 4 << 10, 8 << 10, 16 << 10, 20 << 10, 28 << 10, 32 << 10 },
	.pool_bytes = UINT64_C(32) << 20,
	.cycling = { 6, 64, 4, 512, 256 },
	.served = { 6, 64, 4, 512, 256 },
	.requests = 2,
	.prompt_tokens = 16,
	.output_tokens = 16,
	.serve_repeat = 2,
	.steps = 4,
};

static void choose_sizes(struct mm_gpu_bench *b)
{
	const struct mm_gpu_opts *o = &b->opts;

	b->sizes = b->rehearsal && !b->timed ? sizes_rehearsal : sizes_real;
	if (o->quick) {
		b->sizes.repeat = MM_MIN(b->sizes.repeat, 5u);
		b->sizes.steps = MM_MIN(b->sizes.steps, 6u);
		b->sizes.serve_repeat = 2;
		b->sizes.served.layers = MM_MIN(b->sizes.served.layers, 12u);
	}
	if (o->repeat)
		b->sizes.repeat = o->repeat;
	if (o->repeat)
		b->sizes.serve_repeat = MM_MIN(o->repeat, b->sizes.serve_repeat);
	if (o->n_pages) {
		memcpy(b->sizes.pages, o->pages, sizeof(o->pages));
		b->sizes.n_pages = o->n_pages;
	}
}

/*
 * Makes a software GPU in the work folder. If it keeps the time of a modelled device, it has that
 * device's memory.
 */
static int gpubench_set_environment(struct mm_gpu_bench *b)
{
	char dir[PATH_MAX + 8], granularity[32];

	if (!b->rehearsal)
		return 0;
	snprintf(dir, sizeof(dir), "%s/gpu", b->work_dir);
	snprintf(granularity, sizeof(granularity), "%" PRIu64,
		 MM_MIN(b->sizes.pages[0], UINT64_C(2) << 20));
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	if (setenv("MM_SOFTGPU_DIR", dir, 1) < 0 ||
	    setenv("MM_SOFTGPU_GRANULARITY", granularity, 1) < 0)
		return -errno;
	return b->timed || !setenv("MM_SOFTGPU_MEMORY", "512M", 1) ? 0 : -errno;
}

static int gpu_prepare(struct gpu *g)
{
	struct mm_gpu_bench *b = &g->bench;
	int r = mm_bin_dir(b->bin_dir);

	b->rehearsal = mm_device_is_software(b->opts.driver);
	b->timed = b->rehearsal && getenv("MM_SOFTGPU_PROFILE");
	choose_sizes(b);
	if (!r)
		r = mm_work_dir_make(b->opts.keep_dir, b->work_dir);
	if (r)
		return r;
	r = gpubench_set_environment(b);
	if (r) {
		fprintf(stderr, "gpubench: %s: %s\n", b->work_dir, strerror(-r));
		return r;
	}
	g->results = json_array();
	g->parts = json_array();
	b->signals = mm_signals_open();
	if (b->signals < 0)
		return b->signals;
	if (!b->opts.out_path)
		return 0;
	g->out = fopen(b->opts.out_path, "ae");
	if (!g->out)
		fprintf(stderr, "gpubench: %s: %m\n", b->opts.out_path);
	return g->out ? 0 : -ENOENT;
}

/* ---- a part: a group, or, if that is NULL, what describes the device ---- */

static const char *part_name(const struct mm_gpu_group *part)
{
	return part ? part->name : "device";
}

/* Runs a part in the child process, and exits. */
_Noreturn static void be_part(struct mm_gpu_bench *b, const struct mm_gpu_group *part, int out,
			      pid_t parent)
{
	json_t *line;
	char *text;
	int r;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	mm_close_fd(&b->signals);
	b->signals = mm_signals_open();
	b->out = out;
	b->part = part_name(part);
	r = b->signals;
	if (r >= 0)
		r = part ? mm_gpu_measure(b, part) : mm_gpu_device_run(b);
	if (!r)
		exit(0);
	line = json_pack("{s:s,s:s}", "part", b->part, "error", *b->err ? b->err : strerror(-r));
	text = line ? json_dumps(line, JSON_COMPACT) : NULL;
	dprintf(out, "%s\n", text ? text : "{\"error\":\"out of memory\"}");
	_exit(r == -EOPNOTSUPP ? EXIT_ABSENT : r == -ENODEV ? EXIT_NO_DEVICE : 1);
}

static void line_keep(struct gpu *g, json_t *line)
{
	if (json_object_get(line, "device"))
		json_object_update(g->device, line);
	else if (json_object_get(line, "figure"))
		json_array_append(g->results, line);
}

static void write_out(struct gpu *g, const json_t *line)
{
	if (!g->out)
		return;
	json_dumpf(line, g->out, JSON_COMPACT | JSON_REAL_PRECISION(9));
	fputc('\n', g->out);
	fflush(g->out);
}

/* Handles a line from the child: a result, or, as the last one, why the part failed. */
static void child_line_handle(struct gpu *g, char *text, char *why, size_t why_bytes)
{
	json_t *line = json_loads(text, 0, NULL);
	const char *error = json_string_value(json_object_get(line, "error"));

	if (error) {
		snprintf(why, why_bytes, "%s", error);
	} else if (line) {
		line_keep(g, line);
		write_out(g, line);
	}
	json_decref(line);
}

/* Handles all whole lines that have arrived. Return: false at the end of the child's output. */
static bool child_lines_read(struct gpu *g, int fd, char *why, size_t why_bytes)
{
	for (;;) {
		ssize_t got = read(fd, g->line + g->fill, sizeof(g->line) - 1 - g->fill);
		char *end;

		if (got < 0)
			return errno == EAGAIN || errno == EINTR;
		if (got == 0)
			return false;
		g->fill += (size_t)got;
		g->line[g->fill] = '\0';
		while ((end = strchr(g->line, '\n'))) {
			*end = '\0';
			child_line_handle(g, g->line, why, why_bytes);
			g->fill -= (size_t)(end + 1 - g->line);
			memmove(g->line, end + 1, g->fill + 1);
		}
		if (g->fill == sizeof(g->line) - 1)
			g->fill = 0; /* the line is too long for a result: drop it */
	}
}

static enum outcome outcome_of(int status, char *why, size_t why_bytes)
{
	if (WIFSIGNALED(status)) {
		snprintf(why, why_bytes, "killed by signal %d", WTERMSIG(status));
		return FAILED;
	}
	switch (WEXITSTATUS(status)) {
	case 0:
		return DONE;
	case EXIT_ABSENT:
		return ABSENT;
	case EXIT_NO_DEVICE:
		return NO_DEVICE;
	default:
		return FAILED;
	}
}

/* Waits until the part has ended, the timeout has passed, or a signal came. */
static enum outcome wait_part(struct gpu *g, uint64_t timeout_s, pid_t pid, int fd, char *why,
			      size_t why_bytes)
{
	const uint64_t deadline_ns = mm_now_ns() + timeout_s * MM_NS_PER_S;
	int status;

	for (;;) {
		struct pollfd fds[] = { { .fd = g->bench.signals, .events = POLLIN },
					{ .fd = fd, .events = POLLIN } };
		pid_t ended = waitpid(pid, &status, WNOHANG);

		child_lines_read(g, fd, why, why_bytes);
		if (ended == pid)
			return outcome_of(status, why, why_bytes);
		poll(fds, 2, POLL_MS);
		if (fds[0].revents)
			return INTERRUPTED;
		if (mm_now_ns() > deadline_ns) {
			snprintf(why, why_bytes, "it did not end within %" PRIu64 " s", timeout_s);
			return TOO_LONG;
		}
	}
}

static enum outcome start_and_wait(struct gpu *g, const struct mm_gpu_group *part, char *why,
				   size_t why_bytes)
{
	const uint64_t timeout_s = part ? g->bench.opts.timeout_s : LOOK_S;
	const pid_t parent = getpid();
	enum outcome outcome;
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
		snprintf(why, why_bytes, "a pipe: %m");
		return FAILED;
	}
	fflush(NULL);
	pid = fork();
	if (!pid)
		be_part(&g->bench, part, ends[1], parent);
	close(ends[1]);
	g->fill = 0;
	snprintf(why, why_bytes, "fork: %m");
	outcome = FAILED;
	if (pid > 0) {
		*why = '\0';
		outcome = wait_part(g, timeout_s, pid, ends[0], why, why_bytes);
	}
	close(ends[0]);
	/* Also ends all processes that the part started. */
	mm_procs_sweep();
	return outcome;
}

static enum outcome run_part(struct gpu *g, const struct mm_gpu_group *part)
{
	const uint64_t since_ns = mm_now_ns();
	char why[MM_SERVE_ERROR_BYTES] = "";
	const enum outcome outcome = start_and_wait(g, part, why, sizeof(why));
	const double seconds = (double)(mm_now_ns() - since_ns) / (double)MM_NS_PER_S;
	json_t *line;

	g->bench.part = part_name(part);
	if (outcome != DONE)
		mm_gpu_progress(&g->bench, "%s%s%s", outcome_names[outcome], *why ? ": " : "", why);
	if (!part)
		return outcome;
	if (outcome == DONE)
		mm_gpu_progress(&g->bench, "done in %.1f s", seconds);
	line = json_pack("{s:s,s:s,s:f}", "part", g->bench.part, "outcome", outcome_names[outcome],
			 "seconds", seconds);
	if (outcome != DONE)
		json_object_set_new(line, "why", json_string(why));
	write_out(g, line);
	json_array_append_new(g->parts, line);
	g->failed += outcome != DONE && outcome != ABSENT;
	return outcome;
}

/* ---- the report ---- */

static void count_goals(const struct gpu *g, uint32_t *ret_reached, uint32_t *ret_missed)
{
	const json_t *row;
	size_t i;

	*ret_reached = *ret_missed = 0;
	json_array_foreach(g->results, i, row) {
		const json_t *reached = json_object_get(row, "reached");

		*ret_reached += json_is_true(reached);
		*ret_missed += json_is_false(reached);
	}
}

static json_t *header_json(const struct gpu *g)
{
	const struct mm_gpu_bench *b = &g->bench;
	const time_t now = time(NULL);
	struct tm utc;
	char date[32];

	gmtime_r(&now, &utc);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
	return json_pack("{s:i,s:s,s:s,s:s,s:s,s:O,s:b,s:b,s:b}", "schema", 1, "command",
			 "gpubench", "version", MM_VERSION, "commit", MM_COMMIT, "date", date,
			 "device", g->device, "rehearsal", b->rehearsal, "modelled", b->timed,
			 "quick", b->opts.quick);
}

static void gpubench_report_json(const struct gpu *g)
{
	json_t *whole = header_json(g);
	uint32_t reached, missed;

	count_goals(g, &reached, &missed);
	json_object_set(whole, "parts", g->parts);
	json_object_set(whole, "results", g->results);
	json_object_set_new(whole, "goals",
			    json_pack("{s:i,s:i}", "reached", reached, "missed", missed));
	json_dumpf(whole, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(whole);
}

static void report_table(const struct gpu *g)
{
	uint32_t reached, missed;
	const json_t *row;
	size_t i;

	count_goals(g, &reached, &missed);
	printf("%s, driver %s (%d)\n\n", json_string_value(json_object_get(g->device, "device")),
	       g->bench.opts.driver,
	       (int)json_integer_value(json_object_get(g->device, "driver_version")));
	printf("%-60s %12s  %-26s %12s %8s  %s\n", "part, figure", "median", "(p10 - p90)",
	       "reference", "ratio", "goal");
	json_array_foreach(g->results, i, row)
		mm_gpu_row_print(row, g->bench.rehearsal);
	if (g->bench.rehearsal)
		printf("\nA rehearsal on the software GPU: %s.\n",
		       g->bench.timed ? "the times are those of the modelled device"
				      : "the numbers say nothing about hardware");
	else
		printf("\nGoals: %u reached, %u missed.\n", reached, missed);
}

static int parts_run(struct gpu *g)
{
	enum outcome outcome = run_part(g, NULL);
	json_t *first;

	if (outcome != DONE)
		return MM_EXIT_FAILED;
	/* The device is asked, because the driver's name need not show it. */
	g->bench.rehearsal = json_is_true(json_object_get(g->device, "rehearsal"));
	choose_sizes(&g->bench);
	first = header_json(g);
	write_out(g, first);
	json_decref(first);
	for (uint32_t i = 0; mm_gpu_groups[i]; i++)
		g->bench.parts += g->bench.opts.part[i];
	for (uint32_t i = 0; mm_gpu_groups[i]; i++) {
		if (!g->bench.opts.part[i])
			continue;
		g->bench.part_at++;
		if (run_part(g, mm_gpu_groups[i]) == INTERRUPTED)
			break;
	}
	if (g->bench.opts.json)
		gpubench_report_json(g);
	else
		report_table(g);
	return g->failed ? MM_EXIT_FAILED : MM_EXIT_DONE;
}

int mm_gpu_run(const struct mm_gpu_opts *opts)
{
	mm_cleanup(gpu_put) struct gpu *g = calloc(1, sizeof(*g));

	if (!g) {
		fputs("gpubench: out of memory\n", stderr);
		return MM_EXIT_FAILED;
	}
	g->bench.opts = *opts;
	g->bench.signals = -1;
	g->device = json_object();
	return gpu_prepare(g) ? MM_EXIT_FAILED : parts_run(g);
}
