/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of the sort that CUDA's driver API samples are: a context, buffers, copies, events. It
 * includes the toolkit's cuda.h, links libcuda.so.1, and knows nothing of this project.
 */
#include <cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/foreign/check.h"

enum { N = 1 << 16 };

static void print_device(CUdevice device)
{
	int major, minor, processors, version;
	char name[256], bus[32];
	size_t total;

	CHECK(cuDriverGetVersion(&version));
	CHECK(cuDeviceGetName(name, sizeof(name), device));
	CHECK(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
	CHECK(cuDeviceTotalMem(&total, device));
	CHECK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
	CHECK(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
	CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
	printf("%s at %s: driver %d, compute %d.%d, %d processors, %zu bytes\n", name, bus, version,
	       major, minor, processors, total);
}

static void copy_synchronously(void)
{
	unsigned int *out = malloc(N * sizeof(*out)), *in = calloc(N, sizeof(*in));
	CUdeviceptr a, b, base;
	size_t bytes;

	REQUIRE(out && in);
	for (unsigned int i = 0; i < N; i++)
		out[i] = i * 2654435761u;
	CHECK(cuMemAlloc(&a, N * sizeof(*out)));
	CHECK(cuMemAlloc(&b, N * sizeof(*out)));
	CHECK(cuMemGetAddressRange(&base, &bytes, a + 100));
	REQUIRE(base == a && bytes >= N * sizeof(*out));
	CHECK(cuMemcpyHtoD(a, out, N * sizeof(*out)));
	CHECK(cuMemcpyDtoD(b, a, N * sizeof(*out)));
	CHECK(cuMemcpyDtoH(in, b, N * sizeof(*out)));
	REQUIRE(memcmp(in, out, N * sizeof(*out)) == 0);
	CHECK(cuMemsetD32(a, 0x12345678, N));
	CHECK(cuMemsetD16(b, 0xabcd, N));
	CHECK(cuMemcpyDtoH(in, a, N * sizeof(*out)));
	REQUIRE(in[0] == 0x12345678 && in[N - 1] == 0x12345678);
	CHECK(cuMemcpyDtoH(in, b, N * sizeof(*out)));
	REQUIRE(in[0] == 0xabcdabcd && in[N / 2] == out[N / 2]);
	CHECK(cuMemFree(a));
	CHECK(cuMemFree(b));
	free(out);
	free(in);
}

/* A window of a pitched image, to the host and back. */
static void copy_window(void)
{
	enum { WIDTH = 100, HEIGHT = 40, X = 12, Y = 3 };
	unsigned char window[HEIGHT][WIDTH], seen[HEIGHT][WIDTH];
	CUDA_MEMCPY2D copy = { 0 };
	CUdeviceptr image;
	size_t pitch;

	CHECK(cuMemAllocPitch(&image, &pitch, 1000, 64, 4));
	REQUIRE(pitch >= 1000);
	CHECK(cuMemsetD8(image, 0xee, pitch * 64));
	for (int i = 0; i < HEIGHT * WIDTH; i++)
		window[i / WIDTH][i % WIDTH] = (unsigned char)i;
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = window;
	copy.srcPitch = WIDTH;
	copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.dstDevice = image;
	copy.dstPitch = pitch;
	copy.dstXInBytes = X;
	copy.dstY = Y;
	copy.WidthInBytes = WIDTH;
	copy.Height = HEIGHT;
	CHECK(cuMemcpy2D(&copy));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = image;
	copy.srcPitch = pitch;
	copy.srcXInBytes = X - 1;
	copy.srcY = Y;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = seen;
	copy.dstPitch = WIDTH;
	copy.WidthInBytes = WIDTH;
	copy.Height = HEIGHT;
	CHECK(cuMemcpy2DAsync(&copy, NULL));
	CHECK(cuCtxSynchronize());
	for (int row = 0; row < HEIGHT; row++) {
		REQUIRE(seen[row][0] == 0xee);
		REQUIRE(memcmp(&seen[row][1], window[row], WIDTH - 1) == 0);
	}
	CHECK(cuMemFree(image));
}

/* A larger stack takes a device's memory for each of its threads: 270 MiB on an H100. */
static void set_limits(void)
{
	size_t stack, now;

	CHECK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
	CHECK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2 * stack));
	CHECK(cuCtxGetLimit(&now, CU_LIMIT_STACK_SIZE));
	REQUIRE(now >= 2 * stack);
	CHECK(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
}

static void CUDA_CB mark(void *arg)
{
	*(int *)arg += 1;
}

static void copy_asynchronously(void)
{
	CUstream first, second;
	CUevent start, end;
	unsigned int *pinned;
	CUdeviceptr mem;
	int marks = 0;
	float ms = -1;

	CHECK(cuStreamCreate(&first, CU_STREAM_DEFAULT));
	CHECK(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, -1));
	CHECK(cuEventCreate(&start, CU_EVENT_DEFAULT));
	CHECK(cuEventCreate(&end, CU_EVENT_BLOCKING_SYNC));
	CHECK(cuMemAllocHost((void **)&pinned, N * sizeof(*pinned)));
	CHECK(cuMemAlloc(&mem, N * sizeof(*pinned)));
	for (unsigned int i = 0; i < N; i++)
		pinned[i] = i;
	CHECK(cuEventRecord(start, first));
	CHECK(cuMemcpyHtoDAsync(mem, pinned, N * sizeof(*pinned), first));
	CHECK(cuMemsetD32Async(mem, 7, N / 2, first));
	CHECK(cuLaunchHostFunc(first, mark, &marks));
	CHECK(cuEventRecord(end, first));
	CHECK(cuStreamWaitEvent(second, end, 0));
	CHECK(cuMemcpyDtoHAsync(pinned, mem, N * sizeof(*pinned), second));
	CHECK(cuStreamSynchronize(second));
	CHECK(cuEventQuery(end));
	CHECK(cuEventElapsedTime(&ms, start, end));
	REQUIRE(ms >= 0 && marks == 1);
	for (unsigned int i = 0; i < N; i++)
		REQUIRE(pinned[i] == (i < N / 2 ? 7 : i));
	CHECK(cuMemFree(mem));
	CHECK(cuMemFreeHost(pinned));
	CHECK(cuEventDestroy(start));
	CHECK(cuEventDestroy(end));
	CHECK(cuStreamDestroy(first));
	CHECK(cuStreamDestroy(second));
}

