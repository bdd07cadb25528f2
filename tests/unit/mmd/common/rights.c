/* SPDX-License-Identifier: Apache-2.0 */
/* A process gives up its rights, and tries what it may not do: each case in a child. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "mmd/common/rights.h"

#define FAILED 9 /* exit status of a child in which something was not as expected */

#define child_check(e)                                                          \
	do {                                                                    \
		if (!(e)) {                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e); \
			_exit(FAILED);                                          \
		}                                                               \
	} while (0)

static const int allowed[] = { SCMP_SYS(dup), SCMP_SYS(newfstatat), SCMP_SYS(prctl) };
static const int failing[] = { SCMP_SYS(ioctl) };
static const int refused[] = { SCMP_SYS(execve), SCMP_SYS(ptrace) };
static const struct mm_filter allow_list = { .calls = allowed,
					     .n_calls = MM_ARRAY_SIZE(allowed),
					     .failing = failing,
					     .n_failing = MM_ARRAY_SIZE(failing),
					     .opens_files = true };
static const struct mm_filter refuse_list = { .calls = refused,
					      .n_calls = MM_ARRAY_SIZE(refused),
					      .refuses = true };

/* Runs @body in a child. Return: its wait status. */
static int child_run(void (*body)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void call_socket(void)
{
	socket(AF_UNIX, SOCK_STREAM, 0);
}

static void call_exec(void)
{
	execl("/bin/true", "true", NULL);
}

static void call_fork(void)
{
	syscall(SYS_fork);
}

static void call_ptrace(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void call_kill(void)
{
	kill(getpid(), 0);
}

static void call_setuid(void)
{
	syscall(SYS_setuid, getuid());
}

static void call_executable(void)
{
	mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void call_executable_later(void)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(page, 4096, PROT_READ | PROT_EXEC);
}

static void call_creat(void)
{
	close(open("/tmp/mm-test-rights", O_WRONLY | O_CREAT, 0600));
}

static void call_tmpfile(void)
{
	close(open("/tmp", O_WRONLY | O_TMPFILE, 0600));
}

static void (*const forbidden[])(void) = { call_socket, call_exec,       call_fork,
					   call_ptrace, call_kill,       call_setuid,
					   call_creat,  call_executable, call_executable_later,
					   call_tmpfile };

static void (*to_call)(void);

static void body_forbidden(void)
{
	child_check(mm_rights_close(&allow_list) == 0);
	to_call();
}

static void test_forbidden_kills(void **state)
{
	(void)state;
	if (MM_SANITIZED)
		skip();
	for (size_t i = 0; i < MM_ARRAY_SIZE(forbidden); i++) {
		int status;

		to_call = forbidden[i];
		status = child_run(body_forbidden);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
			fail_msg("call %zu: wait status %#x", i, (unsigned int)status);
	}
}

static void body_logged(void)
{
	mm_rights_init(MM_SANDBOX_LOG);
	child_check(mm_rights_close(&allow_list) == 0);
	child_check(prctl(PR_GET_SECCOMP) == 2);
}

static void body_off(void)
{
	mm_rights_init(MM_SANDBOX_OFF);
	child_check(mm_rights_close(&allow_list) == 0);
	call_socket();
	child_check(prctl(PR_GET_SECCOMP) == 0);
	child_check(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

static void test_modes(void **state)
{
	(void)state;
	if (MM_SANITIZED)
		skip();
	assert_int_equal(child_run(body_logged), 0);
	assert_int_equal(child_run(body_off), 0);
}

/* Calls of the list work, and calls that libraries try fail. */
static void body_allowed(void)
{
	void *page;
	int fd;

	child_check(mm_rights_close(&allow_list) == 0);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	child_check(page != MAP_FAILED && mprotect(page, 4096, PROT_READ) == 0);
	fd = open("/proc/self/status", O_RDONLY);
	child_check(fd >= 0 && dup(fd) > fd);
	if (!MM_SANITIZED) {
		char bytes[64];

		child_check(syscall(SYS_ioctl, fd, 0, bytes) < 0 && errno == EPERM);
	}
}

static void test_allowed(void **state)
{
	(void)state;
	assert_int_equal(child_run(body_allowed), 0);
}

static void body_refused(void)
{
	child_check(mm_rights_close(&refuse_list) == 0);
	call_exec();
	child_check(errno == EPERM);
	child_check(ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 && errno == EPERM);
	child_check(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
	child_check(socket(AF_INET6, SOCK_DGRAM, 0) < 0 && errno == EPERM);
	child_check(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
}

static void test_refused(void **state)
{
	(void)state;
	if (MM_SANITIZED)
		skip();
	assert_int_equal(child_run(body_refused), 0);
}

/* ---- the user ---- */

/* The value of a line of /proc/self/status, which holds for the first thread. */
static void status_line(const char *name, char *ret_value, size_t bytes)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];

	child_check(file);
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, name, strlen(name)) == 0)
			snprintf(ret_value, bytes, "%s", line + strlen(name));
	}
	fclose(file);
}

static void status_check(const char *name, const char *value)
{
	char is[256] = "";

	status_line(name, is, sizeof(is));
	if (strcmp(is, value) != 0) {
		fprintf(stderr, "%s is '%s', not '%s'\n", name, is, value);
		_exit(FAILED);
	}
}

static void death_check(void)
{
	int signal = 0;

	child_check(prctl(PR_GET_PDEATHSIG, &signal) == 0 && signal == SIGKILL);
}

static void body_leaves_root(void)
{
	const struct mm_rights_user user = { .uid = MM_UID_CORE };
	struct mm_rights rights;

	child_check(mm_rights_leave_root(&user, &rights) == 0);
	child_check(!rights.stays_root && rights.uid == MM_UID_CORE);
	child_check(mm_rights_close(&allow_list) == 0);
	status_check("Uid:", "\t65520\t65520\t65520\t65520");
	status_check("Gid:", "\t65520\t65520\t65520\t65520");
	status_check("Groups:", "\t ");
	status_check("CapPrm:", "\t0000000000000000");
	status_check("CapEff:", "\t0000000000000000");
	status_check("CapBnd:", "\t0000000000000000");
	status_check("NoNewPrivs:", "\t1");
}

static void body_dies_with_parent(void)
{
	const struct mm_rights_user user = { .uid = MM_UID_CORE };
	struct mm_rights rights;

	child_check(mm_rights_leave_root(&user, &rights) == 0);
	death_check();
}

/* Also an ordinary user: it stays itself. */
static void body_ordinary(void)
{
	const struct mm_rights_user user = { .uid = MM_UID_CORE };
	struct mm_rights rights;
	uid_t uid = geteuid() == 0 ? 12345 : geteuid();

	child_check(geteuid() != 0 || setuid(uid) == 0);
	child_check(mm_rights_leave_root(&user, &rights) == 0);
	child_check(!rights.stays_root && rights.uid == uid);
	child_check(mm_rights_close(&allow_list) == 0);
	child_check(MM_SANITIZED || prctl(PR_GET_DUMPABLE) == 0);
	status_check("CapPrm:", "\t0000000000000000");
	status_check("NoNewPrivs:", "\t1");
}

/* As in a container without CAP_SETUID. */
static void body_cannot(void)
{
	const struct mm_rights_user user = { .uid = MM_UID_CORE };
	struct mm_rights rights;

	child_check(mm_rights_keep(0) == 0);
	child_check(mm_rights_leave_root(&user, &rights) == 0);
	child_check(rights.stays_root && rights.error == EPERM && rights.uid == 0);
	status_check("CapPrm:", "\t0000000000000000");
	death_check();
}

static void test_leaves_root(void **state)
{
	(void)state;
	assert_int_equal(child_run(body_ordinary), 0);
	if (geteuid() != 0)
		skip();
	assert_int_equal(child_run(body_leaves_root), 0);
	assert_int_equal(child_run(body_dies_with_parent), 0);
	assert_int_equal(child_run(body_cannot), 0);
}

static bool is_other(void *arg)
{
	return geteuid() == *(uid_t *)arg;
}

static void body_tries(void)
{
	const struct mm_rights_user user = { .uid = MM_UID_XFER };
	uid_t uid = MM_UID_XFER;

	child_check(mm_rights_try(&user, is_other, &uid) == 1);
	uid++;
	child_check(mm_rights_try(&user, is_other, &uid) == 0);
	child_check(geteuid() == 0 && getegid() == 0);
	death_check();
}

static void test_try(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(child_run(body_tries), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forbidden_kills), cmocka_unit_test(test_modes),
		cmocka_unit_test(test_allowed),         cmocka_unit_test(test_refused),
		cmocka_unit_test(test_leaves_root),     cmocka_unit_test(test_try),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
