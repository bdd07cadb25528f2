/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes - a list of models' shapes: JSON, {"models": [{"name", "family", "n_layers", ...}, ...]}
 *
 * Concept:    The whole file is read and checked at once; models are found by name.
 * Ownership:  mk_shapes_done() frees the list that mk_shapes_read() filled; accepts a zeroed one.
 * Threading:  one thread.
 */
#pragma once

#include "tools/lab/mkmodel/hf.h"

struct mk_shape {
	char name[64];
	struct mm_arch arch;
};

struct mk_shapes {
	struct mk_shape *all;
	size_t n;
};

/**
 * mk_shapes_read() - read and check a list
 * @path: path of the file
 * @ret:  written only on success
 * @err:  gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EBADMSG the file is not such a list; -ENOMEM; another negative errno of reading.
 */
int mk_shapes_read(const char *path, struct mk_shapes *ret, char *err);
void mk_shapes_done(struct mk_shapes *shapes);
