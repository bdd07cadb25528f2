/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/keeper/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/common/audit.h"
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

/*
 * Opens the file of the audit log, which is made for its owner alone. Nothing but a file can be it:
 * to open or write something else may block, or fail. Return: its fd; negative errno.
 */
static int audit_open(const char *path)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	struct stat st;
	int opened;

	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	opened = fd;
	fd = -1;
	return opened;
}

int mm_relay_check(const struct mm_config *config, char *error)
{
	int fd;

	if (mm_audit_sink(config->audit) != MM_AUDIT_FILE)
		return 0;
	fd = audit_open(config->audit);
	if (fd == -EINVAL || fd == -ELOOP || fd == -ENXIO)
		snprintf(error, MM_CONFIG_ERROR_BYTES,
			 "--audit: %.200s: not a file, or a link to one; name a file",
			 config->audit);
	else if (fd < 0)
		snprintf(error, MM_CONFIG_ERROR_BYTES, "--audit: %.200s: %s", config->audit,
			 strerror(-fd));
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

void mm_relay_reopen(struct mm_relay *relay, const struct mm_config *config)
{
	if (relay->pid <= 0 || mm_audit_sink(config->audit) != MM_AUDIT_FILE)
		return;
	relay->reopens = true;
	kill(relay->pid, SIGHUP);
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

struct relaying {
	int in_fd;
	int audit_fd; /* -1: lines of the audit log are written like all others */
	bool torn;    /* the file ends in the middle of a line */
	bool failed;  /* the file does not take lines, which was logged */
	size_t bytes; /* that were read and not written yet */
	char text[READ_BYTES];
};

static volatile sig_atomic_t relay_hung_up;

static void relay_on_hangup(int signal)
{
	(void)signal;
	relay_hung_up = 1;
}

/*
 * Writes @bytes, and drops them when they cannot be written: the reader is gone or the disk is
 * full. Return: whether all were written.
 */
static bool bytes_write(int fd, const char *bytes, size_t n)
{
	struct pollfd writable = { .fd = fd, .events = POLLOUT };
	ssize_t done;

	while (n > 0) {
		done = write(fd, bytes, n);
		if (done < 0 && errno == EAGAIN)
			poll(&writable, 1, -1); /* mmd was started with a non-blocking stderr */
		else if (done < 0 && errno != EINTR)
			return false;
		bytes += MM_MAX(done, 0);
		n -= (size_t)MM_MAX(done, 0);
	}
	return true;
}

static bool line_is_audit(const char *line, size_t bytes)
{
	const size_t n = sizeof(MM_AUDIT_BEGIN) - 1;

	return bytes >= n && memcmp(line, MM_AUDIT_BEGIN, n) == 0;
}

static void audit_line_write(struct relaying *r, const char *line, size_t bytes)
{
	bool written = !r->torn || bytes_write(r->audit_fd, "\n", 1);
	int error;

	r->torn &= !written;
	written = written && bytes_write(r->audit_fd, line, bytes);
	if (written) {
		r->failed = false;
		return;
	}
	error = errno;
	r->torn = true;
	if (!r->failed)
		mm_log(MM_LOG_ERROR, "audit.unwritable", "error=\"%s\"", strerror(error));
	r->failed = true;
	bytes_write(STDERR_FILENO, line, bytes);
}

/* Writes all lines that are there to their end, those of the log in as few pieces as it goes. */
static void lines_write(struct relaying *r)
{
	size_t from = 0, at = 0;
	const char *end;

	while ((end = memchr(r->text + at, '\n', r->bytes - at))) {
		const size_t next = (size_t)(end - r->text) + 1;

		if (r->audit_fd >= 0 && line_is_audit(r->text + at, next - at)) {
			bytes_write(STDERR_FILENO, r->text + from, at - from);
			audit_line_write(r, r->text + at, next - at);
			from = next;
		}
		at = next;
	}
	/* A piece that is no line, and will be none, is passed on as it is. */
	if (r->audit_fd < 0 || r->bytes - at == sizeof(r->text))
		at = r->bytes;
	bytes_write(STDERR_FILENO, r->text + from, at - from);
	r->bytes -= at;
	memmove(r->text, r->text + at, r->bytes);
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

/* Opens the file that is named, and has SIGHUP end the process between two reads. */
static void audit_begin(struct relaying *r, const struct mm_config *config)
{
	const struct sigaction action = { .sa_handler = relay_on_hangup };
	sigset_t hangup;

	if (mm_audit_sink(config->audit) != MM_AUDIT_FILE)
		return;
	sigemptyset(&hangup);
	sigaddset(&hangup, SIGHUP);
	sigprocmask(SIG_BLOCK, &hangup, NULL);
	sigaction(SIGHUP, &action, NULL);
	r->audit_fd = audit_open(config->audit);
	if (r->audit_fd < 0)
		mm_log(MM_LOG_ERROR, "audit.unwritable", "error=\"%s\"", strerror(-r->audit_fd));
}

/* Return: whether there is something to read, or the end of it; false: SIGHUP came. */
static bool relay_wait(const struct relaying *r)
{
	struct pollfd readable = { .fd = r->in_fd, .events = POLLIN };
	sigset_t none;

	sigemptyset(&none);
	while (!relay_hung_up) {
		if (ppoll(&readable, 1, NULL, &none) > 0)
			return true;
	}
	return false;
}

int mm_relay_main(int fd, const struct mm_config *config)
{
	static struct relaying r;
	ssize_t n = 1;

	r.in_fd = fd;
	r.audit_fd = -1;
	/*
	 * The relay must live longer than keeper to write keeper's last lines: it ends when the
	 * last writer has.
	 */
	prctl(PR_SET_PDEATHSIG, 0);
	if (dup2(fd + 1, STDERR_FILENO) < 0)
		return 1;
	close(fd + 1);
	audit_begin(&r, config);
	if (relay_rights_drop() < 0)
		return 1;
	/* A line that is there in part is read to its end: the next process would get the rest. */
	while (n != 0 && (r.bytes || relay_wait(&r))) {
		n = read(fd, r.text + r.bytes, sizeof(r.text) - r.bytes);
		if (n < 0 && errno != EINTR)
			return 1;
		r.bytes += (size_t)MM_MAX(n, 0);
		lines_write(&r);
	}
	bytes_write(STDERR_FILENO, r.text, r.bytes);
	return 0;
}
