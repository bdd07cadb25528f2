/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/text/folder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"

/* Return: the object in a file; NULL: there is none that can be read. */
static json_t *folder_read(const char *dir, const char *file)
{
	char path[PATH_MAX], err[512];
	struct mm_json_reader reader = { .path = path, .err = err, .err_bytes = sizeof(err) };
	json_t *root;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path) ||
	    access(path, R_OK) != 0 || mm_json_read_file(&reader, &root))
		return NULL;
	return root;
}

static uint32_t ends_of(const json_t *ends, uint32_t vocab, uint32_t *ret_ids, uint32_t max)
{
	const size_t n = json_is_array(ends) ? json_array_size(ends) : 1;
	uint32_t found = 0;

	for (size_t i = 0; i < n && found < max; i++) {
		const json_t *end = json_is_array(ends) ? json_array_get(ends, i) : ends;
		uint64_t id;

		if (mm_json_is_whole(end, 0, vocab - 1, &id))
			ret_ids[found++] = (uint32_t)id;
	}
	return found;
}

uint32_t mm_folder_ends(const char *dir, uint32_t vocab, uint32_t *ret_ids, uint32_t max)
{
	static const char *const files[] = { "generation_config.json", "config.json" };
	uint32_t n = 0;

	for (size_t i = 0; i < MM_ARRAY_SIZE(files) && !n; i++) {
		mm_cleanup(mm_json_done) json_t *root = folder_read(dir, files[i]);

		n = ends_of(json_object_get(root, "eos_token_id"), vocab, ret_ids, max);
	}
	return n;
}

bool mm_folder_has_template(const char *dir)
{
	mm_cleanup(mm_json_done) json_t *root = folder_read(dir, "tokenizer_config.json");
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/chat_template.jinja", dir) < (int)sizeof(path) &&
	    access(path, F_OK) == 0)
		return true;
	return mm_json_has(root, "chat_template");
}

const char *mm_folder_name(const char *dir, char *out, uint32_t out_bytes)
{
	char path[PATH_MAX];
	const char *begin;
	size_t n;

	/* "." and the like have no name of their own. */
	if (!realpath(dir, path))
		snprintf(path, sizeof(path), "%s", dir);
	n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	begin = strrchr(path, '/');
	snprintf(out, out_bytes, "%s", begin && begin[1] ? begin + 1 : path);
	return out;
}
