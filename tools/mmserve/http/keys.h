/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys - the keys with which a client may use the server
 *
 * Concept:    a file has a key in each line. A request has one of them in its header
 *             "Authorization: Bearer KEY". How long a comparison takes says nothing about the keys.
 * Ownership:  mm_keys_done() frees; zeroed there are none, and every request is let in.
 * Threading:  constant once it is read.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define MM_KEYS_MAX      64u
#define MM_KEY_BYTES_MAX 255u

struct mm_keys {
	char *text; /* the file */
	const char *all[MM_KEYS_MAX];
	size_t n;
};

/* Reads a file. Return: 0; negative errno, with one sentence in @err. */
int mm_keys_read(const char *path, struct mm_keys *ret_keys, char *err, size_t err_bytes);
void mm_keys_done(struct mm_keys *keys);

/* Return: whether the value of the header, or NULL where there is none, is let in. */
bool mm_keys_allow(const struct mm_keys *keys, const char *authorization);
