/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm-ggml - llama.cpp on memory that mmd lends
 *
 * Concept:   llama.cpp runs as it is. A buffer type takes the place of its own for the model's
 *            weights, so that they lie at the addresses of a model that mmd has loaded; a callback
 *            of llama.cpp's scheduler, which runs between the nodes of a graph, puts gates around
 *            the layers; and mm_ggml_decode() brackets llama_decode() with steps. Blocks of any
 *            quantisation are bytes to mmd.
 *
 *                mm_ggml_open(client, "model.gguf", &ggml);
 *                mm_ggml_model_params(ggml, &model_params);
 *                model = llama_model_load_from_file("model.gguf", model_params);
 *                mm_ggml_loaded(ggml);
 *                mm_ggml_run_open(ggml, &context_params, &run);
 *                context = llama_init_from_model(model, context_params);
 *                mm_ggml_decode(run, context, batch);
 *
 * Limits:    ggml's CPU backend on the software GPU: the CUDA backend accepts buffers of its own
 *            types only. One GGUF file, not split; layers are the tensors blk.N of it, all others
 *            are always resident. KV and activations are llama.cpp's own memory. LoRA adapters
 *            are refused: llama.cpp wants to put them beside the tensors they adapt. A model whose
 *            state cannot be taken back (recurrent ones) fails where a step is void.
 * Ownership: the caller frees in the order runs, llama's contexts and model, then mm_ggml_close(),
 *            then the client.
 * Threading: one thread at a time uses a model and its runs.
 * Errors:    negative errno; mm_ggml_error() is the sentence. Nothing is logged.
 * Source:    ggml-backend-impl.h (buffer types), llama.h (tensor_buft_overrides, cb_eval).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mm/client.h"

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mm_ggml;
struct mm_ggml_run;

/**
 * mm_ggml_open() - load the weights of a GGUF file into memory that mmd lends
 * @client:   has no model yet; borrowed
 * @path:     a GGUF file
 * @ret_ggml: written only on success
 * @errbuf:   gets the sentence, may be NULL
 *
 * Blocks until the weights are on the device. For that time the host holds them twice: in mmd's
 * store, which tenants of the same weights share, and in a memfd.
 * Return: 0; -ENOENT, -EACCES the file; -EBADMSG it is no GGUF file, or its tensors do not make up
 * layers 0 to n; -ENOTSUP it is split, or the CPU backend cannot read the device's memory, or mmd
 * keeps the model on a disk; what mm_model_load_files() returns.
 */
int mm_ggml_open(struct mm_client *client, const char *path, struct mm_ggml **ret_ggml,
		 char *errbuf, size_t errbuf_bytes);

/**
 * mm_ggml_close() - forget the model; its memory lives as long as the client
 * @ggml: may be NULL; llama's model is freed already
 *
 * Return: NULL.
 */
struct mm_ggml *mm_ggml_close(struct mm_ggml *ggml);

/**
 * mm_ggml_error() - the sentence that belongs to the last failed call
 * @ggml: any
 *
 * Return: "" if none failed; valid until the next call.
 */
const char *mm_ggml_error(const struct mm_ggml *ggml);

/* The model that mmd has loaded: a tensor is named as in the file, with layers. for blk. */
struct mm_model *mm_ggml_model(const struct mm_ggml *ggml);

/**
 * mm_ggml_model_params() - have llama.cpp load its model into @ggml
 * @ggml:   any
 * @params: tensor_buft_overrides and n_gpu_layers are set; borrows from @ggml
 */
void mm_ggml_model_params(struct mm_ggml *ggml, struct llama_model_params *params);

/**
 * mm_ggml_loaded() - say that llama_model_load_from_file() has returned
 * @ggml: any
 *
 * The loader writes what it reads from the file; this is compared with the host's copy instead, for
 * the bytes are there already.
 * Return: 0; -EBADMSG the file has changed since mm_ggml_open(), or is another one; -ENOENT
 * llama.cpp has loaded no tensor of @ggml.
 */
int mm_ggml_loaded(struct mm_ggml *ggml);

/**
 * mm_ggml_run_open() - prepare a context for gates
 * @ggml:    llama's model is loaded
 * @params:  cb_eval and cb_eval_user_data are set; the context is made with them
 * @ret_run: written only on success
 *
 * Return: 0; -EBUSY @params has another callback; -ENOMEM; -EIO the driver makes no stream.
 */
int mm_ggml_run_open(struct mm_ggml *ggml, struct llama_context_params *params,
		     struct mm_ggml_run **ret_run);

/* Returns NULL; @run may be NULL. llama's context must not decode any more. */
struct mm_ggml_run *mm_ggml_run_close(struct mm_ggml_run *run);

/**
 * mm_ggml_decode() - llama_decode() in steps of mmd
 * @run:     the context was made with its parameters
 * @context: as for llama_decode()
 * @batch:   as for llama_decode(); each part that llama.cpp computes at once is a step
 *
 * Waits for plan changes and for the turn. What was computed in a void step is taken out of the
 * context's memory and computed again.
 * Return: as llama_decode() if that is not negative: 0, 1 no room for the batch, 2 aborted; -EIO
 * llama_decode() failed; -ENOTRECOVERABLE a step was void, and the context's memory cannot give
 * back what was computed; -ENOTSUP a node reads several layers; what mm_step_begin() returns.
 */
int mm_ggml_decode(struct mm_ggml_run *run, struct llama_context *context,
		   struct llama_batch batch);

/**
 * mm_ggml_idle() - say that there is nothing to decode now
 * @run: any
 *
 * mmd then lends the model's layers first. The next mm_ggml_decode() says that there is work again.
 */
void mm_ggml_idle(struct mm_ggml_run *run);

struct mm_ggml_stats {
	size_t size;       /* = sizeof(struct mm_ggml_stats) */
	uint64_t steps;    /* that counted */
	uint64_t gated;    /* those of them in which layers cycled */
	uint64_t voided;   /* steps that were computed again */
	uint64_t relearnt; /* steps that were computed again, node by node: a graph was new */
	uint64_t stall_ns; /* waits at gates, from events; see struct mm_step_info */
};

/* Copies what @run has counted; 0, or -EINVAL for a size that cannot be. */
int mm_ggml_run_stats(const struct mm_ggml_run *run, struct mm_ggml_stats *ret_stats);

#ifdef __cplusplus
}
#endif
