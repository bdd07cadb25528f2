/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/stepcost/stepcost.h"

#include "libclient/base/base.h"

struct builder {
	const struct mm_profile *profile;
	const struct mm_arch *arch;
	const struct mm_step_opts *opts;
	struct mm_step_part *part;
};

static double bytes_ns(const struct builder *b, double bytes)
{
	return bytes / (b->profile->hbm_bps * b->profile->mem_efficiency) * 1e9;
}

static double flops_ns(const struct builder *b, double flops)
{
	return flops / (b->profile->f16_flops * b->profile->flop_efficiency) * 1e9;
}

static struct mm_step_term *term_append(struct builder *b)
{
	mm_assert(b->part->n < MM_STEP_TERMS_MAX);
	return &b->part->terms[b->part->n++];
}

/* Adds a kernel whose cost is linear in its rows. @none: cost of no rows; @one: cost of one row. */
static void kernel_append(struct builder *b, struct mm_cost none, struct mm_cost one)
{
	*term_append(b) = (struct mm_step_term){
		.fixed = bytes_ns(b, none.bytes),
		.token = bytes_ns(b, one.bytes - none.bytes),
		.token_flops = flops_ns(b, one.flops),
	};
}

#define KERNEL(b, cost, ...) kernel_append(b, cost(0, __VA_ARGS__), cost(1, __VA_ARGS__))

static void norm_append(struct builder *b)
{
	const double element = b->opts->weight_element_bytes;

	if (b->arch->family == MM_FAMILY_OPT)
		KERNEL(b, mm_cost_layernorm, b->arch->hidden, 2 * element);
	else
		KERNEL(b, mm_cost_rmsnorm, b->arch->hidden, element);
}

static void multiply_append(struct builder *b, double outputs, double k)
{
	KERNEL(b, mm_cost_gemm, outputs, k, b->opts->weight_element_bytes);
}

/* Adds the product with a weight, and its bias if the model has one. */
static void weight_append(struct builder *b, enum mm_weight weight, enum mm_weight bias)
{
	uint32_t outputs, k;

	mm_arch_size(b->arch, weight, &outputs, &k);
	multiply_append(b, outputs, k);
	if (mm_arch_has(b->arch, bias))
		KERNEL(b, mm_cost_bias_add, outputs, b->opts->weight_element_bytes);
}

static void add_append(struct builder *b)
{
	kernel_append(b, mm_cost_add(0), mm_cost_add(b->arch->hidden));
}

static void attention_append(struct builder *b, double q_dim, double kv_dim)
{
	const double kv_element = b->opts->kv_element_bytes;
	const struct mm_cost token = mm_cost_attention(1, 0, 0, q_dim, kv_dim, kv_element);
	const struct mm_cost context = mm_cost_attention(0, 1, 0, q_dim, kv_dim, kv_element);
	const struct mm_cost pair = mm_cost_attention(0, 0, 1, q_dim, kv_dim, kv_element);

	*term_append(b) = (struct mm_step_term){ .token = bytes_ns(b, token.bytes),
						 .context = bytes_ns(b, context.bytes),
						 .pair_flops = flops_ns(b, pair.flops) };
}

static void attend_append(struct builder *b)
{
	const struct mm_arch *a = b->arch;
	const double q_dim = (double)a->heads * a->head_dim;
	const double kv_dim = (double)a->kv_heads * a->head_dim;
	const double element = b->opts->weight_element_bytes;

	if (b->opts->fused) {
		multiply_append(b, q_dim + 2 * kv_dim, a->hidden);
		if (mm_arch_has(a, MM_W_Q_BIAS))
			KERNEL(b, mm_cost_bias_add, q_dim + 2 * kv_dim, element);
	} else {
		weight_append(b, MM_W_Q, MM_W_Q_BIAS);
		weight_append(b, MM_W_K, MM_W_K_BIAS);
		weight_append(b, MM_W_V, MM_W_V_BIAS);
	}
	if (a->family != MM_FAMILY_OPT) {
		KERNEL(b, mm_cost_rope, q_dim);
		KERNEL(b, mm_cost_rope, kv_dim);
	}
	KERNEL(b, mm_cost_kv_write, kv_dim, b->opts->kv_element_bytes);
	attention_append(b, q_dim, kv_dim);
}

