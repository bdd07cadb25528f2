/* SPDX-License-Identifier: Apache-2.0 */
/* doctor_host - what `mmctl doctor` looks for on the host: kernel, limits, file systems */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/size.h"
#include "tools/mmctl/doctor.h"

#define FILES_FEW    8192 /* of 2 MiB pages, those of a device of 12 GiB, and 2048 besides */
#define PIDS_FEW     512
#define MEMLOCK_FEW  (UINT64_C(64) << 20) /* the ring of stores on disk */
#define SHM_FEW      (UINT64_C(1) << 30)
#define URING_BYTES  512 /* more than struct io_uring_params */
#define KERNEL_MAJOR 6
#define KERNEL_MINOR 1

#ifndef SO_PASSRIGHTS /* Linux 6.16; absent from Debian 12's headers */
#define SO_PASSRIGHTS 83
#endif

static bool kernel_refuses_fds(void)
{
	mm_cleanup(mm_close_fd) int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const int off = 0;

	return fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) == 0;
}

static void kernel_check(struct mmctl_doctor *d)
{
	unsigned int major = 0, minor = 0;
	struct utsname name;

	if (uname(&name) < 0 || sscanf(name.release, "%u.%u", &major, &minor) != 2) {
		mmctl_doctor_add(d, "kernel", MMCTL_WARN, "", "its version cannot be read");
		return;
	}
	if (major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR))
		mmctl_doctor_add(d, "kernel", MMCTL_FAIL, "Linux 6.1 or later", "Linux %s",
				 name.release);
	else if (kernel_refuses_fds())
		mmctl_doctor_add(d, "kernel", MMCTL_OK, "",
				 "Linux %s; it refuses descriptors that tenants pass to mmd",
				 name.release);
	else
		mmctl_doctor_add(
			d, "kernel", MMCTL_NOTE, "Linux 6.16 has SO_PASSRIGHTS",
			"Linux %s: descriptors that tenants pass to mmd reach its sockets, "
			"and a process of their own closes them",
			name.release);
}

static void uring_check(struct mmctl_doctor *d)
{
	unsigned char params[URING_BYTES] = { 0 };
	mm_cleanup(mm_close_fd) int fd = (int)syscall(SYS_io_uring_setup, 1, params);

	if (fd >= 0)
		mmctl_doctor_add(d, "io_uring", MMCTL_OK, "", "it may be used here");
	else
		mmctl_doctor_add(d, "io_uring", MMCTL_WARN,
				 "kernel.io_uring_disabled=0, or the container's seccomp profile",
				 "%s: loads and stores on disk are read by threads, slower",
				 strerror(errno));
}

/* ---- limits ---- */

static void files_check(struct mmctl_doctor *d)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	if (limit.rlim_max < FILES_FEW)
		mmctl_doctor_add(d, "ulimit -Hn", MMCTL_WARN,
				 "ulimit -Hn, or LimitNOFILE= of the service",
				 "%" PRIu64 " open files; mmd needs one per page, and 2048 besides",
				 (uint64_t)limit.rlim_max);
	else
		mmctl_doctor_add(d, "ulimit -Hn", MMCTL_OK, "", "%" PRIu64 " open files",
				 (uint64_t)limit.rlim_max);
}

static void memlock_check(struct mmctl_doctor *d)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		return;
	if (limit.rlim_max < MEMLOCK_FEW && geteuid() != 0)
		mmctl_doctor_add(d, "ulimit -Hl", MMCTL_WARN,
				 "ulimit -Hl, or LimitMEMLOCK= of the service",
				 "%" PRIu64 " bytes of locked memory: buffers for stores on disk "
				 "are not registered, and are read slower",
				 (uint64_t)limit.rlim_max);
	else
		mmctl_doctor_add(d, "ulimit -Hl", MMCTL_OK, "", "enough memory may be locked");
}

