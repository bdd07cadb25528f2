/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that captures a stream into a graph and replays it, with the toolkit's cuda.h and
 * whatever functions its macros name: a fork and a join, pinned and pageable memory, a host
 * function. It knows nothing of this project.
 */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/foreign/check.h"

static unsigned int replays;

static void CUDA_CB count(void *arg)
{
	replays += *(const unsigned int *)arg;
}

static void capture_branch(CUstream stream, CUstream branch, CUdeviceptr mem)
{
	CUevent fork, join;

	CHECK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventRecord(fork, stream));
	CHECK(cuStreamWaitEvent(branch, fork, CU_EVENT_WAIT_DEFAULT));
	CHECK(cuMemcpyDtoDAsync(mem + 4, mem, 4, branch));
	CHECK(cuEventRecord(join, branch));
	CHECK(cuStreamWaitEvent(stream, join, CU_EVENT_WAIT_DEFAULT));
	CHECK(cuEventDestroy(fork));
	CHECK(cuEventDestroy(join));
}

static CUgraphExec capture(CUstream stream, CUdeviceptr mem, unsigned int *in, unsigned int *out)
{
	static unsigned int one = 1;
	const CUgraphNode *ahead;
	CUstreamCaptureStatus status;
	CUgraph graph, into;
	CUgraphExec exec;
	CUstream branch;
	cuuint64_t id;
	size_t n;

	CHECK(cuStreamCreate(&branch, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuMemcpyHtoDAsync(mem, in, 4, stream));
	capture_branch(stream, branch, mem);
	CHECK(cuMemsetD32Async(mem + 8, 7, 1, stream));
	CHECK(cuMemcpyDtoHAsync(out, mem, 12, stream));
	CHECK(cuLaunchHostFunc(stream, count, &one));
#if CUDA_VERSION >= 13000
	CHECK(cuStreamGetCaptureInfo(stream, &status, &id, &into, &ahead, NULL, &n));
#else
	CHECK(cuStreamGetCaptureInfo(stream, &status, &id, &into, &ahead, &n));
#endif
	REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 1);
	CHECK(cuStreamEndCapture(stream, &graph));
	REQUIRE(graph == into);
	CHECK(cuGraphGetNodes(graph, NULL, &n));
	REQUIRE(n == 5);
	CHECK(cuGraphInstantiate(&exec, graph, 0));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuStreamDestroy(branch));
	return exec;
}

int main(void)
{
	unsigned int *in, out[3] = { 0 };
	CUgraphExec exec;
	CUdeviceptr mem;
	CUdevice device;
	CUcontext ctx;
	CUstream stream;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&mem, 64));
	CHECK(cuMemAllocHost((void **)&in, 64));
	exec = capture(stream, mem, in, out);
	for (unsigned int i = 1; i <= 10; i++) {
		*in = i;
		/* The default stream, of either kind. */
		CHECK(cuGraphLaunch(exec, i % 2 ? stream : NULL));
		CHECK(cuCtxSynchronize());
		REQUIRE(out[0] == i && out[1] == i && out[2] == 7 && replays == i);
	}
	CHECK(cuGraphExecDestroy(exec));
	CHECK(cuMemFreeHost(in));
	CHECK(cuMemFree(mem));
	CHECK(cuStreamDestroy(stream));
	CHECK(cuDevicePrimaryCtxRelease(device));
	puts("ok");
	return 0;
}
