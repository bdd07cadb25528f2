/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/measure.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/model/config.h"
#include "libclient/model/index.h"
#include "libclient/model/text.h"

#define INDEX            "model.safetensors.index.json"
#define SUFFIX           ".safetensors"
#define TENSOR_BYTES_MAX (UINT64_C(1) << 44) /* as for a file, so that no sum can wrap */

/* ---- from a folder ---- */

struct folder {
	size_t n;
	struct mm_safetensors st[MM_LOAD_FILES_MAX];
	char *names[MM_LOAD_FILES_MAX];
};

static void folder_done(struct folder **folder)
{
	for (size_t i = 0; *folder && i < (*folder)->n; i++) {
		mm_safetensors_done(&(*folder)->st[i]);
		free((*folder)->names[i]);
	}
	free(*folder);
}

static int folder_open_file(DIR *dir, const char *name, int *ret_fd, struct mm_why *why)
{
	*ret_fd = openat(dirfd(dir), name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return *ret_fd < 0 ? mm_refuse(why, -errno, "%s: %s", name, strerror(errno)) : 0;
}

static int folder_add_file(struct folder *folder, DIR *dir, const char *name, struct mm_why *why)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	char err[160];
	int r;

	if (folder->n == MM_LOAD_FILES_MAX)
		return mm_refuse(why, -E2BIG, "more than %d files", MM_LOAD_FILES_MAX);
	r = folder_open_file(dir, name, &fd, why);
	if (r < 0)
		return r;
	r = mm_safetensors_read(fd, &folder->st[folder->n], err, sizeof(err));
	if (r < 0)
		return mm_refuse(why, r, "%s: %s", name, err);
	folder->names[folder->n] = strdup(name);
	if (!folder->names[folder->n++])
		return mm_refuse(why, -ENOMEM, "out of memory");
	return 0;
}

static int file_name_compare(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Collects the files that @map names, each once, sorted. */
static int index_collect_files(const json_t *map, const char **ret_names, size_t *ret_n,
			       struct mm_why *why)
{
	const char *tensor, *file;
	json_t *value;
	size_t i;

	json_object_foreach((json_t *)(uintptr_t)map, tensor, value) {
		file = json_string_value(value);
		if (!file || !*file || strchr(file, '/'))
			return mm_refuse(why, -EBADMSG,
					 INDEX ": tensor %.80s: no file without a path is named",
					 tensor);
		for (i = 0; i < *ret_n && strcmp(ret_names[i], file) != 0; i++)
			;
		if (i < *ret_n)
			continue;
		if (i == MM_LOAD_FILES_MAX)
			return mm_refuse(why, -E2BIG, INDEX ": more than %d files",
					 MM_LOAD_FILES_MAX);
		ret_names[(*ret_n)++] = file;
	}
	qsort(ret_names, *ret_n, sizeof(ret_names[0]), file_name_compare);
	return 0;
}

/*
 * As in libclient and load: with an index, the model is the files that it names, and they must
 * agree with it.
 */
static int folder_add_named(struct folder *folder, DIR *dir, int index_fd, struct mm_why *why)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	mm_cleanup(mm_json_done) json_t *root = NULL;
	const char *names[MM_LOAD_FILES_MAX];
	size_t n = 0, bytes = 0;
	char err[sizeof(why->text)];
	int r = mm_text_read(index_fd, MM_INDEX_BYTES_MAX, &text, &bytes, err, sizeof(err));

	if (r < 0)
		return mm_refuse(why, r, INDEX ": %s", err);
	root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
	r = index_collect_files(json_object_get(root, "weight_map"), names, &n, why);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = folder_add_file(folder, dir, names[i], why);
	/* Refuses also what is wrong with the index itself. */
	return r < 0 ? r
		     : mm_index_check(text, bytes, INDEX,
				      &(struct mm_shards){ folder->st, names, n }, why);
}

static int folder_read(DIR *dir, struct folder *folder, uint32_t *ret_layers, struct mm_why *why)
{
	mm_cleanup(mm_close_fd) int fd = -1;
	mm_cleanup(mm_close_fd) int index_fd = -1;
	struct mm_model_config config;
	const struct dirent *entry;
	int r, index;

	r = folder_open_file(dir, "config.json", &fd, why);
	if (r == 0)
		r = mm_model_config_read(fd, "config.json", &config, why);
	if (r < 0)
		return r;
	index = folder_open_file(dir, INDEX, &index_fd, why);
	if (index < 0 && index != -ENOENT)
		return index;
	if (index == 0)
		r = folder_add_named(folder, dir, index_fd, why);
	while (index < 0 && r == 0 && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);

		if (len > strlen(SUFFIX) &&
		    strcmp(entry->d_name + len - strlen(SUFFIX), SUFFIX) == 0)
			r = folder_add_file(folder, dir, entry->d_name, why);
	}
	if (r < 0)
		return r;
	if (folder->n == 0)
		return mm_refuse(why, -ENOENT, "no *" SUFFIX " in there");
	*ret_layers = config.layers;
	return 0;
}

int mm_measure_folder(const char *path, struct mm_layout *ret_layout, struct mm_why *why)
{
	mm_cleanup(folder_done) struct folder *folder = calloc(1, sizeof(*folder));
	mm_cleanup(mm_close_dir) DIR *dir = opendir(path);
	struct mm_model_parts parts = { 0 };
	int r;

	if (!dir)
		return mm_refuse(why, -errno, "cannot open: %s", strerror(errno));
	if (!folder)
		return mm_refuse(why, -ENOMEM, "out of memory");
	r = folder_read(dir, folder, &parts.layers, why);
	if (r < 0)
		return r;
	parts.st = folder->st;
	parts.names = (const char *const *)folder->names;
	parts.n_files = folder->n;
	return mm_layout_make(&parts, ret_layout, why);
}

