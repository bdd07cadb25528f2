/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/model.h"

#include <errno.h>
#include <string.h>

#include "kernels/host/checksum.h"
#include "mm/base.h"

static const char *const names[MM_LT_COUNT] = {
	[MM_LT_INPUT_NORM] = "input_layernorm.weight",
	[MM_LT_Q] = "self_attn.q_proj.weight",
	[MM_LT_K] = "self_attn.k_proj.weight",
	[MM_LT_V] = "self_attn.v_proj.weight",
	[MM_LT_O] = "self_attn.o_proj.weight",
	[MM_LT_POST_NORM] = "post_attention_layernorm.weight",
	[MM_LT_GATE] = "mlp.gate_proj.weight",
	[MM_LT_UP] = "mlp.up_proj.weight",
	[MM_LT_DOWN] = "mlp.down_proj.weight",
};

struct binder {
	struct mm_memory *memory;
	bool checksums;
	char *err;
};

const char *mm_llama_tensor_name(enum mm_layer_tensor tensor)
{
	return names[tensor];
}

static int fail(const struct binder *b, const char *name, const char *why)
{
	snprintf(b->err, MM_SERVE_ERROR_BYTES, "tensor %.200s: %.200s", name, why);
	return -EBADMSG;
}

/* @rows 0: a vector of @columns */
static int bind(const struct binder *b, const char *name, uint32_t rows, uint32_t columns,
		struct mm_bound *ret_bound)
{
	struct mm_tensor t;
	const void *store;
	uint64_t bytes;

	if (b->memory->ops->tensor(b->memory, name, &t))
		return fail(b, name, "is missing in the model's files");
	if (t.rank != (rows ? 2u : 1u) || t.shape[t.rank - 1] != columns ||
	    (rows && t.shape[0] != rows))
		return fail(b, name, "its shape is not the one that config.json makes");
	*ret_bound = (struct mm_bound){ .va = t.va, .bytes = t.bytes, .dtype = t.dtype };
	if (!b->checksums)
		return 0;
	store = b->memory->ops->store(b->memory, name, &bytes);
	if (!store || bytes != t.bytes)
		return fail(b, name, "its host copy cannot be read, so --verify is not possible");
	ret_bound->checksum = mm_checksum_bytes(store, bytes);
	return 0;
}

static int bind_layer(const struct binder *b, const struct mm_llama_config *c, uint32_t layer,
		      struct mm_layer *ret_layer)
{
	const uint32_t q_dim = c->heads * c->head_dim, kv_dim = c->kv_heads * c->head_dim;
	const uint32_t shapes[MM_LT_COUNT][2] = {
		[MM_LT_INPUT_NORM] = { 0, c->hidden }, [MM_LT_Q] = { q_dim, c->hidden },
		[MM_LT_K] = { kv_dim, c->hidden },     [MM_LT_V] = { kv_dim, c->hidden },
		[MM_LT_O] = { c->hidden, q_dim },      [MM_LT_POST_NORM] = { 0, c->hidden },
		[MM_LT_GATE] = { c->ffn, c->hidden },  [MM_LT_UP] = { c->ffn, c->hidden },
		[MM_LT_DOWN] = { c->hidden, c->ffn },
	};
	char name[128];

	for (enum mm_layer_tensor t = 0; t < MM_LT_COUNT; t++) {
		int r;

		snprintf(name, sizeof(name), "model.layers.%u.%s", layer, names[t]);
		r = bind(b, name, shapes[t][0], shapes[t][1], &ret_layer->tensors[t]);
		if (r)
			return r;
	}
	return 0;
}

static int bind_all(const struct binder *b, struct mm_llama *m)
{
	const struct mm_llama_config *c = &m->config;
	int r = bind(b, "model.embed_tokens.weight", c->vocab, c->hidden, &m->embed);

	if (!r)
		r = bind(b, "model.norm.weight", 0, c->hidden, &m->final_norm);
	m->head = m->embed;
	if (!r && !c->tied)
		r = bind(b, "lm_head.weight", c->vocab, c->hidden, &m->head);
	for (uint32_t i = 0; i < c->layers && !r; i++)
		r = bind_layer(b, c, i, &m->layers[i]);
	return r;
}

int mm_llama_bind(struct mm_memory *memory, const struct mm_llama_config *config, bool checksums,
		  struct mm_llama *ret_model, char *err)
{
	const struct binder b = { memory, checksums, err };
	mm_cleanup(mm_llama_done) struct mm_llama m = { .config = *config };
	int r;

	m.layers = calloc(config->layers, sizeof(*m.layers));
	if (!m.layers) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "out of memory");
		return -ENOMEM;
	}
	r = bind_all(&b, &m);
	if (r)
		return r;
	*ret_model = m;
	m = (struct mm_llama){ 0 };
	return 0;
}

void mm_llama_done(struct mm_llama *m)
{
	free(m->layers);
	*m = (struct mm_llama){ 0 };
}
