/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plain_model - a model's files in device memory of our own
 *
 * Concept:    what the loader does without mmd: the same files are taken (those of the index, or
 *             all), the same checks hold, the same layout results, packing list included. A group
 *             of it is one allocation. The files stay mapped: --verify compares with them.
 * Ownership:  mm_plain_model_close() gives back what mm_plain_model_open() took; accepts zeroed
 *             ones.
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
	struct mm_plain_file *files; /* by name */
	struct mm_safetensors *st;   /* one per file */
	struct mm_packs *packs;
	struct mm_layout layout;
	CUdeviceptr *groups;
};

/**
 * mm_plain_model_open() - read, check, lay out and copy
 * @gpu:  the context is current; NULL: the files only, to compare with
 * @dir:  of the model
 * @opts: packing list; NULL: none
 * @ret:  written only on success
 * @err:  gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; negative errno.
 */
int mm_plain_model_open(const struct mm_gpu_api *gpu, const char *dir,
			const struct mm_model_opts *opts, struct mm_plain_model *ret, char *err);
void mm_plain_model_close(const struct mm_gpu_api *gpu, struct mm_plain_model *model);

/* -ENOENT: there is no such tensor. Of a model of files only the address means nothing. */
int mm_plain_model_tensor(const struct mm_plain_model *model, const char *name,
			  struct mm_tensor *ret_tensor);

/* The tensor's bytes in its file; NULL: there is no such tensor. */
const void *mm_plain_model_store(const struct mm_plain_model *model, const char *name,
				 uint64_t *ret_bytes);
