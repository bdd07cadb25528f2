/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/pass.h"

#include <math.h>

#include "kernels/blas/backend.h"

void mm_pass_note(struct mm_forward *f, CUresult r)
{
	if (r && !f->error)
		f->error = r;
}

void mm_pass_launch(struct mm_forward *f, enum mm_kernel kernel, void *args)
{
	void *params[] = { args };
	struct mm_launch_shape s;

	mm_launch_shape(kernel, args, &s);
	mm_pass_note(f, f->gpu->cuLaunchKernel(f->functions[kernel], s.grid[0], s.grid[1],
					       s.grid[2], s.block[0], s.block[1], s.block[2],
					       s.shared_bytes, f->stream, params, NULL));
}

struct activations { /* a matrix of activations */
	CUdeviceptr va;
	uint32_t stride; /* floats from one row to the next */
};

/* A linear layer: out = x . w + bias, the bias only where the model has one. */
struct linear_layer {
	const struct mm_bound *weight, *bias;
	uint32_t outputs, k;
};

/* @bias has no effect if only pass_multiply() follows. */
static struct linear_layer pass_linear(const struct mm_forward *f, uint32_t layer,
				       enum mm_weight weight, enum mm_weight bias)
{
	struct linear_layer l = { mm_weights_at(f->weights, layer, weight),
				  mm_weights_at(f->weights, layer, bias), 0, 0 };

	mm_arch_size(&f->weights->arch, weight, &l.outputs, &l.k);
	return l;
}

static void pass_multiply(struct mm_forward *f, const struct linear_layer *l, CUdeviceptr x,
			  struct activations out, uint32_t rows)
{
	const struct mm_gemm_args a = { .x_va = x,
					.w_va = l->weight->va,
					.y_va = out.va,
					.tokens = rows,
					.outputs = l->outputs,
					.k = l->k,
					.dtype = l->weight->dtype,
					.y_stride = out.stride,
					.y_rows = mm_gemm_room(f->gemm, rows) };

	mm_pass_note(f, mm_gemm_multiply(f->gemm, &a, f->stream));
}

static void add_bias(struct mm_forward *f, const struct linear_layer *l, struct activations out,
		     uint32_t rows)
{
	struct mm_bias_add_args a = { out.va,     l->bias->va, rows,
				      l->outputs, out.stride,  l->bias->dtype };

	if (l->bias->va)
		mm_pass_launch(f, MM_KERNEL_BIAS_ADD, &a);
}

static void pass_apply(struct mm_forward *f, const struct linear_layer *l, CUdeviceptr x,
		       struct activations out, uint32_t rows)
{
	pass_multiply(f, l, x, out, rows);
	add_bias(f, l, out, rows);
}

/* Enqueues a norm. @gain is its gain, and the next role is its bias. @out may be @x. */
static void pass_norm(struct mm_forward *f, uint32_t layer, enum mm_weight gain, CUdeviceptr x,
		      CUdeviceptr out, uint32_t rows)
{
	const struct mm_arch *a = &f->weights->arch;
	const struct mm_bound *g = mm_weights_at(f->weights, layer, gain);
	const struct mm_bound *b = mm_weights_at(f->weights, layer, gain + 1);
	const float eps = (float)a->norm_eps;
	struct mm_rmsnorm_args rms = { x, g->va, out, rows, a->hidden, g->dtype, eps };
	struct mm_layernorm_args full = { x,         g->va,    b->va,    out, rows,
					  a->hidden, g->dtype, b->dtype, eps, 0 };

	if (a->family == MM_FAMILY_OPT)
		mm_pass_launch(f, MM_KERNEL_LAYERNORM, &full);
	else
		mm_pass_launch(f, MM_KERNEL_RMSNORM, &rms);
}

static void pass_add(struct mm_forward *f, CUdeviceptr x, CUdeviceptr y)
{
	struct mm_add_args a = { x, y, (uint64_t)f->batch.n_tokens * f->weights->arch.hidden };

	mm_pass_launch(f, MM_KERNEL_ADD, &a);
}

/* ---- attention ---- */

struct qkv_places {
	struct activations q, k, v;
};

static struct qkv_places qkv_places(const struct mm_forward *f)
{
	const struct mm_arch *a = &f->weights->arch;
	const uint32_t stride = mm_pass_qkv_dim(a);
	const CUdeviceptr q_bytes = (CUdeviceptr)a->heads * a->head_dim * sizeof(float);
	const CUdeviceptr kv_bytes = (CUdeviceptr)a->kv_heads * a->head_dim * sizeof(float);

	return (struct qkv_places){ { f->w.qkv, stride },
				    { f->w.qkv + q_bytes, stride },
				    { f->w.qkv + q_bytes + kv_bytes, stride } };
}

