/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/forward.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "kernels/gemm.h"
#include "mm/base.h"

#define BLOCK_THREADS 256u
#define OUTSIDE       3u /* tensors outside the layers that are verified: embedding, norm, head */

static const char *const kernel_names[MM_KERNEL_COUNT] = {
	[MM_KERNEL_EMBED] = "mm_embed",       [MM_KERNEL_GATHER] = "mm_gather",
	[MM_KERNEL_RMSNORM] = "mm_rmsnorm",   [MM_KERNEL_ROPE] = "mm_rope",
	[MM_KERNEL_KV_WRITE] = "mm_kv_write", [MM_KERNEL_ATTENTION] = "mm_paged_attention",
	[MM_KERNEL_SWIGLU] = "mm_swiglu",     [MM_KERNEL_ADD] = "mm_add",
	[MM_KERNEL_GEMM] = "mm_gemm",         [MM_KERNEL_ARGMAX] = "mm_argmax",
	[MM_KERNEL_CHECKSUM] = "mm_checksum",
};

uint64_t mm_forward_part_bytes(const struct mm_llama_config *c, uint32_t block_tokens)
{
	return (uint64_t)block_tokens * c->kv_heads * c->head_dim * sizeof(float);
}

static int fail(const struct mm_forward *f, CUresult r, const char *what, char *err)
{
	snprintf(err, MM_SERVE_ERROR_BYTES, "%.4000s: %s", what, mm_gpu_strerror(f->gpu, r));
	return mm_gpu_errno(r);
}

static int load_kernels(struct mm_forward *f, char *err)
{
	CUresult r = f->gpu->cuModuleLoad(&f->module, f->opts.module);

	if (r)
		return fail(f, r, f->opts.module, err);
	for (enum mm_kernel k = 0; k < MM_KERNEL_COUNT; k++) {
		r = f->gpu->cuModuleGetFunction(&f->functions[k], f->module, kernel_names[k]);
		if (r)
			return fail(f, r, kernel_names[k], err);
	}
	return 0;
}

/* Host words of the batch: ids, positions, rows, samples, tables, and behind them next. */
static size_t input_words(const struct mm_forward_opts *o)
{
	return 3 * (size_t)o->max_tokens + o->max_rows * (1 + (size_t)o->table_stride);
}

static uint32_t n_checksums(const struct mm_forward *f)
{
	return f->model->config.layers * MM_LT_COUNT + OUTSIDE;
}

static int allocate_host(struct mm_forward *f, char *err)
{
	const struct mm_forward_opts *o = &f->opts;
	uint32_t *host = calloc(input_words(o) + o->max_rows, sizeof(*host));

	f->host = host;
	f->checksums = calloc(n_checksums(f), sizeof(*f->checksums));
	if (!host || !f->checksums) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
		return -ENOMEM;
	}
	f->batch.ids = host;
	f->batch.positions = host + o->max_tokens;
	f->batch.rows = host + 2 * (size_t)o->max_tokens;
	f->batch.samples = host + 3 * (size_t)o->max_tokens;
	f->batch.tables = f->batch.samples + o->max_rows;
	f->batch.next = host + input_words(o);
	return 0;
}

