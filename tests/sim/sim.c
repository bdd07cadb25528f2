/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core-sim - seeded histories of the core, as many as one likes
 *
 * Each history is checked after every event (history.h). Processes share the seeds out; one that fails
 * says which seed it was and how to see it again. At the end it is told how much of what kind of thing
 * happened: over many histories each kind must have, or the histories prove little.
 */
#undef NDEBUG
#include <errno.h>
#include <getopt.h>
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

#include "tests/sim/history.h"

#define STEPS_DEFAULT   400
#define SEEDS_DEFAULT   1000
#define JOBS_MAX        64
#define FAILURES_MAX    1000
#define ALL_KINDS_SEEDS 1000 /* so many histories must contain each kind */
#define HANGS_S         120  /* of computing time, one history */
#define BATCH           16   /* seeds taken at once */

struct total {
	uint64_t events, histories;
};

/* One process's, in memory that all share. */
struct worker {
	pid_t pid;
	uint64_t seed, end; /* the one that runs; of the batch */
	bool running;
	uint64_t done;
	struct total kind[H_COUNT];
	uint64_t policy[MM_POLICY_COUNT];
};

struct shared {
	_Atomic uint64_t next; /* seed that nobody has taken */
	struct worker worker[JOBS_MAX];
};

static struct {
	uint64_t first, seeds, steps, jobs, failures_max;
	bool json;
} opt = { 1, SEEDS_DEFAULT, STEPS_DEFAULT, 1, 1, false };

static struct shared *shared;
static struct world world;
static struct worker *self;
static uint64_t failed[FAILURES_MAX], n_failed;

/* ---- a worker ---- */

static void say_seed(const char *what)
{
	char line[192];
	int n = snprintf(line, sizeof(line),
			 "seed=%" PRIu64 " commit=%s%s; again: core-sim --seed %" PRIu64
			 " --steps %" PRIu64 "\n",
			 self->seed, MM_COMMIT, what, self->seed, opt.steps);

	(void)!write(STDERR_FILENO, line, (size_t)n);
	_exit(1);
}

static void on_signal(int sig)
{
	say_seed(sig == SIGVTALRM ? " does not end" : "");
}

static void run_one(uint64_t seed)
{
	const struct itimerval most = { .it_value = { .tv_sec = HANGS_S } };
	struct h_counts counts;

	self->seed = seed;
	self->running = true;
	setitimer(ITIMER_VIRTUAL, &most, NULL);
	h_run(&world, seed, opt.steps, &counts);
	self->running = false;
	self->done++;
	for (uint32_t i = 0; i < H_COUNT; i++) {
		self->kind[i].events += counts.kind[i];
		self->kind[i].histories += counts.kind[i] != 0;
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		self->policy[i] += counts.policy[i];
}

/* @seed: where the one that failed left off. */
static _Noreturn void work(uint64_t seed)
{
	static const int signals[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGVTALRM };
	uint64_t end = opt.first + opt.seeds;

	for (uint32_t i = 0; i < MM_ARRAY_SIZE(signals); i++)
		signal(signals[i], on_signal);
	for (;;) {
		if (seed >= self->end) {
			seed = atomic_fetch_add(&shared->next, BATCH);
			self->end = MM_MIN(seed + BATCH, end);
		}
		if (seed >= end)
			exit(0);
		run_one(seed++);
	}
}

static void start(struct worker *w, uint64_t seed)
{
	fflush(NULL);
	w->pid = fork();
	if (w->pid < 0) {
		perror("core-sim: fork");
		exit(1);
	}
	if (w->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	self = w;
	work(seed);
}

/* ---- all of them ---- */

static uint64_t done(void)
{
	uint64_t n = n_failed;

	for (uint32_t i = 0; i < opt.jobs; i++)
		n += shared->worker[i].done;
	return n;
}

static void progress(bool last)
{
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " histories, %" PRIu64 " failed%s", done(),
		opt.seeds, n_failed, last ? "\n" : "");
}

static void stop_all(void)
{
	for (uint32_t i = 0; i < opt.jobs; i++) {
		struct worker *w = &shared->worker[i];

		if (w->pid <= 0)
			continue;
		kill(w->pid, SIGKILL);
		waitpid(w->pid, NULL, 0);
		w->pid = 0;
	}
}

/* One ended: by a failure, then another goes on behind it, unless there were enough. */
static void ended(struct worker *w, int status)
{
	w->pid = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return;
	if (!w->running) {
		fprintf(stderr, "core-sim: a process ended between two histories (%#x)\n", status);
		stop_all();
		exit(1);
	}
	failed[n_failed++] = w->seed;
	w->running = false;
	if (n_failed >= opt.failures_max)
		stop_all();
	else
		start(w, w->seed + 1);
}

static uint32_t alive(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < opt.jobs; i++)
		n += shared->worker[i].pid != 0;
	return n;
}

static void run_all(void)
{
	atomic_store(&shared->next, opt.first);
	for (uint32_t i = 0; i < opt.jobs; i++)
		start(&shared->worker[i], 0);
	while (alive()) {
		int status;
		pid_t pid = waitpid(-1, &status, isatty(STDERR_FILENO) ? WNOHANG : 0);

		for (uint32_t i = 0; pid > 0 && i < opt.jobs; i++)
			if (shared->worker[i].pid == pid)
				ended(&shared->worker[i], status);
		progress(false);
		if (!pid)
			usleep(200000);
	}
	progress(true);
}

/* ---- the report ---- */

static struct total total_of(uint32_t kind)
{
	struct total sum = { 0 };

	for (uint32_t i = 0; i < opt.jobs; i++) {
		sum.events += shared->worker[i].kind[kind].events;
		sum.histories += shared->worker[i].kind[kind].histories;
	}
	return sum;
}

