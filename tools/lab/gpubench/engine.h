/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_engine - kernels of known duration, and steps through the layers of a tenant's model
 *
 * Concept:   a load is a kernel that adds one long array to another, bound by memory, launched so
 *            often that it takes what was asked for. A step opens the gate of each layer, computes
 *            the load, closes it. Its time is the device's, from the end of the step before to its
 *            own.
 * Ownership: closing accepts zeroed and half-opened ones.
 * Errors:    negative errno, the sentence in bench->err; -EOPNOTSUPP there is no module of kernels.
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

/* On dev->stream. @args: the kernel's struct; @bytes of it. */
int mm_gpu_launch(struct mm_gpu_module *m, enum mm_kernel kernel, const void *args);

struct mm_gpu_load {
	struct mm_gpu_module *module;
	struct mm_gpu_range x, y;
	uint64_t n;       /* elements */
	double launch_s;  /* of one launch */
	uint32_t repeats; /* for what was asked */
};

/* Memory of @page_bytes pages, 0: cuMemAlloc(). */
int mm_gpu_load_open(struct mm_gpu_load *load, struct mm_gpu_module *module, uint64_t bytes,
		     uint64_t page_bytes);
int mm_gpu_load_run(struct mm_gpu_load *load);
/* @ret_s: device time of one launch, the mean of so many in a row. */
int mm_gpu_load_time(struct mm_gpu_load *load, uint32_t launches, double *ret_s);
void mm_gpu_load_close(struct mm_gpu_load *load);

struct mm_gpu_engine {
	struct mm_gpu_tenant *tenant;
	struct mm_gpu_load *load; /* NULL: nothing is computed */
	bool captured;            /* steps are replays of one graph, under whatever plan */
	CUgraphExec graph;
	CUevent ends[2]; /* of the last steps */
	uint64_t steps;
};

int mm_gpu_engine_open(struct mm_gpu_engine *e, struct mm_gpu_tenant *tenant);

/* The load has changed: a graph is captured anew with the next step that needs one. */
void mm_gpu_engine_drop_graph(struct mm_gpu_engine *e);

/* @ret_s: since the end of the step before, device time; 0 for the first. */
int mm_gpu_engine_step(struct mm_gpu_engine *e, double *ret_s);

/**
 * mm_gpu_engine_steps() - time so many, after some that do not count
 * @series: gets each; of two steps one after the other the mean, as every second one differs with
 *          two slots and an odd number of layers that cycle
 */
int mm_gpu_engine_steps(struct mm_gpu_engine *e, uint32_t steps, struct mm_series *series);

void mm_gpu_engine_close(struct mm_gpu_engine *e);

/* The results of `stream`, with the page size of @tenant's mmd: for `pages`, too. */
int mm_gpu_stream_pages(struct mm_gpu_tenant *tenant, const struct mm_gpu_host *host);
