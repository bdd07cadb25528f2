/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_model - loads a model's files into device memory without mmd
 *
 * Concept:    it does what mmd's loader does: it loads the same files (those of the index, or all),
 *             makes the same checks, and builds the same layout, packing list included. Each group
 *             is one allocation. The files stay mapped, as --verify compares with them.
 * Ownership:  mm_plain_model_close() frees what mm_plain_model_open() allocated; it accepts zeroed
 *             ones.
 * Threading:  none; the caller's.
 */
#pragma once

#include "mm/client.h"
#include "mm/gpu.h"
#include "libclient/model/layout.h"

struct mm_plain_file {
	char name[MM_FILE_NAME_BYTES];
	char *bytes;
	size_t length_bytes;
};

struct mm_plain_model {
	size_t n_files;
	struct mm_plain_file *files; /* sorted by name */
	struct mm_safetensors *st;   /* one per file */
	struct mm_packs *packs;
	struct mm_layout layout;
	CUdeviceptr *groups;
};

/**
 * mm_plain_model_open() - read and check the files, build the layout, copy the weights
 * @gpu:  the context is current; NULL: only the files are opened, nothing is copied
 * @dir:  folder of the model
 * @opts: packing list; NULL: none
 * @ret:  written only on success
 * @err:  gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mm_plain_model_open(const struct mm_gpu_api *gpu, const char *dir,
			const struct mm_model_opts *opts, struct mm_plain_model *ret, char *err);
void mm_plain_model_close(const struct mm_gpu_api *gpu, struct mm_plain_model *model);

/*
 * Return: 0; -ENOENT there is no such tensor. The address has no meaning if the model was opened
 * without a GPU.
 */
int mm_plain_model_tensor(const struct mm_plain_model *model, const char *name,
			  struct mm_tensor *ret_tensor);

/* Return: the tensor's bytes in its file; NULL if there is no such tensor. */
const void *mm_plain_model_store(const struct mm_plain_model *model, const char *name,
				 uint64_t *ret_bytes);
