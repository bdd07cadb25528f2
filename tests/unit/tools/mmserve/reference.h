/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reference - computes a model's logits independently of mmserve
 *
 * Concept:    reads a folder in Hugging Face's layout by itself (JSON, safetensors, shards) and
 *             computes all positions of a sequence at once in double precision, without KV cache,
 *             blocks or batches. It shares no code with mmserve.
 * Ownership:  reference_close() frees what reference_open() returned.
 * Threading:  one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct reference;

struct reference *reference_open(const char *dir);
void reference_close(struct reference *r);

uint32_t reference_vocab(const struct reference *r);

/* Computes @ret_logits, [n][vocab]: the logits of the token behind each position. */
void reference_logits(const struct reference *r, const uint32_t *ids, size_t n, double *ret_logits);
