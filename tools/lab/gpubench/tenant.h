/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_tenant - an mmd on the device, and this process as its only tenant
 *
 * Concept:   A group starts an mmd with the page size that it measures, connects to it, and takes
 *            KV or loads a model, through whose layers it then steps.
 * Ownership: mm_gpu_tenant_close() closes the connection and ends mmd; accepts a struct that is
 *            zeroed or half-opened.
 * Threading: one thread.
 * Errors:    negative errno, with the sentence in bench->err.
 */
#pragma once

#include "mm/client.h"
#include "mm/gpu.h"
#include "tools/lab/common/daemon.h"
#include "tools/lab/gpubench/device.h"

#define MM_GPU_TIMEOUT_NS (120 * MM_NS_PER_S) /* for each wait; generous, for a slow host */

struct mm_gpu_tenant {
	struct mm_gpu_dev *dev;
	struct mm_bench_mmd mmd;
	struct mm_client *client;
	struct mm_model *model;
	struct mm_kv *kv;
	uint32_t kv_chunks;   /* chunks that the arena has room for */
	uint64_t free_pages;  /* free pages of mmd, before any were wanted */
	uint64_t page_bytes;  /* page size of mmd */
	uint64_t chunk_bytes; /* size of mmd's copies */
	/* the model */
	uint32_t layers;
	uint64_t layer_bytes; /* bytes that are streamed in for one layer */
};

/**
 * mm_gpu_tenant_open() - start mmd and connect to it
 * @t:          zeroed
 * @dev:        open; borrowed
 * @gpu:        the driver's table for libclient; borrowed
 * @page_bytes: page size of mmd; 0: its own choice
 * @pool_bytes: device memory that mmd manages
 */
int mm_gpu_tenant_open(struct mm_gpu_tenant *t, struct mm_gpu_dev *dev,
		       const struct mm_gpu_api *gpu, uint64_t page_bytes, uint64_t pool_bytes);

/* Starts an mmd whose tenants are other programs. */
int mm_gpu_daemon_start(struct mm_gpu_bench *bench, struct mm_bench_mmd *mmd, uint64_t page_bytes,
			uint64_t pool_bytes);

/* Returns the size of the weights. */
uint64_t mm_gpu_shape_bytes(const struct mm_gpu_shape *shape);

/* Finds a model's folder, and makes the model unless an earlier group did. @ret_dir: PATH_MAX */
int mm_gpu_model(struct mm_gpu_bench *bench, const struct mm_gpu_shape *shape, const char *name,
		 char *ret_dir);

/* Opens a tenant whose mmd has room for the model whose layers cycle, and loads that model. */
int mm_gpu_tenant_start(struct mm_gpu_tenant *t, struct mm_gpu_dev *dev, uint64_t page_bytes);

/* Opens an arena with room for @chunks chunks of one page each. */
int mm_gpu_tenant_kv(struct mm_gpu_tenant *t, uint32_t chunks);

/* Releases all chunks, and waits until mmd has scrubbed them. */
int mm_gpu_tenant_return(struct mm_gpu_tenant *t);

/* Sets a plan and waits until it is in force; see mm_bench_mmd_set_plan(). */
int mm_gpu_tenant_plan(struct mm_gpu_tenant *t, uint32_t alpha, uint32_t beta,
		       struct mm_plan_set *ret_set);

/*
 * Writes into bench->err how mmd ended, if it did; else libclient's text about its last failed
 * call. Return: negative errno.
 */
int mm_gpu_tenant_fail(struct mm_gpu_tenant *t, int error, const char *what);

void mm_gpu_tenant_close(struct mm_gpu_tenant *t);
