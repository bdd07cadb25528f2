/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/forward.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/pass.h"
#include "tools/mmserve/engine/rope.h"

uint64_t mm_forward_part_bytes(const struct mm_arch *a, uint32_t block_tokens,
			       enum mm_dtype kv_dtype)
{
	return (uint64_t)block_tokens * a->kv_heads * a->head_dim * mm_dtype_bytes(kv_dtype);
}

static int forward_fail(const struct mm_forward *f, CUresult r, const char *what, char *err)
{
	snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", what, mm_gpu_strerror(f->gpu, r));
	return mm_gpu_errno(r);
}

static int load_kernels(struct mm_forward *f, char *err)
{
	int r = mm_gpu_load_module(f->gpu, f->opts.module, &f->module, err, MM_SERVE_ERROR_BYTES);
	CUresult res;

	if (r)
		return r;
	for (enum mm_kernel k = 0; k < MM_KERNEL_COUNT; k++) {
		if (k == MM_KERNEL_GEMM) /* open_gemm() loads it if it needs it */
			continue;
		res = mm_gpu_kernel(f->gpu, f->module, mm_kernel_name(k), &f->functions[k]);
		if (res)
			return forward_fail(f, res, mm_kernel_name(k), err);
	}
	return 0;
}

static int open_gemm(struct mm_forward *f, char *err)
{
	const struct mm_arch *a = &f->weights->arch;
	const uint32_t wide = MM_MAX(a->hidden, a->embed_dim);
	const struct mm_gemm_opts opts = {
		.kind = f->opts.gemm,
		.module = f->module,
		.fast = f->opts.fast,
		.max_tokens = MM_MAX(f->opts.max_tokens, f->opts.max_rows),
		.max_k = MM_MAX(MM_MAX(wide, a->ffn), a->heads * a->head_dim),
	};

	return mm_gemm_open(f->gpu, &opts, &f->gemm, err, MM_SERVE_ERROR_BYTES);
}

/*
 * Return: the words of the host side of a batch of @rows rows: ids, positions, rows, samples and
 * tables. next is behind those of max_rows rows.
 */
static size_t input_words(const struct mm_forward_opts *o, uint32_t rows)
{
	return 3 * (size_t)o->max_tokens + o->max_rows + rows * (size_t)o->table_stride;
}

static uint32_t n_checksums(const struct mm_forward *f)
{
	return f->weights->arch.layers * MM_W_COUNT;
}

/*
 * The host side is pinned: otherwise copies on a stream are not asynchronous, and cannot be
 * captured in graphs.
 */
static int allocate_host(struct mm_forward *f, char *err)
{
	const struct mm_forward_opts *o = &f->opts;
	const size_t words = input_words(o, o->max_rows);
	const uint64_t sums = n_checksums(f) * sizeof(*f->checksums);
	const CUresult r = mm_pinned_alloc(f->gpu, sums + (words + o->max_rows) * sizeof(*f->host),
					   &f->pinned);

	if (r)
		return forward_fail(f, r, "pinned host memory", err);
	f->checksums = f->pinned.at;
	f->host = (uint32_t *)(f->checksums + n_checksums(f));
	f->batch.ids = f->host;
	f->batch.positions = f->host + o->max_tokens;
	f->batch.rows = f->host + 2 * (size_t)o->max_tokens;
	f->batch.samples = f->host + 3 * (size_t)o->max_tokens;
	f->batch.tables = f->batch.samples + o->max_rows;
	f->batch.next = f->host + words;
	return 0;
}

/*
 * The most bytes of attention's scratch. In passes whose rows would need more, each row uses one
 * block.
 */
#define PARTIAL_BYTES_MAX (256ull << 20)

static void splits_size(struct mm_forward *f)
{
	const struct mm_forward_opts *o = &f->opts;
	const struct mm_arch *a = &f->weights->arch;
	uint64_t token;

	f->splits_max =
		mm_attention_splits(o->table_stride * o->block_tokens, MM_ATTENTION_SPLIT_TOKENS);
	token = mm_attention_partial_bytes(1, a->heads, a->head_dim, f->splits_max);
	f->split_rows = o->max_rows;
	if (token)
		f->split_rows = (uint32_t)MM_MIN(o->max_rows, PARTIAL_BYTES_MAX / token);
}

