/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_engine - kernels of known duration, and steps through the layers of a tenant's model
 *
 * Concept:   A load is a kernel that adds one long array to another and is bound by memory; it is
 *            launched as often as a given duration needs. A step opens the gate of each layer,
 *            computes the load, and closes the gate. The time of a step is device time, from the
 *            end of the previous step to its own end.
 * Ownership: a close function accepts a struct that is zeroed or half-opened.
 * Threading: one thread.
 * Errors:    negative errno, with the sentence in bench->err; -EOPNOTSUPP there is no module of
 *            kernels.
 */
#pragma once

#include "kernels/blas/backend.h"
#include "kernels/launch/launch.h"
#include "tools/lab/gpubench/tenant.h"

struct mm_gpu_module {
	struct mm_gpu_dev *dev;
	CUmodule module;
	CUfunction function[MM_KERNEL_COUNT]; /* looked up when first launched */
	enum mm_gemm_kind gemm;
};

int mm_gpu_module_open(struct mm_gpu_module *m, struct mm_gpu_dev *dev);
void mm_gpu_module_close(struct mm_gpu_module *m);

/* Launches a kernel on dev->stream. @args: the struct of the kernel's arguments. */
int mm_gpu_launch(struct mm_gpu_module *m, enum mm_kernel kernel, const void *args);

/* A device and its kernels: what the state of most groups begins with. */
struct mm_gpu_bed {
	struct mm_gpu_dev dev;
	struct mm_gpu_module module;
};

int mm_gpu_bed_open(struct mm_gpu_bed *bed, struct mm_gpu_bench *bench);
void mm_gpu_bed_close(struct mm_gpu_bed *bed);

struct mm_gpu_load {
	struct mm_gpu_module *module;
	struct mm_gpu_range x, y;
	uint64_t n;       /* elements */
	double launch_s;  /* device time of one launch */
	uint32_t repeats; /* launches in each run */
};

/* Opens a load on arrays of @bytes in pages of @page_bytes; 0: from cuMemAlloc(). */
int mm_gpu_load_open(struct mm_gpu_load *load, struct mm_gpu_module *module, uint64_t bytes,
		     uint64_t page_bytes);
int mm_gpu_load_run(struct mm_gpu_load *load);
/* @ret_s: device time of one launch, the mean of @launches in a row. */
int mm_gpu_load_time(struct mm_gpu_load *load, uint32_t launches, double *ret_s);
void mm_gpu_load_close(struct mm_gpu_load *load);

struct mm_gpu_engine {
	struct mm_gpu_tenant *tenant;
	struct mm_gpu_load *load; /* computed in each layer; NULL: nothing is computed */
	bool captured;            /* steps replay one graph, under each plan */
	CUgraphExec graph;
	CUevent ends[2]; /* ends of the last two steps */
	uint64_t steps;
};

int mm_gpu_engine_open(struct mm_gpu_engine *e, struct mm_gpu_tenant *tenant);

/* Drops the graph, because the load has changed. The next step that needs one captures it anew. */
void mm_gpu_engine_drop_graph(struct mm_gpu_engine *e);

/* Runs a step. @ret_s: device time since the end of the previous step; 0 for the first one. */
int mm_gpu_engine_step(struct mm_gpu_engine *e, double *ret_s);

void mm_gpu_engine_close(struct mm_gpu_engine *e);