static void copy_all(void)
{
	copy_synchronously();
	copy_asynchronously();
	copy_window();
	CHECK(cuCtxSynchronize());
}

int main(void)
{
	size_t before, after, total;
	CUcontext ctx, current;
	CUdevice device;
	int count;

	CHECK(cuInit(0));
	CHECK(cuDeviceGetCount(&count));
	REQUIRE(count > 0);
	CHECK(cuDeviceGet(&device, 0));
	print_device(device);
#if CUDA_VERSION >= 13000
	CHECK(cuCtxCreate(&ctx, NULL, CU_CTX_SCHED_BLOCKING_SYNC, device));
#else
	CHECK(cuCtxCreate(&ctx, CU_CTX_SCHED_BLOCKING_SYNC, device));
#endif
	CHECK(cuCtxGetCurrent(&current));
	REQUIRE(current == ctx);
	/*
	 * A driver keeps what it loads for the first copies and fills, however much that is: what
	 * does all of it again must leave nothing behind. run.sh looks for what is left.
	 */
	set_limits();
	copy_all();
	CHECK(cuMemGetInfo(&before, &total));
	for (int i = 0; i < 3; i++)
		copy_all();
	CHECK(cuMemGetInfo(&after, &total));
	printf("kept by three more rounds: %lld bytes\n", (long long)before - (long long)after);
	REQUIRE(after >= before);
	CHECK(cuCtxDestroy(ctx));
	puts("ok");
	return 0;
}