static void feed_forward(struct builder *b)
{
	const struct mm_arch *a = b->arch;

	if (a->family == MM_FAMILY_OPT) {
		weight_append(b, MM_W_UP, MM_W_UP_BIAS);
		kernel_append(b, mm_cost_relu(0), mm_cost_relu(a->ffn));
		return;
	}
	if (b->opts->fused) {
		multiply_append(b, 2.0 * a->ffn, a->hidden);
	} else {
		multiply_append(b, a->ffn, a->hidden);
		multiply_append(b, a->ffn, a->hidden);
	}
	KERNEL(b, mm_cost_swiglu, a->ffn);
}

static void layer_append(struct builder *b)
{
	norm_append(b);
	attend_append(b);
	weight_append(b, MM_W_O, MM_W_O_BIAS);
	add_append(b);
	norm_append(b);
	feed_forward(b);
	weight_append(b, MM_W_DOWN, MM_W_DOWN_BIAS);
	add_append(b);
}

static void before_layers_append(struct builder *b)
{
	const struct mm_arch *a = b->arch;
	const double element = b->opts->weight_element_bytes;

	KERNEL(b, mm_cost_embed, a->embed_dim, element, 0);
	if (mm_arch_has(a, MM_W_PROJECT_IN))
		multiply_append(b, a->hidden, a->embed_dim);
	if (mm_arch_has(a, MM_W_POSITIONS))
		KERNEL(b, mm_cost_embed, a->hidden, element, 1);
}

static void after_layers_append(struct builder *b)
{
	const struct mm_arch *a = b->arch;

	KERNEL(b, mm_cost_gather, a->hidden);
	if (mm_arch_has(a, MM_W_FINAL_NORM))
		norm_append(b);
	if (mm_arch_has(a, MM_W_PROJECT_OUT))
		multiply_append(b, a->embed_dim, a->hidden);
	multiply_append(b, a->vocab, a->embed_dim);
	KERNEL(b, mm_cost_argmax, a->vocab);
}

void mm_step_model_init(struct mm_step_model *m, const struct mm_profile *profile,
			const struct mm_arch *arch, const struct mm_step_opts *opts)
{
	struct builder b = { profile, arch, opts, NULL };

	*m = (struct mm_step_model){ .kernel_ns = (double)profile->kernel_ns };
	b.part = &m->before;
	before_layers_append(&b);
	b.part = &m->layer;
	layer_append(&b);
	b.part = &m->after;
	after_layers_append(&b);
}

static uint64_t part_ns(const struct mm_step_part *part, double kernel_ns, double tokens,
			double context, double pairs)
{
	uint64_t sum = 0;

	if (tokens == 0)
		return 0;
	for (uint32_t i = 0; i < part->n; i++) {
		const struct mm_step_term *t = &part->terms[i];
		const double bytes = t->fixed + t->token * tokens + t->context * context;
		const double flops = t->token_flops * tokens + t->pair_flops * pairs;
		const double slower = MM_MAX(bytes, flops);

		sum += (uint64_t)(MM_MAX(slower, kernel_ns) + 0.5);
	}
	return sum;
}

void mm_step_cost(const struct mm_step_model *m, const struct mm_step_batch *batch,
		  struct mm_step_ns *ret)
{
	const double context = (double)batch->context, pairs = (double)batch->pairs;

	ret->before = part_ns(&m->before, m->kernel_ns, batch->tokens, 0, 0);
	ret->layer = part_ns(&m->layer, m->kernel_ns, batch->tokens, context, pairs);
	ret->after = part_ns(&m->after, m->kernel_ns, batch->samples, 0, 0);
}
