/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/gpubench/engine.h"

#include <errno.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "tools/mmserve/engine/module.h"

#define VOID_MAX 8u /* a plan change voids a step at most once */

/* ---- kernels ---- */

int mm_gpu_module_open(struct mm_gpu_module *m, struct mm_gpu_dev *dev)
{
	const struct mm_serve_options which = { .kernels = dev->bench->opts.kernels };
	char path[PATH_MAX];
	int r;

	*m = (struct mm_gpu_module){ .dev = dev };
	r = mm_serve_module(&which, &dev->gpu, path, &m->gemm, dev->bench->err);
	if (r)
		return r == -ENOENT ? -EOPNOTSUPP : r;
	r = mm_gpu_load_module(&dev->gpu, path, &m->module, dev->bench->err,
			       sizeof(dev->bench->err));
	return r ? r : mm_gpu_warm_up(dev);
}

/* Looks a kernel's function up, when the kernel is first launched. */
static int kernel_resolve(struct mm_gpu_module *m, enum mm_kernel kernel)
{
	const struct mm_gpu_api *gpu = &m->dev->gpu;
	const CUresult r =
		mm_gpu_kernel(gpu, m->module, mm_kernel_name(kernel), &m->function[kernel]);

	if (r == CUDA_ERROR_NOT_FOUND)
		return mm_gpu_fail(m->dev->bench, -EOPNOTSUPP, "the module has no %s",
				   mm_kernel_name(kernel));
	return mm_gpu_call(m->dev, r, mm_kernel_name(kernel));
}

void mm_gpu_module_close(struct mm_gpu_module *m)
{
	if (m->module)
		m->dev->gpu.cuModuleUnload(m->module);
	*m = (struct mm_gpu_module){ 0 };
}

int mm_gpu_bed_open(struct mm_gpu_bed *bed, struct mm_gpu_bench *bench)
{
	int r = mm_gpu_dev_open(&bed->dev, bench);

	return r ? r : mm_gpu_module_open(&bed->module, &bed->dev);
}

void mm_gpu_bed_close(struct mm_gpu_bed *bed)
{
	mm_gpu_module_close(&bed->module);
	mm_gpu_dev_close(&bed->dev);
}

int mm_gpu_launch(struct mm_gpu_module *m, enum mm_kernel kernel, const void *args)
{
	const struct mm_gpu_api *gpu = &m->dev->gpu;
	void *params[] = { (void *)args };
	struct mm_launch_shape s;
	int r = m->function[kernel] ? 0 : kernel_resolve(m, kernel);

	if (r)
		return r;
	mm_launch_shape(kernel, args, &s);
	return mm_gpu_call(m->dev,
			   gpu->cuLaunchKernel(m->function[kernel], s.grid[0], s.grid[1], s.grid[2],
					       s.block[0], s.block[1], s.block[2], s.shared_bytes,
					       m->dev->stream, params, NULL),
			   mm_kernel_name(kernel));
}

/* ---- what computes for a known time ---- */

int mm_gpu_load_open(struct mm_gpu_load *load, struct mm_gpu_module *module, uint64_t bytes,
		     uint64_t page_bytes)
{
	struct mm_gpu_dev *dev = module->dev;
	int r;

	*load = (struct mm_gpu_load){ .module = module, .n = bytes / sizeof(float), .repeats = 1 };
	r = mm_gpu_range_open(dev, bytes, page_bytes, &load->x);
	if (!r)
		r = mm_gpu_range_open(dev, bytes, page_bytes, &load->y);
	if (!r)
		r = mm_gpu_randomize(dev, load->x.va, bytes, true);
	if (!r)
		r = mm_gpu_randomize(dev, load->y.va, bytes, true);
	if (!r) /* the first launch also loads the kernel's code */
		r = mm_gpu_load_time(load, 2, &load->launch_s);
	return r ? r : mm_gpu_load_time(load, 8, &load->launch_s);
}

static int load_launch(void *state, uint32_t i)
{
	const struct mm_gpu_load *load = state;
	const struct mm_add_args args = { .x_va = load->x.va, .y_va = load->y.va, .n = load->n };

	(void)i;
	return mm_gpu_launch(load->module, MM_KERNEL_ADD, &args);
}

int mm_gpu_load_run(struct mm_gpu_load *load)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < load->repeats; i++)
		r = load_launch(load, i);
	return r;
}

int mm_gpu_load_time(struct mm_gpu_load *load, uint32_t launches, double *ret_s)
{
	return mm_gpu_time_calls(load->module->dev, load_launch, load, launches, ret_s);
}

void mm_gpu_load_close(struct mm_gpu_load *load)
{
	if (!load->module)
		return;
	mm_gpu_range_close(load->module->dev, &load->x);
	mm_gpu_range_close(load->module->dev, &load->y);
	*load = (struct mm_gpu_load){ 0 };
}

