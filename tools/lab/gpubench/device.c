/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/device.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "libclient/support/cleanup.h"
#include "mmd/common/host.h"
#include "tools/lab/common/procs.h"

#define WARM_UP_NS    (300 * MM_NS_PER_MS)
#define WARM_UP_BYTES (UINT64_C(256) << 20)
#define RANDOM_BYTES  (UINT64_C(1) << 20) /* random bytes that are made, and then repeated */

int mm_gpu_call(const struct mm_gpu_dev *dev, CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return 0;
	return mm_gpu_fail(dev->bench, mm_gpu_errno(result), "%s: %s", what,
			   mm_gpu_strerror(&dev->gpu, result));
}

static int find_device(struct mm_gpu_dev *dev)
{
	int count = 0;
	int r = mm_gpu_init(&dev->gpu, dev->bench->err, sizeof(dev->bench->err));

	if (!r)
		r = MM_GPU_CALL(dev, cuDeviceGetCount, &count);
	if (r)
		return r;
	if ((int)dev->bench->opts.device >= count)
		return mm_gpu_fail(dev->bench, -ENODEV, "no device %u: the driver shows %d",
				   dev->bench->opts.device, count);
	return MM_GPU_CALL(dev, cuDeviceGet, &dev->device, (int)dev->bench->opts.device);
}

static int make_context(struct mm_gpu_dev *dev)
{
	CUcontext context;
	int r = MM_GPU_CALL(dev, cuDevicePrimaryCtxRetain, &context, dev->device);

	if (r)
		return r;
	dev->retained = true;
	r = MM_GPU_CALL(dev, cuCtxSetCurrent, context);
	if (!r)
		r = MM_GPU_CALL(dev, cuStreamCreate, &dev->stream, CU_STREAM_NON_BLOCKING);
	if (!r)
		r = MM_GPU_CALL(dev, cuEventCreate, &dev->from, CU_EVENT_DEFAULT);
	if (!r)
		r = MM_GPU_CALL(dev, cuEventCreate, &dev->to, CU_EVENT_DEFAULT);
	return r;
}

int mm_gpu_dev_open(struct mm_gpu_dev *dev, struct mm_gpu_bench *bench)
{
	int r;

	*dev = (struct mm_gpu_dev){ .bench = bench };
	if (mm_gpu_open(bench->opts.driver, &dev->gpu, bench->err, sizeof(bench->err)))
		return -ENODEV;
	r = find_device(dev);
	if (!r)
		r = make_context(dev);
	dev->prop = (CUmemAllocationProp){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device },
	};
	return r;
}

void mm_gpu_dev_close(struct mm_gpu_dev *dev)
{
	if (!dev->gpu.library)
		return;
	if (dev->from)
		dev->gpu.cuEventDestroy(dev->from);
	if (dev->to)
		dev->gpu.cuEventDestroy(dev->to);
	if (dev->stream)
		dev->gpu.cuStreamDestroy(dev->stream);
	if (dev->retained)
		dev->gpu.cuDevicePrimaryCtxRelease(dev->device);
	mm_gpu_close(&dev->gpu);
}

bool mm_gpu_has_graphs(const struct mm_gpu_api *gpu)
{
	return gpu->cuStreamBeginCapture && gpu->cuStreamEndCapture &&
	       gpu->cuGraphInstantiateWithFlags && gpu->cuGraphLaunch && gpu->cuGraphExecDestroy &&
	       gpu->cuGraphDestroy;
}

int mm_gpu_time_begin(struct mm_gpu_dev *dev)
{
	return MM_GPU_CALL(dev, cuEventRecord, dev->from, dev->stream);
}

int mm_gpu_time_end(struct mm_gpu_dev *dev, double *ret_s)
{
	float ms = 0;
	int r = MM_GPU_CALL(dev, cuEventRecord, dev->to, dev->stream);

	if (!r)
		r = mm_gpu_call(dev, dev->gpu.cuEventSynchronize(dev->to), "what was measured");
	if (!r)
		r = MM_GPU_CALL(dev, cuEventElapsedTime, &ms, dev->from, dev->to);
	*ret_s = (double)ms / 1e3;
	return r;
}

