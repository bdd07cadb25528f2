/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/peer.h"

static pid_t child;
static int pidfd = -1;

static int setup(void **state)
{
	(void)state;
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	pidfd = (int)syscall(SYS_pidfd_open, child, 0);
	return child > 0 && pidfd >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	mm_close_fd(&pidfd);
	return 0;
}

static void a_stopped_process_is_told_from_a_running_one(void **state)
{
	int status;

	(void)state;
	assert_int_equal(mm_peer_state(child, pidfd), MM_PEER_RUNNING);
	kill(child, SIGSTOP);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(mm_peer_state(child, pidfd), MM_PEER_STOPPED);
	kill(child, SIGCONT);
	assert_int_equal(waitpid(child, &status, WCONTINUED), child);
	assert_int_equal(mm_peer_state(child, pidfd), MM_PEER_RUNNING);
}

static void a_traced_process_counts_as_stopped(void **state)
{
	int status;

	(void)state;
	if (ptrace(PTRACE_SEIZE, child, 0, 0) < 0)
		skip();
	assert_int_equal(ptrace(PTRACE_INTERRUPT, child, 0, 0), 0);
	assert_int_equal(waitpid(child, &status, __WALL), child);
	assert_int_equal(mm_peer_state(child, pidfd), MM_PEER_STOPPED);
	assert_int_equal(ptrace(PTRACE_DETACH, child, 0, 0), 0);
}

/* A zombie still has an entry in /proc, which must not be trusted. */
static void a_dead_process_is_gone(void **state)
{
	char path[MM_PEER_PATH_BYTES];
	siginfo_t info;

	(void)state;
	kill(child, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(mm_peer_state(child, pidfd), MM_PEER_GONE);
	assert_int_equal(mm_peer_cgroup(child, pidfd, path), -ESRCH);
}

static void its_cgroup_is_ours(void **state)
{
	char ours[MM_PEER_PATH_BYTES], theirs[MM_PEER_PATH_BYTES];
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	int r = mm_peer_cgroup(getpid(), self, ours);

	(void)state;
	close(self);
	if (r == -ENOENT)
		skip(); /* there is no unified hierarchy here */
	assert_int_equal(r, 0);
	assert_int_equal(ours[0], '/');
	assert_int_equal(mm_peer_cgroup(child, pidfd, theirs), 0);
	assert_string_equal(theirs, ours);
}

static void groups_are_those_of_the_peer(void **state)
{
	uint32_t want[MM_PEER_GROUPS_MAX], got[MM_PEER_GROUPS_MAX];
	int pair[2], n = getgroups(MM_PEER_GROUPS_MAX, (gid_t *)want);

	(void)state;
	assert_true(n >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(mm_peer_groups(pair[0], got, MM_PEER_GROUPS_MAX), n);
	assert_memory_equal(got, want, (size_t)n * sizeof(*got));
	close(pair[0]);
	close(pair[1]);
	assert_true(mm_peer_groups(-1, got, MM_PEER_GROUPS_MAX) < 0);
}

static void the_name_does_not_fool(void **state)
{
	(void)state;
	assert_int_equal(mm_peer_stat_state("1 (cat) S 0"), 'S');
	assert_int_equal(mm_peer_stat_state("1 (x) T 1) R 0"), 'R');
	assert_int_equal(mm_peer_stat_state("1 (x"), 0);
	assert_int_equal(mm_peer_stat_state(""), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_stopped_process_is_told_from_a_running_one),
		TEST(a_traced_process_counts_as_stopped),
		TEST(a_dead_process_is_gone),
		TEST(its_cgroup_is_ours),
		TEST(groups_are_those_of_the_peer),
		TEST(the_name_does_not_fool),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
