/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the step costs of tools/lab/stepcost with the kernels that mmserve's forward pass
 * launches: a fake driver takes the launches and sums up the costs from the host kernels' table.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/host/kernel.h"
#include "tools/mmserve/engine/forward.h"
#include "tools/lab/stepcost/stepcost.h"

#define MAX_TOKENS   1024u
#define MAX_ROWS     16u
#define BLOCK_TOKENS 16u
#define LAYERS       3u

enum part { BEFORE, LAYER, AFTER = LAYER + LAYERS, PARTS };

static struct {
	const struct mm_host_kernel *table;
	struct mm_profile profile;
	uint32_t layer;  /* the one that is open, or MM_ANY_LAYER */
	uint32_t opened; /* so far */
	uint64_t ns[PARTS];
	uint32_t launches[PARTS];
} seen;

/* ---- a driver that only listens ---- */

static CUresult module_load(CUmodule *module, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		fail_msg("%s", dlerror());
	seen.table = dlsym(lib, MM_HOST_KERNELS_SYMBOL);
	assert_non_null(seen.table);
	*module = lib;
	return CUDA_SUCCESS;
}

static CUresult module_unload(CUmodule module)
{
	dlclose((void *)module);
	return CUDA_SUCCESS;
}

static CUresult get_function(CUfunction *function, CUmodule module, const char *name)
{
	const struct mm_host_kernel *k = seen.table;

	(void)module;
	while (k->name && strcmp(k->name, name))
		k++;
	assert_non_null(k->name);
	*function = (CUfunction)(uintptr_t)k;
	return CUDA_SUCCESS;
}

static enum part part_now(void)
{
	if (seen.layer != MM_ANY_LAYER)
		return (enum part)(LAYER + seen.layer);
	return seen.opened ? AFTER : BEFORE;
}

static CUresult fake_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y,
			    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
			    unsigned int block_z, unsigned int shared_bytes, CUstream stream,
			    void **params, void **extra)
{
	const struct mm_host_kernel *k = (const struct mm_host_kernel *)(uintptr_t)function;
	const struct mm_host_launch l = { { grid_x, grid_y, grid_z },
					  { block_x, block_y, block_z },
					  shared_bytes };
	struct mm_cost cost = { 0 };

	(void)stream;
	(void)extra;
	assert_non_null(k->cost);
	k->cost(&l, params, &cost);
	seen.ns[part_now()] += mm_cost_ns(&seen.profile, &cost);
	seen.launches[part_now()]++;
	return CUDA_SUCCESS;
}

