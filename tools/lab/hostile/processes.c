/* SPDX-License-Identifier: Apache-2.0 */
/* Acts of processes: stopped, traced, frozen, forked; pages that outlive their tenant. */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tools/lab/hostile/groups.h"

#define PAGES        4
#define AWAY_NS      (30 * MM_NS_PER_MS)  /* how long it is stopped */
#define OUTLIVE_NS   (300 * MM_NS_PER_MS) /* how long what it leaves behind keeps its pages */
#define STACK_BYTES  65536
#define TRACED_STOPS 400

static void nap_for(uint64_t ns)
{
	const struct timespec nap = mm_timespec(ns);

	nanosleep(&nap, NULL);
}

/* A child that lets this process go on a little later. */
static void waker_start(void)
{
	const pid_t parent = getpid();

	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		nap_for(AWAY_NS);
		kill(parent, SIGCONT);
		_exit(0);
	}
}

static int few_pages_open(struct mm_stage *stage, struct mm_raw *raw)
{
	int r = mm_act_open(stage, raw);

	if (!r)
		r = mm_raw_take_pages(raw, PAGES, MM_RAW_WAIT_NS);
	if (r)
		mm_act_fail(stage, "no pages: %s: %s", strerror(-r), raw->reason);
	return r;
}

/* Stops itself while it holds pages. */
static enum mm_act_outcome act_stop(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (few_pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	waker_start();
	raise(SIGSTOP);
	wait(NULL);
	outcome = mm_act_look(stage, &raw);
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

/* The traced tenant. */
static enum mm_act_outcome traced_act(struct mm_stage *stage)
{
	enum mm_act_outcome outcome;
	struct mm_raw raw;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		return MM_ACT_SKIPPED;
	raise(SIGSTOP);
	if (few_pages_open(stage, &raw))
		return MM_ACT_FAILED;
	outcome = mm_act_look(stage, &raw);
	mm_raw_bye(&raw);
	return outcome;
}

/* Is traced by another process, which lets it go on from system call to system call. */
static enum mm_act_outcome act_traced(struct mm_stage *stage)
{
	const pid_t tenant = fork();
	int status = 0;

	if (tenant == 0)
		_exit((int)traced_act(stage));
	for (int stops = 0; waitpid(tenant, &status, 0) == tenant && WIFSTOPPED(status); stops++) {
		if (stops == TRACED_STOPS / 4)
			nap_for(AWAY_NS);
		ptrace(stops < TRACED_STOPS ? PTRACE_SYSCALL : PTRACE_CONT, tenant, NULL, NULL);
	}
	stage->operations += 8;
	return WIFEXITED(status) ? (enum mm_act_outcome)WEXITSTATUS(status)
				 : mm_act_fail(stage, "the traced tenant died");
}

static int cgroup_write(const char *folder, const char *name, const char *text)
{
	char path[256];
	mm_cleanup(mm_close_fd) int fd = -1;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, text, strlen(text)) > 0 ? 0 : -1;
}

/* A cgroup below that of version 2, wherever that is. Return: whether there is one. */
static bool cgroup_make(char *folder, size_t bytes)
{
	static const char *const roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

	for (size_t i = 0; i < MM_ARRAY_SIZE(roots); i++) {
		snprintf(folder, bytes, "%s/cgroup.controllers", roots[i]);
		if (access(folder, F_OK))
			continue;
		snprintf(folder, bytes, "%s/mm-hostile.%d", roots[i], (int)getpid());
		return mkdir(folder, 0700) == 0;
	}
	return false;
}

/* Is frozen by its cgroup, as a container may be. */
static enum mm_act_outcome act_frozen(struct mm_stage *stage)
{
	char folder[128], pid[16];
	enum mm_act_outcome outcome;
	struct mm_raw raw;
	pid_t thawer;

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (!cgroup_make(folder, sizeof(folder)))
		return mm_act_skip(stage, "no cgroup of one's own");
	if (few_pages_open(stage, &raw) || (thawer = fork()) < 0) {
		rmdir(folder);
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	}
	/* Once more, if its tenant was so slow that it froze itself only then. */
	if (thawer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			nap_for(AWAY_NS);
			cgroup_write(folder, "cgroup.freeze", "0");
		}
	}
	if (cgroup_write(folder, "cgroup.procs", pid) == 0)
		cgroup_write(folder, "cgroup.freeze", "1");
	nap_for(AWAY_NS);
	kill(thawer, SIGKILL);
	waitpid(thawer, NULL, 0);
	outcome = mm_act_look(stage, &raw);
	snprintf(folder + strlen(folder), sizeof(folder) - strlen(folder), "/..");
	cgroup_write(folder, "cgroup.procs", pid);
	*strrchr(folder, '/') = '\0';
	rmdir(folder);
	mm_raw_bye(&raw);
	return mm_act_done(stage, &raw, outcome);
}

/* Leaves a child behind that has its pages and its connection. */
static enum mm_act_outcome act_forked(struct mm_stage *stage)
{
	struct mm_raw raw;

