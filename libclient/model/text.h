/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_text - reads a small file as a whole
 *
 * Concept:   config.json and the index of shards are text of bounded length, read before they are
 *            parsed.
 * Ownership: the text is the caller's.
 * Threading: any.
 */
#pragma once

#include <stddef.h>

/**
 * mm_text_read() - read a file from its beginning
 * @max:      most bytes; a longer file is refused
 * @ret_text: written only on success; free() it. It is not terminated.
 * @err:      gets what is wrong with the file, which the caller names
 *
 * Return: 0; -EFBIG; -EIO; -ENOMEM.
 */
int mm_text_read(int fd, size_t max, char **ret_text, size_t *ret_bytes, char *err,
		 size_t err_bytes);
