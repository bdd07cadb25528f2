/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - the shape of a model, from its config.json
 *
 * Concept:    the Llama family as Hugging Face describes it. Whatever would need arithmetic that we
 *             do not have (another architecture, activation, bias, RoPE scaling) is refused by name
 *             rather than computed wrongly.
 * Ownership:  a plain value.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_SERVE_ERROR_BYTES 4608 /* holds a path and a sentence */

struct mm_llama_config {
	uint32_t hidden;
	uint32_t ffn;
	uint32_t layers;
	uint32_t heads;
	uint32_t kv_heads;
	uint32_t head_dim;
	uint32_t vocab;
	uint32_t max_position;
	float rms_eps;
	double rope_theta;
	bool tied;
};

/**
 * mm_llama_config_load() - read and check DIR/config.json
 * @dir:        of the model
 * @ret_config: written only on success
 * @err:        gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * Return: 0; -ENOENT and the like; -EBADMSG malformed; -ENOTSUP a model that we cannot compute.
 */
int mm_llama_config_load(const char *dir, struct mm_llama_config *ret_config, char *err);
