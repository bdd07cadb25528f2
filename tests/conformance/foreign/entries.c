/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points that programs and frameworks meet in passing: fills of rectangles, graphs with
 * parameters and with objects of the program's, what a pointer is set to, libraries of code for
 * another device, and what a device may not have at all. It knows nothing of this project.
 */
#include <cuda.h>

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/foreign/check.h"

enum { PITCH = 64, ROWS = 8, BYTES = PITCH * ROWS };

static unsigned char seen[BYTES], want[BYTES];

/* The bytes, once 0xee, that a fill of @width bytes a row, from @from on, is to leave. */
static void rectangle(size_t from, size_t width, size_t rows, const void *element, size_t size)
{
	memset(want, 0xee, sizeof(want));
	for (size_t row = 0; row < rows; row++)
		for (size_t x = 0; x < width; x += size)
			memcpy(&want[from + row * PITCH + x], element, size);
}

/* A fill may be under way when the call returns, and a stream of its own does not wait for it. */
static void clear(CUdeviceptr va)
{
	CHECK(cuMemsetD8(va, 0xee, BYTES));
	CHECK(cuCtxSynchronize());
}

static void compare(CUdeviceptr va, CUstream stream)
{
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(seen, va, BYTES));
	REQUIRE(memcmp(seen, want, BYTES) == 0);
	clear(va);
}

static void fill_rectangles(CUstream stream)
{
	const unsigned short d16 = 0x1234;
	const unsigned int d32 = 0x12345678;
	const unsigned char d8 = 7;
	CUdeviceptr va;

	CHECK(cuMemAlloc(&va, BYTES));
	clear(va);
	CHECK(cuMemsetD2D8(va + 3, PITCH, d8, 5, ROWS));
	rectangle(3, 5, ROWS, &d8, 1);
	compare(va, stream);
	CHECK(cuMemsetD2D16(va + 2, PITCH, d16, 5, 3));
	rectangle(2, 10, 3, &d16, 2);
	compare(va, stream);
	CHECK(cuMemsetD2D32(va + 4, PITCH, d32, 15, ROWS));
	rectangle(4, 60, ROWS, &d32, 4);
	compare(va, stream);
	CHECK(cuMemsetD2D8Async(va, PITCH, d8, PITCH, ROWS, stream)); /* rows without a gap */
	rectangle(0, PITCH, ROWS, &d8, 1);
	compare(va, stream);
	CHECK(cuMemsetD2D16Async(va + 64, PITCH, d16, 32, 1, stream)); /* one row */
	rectangle(64, 64, 1, &d16, 2);
	compare(va, stream);
	CHECK(cuMemsetD2D32Async(va, PITCH, d32, 1, ROWS, stream));
	rectangle(0, 4, ROWS, &d32, 4);
	compare(va, stream);
	EXPECT(cuMemsetD2D8(va, PITCH, d8, PITCH + 1, 2), CUDA_ERROR_INVALID_VALUE);
	EXPECT(cuMemsetD2D16(va + 1, PITCH, d16, 1, 2), CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemFree(va));
}

static sem_t dropped;

static void CUDA_CB drop(void *arg)
{
	*(int *)arg += 1;
	sem_post(&dropped);
}

/* The object lives as long as graph or exec; the function is called once. */
static void instantiate(CUstream stream)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = { .flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
						 .hUploadStream = stream,
						 .result_out = CUDA_GRAPH_INSTANTIATE_ERROR };
	unsigned char byte = 0;
	CUuserObject object;
	CUgraphExec exec;
	int drops = 0;
	CUdeviceptr va;
	CUgraph graph;

	CHECK(cuMemAlloc(&va, BYTES));
	CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(cuMemsetD2D8Async(va, PITCH, 9, 1, ROWS, stream));
	CHECK(cuStreamEndCapture(stream, &graph));
	REQUIRE(sem_init(&dropped, 0, 0) == 0);
	EXPECT(cuUserObjectCreate(&object, &drops, drop, 1, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK(cuUserObjectCreate(&object, &drops, drop, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	CHECK(cuUserObjectRetain(object, 2));
	CHECK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	CHECK(cuGraphRetainUserObject(graph, object, 3, 0));
	CHECK(cuGraphReleaseUserObject(graph, object, 3));
	CHECK(cuGraphInstantiateWithParams(&exec, graph, &params));
	REQUIRE(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS && !params.hErrNode_out);
	CHECK(cuUserObjectRelease(object, 2));
	CHECK(cuGraphDestroy(graph));
	CHECK(cuGraphLaunch(exec, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemcpyDtoH(&byte, va + (ROWS - 1) * PITCH, 1));
	REQUIRE(byte == 9 && drops == 0);
	CHECK(cuGraphExecDestroy(exec));
	REQUIRE(sem_wait(&dropped) == 0 && drops == 1);
	CHECK(cuMemFree(va));
}

static void set_attribute(void)
{
	unsigned int on = 1;
	CUdeviceptr va;
	int is = 0;

	CHECK(cuMemAlloc(&va, BYTES));
	CHECK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va));
	CHECK(cuPointerGetAttribute(&is, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, va));
	REQUIRE((is & 1) == 1);
	EXPECT(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, va),
	       CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemFree(va));
}

/*
 * Code for a device that nobody has built is refused when it is loaded, or, by a driver that loads
 * lazily, when something of it is first asked for.
 */
static void load_library(void)
{
	static const char ptx[] = ".version 99.9\n.target sm_999\n.address_size 64\n";
	CUlibrary library;
	CUmodule module;
	CUresult res = cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0);

	printf("code for an unknown device: %d when loaded\n", (int)res);
	if (!res) {
		res = cuLibraryGetModule(&module, library);
		printf("code for an unknown device: %d when asked for\n", (int)res);
		CHECK(cuLibraryUnload(library));
	}
	REQUIRE(res != CUDA_SUCCESS);
	EXPECT(cuLibraryLoadFromFile(&library, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0),
	       CUDA_ERROR_FILE_NOT_FOUND);
}

static int has(CUdevice device, CUdevice_attribute attribute)
{
	int value = 0;

	CHECK(cuDeviceGetAttribute(&value, attribute, device));
	return value;
}

/* A device refuses, as such, the things that it says it has not. */
static void ask_for_what_is_not(CUdevice device, CUcontext ctx)
{
	CUmemoryPool pool;
	CUdeviceptr va;

	if (!has(device, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
		EXPECT(cuMemAllocManaged(&va, BYTES, CU_MEM_ATTACH_GLOBAL),
		       CUDA_ERROR_NOT_SUPPORTED);
	if (!has(device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) {
		EXPECT(cuDeviceGetDefaultMemPool(&pool, device), CUDA_ERROR_NOT_SUPPORTED);
		EXPECT(cuMemAllocAsync(&va, BYTES, NULL), CUDA_ERROR_NOT_SUPPORTED);
	}
	REQUIRE(cuCtxEnablePeerAccess(ctx, 0) != CUDA_SUCCESS); /* not with itself */
	REQUIRE(cuCtxDisablePeerAccess(ctx) != CUDA_SUCCESS);
}

int main(void)
{
	CUdevice device;
	CUstream stream;
	CUcontext ctx;

	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuDevicePrimaryCtxRetain(&ctx, device));
	CHECK(cuCtxSetCurrent(ctx));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	fill_rectangles(stream);
	instantiate(stream);
	set_attribute();
	load_library();
	ask_for_what_is_not(device, ctx);
	CHECK(cuStreamDestroy(stream));
	CHECK(cuDevicePrimaryCtxRelease(device));
	printf("all there\n");
	return 0;
}
