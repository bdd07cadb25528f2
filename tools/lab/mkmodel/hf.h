/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf - writes a model as Hugging Face lays it out: config.json and model.safetensors, or its shards
 *
 * Concept:    a source says what the model is and fills any row of any weight in F32; the writer
 *             names the tensors and has their rows narrowed and written by all cores, a few at a
 *             time (rows.h).
 * Ownership:  the source owns its context; the writer keeps nothing.
 * Invariants: files appear under their names only when complete (written beside, then renamed), the
 *             index of shards after the shards. The same source gives the same bytes.
 * Sparse:     a source without rows gives files of the right length that have a header and, behind
 *             it, nothing: a hole, which takes no disk and reads as zeros.
 * Limits:     sizes are checked by mk_arch_check(); a row must fit memory.
 */
#pragma once

#include "mm/abi.h"
#include "libclient/model/arch.h"

#define MK_ERROR_BYTES 4608
#define MK_SHARDS_MAX  512

/*
 * Fills row @row of a weight, in HF's order; on any thread. @layer is 0 for weights outside the
 * layers.
 */
typedef void mk_row_fn(void *context, enum mm_weight weight, uint32_t layer, uint32_t row,
		       float *out);

struct mk_source {
	struct mm_arch arch;
	mk_row_fn *row; /* NULL: no weights at all, sparse files */
	void *context;
};

struct mk_format {                  /* how it is stored */
	enum mm_dtype dtype;        /* of matrices */
	enum mm_dtype vector_dtype; /* of norms and biases */
	uint32_t shards;            /* 0: one file, without an index */
};

/**
 * mk_arch_check() - refuse what no model of its family is
 * @arch: filled
 * @err:  gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EINVAL.
 */
int mk_arch_check(const struct mm_arch *arch, char *err);

/* What config.json says; @dtype becomes its torch_dtype. NULL: no memory. */
struct json_t *mk_config_json(const struct mm_arch *arch, enum mm_dtype dtype);

/* "F32" and so on; as torch spells it: "float32". */
const char *mk_dtype_name(enum mm_dtype dtype, bool torch);

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
 * @source: checked
 * @dir:    made if it does not exist; files of the same names are replaced
 * @format: how
 * @err:    gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EINVAL more shards than tensors; other negative errno.
 */
int mk_write(const struct mk_source *source, const char *dir, const struct mk_format *format,
	     char *err);
