/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_text - a small file as a whole
 *
 * Concept: config.json and a shards' index are text of bounded length, read before they are parsed.
 */
#pragma once

#include <stddef.h>

#include "libclient/model/why.h"

/**
 * mm_text_read() - read a file from its beginning
 * @name:     for the refusal
 * @max:      bytes; a longer file is refused
 * @ret_text: written only on success; free() it. Not terminated.
 *
 * Return: 0; -EFBIG; -EIO; -ENOMEM.
 */
int mm_text_read(int fd, const char *name, size_t max, char **ret_text, size_t *ret_bytes,
		 struct mm_why *why);
