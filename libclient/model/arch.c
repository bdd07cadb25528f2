/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/arch.h"

#include <stdio.h>

#define LLAMA_WEIGHTS                                                                             \
	[MM_W_EMBED] = "model.embed_tokens.weight", [MM_W_INPUT_NORM] = "input_layernorm.weight", \
	[MM_W_Q] = "self_attn.q_proj.weight", [MM_W_K] = "self_attn.k_proj.weight",               \
	[MM_W_V] = "self_attn.v_proj.weight", [MM_W_O] = "self_attn.o_proj.weight",               \
	[MM_W_POST_NORM] = "post_attention_layernorm.weight",                                     \
	[MM_W_GATE] = "mlp.gate_proj.weight", [MM_W_UP] = "mlp.up_proj.weight",                   \
	[MM_W_DOWN] = "mlp.down_proj.weight", [MM_W_FINAL_NORM] = "model.norm.weight",            \
	[MM_W_HEAD] = "lm_head.weight"

static const struct {
	const char *name, *architecture;
	const char *layers; /* prefix of the names of a layer's weights */
	const char *weights[MM_W_COUNT];
} family_table[MM_FAMILY_COUNT] = {
	[MM_FAMILY_LLAMA] = { "llama", "LlamaForCausalLM", "model.layers", { LLAMA_WEIGHTS } },
	[MM_FAMILY_QWEN2] = { "qwen2",
			      "Qwen2ForCausalLM",
			      "model.layers",
			      { LLAMA_WEIGHTS, [MM_W_Q_BIAS] = "self_attn.q_proj.bias",
				[MM_W_K_BIAS] = "self_attn.k_proj.bias",
				[MM_W_V_BIAS] = "self_attn.v_proj.bias" } },
	[MM_FAMILY_OPT] = { "opt",
			    "OPTForCausalLM",
			    "model.decoder.layers",
			    { [MM_W_EMBED] = "model.decoder.embed_tokens.weight",
			      [MM_W_POSITIONS] = "model.decoder.embed_positions.weight",
			      [MM_W_PROJECT_IN] = "model.decoder.project_in.weight",
			      [MM_W_INPUT_NORM] = "self_attn_layer_norm.weight",
			      [MM_W_INPUT_NORM_BIAS] = "self_attn_layer_norm.bias",
			      [MM_W_Q] = "self_attn.q_proj.weight",
			      [MM_W_Q_BIAS] = "self_attn.q_proj.bias",
			      [MM_W_K] = "self_attn.k_proj.weight",
			      [MM_W_K_BIAS] = "self_attn.k_proj.bias",
			      [MM_W_V] = "self_attn.v_proj.weight",
			      [MM_W_V_BIAS] = "self_attn.v_proj.bias",
			      [MM_W_O] = "self_attn.out_proj.weight",
			      [MM_W_O_BIAS] = "self_attn.out_proj.bias",
			      [MM_W_POST_NORM] = "final_layer_norm.weight",
			      [MM_W_POST_NORM_BIAS] = "final_layer_norm.bias",
			      [MM_W_UP] = "fc1.weight",
			      [MM_W_UP_BIAS] = "fc1.bias",
			      [MM_W_DOWN] = "fc2.weight",
			      [MM_W_DOWN_BIAS] = "fc2.bias",
			      [MM_W_FINAL_NORM] = "model.decoder.final_layer_norm.weight",
			      [MM_W_FINAL_NORM_BIAS] = "model.decoder.final_layer_norm.bias",
			      [MM_W_PROJECT_OUT] = "model.decoder.project_out.weight",
			      [MM_W_HEAD] = "lm_head.weight" } },
};

const char *mm_family_name(enum mm_family family)
{
	return family_table[family].name;
}

const char *mm_family_architecture(enum mm_family family)
{
	return family_table[family].architecture;
}

void mm_arch_fill(struct mm_arch *a)
{
	if (!a->kv_heads)
		a->kv_heads = a->heads;
	if (!a->head_dim && a->heads)
		a->head_dim = a->hidden / a->heads;
	if (!a->embed_dim)
		a->embed_dim = a->hidden;
	if (a->norm_eps == 0)
		a->norm_eps = 1e-5;
	if (a->rope.theta == 0)
		a->rope.theta = 10000.0;
}

bool mm_arch_has(const struct mm_arch *a, enum mm_weight w)
{
	if (!family_table[a->family].weights[w])
		return false;
	switch (w) {
	case MM_W_HEAD:
		return !a->tied;
	case MM_W_PROJECT_IN:
	case MM_W_PROJECT_OUT:
		return a->embed_dim != a->hidden;
	case MM_W_FINAL_NORM:
	case MM_W_FINAL_NORM_BIAS:
		return !a->post_norm && !a->no_final_norm;
	default:
		return true;
	}
}

void mm_arch_size(const struct mm_arch *a, enum mm_weight w, uint32_t *ret_rows,
		  uint32_t *ret_columns)
{
	const uint32_t q_dim = a->heads * a->head_dim, kv_dim = a->kv_heads * a->head_dim;
	const uint32_t sizes[MM_W_COUNT][2] = {
		[MM_W_EMBED] = { a->vocab, a->embed_dim },
		[MM_W_POSITIONS] = { a->max_position + MM_POSITION_OFFSET, a->hidden },
		[MM_W_PROJECT_IN] = { a->hidden, a->embed_dim },
		[MM_W_INPUT_NORM] = { 0, a->hidden },
		[MM_W_INPUT_NORM_BIAS] = { 0, a->hidden },
		[MM_W_Q] = { q_dim, a->hidden },
		[MM_W_Q_BIAS] = { 0, q_dim },
		[MM_W_K] = { kv_dim, a->hidden },
		[MM_W_K_BIAS] = { 0, kv_dim },
		[MM_W_V] = { kv_dim, a->hidden },
		[MM_W_V_BIAS] = { 0, kv_dim },
		[MM_W_O] = { a->hidden, q_dim },
		[MM_W_O_BIAS] = { 0, a->hidden },
		[MM_W_POST_NORM] = { 0, a->hidden },
		[MM_W_POST_NORM_BIAS] = { 0, a->hidden },
		[MM_W_GATE] = { a->ffn, a->hidden },
		[MM_W_UP] = { a->ffn, a->hidden },
		[MM_W_UP_BIAS] = { 0, a->ffn },
		[MM_W_DOWN] = { a->hidden, a->ffn },
		[MM_W_DOWN_BIAS] = { 0, a->hidden },
		[MM_W_FINAL_NORM] = { 0, a->hidden },
		[MM_W_FINAL_NORM_BIAS] = { 0, a->hidden },
		[MM_W_PROJECT_OUT] = { a->embed_dim, a->hidden },
		[MM_W_HEAD] = { a->vocab, a->embed_dim },
	};

	*ret_rows = sizes[w][0];
	*ret_columns = sizes[w][1];
}

const char *mm_arch_short_name(const struct mm_arch *a, enum mm_weight w)
{
	return family_table[a->family].weights[w];
}

void mm_arch_name(const struct mm_arch *a, enum mm_weight w, uint32_t layer, char *out,
		  size_t bytes)
{
	const char *name = mm_arch_short_name(a, w);

	if (mm_weight_per_layer(w) && layer == MM_ANY_LAYER)
		snprintf(out, bytes, "%s.*.%s", family_table[a->family].layers, name);
	else if (mm_weight_per_layer(w))
		snprintf(out, bytes, "%s.%u.%s", family_table[a->family].layers, layer, name);
	else
		snprintf(out, bytes, "%s", name);
}
