/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows - the tensors of one file, made and written by all cores at once
 *
 * Concept:    each thread takes the next few rows, in order, has the source fill them, narrows them
 *             and writes them where they belong. Real sizes are tens of gigabytes: one thread would
 *             take minutes.
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
	uint64_t offset; /* behind the header */
	bool vector;
	char name[128];
};

/**
 * mk_rows_write() - write the data of a file
 * @source:  has rows
 * @tensors: n of them, in file order
 * @fd:      of the file
 * @base:    where the data begin
 * @err:     gets the sentence, MK_ERROR_BYTES; "" when writing failed
 *
 * Return: 0; -ERANGE a value that is not finite or does not fit; errno of writing, negative;
 * -ENOMEM.
 */
int mk_rows_write(const struct mk_source *source, const struct mk_tensor *tensors, size_t n, int fd,
		  uint64_t base, char *err);