/* ---- from shapes ---- */

struct shapes {
	struct mm_safetensors st;
	uint32_t item_bytes;
	uint64_t at; /* the tensors lie one after the other, as if in one file */
	struct mm_why *why;
};

static int shapes_put_shape(struct shapes *s, struct mm_st_tensor *t, const json_t *shape)
{
	size_t rank = json_array_size(shape);

	if (!json_is_array(shape) || rank > 4)
		return mm_refuse(s->why, -EBADMSG, "%s: not an array of at most 4 dimensions",
				 t->name);
	t->bytes = s->item_bytes;
	for (size_t i = 0; i < rank; i++) {
		if (!mm_json_is_whole(json_array_get(shape, i), 1, INT64_MAX, &t->shape[i]))
			return mm_refuse(s->why, -EBADMSG, "%s: dimension %zu is not above 0",
					 t->name, i);
		if (__builtin_mul_overflow(t->bytes, t->shape[i], &t->bytes) ||
		    t->bytes > TENSOR_BYTES_MAX)
			return mm_refuse(s->why, -EBADMSG, "%s: larger than 16 TiB", t->name);
	}
	t->rank = (uint32_t)rank;
	t->dtype = s->item_bytes == 4 ? MM_DTYPE_F32 : MM_DTYPE_F16;
	t->file_offset = s->at;
	s->at += t->bytes;
	return 0;
}

/* @layer: -1 for tensors that belong to no layer. */
static int shapes_put_tensors(struct shapes *s, const json_t *tensors, int64_t layer)
{
	const char *name;
	json_t *shape;

	json_object_foreach((json_t *)(uintptr_t)tensors, name, shape) {
		struct mm_st_tensor *t = &s->st.tensors[s->st.n_tensors++];
		int len, r;

		if (layer < 0)
			len = snprintf(t->name, sizeof(t->name), "%s", name);
		else
			len = snprintf(t->name, sizeof(t->name), "layers.%lld.%s", (long long)layer,
				       name);
		if (len < 1 || (size_t)len >= sizeof(t->name))
			return mm_refuse(s->why, -EBADMSG,
					 "%.40s: a tensor's name has 1 to %zu bytes", name,
					 sizeof(t->name) - 1);
		r = shapes_put_shape(s, t, shape);
		if (r < 0)
			return r;
	}
	return 0;
}

static int shapes_put_model(struct shapes *s, const json_t *layer, const json_t *other,
			    uint32_t layers)
{
	uint64_t n = layers * json_object_size(layer) + json_object_size(other);
	int r = 0;

	if (n > MM_TENSORS_MAX)
		return mm_refuse(s->why, -ENOTSUP, "%llu tensors, at most %d are served",
				 (unsigned long long)n, MM_TENSORS_MAX);
	s->st.tensors = calloc(n + 1, sizeof(*s->st.tensors));
	if (!s->st.tensors)
		return mm_refuse(s->why, -ENOMEM, "out of memory");
	for (uint32_t l = 0; r == 0 && l < layers; l++)
		r = shapes_put_tensors(s, layer, l);
	return r < 0 ? r : shapes_put_tensors(s, other, -1);
}

/* The string will be shown on a terminal. */
static bool text_is_printable(const json_t *value)
{
	const char *text = json_string_value(value);

	if (!text || !*text)
		return false;
	for (const char *c = text; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			return false;
	return true;
}

int mm_measure_shapes(const json_t *model, uint32_t item_bytes, struct mm_layout *ret_layout,
		      struct mm_why *why)
{
	uint64_t layers;
	const json_t *layer = json_object_get(model, "layer_tensors");
	const json_t *other = json_object_get(model, "other_tensors");
	const json_t *family = json_object_get(model, "family");
	struct shapes s = { .item_bytes = item_bytes, .why = why };
	const char *name = json_string_value(json_object_get(model, "name"));
	struct mm_model_parts parts = { .st = &s.st, .names = &name, .n_files = 1 };
	int r;

	if (!text_is_printable(json_object_get(model, "name")))
		return mm_refuse(why, -EBADMSG, "no name, or it is not a printable string");
	if (family && !text_is_printable(family))
		return mm_refuse(why, -EBADMSG, "%s: family is not a printable string", name);
	if (!json_is_object(layer) || !json_is_object(other))
		return mm_refuse(why, -EBADMSG,
				 "%s: layer_tensors and other_tensors must be objects", name);
	if (!mm_json_is_whole(json_object_get(model, "n_layers"), 1, MM_LAYERS_MAX, &layers))
		return mm_refuse(why, -EBADMSG, "%s: n_layers must be 1 to %d", name,
				 MM_LAYERS_MAX);
	parts.layers = (uint32_t)layers;
	r = shapes_put_model(&s, layer, other, parts.layers);
	if (r == 0)
		r = mm_layout_make(&parts, ret_layout, why);
	mm_safetensors_done(&s.st);
	return r;
}

uint64_t mm_measure_pages(const struct mm_layout *layout, uint64_t page_bytes)
{
	uint64_t pages = 0;

	for (uint32_t g = 0; g < layout->dir.n_groups; g++)
		pages += mm_div_up(layout->groups[g].bytes, page_bytes);
	return pages;
}
