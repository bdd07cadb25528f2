/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/common/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "libclient/base/base.h"

/*
 * Memory, time, the log, the end, and open files: what every role does, and what the C library does
 * on its way to abort().
 */
static const int common_calls[] = {
	SCMP_SYS(read),
	SCMP_SYS(pread64),
	SCMP_SYS(lseek),
	SCMP_SYS(write),
	SCMP_SYS(writev),
	SCMP_SYS(close),
	SCMP_SYS(fstat),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(recvmsg),
	SCMP_SYS(recvfrom),
	SCMP_SYS(sendmsg),
	SCMP_SYS(sendto),
	SCMP_SYS(shutdown),
	SCMP_SYS(munmap),
	SCMP_SYS(mremap),
	SCMP_SYS(madvise),
	SCMP_SYS(brk),
	SCMP_SYS(futex),
	SCMP_SYS(rseq),
	SCMP_SYS(set_robust_list),
	SCMP_SYS(sched_yield),
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(nanosleep),
	SCMP_SYS(gettimeofday),
	SCMP_SYS(getrandom),
	SCMP_SYS(getpid),
	SCMP_SYS(getppid),
	SCMP_SYS(gettid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getuid),
	SCMP_SYS(getrlimit),
	SCMP_SYS(tgkill),
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	SCMP_SYS(restart_syscall),
	SCMP_SYS(exit),
	SCMP_SYS(exit_group),
};

static void filter_done(scmp_filter_ctx *ctx)
{
	if (*ctx)
		seccomp_release(*ctx);
}

static int calls_add(scmp_filter_ctx ctx, uint32_t action, const int *calls, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = seccomp_rule_add(ctx, action, calls[i], 0);
	return r;
}

/* Allows memory that is not executable. */
static int memory_add(scmp_filter_ctx ctx)
{
	const struct scmp_arg_cmp plain = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, plain);

	return r < 0 ? r : seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, plain);
}

/* Allows threads, not processes. clone3 hides its flags: with ENOSYS the C library uses clone. */
static int threads_add(scmp_filter_ctx ctx)
{
	const scmp_datum_t thread = CLONE_THREAD | CLONE_VM;
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				 SCMP_A0(SCMP_CMP_MASKED_EQ, thread, thread));

	return r < 0 ? r : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* Allows to open files, and not to make or to empty any; O_TMPFILE makes one. */
static int opening_add(scmp_filter_ctx ctx)
{
	const scmp_datum_t making = O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
	int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
				 SCMP_A2(SCMP_CMP_MASKED_EQ, making, 0));

	return r < 0 ? r
		     : seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(open), 1,
					SCMP_A1(SCMP_CMP_MASKED_EQ, making, 0));
}

/* Refuses what @filter names, and the network. */
static int refused_add(scmp_filter_ctx ctx, uint32_t action, const struct mm_filter *filter)
{
	static const scmp_datum_t networks[] = { AF_INET, AF_INET6, AF_PACKET, AF_VSOCK };
	int r = calls_add(ctx, action, filter->calls, filter->n_calls);

	for (size_t i = 0; r == 0 && i < MM_ARRAY_SIZE(networks); i++)
		r = seccomp_rule_add(ctx, action, SCMP_SYS(socket), 1,
				     SCMP_A0(SCMP_CMP_EQ, networks[i], 0));
	return r;
}

static int allowed_add(scmp_filter_ctx ctx, const struct mm_filter *filter)
{
	int r = calls_add(ctx, SCMP_ACT_ALLOW, common_calls, MM_ARRAY_SIZE(common_calls));

	if (r == 0)
		r = calls_add(ctx, SCMP_ACT_ALLOW, filter->calls, filter->n_calls);
	if (r == 0)
		r = calls_add(ctx, SCMP_ACT_ERRNO(EPERM), filter->failing, filter->n_failing);
	if (r == 0)
		r = memory_add(ctx);
	if (r == 0 && filter->threads)
		r = threads_add(ctx);
	if (r == 0 && filter->opens_files)
		r = opening_add(ctx);
	return r;
}

int mm_filter_load(const struct mm_filter *filter, enum mm_sandbox sandbox)
{
	const uint32_t wrong = sandbox == MM_SANDBOX_LOG ? SCMP_ACT_LOG
			       : filter->refuses         ? SCMP_ACT_ERRNO(EPERM)
							 : SCMP_ACT_KILL_PROCESS;
	mm_cleanup(filter_done) scmp_filter_ctx ctx = NULL;
	int r;

	if (MM_SANITIZED || sandbox == MM_SANDBOX_OFF)
		return 0;
	ctx = seccomp_init(filter->refuses ? SCMP_ACT_ALLOW : wrong);
	if (!ctx)
		return -ENOMEM;
	r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	/* A call of another architecture has other numbers, so none of them is allowed. */
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = filter->refuses ? refused_add(ctx, wrong, filter) : allowed_add(ctx, filter);
	return r < 0 ? r : seccomp_load(ctx);
}
