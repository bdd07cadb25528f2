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
#define HEAP_BYTES_MAX (UINT64_C(4) << 30) /* 100 MB of hostile JSON takes up to 3 GB parsed */

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

/* Reading, talking over the sockets that are open, memory, threads, ending. */
static const int allowed[] = {
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

static int fill_filter(scmp_filter_ctx filter)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < MM_ARRAY_SIZE(allowed); i++)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
	/* fstat() of glibc; no path can be named without a string, but an empty one is needed. */
	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(newfstatat), 0);
	/* Threads, not processes. clone3 hides its flags: ENOSYS makes the C library use clone. */
	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				      SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM,
					      CLONE_THREAD | CLONE_VM));
	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return rc;
}

static int close_filter(struct mm_why *why)
{
	mm_cleanup(filter_done) scmp_filter_ctx filter = NULL;
	int rc;

	if (SANITIZED)
		return 0;
	filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	if (!filter)
		return mm_refuse(why, -ENOMEM, "sandbox: no memory for the filter");
	rc = fill_filter(filter);
	if (rc == 0)
		rc = seccomp_load(filter);
	if (rc < 0)
		return mm_refuse(why, rc, "sandbox: seccomp: %s", strerror(-rc));
	return 0;
}

static int limit(int resource, rlim_t value)
{
	const struct rlimit limit = { value, value };

	return setrlimit((__rlimit_resource_t)resource, &limit);
}

static int drop_rights(struct mm_why *why)
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
	int rc;

	if (mm_fault("load.sandbox"))
		return mm_refuse(why, -ENOMEM, "sandbox: no memory for the filter");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return mm_refuse(why, -errno, "sandbox: prctl: %s", strerror(errno));
	if (limit(RLIMIT_CORE, 0) < 0 || (!SANITIZED && limit(RLIMIT_DATA, HEAP_BYTES_MAX) < 0))
		return mm_refuse(why, -errno, "sandbox: limits: %s", strerror(errno));
	rc = drop_rights(why);
	if (rc < 0)
		return rc;
	return close_filter(why);
}
