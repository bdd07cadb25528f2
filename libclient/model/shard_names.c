/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/shard_names.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/model/index.h"
#include "libclient/model/text.h"

#define SUFFIX ".safetensors"

struct error {
	char *text;
	size_t bytes;
};

static int shard_names_fail(const struct error *e, int code, const char *format, ...)
	MM_PRINTF(3, 4);

static int shard_names_fail(const struct error *e, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(e->text, e->bytes, format, args);
	va_end(args);
	return code;
}

/* True for a weights file of the folder itself: an index must not lead to any other file. */
static bool name_is_shard(const char *file)
{
	size_t len = strlen(file);

	if (len <= strlen(SUFFIX) || len >= MM_FILE_NAME_BYTES ||
	    strcmp(file + len - strlen(SUFFIX), SUFFIX) != 0)
		return false;
	for (size_t i = 0; i < len; i++)
		if (file[i] < 0x20 || file[i] > 0x7e || file[i] == '/')
			return false;
	return true;
}

/* The position that @file has, or would have. */
static size_t name_place(const struct mm_shard_names *names, const char *file)
{
	size_t i = names->n;

	while (i > 0 && strcmp(names->name[i - 1], file) >= 0)
		i--;
	return i;
}

static int shard_names_add(struct mm_shard_names *names, const char *tensor, const json_t *value,
			   const struct error *e)
{
	const char *file = json_string_value(value);
	size_t at;

	if (!file || !name_is_shard(file))
		return shard_names_fail(
			e, -EBADMSG,
			"tensor %.80s: not the name of a *" SUFFIX " file without a path", tensor);
	at = name_place(names, file);
	if (at < names->n && strcmp(names->name[at], file) == 0)
		return 0;
	if (names->n == MM_LOAD_FILES_MAX)
		return shard_names_fail(e, -E2BIG, "more than %d files", MM_LOAD_FILES_MAX);
	memmove(names->name[at + 1], names->name[at], (names->n - at) * sizeof(names->name[0]));
	memset(names->name[at], 0, sizeof(names->name[at]));
	memcpy(names->name[at], file, strlen(file));
	names->n++;
	return 0;
}

int mm_shard_names_parse(const char *json, size_t bytes, struct mm_shard_names *ret_names,
			 char *err, size_t err_bytes)
{
	const struct error e = { err, err_bytes };
	mm_cleanup(mm_json_done) json_t *root = NULL;
	const char *tensor;
	json_t *map, *value;
	int r;

	ret_names->n = 0;
	r = mm_json_parse(json, bytes, &root, err, err_bytes);
	if (r)
		return r;
	map = json_object_get(root, "weight_map");
	if (!json_is_object(map))
		return shard_names_fail(&e, -EBADMSG, "no weight_map, or it is not an object");
	json_object_foreach(map, tensor, value) {
		r = shard_names_add(ret_names, tensor, value, &e);
		if (r)
			return r;
	}
	return ret_names->n ? 0 : shard_names_fail(&e, -EBADMSG, "weight_map names no file");
}

int mm_shard_names_read(int fd, struct mm_shard_names *ret_names, char *err, size_t err_bytes)
{
	mm_cleanup(mm_free_ptr) char *json = NULL;
	size_t bytes;
	int r = mm_text_read(fd, MM_INDEX_BYTES_MAX, &json, &bytes, err, err_bytes);

	return r < 0 ? r : mm_shard_names_parse(json, bytes, ret_names, err, err_bytes);
}
