/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_device - the device as groups of measurements use it without mmd
 *
 * Concept:   Context, stream, timing events and memory, from which references are measured.
 * Ownership: each open function fills a struct of the caller, who closes it; a close function
 *            accepts a struct that is zeroed or half-opened.
 * Threading: one thread.
 * Errors:    negative errno, with the sentence in bench->err.
 */
#pragma once

#include "mm/gpu.h"
#include "tools/lab/gpubench/gpubench.h"

struct mm_gpu_dev {
	struct mm_gpu_bench *bench;
	struct mm_gpu_api gpu;
	CUdevice device;
	bool retained;
	CUstream stream;
	CUevent from, to;
	CUmemAllocationProp prop; /* of pages that can be passed on */
};

int mm_gpu_dev_open(struct mm_gpu_dev *dev, struct mm_gpu_bench *bench);
void mm_gpu_dev_close(struct mm_gpu_dev *dev);

/* Reports a failed driver call in bench->err, as failure of @what. Return: 0; negative errno. */
int mm_gpu_call(const struct mm_gpu_dev *dev, CUresult result, const char *what);

/* Calls a function of the driver, and reports its failure under its name. Return: as above. */
#define MM_GPU_CALL(dev, function, ...) \
	mm_gpu_call(dev, (dev)->gpu.function(__VA_ARGS__), #function)

/* Does the driver have the functions that capture work into graphs? */
bool mm_gpu_has_graphs(const struct mm_gpu_api *gpu);

/* Measure the device time on dev->stream between the two calls. mm_gpu_time_end() waits. */
int mm_gpu_time_begin(struct mm_gpu_dev *dev);
int mm_gpu_time_end(struct mm_gpu_dev *dev, double *ret_s);

/* Times @n calls of @enqueue(state, i) in a row, i from 0. @ret_s: mean device time of one. */
int mm_gpu_time_calls(struct mm_gpu_dev *dev, int (*enqueue)(void *state, uint32_t i), void *state,
		      uint32_t n, double *ret_s);

/* Times a copy of @bytes from @va to the memory behind them. @ret_s: device time. */
int mm_gpu_time_copy(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t bytes, double *ret_s);

/*
 * Keeps the device busy for some tenths of a second, because a device that was idle runs slower at
 * first. Does nothing in a rehearsal.
 */
int mm_gpu_warm_up(struct mm_gpu_dev *dev);

/* An address range that is mapped to pages which this process created. */
struct mm_gpu_range {
	CUdeviceptr va;
	uint64_t bytes, page_bytes;
	uint32_t mapped;
};

/**
 * mm_gpu_range_open() - reserve addresses, and create and map pages for them
 * @bytes:      rounded up to whole pages
 * @page_bytes: size of each handle; 0: one cuMemAlloc() instead
 */
int mm_gpu_range_open(struct mm_gpu_dev *dev, uint64_t bytes, uint64_t page_bytes,
		      struct mm_gpu_range *range);
void mm_gpu_range_close(struct mm_gpu_dev *dev, struct mm_gpu_range *range);

/* Returns when the device has the bytes, for work in whatever stream. */
int mm_gpu_write(struct mm_gpu_dev *dev, CUdeviceptr va, const void *data, uint64_t bytes);

/* Opens a range by cuMemAlloc() and writes @bytes from @data to it. */
int mm_gpu_range_write(struct mm_gpu_dev *dev, const void *data, uint64_t bytes,
		       struct mm_gpu_range *range);

/* Fills device memory with random bytes, or with small random numbers. */
int mm_gpu_randomize(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t bytes, bool numbers);

/*
 * Checks that the @n numbers at @va are finite, and not all of them 0. mm_gpu_poison() writes
 * numbers that are not finite there, so that a result that was not written is found.
 */
int mm_gpu_check_numbers(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t n);
int mm_gpu_poison(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t n);

/* Writes 0 to n - 1, each once, in a random order that is the same in each run. */
void mm_gpu_shuffle(uint32_t *ret_numbers, uint32_t n);

/* Host memory that is populated, random, registered, and on the NUMA node of the device. */
struct mm_gpu_host {
	char *base;
	uint64_t bytes;
	bool registered;
};

int mm_gpu_host_open(struct mm_gpu_dev *dev, uint64_t bytes, struct mm_gpu_host *host);
void mm_gpu_host_close(struct mm_gpu_dev *dev, struct mm_gpu_host *host);

/**
 * mm_gpu_copy_loop() - time a bare loop of cuMemcpyHtoDAsync()
 * @to:          has room for as many bytes as @from has
 * @bytes:       to copy in all; @from is copied again and again
 * @chunk_bytes: size of each copy
 * @ret_s:       device time
 */
int mm_gpu_copy_loop(struct mm_gpu_dev *dev, CUdeviceptr to, const struct mm_gpu_host *from,
		     uint64_t bytes, uint64_t chunk_bytes, double *ret_s);

/* Sends a line that describes the device to the parent. */
int mm_gpu_device_run(struct mm_gpu_bench *bench);
