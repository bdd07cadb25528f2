/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/mmd/shell/stepped.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

void *stepped_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

/* The child stops itself before and after the script. */
_Noreturn static void child_run(void (*script)(void *arg), void *arg)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	script(arg);
	raise(SIGSTOP);
	_exit(0);
}

static int child_wait(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	return WSTOPSIG(status);
}

uint64_t stepped_run(void (*script)(void *arg), void (*look)(void *arg), void *arg, uint64_t every)
{
	uint64_t steps = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		child_run(script, arg);
	assert_int_equal(child_wait(pid), SIGSTOP);
	for (;;) {
		int stopped_by;

		if (steps % every == 0)
			look(arg);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		stopped_by = child_wait(pid);
		if (stopped_by == SIGSTOP)
			break;
		assert_int_equal(stopped_by, SIGTRAP);
		steps++;
	}
	look(arg);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return steps;
}

uint64_t stepped_every(uint64_t usual)
{
	const char *longer = getenv("MM_TEST_LONG");

	return longer && *longer ? 1 : usual;
}
