/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_model_config - the part of a model's config.json that load needs
 *
 * Concept:   The number of layers, to be compared with the tensors. What the model computes is the
 *            engine's business; its description only has to be well-formed.
 * Threading: any.
 * Limits:    1 MiB of JSON.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "libclient/model/why.h"

struct mm_model_config {
	uint32_t layers; /* 1 .. MM_LAYERS_MAX */
};

/* Return: 0; -EBADMSG; -ENOTSUP too many layers; -ENOMEM. @name: the file's, for the refusal. */
int mm_model_config_parse(const char *json, size_t bytes, const char *name,
			  struct mm_model_config *ret_config, struct mm_why *why);
int mm_model_config_read(int fd, const char *name, struct mm_model_config *ret_config,
			 struct mm_why *why);