	if (few_pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (fork() == 0) {
		nap_for(OUTLIVE_NS);
		_exit(0);
	}
	stage->operations += raw.operations;
	return MM_ACT_CHARGED; /* and ends with its process */
}

static int sibling_main(void *unused)
{
	const struct timespec nap = mm_timespec(OUTLIVE_NS);

	(void)unused;
	syscall(SYS_nanosleep, &nap, NULL);
	syscall(SYS_exit, 0);
	return 0;
}

/* Leaves a sibling behind that shares its memory, and thus what is mapped in it. */
static enum mm_act_outcome act_sibling(struct mm_stage *stage)
{
	struct mm_raw raw;
	char *stack;

	if (few_pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (uint32_t i = 0; i < raw.n_fds; i++)
		(void)!mmap(NULL, raw.welcome.page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			    raw.fd[i], 0);
	stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED ||
	    clone(sibling_main, stack + STACK_BYTES, CLONE_VM | SIGCHLD, NULL) < 0)
		return mm_act_done(stage, &raw, mm_act_skip(stage, "no clone"));
	stage->operations += raw.operations;
	return MM_ACT_CHARGED; /* and ends with its process */
}

/* Says that it has given everything back, keeps it in io_uring, and lives on for a while. */
static enum mm_act_outcome act_uring(struct mm_stage *stage)
{
	struct io_uring_params params = { 0 };
	mm_cleanup(mm_close_fd) int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	struct mm_raw raw;

	if (ring < 0)
		return mm_act_skip(stage, "no io_uring");
	if (few_pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, raw.fd, raw.n_fds) < 0)
		return mm_act_done(stage, &raw, mm_act_skip(stage, "no registered files"));
	mm_raw_bye(&raw);
	nap_for(OUTLIVE_NS);
	return mm_act_done(stage, &raw, MM_ACT_CHARGED);
}

/* Says that it has given everything back, keeps it mapped, and goes on writing to it. */
static enum mm_act_outcome act_bye_lies(struct mm_stage *stage)
{
	const uint64_t pattern = MM_HOSTILE_PATTERN | getuid();
	uint64_t *at[PAGES] = { NULL };
	uint64_t until_ns;
	struct mm_raw raw;

	if (few_pages_open(stage, &raw))
		return mm_act_done(stage, &raw, MM_ACT_FAILED);
	for (uint32_t i = 0; i < PAGES && i < raw.n_fds; i++) {
		at[i] = mmap(NULL, raw.welcome.page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			     raw.fd[i], 0);
		if (at[i] == MAP_FAILED)
			at[i] = NULL;
	}
	mm_raw_bye(&raw);
	for (until_ns = mm_deadline_ns(OUTLIVE_NS); mm_now_ns() < until_ns; nap_for(MM_NS_PER_MS)) {
		for (uint32_t i = 0; i < PAGES; i++)
			for (uint64_t w = 0; at[i] && w < raw.welcome.page_bytes / 8; w += 64)
				__atomic_store_n(&at[i][w], pattern, __ATOMIC_RELAXED);
	}
	return mm_act_done(stage, &raw, MM_ACT_CHARGED);
}

/* A tenant that is killed at any moment of its life. */
static enum mm_act_outcome act_dies(struct mm_stage *stage)
{
	const uint64_t lives_ns = mm_random_below(&stage->random, 4 * MM_NS_PER_MS);
	const pid_t tenant = fork();

	if (tenant == 0) {
		struct mm_raw raw;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (few_pages_open(stage, &raw) == 0)
			nap_for(OUTLIVE_NS);
		_exit(0);
	}
	nap_for(lives_ns);
	kill(tenant, SIGKILL);
	waitpid(tenant, NULL, 0);
	stage->operations += 4;
	return MM_ACT_CHARGED;
}

const struct mm_act mm_acts_processes[] = {
	{ .name = "stopped",
	  .text = "stops itself while it holds pages",
	  .run = act_stop,
	  .expected = MM_ACT_IGNORED,
	  .alone = true },
	{ .name = "traced",
	  .text = "is traced from system call to system call",
	  .run = act_traced,
	  .expected = MM_ACT_IGNORED,
	  .alone = true },
	{ .name = "frozen",
	  .text = "is frozen by its cgroup",
	  .run = act_frozen,
	  .expected = MM_ACT_IGNORED,
	  .ours = true,
	  .alone = true },
	{ .name = "forked",
	  .text = "leaves a child behind that has its pages",
	  .run = act_forked,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ .name = "sibling",
	  .text = "leaves a process behind that shares its memory",
	  .run = act_sibling,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ .name = "uring",
	  .text = "says BYE and keeps its pages in io_uring",
	  .run = act_uring,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ .name = "bye-lies",
	  .text = "says BYE, keeps its pages and goes on writing to them",
	  .run = act_bye_lies,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ .name = "dies",
	  .text = "dies at any moment",
	  .run = act_dies,
	  .expected = MM_ACT_CHARGED,
	  .alone = true },
	{ 0 },
};
