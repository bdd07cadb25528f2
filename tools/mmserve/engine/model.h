/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model - binds a model's weights to device addresses
 *
 * Concept:    each weight that the forward pass reads is looked up once by its Hugging Face name,
 *             and its shape is checked against config.json; afterwards only addresses are used.
 *             Every weight has a dtype of its own. For --verify, the checksum of each tensor's file
 *             bytes is computed here, too.
 * Ownership:  the memory owns what the addresses point to; struct mm_weights owns its arrays.
 * Threading:  read-only once bound.
 */
#pragma once

#include "tools/mmserve/engine/config.h"
#include "tools/mmserve/engine/memory.h"

struct mm_bound { /* a weight; va 0: the model has no weight in this role */
	CUdeviceptr va;
	uint64_t bytes;
	uint64_t checksum; /* that of the file's bytes; 0 unless requested */
	enum mm_dtype dtype;
};

struct mm_weights {
	struct mm_arch arch;
	bool fused;           /* q, k and v are one matrix, and so are gate and up (packs.h) */
	struct mm_bound *all; /* [layers][MM_W_COUNT]; those outside the layers are in the first */
};

static inline const struct mm_bound *mm_weights_at(const struct mm_weights *w, uint32_t layer,
						   enum mm_weight role)
{
	return &w->all[(size_t)(mm_weight_per_layer(role) ? layer : 0) * MM_W_COUNT + role];
}

/**
 * mm_weights_bind() - look up and check every weight
 * @memory:      with the model loaded
 * @arch:        copied
 * @checksums:   compute the checksums that --verify compares with
 * @ret_weights: written only on success; give back with mm_weights_done()
 * @err:         gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG a tensor is missing or has not the shape that follows from config.json;
 * -ENOMEM.
 */
int mm_weights_bind(struct mm_memory *memory, const struct mm_arch *arch, bool checksums,
		    struct mm_weights *ret_weights, char *err);
void mm_weights_done(struct mm_weights *weights);
