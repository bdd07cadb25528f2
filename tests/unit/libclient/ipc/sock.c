/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

struct sockets {
	int fd[2];
	int file;
	int open_before;
};

static int setup(void **state)
{
	static struct sockets s;

	s.open_before = open_fds();
	s.file = open("/dev/null", O_RDONLY | O_CLOEXEC);
	*state = &s;
	return s.file < 0 || mm_sock_pair(s.fd);
}

static int teardown(void **state)
{
	struct sockets *s = *state;

	mm_close_fd(&s->fd[0]);
	mm_close_fd(&s->fd[1]);
	mm_close_fd(&s->file);
	assert_int_equal(open_fds(), s->open_before); /* no test leaks an fd */
	return 0;
}

static int recv_some(struct sockets *s, char *buf, size_t cap, int *fds, size_t max, size_t *n)
{
	size_t len = 0;

	memset(buf, 0, cap);
	return mm_sock_recv(s->fd[1], buf, cap, fds, max, n, &len);
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

static void test_messages(void **state)
{
	struct sockets *s = *state;
	int fds[MM_SOCK_FDS_MAX], got[MM_SOCK_FDS_MAX];
	char buf[16];
	size_t n;

	for (size_t i = 0; i < MM_SOCK_FDS_MAX; i++)
		fds[i] = s->file;
	assert_int_equal(recv_some(s, buf, sizeof(buf), got, 1, &n), -EAGAIN);
	assert_int_equal(mm_sock_send(s->fd[0], "one", 4, NULL, 0), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "all", 4, fds, MM_SOCK_FDS_MAX), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "too many", 9, fds, MM_SOCK_FDS_MAX + 1), -EINVAL);
	assert_int_equal(mm_sock_send(s->fd[0], "", 0, NULL, 0), -EINVAL);
	assert_int_equal(recv_some(s, buf, sizeof(buf), got, 0, &n), 0);
	assert_string_equal(buf, "one");
	assert_int_equal(n, 0);
	assert_int_equal(recv_some(s, buf, sizeof(buf), got, MM_SOCK_FDS_MAX, &n), 0);
	assert_string_equal(buf, "all");
	assert_int_equal(n, MM_SOCK_FDS_MAX);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
	close_all(got, n);
}

static void test_more_fds_than_asked(void **state)
{
	struct sockets *s = *state;
	int fds[3] = { s->file, s->file, s->file }, got[3];
	char buf[16];
	size_t n = 9;

	/* The padding of CMSG_SPACE would be room for one fd more than requested. */
	for (size_t max = 0; max < 3; max++) {
		assert_int_equal(mm_sock_send(s->fd[0], "fds", 4, fds, max + 1), 0);
		assert_int_equal(recv_some(s, buf, sizeof(buf), got, max, &n), -EMFILE);
		assert_string_equal(buf, "fds"); /* so that the fds can be requested again */
		assert_int_equal(n, 0);
	}
}

static void test_low_nofile(void **state)
{
	struct sockets *s = *state;
	int fds[8], got[8], next = fcntl(s->file, F_DUPFD_CLOEXEC, 0);
	struct rlimit old, low;
	char buf[16];
	size_t n;
	int r;

	close(next);
	for (size_t i = 0; i < 8; i++)
		fds[i] = s->file;
	assert_int_equal(mm_sock_send(s->fd[0], "batch", 6, fds, 8), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "again", 6, fds, 8), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = (rlim_t)next + 3, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	r = recv_some(s, buf, sizeof(buf), got, 8, &n);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(r, -EMFILE);
	assert_string_equal(buf, "batch");
	assert_int_equal(n, 0);
	assert_int_equal(recv_some(s, buf, sizeof(buf), got, 8, &n), 0);
	assert_string_equal(buf, "again");
	assert_int_equal(n, 8);
	close_all(got, n);
}

