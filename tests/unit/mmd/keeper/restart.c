/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper and the ends of core: when another core follows, what it gets, and when mmd ends. This
 * program is mmd with a core of its own, which does what its case says and writes down what it saw.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/keeper/keeper.h"
#include "mmd/keeper/relay.h"
#include "mmd/shell/held.h"

#define WAIT_NS (120 * MM_NS_PER_S)
#define KILLS   40

/* ---- the core ---- */

struct fake_core {
	struct mm_kchan chan;
	struct mm_held held;
};

static struct mm_held_name name_of(enum mm_held_kind kind, uint64_t id)
{
	return (struct mm_held_name){ .kind = kind, .id = id };
}

static struct mm_held_name peer_of(enum mm_role role, uint64_t id)
{
	return (struct mm_held_name){ MM_HELD_PEER, mm_held_peer(role, 0), id };
}

static void core_send(struct fake_core *c, enum mm_kop op, enum mm_role role, uint64_t id)
{
	struct mm_kmsg msg = { .op = op, .role = role, .id = id, .flags = MM_K_F_RESUMABLE };

	if (mm_kchan_send(&c->chan, &msg, NULL, 0) < 0)
		_exit(3);
}

static void core_serves(struct fake_core *c)
{
	core_send(c, c->held.generation == 1 ? MM_K_READY : MM_K_RESUMED, MM_ROLE_CORE, 0);
}

/* Waits for a message of keeper. */
static struct mm_kpacket core_next(struct fake_core *c, enum mm_kop op)
{
	struct mm_kpacket packet;
	int r;

	for (;;) {
		mm_held_beat(&c->held, mm_now_ns(), false);
		r = mm_kchan_recv(&c->chan, &packet);
		if (r == 0 && packet.msg.op == op)
			return packet;
		if (r < 0 && r != -EAGAIN)
			_exit(4);
		if (r == -EAGAIN)
			mm_sock_wait(c->chan.fd, POLLIN, mm_deadline_ns(10 * MM_NS_PER_MS));
	}
}

/* Ends mmd in order, as an operator does. */
static void core_end_all(struct fake_core *c)
{
	kill(getppid(), SIGTERM);
	core_next(c, MM_K_STOP);
	_exit(0);
}

static void core_require(bool holds, int line)
{
	if (holds)
		return;
	fprintf(stderr, "restart.c:%d: does not hold\n", line);
	kill(getppid(), SIGKILL);
	_exit(5);
}
#define REQUIRE(holds) core_require((holds), __LINE__)

static size_t file_bytes(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 ? (size_t)st.st_size : 0;
}

static void core_killed_often(struct fake_core *c)
{
	const uint64_t n = c->held.generation;
	int fd = memfd_create("page", MFD_CLOEXEC);

	for (uint64_t i = 1; i < n; i++)
		REQUIRE(file_bytes(mm_held_take(&c->held, name_of(MM_HELD_PAGE, i))) == i);
	for (uint64_t i = 0; i < 2; i++)
		REQUIRE(file_bytes(mm_held_take(
				&c->held,
				(struct mm_held_name){ MM_HELD_CONFIG, (uint32_t)i, 0 })) > 0);
	REQUIRE(mm_held_drop_rest(&c->held) == 0);
	REQUIRE(ftruncate(fd, (off_t)n) == 0);
	mm_held_put(&c->held, name_of(MM_HELD_PAGE, n), fd);
	mm_held_flush(&c->held);
	core_serves(c);
	if (n > KILLS)
		core_end_all(c);
	kill(getpid(), SIGKILL);
}

static void core_crashes(struct fake_core *c)
{
	core_serves(c);
	_exit(9);
}

static void core_never_ready(struct fake_core *c)
{
	(void)c;
	kill(getpid(), SIGKILL);
}

static void core_not_resumable(struct fake_core *c)
{
	const struct mm_kmsg msg = { .op = MM_K_READY, .role = MM_ROLE_CORE };

	mm_kchan_send(&c->chan, &msg, NULL, 0);
	kill(getpid(), SIGKILL);
}

static void core_stands_still(struct fake_core *c)
{
	core_serves(c);
	if (c->held.generation == 1)
		for (;;)
			pause();
	if (c->held.generation == 2) {
		mm_held_beat(&c->held, mm_now_ns(), true);
		kill(getpid(), SIGSTOP);
		for (;;)
			pause();
	}
	core_end_all(c);
}

/* Sends a byte through our end of a pair, and waits for the answer. */
static bool peer_answers(int fd)
{
	char byte = 'a';
	size_t len;

	if (fd < 0 || mm_sock_send(fd, &byte, 1, NULL, 0) < 0)
		return false;
	mm_sock_wait(fd, POLLIN, mm_deadline_ns(WAIT_NS));
	return mm_sock_recv_nofds(fd, &byte, 1, &len) == 0 && byte == 'b';
}

