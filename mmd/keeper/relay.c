/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/common/rights.h"
#include "mmd/keeper/spawn.h"

#define PIPE_BYTES (1 << 18) /* room for some thousand lines */
#define READ_BYTES (1 << 16)
#define END_NS     (2 * MM_NS_PER_S)
#define END_LOOK_S 1000 /* checks per second whether the relay has ended */

int mm_relay_restart(struct mm_relay *relay, const struct mm_config *config)
{
	const int fds[] = { relay->pipe_fd, relay->stderr_fd };

	return mm_spawn(config, MM_ROLE_LOG, fds, MM_ARRAY_SIZE(fds), &relay->pid);
}

int mm_relay_init(struct mm_relay *relay, const struct mm_config *config)
{
	mm_cleanup(mm_close_fd) int write_fd = -1;
	int fds[2], r;

	*relay = MM_RELAY_NULL;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	relay->pipe_fd = fds[0];
	write_fd = fds[1];
	fcntl(write_fd, F_SETPIPE_SZ, PIPE_BYTES); /* or as much as a user may have */
	relay->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	/* On a file system that hangs its close would block every start of a role. */
	mm_spawn_spare(relay->stderr_fd);
	if (relay->stderr_fd < 0 || fcntl(write_fd, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	else
		r = mm_relay_restart(relay, config);
	if (r == 0 && dup2(write_fd, STDERR_FILENO) < 0)
		r = -errno;
	if (r < 0)
		mm_relay_end(relay);
	return r;
}

static bool relay_reaped(struct mm_relay *relay, uint64_t until_ns)
{
	pid_t pid;

	do {
		pid = waitpid(relay->pid, NULL, WNOHANG);
		if (pid == 0)
			usleep(1000000 / END_LOOK_S);
	} while (pid == 0 && mm_now_ns() < until_ns);
	return pid != 0;
}

void mm_relay_end(struct mm_relay *relay)
{
	if (relay->stderr_fd >= 0)
		dup2(relay->stderr_fd,
		     STDERR_FILENO); /* until now stderr was a writing end of the pipe */
	if (relay->pid > 0 && !relay_reaped(relay, mm_deadline_ns(END_NS))) {
		kill(relay->pid, SIGKILL);
		relay_reaped(relay, mm_deadline_ns(END_NS));
	}
	/* The original stderr is left to the end of the process: its file system may hang. */
	mm_close_fd(&relay->pipe_fd);
	relay->pid = 0;
}

/* ---- the role log ---- */

/*
 * Writes @bytes, and drops them when they cannot be written: the reader is gone or the disk is
 * full.
 */
static void bytes_write(const char *bytes, size_t n)
{
	struct pollfd writable = { .fd = STDERR_FILENO, .events = POLLOUT };
	ssize_t done;

	while (n > 0) {
		done = write(STDERR_FILENO, bytes, n);
		if (done < 0 && errno == EAGAIN)
			poll(&writable, 1, -1); /* mmd was started with a non-blocking stderr */
		else if (done < 0 && errno != EINTR)
			return;
		bytes += MM_MAX(done, 0);
		n -= (size_t)MM_MAX(done, 0);
	}
}

/* The filter has nothing but what all roles may do. */
static int relay_rights_drop(void)
{
	static const struct mm_filter filter = { .threads = false };
	const struct mm_rights_user user = { .uid = MM_UID_LOG };
	struct mm_rights rights;
	int r = mm_rights_leave_root(&user, &rights);

	return r < 0 ? r : mm_rights_close(&filter);
}

int mm_relay_main(int fd)
{
	static char bytes[READ_BYTES];
	ssize_t n;

	/*
	 * The relay must live longer than keeper to write keeper's last lines: it ends when the
	 * last writer has.
	 */
	prctl(PR_SET_PDEATHSIG, 0);
	if (dup2(fd + 1, STDERR_FILENO) < 0)
		return 1;
	close(fd + 1);
	if (relay_rights_drop() < 0)
		return 1;
	while ((n = read(fd, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR)) {
		if (n > 0)
			bytes_write(bytes, (size_t)n);
	}
	return n < 0 ? 1 : 0;
}