static CUresult mem_alloc(CUdeviceptr *va, size_t bytes)
{
	*va = (CUdeviceptr)(uintptr_t)calloc(1, bytes);
	return *va ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult mem_free(CUdeviceptr va)
{
	free((void *)(uintptr_t)va);
	return CUDA_SUCCESS;
}

static CUresult host_alloc(void **at, size_t bytes, unsigned int flags)
{
	(void)flags;
	*at = calloc(1, bytes);
	return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult host_free(void *at)
{
	free(at);
	return CUDA_SUCCESS;
}

static CUresult nothing_to_wait_for(void)
{
	return CUDA_SUCCESS;
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t bytes)
{
	memcpy((void *)(uintptr_t)to, from, bytes);
	return CUDA_SUCCESS;
}

static CUresult to_device_async(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	(void)stream;
	return to_device(to, from, bytes);
}

static CUresult from_device_async(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	(void)to;
	(void)from;
	(void)bytes;
	(void)stream;
	return CUDA_SUCCESS;
}

static CUresult fill_async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream)
{
	(void)stream;
	for (size_t i = 0; i < n; i++)
		memcpy((char *)(uintptr_t)to + i * sizeof(value), &value, sizeof(value));
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned int flags)
{
	(void)flags;
	*stream = NULL;
	return CUDA_SUCCESS;
}

static const struct mm_gpu_api listener = {
	.cuModuleLoad = module_load,
	.cuModuleUnload = module_unload,
	.cuModuleGetFunction = get_function,
	.cuLaunchKernel = fake_launch,
	.cuMemAlloc = mem_alloc,
	.cuMemFree = mem_free,
	.cuMemHostAlloc = host_alloc,
	.cuMemFreeHost = host_free,
	.cuCtxSynchronize = nothing_to_wait_for,
	.cuMemcpyHtoD = to_device,
	.cuMemcpyHtoDAsync = to_device_async,
	.cuMemcpyDtoHAsync = from_device_async,
	.cuMemsetD32Async = fill_async,
	.cuStreamCreate = stream_create,
};

static int layer_begin(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	(void)m;
	(void)stream;
	seen.layer = layer;
	seen.opened++;
	return 0;
}

static int layer_end(struct mm_memory *m, uint32_t layer, CUstream stream)
{
	(void)m;
	(void)stream;
	assert_int_equal(layer, seen.layer);
	seen.layer = MM_ANY_LAYER;
	return 0;
}

static const struct mm_memory_ops memory_ops = { .layer_begin = layer_begin,
						 .layer_end = layer_end };

/* ---- models and batches ---- */

struct chunk { /* of a sequence in a step */
	uint32_t first, tokens;
	bool sampled;
};

static const struct {
	const char *name;
	struct chunk chunks[MAX_ROWS]; /* until one has no tokens */
} batches[] = {
	{ "one token", { { 0, 1, true } } },
	{ "decode", { { 17, 1, true }, { 900, 1, true }, { 63, 1, true }, { 64, 1, true } } },
	{ "whole prompt", { { 0, 777, true } } },
	{ "two prompts", { { 0, 64, true }, { 0, 65, true } } },
	{ "part of a prompt", { { 512, 200, false } } },
	{ "mixed", { { 5, 1, true }, { 300, 129, false }, { 128, 1, true }, { 0, 400, true } } },
	/*
	 * The last of one sequence's positions is followed by the next one's first: still two
	 * chunks.
	 */
	{ "neighbours", { { 0, 100, true }, { 100, 30, true }, { 130, 1, true } } },
};

static const struct {
	const char *name;
	struct mm_arch arch;
} models[] = {
	{ "OPT-13B",
	  { .family = MM_FAMILY_OPT,
	    .hidden = 5120,
	    .heads = 40,
	    .ffn = 20480,
	    .vocab = 50272,
	    .max_position = 2048,
	    .tied = true } },
	{ "OPT-350M",
	  { .family = MM_FAMILY_OPT,
	    .hidden = 1024,
	    .heads = 16,
	    .ffn = 4096,
	    .vocab = 50272,
	    .max_position = 2048,
	    .embed_dim = 512,
	    .post_norm = true,
	    .tied = true } },
	{ "Llama-3-8B",
	  { .family = MM_FAMILY_LLAMA,
	    .hidden = 4096,
	    .heads = 32,
	    .kv_heads = 8,
	    .ffn = 14336,
	    .vocab = 128256,
	    .max_position = 8192 } },
	{ "Qwen2.5-14B",
	  { .family = MM_FAMILY_QWEN2,
	    .hidden = 5120,
	    .heads = 40,
	    .kv_heads = 8,
	    .ffn = 13824,
	    .vocab = 152064,
	    .max_position = 32768 } },
};

static void batch_fill(struct mm_batch *b, const struct chunk *chunks, struct mm_step_batch *ret)
{
	*ret = (struct mm_step_batch){ 0 };
	b->n_tokens = b->n_samples = 0;
	for (uint32_t row = 0; row < MAX_ROWS && chunks[row].tokens; row++) {
		const struct chunk *c = &chunks[row];

		for (uint32_t i = 0; i < c->tokens; i++) {
			b->positions[b->n_tokens] = c->first + i;
			b->rows[b->n_tokens++] = row;
		}
		if (c->sampled)
			b->samples[b->n_samples++] = b->n_tokens - 1;
		mm_step_batch_add(ret, c->first, c->tokens, c->sampled);
	}
	assert_int_equal(ret->tokens, b->n_tokens);
	assert_int_equal(ret->samples, b->n_samples);
}

/* A model whose weights have addresses, which nobody follows. */
static void weights_bind(struct mm_weights *w, const struct mm_arch *arch, bool fused)
{
	*w = (struct mm_weights){ .arch = *arch, .fused = fused };
	w->arch.layers = LAYERS;
	mm_arch_fill(&w->arch);
	w->all = calloc((size_t)LAYERS * MM_W_COUNT, sizeof(*w->all));
	assert_non_null(w->all);
	for (uint32_t i = 0; i < LAYERS * MM_W_COUNT; i++)
		if (mm_arch_has(&w->arch, i % MM_W_COUNT))
			w->all[i] = (struct mm_bound){ .va = 4096, .dtype = MM_DTYPE_F16 };
	if (w->arch.tied)
		w->all[MM_W_HEAD] = w->all[MM_W_EMBED];
}

static void is_near(const char *model, const char *batch, enum part part, uint64_t want)
{
	const uint64_t got = seen.ns[part];
	const uint64_t off = got > want ? got - want : want - got;

	/* Each kernel's time is rounded to a nanosecond. */
	if (off > seen.launches[part])
		fail_msg("%s, %s, part %d: stepcost says %lu ns, the launches %lu ns", model, batch,
			 part, want, got);
}

static void step_check(struct mm_forward *f, const struct mm_step_model *m, const char *name,
		       size_t i)
{
	struct mm_step_batch batch;
	struct mm_step_ns ns;

	memset(seen.ns, 0, sizeof(seen.ns));
	memset(seen.launches, 0, sizeof(seen.launches));
	seen.layer = MM_ANY_LAYER;
	seen.opened = 0;
	batch_fill(&f->batch, batches[i].chunks, &batch);
	mm_forward_derive(f);
	assert_int_equal(mm_forward_step(f), 0);
	mm_step_cost(m, &batch, &ns);
	is_near(name, batches[i].name, BEFORE, ns.before);
	for (enum part p = LAYER; p < AFTER; p++)
		is_near(name, batches[i].name, p, ns.layer);
	is_near(name, batches[i].name, AFTER, ns.after);
	assert_int_equal(seen.launches[BEFORE], m->before.n);
	assert_int_equal(seen.launches[LAYER], m->layer.n);
	assert_int_equal(seen.launches[AFTER], batch.samples ? m->after.n : 0);
}

static void check_model(const struct mm_arch *arch, const char *name, bool fused,
			enum mm_dtype kv_dtype)
{
	const struct mm_step_opts opts = { 2, mm_dtype_bytes(kv_dtype), fused };
	const struct mm_forward_opts forward = { .module = getenv("MM_KERNELS"),
						 .max_tokens = MAX_TOKENS,
						 .max_rows = MAX_ROWS,
						 .table_stride = MAX_TOKENS / BLOCK_TOKENS,
						 .block_tokens = BLOCK_TOKENS,
						 .kv_dtype = kv_dtype };
	struct mm_memory memory = { .ops = &memory_ops, .gpu = &listener };
	char err[MM_SERVE_ERROR_BYTES];
	struct mm_step_model model;
	struct mm_weights weights;
	struct mm_kv_arena kv;
	struct mm_forward f;

	weights_bind(&weights, arch, fused);
	mm_step_model_init(&model, &seen.profile, &weights.arch, &opts);
	assert_int_equal(
		mm_kv_arena_init(&kv, MM_KV_BLOCK_MAJOR, LAYERS,
				 mm_forward_part_bytes(&weights.arch, BLOCK_TOKENS, kv_dtype),
				 2 << 20),
		0);
	if (mm_forward_init(&f, &memory, &weights, &forward, err))
		fail_msg("%s", err);
	f.kv = &kv;
	f.break_at = LAYERS;
	for (size_t i = 0; i < MM_ARRAY_SIZE(batches); i++)
		step_check(&f, &model, name, i);
	mm_forward_done(&f);
	mm_kv_arena_done(&kv);
	mm_weights_done(&weights);
}

static void every_model(bool fused)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(models); i++)
		check_model(&models[i].arch, models[i].name, fused,
			    fused ? MM_DTYPE_F16 : MM_DTYPE_F32);
}

