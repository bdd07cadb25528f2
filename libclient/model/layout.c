/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/dtype.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"
#include "libclient/model/bundle.h"
#include "libclient/model/names.h"

#define HEAD_ALIGN 64

uint32_t mm_layout_group(const char *name, uint32_t rank)
{
	uint32_t layer = mm_name_layer(name, NULL);

	return layer == MM_NO_LAYER || rank < 2 ? 0 : 1 + layer;
}

/* ---- collecting ---- */

static int source_compare(const void *a, const void *b)
{
	const struct mm_bundle_source *x = a, *y = b;

	return strcmp(x->tensor->name, y->tensor->name);
}

static int entry_compare_name(const void *a, const void *b)
{
	return strcmp(((const struct mm_dir_tensor *)a)->name,
		      ((const struct mm_dir_tensor *)b)->name);
}

static int placed_compare(const void *a, const void *b)
{
	const struct mm_placed *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->file_offset != y->file_offset)
		return x->file_offset < y->file_offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int sources_collect(const struct mm_model_parts *parts, struct mm_bundle_source *sources,
			   struct mm_why *why)
{
	size_t n = 0;

	for (size_t f = 0; f < parts->n_files; f++)
		for (size_t i = 0; i < parts->st[f].n_tensors; i++)
			sources[n++] = (struct mm_bundle_source){ &parts->st[f].tensors[i],
								  (uint32_t)f, MM_NO_BUNDLE };
	qsort(sources, n, sizeof(*sources), source_compare);
	for (size_t i = 1; i < n; i++)
		if (strcmp(sources[i - 1].tensor->name, sources[i].tensor->name) == 0)
			return mm_refuse(why, -EBADMSG, "%s: tensor %s is in %s too",
					 parts->names[sources[i].file], sources[i].tensor->name,
					 parts->names[sources[i - 1].file]);
	return 0;
}

/*
 * Refuses a second stack of layers: gates are per layer, and layer 0 of an encoder and of a decoder
 * would share one, for two uses in a step.
 */
static int stack_check(const struct mm_st_tensor *first, const struct mm_st_tensor *t,
		       struct mm_why *why)
{
	size_t a = 0, b = 0;

	mm_name_layer(first->name, &a);
	mm_name_layer(t->name, &b);
	if (a == b && memcmp(first->name, t->name, a) == 0)
		return 0;
	return mm_refuse(why, -ENOTSUP,
			 "tensors %s and %s: two stacks of layers, models with one are served",
			 first->name, t->name);
}

static int layers_check(const struct mm_bundle_source *sources, size_t n, uint32_t layers,
			struct mm_why *why)
{
	const struct mm_st_tensor *first = NULL;
	bool seen[MM_LAYERS_MAX] = { false };

	for (size_t i = 0; i < n; i++) {
		const struct mm_st_tensor *t = sources[i].tensor;
		uint32_t layer = mm_name_layer(t->name, NULL);
		int r;

		if (layer == MM_NO_LAYER)
			continue;
		if (layer >= layers)
			return mm_refuse(why, -EBADMSG,
					 "tensor %s: is of layer %u, config.json says "
					 "num_hidden_layers %u",
					 t->name, layer, layers);
		first = first ? first : t;
		r = stack_check(first, t, why);
		if (r < 0)
			return r;
		seen[layer] |= t->rank >= 2 && t->bytes > 0;
	}
	for (uint32_t l = 0; l < layers; l++)
		if (!seen[l])
			return mm_refuse(
				why, -EBADMSG,
				"config.json says num_hidden_layers %u, but layer %u has no "
				"matrix (a tensor layers.%u.* of rank >= 2)",
				layers, l, l);
	return 0;
}

/* ---- placing ---- */