/* ---- steps ---- */

int mm_gpu_engine_open(struct mm_gpu_engine *e, struct mm_gpu_tenant *tenant)
{
	struct mm_gpu_dev *dev = tenant->dev;
	int r = 0;

	*e = (struct mm_gpu_engine){ .tenant = tenant };
	for (size_t i = 0; !r && i < MM_ARRAY_SIZE(e->ends); i++)
		r = MM_GPU_CALL(dev, cuEventCreate, &e->ends[i], CU_EVENT_DEFAULT);
	return r;
}

void mm_gpu_engine_drop_graph(struct mm_gpu_engine *e)
{
	if (e->graph)
		e->tenant->dev->gpu.cuGraphExecDestroy(e->graph);
	e->graph = NULL;
}

void mm_gpu_engine_close(struct mm_gpu_engine *e)
{
	mm_gpu_engine_drop_graph(e);
	for (size_t i = 0; i < MM_ARRAY_SIZE(e->ends); i++)
		if (e->ends[i])
			e->tenant->dev->gpu.cuEventDestroy(e->ends[i]);
	*e = (struct mm_gpu_engine){ 0 };
}

static int layer_enqueue(struct mm_gpu_engine *e, uint32_t index)
{
	struct mm_gpu_tenant *t = e->tenant;
	int r = mm_layer_begin(t->model, index, t->dev->stream);

	if (r)
		return mm_gpu_tenant_fail(t, r, "a layer's gate");
	r = e->load ? mm_gpu_load_run(e->load) : 0;
	if (r)
		return r;
	r = mm_layer_end(t->model, index, t->dev->stream);
	return r ? mm_gpu_tenant_fail(t, r, "a layer's gate") : 0;
}

static int layers_enqueue(struct mm_gpu_engine *e)
{
	int r = 0;

	for (uint32_t i = 0; !r && i < e->tenant->layers; i++)
		r = layer_enqueue(e, i);
	return r;
}

static int engine_capture_step(struct mm_gpu_engine *e)
{
	struct mm_gpu_tenant *t = e->tenant;
	struct mm_gpu_dev *dev = t->dev;
	CUgraph graph = NULL;
	int r = mm_step_capture(t->client, NULL), end;

	if (r)
		return mm_gpu_tenant_fail(t, r, "a capture");
	r = MM_GPU_CALL(dev, cuStreamBeginCapture, dev->stream,
			CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	if (r)
		return r;
	r = layers_enqueue(e);
	end = MM_GPU_CALL(dev, cuStreamEndCapture, dev->stream, &graph);
	r = r ? r : end;
	if (!r)
		r = MM_GPU_CALL(dev, cuGraphInstantiateWithFlags, &e->graph, graph, 0);
	if (graph)
		dev->gpu.cuGraphDestroy(graph);
	return r;
}

static int engine_replay_step(struct mm_gpu_engine *e)
{
	struct mm_gpu_tenant *t = e->tenant;
	int r = e->graph ? 0 : engine_capture_step(e);

	if (r)
		return r;
	r = mm_step_replay(t->client, NULL);
	if (r)
		return mm_gpu_tenant_fail(t, r, "a replay");
	return MM_GPU_CALL(t->dev, cuGraphLaunch, e->graph, t->dev->stream);
}

/* Computes one step. Return: as mm_step_end(); -ECANCELED: the step must be run again. */
static int engine_compute_step(struct mm_gpu_engine *e, CUevent end)
{
	struct mm_gpu_tenant *t = e->tenant;
	int r = mm_step_begin(t->client);

	if (r)
		return mm_gpu_tenant_fail(t, r, "a step");
	r = e->captured ? engine_replay_step(e) : layers_enqueue(e);
	if (!r)
		r = MM_GPU_CALL(t->dev, cuEventRecord, end, t->dev->stream);
	if (r) {
		mm_step_abandon(t->client, t->dev->stream);
		return r;
	}
	r = mm_step_end(t->client, t->dev->stream, NULL);
	return r ? mm_gpu_tenant_fail(t, r, "a step") : 0;
}

int mm_gpu_engine_step(struct mm_gpu_engine *e, double *ret_s)
{
	const CUevent end = e->ends[e->steps % 2], before = e->ends[(e->steps + 1) % 2];
	struct mm_gpu_dev *dev = e->tenant->dev;
	uint32_t tries = 0;
	float ms = 0;
	int r;

	do
		r = engine_compute_step(e, end);
	while (r == -ECANCELED && ++tries < VOID_MAX);
	if (!r && e->steps++)
		r = mm_gpu_call(dev, dev->gpu.cuEventElapsedTime(&ms, before, end),
				"the time of a step");
	*ret_s = (double)ms / 1e3;
	return r ? r : mm_bench_mmd_pause(&e->tenant->mmd, 0, dev->bench->err);
}
