/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sources - where mkmodel's weights come from: a llama2.c checkpoint, or a seed
 *
 * Ownership: mk_llama2c_close() gives back what mk_llama2c_open() mapped; a random source has
 *            nothing to give back.
 * Threading: none shared.
 */
#pragma once

#include "tools/lab/mkmodel/hf.h"

struct mk_llama2c {
	const char *bytes;
	size_t length_bytes;
	struct mm_arch arch;
};

/**
 * mk_llama2c_open() - map a llama2.c checkpoint (version 0) and check its size
 * @path:    a regular file
 * @ret_ckpt: written only on success; give back with mk_llama2c_close()
 * @err:     gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EBADMSG not such a checkpoint; other negative errno.
 */
int mk_llama2c_open(const char *path, struct mk_llama2c *ret_ckpt, char *err);
void mk_llama2c_close(struct mk_llama2c *ckpt);

/* llama2.c rotates adjacent pairs, HF rotates halves: rows of Q and K are permuted to match. */
mk_row_fn mk_llama2c_row;

struct mk_random {
	struct mm_arch arch;
	uint64_t seed;
};

/* A row depends on seed, weight, layer and row only. */
mk_row_fn mk_random_row;