/* Times without a least one, so that no kernel's bytes or operations are hidden behind it. */
static void launches_cost_what_is_said(void **state)
{
	(void)state;
	seen.profile.kernel_ns = 0;
	every_model(false);
	every_model(true);
}

static void small_kernels_too(void **state)
{
	(void)state;
	seen.profile.kernel_ns = 2000;
	every_model(false);
	every_model(true);
}

/* A device that only computes, and one that only moves. */
static void both_sides_of_the_roof(void **state)
{
	const struct mm_profile whole = seen.profile;

	(void)state;
	seen.profile.kernel_ns = 0;
	seen.profile.hbm_bps = 1e18;
	every_model(false);
	seen.profile = whole;
	seen.profile.kernel_ns = 0;
	seen.profile.f16_flops = 1e22;
	every_model(false);
	seen.profile = whole;
}

static int load_profile(void **state)
{
	char err[MM_PROFILE_ERROR_BYTES];

	(void)state;
	if (!mm_profile_load("h100-pcie5", &seen.profile, err, sizeof(err)))
		return 0;
	print_error("%s\n", err);
	return -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(launches_cost_what_is_said),
		cmocka_unit_test(small_kernels_too),
		cmocka_unit_test(both_sides_of_the_roof),
	};

	return cmocka_run_group_tests(tests, load_profile, NULL);
}
