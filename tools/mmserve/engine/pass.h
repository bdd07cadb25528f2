/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass - the arithmetic of a step, kernel by kernel
 *
 * Concept:    the embedding, a layer and the head of each family, enqueued on the forward's stream.
 *             q, k and v of a token are adjacent in memory, and so are gate and up, so that later
 *             kernels do not depend on whether one matrix product made them or several did.
 * Threading:  the engine's thread.
 * Errors:     the first error of a step is kept in the forward, and returned at the step's end.
 */
#pragma once

#include "tools/mmserve/engine/forward.h"

/* Return: the floats of q, k and v of a token together. */
static inline uint32_t mm_pass_qkv_dim(const struct mm_arch *a)
{
	return (a->heads + 2 * a->kv_heads) * a->head_dim;
}

/* Notes @r in @f if it is the first error of the step. */
void mm_pass_note(struct mm_forward *f, CUresult r);

/* Enqueues @kernel, whose arguments are in its struct @args. */
void mm_pass_launch(struct mm_forward *f, enum mm_kernel kernel, void *args);

/* Enqueues the embedding of the batch's tokens. */
void mm_pass_embed(struct mm_forward *f);

/* Enqueues a layer; to be called between its gates. */
void mm_pass_layer(struct mm_forward *f, uint32_t layer);

/* Enqueues final norm, head and argmax, only for the tokens whose successors are wanted. */
void mm_pass_sample(struct mm_forward *f);