int mm_gpu_time_calls(struct mm_gpu_dev *dev, int (*enqueue)(void *state, uint32_t i), void *state,
		      uint32_t n, double *ret_s)
{
	int r = mm_gpu_time_begin(dev);

	for (uint32_t i = 0; !r && i < n; i++)
		r = enqueue(state, i);
	if (!r)
		r = mm_gpu_time_end(dev, ret_s);
	*ret_s /= n;
	return r;
}

int mm_gpu_time_copy(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t bytes, double *ret_s)
{
	int r = mm_gpu_time_begin(dev);

	if (!r)
		r = MM_GPU_CALL(dev, cuMemcpyDtoDAsync, va + bytes, va, bytes, dev->stream);
	return r ? r : mm_gpu_time_end(dev, ret_s);
}

/* ---- device memory ---- */

static int map_pages(struct mm_gpu_dev *dev, struct mm_gpu_range *range)
{
	const CUmemAccessDesc access = { .location = dev->prop.location,
					 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	const struct mm_gpu_api *gpu = &dev->gpu;
	int r = 0;

	while (!r && range->mapped * range->page_bytes < range->bytes) {
		const CUdeviceptr va = range->va + range->mapped * range->page_bytes;
		CUmemGenericAllocationHandle handle;

		r = MM_GPU_CALL(dev, cuMemCreate, &handle, range->page_bytes, &dev->prop, 0);
		if (r)
			break;
		r = MM_GPU_CALL(dev, cuMemMap, va, range->page_bytes, 0, handle, 0);
		range->mapped += !r;
		gpu->cuMemRelease(handle);
	}
	return r ? r : MM_GPU_CALL(dev, cuMemSetAccess, range->va, range->bytes, &access, 1);
}

int mm_gpu_range_open(struct mm_gpu_dev *dev, uint64_t bytes, uint64_t page_bytes,
		      struct mm_gpu_range *range)
{
	const uint64_t alignment = page_bytes & (page_bytes - 1) ? 0 : page_bytes;
	int r;

	*range = (struct mm_gpu_range){ .page_bytes = page_bytes };
	if (!page_bytes) {
		range->bytes = bytes;
		return MM_GPU_CALL(dev, cuMemAlloc, &range->va, bytes);
	}
	range->bytes = mm_round_up(bytes, page_bytes);
	r = MM_GPU_CALL(dev, cuMemAddressReserve, &range->va, range->bytes, alignment, 0, 0);
	if (!r)
		r = map_pages(dev, range);
	if (r)
		mm_gpu_range_close(dev, range);
	return r;
}

void mm_gpu_range_close(struct mm_gpu_dev *dev, struct mm_gpu_range *range)
{
	if (range->va && !range->page_bytes)
		dev->gpu.cuMemFree(range->va);
	for (uint32_t i = 0; i < range->mapped; i++)
		dev->gpu.cuMemUnmap(range->va + i * range->page_bytes, range->page_bytes);
	if (range->va && range->page_bytes)
		dev->gpu.cuMemAddressFree(range->va, range->bytes);
	*range = (struct mm_gpu_range){ 0 };
}

int mm_gpu_write(struct mm_gpu_dev *dev, CUdeviceptr va, const void *data, uint64_t bytes)
{
	int r = MM_GPU_CALL(dev, cuMemcpyHtoDAsync, va, data, bytes, dev->stream);

	return r ? r : mm_gpu_call(dev, dev->gpu.cuStreamSynchronize(dev->stream), "a copy");
}

int mm_gpu_range_write(struct mm_gpu_dev *dev, const void *data, uint64_t bytes,
		       struct mm_gpu_range *range)
{
	int r = mm_gpu_range_open(dev, bytes, 0, range);

	return r ? r : mm_gpu_write(dev, range->va, data, bytes);
}

int mm_gpu_warm_up(struct mm_gpu_dev *dev)
{
	const uint64_t until_ns = mm_now_ns() + WARM_UP_NS;
	struct mm_gpu_range range = { 0 };
	int r = 0;

	if (dev->bench->rehearsal)
		return 0;
	r = mm_gpu_range_open(dev, WARM_UP_BYTES, 0, &range);
	if (!r)
		r = mm_gpu_randomize(dev, range.va, range.bytes, false);
	while (!r && mm_now_ns() < until_ns) {
		r = MM_GPU_CALL(dev, cuMemcpyDtoDAsync, range.va + range.bytes / 2, range.va,
				range.bytes / 2, dev->stream);
		if (!r)
			r = mm_gpu_call(dev, dev->gpu.cuStreamSynchronize(dev->stream), "a copy");
	}
	mm_gpu_range_close(dev, &range);
	return r;
}

/* ---- random bytes ---- */

static void make_random(uint64_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		words[i] = mm_random_mix(i);
}

/* Makes words that are finite numbers of both signs below 2, if read as F16, BF16 or F32. */
static void make_numbers(uint32_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		words[i] =
			((uint32_t)mm_random_mix(i) & UINT32_C(0x8fff8fff)) | UINT32_C(0x30003000);
}

int mm_gpu_randomize(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t bytes, bool numbers)
{
	mm_cleanup(mm_free_ptr) uint64_t *words = malloc(RANDOM_BYTES);
	uint64_t n;
	int r = 0;

	if (!words)
		return mm_gpu_fail(dev->bench, -ENOMEM, "out of memory");
	if (numbers)
		make_numbers((uint32_t *)words, RANDOM_BYTES / 4);
	else
		make_random(words, RANDOM_BYTES / 8);
	n = MM_MIN(bytes, RANDOM_BYTES);
	r = mm_gpu_write(dev, va, words, n);
	/* The device doubles the bytes by copies. */
	for (; !r && n < bytes; n = MM_MIN(2 * n, bytes))
		r = MM_GPU_CALL(dev, cuMemcpyDtoDAsync, va + n, va, MM_MIN(n, bytes - n),
				dev->stream);
	return r ? r : mm_gpu_call(dev, dev->gpu.cuStreamSynchronize(dev->stream), "random bytes");
}

int mm_gpu_poison(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t n)
{
	int r = MM_GPU_CALL(dev, cuMemsetD32Async, va, UINT32_MAX, n, dev->stream);

	return r ? r : mm_gpu_call(dev, dev->gpu.cuStreamSynchronize(dev->stream), "a fill");
}

int mm_gpu_check_numbers(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t n)
{
	mm_cleanup(mm_free_ptr) float *numbers = malloc(n * sizeof(*numbers));
	uint64_t zeros = 0;
	int r;

	if (!numbers)
		return mm_gpu_fail(dev->bench, -ENOMEM, "out of memory");
	r = MM_GPU_CALL(dev, cuMemcpyDtoH, numbers, va, n * sizeof(*numbers));
	for (uint64_t i = 0; !r && i < n; i++) {
		if (!isfinite(numbers[i]))
			r = mm_gpu_fail(dev->bench, -EBADMSG,
					"a wrong result: number %" PRIu64 " of %" PRIu64 " is %g",
					i, n, (double)numbers[i]);
		zeros += numbers[i] == 0;
	}
	if (!r && zeros == n)
		r = mm_gpu_fail(dev->bench, -EBADMSG, "a wrong result: all numbers are 0");
	return r;
}

void mm_gpu_shuffle(uint32_t *ret_numbers, uint32_t n)
{
	uint64_t state = 1;

	for (uint32_t i = 0; i < n; i++)
		ret_numbers[i] = i;
	for (uint32_t i = n; i-- > 1;) {
		const uint32_t saved = ret_numbers[i];
		const uint64_t other = mm_random_below(&state, i + 1);

		ret_numbers[i] = ret_numbers[other];
		ret_numbers[other] = saved;
	}
}

/* ---- host memory ---- */

static int device_node(const struct mm_gpu_dev *dev)
{
	int node = -1;

	if (dev->gpu.cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, dev->device))
		return -1;
	return mm_host_node_usable(node) ? node : -1;
}