static void children_start(struct fake_core *c)
{
	static const enum mm_role role[] = { MM_ROLE_XFER, MM_ROLE_SPOOL, MM_ROLE_LOAD };
	struct mm_kpacket packet;

	for (size_t i = 0; i < MM_ARRAY_SIZE(role); i++) {
		core_send(c, MM_K_START, role[i], 7 + i);
		core_send(c, MM_K_START, role[i], 7 + i); /* twice is as good as once */
		packet = core_next(c, MM_K_STARTED);
		REQUIRE(packet.msg.role == role[i] && peer_answers(packet.fd[0]));
	}
}

static void core_with_children(struct fake_core *c)
{
	const struct mm_held_child *x = mm_held_child(&c->held, MM_ROLE_XFER, 0, 7);
	const struct mm_held_child *s = mm_held_child(&c->held, MM_ROLE_SPOOL, 0, 8);
	const struct mm_held_child *l = mm_held_child(&c->held, MM_ROLE_LOAD, 0, 9);

	if (c->held.generation == 1) {
		children_start(c);
	} else if (c->held.generation == 2) {
		REQUIRE(x && !x->ended && kill((pid_t)x->pid, 0) == 0);
		/* The load was killed, or had ended and was reaped before. */
		REQUIRE(s && !s->ended && (!l || l->ended));
		REQUIRE(peer_answers(mm_held_take(&c->held, peer_of(MM_ROLE_XFER, 7))));
		REQUIRE(peer_answers(mm_held_take(&c->held, peer_of(MM_ROLE_SPOOL, 8))));
		core_serves(c);
		core_send(c, MM_K_KILL, MM_ROLE_SPOOL, 8);
		core_next(c, MM_K_GONE);
		/* This one is reaped when core is dead, or then its end is reported. */
		core_send(c, MM_K_KILL, MM_ROLE_XFER, 7);
		kill(getpid(), SIGKILL);
	} else {
		REQUIRE(x && !s && !l);
		if (!x->ended)
			core_next(c, MM_K_GONE);
		core_send(c, MM_K_START, MM_ROLE_XFER, 8);
		core_next(c, MM_K_STARTED);
		core_end_all(c);
	}
	core_serves(c);
	kill(getpid(), SIGKILL);
}

/* The first core accepts a connection and dies; the next one answers on it, and drops it. */
static void core_with_tenant(struct fake_core *c)
{
	struct mm_kpacket packet;
	char byte = 'b';
	int fd;

	if (c->held.generation == 1) {
		core_serves(c);
		packet = core_next(c, MM_K_TENANT);
		REQUIRE(packet.msg.id == 1 && packet.fd[0] >= 0);
		kill(getpid(), SIGKILL);
	}
	fd = mm_held_take(&c->held, name_of(MM_HELD_CONN, 1));
	REQUIRE(peer_answers(fd));
	core_serves(c);
	packet = core_next(c, MM_K_TENANT);
	REQUIRE(packet.msg.id == 2 && mm_sock_send(packet.fd[0], &byte, 1, NULL, 0) == 0);
	close(fd);
	close(packet.fd[0]);
	/* Without a drop it stays open; the other one ends when it is dropped. */
	mm_held_drop(&c->held, name_of(MM_HELD_CONN, 1), true);
	mm_held_flush(&c->held);
	core_next(c, MM_K_STOP);
	_exit(0);
}

static const struct {
	const char *name;
	void (*core)(struct fake_core *c);
} cases[] = {
	{ "killed-often", core_killed_often }, { "crashes", core_crashes },
	{ "never-ready", core_never_ready },   { "not-resumable", core_not_resumable },
	{ "stands-still", core_stands_still }, { "with-children", core_with_children },
	{ "with-tenant", core_with_tenant },
};

static int core_main(void)
{
	static struct fake_core c;
	const char *name = getenv("MM_TEST_CASE");
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/cores", getenv("MM_TEST_DIR"));
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "x", 1) != 1)
		return 2;
	close(fd);
	mm_kchan_init(&c.chan, MM_ROLE_FD);
	mm_held_init(&c.held, &c.chan);
	if (mm_held_receive(&c.held) < 0)
		return 2;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		if (strcmp(cases[i].name, name) == 0)
			cases[i].core(&c);
	}
	return 2;
}

/* An xfer, a load or a spool: answers bytes until its pair ends. */
static int child_main(void)
{
	char byte;
	size_t len;
	int r;

	for (;;) {
		r = mm_sock_wait(MM_ROLE_FD, POLLIN, UINT64_MAX);
		if (r == 0)
			r = mm_sock_recv_nofds(MM_ROLE_FD, &byte, 1, &len);
		if (r < 0)
			return 0;
		byte++;
		mm_sock_send(MM_ROLE_FD, &byte, 1, NULL, 0);
	}
}