/* The pids.max of the cgroup that this process is in; 0: none, or not known. */
static uint64_t pids_max(void)
{
	mm_cleanup(mm_close_file) FILE *self = fopen("/proc/self/cgroup", "re");
	char line[512], path[768];
	uint64_t max = 0;

	while (self && fgets(line, sizeof(line), self)) {
		mm_cleanup(mm_close_file) FILE *file = NULL;

		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/pids.max", line + 3);
		file = fopen(path, "re");
		if (!file || fscanf(file, "%" SCNu64, &max) != 1)
			max = 0;
	}
	return max;
}

static void pids_check(struct mmctl_doctor *d)
{
	const uint64_t max = pids_max();

	if (max && max < PIDS_FEW)
		mmctl_doctor_add(d, "pids", MMCTL_WARN, "pids.max of the cgroup, or TasksMax=",
				 "at most %" PRIu64 " processes and threads in this cgroup", max);
	else
		mmctl_doctor_add(d, "pids", MMCTL_OK, "", "enough processes may be started");
}

/* ---- memory ---- */

/* A number of /proc/meminfo; 0 if there is none. */
static uint64_t meminfo_read(const char *key)
{
	mm_cleanup(mm_close_file) FILE *file = fopen("/proc/meminfo", "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, key, strlen(key)) == 0 && line[strlen(key)] == ':')
			return strtoull(line + strlen(key) + 1, NULL, 10);
	return 0;
}

static void hugepages_check(struct mmctl_doctor *d)
{
	const uint64_t total = meminfo_read("HugePages_Total");
	const uint64_t unused = meminfo_read("HugePages_Free");

	if (total)
		mmctl_doctor_add(d, "hugepages", MMCTL_OK, "",
				 "%" PRIu64 " of %" PRIu64 " huge pages of %" PRIu64
				 " KiB are free",
				 unused, total, meminfo_read("Hugepagesize"));
	else
		mmctl_doctor_add(
			d, "hugepages", MMCTL_NOTE, "",
			"none are reserved: host copies of weights lie in usual pages, and "
			"pinning them takes longer");
}

static void shm_check(struct mmctl_doctor *d)
{
	struct statvfs fs;
	char text[MM_SIZE_TEXT_BYTES];
	uint64_t bytes;

	if (statvfs("/dev/shm", &fs) < 0) {
		mmctl_doctor_add(d, "/dev/shm", MMCTL_NOTE, "", "%s; only the software GPU uses it",
				 strerror(errno));
		return;
	}
	bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (bytes < SHM_FEW)
		mmctl_doctor_add(
			d, "/dev/shm", MMCTL_NOTE, "docker run --shm-size, or MM_SOFTGPU_DIR",
			"%s are free; only the software GPU uses it", mm_size_print(bytes, text));
	else
		mmctl_doctor_add(d, "/dev/shm", MMCTL_OK, "", "%s are free",
				 mm_size_print(bytes, text));
}

/* ---- what can be seen ---- */

static bool proc_hides_others(void)
{
	mm_cleanup(mm_close_file) FILE *mounts = fopen("/proc/self/mounts", "re");
	char line[1024];

	while (mounts && fgets(line, sizeof(line), mounts)) {
		const char *hides = strstr(line, "hidepid=");

		if (strstr(line, " /proc proc ") && hides && hides[strlen("hidepid=")] != '0' &&
		    strncmp(hides, "hidepid=off", strlen("hidepid=off")) != 0)
			return true;
	}
	return false;
}

static void proc_check(struct mmctl_doctor *d)
{
	if (proc_hides_others())
		mmctl_doctor_add(d, "/proc", MMCTL_NOTE,
				 "mount /proc without hidepid, or with gid=",
				 "hidepid hides processes of other users: core, which is no root, "
				 "cannot see whether a tenant is stopped, or its cgroup");
	else
		mmctl_doctor_add(d, "/proc", MMCTL_OK, "", "it shows processes of all users");
}

void mmctl_doctor_host(struct mmctl_doctor *d)
{
	kernel_check(d);
	uring_check(d);
	files_check(d);
	memlock_check(d);
	pids_check(d);
	hugepages_check(d);
	shm_check(d);
	proc_check(d);
	mmctl_doctor_add(d, "mappings", MMCTL_NOTE, "",
			 "no driver lets us map device memory for reading only: a tenant may write "
			 "to pages that it holds, which are its own");
}
