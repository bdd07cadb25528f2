/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define LOG_LINES 3 /* log lines that are kept as last words, at most */

uint64_t mm_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
}

int mm_signals_open(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* Where there are fewer processors than @nth it is one of those. */
static int run_on_processor(uint32_t nth)
{
	cpu_set_t ours, one;
	uint32_t left;

	CPU_ZERO(&one);
	if (!nth)
		return 0;
	if (sched_getaffinity(0, sizeof(ours), &ours) < 0)
		return -errno;
	left = (nth - 1) % (uint32_t)CPU_COUNT(&ours);
	for (size_t cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &ours) && !left--)
			CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) < 0 ? -errno : 0;
}

/* In the child: nothing here may return. */
_Noreturn static void child_exec(const struct mm_child *child, char *const argv[], int in, int out,
				 int err, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	/* A terminal's ^C goes to us alone: we end the children in order. */
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	if (run_on_processor(child->processor) || dup2(in, STDIN_FILENO) < 0 ||
	    dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		_exit(127);
	execv(argv[0], argv);
	dprintf(STDERR_FILENO, "%s: cannot execute: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int mm_child_start(struct mm_child *child, char *const argv[])
{
	mm_cleanup(mm_close_fd) int in_theirs = -1, out_theirs = -1, err_theirs = -1;
	int in[2], out[2];
	pid_t parent = getpid();

	child->in = child->out = -1;
	if (pipe2(in, O_CLOEXEC) < 0)
		return -errno;
	in_theirs = in[0];
	child->in = in[1];
	if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	out_theirs = out[1];
	child->out = out[0];
	if (fcntl(out_theirs, F_SETFL, 0) < 0)
		return -errno;
	err_theirs = open(child->err_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (err_theirs < 0)
		return -errno;
	child->pid = fork();
	if (child->pid < 0) {
		child->pid = 0;
		return -errno;
	}
	if (child->pid == 0)
		child_exec(child, argv, in_theirs, out_theirs, err_theirs, parent);
	child->started = true;
	return 0;
}

static int child_take_line(struct mm_child *child, char *ret_line, size_t bytes)
{
	char *end = memchr(child->line, '\n', child->fill);
	size_t length;

	if (!end)
		return 0;
	length = (size_t)(end - child->line);
	snprintf(ret_line, bytes, "%.*s", (int)length, child->line);
	child->fill -= length + 1;
	memmove(child->line, end + 1, child->fill);
	return 1;
}

int mm_child_line(struct mm_child *child, char *ret_line, size_t bytes)
{
	for (;;) {
		ssize_t got;

		if (child_take_line(child, ret_line, bytes))
			return 1;
		if (child->out < 0)
			return -EPIPE;
		if (child->fill == sizeof(child->line))
			return -EMSGSIZE;
		got = read(child->out, child->line + child->fill,
			   sizeof(child->line) - child->fill);
		if (got < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (got == 0)
			mm_close_fd(&child->out);
		else
			child->fill += (size_t)got;
	}
}

int mm_child_send(struct mm_child *child, const char *line)
{
	return dprintf(child->in, "%s\n", line) < 0 ? -errno : 0;
}

bool mm_child_ended(struct mm_child *child)
{
	if (child->pid && waitpid(child->pid, &child->status, WNOHANG) == child->pid)
		child->pid = 0;
	return child->pid == 0;
}

bool mm_child_wait(struct mm_child *child, uint64_t deadline_ns)
{
	while (!mm_child_ended(child)) {
		struct timespec nap = { .tv_nsec = 2000000 };

		if (mm_now_ns() >= deadline_ns) {
			kill(child->pid, SIGKILL);
			waitpid(child->pid, &child->status, 0);
			child->pid = 0;
			return false;
		}
		nanosleep(&nap, NULL);
	}
	return true;
}

const char *mm_child_how(const struct mm_child *child, char *buf, size_t bytes)
{
	if (WIFSIGNALED(child->status))
		snprintf(buf, bytes, "killed by signal %d", WTERMSIG(child->status));
	else
		snprintf(buf, bytes, "exit status %d", WEXITSTATUS(child->status));
	return buf;
}

static void log_keep(char **log, const char *line)
{
	free(log[0]);
	memmove(log, log + 1, (LOG_LINES - 1) * sizeof(*log));
	log[LOG_LINES - 1] = strdup(line);
}

static void log_join(char *const *log, char *buf, size_t bytes)
{
	size_t fill = 0;

	for (size_t i = 0; i < LOG_LINES; i++)
		if (log[i] && fill < bytes)
			fill += (size_t)snprintf(buf + fill, bytes - fill, "%s%s",
						 fill ? " | " : "", log[i]);
}

const char *mm_child_last_words(const struct mm_child *child, char *buf, size_t bytes)
{
	FILE *file = fopen(child->err_path, "re");
	char *line = NULL, *log[LOG_LINES] = { NULL };
	size_t room = 0;

	buf[0] = '\0';
	if (!file)
		return buf;
	while (getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "ts=", 3))
			log_keep(log, line);
		else if (*line && strncmp(line, "==", 2) != 0)
			snprintf(buf, bytes, "%s", line);
	}
	if (!*buf)
		log_join(log, buf, bytes);
	for (size_t i = 0; i < LOG_LINES; i++)
		free(log[i]);
	free(line);
	fclose(file);
	return buf;
}

void mm_child_done(struct mm_child *child)
{
	if (!child->started)
		return;
	mm_child_wait(child, 0);
	mm_close_fd(&child->in);
	mm_close_fd(&child->out);
	child->started = false;
}

int mm_child_run(struct mm_child *child, char *const argv[], uint64_t timeout_ns, char *err,
		 size_t err_bytes)
{
	char how[64], words[1024];
	int r = mm_child_start(child, argv);

	if (r) {
		snprintf(err, err_bytes, "cannot start %s: %s", child->name, strerror(-r));
		return r;
	}
	if (!mm_child_wait(child, mm_now_ns() + timeout_ns) || child->status) {
		snprintf(err, err_bytes, "%s failed (%s): %s", child->name,
			 mm_child_how(child, how, sizeof(how)),
			 mm_child_last_words(child, words, sizeof(words)));
		r = -ECHILD;
	}
	mm_child_done(child);
	return r;
}

static int kill_children(void)
{
	FILE *file = fopen("/proc/thread-self/children", "re");
	int pid, n = 0;

	if (!file)
		return 0;
	while (fscanf(file, "%d", &pid) == 1) {
		kill(pid, SIGKILL);
		n++;
	}
	fclose(file);
	return n;
}

int mm_procs_sweep(void)
{
	int n, total = 0;

	/*
	 * The children of a killed child become children of this process: repeat until there are
	 * none.
	 */
	while ((n = kill_children()) > 0) {
		for (int i = 0; i < n; i++)
			waitpid(-1, NULL, 0);
		total += n;
	}
	return total;
}