/* Lays the workspace out from its base. Return: its size in bytes. */
static uint64_t workspace_lay_out(struct mm_forward *f)
{
	const struct mm_forward_opts *o = &f->opts;
	const struct mm_arch *a = &f->weights->arch;
	const uint64_t q_dim = (uint64_t)a->heads * a->head_dim;
	const uint64_t wide = MM_MAX(a->hidden, a->embed_dim);
	/* Outputs of products have room for whole tiles. */
	const uint64_t tokens = mm_gemm_room(f->gemm, o->max_tokens);
	const uint64_t rows = mm_gemm_room(f->gemm, o->max_rows);
	const uint64_t partial =
		mm_attention_partial_bytes(f->split_rows, a->heads, a->head_dim, f->splits_max);
	const bool gated = mm_arch_has(a, MM_W_GATE);
	struct mm_workspace *w = &f->w;
	const struct {
		CUdeviceptr *va;
		uint64_t words;
	} parts[] = {
		{ &w->ids, input_words(o, o->max_rows) },
		{ &w->x, a->hidden * tokens },
		{ &w->h, MM_MAX(wide, q_dim) * MM_MAX(tokens, rows) },
		{ &w->qkv, mm_pass_qkv_dim(a) * tokens },
		{ &w->attention, q_dim * o->max_tokens },
		{ &w->partial, partial / 4 },
		{ &w->counters, (uint64_t)f->split_rows * a->heads },
		{ &w->gate_up, gated ? 2 * (uint64_t)a->ffn * tokens : 0 },
		{ &w->inner, a->ffn * tokens },
		{ &w->sampled, wide * o->max_rows },
		{ &w->logits, a->vocab * rows },
		{ &w->next, o->max_rows },
		{ &w->checksums, 2 * (uint64_t)n_checksums(f) },
		{ &w->frequencies, 2 * (uint64_t)a->head_dim },
	};
	uint64_t at = 0;

	for (size_t i = 0; i < MM_ARRAY_SIZE(parts); i++) {
		*parts[i].va = w->base + at;
		at += mm_round_up(parts[i].words * 4, 256);
	}
	w->positions = w->ids + 4 * (CUdeviceptr)o->max_tokens;
	w->rows = w->positions + 4 * (CUdeviceptr)o->max_tokens;
	w->samples = w->rows + 4 * (CUdeviceptr)o->max_tokens;
	w->tables = w->samples + 4 * (CUdeviceptr)o->max_rows;
	return at;
}

static int allocate_device(struct mm_forward *f, char *err)
{
	const uint64_t bytes = workspace_lay_out(f);
	const CUresult r = f->gpu->cuMemAlloc(&f->w.base, bytes);
	char what[80];

	snprintf(what, sizeof(what), "%llu MiB of device memory for activations",
		 (unsigned long long)mm_div_up(bytes, 1 << 20));
	if (r)
		return forward_fail(f, r, what, err);
	workspace_lay_out(f);
	return 0;
}

/* Clears attention's counters, which are zero between launches, before the steps on the stream. */
static CUresult clear_counters(struct mm_forward *f)
{
	const uint64_t n = (uint64_t)f->split_rows * f->weights->arch.heads;

	return n ? f->gpu->cuMemsetD32Async(f->w.counters, 0, n, f->stream) : CUDA_SUCCESS;
}

static CUresult upload_frequencies(struct mm_forward *f)
{
	const uint32_t pairs = f->weights->arch.head_dim / 2;
	double frequencies[MM_HEAD_DIM_MAX / 2];

	if (!pairs)
		return CUDA_SUCCESS;
	mm_rope_frequencies(&f->weights->arch, frequencies);
	return f->gpu->cuMemcpyHtoD(f->w.frequencies, frequencies, pairs * sizeof(*frequencies));
}

int mm_forward_init(struct mm_forward *f, struct mm_memory *memory,
		    const struct mm_weights *weights, const struct mm_forward_opts *opts, char *err)
{
	CUresult res;
	int r;

	*f = (struct mm_forward){
		.opts = *opts, .gpu = memory->gpu, .memory = memory, .weights = weights
	};
	r = load_kernels(f, err);
	if (!r)
		r = open_gemm(f, err);
	if (!r)
		r = allocate_host(f, err);
	if (r)
		return r;
	res = f->gpu->cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING);
	if (res)
		return forward_fail(f, res, "a stream", err);
	splits_size(f);
	r = allocate_device(f, err);
	if (r)
		return r;
	res = clear_counters(f);
	if (res)
		return forward_fail(f, res, "device memory for attention", err);
	res = upload_frequencies(f);
	/*
	 * A copy from pageable memory may not be complete yet, and the stream does not wait for it.
	 */
	if (!res)
		res = f->gpu->cuCtxSynchronize();
	return res ? forward_fail(f, res, "device memory for RoPE", err) : 0;
}

void mm_forward_done(struct mm_forward *f)
{
	if (f->w.base)
		f->gpu->cuMemFree(f->w.base);
	if (f->stream)
		f->gpu->cuStreamDestroy(f->stream);
	mm_gemm_close(f->gemm);
	if (f->module)
		f->gpu->cuModuleUnload(f->module);
	if (f->gpu)
		mm_pinned_free(f->gpu, &f->pinned);
	*f = (struct mm_forward){ 0 };
}

static void weight_checksum(struct mm_forward *f, uint32_t layer, enum mm_weight role)
{
	const struct mm_bound *w = mm_weights_at(f->weights, layer, role);
	const CUdeviceptr slot = (CUdeviceptr)(w - f->weights->all);
	struct mm_checksum_args a = { w->va, w->bytes, f->w.checksums + 8 * slot };

	if (f->opts.verify && w->va)
		mm_pass_launch(f, MM_KERNEL_CHECKSUM, &a);
}

