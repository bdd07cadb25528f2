/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - a Llama model bound to device addresses
 *
 * Concept:    each tensor that the forward pass reads is found by its Hugging Face name, and its shape
 *             and dtype are checked against config.json once; afterwards only addresses are used.
 *             For --verify, the checksum of each tensor's file bytes is computed here as well.
 * Ownership:  addresses are the memory's; the struct owns its arrays.
 * Threading:  read-only once bound.
 */
#pragma once

#include "tools/mmserve/config.h"
#include "tools/mmserve/memory.h"

/* The tensors of a layer, in the order in which they are used. */
enum mm_layer_tensor {
	MM_LT_INPUT_NORM,
	MM_LT_Q,
	MM_LT_K,
	MM_LT_V,
	MM_LT_O,
	MM_LT_POST_NORM,
	MM_LT_GATE,
	MM_LT_UP,
	MM_LT_DOWN,
	MM_LT_COUNT
};

struct mm_bound { /* a tensor */
	CUdeviceptr va;
	uint64_t bytes;
	uint64_t checksum; /* of the file's bytes; 0 unless asked for */
	enum mm_dtype dtype;
};

struct mm_layer {
	struct mm_bound tensors[MM_LT_COUNT];
};

struct mm_llama {
	struct mm_llama_config config;
	struct mm_bound embed;
	struct mm_bound final_norm;
	struct mm_bound head; /* = embed when tied */
	struct mm_layer *layers;
};

/**
 * mm_llama_bind() - look up and check every tensor
 * @memory:    has the model loaded
 * @config:    copied
 * @checksums: compute the references for --verify
 * @ret_model: written only on success; give back with mm_llama_done()
 * @err:       gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG a tensor is missing or has another shape than config.json says; -ENOMEM.
 */
int mm_llama_bind(struct mm_memory *memory, const struct mm_llama_config *config, bool checksums,
		  struct mm_llama *ret_model, char *err);
void mm_llama_done(struct mm_llama *model);

/* The name that a layer's tensor has in the checkpoint, behind "model.layers.N.". */
const char *mm_llama_tensor_name(enum mm_layer_tensor tensor);