/* A message that is looked at stays, with its fds, also where there is no room for these. */
static void test_look_and_skip(void **state)
{
	struct sockets *s = *state;
	struct rlimit before, low;
	int fds[2];
	size_t n = 0, len = 0;
	char buf[16];

	assert_int_equal(mm_sock_look(s->fd[1], buf, sizeof(buf), fds, 2, &n, &len), -EAGAIN);
	assert_int_equal(mm_sock_skip(s->fd[1]), -EAGAIN);
	assert_int_equal(mm_sock_send(s->fd[0], "first", 6, (int[]){ s->file, s->file }, 2), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "second", 7, NULL, 0), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	low.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(mm_sock_look(s->fd[1], buf, sizeof(buf), fds, 2, &n, &len), -EMFILE);
	assert_int_equal(n, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(mm_sock_look(s->fd[1], buf, sizeof(buf), fds, 2, &n, &len), 0);
		assert_int_equal(n, 2);
		assert_int_equal(len, 6);
		assert_string_equal(buf, "first");
		close_all(fds, n);
	}
	assert_int_equal(mm_sock_skip(s->fd[1]), 0);
	assert_int_equal(mm_sock_look(s->fd[1], buf, sizeof(buf), fds, 2, &n, &len), 0);
	assert_int_equal(n, 0);
	assert_string_equal(buf, "second");
	assert_int_equal(mm_sock_skip(s->fd[1]), 0);
	mm_close_fd(&s->fd[0]);
	assert_int_equal(mm_sock_look(s->fd[1], buf, sizeof(buf), fds, 2, &n, &len), -ECONNRESET);
	assert_int_equal(mm_sock_skip(s->fd[1]), -ECONNRESET);
}

static void test_too_long(void **state)
{
	struct sockets *s = *state;
	char buf[4];
	int got[1];
	size_t n, len;

	assert_int_equal(mm_sock_send(s->fd[0], "too long", 9, &s->file, 1), 0);
	assert_int_equal(mm_sock_recv(s->fd[1], buf, 4, got, 1, &n, &len), -EMSGSIZE);
	assert_int_equal(n, 0);
	assert_int_equal(mm_sock_send(s->fd[0], "too long", 9, NULL, 0), 0);
	assert_int_equal(mm_sock_recv_nofds(s->fd[1], buf, 4, &len), -EMSGSIZE);
}

static void test_fds_refused(void **state)
{
	struct sockets *s = *state;
	char buf[16];
	size_t len;
	int before = open_fds();
	int r;

	assert_int_equal(mm_sock_send(s->fd[0], "nofds", 6, &s->file, 1), 0);
	assert_int_equal(mm_sock_recv_nofds(s->fd[1], buf, sizeof(buf), &len), 0);
	assert_string_equal(buf, "nofds");
	assert_int_equal(open_fds(), before);

	r = mm_sock_refuse_fds(s->fd[1]);
	if (r == -ENOPROTOOPT)
		return; /* a kernel before 6.16 */
	assert_int_equal(r, 0);
	assert_int_equal(mm_sock_send(s->fd[0], "fd", 3, &s->file, 1), -EPERM);
	assert_int_equal(mm_sock_send(s->fd[0], "no fd", 6, NULL, 0), 0);
}

/* True if no process has the write end of the pipe any more. */
static bool last_is_closed(int read_fd)
{
	struct pollfd p = { .fd = read_fd };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

static void test_fds_left_where_they_are(void **state)
{
	struct sockets *s = *state;
	int pipe_fd[2], before;
	char buf[16];
	size_t len;

	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "clean", 6, NULL, 0), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "fd", 3, &pipe_fd[1], 1), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "clean", 6, NULL, 0), 0);
	mm_close_fd(&pipe_fd[1]);
	before = open_fds();
	assert_int_equal(mm_sock_recv_clean(s->fd[1], buf, sizeof(buf), &len), 0);
	assert_string_equal(buf, "clean");
	for (int i = 0; i < 3; i++)
		assert_int_equal(mm_sock_recv_clean(s->fd[1], buf, sizeof(buf), &len), -EPERM);
	assert_int_equal(open_fds(), before);
	assert_int_equal(mm_sock_drain(s->fd[1]), -EPERM);
	assert_int_equal(mm_sock_send(s->fd[0], "late", 5, NULL, 0), -ECONNRESET);
	assert_false(last_is_closed(pipe_fd[0]));
	mm_close_fd(&s->fd[1]);
	assert_true(last_is_closed(pipe_fd[0]));
	mm_close_fd(&pipe_fd[0]);
}

