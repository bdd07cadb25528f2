/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal - what the files of the llama.cpp adapter share
 *
 * Concept: weights.c loads a GGUF file into mmd, buffer.c gives ggml a buffer type whose tensors
 *          lie there, run.c puts gates between the nodes of a graph.
 */
#pragma once

#include <stdbool.h>

#include "mm/gpu.h"

#include "ggml-backend-impl.h"
#include "libclient/ggml/mm-ggml.h"

#define MM_GGML_NO_LAYER (-1)
struct mm_ggml {
	struct mm_client *client;
	const struct mm_gpu_api *gpu;
	struct mm_model *model;
	struct ggml_backend_buffer_type type;
	struct llama_model_tensor_buft_override overrides[2];
	bool loading;                /* until mm_ggml_loaded(): ggml must not write by itself */
	uint64_t compared;           /* tensors */
	char differs[GGML_MAX_NAME]; /* first tensor whose bytes are not those of the file */
	char error[512];
};

/* Keeps the sentence, and returns @r. */
int mm_ggml_fail(struct mm_ggml *g, int r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The layer of a tensor with that name in a GGUF file, or MM_GGML_NO_LAYER. */
int mm_ggml_layer(const char *name);

/* The name that mmd knows the tensor under; false if mmd cannot have one of that name. */
bool mm_ggml_name(const char *name, char ret[MM_TENSOR_NAME_BYTES]);

/* Loads the file's tensors as safetensors of bytes. As mm_ggml_open(). */
int mm_ggml_weights_load(struct mm_ggml *g, const char *path);

/* Makes the buffer type, and the overrides that have llama.cpp use it. */
void mm_ggml_type_init(struct mm_ggml *g);

/* Whether the tensor lies in the model. */
bool mm_ggml_owns(const struct mm_ggml *g, const struct ggml_tensor *t);
