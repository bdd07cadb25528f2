/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packs - which weights of a model the forward pass can take as one matrix
 *
 * Concept:    q, k and v have the same input, and so have gate and up: lying one behind the other
 *             they are one matrix, and one product makes what two or three would. Each of its
 *             elements is a reduction of its own: the bits are the same.
 * Ownership:  plain values; opts point into the struct, which must not be copied.
 */
#pragma once

#include "mm/client.h"
#include "tools/mmserve/engine/model.h"

#define MM_PACKS_MAX   3u /* matrices and biases of q, k and v; gate and up */
#define MM_PACK_WIDEST 3u

struct mm_serve_packs {
	struct mm_model_opts opts;
	struct mm_pack packs[MM_PACKS_MAX];
	const char *members[MM_PACKS_MAX][MM_PACK_WIDEST];
	char names[MM_PACKS_MAX][MM_PACK_WIDEST][MM_TENSOR_NAME_BYTES];
};

/* @ret: its opts are for mm_model_load() */
void mm_serve_packs_make(const struct mm_arch *arch, struct mm_serve_packs *ret);

/**
 * mm_weights_fuse() - take packed weights as one from now on
 * @weights: bound, of a model that was loaded with the packing list
 * @err:     gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -EBADMSG they do not lie as the list says.
 */
int mm_weights_fuse(struct mm_weights *weights, char *err);
