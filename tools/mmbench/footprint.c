/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmbench/footprint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>

#include "mm/abi.h"
#include "mm/base.h"

#define HEADER_BYTES_MAX (UINT64_C(100) << 20)

struct sum {
	uint64_t resident_bytes;
	uint64_t layer_bytes[MM_LAYERS_MAX];
};

static void close_dir(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static void json_put(json_t **json)
{
	json_decref(*json);
}

static void close_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

/* The layer whose pages a tensor is in, or -1: embeddings, head, norms, biases. */
static int layer_of(const char *name, const json_t *tensor)
{
	const char *layers = strstr(name, "layers.");
	unsigned int layer;

	if (!layers || sscanf(layers, "layers.%u.", &layer) != 1 || layer >= MM_LAYERS_MAX)
		return -1;
	return json_array_size(json_object_get(tensor, "shape")) < 2 ? -1 : (int)layer;
}

static int add_tensor(struct sum *sum, const char *name, const json_t *tensor)
{
	const json_t *offsets = json_object_get(tensor, "data_offsets");
	json_int_t begin = json_integer_value(json_array_get(offsets, 0));
	json_int_t end = json_integer_value(json_array_get(offsets, 1));
	int layer = layer_of(name, tensor);
	uint64_t bytes;

	if (begin < 0 || end < begin)
		return -EBADMSG;
	bytes = mm_round_up((uint64_t)(end - begin), MM_TENSOR_ALIGN);
	if (layer < 0)
		sum->resident_bytes += bytes;
	else
		sum->layer_bytes[layer] += bytes;
	return 0;
}

/* NULL: not read, or not JSON. */
static json_t *read_header(FILE *file)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	uint64_t bytes;

	if (fread(&bytes, sizeof(bytes), 1, file) != 1 || bytes > HEADER_BYTES_MAX)
		return NULL;
	text = malloc(bytes);
	if (!text || fread(text, 1, bytes, file) != bytes)
		return NULL;
	return json_loadb(text, bytes, 0, NULL);
}

static int add_file(struct sum *sum, int dir_fd, const char *name, char *errbuf,
		    size_t errbuf_bytes)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	mm_cleanup(close_file) FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	mm_cleanup(json_put) json_t *header = NULL;
	const char *key;
	json_t *tensor;

	if (!file) {
		snprintf(errbuf, errbuf_bytes, "%s: cannot open: %m", name);
		return -errno;
	}
	header = read_header(file);
	if (!json_is_object(header)) {
		snprintf(errbuf, errbuf_bytes, "%s: no safetensors header", name);
		return -EBADMSG;
	}
	json_object_foreach (header, key, tensor) {
		if (strcmp(key, "__metadata__") && add_tensor(sum, key, tensor) < 0) {
			snprintf(errbuf, errbuf_bytes, "%s: tensor '%.100s': bad data_offsets",
				 name, key);
			return -EBADMSG;
		}
	}
	return 0;
}

static int add_files(struct sum *sum, DIR *dir, char *errbuf, size_t errbuf_bytes)
{
	const char suffix[] = ".safetensors";
	const struct dirent *entry;
	int files = 0;

	while ((entry = readdir(dir))) {
		size_t length = strlen(entry->d_name);
		int err;

		if (length < sizeof(suffix) ||
		    strcmp(entry->d_name + length - (sizeof(suffix) - 1), suffix))
			continue;
		err = add_file(sum, dirfd(dir), entry->d_name, errbuf, errbuf_bytes);
		if (err)
			return err;
		files++;
	}
	return files;
}

int mm_footprint(const char *path, uint64_t page_bytes, uint64_t *ret_pages, char *errbuf,
		 size_t errbuf_bytes)
{
	mm_cleanup(close_dir) DIR *dir = opendir(path);
	mm_cleanup(mm_free_ptr) struct sum *sum = calloc(1, sizeof(*sum));
	char why[200] = "";
	uint64_t pages;
	int files;

	if (!sum)
		return -ENOMEM;
	if (!dir) {
		snprintf(errbuf, errbuf_bytes, "model %s: cannot open: %m", path);
		return -errno;
	}
	files = add_files(sum, dir, why, sizeof(why));
	if (files < 0) {
		snprintf(errbuf, errbuf_bytes, "model %s/%s", path, why);
		return files;
	}
	if (!files) {
		snprintf(errbuf, errbuf_bytes, "model %s: no .safetensors file in it", path);
		return -ENOENT;
	}
	pages = mm_div_up(sum->resident_bytes, page_bytes);
	for (int layer = 0; layer < MM_LAYERS_MAX; layer++)
		pages += mm_div_up(sum->layer_bytes[layer], page_bytes);
	*ret_pages = pages;
	return 0;
}