static void tensor_place(struct mm_layout *layout, uint32_t i,
			 const struct mm_bundle_source *source, const struct mm_load_pack *rule,
			 uint64_t offset)
{
	const struct mm_st_tensor *t = source->tensor;
	bool transposed = rule && (rule->flags & MM_PACK_TRANSPOSE);
	struct mm_dir_tensor *entry = &layout->tensors[i];

	*entry = (struct mm_dir_tensor){
		.group = mm_layout_group(t->name, t->rank),
		.dtype = (uint16_t)t->dtype,
		.rank = (uint16_t)t->rank,
		.offset = offset,
		.bytes = t->bytes,
		.flags = (rule ? MM_TENSOR_MEMBER : 0) | (transposed ? MM_TENSOR_TRANSPOSED : 0),
	};
	memcpy(entry->name, t->name, sizeof(entry->name));
	memcpy(entry->shape, t->shape, sizeof(entry->shape));
	if (rule)
		mm_bundle_shape(rule, t, entry->shape);
	layout->placed[i] = (struct mm_placed){
		.file_offset = t->file_offset,
		.bytes = t->bytes,
		.store_offset = offset,
		.file = source->file,
		.group = entry->group,
		.item_bytes = transposed ? mm_dtype_bits(t->dtype) / 8 : 0,
		.rows = transposed ? t->shape[0] : 0,
		.cols = transposed ? t->shape[1] : 0,
	};
	layout->groups[entry->group].bytes = offset + t->bytes;
	layout->tensor_bytes += t->bytes;
}

static uint64_t group_next_offset(const struct mm_layout *layout,
				  const struct mm_bundle_source *source)
{
	uint32_t group = mm_layout_group(source->tensor->name, source->tensor->rank);

	return mm_round_up(layout->groups[group].bytes, MM_TENSOR_ALIGN);
}

static void bundle_place(struct mm_layout *layout, struct mm_bundle *bundle,
			 const struct mm_bundle_source *sources)
{
	uint64_t at = group_next_offset(layout, &sources[bundle->member[0]]);

	bundle->offset = at;
	bundle->placed = true;
	for (uint32_t m = 0; m < bundle->rule->n_members; m++) {
		uint32_t i = bundle->member[m];

		tensor_place(layout, i, &sources[i], bundle->rule, at);
		at += sources[i].tensor->bytes;
	}
}

/* Places tensors in order of their names; a bundle at the first of its members by name. */
static void tensors_place(struct mm_layout *layout, const struct mm_bundle_source *sources,
			  const struct mm_bundles *bundles)
{
	for (uint32_t i = 0; i < layout->n_placed; i++) {
		uint32_t b = sources[i].bundle;

		if (b == MM_NO_BUNDLE)
			tensor_place(layout, i, &sources[i], NULL,
				     group_next_offset(layout, &sources[i]));
		else if (!bundles->bundle[b].placed)
			bundle_place(layout, &bundles->bundle[b], sources);
	}
}

/* Adds entries by which packs are found by their own names. */
static int bundles_add_entries(struct mm_layout *layout, const struct mm_bundles *bundles,
			       struct mm_why *why)
{
	uint32_t n = (uint32_t)layout->n_placed;

	for (uint32_t b = 0; b < bundles->count; b++) {
		const struct mm_bundle *bundle = &bundles->bundle[b];
		struct mm_dir_tensor *entry = &layout->tensors[n];

		if (!bundle->name[0])
			continue;
		*entry = layout->tensors[bundle->member[0]];
		memcpy(entry->name, bundle->name, sizeof(entry->name));
		entry->offset = bundle->offset;
		entry->bytes = bundle->bytes;
		entry->shape[0] = bundle->rows;
		entry->flags &= ~MM_TENSOR_MEMBER;
		entry->flags |= MM_TENSOR_PACK;
		n++;
	}
	qsort(layout->tensors, n, sizeof(*layout->tensors), entry_compare_name);
	for (uint32_t i = 1; i < n; i++)
		if (strcmp(layout->tensors[i - 1].name, layout->tensors[i].name) == 0)
			return mm_refuse(why, -EINVAL,
					 "pack %s: a tensor or another pack has that name",
					 layout->tensors[i].name);
	return 0;
}

