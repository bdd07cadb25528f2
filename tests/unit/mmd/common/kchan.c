/* SPDX-License-Identifier: Apache-2.0 */
/* The channel between keeper and core: what its owner waits for while a message cannot be sent. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "mmd/common/kchan.h"

#define FILES       32
#define STUFF_FDS   16
#define MESSAGE_MAX 4096

struct ends {
	struct mm_kchan ours, theirs;
};

static void ends_init(struct ends *e)
{
	int pair[2];

	assert_int_equal(mm_sock_pair(pair), 0);
	mm_kchan_init(&e->ours, pair[0]);
	mm_kchan_init(&e->theirs, pair[1]);
}

static void ends_done(struct ends *e)
{
	mm_kchan_done(&e->ours);
	mm_kchan_done(&e->theirs);
}

static void message_arrives(struct ends *e, uint64_t id)
{
	struct mm_kpacket packet;

	assert_int_equal(mm_kchan_recv(&e->theirs, &packet), 0);
	assert_int_equal(packet.msg.id, id);
	assert_int_equal(packet.n_names, 0);
	mm_kpacket_done(&packet);
}

/* A full socket is waited for with EPOLLOUT; once all is sent, nothing is waited for. */
static void test_full(void **state)
{
	struct mm_kmsg msg = { .op = MM_K_GONE };
	uint64_t sent = 0;
	struct ends e;

	(void)state;
	ends_init(&e);
	assert_int_equal(mm_kchan_events(&e.ours), EPOLLIN);
	while (!mm_kchan_is_waiting(&e.ours) && sent < MESSAGE_MAX) {
		msg.id = sent++;
		assert_int_equal(mm_kchan_send(&e.ours, &msg, NULL, 0), 0);
	}
	assert_true(mm_kchan_is_waiting(&e.ours));
	assert_int_equal(mm_kchan_events(&e.ours), EPOLLIN | EPOLLOUT);
	assert_true(mm_kchan_deadline(&e.ours) == UINT64_MAX);
	for (uint64_t id = 0; id + 1 < sent; id++)
		message_arrives(&e, id);
	assert_int_equal(mm_kchan_flush(&e.ours), 0);
	message_arrives(&e, sent - 1);
	assert_false(mm_kchan_is_waiting(&e.ours));
	assert_int_equal(mm_kchan_events(&e.ours), EPOLLIN);
	ends_done(&e);
}

/* Puts fds in flight until the kernel lets this user send no more of them. */
static void fds_fly(int sock)
{
	int fds[STUFF_FDS], r = 0;
	const char byte = 0;

	for (size_t i = 0; i < STUFF_FDS; i++)
		fds[i] = sock;
	for (int i = 0; r == 0 && i <= FILES; i++)
		r = mm_sock_send(sock, &byte, sizeof(byte), fds, STUFF_FDS);
	assert_int_equal(r, -ETOOMANYREFS);
}

static void fds_land(int sock)
{
	int fds[STUFF_FDS], r = 0;
	size_t n_fds = 0, len;
	char byte;

	while (r == 0) {
		r = mm_sock_recv(sock, &byte, sizeof(byte), fds, STUFF_FDS, &n_fds, &len);
		while (n_fds)
			mm_close_fd(&fds[--n_fds]);
	}
	assert_int_equal(r, -EAGAIN);
}

/* The socket is writable all the while, so only a timer can be waited for. */
static void too_many_fds(void)
{
	const struct rlimit files = { FILES, FILES };
	struct mm_kmsg msg = { .op = MM_K_TENANT, .id = 7 };
	struct pollfd writable = { .events = POLLOUT };
	struct ends e;
	int pair[2], fd;

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	ends_init(&e);
	assert_int_equal(mm_sock_pair(pair), 0);
	fds_fly(pair[0]);
	fd = dup(pair[0]);
	assert_int_equal(mm_kchan_send(&e.ours, &msg, &fd, 1), 0);
	assert_true(mm_kchan_is_waiting(&e.ours));
	writable.fd = e.ours.fd;
	assert_int_equal(poll(&writable, 1, 0), 1);
	assert_int_equal(mm_kchan_events(&e.ours), EPOLLIN);
	assert_true(mm_kchan_deadline(&e.ours) != UINT64_MAX);
	fds_land(pair[1]);
	assert_int_equal(mm_kchan_service(&e.ours, mm_kchan_deadline(&e.ours) - 1), 0);
	assert_true(mm_kchan_is_waiting(&e.ours));
	assert_int_equal(mm_kchan_service(&e.ours, mm_kchan_deadline(&e.ours)), 0);
	assert_false(mm_kchan_is_waiting(&e.ours));
	assert_true(mm_kchan_deadline(&e.ours) == UINT64_MAX);
	message_arrives(&e, 7);
	ends_done(&e);
}

/*
 * Root is exempt from the limit, which counts per user: the test runs in a process of a user of its
 * own.
 */
static void test_too_many_fds(void **state)
{
	const uid_t uid = 0x10000000u + (uid_t)getpid();
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0) {
		if (geteuid() == 0 && setresuid(uid, uid, uid) < 0)
			_exit(77);
		too_many_fds();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_too_many_fds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
