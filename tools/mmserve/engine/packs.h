/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packs - the weights of a model that the forward pass can use as one matrix
 *
 * Concept:    q, k and v have the same input, and so have gate and up. When their weights are
 *             adjacent in memory they are one matrix, and one product replaces two or three. Each
 *             element of a product is a reduction of its own, so the results have the same bits.
 * Ownership:  plain values; opts point into the struct, which must not be copied.
 * Threading:  none; the caller's.
 */
#pragma once

#include "mm/client.h"
#include "tools/mmserve/engine/model.h"

#define MM_PACKS_MAX   3u /* matrices of q, k and v; their biases; gate and up */
#define MM_PACK_WIDEST 3u

struct mm_serve_packs {
	struct mm_model_opts opts;
	struct mm_pack packs[MM_PACKS_MAX];
	const char *members[MM_PACKS_MAX][MM_PACK_WIDEST];
	char names[MM_PACKS_MAX][MM_PACK_WIDEST][MM_TENSOR_NAME_BYTES];
};

/* Makes the packing list of a model; @ret->opts is for mm_model_load(). */
void mm_serve_packs_make(const struct mm_arch *arch, struct mm_serve_packs *ret);

/**
 * mm_weights_fuse() - use packed weights as one matrix from now on
 * @weights: bound to a model that was loaded with the packing list
 * @err:     gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG weights of a pack are not adjacent.
 */
int mm_weights_fuse(struct mm_weights *weights, char *err);
