/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/load/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_LAYER   UINT32_MAX
#define HEAD_ALIGN 64

/* ---- names ---- */

/* The number between @prefix and the next dot: plain decimal, so that no layer has two names. */
static uint32_t number_after(const char *at)
{
	uint32_t value = 0;
	size_t digits = 0;

	for (; at[digits] >= '0' && at[digits] <= '9'; digits++) {
		if (digits == 9)
			return NO_LAYER;
		value = value * 10 + (uint32_t)(at[digits] - '0');
	}
	if (digits == 0 || at[digits] != '.' || (digits > 1 && at[0] == '0'))
		return NO_LAYER;
	return value;
}

/* The layer that a tensor belongs to: of the first component `layers.<n>.` or `h.<n>.`. */
static uint32_t layer_of(const char *name)
{
	for (const char *at = name; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
		uint32_t layer = NO_LAYER;

		if (strncmp(at, "layers.", strlen("layers.")) == 0)
			layer = number_after(at + strlen("layers."));
		else if (strncmp(at, "h.", strlen("h.")) == 0)
			layer = number_after(at + strlen("h."));
		if (layer != NO_LAYER)
			return layer;
	}
	return NO_LAYER;
}

uint32_t mm_layout_group(const char *name, uint32_t rank)
{
	uint32_t layer = layer_of(name);

	return layer == NO_LAYER || rank < 2 ? 0 : 1 + layer;
}

/* ---- placing ---- */

struct source { /* a tensor and the file it is in */
	const struct mm_st_tensor *tensor;
	uint32_t file;
};

static int by_name(const void *a, const void *b)
{
	const struct source *x = a, *y = b;

	return strcmp(x->tensor->name, y->tensor->name);
}

static int by_place(const void *a, const void *b)
{
	const struct mm_placed *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->file_offset != y->file_offset)
		return x->file_offset < y->file_offset ? -1 : 1;
	return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int collect(const struct mm_safetensors *st, const char *const *file_names, size_t n_files,
		   struct source *sources, struct mm_why *why)
{
	size_t n = 0;

	for (size_t f = 0; f < n_files; f++)
		for (size_t i = 0; i < st[f].n_tensors; i++)
			sources[n++] = (struct source){ &st[f].tensors[i], (uint32_t)f };
	qsort(sources, n, sizeof(*sources), by_name);
	for (size_t i = 1; i < n; i++)
		if (strcmp(sources[i - 1].tensor->name, sources[i].tensor->name) == 0)
			return mm_refuse(why, -EBADMSG, "%s: tensor %s is in %s too",
					 file_names[sources[i].file], sources[i].tensor->name,
					 file_names[sources[i - 1].file]);
	return 0;
}

static int check_layers(const struct source *sources, size_t n, uint32_t layers, struct mm_why *why)
{
	bool seen[MM_LAYERS_MAX] = { false };

	for (size_t i = 0; i < n; i++) {
		const struct mm_st_tensor *t = sources[i].tensor;
		uint32_t layer = layer_of(t->name);

		if (layer == NO_LAYER)
			continue;
		if (layer >= layers)
			return mm_refuse(why, -EBADMSG,
					 "tensor %s: is of layer %u, config.json says "
					 "num_hidden_layers %u",
					 t->name, layer, layers);
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

static void place(struct mm_layout *layout, const struct source *sources)
{
	for (uint32_t i = 0; i < layout->dir.n_tensors; i++) {
		const struct mm_st_tensor *t = sources[i].tensor;
		uint32_t group = mm_layout_group(t->name, t->rank);
		struct mm_dir_tensor *entry = &layout->tensors[i];

		*entry = (struct mm_dir_tensor){
			.group = group,
			.dtype = (uint16_t)t->dtype,
			.rank = (uint16_t)t->rank,
			.offset = mm_round_up(layout->groups[group].bytes, MM_TENSOR_ALIGN),
			.bytes = t->bytes,
		};
		memcpy(entry->name, t->name, sizeof(entry->name));
		memcpy(entry->shape, t->shape, sizeof(entry->shape));
		layout->groups[group].bytes = entry->offset + entry->bytes;
		layout->placed[i] = (struct mm_placed){ .file_offset = t->file_offset,
							.bytes = t->bytes,
							.file = sources[i].file };
	}
}

/* Groups one after the other behind the directory; then every tensor's place in the store. */
static void place_groups(struct mm_layout *layout)
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
	for (uint32_t i = 0; i < dir->n_tensors; i++)
		layout->placed[i].store_offset =
			layout->groups[layout->tensors[i].group].store_offset +
			layout->tensors[i].offset;
}

static int fill(struct mm_layout *layout, const struct mm_safetensors *st,
		const char *const *file_names, size_t n_files, uint32_t layers, struct mm_why *why)
{
	size_t n = layout->dir.n_tensors;
	mm_cleanup(mm_free_ptr) struct source *sources = calloc(n + 1, sizeof(*sources));
	int rc;

	layout->groups = calloc(layout->dir.n_groups, sizeof(*layout->groups));
	layout->tensors = calloc(n + 1, sizeof(*layout->tensors));
	layout->placed = calloc(n + 1, sizeof(*layout->placed));
	if (!sources || !layout->groups || !layout->tensors || !layout->placed ||
	    mm_fault("load.layout"))
		return mm_refuse(why, -ENOMEM, "no memory for the directory of %zu tensors", n);
	rc = collect(st, file_names, n_files, sources, why);
	if (rc == 0)
		rc = check_layers(sources, n, layers, why);
	if (rc < 0)
		return rc;
	place(layout, sources);
	place_groups(layout);
	qsort(layout->placed, n, sizeof(*layout->placed), by_place);
	return 0;
}

int mm_layout_make(const struct mm_safetensors *st, const char *const *file_names, size_t n_files,
		   uint32_t layers, struct mm_layout *ret_layout, struct mm_why *why)
{
	mm_cleanup(mm_layout_done) struct mm_layout layout = { 0 };
	size_t n = 0;
	int rc;

	for (size_t f = 0; f < n_files; f++)
		n += st[f].n_tensors;
	if (n > MM_TENSORS_MAX)
		return mm_refuse(why, -ENOTSUP, "%zu tensors, at most %d are served", n,
				 MM_TENSORS_MAX);
	layout.dir = (struct mm_dir){ .magic = MM_DIR_MAGIC,
				      .version = MM_STORE_VERSION,
				      .n_groups = 1 + layers,
				      .n_tensors = (uint32_t)n };
	rc = fill(&layout, st, file_names, n_files, layers, why);
	if (rc < 0)
		return rc;
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
