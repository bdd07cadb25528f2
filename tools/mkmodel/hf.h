/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf - writes a Llama model as Hugging Face lays it out: config.json and model.safetensors
 *
 * Concept:    a source says the shape and fills any row of any tensor in F32; the writer names the
 *             tensors, narrows the rows and streams them out, so memory stays at one row.
 * Ownership:  the source owns its context; the writer keeps nothing.
 * Invariants: files appear under their names only when complete (written beside, then renamed).
 *             The same source gives the same bytes.
 * Limits:     sizes are checked by mk_shape_check(); a row must fit memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

#define MK_ERROR_BYTES 4608

struct mk_shape {
	uint32_t hidden;
	uint32_t ffn;
	uint32_t layers;
	uint32_t heads;
	uint32_t kv_heads;
	uint32_t vocab;
	uint32_t max_position;
	bool tied; /* the head is the embedding */
};

/* One kind of tensor; those from INPUT_NORM to DOWN exist once per layer. */
enum mk_kind {
	MK_EMBED,
	MK_INPUT_NORM,
	MK_Q,
	MK_K,
	MK_V,
	MK_O,
	MK_POST_NORM,
	MK_GATE,
	MK_UP,
	MK_DOWN,
	MK_FINAL_NORM,
	MK_HEAD,
	MK_KINDS
};

/* Fills row @row of a tensor, in HF's order. @layer is 0 for tensors outside the layers. */
typedef void mk_row_fn(void *context, enum mk_kind kind, uint32_t layer, uint32_t row, float *out);

struct mk_source {
	struct mk_shape shape;
	mk_row_fn *row;
	void *context;
};

/**
 * mk_shape_check() - refuse shapes that no Llama has
 * @shape: any
 * @err:   gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EINVAL.
 */
int mk_shape_check(const struct mk_shape *shape, char *err);

/* Rows and columns of a kind; a norm is one row. */
void mk_kind_size(const struct mk_shape *shape, enum mk_kind kind, uint32_t *ret_rows,
		  uint32_t *ret_columns);

/**
 * mk_narrow() - one F32 as 16 bits, rounded to nearest even
 * @dtype:    MM_DTYPE_F16 or MM_DTYPE_BF16
 * @ret_bits: written only on success
 *
 * Return: 0; -ERANGE not finite, or not representable.
 */
int mk_narrow(float value, enum mm_dtype dtype, uint16_t *ret_bits);

/**
 * mk_write() - write the model
 * @source: checked shape
 * @dir:    made if it does not exist; files of the same names are replaced
 * @dtype:  of every tensor
 * @err:    gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mk_write(const struct mk_source *source, const char *dir, enum mm_dtype dtype, char *err);