/* ---- the tests ---- */

struct run {
	char dir[64];
	pid_t pid;
};

static void run_start(struct run *run, const char *name, const char *timeout_ms)
{
	char *argv[] = { (char *)"mmd",      (char *)"--dir",
			 run->dir,           (char *)"--core-timeout",
			 (char *)timeout_ms, (char *)"--log-level",
			 (char *)"error",    NULL };

	snprintf(run->dir, sizeof(run->dir), "/tmp/mm-restart-XXXXXX");
	assert_non_null(mkdtemp(run->dir));
	setenv("MM_TEST_CASE", name, 1);
	setenv("MM_TEST_DIR", run->dir, 1);
	run->pid = fork();
	assert_true(run->pid >= 0);
	if (run->pid == 0) {
		execv("/proc/self/exe", argv);
		_exit(127);
	}
}

/* Waits for mmd to end. Return: how many cores there were. */
static size_t run_end(struct run *run, int expected)
{
	char path[100];
	struct stat st;
	int status;

	assert_int_equal(waitpid(run->pid, &status, 0), run->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), expected);
	snprintf(path, sizeof(path), "%s/cores", run->dir);
	assert_int_equal(stat(path, &st), 0);
	unlink(path);
	snprintf(path, sizeof(path), "%s/mmd.lock", run->dir);
	unlink(path);
	assert_int_equal(rmdir(run->dir), 0);
	return (size_t)st.st_size;
}

static size_t run_whole(const char *name, const char *timeout_ms, int expected)
{
	struct run run;

	run_start(&run, name, timeout_ms);
	return run_end(&run, expected);
}

static void test_killed_often(void **state)
{
	(void)state;
	assert_int_equal(run_whole("killed-often", "0", 0), KILLS + 1);
}

static void test_crashes(void **state)
{
	(void)state;
	assert_int_equal(run_whole("crashes", "0", 1), 6);
}

static void test_no_successor(void **state)
{
	(void)state;
	assert_int_equal(run_whole("never-ready", "0", 1), 1);
	assert_int_equal(run_whole("not-resumable", "0", 1), 1);
}

static void test_stands_still(void **state)
{
	(void)state;
	assert_int_equal(run_whole("stands-still", "100", 0), 3);
}

static void test_children(void **state)
{
	(void)state;
	assert_int_equal(run_whole("with-children", "0", 0), 3);
}

static int tenant_connect(const struct run *run)
{
	const uint64_t end_ns = mm_deadline_ns(WAIT_NS);
	char path[100];
	int fd, r;

	snprintf(path, sizeof(path), "%s/tenant.sock", run->dir);
	do
		r = mm_sock_connect(path, WAIT_NS, &fd);
	while (r < 0 && mm_now_ns() < end_ns && usleep(1000) == 0);
	assert_int_equal(r, 0);
	return fd;
}

static char tenant_receive(int fd)
{
	char byte = 0;
	size_t len;
	int r = mm_sock_wait(fd, POLLIN, mm_deadline_ns(WAIT_NS));

	assert_int_equal(r, 0);
	return mm_sock_recv_nofds(fd, &byte, 1, &len) == 0 ? byte : 0;
}

static void test_tenant(void **state)
{
	struct run run;
	char byte = 'b';
	int first, second;

	(void)state;
	run_start(&run, "with-tenant", "0");
	first = tenant_connect(&run);
	assert_int_equal(tenant_receive(first), 'a'); /* from the second core */
	assert_int_equal(mm_sock_send(first, &byte, 1, NULL, 0), 0);
	second = tenant_connect(&run);
	assert_int_equal(tenant_receive(second), 'b');
	assert_int_equal(tenant_receive(first), 0); /* dropped */
	kill(run.pid, SIGTERM);
	assert_int_equal(tenant_receive(second), 0);
	assert_int_equal(run_end(&run, 0), 2);
	close(first);
	close(second);
}

static int test_main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_often), cmocka_unit_test(test_crashes),
		cmocka_unit_test(test_no_successor), cmocka_unit_test(test_stands_still),
		cmocka_unit_test(test_children),     cmocka_unit_test(test_tenant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	static struct mm_config config;
	char error[MM_OPT_ERROR_BYTES];
	struct mm_opt_line line;

	if (argc == 1)
		return test_main();
	if (mm_opt_main(&mm_config_program, argc, argv, &config, &line) >= 0 ||
	    mm_config_check(&config, error) < 0)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	mm_log_init("test", (enum mm_log_level)config.log_level);
	switch (config.role) {
	case 0:
		return mm_keeper_main(&config, argc, argv);
	case MM_ROLE_CORE:
		return core_main();
	case MM_ROLE_LOG:
		return mm_relay_main(MM_ROLE_FD, &config);
	default:
		return child_main();
	}
}
