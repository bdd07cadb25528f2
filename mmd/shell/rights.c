/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/shell/rights.h"

#include <seccomp.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/common/log.h"
#include "mmd/common/rights.h"

static const int shell_calls[] = {
	/* Events, channels and tenants' sockets. */
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(getsockopt),
	SCMP_SYS(setsockopt),
	SCMP_SYS(getsockname),
	SCMP_SYS(ioctl),
	/* Regions, stores, swap spaces, and what is kept for a successor. */
	SCMP_SYS(memfd_create),
	SCMP_SYS(ftruncate),
	SCMP_SYS(fallocate),
	SCMP_SYS(fchmod),
	SCMP_SYS(fcntl),
	SCMP_SYS(dup),
	SCMP_SYS(msync),
	SCMP_SYS(newfstatat),
	SCMP_SYS(mbind),
	SCMP_SYS(get_mempolicy),
	/* Processes of tenants. */
	SCMP_SYS(pidfd_open),
	SCMP_SYS(readlink),
	SCMP_SYS(readlinkat),
	SCMP_SYS(getdents64),
	SCMP_SYS(sched_getaffinity),
	SCMP_SYS(prlimit64),
};

int mm_shell_rights_drop(struct mm_rights *ret_rights)
{
	static const struct mm_filter filter = { .calls = shell_calls,
						 .n_calls = MM_ARRAY_SIZE(shell_calls),
						 .opens_files = true };
	const struct mm_rights_user user = { .name = "mmd", .uid = MM_UID_CORE };
	int r = mm_rights_leave_root(&user, ret_rights);

	if (r == 0 && ret_rights->stays_root)
		mm_log(MM_LOG_WARN, "rights.root",
		       "reason=\"cannot become another user: %s; stays root without capabilities\"",
		       strerror(ret_rights->error));
	return r < 0 ? r : mm_rights_close(&filter);
}
