/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_index - model.safetensors.index.json: which tensor is in which shard
 *
 * Concept:   weight_map names a file for every tensor. Files and map must agree: a missing shard,
 *            or a tensor that is in another file, in two, or in none, is found before a byte is
 *            read, rather than when the model gives nonsense. The metadata, with the total size,
 *            are not needed and not trusted.
 * Threading: any.
 * Limits:    16 MiB of JSON, MM_TENSORS_MAX tensors.
 */
#pragma once

#include <stddef.h>

#include "libclient/model/safetensors.h"
#include "libclient/model/why.h"

#define MM_INDEX_BYTES_MAX (16 << 20)

struct mm_shards {
	const struct mm_safetensors *st;
	const char *const *names; /* names of the files, sorted */
	size_t n;
};

/**
 * mm_index_check() - check that an index agrees with the shards
 * @json:   the index
 * @name:   name of its file, for the refusal
 * @shards: the shards that were passed
 *
 * Return: 0; -EBADMSG a refusal that names tensor and file; -ENOTSUP too many tensors; -ENOMEM.
 */
int mm_index_check(const char *json, size_t bytes, const char *name, const struct mm_shards *shards,
		   struct mm_why *why);

/* The same for the index in a file. */
int mm_index_read(int fd, const char *name, const struct mm_shards *shards, struct mm_why *why);
