/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_tenant - an mmd on the device, and this process as its only tenant
 *
 * Concept:   a part starts an mmd with the page size that it measures, connects to it, and takes KV
 *            or loads a model whose layers it then steps through.
 * Ownership: mm_gpu_tenant_close() ends both; accepts zeroed and half-opened ones.
 * Errors:    negative errno, the sentence in bench->err.
 */
#pragma once

#include "mm/client.h"
#include "mm/gpu.h"
#include "tools/lab/common/daemon.h"
#include "tools/lab/gpubench/device.h"

#define MM_GPU_TIMEOUT_NS (120 * MM_NS_PER_S) /* of anything; generous: a slow host */

struct mm_gpu_tenant {
	struct mm_gpu_dev *dev;
	struct mm_bench_mmd mmd;
	struct mm_client *client;
	struct mm_model *model;
	struct mm_kv *kv;
	uint32_t kv_chunks;               /* that there is room for */
	uint64_t free_pages;              /* of mmd, when none was wanted yet */
	uint64_t page_bytes, chunk_bytes; /* of mmd, of its copies */
	/* of the model */
	uint32_t layers;
	uint64_t layer_bytes; /* that come in when a layer does */
};

/**
 * mm_gpu_tenant_open() - start mmd, connect
 * @t:          zeroed
 * @dev:        open; borrowed
 * @gpu:        the driver's table for libclient; borrowed
 * @page_bytes: 0: mmd's own choice
 * @pool_bytes: to manage
 */
int mm_gpu_tenant_open(struct mm_gpu_tenant *t, struct mm_gpu_dev *dev,
		       const struct mm_gpu_api *gpu, uint64_t page_bytes, uint64_t pool_bytes);

/* An mmd without us as a tenant: for those that are programs of their own. */
int mm_gpu_daemon_start(struct mm_gpu_bench *bench, struct mm_bench_mmd *mmd, uint64_t page_bytes,
			uint64_t pool_bytes);

/* Of the weights. */
uint64_t mm_gpu_shape_bytes(const struct mm_gpu_shape *shape);

/* A model's folder, made if no part did before. @ret_dir: PATH_MAX */
int mm_gpu_model(struct mm_gpu_bench *bench, const struct mm_gpu_shape *shape, const char *name,
		 char *ret_dir);

/* Bytes for an mmd to manage: the cycling model's weights twice, and sizes.pool_bytes. */
uint64_t mm_gpu_tenant_pool(const struct mm_gpu_bench *bench);

/* Load the model whose layers cycle. */
int mm_gpu_tenant_load(struct mm_gpu_tenant *t);

/* An arena with room for so many chunks of a page each. */
int mm_gpu_tenant_kv(struct mm_gpu_tenant *t, uint32_t chunks);

/* Give all chunks back, and wait until mmd has them clean. */
int mm_gpu_tenant_return(struct mm_gpu_tenant *t);

/* So many layers away, in force; see mm_bench_mmd_set_plan(). */
int mm_gpu_tenant_plan(struct mm_gpu_tenant *t, uint32_t alpha, uint32_t beta,
		       struct mm_plan_set *ret_set);

/* That mmd ended, where that is why; else what libclient says of its last failed call. */
int mm_gpu_tenant_fail(struct mm_gpu_tenant *t, int error, const char *what);

void mm_gpu_tenant_close(struct mm_gpu_tenant *t);
