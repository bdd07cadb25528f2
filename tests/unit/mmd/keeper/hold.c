/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper holds fds for core: names that core puts and drops, and the inventory of a successor. Each
 * core is a process of its own; files are told apart by their size.
 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/ipc/region.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "mmd/keeper/hold.h"
#include "mmd/shell/held.h"

#define PAGES   700 /* more than may be unread at a time */
#define DROPPED 65  /* more than one batch */
#define WAIT_NS (60 * MM_NS_PER_S)

struct keeper_end {
	struct mm_hold hold;
	struct mm_closer closer;
	struct mm_region beat;
	struct mm_kchan core;
	pid_t pid;
};

static struct mm_held_name page_name(uint64_t id)
{
	return (struct mm_held_name){ .kind = MM_HELD_PAGE, .index = 1, .id = id };
}

static int file_of(size_t bytes)
{
	int fd = memfd_create("held", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static size_t file_bytes(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (size_t)st.st_size;
}

/* Runs @core in a process, at the other end of the channel. */
static void core_start(struct keeper_end *k, void (*core)(struct mm_held *held))
{
	struct mm_kchan chan;
	struct mm_held held;
	int pair[2];

	assert_int_equal(mm_sock_pair(pair), 0);
	k->pid = fork();
	assert_true(k->pid >= 0);
	if (k->pid == 0) {
		close(pair[0]);
		mm_kchan_init(&chan, pair[1]);
		mm_held_init(&held, &chan);
		if (mm_held_receive(&held) < 0)
			_exit(1);
		core(&held);
		kill(getpid(), SIGKILL);
	}
	close(pair[1]);
	mm_kchan_init(&k->core, pair[0]);
	mm_hold_inventory_begin(&k->hold);
}

static void core_message_handle(struct keeper_end *k, struct mm_kpacket *packet)
{
	if (packet->msg.op == MM_K_HOLD)
		mm_hold_on_hold(&k->hold, packet);
	else if (packet->msg.op == MM_K_DROP)
		mm_hold_on_drop(&k->hold, &k->core, packet);
	else if (packet->msg.op == MM_K_TAKEN)
		mm_hold_on_taken(&k->hold);
	else
		fail();
}

/* Serves the core that runs, with an inventory first, until it has ended. */
static void core_serve(struct keeper_end *k, uint64_t generation)
{
	const struct mm_kmsg end = { .op = MM_K_END, .id = generation };
	bool inventory = true;
	struct mm_kpacket packet;
	int r = 0, status;

	while (r == 0) {
		if (inventory && mm_hold_inventory_send(&k->hold, &k->core) == 1) {
			inventory = false;
			mm_kchan_send(&k->core, &end, NULL, 0);
		}
		assert_true(k->hold.unread <= MM_HOLD_UNREAD);
		r = mm_kchan_recv(&k->core, &packet);
		if (r == 0) {
			core_message_handle(k, &packet);
			mm_kpacket_done(&packet);
		} else if (r == -EAGAIN) {
			r = mm_sock_wait(k->core.fd, POLLIN, mm_deadline_ns(WAIT_NS));
			mm_kchan_flush(&k->core);
		}
	}
	assert_int_equal(r, -ECONNRESET);
	assert_int_equal(waitpid(k->pid, &status, 0), k->pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(k->core.fd);
	mm_kchan_done(&k->core);
}

static void dropped_wait(struct mm_held *held, uint64_t serial)
{
	struct mm_kpacket packet;

	while (!mm_held_is_dropped(held, serial)) {
		if (mm_kchan_recv(held->chan, &packet) == 0)
			mm_held_on_dropped(held, &packet.msg);
		else
			mm_sock_wait(held->chan->fd, POLLIN, mm_deadline_ns(WAIT_NS));
	}
}

/* Puts pages, drops the first of them, and dies at once. */
static void core_first(struct mm_held *held)
{
	uint64_t serial = 0;

	assert_int_equal(held->generation, 1);
	assert_int_equal(held->inventory.count, 0);
	mm_held_beat(held, 77, false);
	for (uint64_t i = 0; i < PAGES; i++) {
		int fd = file_of(i + 1);

		mm_held_put(held, page_name(i), fd);
		close(fd);
	}
	for (uint64_t i = 0; i < DROPPED; i++)
		serial = mm_held_drop_acked(held, page_name(i));
	assert_true(mm_held_is_waiting(held));
	assert_false(mm_held_is_dropped(held, serial));
	mm_held_flush(held);
	while (mm_held_is_waiting(held)) {
		assert_int_equal(mm_sock_wait(held->chan->fd, POLLOUT, mm_deadline_ns(WAIT_NS)), 0);
		assert_int_equal(mm_kchan_flush(held->chan), 0);
	}
	dropped_wait(held, serial);
	/* This one leaves, and core is dead before it is read. */
	mm_held_put(held, page_name(0), file_of(PAGES + 1));
	mm_held_flush(held);
}

/* Takes every other page, and drops the rest. */
static void core_second(struct mm_held *held)
{
	assert_int_equal(held->generation, 2);
	assert_int_equal(held->beat_ns, 77);
	assert_int_equal(held->inventory.count, PAGES - DROPPED + 1);
	assert_int_equal(file_bytes(mm_held_take(held, page_name(0))), PAGES + 1);
	assert_int_equal(mm_held_take(held, page_name(0)), -1);
	assert_int_equal(mm_held_take(held, page_name(DROPPED - 1)), -1);
	for (uint64_t i = DROPPED; i < PAGES; i++) {
		if (i % 2)
			assert_int_equal(file_bytes(mm_held_take(held, page_name(i))), i + 1);
	}
	assert_int_equal(mm_held_drop_rest(held), (PAGES - DROPPED) / 2);
	mm_held_flush(held);
}

static void test_successors(void **state)
{
	static struct keeper_end k;
	struct mm_held_name beat = { .kind = MM_HELD_BEAT };

	(void)state;
	k.closer.spared_fd = -1;
	mm_hold_init(&k.hold, &k.closer);
	assert_int_equal(
		mm_region_create(sizeof(struct mm_beat), MM_REGION_SHARED, "beat", &k.beat), 0);
	assert_int_equal(mm_hold_put(&k.hold, beat, k.beat.fd), 0);
	k.beat.fd = -1;
	core_start(&k, core_first);
	core_serve(&k, 1);
	assert_int_equal(k.hold.fds.count, PAGES - DROPPED + 2);
	core_start(&k, core_second);
	core_serve(&k, 2);
	assert_int_equal(k.hold.fds.count, 2 + (PAGES - DROPPED + 1) / 2);
	assert_int_equal(file_bytes(mm_fdtab_find(&k.hold.fds, page_name(PAGES - 1))), PAGES);
	mm_region_done(&k.beat);
	mm_fdtab_done(&k.hold.fds);
}

static pid_t sleeper_start(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static int pidfd_of(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	assert_true(fd >= 0);
	return fd;
}

/* core names whom keeper has seen connect, and has nobody else killed. */
static void test_kills(void **state)
{
	const struct mm_held_name seen = { MM_HELD_PIDFD, 0, 1 }, other = { MM_HELD_PIDFD, 0, 2 };
	const pid_t tenant = sleeper_start(), stranger = sleeper_start();
	struct mm_kpacket packet = { .msg.op = MM_K_HOLD, .n_names = 2, .n_fds = 2 };
	static struct keeper_end k;
	int status;

	(void)state;
	k.closer.spared_fd = -1;
	mm_hold_init(&k.hold, &k.closer);
	assert_int_equal(mm_hold_put(&k.hold, seen, pidfd_of(tenant)), 0);
	packet.name[0] = seen;
	packet.name[1] = other;
	packet.fd[0] = pidfd_of(stranger);
	packet.fd[1] = pidfd_of(stranger);
	mm_hold_on_hold(&k.hold, &packet);
	mm_kpacket_done(&packet);
	assert_int_equal(k.hold.fds.count, 1);
	mm_hold_on_kill(&k.hold, 2);
	mm_hold_on_kill(&k.hold, 1);
	assert_int_equal(waitpid(tenant, &status, 0), tenant);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	mm_hold_on_kill(&k.hold, 1);
	assert_int_equal(waitpid(stranger, &status, WNOHANG), 0);
	kill(stranger, SIGKILL);
	assert_int_equal(waitpid(stranger, &status, 0), stranger);
	mm_fdtab_done(&k.hold.fds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_successors),
		cmocka_unit_test(test_kills),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
