/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_names - the shards that a model.safetensors.index.json names
 *
 * Concept:   A folder may hold the same weights twice (in one file, or for another engine): with an
 *            index, the model is the files that it names. load checks whether they hold what the
 *            index says.
 * Ownership: a plain value.
 * Threading: any.
 * Limits:    16 MiB of JSON, MM_LOAD_FILES_MAX names.
 */
#pragma once

#include <stddef.h>

#include "mm/abi.h"

struct mm_shard_names {
	size_t n;
	char name[MM_LOAD_FILES_MAX][MM_FILE_NAME_BYTES]; /* sorted, each once */
};

/**
 * mm_shard_names_read() - read and parse an index
 * @fd:        of the index
 * @ret_names: written
 * @err:       gets the sentence on failure
 *
 * Return: 0; -EBADMSG malformed; -E2BIG too many files; -EFBIG; -EIO; -ENOMEM.
 */
int mm_shard_names_read(int fd, struct mm_shard_names *ret_names, char *err, size_t err_bytes);

/* The same for text; for fuzzers. */
int mm_shard_names_parse(const char *json, size_t bytes, struct mm_shard_names *ret_names,
			 char *err, size_t err_bytes);
