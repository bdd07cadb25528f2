/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_measure - the memory that a model will need, before it is loaded
 *
 * Concept:   The layout that load would make, from a folder's headers or from shapes alone; no
 *            weights are read. For tools: it opens files with the caller's own rights.
 * Ownership: the caller owns the layout.
 * Threading: any.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "libclient/model/layout.h"
#include "libclient/model/why.h"

/**
 * mm_measure_folder() - the layout of a model in Hugging Face layout
 * @path:       of the folder: config.json and *.safetensors
 * @ret_layout: written only on success; undo with mm_layout_done()
 *
 * With an index of shards, the model is the files that it names; otherwise all *.safetensors, as in
 * load.
 * Return: 0; a refusal as load's; errno of opening.
 */
int mm_measure_folder(const char *path, struct mm_layout *ret_layout, struct mm_why *why);

/**
 * mm_measure_shapes() - the layout of a model of which only the shapes are known
 * @model:      object: name, family (may be absent), n_layers, layer_tensors and other_tensors
 *        (name -> dimensions)
 * @item_bytes: bytes of every element: 2 or 4
 * @ret_layout: written only on success; undo with mm_layout_done()
 *
 * Return: 0; -EBADMSG; -ENOTSUP; -ENOMEM.
 */
int mm_measure_shapes(const json_t *model, uint32_t item_bytes, struct mm_layout *ret_layout,
		      struct mm_why *why);

/* Pages of all groups, each group rounded up by itself. */
uint64_t mm_measure_pages(const struct mm_layout *layout, uint64_t page_bytes);
