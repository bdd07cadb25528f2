/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_index - model.safetensors.index.json: which tensor is in which shard
 *
 * Concept: weight_map names a file for every tensor. Files and map must say the same: a missing
 *          shard, a tensor that is elsewhere, twice, or nowhere is found before a byte is read, not
 *          when the model talks nonsense. metadata, and the total size in it, are not needed and
 *          not believed.
 * Limits:  16 MiB of JSON, MM_TENSORS_MAX tensors.
 */
#pragma once

#include <stddef.h>

#include "libclient/model/safetensors.h"
#include "libclient/model/why.h"

#define MM_INDEX_BYTES_MAX (16 << 20)

struct mm_shards {
	const struct mm_safetensors *st;
	const char *const *names; /* of the files, sorted */
	size_t n;
};

/**
 * mm_index_check() - does an index say what the shards hold?
 * @json:   the index
 * @name:   its file's, for the refusal
 * @shards: that were passed
 *
 * Return: 0; -EBADMSG a refusal that names tensor and file; -ENOTSUP too many tensors; -ENOMEM.
 */
int mm_index_check(const char *json, size_t bytes, const char *name, const struct mm_shards *shards,
		   struct mm_why *why);

/* The same of a file. */
int mm_index_read(int fd, const char *name, const struct mm_shards *shards, struct mm_why *why);
