/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/hostile/busy.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"

#define PERIOD_NS MM_NS_PER_MS

static uint64_t used_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
}

_Noreturn static void busy_loop(double share, pid_t parent)
{
	const uint64_t begun_ns = mm_now_ns();

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	/* Its part is of all the time so far: what it missed while others ran it takes later. */
	for (;;) {
		const struct timespec nap =
			mm_timespec((uint64_t)((1 - share) * (double)PERIOD_NS));
		const uint64_t until_ns = mm_now_ns() + PERIOD_NS;

		while (mm_now_ns() < until_ns &&
		       (double)used_ns() < share * (double)(mm_now_ns() - begun_ns))
			;
		if (share < 1)
			nanosleep(&nap, NULL);
	}
}

int mm_busy_start(struct mm_busy *busy, double share)
{
	const pid_t parent = getpid();

	*busy = (struct mm_busy){ 0 };
	for (; share > 0.005 && busy->n < MM_BUSY_MAX; share -= 1) {
		const pid_t pid = fork();

		if (pid == 0)
			busy_loop(share < 1 ? share : 1, parent);
		if (pid < 0)
			return -EAGAIN;
		busy->pid[busy->n++] = pid;
	}
	return 0;
}

void mm_busy_stop(struct mm_busy *busy)
{
	for (int i = 0; i < busy->n; i++) {
		kill(busy->pid[i], SIGKILL);
		waitpid(busy->pid[i], NULL, 0);
	}
	busy->n = 0;
}