int mm_gpu_host_open(struct mm_gpu_dev *dev, uint64_t bytes, struct mm_gpu_host *host)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int r;

	*host = (struct mm_gpu_host){ 0 };
	if (base == MAP_FAILED)
		return mm_gpu_fail(dev->bench, -ENOMEM, "%llu bytes of host memory: %m",
				   (unsigned long long)bytes);
	host->base = base;
	host->bytes = bytes;
	/*
	 * mmd is forked while this memory is registered; copy on write could then give this process
	 * other pages than the device has.
	 */
	madvise(base, bytes, MADV_DONTFORK);
	mm_host_prefer(base, bytes, device_node(dev));
	if (!dev->bench->timed)
		make_random(base, bytes / 8);
	r = MM_GPU_CALL(dev, cuMemHostRegister, base, bytes, 0);
	host->registered = !r;
	return r;
}

void mm_gpu_host_close(struct mm_gpu_dev *dev, struct mm_gpu_host *host)
{
	if (host->registered)
		dev->gpu.cuMemHostUnregister(host->base);
	if (host->base)
		munmap(host->base, host->bytes);
	*host = (struct mm_gpu_host){ 0 };
}

int mm_gpu_copy_loop(struct mm_gpu_dev *dev, CUdeviceptr to, const struct mm_gpu_host *from,
		     uint64_t bytes, uint64_t chunk_bytes, double *ret_s)
{
	uint64_t at = 0;
	int r = mm_gpu_time_begin(dev);

	for (uint64_t done = 0; !r && done < bytes;) {
		const uint64_t n = MM_MIN(MM_MIN(chunk_bytes, from->bytes - at), bytes - done);

		r = MM_GPU_CALL(dev, cuMemcpyHtoDAsync, to + at, from->base + at, n, dev->stream);
		done += n;
		at = (at + n) % from->bytes;
	}
	return r ? r : mm_gpu_time_end(dev, ret_s);
}

