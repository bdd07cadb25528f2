/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows - makes and writes the tensors of one file, on all cores
 *
 * Concept:    Each thread takes the next few rows in order, has the source fill them, narrows them
 *             and writes them to their place in the file. Real models have tens of gigabytes, for
 *             which one thread would need minutes.
 * Ownership:  everything is borrowed.
 * Threading:  the source's row function runs on several threads at once.
 * Invariants: the bytes, and the sentence of a failure, do not depend on the number of threads.
 */
#pragma once

#include "tools/lab/mkmodel/hf.h"

struct mk_tensor {
	enum mm_weight weight;
	enum mm_dtype dtype;
	uint32_t layer;
	uint32_t rows, columns; /* a vector is one row */
	uint64_t bytes;
	uint64_t offset; /* from the end of the header */
	bool vector;
	char name[128];
};

/**
 * mk_rows_write() - write the data of a file
 * @source:  has a row function
 * @tensors: n tensors, in file order
 * @fd:      the file
 * @base:    offset at which the data begin
 * @err:     gets the sentence, MK_ERROR_BYTES; "" when writing failed
 *
 * Return: 0; -ERANGE a value is not finite or does not fit; -ENOMEM; the negative errno of writing.
 */
int mk_rows_write(const struct mk_source *source, const struct mk_tensor *tensors, size_t n, int fd,
		  uint64_t base, char *err);