static uint64_t policy_of(uint32_t policy)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < opt.jobs; i++)
		n += shared->worker[i].policy[policy];
	return n;
}

static void report_json(void)
{
	printf("{\"schema\":1,\"first\":%" PRIu64 ",\"histories\":%" PRIu64 ",\"steps\":%" PRIu64
	       ",\"failed\":[",
	       opt.first, done(), opt.steps);
	for (uint64_t i = 0; i < n_failed; i++)
		printf("%s%" PRIu64, i ? "," : "", failed[i]);
	printf("],\"policies\":[");
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		printf("%s%" PRIu64, i ? "," : "", policy_of(i));
	printf("],\"kinds\":{");
	for (uint32_t i = 0; i < H_COUNT; i++) {
		struct total t = total_of(i);

		printf("%s\"%s\":{\"events\":%" PRIu64 ",\"histories\":%" PRIu64 "}", i ? "," : "",
		       h_kind_name[i], t.events, t.histories);
	}
	printf("}}\n");
}

static void report_text(void)
{
	printf("seeds=%" PRIu64 " to %" PRIu64 " steps=%" PRIu64 " failed=%" PRIu64 "\n", opt.first,
	       opt.first + opt.seeds - 1, opt.steps, n_failed);
	printf("%-24s %14s %14s\n", "kind", "events", "histories");
	for (uint32_t i = 0; i < H_COUNT; i++) {
		struct total t = total_of(i);

		printf("%-24s %14" PRIu64 " %14" PRIu64 "\n", h_kind_name[i], t.events,
		       t.histories);
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++)
		printf("policy %-17" PRIu32 " %14s %14" PRIu64 "\n", i, "", policy_of(i));
	for (uint64_t i = 0; i < n_failed; i++)
		printf("failed: core-sim --seed %" PRIu64 " --steps %" PRIu64 "\n", failed[i],
		       opt.steps);
}

/* Nothing that a history can contain may be missing from all of them. */
static bool all_kinds(void)
{
	bool all = true;

	if (opt.seeds < ALL_KINDS_SEEDS || n_failed)
		return true;
	for (uint32_t i = 0; i < H_COUNT; i++) {
		if (total_of(i).events)
			continue;
		fprintf(stderr, "core-sim: no history contained '%s'\n", h_kind_name[i]);
		all = false;
	}
	for (uint32_t i = 0; i < MM_POLICY_COUNT; i++) {
		if (policy_of(i))
			continue;
		fprintf(stderr, "core-sim: no history had policy %" PRIu32 "\n", i);
		all = false;
	}
	return all;
}

/* ---- the program ---- */

static void help(void)
{
	puts("usage: core-sim [--seed N] [--seeds COUNT] [--steps N] [--jobs N] [--failures N] "
	     "[--json]\n"
	     "\n"
	     "Random histories of the core, each checked after every event.\n"
	     "\n"
	     "  --seed N      the first one; without --seeds, the only one (1)\n"
	     "  --seeds COUNT histories (1000)\n"
	     "  --steps N     events in each (400)\n"
	     "  --jobs N      processes (1)\n"
	     "  --failures N  stop at so many failed histories (1)\n"
	     "  --json        the report as one JSON object\n"
	     "  --version     the commit");
}

static int usage(const char *what)
{
	fprintf(stderr, "core-sim: %s; try --help\n", what);
	return 2;
}

static bool number(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end;
}

/* Returns the exit status, or -1: run. */
static int options(int argc, char **argv)
{
	static const struct option names[] = { { "seed", required_argument, NULL, 'S' },
					       { "seeds", required_argument, NULL, 'n' },
					       { "steps", required_argument, NULL, 't' },
					       { "jobs", required_argument, NULL, 'j' },
					       { "failures", required_argument, NULL, 'f' },
					       { "json", no_argument, NULL, 'J' },
					       { "help", no_argument, NULL, 'h' },
					       { "version", no_argument, NULL, 'V' },
					       { 0 } };
	bool seeds = false, seed = false;
	int o;

	while ((o = getopt_long(argc, argv, "", names, NULL)) != -1) {
		uint64_t *to = o == 'S'   ? &opt.first
			       : o == 'n' ? &opt.seeds
			       : o == 't' ? &opt.steps
			       : o == 'j' ? &opt.jobs
			       : o == 'f' ? &opt.failures_max
					  : NULL;

		if (o == 'h' || o == 'V') {
			o == 'h' ? help() : (void)puts("core-sim " MM_COMMIT);
			return 0;
		}
		if (o == '?')
			return 2;
		if (to && !number(optarg, to))
			return usage("not a number");
		opt.json |= o == 'J';
		seed |= o == 'S';
		seeds |= o == 'n';
	}
	if (optind < argc)
		return usage("no arguments but options");
	if (!opt.jobs || opt.jobs > JOBS_MAX || !opt.failures_max ||
	    opt.failures_max > FAILURES_MAX || opt.first > UINT64_MAX / 2 ||
	    opt.seeds > UINT64_MAX / 2 - BATCH * JOBS_MAX)
		return usage(
			"out of range: --jobs up to 64, --failures up to 1000, seeds below 2^63");
	if (seed && !seeds)
		opt.seeds = 1;
	return -1;
}

int main(int argc, char **argv)
{
	int r = options(argc, argv);

	if (r >= 0)
		return r;
	opt.jobs = MM_MIN(opt.jobs, MM_MAX(opt.seeds, 1));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		perror("core-sim: mmap");
		return 1;
	}
	run_all();
	opt.json ? report_json() : report_text();
	return n_failed || !all_kinds() ? 1 : 0;
}