static int run_layer(struct mm_forward *f, uint32_t layer)
{
	int r = f->memory->ops->layer_begin(f->memory, layer, f->stream);

	if (r)
		return r;
	mm_pass_layer(f, layer);
	for (enum mm_weight role = MM_W_LAYER_FIRST; role <= MM_W_LAYER_LAST; role++)
		weight_checksum(f, layer, role);
	r = f->memory->ops->layer_end(f->memory, layer, f->stream);
	return r ? r : mm_gpu_errno(f->error);
}

/* Clears the checksums, as the kernel adds to them. */
static void clear_checksums(struct mm_forward *f)
{
	if (f->opts.verify)
		mm_pass_note(f, f->gpu->cuMemsetD8Async(f->w.checksums, 0, n_checksums(f) * 8ul,
							f->stream));
}

static void fetch_checksums(struct mm_forward *f)
{
	if (!f->opts.verify)
		return;
	for (enum mm_weight role = 0; role < MM_W_COUNT; role++)
		if (!mm_weight_per_layer(role))
			weight_checksum(f, 0, role);
	mm_pass_note(f, f->gpu->cuMemcpyDtoHAsync(f->checksums, f->w.checksums,
						  n_checksums(f) * 8ul, f->stream));
}

/*
 * Return: the splits that hold the context, rounded up to a power of two, so that few graphs serve
 * contexts of all lengths.
 */
static uint32_t bound_splits(const struct mm_forward *f, uint32_t context)
{
	const uint32_t splits = mm_attention_splits(context, MM_ATTENTION_SPLIT_TOKENS);
	uint32_t bound = 1;

	if (f->batch.n_tokens > f->split_rows)
		return 1;
	while (bound < splits)
		bound *= 2;
	return MM_MIN(bound, f->splits_max);
}

void mm_forward_derive(struct mm_forward *f)
{
	struct mm_batch *b = &f->batch;
	uint32_t context = 0, rows = 0;

	b->decodes = b->n_tokens && b->n_tokens == b->n_samples;
	for (uint32_t i = 0; i < b->n_tokens; i++) {
		context = MM_MAX(context, b->positions[i] + 1);
		rows = MM_MAX(rows, b->rows[i] + 1);
		b->decodes = b->decodes && b->rows[i] == i && b->samples[i] == i;
	}
	b->n_rows = rows;
	b->splits = bound_splits(f, context);
}

int mm_forward_step(struct mm_forward *f)
{
	mm_assert(f->batch.n_rows && f->batch.splits); /* set by mm_forward_derive() */
	f->error = CUDA_SUCCESS;
	mm_pass_note(f, f->gpu->cuMemcpyHtoDAsync(f->w.ids, f->host,
						  input_words(&f->opts, f->batch.n_rows) * 4,
						  f->stream));
	clear_checksums(f);
	mm_pass_embed(f);
	for (uint32_t layer = 0; layer < f->weights->arch.layers; layer++) {
		const int r = layer == f->break_at ? -EINTR : run_layer(f, layer);

		if (r)
			return r;
	}
	mm_pass_sample(f);
	fetch_checksums(f);
	return mm_gpu_errno(f->error);
}

int mm_forward_logits(struct mm_forward *f, uint32_t sample, float *ret_logits)
{
	const uint64_t bytes = f->weights->arch.vocab * sizeof(*ret_logits);

	f->error = f->gpu->cuMemcpyDtoHAsync(ret_logits, f->w.logits + sample * bytes, bytes,
					     f->stream);
	if (!f->error)
		f->error = f->gpu->cuStreamSynchronize(f->stream);
	return mm_gpu_errno(f->error);
}

int mm_forward_move_block(struct mm_forward *f, uint32_t from, uint32_t to)
{
	const struct mm_kv_arena *kv = f->kv;
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < kv->ranges && !r; i++)
		r = f->gpu->cuMemcpyDtoDAsync(kv->va[i] + mm_kv_arena_offset(kv, to),
					      kv->va[i] + mm_kv_arena_offset(kv, from),
					      kv->block_bytes, f->stream);
	return mm_gpu_errno(r);
}

uint32_t mm_forward_verify(const struct mm_forward *f,
			   void (*mismatch)(void *context, int32_t layer, const char *tensor),
			   void *context)
{
	const struct mm_arch *a = &f->weights->arch;
	uint32_t bad = 0;

	for (uint32_t i = 0; i < n_checksums(f); i++) {
		const struct mm_bound *w = &f->weights->all[i];
		const enum mm_weight role = i % MM_W_COUNT;
		const bool in_layer = mm_weight_per_layer(role);

		if (!w->va || f->checksums[i] == w->checksum)
			continue;
		bad++;
		mismatch(context, in_layer ? (int32_t)(i / MM_W_COUNT) : -1,
			 mm_arch_short_name(a, role));
	}
	return bad;
}
