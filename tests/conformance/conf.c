/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/conf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ROLE_FD     3
#define SKIPPED     77
#define MEMORY      "64M"
#define GRANULARITY "64K"

extern char **environ;

struct conf conf;

static bool in_role;
static char device_dir[64];

void conf_check(bool holds, const char *what, const char *file, int line)
{
	if (holds)
		return;
	if (!in_role)
		_fail(file, line);
	fprintf(stderr, "%s:%d: %s\n", file, line, what);
	_exit(1);
}

void conf_expect(CUresult result, CUresult want, const char *call, const char *file, int line)
{
	if (result == want)
		return;
	fprintf(stderr, "%s:%d: %s: %s, not %s\n", file, line, call,
		mm_gpu_strerror(&conf.gpu, result), mm_gpu_strerror(&conf.gpu, want));
	conf_check(false, call, file, line);
}

void conf_init(void)
{
	CUdevice device;

	ok(conf.gpu.cuInit(0));
	ok(conf.gpu.cuDeviceGet(&device, 0));
	conf.prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
	};
	ok(conf.gpu.cuMemGetAllocationGranularity(&conf.granule, &conf.prop,
						  CU_MEM_ALLOC_GRANULARITY_MINIMUM));
}

void conf_context(void)
{
	if (!conf.granule)
		conf_init();
	ok(conf.gpu.cuDevicePrimaryCtxRetain(&conf.ctx, 0));
	ok(conf.gpu.cuCtxSetCurrent(conf.ctx));
}

/* ---- Processes ---- */

struct conf_peer conf_spawn(const char *role)
{
	char *argv[] = { (char *)"role", (char *)"--role", (char *)role, NULL };
	posix_spawn_file_actions_t actions;
	struct conf_peer peer;
	int pair[2];

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pair[1], ROLE_FD);
	/* dup2 of a descriptor onto itself would leave it close-on-exec. */
	check(pair[1] != ROLE_FD);
	check(posix_spawn(&peer.pid, "/proc/self/exe", &actions, NULL, argv, environ) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(pair[1]);
	peer.sock = pair[0];
	return peer;
}