/* ---- what device it is ---- */

static json_t *device_describe(struct mm_gpu_dev *dev)
{
	const struct mm_gpu_api *gpu = &dev->gpu;
	char name[96] = "", hex[40];
	size_t total = 0, granularity = 0;
	int version = 0;
	CUuuid uuid;

	gpu->cuDeviceGetName(name, sizeof(name), dev->device);
	gpu->cuDriverGetVersion(&version);
	gpu->cuDeviceTotalMem(&total, dev->device);
	gpu->cuMemGetAllocationGranularity(&granularity, &dev->prop,
					   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	memset(&uuid, 0, sizeof(uuid));
	gpu->cuDeviceGetUuid(&uuid, dev->device);
	for (size_t i = 0; i < sizeof(uuid.bytes); i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned char)uuid.bytes[i]);
	return json_pack("{s:s,s:s,s:s,s:i,s:I,s:I,s:b,s:i}", "device", name, "uuid", hex, "driver",
			 dev->bench->opts.driver, "driver_version", version, "memory_bytes",
			 (json_int_t)total, "granularity_bytes", (json_int_t)granularity,
			 "rehearsal", mm_gpu_is_software(gpu), "host_node", device_node(dev));
}

int mm_gpu_device_run(struct mm_gpu_bench *bench)
{
	struct mm_gpu_dev dev;
	int r = mm_gpu_dev_open(&dev, bench);
	json_t *line = r ? NULL : device_describe(&dev);
	char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;

	if (!r && (!text || dprintf(bench->out, "%s\n", text) < 0))
		r = mm_gpu_fail(bench, -ENOMEM, "out of memory");
	free(text);
	json_decref(line);
	mm_gpu_dev_close(&dev);
	return r;
}
