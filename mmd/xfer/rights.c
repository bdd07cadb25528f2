/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/rights.h"

#include <dirent.h>
#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/common/log.h"
#include "mmd/common/rights.h"

#define NODES_MAX 16

static const int refused_calls[] = {
	/* Other programs and processes. */
	SCMP_SYS(execve),
	SCMP_SYS(execveat),
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(pidfd_getfd),
	SCMP_SYS(kcmp),
	/* The kernel. */
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup), /* it has its ring; calls through one are not filtered */
	SCMP_SYS(kexec_load),
	SCMP_SYS(kexec_file_load),
	SCMP_SYS(init_module),
	SCMP_SYS(finit_module),
	SCMP_SYS(delete_module),
	SCMP_SYS(reboot),
	SCMP_SYS(swapon),
	SCMP_SYS(swapoff),
	SCMP_SYS(acct),
	SCMP_SYS(quotactl),
	SCMP_SYS(iopl),
	SCMP_SYS(ioperm),
	SCMP_SYS(settimeofday),
	SCMP_SYS(clock_settime),
	SCMP_SYS(clock_adjtime),
	SCMP_SYS(adjtimex),
	SCMP_SYS(sethostname),
	SCMP_SYS(setdomainname),
	/* Keys, namespaces and file systems. */
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	SCMP_SYS(keyctl),
	SCMP_SYS(setns),
	SCMP_SYS(unshare),
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(pivot_root),
	SCMP_SYS(chroot),
	SCMP_SYS(move_mount),
	SCMP_SYS(open_tree),
	SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig),
	SCMP_SYS(fsmount),
	SCMP_SYS(fspick),
	SCMP_SYS(mount_setattr),
	SCMP_SYS(open_by_handle_at),
};

/* Finds the groups that may use nodes of GPUs which not everybody may. Return: how many. */
static size_t node_groups(gid_t *groups)
{
	mm_cleanup(mm_close_dir) DIR *dir = opendir("/dev");
	struct dirent *entry;
	struct stat st;
	size_t n = 0;

	while (dir && n < NODES_MAX && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "nvidia", strlen("nvidia")) != 0 ||
		    fstatat(dirfd(dir), entry->d_name, &st, 0) < 0 || !S_ISCHR(st.st_mode))
			continue;
		if ((st.st_mode & 06) != 06 && (st.st_mode & 060) == 060 && st.st_gid != 0)
			groups[n++] = st.st_gid;
	}
	return n;
}

/* Whether the driver makes and exports a page. That there is no memory left is no refusal. */
static bool driver_works(void *arg)
{
	struct mm_xdev *dev = arg;
	CUmemGenericAllocationHandle handle;
	mm_cleanup(mm_close_fd) int fd = -1;
	CUresult result = dev->gpu.cuMemCreate(&handle, dev->granularity_bytes, &dev->prop, 0);

	if (result != CUDA_SUCCESS)
		return result == CUDA_ERROR_OUT_OF_MEMORY;
	result = dev->gpu.cuMemExportToShareableHandle(&fd, handle,
						       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	(void)dev->gpu.cuMemRelease(handle);
	return result == CUDA_SUCCESS;
}

int mm_xrights_drop(struct mm_xdev *dev)
{
	static const struct mm_filter filter = { .calls = refused_calls,
						 .n_calls = MM_ARRAY_SIZE(refused_calls),
						 .refuses = true };
	gid_t groups[NODES_MAX];
	const struct mm_rights_user user = { .uid = MM_UID_XFER,
					     .groups = groups,
					     .n_groups = node_groups(groups) };
	const bool mps = dev->facts.attributes & MM_XFACT_MPS;
	struct mm_rights rights;
	int r = 1;

	if (geteuid() == 0)
		r = mps ? 0 : mm_rights_try(&user, driver_works, dev);
	if (r < 0)
		return r;
	r = mm_rights_leave_root(r ? &user : NULL, &rights);
	if (r == 0 && rights.stays_root)
		mm_log(MM_LOG_INFO, "rights.root",
		       "reason=\"the driver needs it; stays root without capabilities\"");
	return r < 0 ? r : mm_rights_close(&filter);
}