/* Lays the workspace out from address 0; returns its size. */
static uint64_t lay_out(struct mm_forward *f)
{
	const struct mm_forward_opts *o = &f->opts;
	const struct mm_llama_config *c = &f->model->config;
	const uint64_t q_dim = (uint64_t)c->heads * c->head_dim;
	const uint64_t kv_dim = (uint64_t)c->kv_heads * c->head_dim;
	struct mm_workspace *w = &f->w;
	const struct {
		CUdeviceptr *va;
		uint64_t words;
	} parts[] = {
		{ &w->ids, input_words(o) },
		{ &w->x, c->hidden * (uint64_t)o->max_tokens },
		{ &w->h, MM_MAX(c->hidden, q_dim) * o->max_tokens },
		{ &w->q, q_dim * o->max_tokens },
		{ &w->k, kv_dim * o->max_tokens },
		{ &w->v, kv_dim * o->max_tokens },
		{ &w->attention, q_dim * o->max_tokens },
		{ &w->gate, c->ffn * (uint64_t)o->max_tokens },
		{ &w->up, c->ffn * (uint64_t)o->max_tokens },
		{ &w->sampled, c->hidden * (uint64_t)o->max_rows },
		{ &w->logits, c->vocab * (uint64_t)o->max_rows },
		{ &w->next, o->max_rows },
		{ &w->checksums, 2 * (uint64_t)n_checksums(f) },
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

int mm_forward_init(struct mm_forward *f, struct mm_memory *memory, const struct mm_llama *model,
		    const struct mm_forward_opts *opts, char *err)
{
	CUresult r;
	int error;

	*f = (struct mm_forward){
		.opts = *opts, .gpu = memory->gpu, .memory = memory, .model = model
	};
	error = load_kernels(f, err);
	if (!error)
		error = allocate_host(f, err);
	if (error)
		return error;
	r = f->gpu->cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING);
	if (r)
		return fail(f, r, "a stream", err);
	r = f->gpu->cuMemAlloc(&f->w.base, lay_out(f));
	if (r)
		return fail(f, r, "device memory for activations", err);
	lay_out(f);
	return 0;
}

void mm_forward_done(struct mm_forward *f)
{
	if (f->w.base)
		f->gpu->cuMemFree(f->w.base);
	if (f->stream)
		f->gpu->cuStreamDestroy(f->stream);
	if (f->module)
		f->gpu->cuModuleUnload(f->module);
	free(f->host);
	free(f->checksums);
	*f = (struct mm_forward){ 0 };
}

static void note(struct mm_forward *f, CUresult r)
{
	if (r && !f->error)
		f->error = r;
}

static void launch(struct mm_forward *f, enum mm_kernel kernel, uint32_t rows, void *args)
{
	void *params[] = { args };

	note(f, f->gpu->cuLaunchKernel(f->functions[kernel], rows, 1, 1, BLOCK_THREADS, 1, 1, 0,
				       f->stream, params, NULL));
}

static void gemm(struct mm_forward *f, const struct mm_bound *w, CUdeviceptr x, CUdeviceptr y,
		 uint32_t tokens, uint32_t outputs, uint32_t k)
{
	struct mm_gemm_args a = { x, w->va, y, tokens, outputs, k, w->dtype };

	launch(f, MM_KERNEL_GEMM, tokens, &a);
}

static void rmsnorm(struct mm_forward *f, const struct mm_bound *gain, CUdeviceptr x,
		    CUdeviceptr out, uint32_t tokens)
{
	const struct mm_llama_config *c = &f->model->config;
	struct mm_rmsnorm_args a = { x, gain->va, out, tokens, c->hidden, gain->dtype, c->rms_eps };

	launch(f, MM_KERNEL_RMSNORM, tokens, &a);
}

static void rope(struct mm_forward *f, CUdeviceptr x, uint32_t heads)
{
	const struct mm_llama_config *c = &f->model->config;
	struct mm_rope_args a = {
		x, f->w.positions, c->rope_theta, f->batch.n_tokens, heads, c->head_dim, 0
	};

	launch(f, MM_KERNEL_ROPE, f->batch.n_tokens, &a);
}

static void add(struct mm_forward *f, CUdeviceptr x, CUdeviceptr y)
{
	struct mm_add_args a = { x, y, (uint64_t)f->batch.n_tokens * f->model->config.hidden };

	launch(f, MM_KERNEL_ADD, f->batch.n_tokens, &a);
}

static struct mm_kv_layout kv_layout(const struct mm_forward *f, uint32_t layer)
{
	const struct mm_llama_config *c = &f->model->config;

	return (struct mm_kv_layout){ .k_va = mm_kv_arena_part(f->kv, 2 * layer),
				      .v_va = mm_kv_arena_part(f->kv, 2 * layer + 1),
				      .tables_va = f->w.tables,
				      .seqs_va = f->w.rows,
				      .positions_va = f->w.positions,
				      .table_stride = f->opts.table_stride,
				      .block_tokens = f->opts.block_tokens,
				      .kv_dim = c->kv_heads * c->head_dim,
				      .tokens = f->batch.n_tokens };
}

static void attention(struct mm_forward *f, uint32_t layer)
{
	const struct mm_llama_config *c = &f->model->config;
	const struct mm_bound *t = f->model->layers[layer].tensors;
	const uint32_t n = f->batch.n_tokens;
	const uint32_t q_dim = c->heads * c->head_dim, kv_dim = c->kv_heads * c->head_dim;
	struct mm_kv_write_args write = { kv_layout(f, layer), f->w.k, f->w.v };
	struct mm_paged_attention_args attend = { write.kv,
						  f->w.q,
						  f->w.attention,
						  c->heads,
						  c->kv_heads,
						  c->head_dim,
						  1.0f / sqrtf((float)c->head_dim) };

	rmsnorm(f, &t[MM_LT_INPUT_NORM], f->w.x, f->w.h, n);
	gemm(f, &t[MM_LT_Q], f->w.h, f->w.q, n, q_dim, c->hidden);
	gemm(f, &t[MM_LT_K], f->w.h, f->w.k, n, kv_dim, c->hidden);
	gemm(f, &t[MM_LT_V], f->w.h, f->w.v, n, kv_dim, c->hidden);
	rope(f, f->w.q, c->heads);
	rope(f, f->w.k, c->kv_heads);
	launch(f, MM_KERNEL_KV_WRITE, n, &write);
	launch(f, MM_KERNEL_ATTENTION, n, &attend);
	gemm(f, &t[MM_LT_O], f->w.attention, f->w.h, n, c->hidden, q_dim);
	add(f, f->w.x, f->w.h);
}

static void feed_forward(struct mm_forward *f, uint32_t layer)
{
	const struct mm_llama_config *c = &f->model->config;
	const struct mm_bound *t = f->model->layers[layer].tensors;
	const uint32_t n = f->batch.n_tokens;
	struct mm_swiglu_args swiglu = { f->w.gate, f->w.up, (uint64_t)n * c->ffn };

	rmsnorm(f, &t[MM_LT_POST_NORM], f->w.x, f->w.h, n);
	gemm(f, &t[MM_LT_GATE], f->w.h, f->w.gate, n, c->ffn, c->hidden);
	gemm(f, &t[MM_LT_UP], f->w.h, f->w.up, n, c->ffn, c->hidden);
	launch(f, MM_KERNEL_SWIGLU, n, &swiglu);
	gemm(f, &t[MM_LT_DOWN], f->w.gate, f->w.h, n, c->hidden, c->ffn);
	add(f, f->w.x, f->w.h);
}

static void checksum(struct mm_forward *f, const struct mm_bound *t, uint32_t slot)
{
	struct mm_checksum_args a = { t->va, t->bytes, f->w.checksums + 8 * (CUdeviceptr)slot };

	if (f->opts.verify)
		launch(f, MM_KERNEL_CHECKSUM, 1, &a);
}

static int run_layer(struct mm_forward *f, uint32_t layer)
{
	int r = f->memory->ops->layer_begin(f->memory, layer, f->stream);

	if (r)
		return r;
	attention(f, layer);
	feed_forward(f, layer);
	for (uint32_t t = 0; t < MM_LT_COUNT; t++)
		checksum(f, &f->model->layers[layer].tensors[t], layer * MM_LT_COUNT + t);
	r = f->memory->ops->layer_end(f->memory, layer, f->stream);
	return r ? r : mm_gpu_errno(f->error);
}

static void embed(struct mm_forward *f)
{
	const struct mm_bound *table = &f->model->embed;
	struct mm_embed_args a = {
		f->w.ids,     table->va, f->w.x, f->batch.n_tokens, f->model->config.hidden,
		table->dtype, 0
	};

	note(f, f->gpu->cuMemcpyHtoDAsync(f->w.ids, f->host, input_words(&f->opts) * 4, f->stream));
	launch(f, MM_KERNEL_EMBED, a.tokens, &a);
}

/* Final norm, head and argmax, of the tokens whose successors are wanted only. */
static void sample(struct mm_forward *f)
{
	const struct mm_llama_config *c = &f->model->config;
	const uint32_t n = f->batch.n_samples;
	struct mm_gather_args gather = { f->w.samples, f->w.x, f->w.sampled, n, c->hidden };
	struct mm_argmax_args argmax = { f->w.logits, f->w.next, n, c->vocab };

	if (!n)
		return;
	launch(f, MM_KERNEL_GATHER, n, &gather);
	rmsnorm(f, &f->model->final_norm, f->w.sampled, f->w.h, n);
	gemm(f, &f->model->head, f->w.h, f->w.logits, n, c->vocab, c->hidden);
	launch(f, MM_KERNEL_ARGMAX, n, &argmax);
	note(f, f->gpu->cuMemcpyDtoHAsync(f->batch.next, f->w.next, n * 4ul, f->stream));
}

static const struct mm_bound *outside(const struct mm_forward *f, uint32_t i)
{
	const struct mm_bound *const all[OUTSIDE] = { &f->model->embed, &f->model->final_norm,
						      &f->model->head };

	return all[i];
}

static void fetch_checksums(struct mm_forward *f)
{
	const uint32_t n = n_checksums(f);

	if (!f->opts.verify)
		return;
	for (uint32_t i = 0; i < OUTSIDE; i++)
		checksum(f, outside(f, i), n - OUTSIDE + i);
	note(f, f->gpu->cuMemcpyDtoHAsync(f->checksums, f->w.checksums, n * 8ul, f->stream));
}

int mm_forward_step(struct mm_forward *f)
{
	f->error = CUDA_SUCCESS;
	embed(f);
	for (uint32_t layer = 0; layer < f->model->config.layers; layer++) {
		const int r = run_layer(f, layer);

		if (r)
			return r;
	}
	sample(f);
	fetch_checksums(f);
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
	static const char *const names[OUTSIDE] = { "embed_tokens", "norm", "lm_head" };
	const uint32_t layers = f->model->config.layers;
	uint32_t bad = 0;

	for (uint32_t i = 0; i < layers * MM_LT_COUNT; i++) {
		const uint32_t layer = i / MM_LT_COUNT, t = i % MM_LT_COUNT;

		if (f->checksums[i] == f->model->layers[layer].tensors[t].checksum)
			continue;
		bad++;
		mismatch(context, (int32_t)layer, mm_llama_tensor_name(t));
	}
	for (uint32_t i = 0; i < OUTSIDE; i++) {
		if (f->checksums[layers * MM_LT_COUNT + i] == outside(f, i)->checksum)
			continue;
		bad++;
		mismatch(context, -1, names[i]);
	}
	return bad;
}
