/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define FILE_BYTES_MAX (MM_KEYS_MAX * (MM_KEY_BYTES_MAX + 2))

static int keys_fail(char *err, size_t bytes, int error, const char *path, const char *why)
{
	snprintf(err, bytes, "--api-keys %.200s: %s", path, why);
	return error;
}

int mm_keys_read(const char *path, struct mm_keys *ret_keys, char *err, size_t err_bytes)
{
	mm_cleanup(mm_close_file) FILE *file = fopen(path, "re");
	mm_cleanup(mm_keys_done) struct mm_keys keys = { 0 };
	char *rest;
	size_t n;

	if (!file)
		return keys_fail(err, err_bytes, -errno, path, strerror(errno));
	keys.text = calloc(1, FILE_BYTES_MAX + 1);
	if (!keys.text)
		return keys_fail(err, err_bytes, -ENOMEM, path, "out of memory");
	n = fread(keys.text, 1, FILE_BYTES_MAX, file);
	if (ferror(file) || !feof(file) || memchr(keys.text, 0, n))
		return keys_fail(err, err_bytes, -EBADMSG, path,
				 "must be a text of at most 64 keys, one in a line");
	for (char *key = strtok_r(keys.text, "\r\n", &rest); key;
	     key = strtok_r(NULL, "\r\n", &rest)) {
		if (keys.n == MM_KEYS_MAX || strlen(key) > MM_KEY_BYTES_MAX || strpbrk(key, " \t"))
			return keys_fail(
				err, err_bytes, -EBADMSG, path,
				"has more than 64 keys, or one with blanks or more than 255 "
				"bytes");
		keys.all[keys.n++] = key;
	}
	if (!keys.n)
		return keys_fail(err, err_bytes, -EBADMSG, path, "has no key");
	*ret_keys = keys;
	keys = (struct mm_keys){ 0 };
	return 0;
}

void mm_keys_done(struct mm_keys *keys)
{
	free(keys->text);
	*keys = (struct mm_keys){ 0 };
}

/* Return: 0 if they are equal. It takes as long for each @given. */
static unsigned int key_difference(const char *key, const char *given, size_t given_bytes)
{
	const size_t bytes = strlen(key);
	volatile unsigned int difference = bytes != given_bytes;

	for (size_t i = 0; i < MM_KEY_BYTES_MAX; i++)
		difference |= (unsigned int)(key[i % (bytes + 1)] ^ given[i % (given_bytes + 1)]);
	return difference;
}

bool mm_keys_allow(const struct mm_keys *keys, const char *authorization)
{
	static const char scheme[] = "Bearer ";
	const char *given = authorization ? authorization : "";
	bool allowed = !keys->n;
	size_t bytes;

	if (!strncasecmp(given, scheme, sizeof(scheme) - 1))
		given += sizeof(scheme) - 1;
	else
		given = "";
	bytes = strnlen(given, MM_KEY_BYTES_MAX + 1);
	if (bytes > MM_KEY_BYTES_MAX)
		return allowed;
	for (size_t i = 0; i < keys->n; i++)
		allowed |= !key_difference(keys->all[i], given, bytes);
	return allowed;
}
