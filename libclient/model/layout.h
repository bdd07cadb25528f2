/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_layout - the place of every tensor of a model in its host store
 *
 * Concept:   Group 0 holds what never cycles: embeddings, head, final norm, and of the layers all
 *            tensors of rank <= 1 (norms, biases), so that layers fill whole pages. Group 1 + l
 *            holds the matrices of layer l (names.h). Tensors are packed in order of their names,
 *            aligned to MM_TENSOR_ALIGN, those of a packing rule together and without padding
 *            (bundle.h); groups start at multiples of MM_ABI_PAGE_BYTES, behind the directory
 *            (abi.h).
 * Ownership: struct mm_layout owns its arrays; mm_layout_done() accepts zeroed ones.
 * Threading: none shared.
 * Invariants: every layer 0 .. layers - 1 has a tensor; ranges do not overlap and end within
 *            store_bytes; entries are sorted by name.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "libclient/model/pack.h"
#include "libclient/model/placed.h"
#include "libclient/model/safetensors.h"
#include "libclient/model/why.h"

#define MM_STORE_VERSION 1

/* The parsed files of a model; borrowed. */
struct mm_model_parts {
	const struct mm_safetensors *st; /* one per file */
	const char *const *names;        /* names of the files, for refusals */
	size_t n_files;
	uint32_t layers;              /* the number in config.json */
	const struct mm_packs *packs; /* NULL: none */
};

struct mm_layout {
	struct mm_dir dir; /* its identity is for the caller to set */
	struct mm_dir_group *groups;
	struct mm_dir_tensor *tensors; /* tensors and named packs, by name */
	struct mm_placed *placed;      /* by file, then offset */
	size_t n_placed;
	uint64_t tensor_bytes; /* without any padding */
};

/**
 * mm_layout_make() - place the tensors of parsed files
 * @parts:      files of one model
 * @ret_layout: written only on success; undo with mm_layout_done()
 *
 * Return: 0; -EBADMSG a name twice, layers missing or too many; -EINVAL the packing list does not
 * fit the model; -ENOTSUP too many tensors, or two stacks of layers; -ENOMEM.
 */
int mm_layout_make(const struct mm_model_parts *parts, struct mm_layout *ret_layout,
		   struct mm_why *why);
void mm_layout_done(struct mm_layout *layout);

/* Writes directory, groups and tensors to the head of the store. */
void mm_layout_write_head(const struct mm_layout *layout, void *store);

/* The group of a tensor: 0, or 1 + its layer. */
uint32_t mm_layout_group(const char *name, uint32_t rank);
