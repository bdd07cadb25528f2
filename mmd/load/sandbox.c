/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/sandbox.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libclient/support/fault.h"

#define NOBODY         65534
#define HEAP_BYTES_MAX (UINT64_C(4) << 30) /* parsing 100 MB of hostile JSON takes up to 3 GB */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* Calls for reading, for messages on open sockets, for memory, threads and the exit. */
static const int allowed_calls[] = {
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(lseek),
	SCMP_SYS(write), /* the log */
	SCMP_SYS(recvmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(shutdown),
	SCMP_SYS(sendmsg),
	SCMP_SYS(sendto),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(close),
	SCMP_SYS(fstat),
	SCMP_SYS(statx),
	SCMP_SYS(io_uring_enter),
	SCMP_SYS(mmap),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(mprotect),
	SCMP_SYS(madvise),
	SCMP_SYS(fdatasync),
	SCMP_SYS(fadvise64),
	SCMP_SYS(mbind),
	SCMP_SYS(brk),
	SCMP_SYS(futex),
	SCMP_SYS(rseq),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(sched_yield),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(getrandom),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(tgkill),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

static void filter_done(scmp_filter_ctx *filter)
{
	if (*filter)
		seccomp_release(*filter);
}

static int filter_fill(scmp_filter_ctx filter)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < MM_ARRAY_SIZE(allowed_calls); i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_calls[i], 0);
	/*
	 * fstat() of glibc is newfstatat() with an empty path. A filter cannot check strings, so
	 * the call is allowed with any path.
	 */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 0);
	/* Threads, not processes. clone3 hides its flags: with ENOSYS the C library uses clone. */
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM,
					     CLONE_THREAD | CLONE_VM));
	if (r == 0)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return r;
}

static int filter_load(struct mm_why *why)
{
	mm_cleanup(filter_done) scmp_filter_ctx filter = NULL;
	int r;

	if (SANITIZED)
		return 0;
	filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter)
		return mm_refuse(why, -ENOMEM, "sandbox: no memory for the filter");
	r = filter_fill(filter);
	if (r == 0)
		r = seccomp_load(filter);
	if (r < 0)
		return mm_refuse(why, r, "sandbox: seccomp: %s", strerror(-r));
	return 0;
}

static int limit_set(int resource, rlim_t value)
{
	const struct rlimit limit = { value, value };

	return setrlimit((__rlimit_resource_t)resource, &limit);
}

static int rights_drop(struct mm_why *why)
{
	if (geteuid() != 0)
		return 0;
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
	    setresuid(NOBODY, NOBODY, NOBODY) < 0)
		return mm_refuse(why, -errno, "sandbox: becoming uid %d: %s", NOBODY,
				 strerror(errno));
	return 0;
}

int mm_sandbox_close(struct mm_why *why)
{
	int r;

	if (mm_fault("load.sandbox"))
		return mm_refuse(why, -ENOMEM, "sandbox: no memory for the filter");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return mm_refuse(why, -errno, "sandbox: prctl: %s", strerror(errno));
	if (limit_set(RLIMIT_CORE, 0) < 0 ||
	    (!SANITIZED && limit_set(RLIMIT_DATA, HEAP_BYTES_MAX) < 0))
		return mm_refuse(why, -errno, "sandbox: limits: %s", strerror(errno));
	r = rights_drop(why);
	if (r < 0)
		return r;
	return filter_load(why);
}
