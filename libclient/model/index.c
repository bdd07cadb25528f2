/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/support/json.h"
#include "libclient/model/text.h"

struct index_check {
	const char *name; /* name of the index file */
	const struct mm_shards *shards;
	json_t *map;
	bool *named; /* by shard: the map names it */
	struct mm_why *why;
};

static int index_load_json(const char *json, size_t bytes, const char *name, json_t **ret_root,
			   struct mm_why *why)
{
	const json_t *metadata, *size;
	char err[sizeof(why->text)];
	int r = mm_json_parse(json, bytes, ret_root, err, sizeof(err));

	if (r < 0)
		return mm_refuse(why, r, "%s: %s", name, err);
	if (!json_is_object(json_object_get(*ret_root, "weight_map")))
		return mm_refuse(why, -EBADMSG, "%s: no weight_map, or it is not an object", name);
	metadata = json_object_get(*ret_root, "metadata");
	size = json_object_get(metadata, "total_size");
	if ((metadata && !json_is_object(metadata)) || (size && !json_is_number(size)))
		return mm_refuse(why, -EBADMSG,
				 "%s: metadata is not an object with a number total_size", name);
	return 0;
}

/*
 * Refuses a path: it would lead out of the model's folder. Only libclient opens files by these
 * names.
 */
static bool file_name_is_valid(const char *file)
{
	size_t len = strlen(file);

	if (len == 0 || len >= MM_FILE_NAME_BYTES || !strcmp(file, ".") || !strcmp(file, ".."))
		return false;
	for (size_t i = 0; i < len; i++)
		if (file[i] < 0x20 || file[i] > 0x7e || file[i] == '/')
			return false;
	return true;
}

static int shard_compare_key(const void *key, const void *element)
{
	return strcmp(key, *(const char *const *)element);
}

static const char *const *shard_find(const struct mm_shards *shards, const char *file)
{
	return bsearch(file, shards->names, shards->n, sizeof(shards->names[0]), shard_compare_key);
}

static int tensor_compare_key(const void *key, const void *element)
{
	return strcmp(key, ((const struct mm_st_tensor *)element)->name);
}

static bool shard_has_tensor(const struct mm_safetensors *st, const char *tensor)
{
	return bsearch(tensor, st->tensors, st->n_tensors, sizeof(*st->tensors),
		       tensor_compare_key);
}

static int index_check_entry(struct index_check *c, const char *tensor, const json_t *value)
{
	const char *file = json_string_value(value);
	const char *const *shard;
	size_t i;

	if (!file || !file_name_is_valid(file))
		return mm_refuse(c->why, -EBADMSG,
				 "%s: tensor %.80s: %.40s is not the name of a file without a path",
				 c->name, tensor, file ? file : "what it names");
	shard = shard_find(c->shards, file);
	if (!shard)
		return mm_refuse(c->why, -EBADMSG,
				 "%s: tensor %.80s is in %.80s, which was not passed: a shard is "
				 "missing",
				 c->name, tensor, file);
	i = (size_t)(shard - c->shards->names);
	if (!shard_has_tensor(&c->shards->st[i], tensor))
		return mm_refuse(c->why, -EBADMSG, "%.80s: has no tensor %.80s, though %s says so",
				 file, tensor, c->name);
	c->named[i] = true;
	return 0;
}

/* Every entry of the map was found, so a tensor without an entry is in the files only. */
static int index_check_shard(const struct index_check *c, size_t i)
{
	const struct mm_safetensors *st = &c->shards->st[i];

	if (!c->named[i])
		return mm_refuse(c->why, -EBADMSG, "%s: is not in %s", c->shards->names[i],
				 c->name);
	for (size_t t = 0; t < st->n_tensors; t++) {
		const char *tensor = st->tensors[t].name;
		const char *file = json_string_value(json_object_get(c->map, tensor));

		if (!file)
			return mm_refuse(c->why, -EBADMSG, "%s: tensor %s is not in %s",
					 c->shards->names[i], tensor, c->name);
		if (strcmp(file, c->shards->names[i]) != 0)
			return mm_refuse(c->why, -EBADMSG, "%s: tensor %s is in %.80s too",
					 c->shards->names[i], tensor, file);
	}
	return 0;
}

static int index_check(struct index_check *c)
{
	const char *tensor;
	json_t *value;
	int r = 0;

	if (json_object_size(c->map) > MM_TENSORS_MAX)
		return mm_refuse(c->why, -ENOTSUP, "%s: %zu tensors, at most %d are served",
				 c->name, json_object_size(c->map), MM_TENSORS_MAX);
	json_object_foreach(c->map, tensor, value) {
		r = index_check_entry(c, tensor, value);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; r == 0 && i < c->shards->n; i++)
		r = index_check_shard(c, i);
	return r;
}

int mm_index_check(const char *json, size_t bytes, const char *name, const struct mm_shards *shards,
		   struct mm_why *why)
{
	mm_cleanup(mm_json_done) json_t *root = NULL;
	mm_cleanup(mm_free_ptr) bool *named = calloc(shards->n + 1, sizeof(*named));
	struct index_check c = { .name = name, .shards = shards, .named = named, .why = why };
	int r;

	if (!named)
		return mm_refuse(why, -ENOMEM, "%s: no memory", name);
	r = index_load_json(json, bytes, name, &root, why);
	if (r < 0)
		return r;
	c.map = json_object_get(root, "weight_map");
	return index_check(&c);
}

int mm_index_read(int fd, const char *name, const struct mm_shards *shards, struct mm_why *why)
{
	mm_cleanup(mm_free_ptr) char *text = NULL;
	size_t bytes;
	char err[sizeof(why->text)];
	int r = mm_text_read(fd, MM_INDEX_BYTES_MAX, &text, &bytes, err, sizeof(err));

	if (r < 0)
		return mm_refuse(why, r, "%s: %s", name, err);
	return mm_index_check(text, bytes, name, shards, why);
}