static void pass_rope(struct mm_forward *f, struct activations x, uint32_t heads)
{
	const struct mm_arch *a = &f->weights->arch;
	struct mm_rope_args args = { x.va,  f->w.positions, f->w.frequencies, f->batch.n_tokens,
				     heads, a->head_dim,    x.stride };

	if (a->family != MM_FAMILY_OPT)
		mm_pass_launch(f, MM_KERNEL_ROPE, &args);
}

static void project_qkv(struct mm_forward *f, uint32_t layer, CUdeviceptr x,
			const struct qkv_places *to)
{
	struct linear_layer q = pass_linear(f, layer, MM_W_Q, MM_W_Q_BIAS);
	const struct linear_layer k = pass_linear(f, layer, MM_W_K, MM_W_K_BIAS);
	const struct linear_layer v = pass_linear(f, layer, MM_W_V, MM_W_V_BIAS);
	const uint32_t n = f->batch.n_tokens;

	if (f->weights->fused)
		q.outputs = mm_pass_qkv_dim(&f->weights->arch);
	pass_apply(f, &q, x, to->q, n);
	if (f->weights->fused)
		return;
	pass_apply(f, &k, x, to->k, n);
	pass_apply(f, &v, x, to->v, n);
}

static struct mm_kv_layout kv_layout(const struct mm_forward *f, uint32_t layer)
{
	const struct mm_arch *a = &f->weights->arch;

	return (struct mm_kv_layout){ .k_va = mm_kv_arena_part(f->kv, 2 * layer),
				      .v_va = mm_kv_arena_part(f->kv, 2 * layer + 1),
				      .tables_va = f->w.tables,
				      .seqs_va = f->w.rows,
				      .positions_va = f->w.positions,
				      .table_stride = f->opts.table_stride,
				      .block_tokens = f->opts.block_tokens,
				      .kv_dim = a->kv_heads * a->head_dim,
				      .tokens = f->batch.n_tokens,
				      .dtype = f->opts.kv_dtype };
}

/* Computes attention = softmax(q . k) . v; x is not changed. */
static void pass_attend(struct mm_forward *f, uint32_t layer, CUdeviceptr x)
{
	const struct mm_arch *a = &f->weights->arch;
	const struct qkv_places places = qkv_places(f);
	const uint32_t stride = places.q.stride;
	struct mm_kv_write_args write = { kv_layout(f, layer), places.k.va, places.v.va, stride,
					  0 };
	struct mm_paged_attention_args read = { .kv = write.kv,
						.q_va = places.q.va,
						.out_va = f->w.attention,
						.partial_va = f->w.partial,
						.counters_va = f->w.counters,
						.heads = a->heads,
						.kv_heads = a->kv_heads,
						.head_dim = a->head_dim,
						.scale = 1.0f / sqrtf((float)a->head_dim),
						.q_stride = stride,
						.split_tokens = MM_ATTENTION_SPLIT_TOKENS,
						.splits = f->batch.splits };

	project_qkv(f, layer, x, &places);
	pass_rope(f, places.q, a->heads);
	pass_rope(f, places.k, a->kv_heads);
	mm_pass_launch(f, MM_KERNEL_KV_WRITE, &write);
	mm_pass_launch(f, MM_KERNEL_ATTENTION, &read);
}

/* ---- feed-forward ---- */

/* Computes inner = silu(gate . x) * (up . x). */
static void pass_mlp_gated(struct mm_forward *f, uint32_t layer, CUdeviceptr x)
{
	const uint32_t ffn = f->weights->arch.ffn, n = f->batch.n_tokens;
	const struct activations to_gate = { f->w.gate_up, 2 * ffn };
	const struct activations to_up = { f->w.gate_up + (CUdeviceptr)ffn * sizeof(float),
					   2 * ffn };
	struct linear_layer gate = pass_linear(f, layer, MM_W_GATE, MM_W_GATE);
	const struct linear_layer up = pass_linear(f, layer, MM_W_UP, MM_W_UP_BIAS);
	struct mm_swiglu_args swiglu = { to_gate.va, to_up.va, f->w.inner, n, ffn, 2 * ffn, 0 };

	if (f->weights->fused)
		gate.outputs = 2 * ffn;
	pass_multiply(f, &gate, x, to_gate, n);
	if (!f->weights->fused)
		pass_multiply(f, &up, x, to_up, n);
	mm_pass_launch(f, MM_KERNEL_SWIGLU, &swiglu);
}

