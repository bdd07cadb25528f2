/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmbench/arena.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "tools/common/rpc_client.h"
#include "tools/lab/common/dirs.h"

#define TIMEOUT_NS  (180 * MM_NS_PER_S) /* to start; generous: sanitizers, a busy host */
#define REQUEST_NS  (30 * MM_NS_PER_S)
#define GRANULARITY "4096"

static int MM_PRINTF(3, 4) arena_fail(struct mm_arena *arena, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(arena->err, sizeof(arena->err), format, args);
	va_end(args);
	return error;
}

static int arena_folders(struct mm_arena *arena, const char *keep)
{
	int r = mm_bin_dir(arena->bin_dir);

	if (!r)
		r = mm_work_dir_make(keep, arena->dir);
	if (r)
		return arena_fail(arena, r, "no folder to work in");
	arena->keep = keep;
	snprintf(arena->model, sizeof(arena->model), "%.200s/model", arena->dir);
	snprintf(arena->scratch, sizeof(arena->scratch), "%.200s/scratch", arena->dir);
	snprintf(arena->mmd_dir, sizeof(arena->mmd_dir), "%.200s/mmd", arena->dir);
	snprintf(arena->mmd.errors, sizeof(arena->mmd.errors), "%.200s/mmd.log", arena->dir);
	if (mkdir(arena->scratch, 0700) < 0 || chmod(arena->scratch, 01777) < 0 ||
	    chmod(arena->dir, 0711) < 0)
		return arena_fail(arena, -errno, "%s: %m", arena->scratch);
	/* A device belongs on a tmpfs, where there is one. */
	strcpy(arena->gpu, "/dev/shm/mmbench.XXXXXX");
	if (mkdtemp(arena->gpu))
		return 0;
	snprintf(arena->gpu, sizeof(arena->gpu), "%.200s/gpu", arena->dir);
	return mkdir(arena->gpu, 0700) < 0 ? arena_fail(arena, -errno, "%s: %m", arena->gpu) : 0;
}

int mm_arena_enter(const struct mm_arena *arena)
{
	return setenv("MM_SOFTGPU_DIR", arena->gpu, 1) < 0 ? -errno : 0;
}

static int arena_environment(struct mm_arena *arena, const struct mm_arena_opts *opts)
{
	char memory[32];

	snprintf(memory, sizeof(memory), "%" PRIu64, 4 * opts->pool_bytes + (UINT64_C(64) << 20));
	if (mm_arena_enter(arena) || setenv("MM_SOFTGPU_MEMORY", memory, 1) ||
	    setenv("MM_SOFTGPU_GRANULARITY", GRANULARITY, 1) ||
	    setenv("MM_SOFTGPU_DEVICES", "1", 1) || unsetenv("MM_SOFTGPU_PROFILE"))
		return arena_fail(arena, -errno, "the environment: %m");
	return 0;
}

static int arena_model(struct mm_arena *arena, uint64_t seed)
{
	char program[PATH_MAX + 16], number[24];
	char *argv[] = { program,
			 "random",
			 arena->model,
			 "--hidden",
			 "128",
			 "--layers",
			 "8",
			 "--heads",
			 "4",
			 "--kv-heads",
			 "2",
			 "--ffn",
			 "344",
			 "--vocab",
			 "256",
			 "--dtype",
			 "f16",
			 "--tied",
			 "--max-position",
			 "512",
			 "--seed",
			 number,
			 NULL };
	struct mm_child child = { .name = "mkmodel", .err_path = arena->mmd.errors };

	snprintf(program, sizeof(program), "%s/mkmodel", arena->bin_dir);
	snprintf(number, sizeof(number), "%" PRIu64, seed);
	return mm_child_run(&child, argv, TIMEOUT_NS, arena->err, sizeof(arena->err));
}

