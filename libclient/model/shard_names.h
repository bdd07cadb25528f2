/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index - the shards that a model.safetensors.index.json names
 *
 * Concept: a folder may hold the same weights twice (in one file, or for another engine): with an
 *          index, the files that it names are the model. Whether they hold what it says is for load
 *          to find.
 */
#pragma once

#include <stddef.h>

#include "mm/abi.h"

struct mm_shard_names {
	size_t n;
	char name[MM_LOAD_FILES_MAX][MM_FILE_NAME_BYTES]; /* in order of names, each once */
};

/**
 * mm_shard_names_read() - read and parse an index
 * @fd:        its file, at the beginning
 * @ret_names: written
 * @err:       gets the sentence on failure
 *
 * Return: 0; -EBADMSG malformed; -E2BIG too many files; -EFBIG; -EIO; -ENOMEM.
 */
int mm_shard_names_read(int fd, struct mm_shard_names *ret_names, char *err, size_t err_bytes);

/* The same of text; for fuzzers. */
int mm_shard_names_parse(const char *json, size_t bytes, struct mm_shard_names *ret_names,
			 char *err, size_t err_bytes);
