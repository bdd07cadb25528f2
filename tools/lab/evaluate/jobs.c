/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/evaluate/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "tools/lab/common/procs.h"

#define LOOK_MS 20

static void run_child(const struct mm_eval_job *job, pid_t parent)
{
	sigset_t none;
	int out = open(job->out_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int r = open(job->err_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	sigemptyset(&none);
	if (out < 0 || r < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(r, STDERR_FILENO) < 0 ||
	    sigprocmask(SIG_SETMASK, &none, NULL) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
	    getppid() != parent)
		_exit(126);
	execv(job->argv[0], job->argv);
	_exit(127);
}

static int job_start(struct mm_eval_job *job)
{
	const pid_t self = getpid(), pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid)
		run_child(job, self);
	job->pid = pid;
	job->begun_ns = mm_now_ns();
	return 0;
}

static bool job_has_ended(struct mm_eval_job *job)
{
	if (job->pid <= 0 || waitpid(job->pid, &job->status, WNOHANG) != job->pid)
		return false;
	job->pid = 0;
	job->wall_s = (double)(mm_now_ns() - job->begun_ns) / 1e9;
	return true;
}

static void job_stop(struct mm_eval_job *job)
{
	if (job->pid <= 0)
		return;
	kill(job->pid, SIGKILL);
	waitpid(job->pid, &job->status, 0);
	job->pid = 0;
}

/* Starts jobs in order until @at_once of them run. */
static int jobs_start_some(struct mm_eval_job *jobs, size_t n, size_t *next, size_t *running,
			   size_t at_once)
{
	while (*next < n && *running < at_once) {
		int r = job_start(&jobs[*next]);

		if (r)
			return r;
		(*next)++;
		(*running)++;
	}
	return 0;
}

int mm_eval_jobs_run(struct mm_eval_job *jobs, size_t n, size_t at_once, int signals,
		     void (*done)(void *user, const struct mm_eval_job *job, size_t ended),
		     void *user)
{
	struct pollfd signal = { .fd = signals, .events = POLLIN };
	size_t next = 0, running = 0, over = 0;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		jobs[i].status = -1;
		jobs[i].pid = 0;
	}
	while (!r && over < n) {
		r = jobs_start_some(jobs, n, &next, &running, at_once);
		for (size_t i = 0; i < next; i++) {
			if (!job_has_ended(&jobs[i]))
				continue;
			running--;
			over++;
			if (done)
				done(user, &jobs[i], over);
		}
		if (!r && over < n && poll(&signal, 1, LOOK_MS) > 0)
			r = -EINTR;
	}
	for (size_t i = 0; i < n; i++)
		job_stop(&jobs[i]);
	return r;
}
