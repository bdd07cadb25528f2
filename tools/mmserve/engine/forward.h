/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward - one step of the model on a stream
 *
 * Concept:    the engine fills the host side of a batch (token ids, positions, block tables).
 *             mm_forward_step() enqueues copies and kernels, each layer between the memory's
 *             layer_begin and layer_end, and the copies of the results, which are complete after
 *             the memory's step_end. The same step may be enqueued again: it writes only KV of its
 *             own positions, and the same values each time.
 * Ownership:  one context, stream, module and workspace per engine; memory and model are borrowed.
 * Threading:  the engine's thread; the host side must not change before the stream has been
 *             synchronised.
 * Limits:     max_tokens tokens and max_rows sequences in a step, fixed at init.
 */
#pragma once

#include "kernels/args/args.h"
#include "kernels/blas/backend.h"
#include "kernels/launch/launch.h"
#include "tools/mmserve/sched/kvarena.h"
#include "tools/mmserve/engine/model.h"
#include "tools/mmserve/engine/pinned.h"

struct mm_forward_opts {
	const char *module;    /* path of the kernels' module */
	uint32_t max_tokens;   /* tokens in a step */
	uint32_t max_rows;     /* sequences in a step */
	uint32_t table_stride; /* most blocks of a sequence */
	uint32_t block_tokens;
	enum mm_dtype kv_dtype;
	enum mm_gemm_kind gemm; /* what computes matrix products */
	bool fast;              /* products may depend on the batch */
	bool verify;            /* checksum each layer's tensors on the stream, inside its gate */
};

struct mm_batch { /* host side of a step */
	uint32_t n_tokens;
	uint32_t n_samples;
	/* The next three are computed by mm_forward_derive(). */
	uint32_t n_rows;     /* block tables that tokens refer to */
	uint32_t splits;     /* blocks that attention spreads the longest context over, at most */
	bool decodes;        /* token i is the only one of row i, and its successor is wanted */
	uint32_t *ids;       /* [max_tokens] */
	uint32_t *positions; /* [max_tokens] */
	uint32_t *rows;      /* [max_tokens] index of the token's block table */
	uint32_t *samples;   /* [max_rows] tokens whose successor is wanted */
	uint32_t *tables;    /* [max_rows][table_stride] in units of MM_KV_UNIT_BYTES */
	uint32_t *next;      /* [max_rows] results: the successors, in the order of samples */
};

struct mm_workspace { /* device addresses */
	CUdeviceptr base;
	CUdeviceptr ids, positions, rows, samples, tables; /* one piece, like the host side */
	CUdeviceptr x, h, attention;
	CUdeviceptr partial, counters; /* scratch of attention */
	CUdeviceptr qkv;               /* [tokens][q, k and v of a token] */
	CUdeviceptr gate_up;           /* [tokens][gate and up of a token] */
	CUdeviceptr inner;             /* [tokens][ffn] */
	CUdeviceptr sampled, logits, next, checksums;
	CUdeviceptr frequencies; /* RoPE's, f64 */
};

struct mm_forward {
	struct mm_forward_opts opts;
	const struct mm_gpu_api *gpu;
	struct mm_memory *memory;
	const struct mm_weights *weights;
	const struct mm_kv_arena *kv; /* borrowed */
	CUstream stream;
	CUmodule module;
	CUfunction functions[MM_KERNEL_COUNT];
	struct mm_gemm *gemm;
	struct mm_workspace w;
	struct mm_batch batch;
	/*
	 * Attention spreads each context over several blocks if a pass has few tokens. A pass of
	 * many tokens has enough blocks without that.
	 */
	uint32_t splits_max;     /* blocks that the longest context is spread over, at most */
	uint32_t split_rows;     /* most tokens of a pass that attention's scratch has room for */
	struct mm_pinned pinned; /* the memory of host and checksums */
	uint32_t *host;          /* the batch's arrays */
	uint64_t *checksums;
	CUresult error; /* the first error of the step */
	/* The step breaks off before this layer. Beyond the last layer: it does not break off. */
	uint32_t break_at;
};

/* Return: the bytes of the keys, or of the values, of a block in one layer. */
uint64_t mm_forward_part_bytes(const struct mm_arch *arch, uint32_t block_tokens,
			       enum mm_dtype kv_dtype);

/**
 * mm_forward_init() - set up the stream, the kernels and the workspace
 * @f:       any bytes; give back with mm_forward_done()
 * @memory:  borrowed; the context is current
 * @weights: borrowed
 * @opts:    copied
 * @err:     gets the sentence of a failure; MM_SERVE_ERROR_BYTES
 *
 * The caller sets @f->kv before the first step.
 * Return: 0; negative errno.
 */
int mm_forward_init(struct mm_forward *f, struct mm_memory *memory,
		    const struct mm_weights *weights, const struct mm_forward_opts *opts,
		    char *err);
void mm_forward_done(struct mm_forward *f);

/*
 * Computes n_rows, splits and decodes of the batch, once it is filled. To be called before
 * mm_forward_step().
 */
void mm_forward_derive(struct mm_forward *f);

/**
 * mm_forward_step() - enqueue the step in @f->batch
 * @f: the memory's step is open
 *
 * Return: 0; negative errno: the step broke off and is to be abandoned.
 */
int mm_forward_step(struct mm_forward *f);

/*
 * Copies the logits of the step that was computed, [vocab], from which its token number @sample was
 * chosen. Return: 0; negative errno.
 */
int mm_forward_logits(struct mm_forward *f, uint32_t sample, float *ret_logits);

/* Enqueues a copy of one block of KV in all ranges. */
int mm_forward_move_block(struct mm_forward *f, uint32_t from, uint32_t to);

/**
 * mm_forward_verify() - compare the finished step's checksums with those of the files
 * @f:        opened with opts.verify
 * @mismatch: called for each tensor that differs; @layer is -1 outside the layers
 * @context:  passed to @mismatch
 *
 * Return: how many differ.
 */
uint32_t mm_forward_verify(const struct mm_forward *f,
			   void (*mismatch)(void *context, int32_t layer, const char *tensor),
			   void *context);