static void test_drain(void **state)
{
	struct sockets *s = *state;
	char buf[16];
	size_t len;

	for (int i = 0; i < 5; i++)
		assert_int_equal(mm_sock_send(s->fd[0], "clean", 6, NULL, 0), 0);
	assert_int_equal(mm_sock_send(s->fd[1], "answer", 7, NULL, 0), 0);
	assert_int_equal(mm_sock_drain(s->fd[1]), 0);
	assert_int_equal(mm_sock_recv_clean(s->fd[0], buf, sizeof(buf), &len), 0);
	assert_string_equal(buf, "answer");
	assert_int_equal(mm_sock_recv_clean(s->fd[0], buf, sizeof(buf), &len), -ECONNRESET);
	assert_int_equal(mm_sock_drain(s->fd[1]), 0); /* a second time has no effect */
}

/* The error for a peer that closed with messages unread comes before the messages that it sent. */
static void test_drain_after_reset(void **state)
{
	struct sockets *s = *state;

	assert_int_equal(mm_sock_send(s->fd[1], "unread", 7, NULL, 0), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "clean", 6, NULL, 0), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "fd", 3, &s->file, 1), 0);
	mm_close_fd(&s->fd[0]);
	assert_int_equal(mm_sock_drain(s->fd[1]), -EPERM);
}

/* A peer that dies with messages unread is read to its end, with the fds that it sent. */
static void test_last_words(void **state)
{
	for (int reader = 0; reader < 3; reader++) {
		struct sockets *s = *state;
		int got[1] = { -1 };
		char buf[16];
		size_t n = 0, len;

		assert_int_equal(mm_sock_send(s->fd[1], "unread", 7, NULL, 0), 0);
		assert_int_equal(mm_sock_send(s->fd[0], "one", 4, &s->file, reader == 0), 0);
		assert_int_equal(mm_sock_send(s->fd[0], "two", 4, NULL, 0), 0);
		mm_close_fd(&s->fd[0]);
		for (int i = 0; i < 3; i++) {
			int r;

			if (reader == 0)
				r = mm_sock_recv(s->fd[1], buf, sizeof(buf), got, 1, &n, &len);
			else if (reader == 1)
				r = mm_sock_recv_nofds(s->fd[1], buf, sizeof(buf), &len);
			else
				r = mm_sock_recv_clean(s->fd[1], buf, sizeof(buf), &len);
			assert_int_equal(r, i < 2 ? 0 : -ECONNRESET);
			if (i < 2)
				assert_string_equal(buf, i ? "two" : "one");
			assert_int_equal(n, reader == 0 && i == 0);
			close_all(got, n);
		}
		mm_close_fd(&s->fd[1]);
		assert_int_equal(mm_sock_pair(s->fd), 0);
	}
}