int conf_join(struct conf_peer *peer)
{
	int status = -1;

	mm_close_fd(&peer->sock);
	while (waitpid(peer->pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void conf_kill(struct conf_peer *peer)
{
	kill(peer->pid, SIGKILL);
	conf_join(peer);
}

void conf_send(int sock, uint64_t word, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { &word, sizeof(word) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cmsg;

	if (fd >= 0) {
		msg.msg_control = control.bytes;
		msg.msg_controllen = sizeof(control.bytes);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	}
	check(sendmsg(sock, &msg, MSG_NOSIGNAL) == (ssize_t)sizeof(word));
}

uint64_t conf_recv(int sock, int *ret_fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	uint64_t word = 0;
	struct iovec iov = { &word, sizeof(word) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	struct cmsghdr *cmsg;
	int fd = -1;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof(word))
		word = 0;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (cmsg && cmsg->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	if (ret_fd)
		*ret_fd = fd;
	else
		mm_close_fd(&fd);
	return word;
}

/* ---- Shorthands ---- */

CUmemGenericAllocationHandle conf_create(size_t bytes)
{
	CUmemGenericAllocationHandle handle = 0;

	ok(conf.gpu.cuMemCreate(&handle, bytes, &conf.prop, 0));
	return handle;
}

int conf_export(CUmemGenericAllocationHandle handle)
{
	int fd = -1;

	ok(conf.gpu.cuMemExportToShareableHandle(&fd, handle,
						 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	check(fd >= 0);
	return fd;
}

CUmemGenericAllocationHandle conf_import(int fd)
{
	CUmemGenericAllocationHandle handle = 0;

	ok(conf.gpu.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
						   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return handle;
}

CUdeviceptr conf_reserve(size_t bytes)
{
	CUdeviceptr va = 0;

	ok(conf.gpu.cuMemAddressReserve(&va, bytes, 0, 0, 0));
	return va;
}

CUresult conf_try_access(CUdeviceptr va, size_t bytes, CUmemAccess_flags access)
{
	const CUmemAccessDesc desc = { conf.prop.location, access };

	return conf.gpu.cuMemSetAccess(va, bytes, &desc, 1);
}

void conf_access(CUdeviceptr va, size_t bytes, CUmemAccess_flags access)
{
	ok(conf_try_access(va, bytes, access));
}

void conf_map(CUdeviceptr va, size_t bytes, CUmemGenericAllocationHandle handle,
	      CUmemAccess_flags access)
{
	ok(conf.gpu.cuMemMap(va, bytes, 0, handle, 0));
	conf_access(va, bytes, access);
}

size_t conf_free_bytes(void)
{
	size_t free_bytes, total_bytes;

	ok(conf.gpu.cuMemGetInfo(&free_bytes, &total_bytes));
	return free_bytes;
}

void *conf_shared_from(int fd, size_t bytes, int prot)
{
	void *addr = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

	check(addr != MAP_FAILED);
	return addr;
}

void *conf_shared(size_t bytes, int *ret_fd)
{
	int fd = memfd_create("conformance", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *addr;

	check(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	addr = conf_shared_from(fd, bytes, PROT_READ | PROT_WRITE);
	if (ret_fd)
		*ret_fd = fd;
	else
		close(fd);
	return addr;
}

CUdeviceptr conf_register(void *addr, size_t bytes, unsigned int flags)
{
	CUdeviceptr va = 0;

	ok(conf.gpu.cuMemHostRegister(
		addr, bytes, flags | CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	ok(conf.gpu.cuMemHostGetDevicePointer(&va, addr, 0));
	return va;
}

CUstream conf_stream(void)
{
	CUstream stream = NULL;

	ok(conf.gpu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

/* ---- main() ---- */

static void remove_tree(const char *path)
{
	char member[300];
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(member, sizeof(member), "%s/%s", path, entry->d_name);
		if (unlink(member) < 0)
			remove_tree(member);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

/* A device of our own, open to every user: one fact needs two of them. */
static void make_device(void)
{
	snprintf(device_dir, sizeof(device_dir), "/dev/shm/mm-conformance-XXXXXX");
	if (!mkdtemp(device_dir) || chmod(device_dir, 0777) < 0) {
		perror(device_dir);
		exit(1);
	}
	setenv("MM_SOFTGPU_DIR", device_dir, 1);
	setenv("MM_SOFTGPU_MEMORY", MEMORY, 1);
	setenv("MM_SOFTGPU_GRANULARITY", GRANULARITY, 1);
}

static int run_role(const char *name, const struct conf_role *roles)
{
	in_role = true;
	fcntl(ROLE_FD, F_SETFD, FD_CLOEXEC);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (; roles && roles->name; roles++)
		if (strcmp(roles->name, name) == 0)
			exit(roles->run(ROLE_FD));
	fprintf(stderr, "no role '%s'\n", name);
	return 1;
}

int conf_main(int argc, char **argv, const char *name, const struct CMUnitTest *tests,
	      size_t n_tests, const struct conf_role *roles)
{
	const char *driver = getenv("MM_DRIVER");
	char err[256];
	int failed;

	conf.software = !driver || !*driver || strcmp(driver, "software") == 0;
	if (mm_gpu_open(driver, &conf.gpu, err, sizeof(err)) < 0) {
		fprintf(stderr, "skipped: %s\n", err);
		return conf.software ? 1 : SKIPPED;
	}
	if (argc == 3 && strcmp(argv[1], "--role") == 0)
		return run_role(argv[2], roles);
	/* The lowest free descriptors are the roles' then: none of ours becomes ROLE_FD. */
	while (open("/dev/null", O_RDONLY | O_CLOEXEC) <= ROLE_FD)
		;
	if (conf.software)
		make_device();
	failed = _cmocka_run_group_tests(name, tests, n_tests, NULL, NULL);
	if (conf.software)
		remove_tree(device_dir);
	return failed ? 1 : 0;
}