static int arena_mmd(struct mm_arena *arena, const struct mm_arena_opts *opts)
{
	char pool[32], page[32], swap[32], accounts[160];
	char *flags[] = { "--driver",   "software", "--pool", pool,         "--page",
			  page,         "--policy", "remap",  "--swap-max", swap,
			  "--accounts", accounts,   NULL };
	int r;

	snprintf(pool, sizeof(pool), "%" PRIu64, opts->pool_bytes);
	snprintf(page, sizeof(page), "%" PRIu64, opts->page_bytes);
	snprintf(swap, sizeof(swap), "%" PRIu64, 4 * opts->pool_bytes);
	snprintf(accounts, sizeof(accounts),
		 "[{\"name\":\"honest\",\"uid\":%u,\"min\":\"%" PRIu64 "\"}]", (unsigned)getuid(),
		 opts->honest_bytes);
	if (!opts->honest_bytes)
		flags[MM_ARRAY_SIZE(flags) - 3] = NULL;
	arena->mmd.program = opts->program;
	arena->mmd.signals = arena->signals;
	arena->mmd.timeout_ns = TIMEOUT_NS;
	if (opts->fail)
		setenv("MM_SOFTGPU_FAIL", opts->fail, 1);
	r = mm_bench_mmd_start(&arena->mmd, arena->bin_dir, arena->mmd_dir, flags, arena->err);
	unsetenv("MM_SOFTGPU_FAIL");
	if (!r && chmod(arena->mmd_dir, 0711) < 0)
		r = arena_fail(arena, -errno, "%s: %m", arena->mmd_dir);
	return r;
}

int mm_arena_open(struct mm_arena *arena, const struct mm_arena_opts *opts)
{
	int r;

	*arena = (struct mm_arena){ .mmd = { .rpc = -1 } };
	arena->signals = mm_signals_open();
	if (arena->signals < 0)
		return arena_fail(arena, arena->signals, "signals: %s", strerror(-arena->signals));
	r = arena_folders(arena, opts->keep_dir);
	if (!r)
		r = arena_environment(arena, opts);
	if (!r)
		r = arena_model(arena, opts->seed);
	return r ? r : arena_mmd(arena, opts);
}

void mm_arena_close(struct mm_arena *arena)
{
	mm_bench_mmd_stop(&arena->mmd);
	mm_procs_sweep();
	mm_close_fd(&arena->signals);
	if (*arena->gpu)
		mm_work_dir_remove(arena->gpu);
	if (*arena->dir && !arena->keep)
		mm_work_dir_remove(arena->dir);
	*arena->gpu = *arena->dir = '\0';
}

int mm_arena_pause(struct mm_arena *arena, int ms)
{
	return mm_bench_mmd_pause(&arena->mmd, ms, arena->err);
}

int mm_arena_request(struct mm_arena *arena, const char *method, json_t *params,
		     json_t **ret_result)
{
	mm_cleanup(mm_json_done) json_t *kept = params;
	char why[512];
	int r = -ECONNRESET;

	for (uint64_t by_ns = mm_now_ns() + REQUEST_NS; r && mm_now_ns() < by_ns;) {
		mm_cleanup(mm_close_fd) int rpc = mm_rpc_client_open(arena->mmd.admin, REQUEST_NS);

		r = rpc < 0 ? rpc
			    : mm_rpc_client_request(rpc, REQUEST_NS, method, json_incref(kept),
						    ret_result, why, sizeof(why));
		if (r == -EREMOTEIO)
			break;
		if (r) {
			int stop = mm_arena_pause(arena, 2);

			if (stop)
				return stop;
		}
	}
	return r ? arena_fail(arena, r, "%s: %s", method, strerror(-r)) : 0;
}

int mm_arena_drain(struct mm_arena *arena, uint64_t patience_ns, uint64_t *ret_leaked)
{
	const uint64_t by_ns = mm_now_ns() + patience_ns;
	int r;

	do {
		mm_cleanup(mm_json_done) json_t *status = NULL;
		uint64_t pages;

		r = mm_arena_request(arena, "status", NULL, &status);
		if (r)
			return r;
		pages = mm_json_u64(status, "pool_pages");
		*ret_leaked = pages - mm_json_u64(json_object_get(status, "pages"), "free");
		if (pages && !*ret_leaked)
			return 0;
		r = mm_arena_pause(arena, 20);
	} while (!r && mm_now_ns() < by_ns);
	return r;
}

pid_t mm_arena_role(const struct mm_arena *arena, const char *role)
{
	char path[64], line[4096], word[32];
	mm_cleanup(mm_close_file) FILE *children = NULL;
	int pid;

	snprintf(word, sizeof(word), "--role=%s", role);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)arena->mmd.child.pid,
		 (int)arena->mmd.child.pid);
	children = fopen(path, "re");
	while (children && fscanf(children, "%d", &pid) == 1) {
		mm_cleanup(mm_close_file) FILE *file = NULL;
		size_t n = 0;

		snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
		file = fopen(path, "re");
		if (file)
			n = fread(line, 1, sizeof(line) - 1, file);
		line[n] = '\0';
		for (size_t at = 0; at < n; at += strlen(line + at) + 1)
			if (!strcmp(line + at, word))
				return pid;
	}
	return 0;
}
