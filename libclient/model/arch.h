/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arch - the family and the sizes of a model, and the weights that follow from them
 *
 * Concept:    mkmodel writes it as Hugging Face does, mmserve reads it back. A weight is one tensor
 *             of the forward pass, found by its role; its name in a checkpoint and its size follow
 *             from the family and the sizes.
 * Ownership:  a plain value.
 * Threading:  any.
 * Invariants: after mm_arch_fill(), or from mm_config_load(), no size is 0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mm_family {
	MM_FAMILY_LLAMA,
	MM_FAMILY_QWEN2, /* Llama, with biases of q, k and v */
	MM_FAMILY_OPT,   /* learned positions, LayerNorm, ReLU, biases everywhere */
	MM_FAMILY_COUNT
};

enum mm_rope_scaling { MM_ROPE_UNSCALED, MM_ROPE_LINEAR, MM_ROPE_LLAMA3 };

struct mm_rope {
	double theta;
	enum mm_rope_scaling scaling;
	double factor; /* by which positions are stretched, with any scaling but UNSCALED */
	/* llama3: wavelengths above original / low_factor are scaled in full, */
	double low_factor;
	double high_factor; /* those below original / high_factor not at all */
	uint32_t original;  /* llama3: positions of the unscaled model */
};

struct mm_arch {
	uint32_t hidden;
	uint32_t ffn;
	uint32_t layers;
	uint32_t heads;
	uint32_t kv_heads;
	uint32_t vocab;
	uint32_t max_position;
	bool tied; /* the head is the embedding */
	enum mm_family family;
	uint32_t head_dim;
	/* width of the embedding and the head; if it is not hidden, it is projected (OPT) */
	uint32_t embed_dim;
	bool post_norm; /* OPT: a norm follows its block instead of preceding it */
	bool no_final_norm;
	double norm_eps;
	struct mm_rope rope; /* unused by OPT */
};

#define MM_POSITION_OFFSET 2u /* OPT: row of position 0 in the table of positions */

/* Roles of weights, in the order of their use. */
enum mm_weight {
	MM_W_EMBED,
	MM_W_POSITIONS,
	MM_W_PROJECT_IN,
	MM_W_INPUT_NORM, /* first of the weights that each layer has, up to DOWN_BIAS */
	MM_W_INPUT_NORM_BIAS,
	MM_W_Q,
	MM_W_Q_BIAS,
	MM_W_K,
	MM_W_K_BIAS,
	MM_W_V,
	MM_W_V_BIAS,
	MM_W_O,
	MM_W_O_BIAS,
	MM_W_POST_NORM,
	MM_W_POST_NORM_BIAS,
	MM_W_GATE,
	MM_W_UP, /* OPT's fc1 */
	MM_W_UP_BIAS,
	MM_W_DOWN, /* OPT's fc2 */
	MM_W_DOWN_BIAS,
	MM_W_FINAL_NORM,
	MM_W_FINAL_NORM_BIAS,
	MM_W_PROJECT_OUT,
	MM_W_HEAD,
	MM_W_COUNT
};

#define MM_W_LAYER_FIRST MM_W_INPUT_NORM
#define MM_W_LAYER_LAST  MM_W_DOWN_BIAS

static inline bool mm_weight_per_layer(enum mm_weight w)
{
	return w >= MM_W_LAYER_FIRST && w <= MM_W_LAYER_LAST;
}

/* "llama", "qwen2" or "opt", as model_type in config.json has it. */
const char *mm_family_name(enum mm_family family);

/* The class of the model, such as "LlamaForCausalLM". */
const char *mm_family_architecture(enum mm_family family);

/* Gives every size that is 0 its usual value. */
void mm_arch_fill(struct mm_arch *arch);

/* True if a model of this kind has that weight. */
bool mm_arch_has(const struct mm_arch *arch, enum mm_weight weight);

/* Rows and columns of a weight; a vector has 0 rows. */
void mm_arch_size(const struct mm_arch *arch, enum mm_weight weight, uint32_t *ret_rows,
		  uint32_t *ret_columns);

#define MM_ANY_LAYER UINT32_MAX

/**
 * mm_arch_name() - a weight's name in a checkpoint
 * @layer:  ignored for weights outside the layers; MM_ANY_LAYER: '*' in place of the number
 * @out:    @bytes of room
 * @bytes:  128 is enough
 */
void mm_arch_name(const struct mm_arch *arch, enum mm_weight weight, uint32_t layer, char *out,
		  size_t bytes);

/* The part of the name behind the layer's number. */
const char *mm_arch_short_name(const struct mm_arch *arch, enum mm_weight weight);