/* Places the groups one after the other behind the directory, then each tensor in the store. */
static void groups_place(struct mm_layout *layout)
{
	struct mm_dir *dir = &layout->dir;
	uint64_t at;

	dir->groups_offset = sizeof(*dir);
	dir->tensors_offset = mm_round_up(
		dir->groups_offset + dir->n_groups * sizeof(*layout->groups), HEAD_ALIGN);
	at = dir->tensors_offset + dir->n_tensors * sizeof(*layout->tensors);
	for (uint32_t g = 0; g < dir->n_groups; g++) {
		at = mm_round_up(at, MM_ABI_PAGE_BYTES);
		layout->groups[g].store_offset = at;
		at += layout->groups[g].bytes;
	}
	dir->store_bytes = mm_round_up(at, MM_ABI_PAGE_BYTES);
	for (size_t i = 0; i < layout->n_placed; i++)
		layout->placed[i].store_offset +=
			layout->groups[layout->placed[i].group].store_offset;
}

/* Allocates the directory, now that the number of named packs is known. */
static int layout_alloc(struct mm_layout *layout, uint32_t named, struct mm_why *why)
{
	size_t n = layout->n_placed + named;

	if (n > MM_TENSORS_MAX)
		return mm_refuse(why, -ENOTSUP, "%zu tensors and packs, at most %d are served", n,
				 MM_TENSORS_MAX);
	layout->dir.n_tensors = (uint32_t)n;
	layout->groups = calloc(layout->dir.n_groups, sizeof(*layout->groups));
	layout->tensors = calloc(n + 1, sizeof(*layout->tensors));
	layout->placed = calloc(layout->n_placed + 1, sizeof(*layout->placed));
	if (!layout->groups || !layout->tensors || !layout->placed || mm_fault("load.layout"))
		return mm_refuse(why, -ENOMEM, "no memory for the directory of %zu tensors", n);
	return 0;
}

static int layout_fill(struct mm_layout *layout, const struct mm_model_parts *parts,
		       struct mm_why *why)
{
	size_t n = layout->n_placed;
	mm_cleanup(mm_free_ptr) struct mm_bundle_source *sources = calloc(n + 1, sizeof(*sources));
	mm_cleanup(mm_bundles_done) struct mm_bundles bundles = { 0 };
	int r;

	if (!sources)
		return mm_refuse(why, -ENOMEM, "no memory for %zu tensors", n);
	r = sources_collect(parts, sources, why);
	if (r == 0)
		r = layers_check(sources, n, parts->layers, why);
	if (r == 0 && parts->packs)
		r = mm_bundles_make(parts->packs, parts->layers, sources, n, &bundles, why);
	if (r == 0)
		r = layout_alloc(layout, bundles.named, why);
	if (r < 0)
		return r;
	tensors_place(layout, sources, &bundles);
	r = bundles_add_entries(layout, &bundles, why);
	if (r < 0)
		return r;
	groups_place(layout);
	qsort(layout->placed, n, sizeof(*layout->placed), placed_compare);
	return 0;
}

int mm_layout_make(const struct mm_model_parts *parts, struct mm_layout *ret_layout,
		   struct mm_why *why)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	size_t n = 0;
	int r;

	for (size_t f = 0; f < parts->n_files; f++)
		n += parts->st[f].n_tensors;
	if (n > MM_TENSORS_MAX)
		return mm_refuse(why, -ENOTSUP, "%zu tensors, at most %d are served", n,
				 MM_TENSORS_MAX);
	layout.n_placed = n;
	layout.dir = (struct mm_dir){ .magic = MM_DIR_MAGIC,
				      .version = MM_STORE_VERSION,
				      .n_groups = 1 + parts->layers };
	r = layout_fill(&layout, parts, why);
	if (r < 0)
		return r;
	*ret_layout = layout;
	layout = (struct mm_layout){ 0 };
	return 0;
}

void mm_layout_write_head(const struct mm_layout *layout, void *store)
{
	const struct mm_dir *dir = &layout->dir;
	char *base = store;

	memcpy(base, dir, sizeof(*dir));
	memcpy(base + dir->groups_offset, layout->groups, dir->n_groups * sizeof(*layout->groups));
	memcpy(base + dir->tensors_offset, layout->tensors,
	       dir->n_tensors * sizeof(*layout->tensors));
}

void mm_layout_done(struct mm_layout *layout)
{
	free(layout->groups);
	free(layout->tensors);
	free(layout->placed);
	*layout = (struct mm_layout){ 0 };
}