static void test_listener_refuses(void **state)
{
	struct sockets *s = *state;
	char dir[] = "/tmp/mm-sock-XXXXXX", path[64], buf[16];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	for (int refuse = 0; refuse < 2; refuse++) {
		mm_cleanup(mm_close_fd) int listener = -1;
		mm_cleanup(mm_close_fd) int client = -1;
		mm_cleanup(mm_close_fd) int server = -1;
		bool refuses;
		size_t len;
		int r;

		assert_int_equal(mm_sock_listen(path, 0600, refuse, &listener), 0);
		assert_int_equal(mm_sock_connect(path, MM_NS_PER_S, &client), 0);
		r = mm_sock_send(client, "fd", 3, &s->file, 1); /* before it is accepted */
		server = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		assert_true(server >= 0);
		refuses = mm_sock_refuses_fds(server);
		assert_true(refuse || !refuses);
		assert_int_equal(r, refuses ? -EPERM : 0);
		r = mm_sock_recv_clean(server, buf, sizeof(buf), &len);
		assert_int_equal(r, refuses ? -EAGAIN : -EPERM);
		if (refuse && mm_sock_refuse_fds(listener) == 0)
			assert_true(refuses);
	}
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void test_doorbell_and_end(void **state)
{
	struct sockets *s = *state;
	char buf[16];
	int got[1];
	size_t n, len;

	for (int i = 0; i < 100000; i++) /* far more than the socket holds */
		assert_int_equal(mm_sock_doorbell(s->fd[0]), 0);
	assert_int_equal(mm_sock_send(s->fd[0], "x", 2, NULL, 0), -EAGAIN);
	assert_int_equal(mm_sock_wait(s->fd[0], POLLOUT, mm_deadline_ns(1000000)), -ETIMEDOUT);
	while (mm_sock_recv_nofds(s->fd[1], buf, sizeof(buf), &len) == 0)
		assert_int_equal(len, 1);
	mm_close_fd(&s->fd[1]);
	assert_int_equal(mm_sock_wait(s->fd[0], POLLIN, UINT64_MAX), 0);
	assert_int_equal(mm_sock_recv(s->fd[0], buf, sizeof(buf), got, 1, &n, &len), -ECONNRESET);
	assert_int_equal(mm_sock_recv_nofds(s->fd[0], buf, sizeof(buf), &len), -ECONNRESET);
	assert_int_equal(mm_sock_doorbell(s->fd[0]), -ECONNRESET);
}

static void test_listen(void **state)
{
	struct sockets *s = *state;
	char dir[] = "/tmp/mm-sock-XXXXXX", path[64], longer[200];
	mm_cleanup(mm_close_fd) int listener = -1;
	mm_cleanup(mm_close_fd) int other = -1;
	mm_cleanup(mm_close_fd) int client = -1;
	struct stat st;

	(void)s;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	assert_int_equal(mm_sock_connect(path, MM_NS_PER_S, &client), -ENOENT);
	assert_int_equal(mm_sock_listen(path, 0600, false, &listener), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(mm_sock_connect(path, MM_NS_PER_S, &client), 0);
	assert_int_equal(mm_sock_listen(path, 0600, false, &other), -EADDRINUSE);
	mm_close_fd(&listener); /* as after kill -9: the file stays */
	mm_close_fd(&client);
	assert_int_equal(mm_sock_connect(path, MM_NS_PER_S, &client), -ECONNREFUSED);
	assert_int_equal(mm_sock_listen(path, 0666, false, &other), 0);
	assert_int_equal(mm_sock_connect(path, MM_NS_PER_S, &client), 0);
	unlink(path);
	assert_int_equal(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	assert_int_equal(mm_sock_listen(path, 0600, false, &listener),
			 -EADDRINUSE); /* not a socket: kept */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	assert_int_equal(mm_sock_listen(longer, 0600, false, &listener), -ENAMETOOLONG);
	assert_int_equal(mm_sock_connect(longer, MM_NS_PER_S, &client), -ENAMETOOLONG);
}

/* A socket whose queue is full is waited for no longer than the caller wants. */
static void test_connect_to_full_queue(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char dir[] = "/tmp/mm-sock-XXXXXX";
	mm_cleanup(mm_close_fd) int listener = -1;
	int fds[64], n = 0, r = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/sock", dir);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(listener >= 0);
	assert_int_equal(bind(listener, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 0), 0);
	while (!r && n < (int)MM_ARRAY_SIZE(fds)) {
		r = mm_sock_connect(address.sun_path, 10 * MM_NS_PER_MS, &fds[n]);
		n += !r;
	}
	assert_int_equal(r, -EAGAIN);
	assert_true(n > 0);
	while (n > 0)
		close(fds[--n]);
	assert_int_equal(unlink(address.sun_path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_messages, setup, teardown),
		cmocka_unit_test_setup_teardown(test_more_fds_than_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_low_nofile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_look_and_skip, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_long, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fds_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_fds_left_where_they_are, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(test_drain_after_reset, setup, teardown),
		cmocka_unit_test_setup_teardown(test_last_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_listener_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_doorbell_and_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_listen, setup, teardown),
		cmocka_unit_test(test_connect_to_full_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
