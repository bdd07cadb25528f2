/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As CUDA's memMapIpc sample: processes that each make a piece of memory, pass it to all others as
 * a file descriptor, and map all pieces side by side. Includes the toolkit's cuda.h, links
 * libcuda.so.1, and knows nothing of this project.
 */
#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/foreign/check.h"

enum { PROCESSES = 3 };

static void send_fd(int sock, int fd)
{
	char byte = 'f', control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	REQUIRE(sendmsg(sock, &msg, 0) == 1);
}

static int recv_fd(int sock)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	int fd;

	REQUIRE(recvmsg(sock, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Every process: gives the parent its piece, gets all pieces, writes its own, checks all. */
static int run(int self, int sock)
{
	CUmemGenericAllocationHandle own, pieces[PROCESSES];
	CUmemAllocationProp prop = { 0 };
	CUmemAccessDesc access = { 0 };
	CUdevice device;
	CUdeviceptr va;
	CUcontext ctx;
	size_t bytes;
	unsigned int value;
	int fd, supported;
	char byte = 0;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDeviceGetAttribute(&supported,
				   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
				   device));
	REQUIRE(supported);
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CHECK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	CHECK(cuMemCreate(&own, bytes, &prop, 0));
	CHECK(cuMemExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(sock, fd);
	close(fd);
	CHECK(cuMemRelease(own));
	CHECK(cuMemAddressReserve(&va, PROCESSES * bytes, bytes, 0, 0));
	for (int i = 0; i < PROCESSES; i++) {
		fd = recv_fd(sock);
		CHECK(cuMemImportFromShareableHandle(&pieces[i], (void *)(uintptr_t)fd,
						     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		close(fd);
		CHECK(cuMemMap(va + (size_t)i * bytes, bytes, 0, pieces[i], 0));
		CHECK(cuMemRelease(pieces[i]));
	}
	access.location = prop.location;
	access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	CHECK(cuMemSetAccess(va, PROCESSES * bytes, &access, 1));
	CHECK(cuMemsetD32(va + (size_t)self * bytes, 1000u + (unsigned int)self, bytes / 4));
	CHECK(cuCtxSynchronize());
	/* A barrier: the parent answers when all have written. */
	REQUIRE(write(sock, &byte, 1) == 1 && read(sock, &byte, 1) == 1);
	for (unsigned int i = 0; i < PROCESSES; i++) {
		CHECK(cuMemcpyDtoH(&value, va + (i + 1) * bytes - 4, sizeof(value)));
		REQUIRE(value == 1000 + i);
	}
	REQUIRE(write(sock, &byte, 1) == 1 && read(sock, &byte, 1) == 1);
	CHECK(cuMemUnmap(va, PROCESSES * bytes));
	CHECK(cuMemAddressFree(va, PROCESSES * bytes));
	CHECK(cuDevicePrimaryCtxRelease(device));
	return 0;
}

static void barrier(const int socks[PROCESSES])
{
	char byte = 0;

	for (int i = 0; i < PROCESSES; i++)
		REQUIRE(read(socks[i], &byte, 1) == 1);
	for (int i = 0; i < PROCESSES; i++)
		REQUIRE(write(socks[i], &byte, 1) == 1);
}

int main(void)
{
	int socks[PROCESSES], fds[PROCESSES], pair[2], status;
	pid_t pids[PROCESSES];

	/* The driver does not survive a fork: it is initialised in the children. */
	for (int i = 0; i < PROCESSES; i++) {
		REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
		pids[i] = fork();
		REQUIRE(pids[i] >= 0);
		if (pids[i] == 0)
			exit(run(i, pair[1]));
		close(pair[1]);
		socks[i] = pair[0];
	}
	for (int i = 0; i < PROCESSES; i++)
		fds[i] = recv_fd(socks[i]);
	for (int to = 0; to < PROCESSES; to++)
		for (int i = 0; i < PROCESSES; i++)
			send_fd(socks[to], fds[i]);
	for (int i = 0; i < PROCESSES; i++)
		close(fds[i]);
	barrier(socks);
	barrier(socks);
	for (int i = 0; i < PROCESSES; i++) {
		REQUIRE(waitpid(pids[i], &status, 0) == pids[i]);
		REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	puts("ok");
	return 0;
}
