/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#define EXIT_NO_EXEC 127

/* In the child, after fork: only what is async-signal-safe. */
_Noreturn static void become(char **argv, pid_t parent, const int *fds, int n_fds)
{
	const int safe = MM_ROLE_FD + MM_SPAWN_FDS_MAX;
	int moved[MM_SPAWN_FDS_MAX];
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NO_EXEC);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* A terminal's ^C and systemd's stop reach all of us: it is keeper that ends the others, in order. */
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	/* Two steps: a source may lie where another's target is. */
	for (int i = 0; i < n_fds; i++)
		moved[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, safe);
	for (int i = 0; i < n_fds; i++) {
		if (moved[i] < 0 || dup2(moved[i], MM_ROLE_FD + i) < 0)
			_exit(EXIT_NO_EXEC);
	}
	close_range((unsigned int)(MM_ROLE_FD + n_fds), ~0u, 0);
	execv("/proc/self/exe", argv);
	_exit(EXIT_NO_EXEC);
}

int mm_spawn(const struct mm_config *config, enum mm_role role, const int *fds, size_t n_fds,
	     pid_t *ret_pid)
{
	char *argv[MM_CONFIG_ARGS_MAX];
	pid_t parent = getpid(), pid;
	int r;

	mm_assert(n_fds <= MM_SPAWN_FDS_MAX);
	r = mm_config_args(config, role, argv);
	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0)
		become(argv, parent, fds, (int)n_fds);
	r = pid < 0 ? -errno : 0;
	mm_config_args_free(argv);
	if (r == 0)
		*ret_pid = pid;
	return r;
}
