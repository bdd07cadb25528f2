/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pass - the arithmetic of a step, kernel by kernel
 *
 * Concept:    embedding, a layer, head: what each family computes, enqueued on the forward's
 *             stream. q, k and v of a token lie side by side, so do gate and up: whether they were
 *             made by one matrix product or by several is not seen behind it.
 * Threading:  the engine's thread; errors are noted in the forward and told at the step's end.
 */
#pragma once

#include "tools/mmserve/engine/forward.h"

static inline uint32_t mm_pass_qkv_dim(const struct mm_arch *a)
{
	return (a->heads + 2 * a->kv_heads) * a->head_dim;
}

/* Keeps the first error of a step. */
void mm_pass_note(struct mm_forward *f, CUresult r);

/* @args: the kernel's struct */
void mm_pass_launch(struct mm_forward *f, enum mm_kernel kernel, void *args);

void mm_pass_embed(struct mm_forward *f);

/* Between the layer's gates. */
void mm_pass_layer(struct mm_forward *f, uint32_t layer);

/* Final norm, head and argmax, of the tokens whose successors are wanted only. */
void mm_pass_sample(struct mm_forward *f);
