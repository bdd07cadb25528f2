/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hf - writes a model in Hugging Face's layout: config.json and model.safetensors, or its shards
 *
 * Concept:    A source describes the model and fills any row of any weight in F32. The writer names
 *             the tensors; all cores narrow and write their rows, a few at a time (rows.h).
 * Ownership:  the source owns its context; the writer keeps nothing.
 * Threading:  one thread calls; the source's row function runs on several.
 * Invariants: files appear under their names only when complete (written beside, then renamed), the
 *             index of shards after the shards. The same source gives the same bytes.
 *             A source without rows gives sparse files of the right length: a header, and behind it
 *             a hole, which takes no disk space and reads as zeros.
 * Limits:     mk_arch_check() checks the sizes; a row must fit into memory.
 */
#pragma once

#include "mm/abi.h"
#include "libclient/model/arch.h"

#define MK_ERROR_BYTES 4608
#define MK_SHARDS_MAX  512

/*
 * Fills row @row of a weight, in the order of Hugging Face; called on any thread. @layer is 0 for
 * weights outside the layers.
 */
typedef void mk_row_fn(void *context, enum mm_weight weight, uint32_t layer, uint32_t row,
		       float *out);

struct mk_source {
	struct mm_arch arch;
	mk_row_fn *row; /* NULL: the files are sparse */
	void *context;
};

struct mk_format {                  /* how weights are stored */
	enum mm_dtype dtype;        /* type of matrices */
	enum mm_dtype vector_dtype; /* type of norms and biases */
	uint32_t shards;            /* 0: one file, without an index */
	bool words;                 /* with a tokenizer (words.h) */
};

/**
 * mk_write() - write the model
 * @source: checked
 * @dir:    is created if it does not exist; files of the same names are replaced
 * @format: types, and how many shards
 * @err:    gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EINVAL more shards than tensors; other negative errno.
 */
int mk_write(const struct mk_source *source, const char *dir, const struct mk_format *format,
	     char *err);
