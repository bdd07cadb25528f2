/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXIT_NO_EXEC 127

static int spared_fd = -1;
static int program_fd = -1;

void mm_spawn_program(int fd)
{
	program_fd = fd;
}

void mm_spawn_spare(int fd)
{
	spared_fd = fd;
}

/* Closes all fds from @first on, except the spared one, which exec closes. */
static void spawn_close_fds(int first)
{
	if (spared_fd < first) {
		close_range((unsigned int)first, ~0u, 0);
		return;
	}
	if (spared_fd > first)
		close_range((unsigned int)first, (unsigned int)spared_fd - 1, 0);
	close_range((unsigned int)spared_fd + 1, ~0u, 0);
}

/* Runs in the child after fork, so it may call only async-signal-safe functions. */
_Noreturn static void role_exec(char **argv, pid_t parent, const int *fds, int n_fds, int clean_fd)
{
	const int safe = MM_ROLE_FD + MM_SPAWN_FDS_MAX + 2;
	int moved[MM_SPAWN_FDS_MAX];
	/*
	 * keeper ends the roles in order; signals of a terminal or of systemd reach all processes
	 * of mmd.
	 */
	static const int ignored[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 };
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_NO_EXEC);
	for (size_t i = 0; i < MM_ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/*
	 * Each fd is moved out of the way first: a source may have the number of another one's
	 * target.
	 */
	for (int i = 0; i < n_fds; i++)
		moved[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, safe);
	for (int i = 0; i < n_fds; i++) {
		if (moved[i] < 0 || dup2(moved[i], MM_ROLE_FD + i) < 0)
			_exit(EXIT_NO_EXEC);
	}
	clean_fd = fcntl(clean_fd, F_DUPFD_CLOEXEC, safe);
	if (clean_fd < 0 || dup2(clean_fd, MM_ROLE_FD + n_fds) < 0)
		_exit(EXIT_NO_EXEC);
	/* It is closed by exec, which is done with it then. */
	if (program_fd >= 0) {
		program_fd = fcntl(program_fd, F_DUPFD_CLOEXEC, safe);
		if (program_fd < 0 || dup3(program_fd, MM_ROLE_FD + n_fds + 1, O_CLOEXEC) < 0)
			_exit(EXIT_NO_EXEC);
	}
	spawn_close_fds(MM_ROLE_FD + n_fds + (program_fd < 0 ? 1 : 2));
	close(MM_ROLE_FD + n_fds);
	if (program_fd >= 0)
		fexecve(MM_ROLE_FD + n_fds + 1, argv, environ);
	else
		execv("/proc/self/exe", argv);
	_exit(EXIT_NO_EXEC);
}

/*
 * Waits until the child has closed its copies of our connections, while we still have ours. If the
 * child's were the last close, it might sleep there (closer.h), and the role would not start.
 */
static void child_fds_wait(int fd)
{
	char byte;

	while (read(fd, &byte, sizeof(byte)) < 0 && errno == EINTR)
		;
}

int mm_spawn(const struct mm_config *config, enum mm_role role, const int *fds, size_t n_fds,
	     pid_t *ret_pid)
{
	char *argv[MM_CONFIG_ARGS_MAX];
	pid_t parent = getpid(), pid;
	int clean[2], r;

	mm_assert(n_fds <= MM_SPAWN_FDS_MAX);
	r = mm_config_args(config, role, argv);
	if (r < 0)
		return r;
	if (pipe2(clean, O_CLOEXEC) < 0) {
		r = -errno;
		mm_config_args_free(argv);
		return r;
	}
	pid = fork();
	if (pid == 0)
		role_exec(argv, parent, fds, (int)n_fds, clean[1]);
	r = pid < 0 ? -errno : 0;
	close(clean[1]);
	if (r == 0)
		child_fds_wait(clean[0]);
	close(clean[0]);
	mm_config_args_free(argv);
	if (r == 0)
		*ret_pid = pid;
	return r;
}
