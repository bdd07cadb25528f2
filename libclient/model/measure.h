/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_measure - what a model will take, before anybody loads it
 *
 * Concept: the layout that load would make, from a folder's headers or from shapes alone; no
 *          weights are read. For tools: it opens files with the caller's own rights.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "libclient/model/layout.h"
#include "libclient/model/why.h"

/**
 * mm_measure_folder() - the layout of a model in Hugging Face layout
 * @path:       of the folder: config.json and *.safetensors
 * @ret_layout: written only on success; give back with mm_layout_done()
 *
 * With an index of shards the files that it names count, else all *.safetensors: as load takes
 * them.
 * Return: 0; a refusal as load's; errno of opening.
 */
int mm_measure_folder(const char *path, struct mm_layout *ret_layout, struct mm_why *why);

/**
 * mm_measure_shapes() - the layout of a model that is known by its shapes
 * @model:      object: name, family (may be absent), n_layers, layer_tensors and other_tensors
 *        (name -> dimensions)
 * @item_bytes: 2 or 4: of every element
 * @ret_layout: written only on success; give back with mm_layout_done()
 *
 * Return: 0; -EBADMSG; -ENOTSUP; -ENOMEM.
 */
int mm_measure_shapes(const json_t *model, uint32_t item_bytes, struct mm_layout *ret_layout,
		      struct mm_why *why);

/* Pages of all groups, each rounded up by itself. */
uint64_t mm_measure_pages(const struct mm_layout *layout, uint64_t page_bytes);
