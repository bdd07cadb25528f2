/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir - the directory at the head of a store: where each tensor is
 *
 * Concept:   A store begins with struct mm_dir (abi.h). mm_directory_read() copies it once, checks
 *            the copy in full, and only the copy is used: another process may be able to write to
 *            the file.
 * Ownership: struct mm_directory owns its copies; mm_directory_done() accepts a zeroed one.
 * Threading: mm_directory_read() writes it; afterwards any thread may read it.
 */
#pragma once

#include <stdint.h>

#include "mm/abi.h"

struct mm_directory {
	uint32_t n_groups;
	uint32_t n_tensors;
	uint64_t store_bytes;
	uint8_t identity[MM_MODEL_DIGEST_BYTES];
	struct mm_dir_group *groups;
	struct mm_dir_tensor *tensors; /* sorted by name */
};

/**
 * mm_directory_read() - copy and check the directory of a store
 * @head:        the first @head_bytes of the store: all of it, or the directory only
 * @head_bytes:  at most @store_bytes
 * @store_bytes: length of the store, as mmd reports it
 * @ret_dir:     written only on success; give back with mm_directory_done()
 * @ret_why:     a static phrase on -EBADMSG
 *
 * Return: 0; -EBADMSG; -ENOMEM.
 */
int mm_directory_read(const void *head, uint64_t head_bytes, uint64_t store_bytes,
		      struct mm_directory *ret_dir, const char **ret_why);

void mm_directory_done(struct mm_directory *dir);

/**
 * mm_directory_find() - a tensor by its name
 * @dir:  any
 * @name: any
 *
 * Return: borrowed from @dir, or NULL.
 */
const struct mm_dir_tensor *mm_directory_find(const struct mm_directory *dir, const char *name);
