/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes - a list of models' shapes: JSON, {"models": [{"name", "family", "n_layers", ...}, ...]}
 *
 * Ownership:  mk_shapes_done() gives back what mk_shapes_read() filled; accepts zeroed ones.
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
 * @path: of the file
 * @ret:  written only on success
 * @err:  gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EBADMSG not such a list; -ENOMEM; other negative errno of the file.
 */
int mk_shapes_read(const char *path, struct mk_shapes *ret, char *err);
void mk_shapes_done(struct mk_shapes *shapes);
