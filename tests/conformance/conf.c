/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/cleanup.h"
#include "tests/conformance/run.h"

#define HARDWARE_BULK ((size_t)1 << 30)
#define BACK_LIMIT_S  (conf.software ? 180 : 30)

extern char **environ;

struct conf conf;

void conf_check(bool holds, const char *what, const char *file, int line)
{
	if (holds)
		return;
	if (!conf_in_role)
		_fail(file, line);
	fprintf(stderr, "%s:%d: %s\n", file, line, what);
	_exit(CONF_FAILED);
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
	CUresult res;

	/*
	 * A driver may wait for the context when it loads a kernel that is launched for the first
	 * time: for streams that wait for us. All at once, before there are any.
	 */
	setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	res = conf.gpu.cuInit(0);
	if (res == CUDA_ERROR_NO_DEVICE || res == CUDA_ERROR_STUB_LIBRARY)
		conf_skip("cuInit: %s", mm_gpu_strerror(&conf.gpu, res));
	ok(res);
	ok(conf.gpu.cuDeviceGet(&device, 0));
	conf.prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, device },
	};
	ok(conf.gpu.cuMemGetAllocationGranularity(&conf.granule, &conf.prop,
						  CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	conf.bulk = conf.software ? conf.granule : HARDWARE_BULK;
	conf.noise = conf.software ? 0 : HARDWARE_BULK / 2;
}

void conf_context(void)
{
	CUresult res;

	if (!conf.granule)
		conf_init();
	res = conf.gpu.cuDevicePrimaryCtxRetain(&conf.ctx, 0);
	if (res == CUDA_ERROR_DEVICE_UNAVAILABLE &&
	    conf_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE))
		conf_skip("the device's compute mode is exclusive");
	ok(res);
	ok(conf.gpu.cuCtxSetCurrent(conf.ctx));
}

int conf_set_up(void **state)
{
	(void)state;
	if (!conf.ctx)
		conf_context();
	return 0;
}

/* ---- Processes ---- */

struct conf_peer conf_spawn(const char *role)
{
	char *argv[] = { (char *)"role", (char *)"--role", (char *)role, (char *)conf_test_name,
			 NULL };
	posix_spawn_file_actions_t actions;
	struct conf_peer peer;
	int pair[2];

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, pair[1], CONF_ROLE_FD);
	/* dup2 of a descriptor onto itself would leave it close-on-exec. */
	check(pair[1] != CONF_ROLE_FD);
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

int conf_join_within(struct conf_peer *peer, unsigned int seconds)
{
	uint64_t end = conf_now_ns() + seconds * MM_NS_PER_S;
	int status = -1;

	mm_close_fd(&peer->sock);
	while (waitpid(peer->pid, &status, WNOHANG) == 0) {
		if (conf_now_ns() > end)
			return -ETIMEDOUT;
		conf_nap_ms(2);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void conf_kill(struct conf_peer *peer)
{
	kill(peer->pid, SIGKILL);
	conf_join(peer);
}

void conf_finish(struct conf_peer *peer)
{
	int status = conf_join(peer);

	if (status == CONF_SKIPPED)
		conf_skip("the other process was");
	if (status)
		fprintf(stderr, "a role ended with %d\n", status);
	check(status == 0);
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

CUdeviceptr conf_take(size_t bytes)
{
	CUmemGenericAllocationHandle handle = conf_create(bytes);
	CUdeviceptr va = conf_reserve(bytes);

	conf_map(va, bytes, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	ok(conf.gpu.cuMemRelease(handle));
	return va;
}

void conf_give(CUdeviceptr va, size_t bytes)
{
	ok(conf.gpu.cuMemUnmap(va, bytes));
	ok(conf.gpu.cuMemAddressFree(va, bytes));
}

size_t conf_free_bytes(void)
{
	size_t free_bytes, total_bytes;

	ok(conf.gpu.cuMemGetInfo(&free_bytes, &total_bytes));
	return free_bytes;
}

CUdeviceptr conf_zeroed(size_t bytes)
{
	CUdeviceptr va = 0;

	ok(conf.gpu.cuMemAlloc(&va, bytes));
	ok(conf.gpu.cuMemsetD8Async(va, 0, bytes, NULL));
	ok(conf.gpu.cuCtxSynchronize());
	return va;
}

void conf_read(void *to, CUdeviceptr va, size_t bytes)
{
	ok(conf.gpu.cuMemcpyDtoH(to, va, bytes));
}

/* Half of the tolerance, so that what is looked for is told from it. */
bool conf_comes_back(size_t bytes)
{
	uint64_t end = conf_now_ns() + BACK_LIMIT_S * MM_NS_PER_S;

	while (conf_free_bytes() + conf.noise / 2 < bytes) {
		if (conf_now_ns() > end)
			return false;
		conf_nap_ms(conf.software ? 20 : 1);
	}
	return true;
}

int conf_attribute(CUdevice_attribute attribute)
{
	int value = 0;

	/* One that an older driver does not know is not there. */
	if (conf.gpu.cuDeviceGetAttribute(&value, attribute, 0))
		return 0;
	return value;
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

void *conf_receive_shared(int sock, size_t bytes, CUdeviceptr *ret_va)
{
	void *addr;
	int fd;

	check(conf_recv(sock, &fd) == 1 && fd >= 0);
	addr = conf_shared_from(fd, bytes, PROT_READ | PROT_WRITE);
	*ret_va = conf_register(addr, bytes, 0);
	close(fd);
	return addr;
}

void conf_needs_read_only(void)
{
	if (!conf_attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED))
		conf_skip("the driver registers no read-only memory");
}

CUstream conf_stream(void)
{
	CUstream stream = NULL;

	ok(conf.gpu.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

/* ---- Kernels ---- */

static CUmodule module;

bool conf_has_kernels(void)
{
	const char *path = getenv("MM_CONF_KERNELS");
	char why[1024] = "";

	if (!path || !*path)
		path = conf.software ? CONF_HOST_KERNELS : CONF_FATBIN;
	if (!module && *path && access(path, R_OK) == 0)
		if (mm_gpu_load_module(&conf.gpu, path, &module, why, sizeof(why)))
			fprintf(stderr, "%s\n", why);
	check(!why[0]);
	return module != NULL;
}

CUfunction conf_kernel(const char *name)
{
	CUfunction function = NULL;

	if (!conf_has_kernels())
		conf_skip("built without nvcc: there is no kernel for this device");
	ok(conf.gpu.cuModuleGetFunction(&function, module, name));
	return function;
}

void conf_launch(CUfunction function, unsigned int blocks, unsigned int threads, CUstream stream,
		 const void *args)
{
	void *params[] = { (void *)(uintptr_t)args };

	ok(conf.gpu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}
