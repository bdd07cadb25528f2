/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_device - the device as a part of `mmbench gpu` uses it itself
 *
 * Concept:   context, stream, timing events, memory, without mmd: what references are made of.
 * Ownership: each thing is opened into the caller's struct and closed by it; closing accepts zeroed
 *            and half-opened ones.
 * Errors:    negative errno, the sentence in bench->err.
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

/* 0, or what the driver said of @what. */
int mm_gpu_call(const struct mm_gpu_dev *dev, CUresult result, const char *what);

/* Can work be captured into graphs? */
bool mm_gpu_has_graphs(const struct mm_gpu_api *gpu);

/* Device time on dev->stream between the two. mm_gpu_time_end() waits. */
int mm_gpu_time_begin(struct mm_gpu_dev *dev);
int mm_gpu_time_end(struct mm_gpu_dev *dev, double *ret_s);

/* Work for some tenths of a second: a device that was idle runs slower. Nothing in a rehearsal. */
int mm_gpu_warm_up(struct mm_gpu_dev *dev);

/* Addresses with pages of our own behind them. */
struct mm_gpu_range {
	CUdeviceptr va;
	uint64_t bytes, page_bytes;
	uint32_t mapped;
};

/**
 * mm_gpu_range_open() - reserve, and map pages made for it
 * @bytes:      rounded up to whole pages
 * @page_bytes: of a handle; 0: one cuMemAlloc() instead
 */
int mm_gpu_range_open(struct mm_gpu_dev *dev, uint64_t bytes, uint64_t page_bytes,
		      struct mm_gpu_range *range);
void mm_gpu_range_close(struct mm_gpu_dev *dev, struct mm_gpu_range *range);

/* Random bytes, or small random numbers, everywhere in it. */
int mm_gpu_randomize(struct mm_gpu_dev *dev, CUdeviceptr va, uint64_t bytes, bool numbers);

/* 0 to n - 1, each once, in an order that is random and always the same. */
void mm_gpu_shuffle(uint32_t *ret_numbers, uint32_t n);

/* Host memory that is there, random, registered, and on the device's side of the machine. */
struct mm_gpu_host {
	char *base;
	uint64_t bytes;
	bool registered;
};

int mm_gpu_host_open(struct mm_gpu_dev *dev, uint64_t bytes, struct mm_gpu_host *host);
void mm_gpu_host_close(struct mm_gpu_dev *dev, struct mm_gpu_host *host);

/**
 * mm_gpu_copy_loop() - a bare loop of cuMemcpyHtoDAsync()
 * @to:          as many bytes as @from has
 * @bytes:       in all, round and round
 * @chunk_bytes: of each copy
 * @ret_s:       device time
 */
int mm_gpu_copy_loop(struct mm_gpu_dev *dev, CUdeviceptr to, const struct mm_gpu_host *from,
		     uint64_t bytes, uint64_t chunk_bytes, double *ret_s);

/* The part that says what device there is. */
int mm_gpu_device_run(struct mm_gpu_bench *bench);
