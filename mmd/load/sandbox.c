/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/sandbox.h"

#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/resource.h>

#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"
#include "mmd/common/rights.h"

#define HEAP_BYTES_MAX (UINT64_C(4) << 30) /* parsing 100 MB of hostile JSON takes up to 3 GB */

/* Reading, besides what every role may do. */
static const int load_calls[] = {
	SCMP_SYS(statx),
	/*
	 * fstat() of glibc is newfstatat() with an empty path. A filter cannot check strings, so
	 * the call is allowed with any path.
	 */
	SCMP_SYS(newfstatat),
	SCMP_SYS(io_uring_enter),
	SCMP_SYS(fdatasync),
	SCMP_SYS(fadvise64),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(mbind),
};

/* Libraries try these, and do without: the C library counts the processors in files. */
static const int load_failing[] = {
	SCMP_SYS(openat),        SCMP_SYS(open),  SCMP_SYS(get_mempolicy),
	SCMP_SYS(set_mempolicy), SCMP_SYS(fcntl), SCMP_SYS(ioctl),
};

static int limit_set(int resource, rlim_t value)
{
	const struct rlimit limit = { value, value };

	return setrlimit((__rlimit_resource_t)resource, &limit);
}

int mm_sandbox_close(struct mm_why *why)
{
	static const struct mm_filter filter = { .calls = load_calls,
						 .n_calls = MM_ARRAY_SIZE(load_calls),
						 .failing = load_failing,
						 .n_failing = MM_ARRAY_SIZE(load_failing),
						 .threads = true };
	const struct mm_rights_user user = { .uid = MM_UID_LOAD };
	struct mm_rights rights;
	int r;

	if (mm_fault("load.sandbox"))
		return mm_refuse(why, -ENOMEM, "sandbox: no memory for the filter");
	if (limit_set(RLIMIT_CORE, 0) < 0 ||
	    (!MM_SANITIZED && limit_set(RLIMIT_DATA, HEAP_BYTES_MAX) < 0))
		return mm_refuse(why, -errno, "sandbox: limits: %s", strerror(errno));
	r = mm_rights_leave_root(&user, &rights);
	if (r < 0)
		return mm_refuse(why, r, "sandbox: giving up rights: %s", strerror(-r));
	if (rights.stays_root)
		mm_log(MM_LOG_DEBUG, "rights.root", "error=\"%s\"", strerror(rights.error));
	r = mm_rights_close(&filter);
	return r < 0 ? mm_refuse(why, r, "sandbox: %s", strerror(-r)) : 0;
}