/* Computes inner = relu(up . x + bias). */
static void pass_mlp_plain(struct mm_forward *f, uint32_t layer, CUdeviceptr x)
{
	const uint32_t ffn = f->weights->arch.ffn, n = f->batch.n_tokens;
	const struct linear_layer up = pass_linear(f, layer, MM_W_UP, MM_W_UP_BIAS);
	struct mm_relu_args relu = { f->w.inner, (uint64_t)n * ffn };

	pass_apply(f, &up, x, (struct activations){ f->w.inner, ffn }, n);
	mm_pass_launch(f, MM_KERNEL_RELU, &relu);
}

/* ---- layers and steps ---- */

/* Computes x += block(norm(x)), or x = norm(x + block(x)) if the model has post_norm. */
static void pass_residual(struct mm_forward *f, uint32_t layer, enum mm_weight gain,
			  void (*block)(struct mm_forward *f, uint32_t layer, CUdeviceptr x),
			  CUdeviceptr result, enum mm_weight weight, enum mm_weight bias)
{
	const struct mm_arch *a = &f->weights->arch;
	const struct linear_layer out = pass_linear(f, layer, weight, bias);
	const uint32_t n = f->batch.n_tokens;

	if (!a->post_norm)
		pass_norm(f, layer, gain, f->w.x, f->w.h, n);
	block(f, layer, a->post_norm ? f->w.x : f->w.h);
	pass_apply(f, &out, result, (struct activations){ f->w.h, a->hidden }, n);
	pass_add(f, f->w.x, f->w.h);
	if (a->post_norm)
		pass_norm(f, layer, gain, f->w.x, f->w.x, n);
}

void mm_pass_layer(struct mm_forward *f, uint32_t layer)
{
	const bool opt = f->weights->arch.family == MM_FAMILY_OPT;

	pass_residual(f, layer, MM_W_INPUT_NORM, pass_attend, f->w.attention, MM_W_O, MM_W_O_BIAS);
	pass_residual(f, layer, MM_W_POST_NORM, opt ? pass_mlp_plain : pass_mlp_gated, f->w.inner,
		      MM_W_DOWN, MM_W_DOWN_BIAS);
}

void mm_pass_embed(struct mm_forward *f)
{
	const struct mm_arch *a = &f->weights->arch;
	const struct mm_bound *table = mm_weights_at(f->weights, 0, MM_W_EMBED);
	const struct mm_bound *learned = mm_weights_at(f->weights, 0, MM_W_POSITIONS);
	const struct linear_layer in = pass_linear(f, 0, MM_W_PROJECT_IN, MM_W_PROJECT_IN);
	const uint32_t n = f->batch.n_tokens;
	struct mm_embed_args embed = { f->w.ids, table->va,    in.weight->va ? f->w.h : f->w.x,
				       n,        a->embed_dim, table->dtype,
				       0 };
	struct mm_position_embed_args positions = {
		f->w.positions, learned->va,       f->w.x, n, a->hidden,
		learned->dtype, MM_POSITION_OFFSET
	};

	mm_pass_launch(f, MM_KERNEL_EMBED, &embed);
	if (in.weight->va)
		pass_multiply(f, &in, f->w.h, (struct activations){ f->w.x, a->hidden }, n);
	if (learned->va)
		mm_pass_launch(f, MM_KERNEL_POSITION_EMBED, &positions);
}

void mm_pass_sample(struct mm_forward *f)
{
	const struct mm_arch *a = &f->weights->arch;
	const struct linear_layer head = pass_linear(f, 0, MM_W_HEAD, MM_W_HEAD);
	const struct linear_layer out = pass_linear(f, 0, MM_W_PROJECT_OUT, MM_W_PROJECT_OUT);
	const uint32_t n = f->batch.n_samples;
	struct mm_gather_args gather = { f->w.samples, f->w.x, f->w.sampled, n, a->hidden };
	struct mm_argmax_args argmax = { f->w.logits, f->w.next, n, a->vocab };
	CUdeviceptr x = f->w.sampled;

	if (!n)
		return;
	mm_pass_launch(f, MM_KERNEL_GATHER, &gather);
	if (mm_weights_at(f->weights, 0, MM_W_FINAL_NORM)->va)
		pass_norm(f, 0, MM_W_FINAL_NORM, x, x, n);
	if (out.weight->va) {
		pass_multiply(f, &out, x, (struct activations){ f->w.h, a->embed_dim }, n);
		x = f->w.h;
	}
	pass_multiply(f, &head, x, (struct activations){ f->w.logits, a->vocab }, n);
	mm_pass_launch(f, MM_KERNEL_ARGMAX, &argmax);
	mm_pass_note(f, f->gpu->cuMemcpyDtoHAsync(f->batch.next, f->w.next, n * 4ul, f->stream));
}
