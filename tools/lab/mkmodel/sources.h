/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sources - the sources of mkmodel's weights: a llama2.c checkpoint, or a seed
 *
 * Concept:   A source is a row function and its context (hf.h). The checkpoint is mapped into
 *            memory; random weights are computed row by row.
 * Ownership: mk_llama2c_close() unmaps the checkpoint; a random source owns nothing.
 * Threading: row functions may run on several threads at once.
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
 * Return: 0; -EBADMSG the file is not such a checkpoint; another negative errno.
 */
int mk_llama2c_open(const char *path, struct mk_llama2c *ret_ckpt, char *err);
void mk_llama2c_close(struct mk_llama2c *ckpt);

/*
 * Fills a row from a checkpoint. llama2.c rotates adjacent pairs, Hugging Face rotates halves: so
 * the rows of Q and K are permuted.
 */
mk_row_fn mk_llama2c_row;

struct mk_random {
	struct mm_arch arch;
	uint64_t seed;
};

/* Fills a row with random numbers, which depend only on seed, weight, layer and row. */
mk_row_fn mk_random_row;
