/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/sim/runner.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"

#define BATCH 16 /* seeds that a process takes at once */

/*
 * State of one process in shared memory. The process writes it; while it does not run, the process
 * that starts it does.
 */
struct worker {
	uint64_t seed, end; /* the seed that runs, and the end of the batch */
	bool running;
	uint64_t done;
};

struct shared {
	_Atomic uint64_t next; /* first seed that no process has taken */
	struct worker worker[RUNNER_JOBS_MAX];
};

struct runner {
	const struct runner_opts *opts;
	runner_fn *fn;
	void *context;
	struct shared *shared;
	struct runner_result *result;
	/* 0: none. Only the starting process uses it: in a child of fork() the value differs. */
	pid_t pid[RUNNER_JOBS_MAX];
	bool stopped; /* enough seeds have failed */
};

/* ---- a worker ---- */

static void seed_run(const struct runner *r, struct worker *w, uint32_t job, uint64_t seed)
{
	const struct itimerval most = { .it_value = { .tv_sec = r->opts->hangs_s } };

	w->seed = seed;
	w->running = true;
	setitimer(ITIMER_VIRTUAL, &most, NULL);
	r->fn(r->context, job, seed);
	w->running = false;
	w->done++;
}

/* @seed: the first seed, if the process before failed within a batch. */
static _Noreturn void worker_run(const struct runner *r, uint32_t job, uint64_t seed)
{
	struct worker *w = &r->shared->worker[job];
	uint64_t end = r->opts->first + r->opts->seeds;

	for (;;) {
		if (seed >= w->end) {
			seed = atomic_fetch_add(&r->shared->next, BATCH);
			w->end = MM_MIN(seed + BATCH, end);
		}
		if (seed >= end)
			exit(0);
		seed_run(r, w, job, seed++);
	}
}

static bool worker_start(struct runner *r, uint32_t job, uint64_t seed)
{
	pid_t starter = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		perror("runner: fork");
		return false;
	}
	if (pid) {
		r->pid[job] = pid;
		return true;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != starter)
		_exit(1);
	signal(SIGVTALRM, SIG_DFL);
	worker_run(r, job, seed);
}

/* ---- all workers ---- */

static uint64_t seeds_done(const struct runner *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->opts->jobs; i++)
		n += r->shared->worker[i].done;
	return n;
}

static void progress_print(const struct runner *r, bool last)
{
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " done, %" PRIu32 " failed%s", seeds_done(r),
		r->opts->seeds, r->result->n_failed, last ? "\n" : "");
}

static void workers_stop(struct runner *r)
{
	for (uint32_t i = 0; i < r->opts->jobs; i++) {
		if (!r->pid[i])
			continue;
		kill(r->pid[i], SIGKILL);
		waitpid(r->pid[i], NULL, 0);
		r->pid[i] = 0;
	}
}

static void failure_print(const struct runner *r, uint64_t seed, int status)
{
	const char *how = WIFSIGNALED(status) && WTERMSIG(status) == SIGVTALRM ? "does not end"
			  : WIFSIGNALED(status) ? strsignal(WTERMSIG(status))
						: "exit";

	fprintf(stderr, "seed=%" PRIu64 ": %s (status %#x); %s %" PRIu64 "\n", seed, how,
		(unsigned int)status, r->opts->again, seed);
}

/*
 * Handles the end of a process. After a failure another process continues, unless there were enough
 * failures.
 */
static bool worker_ended(struct runner *r, uint32_t job, int status)
{
	struct worker *w = &r->shared->worker[job];
	struct runner_result *result = r->result;

	r->pid[job] = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !w->running)
		return true;
	if (!w->running) {
		fprintf(stderr, "runner: a process ended between two seeds (status %#x)\n",
			(unsigned int)status);
		return false;
	}
	w->running = false;
	failure_print(r, w->seed, status);
	result->failed[result->n_failed++] = w->seed;
	if (result->n_failed < r->opts->failures_max)
		return worker_start(r, job, w->seed + 1);
	r->stopped = true;
	workers_stop(r);
	return true;
}

static bool any_worker_runs(const struct runner *r)
{
	for (uint32_t i = 0; i < r->opts->jobs; i++)
		if (r->pid[i])
			return true;
	return false;
}

static bool workers_wait(struct runner *r)
{
	while (any_worker_runs(r)) {
		int status;
		pid_t pid = waitpid(-1, &status, isatty(STDERR_FILENO) ? WNOHANG : 0);

		if (pid < 0 && errno != EINTR) {
			perror("runner: waitpid");
			return false;
		}
		for (uint32_t i = 0; pid > 0 && i < r->opts->jobs; i++)
			if (r->pid[i] == pid && !worker_ended(r, i, status))
				return false;
		progress_print(r, false);
		if (!pid)
			usleep(200000);
	}
	progress_print(r, true);
	return true;
}

static bool runner_run_all(struct runner *r)
{
	bool ok = true;

	atomic_store(&r->shared->next, r->opts->first);
	for (uint32_t i = 0; ok && i < r->opts->jobs; i++)
		ok = worker_start(r, i, 0);
	ok = ok && workers_wait(r);
	workers_stop(r);
	r->result->done = seeds_done(r);
	if (ok && !r->stopped && r->result->done + r->result->n_failed != r->opts->seeds) {
		fprintf(stderr,
			"runner: of %" PRIu64 " seeds %" PRIu64 " are done and %" PRIu32
			" failed: the others were lost\n",
			r->opts->seeds, r->result->done, r->result->n_failed);
		return false;
	}
	return ok;
}

bool runner_run(const struct runner_opts *opts, runner_fn *fn, void *context,
		struct runner_result *ret)
{
	struct runner r = { .opts = opts, .fn = fn, .context = context, .result = ret };
	void (*before)(int) = signal(SIGCHLD, SIG_DFL); /* ignored children leave no status */
	bool ok;

	*ret = (struct runner_result){ 0 };
	r.shared = mmap(NULL, sizeof(*r.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (r.shared == MAP_FAILED) {
		perror("runner: mmap");
		return false;
	}
	ok = runner_run_all(&r);
	munmap(r.shared, sizeof(*r.shared));
	signal(SIGCHLD, before);
	return ok;
}
