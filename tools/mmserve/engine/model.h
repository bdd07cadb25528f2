/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - a model bound to device addresses
 *
 * Concept:    each weight that the forward pass reads is found by its Hugging Face name, and its
 *             shape is checked against config.json once; afterwards only addresses are used. Every
 *             weight has a dtype of its own. For --verify, the checksum of each tensor's file bytes
 *             is computed here as well.
 * Ownership:  addresses are the memory's; the struct owns its arrays.
 * Threading:  read-only once bound.
 */
#pragma once

#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/memory.h"

struct mm_bound { /* a weight; va 0: this model has none of that role */
	CUdeviceptr va;
	uint64_t bytes;
	uint64_t checksum; /* of the file's bytes; 0 unless asked for */
	enum mm_dtype dtype;
};

struct mm_weights {
	struct mm_arch arch;
	bool fused;           /* q, k and v are one matrix, so are gate and up (packs.h) */
	struct mm_bound *all; /* [layers][MM_W_COUNT]; those outside the layers are in the first */
};

static inline const struct mm_bound *mm_weights_at(const struct mm_weights *w, uint32_t layer,
						   enum mm_weight role)
{
	return &w->all[(size_t)(mm_weight_per_layer(role) ? layer : 0) * MM_W_COUNT + role];
}

/**
 * mm_weights_bind() - look up and check every weight
 * @memory:      has the model loaded
 * @arch:        copied
 * @checksums:   compute the references for --verify
 * @ret_weights: written only on success; give back with mm_weights_done()
 * @err:         gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG a tensor is missing or has another shape than config.json says; -ENOMEM.
 */
int mm_weights_bind(struct mm_memory *memory, const struct mm_arch *arch, bool checksums,
		    struct mm_weights *ret_weights, char *err);
void mm_weights_done(struct mm_weights *weights);
