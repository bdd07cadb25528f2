/* SPDX-License-Identifier: Apache-2.0 */
/*
 * forward - one step of the model on a stream
 *
 * Concept:    the engine fills the host side of a batch (token ids, positions, whose block table),
 *             mm_forward_step() enqueues copies and kernels, each layer between the memory's
 *             layer_begin and layer_end, and the copies of the results; after the memory's step_end
 *             they are there. A step may be enqueued again as it is: it writes only KV of its own
 *             positions, the same values each time.
 * Ownership:  one context, stream, module and workspace per engine; memory and model are borrowed.
 * Threading:  the engine's thread; the host side must not change before the stream has been
 *             synchronised.
 * Limits:     max_tokens a step, max_rows sequences, fixed at init.
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
	uint32_t max_tokens;   /* of a step */
	uint32_t max_rows;     /* sequences in a step */
	uint32_t table_stride; /* blocks of a sequence */
	uint32_t block_tokens;
	enum mm_dtype kv_dtype;
	enum mm_gemm_kind gemm; /* who multiplies */
	bool fast;              /* and that products may depend on the batch */
	bool verify;            /* checksum each layer's tensors on the stream, inside its gate */
};

struct mm_batch { /* host side of a step */
	uint32_t n_tokens;
	uint32_t n_samples;
	/* by mm_forward_derive() */
	uint32_t n_rows;     /* block tables that are named */
	uint32_t splits;     /* bound for attention */
	bool decodes;        /* token i is the one of row i, and its successor is wanted */
	uint32_t *ids;       /* [max_tokens] */
	uint32_t *positions; /* [max_tokens] */
	uint32_t *rows;      /* [max_tokens] whose block table */
	uint32_t *samples;   /* [max_rows] tokens whose successor is wanted */
	uint32_t *tables;    /* [max_rows][table_stride] in units of MM_KV_UNIT_BYTES */
	uint32_t *next;      /* [max_rows] results: the successors, in the order of samples */
};

struct mm_workspace { /* device addresses */
	CUdeviceptr base;
	CUdeviceptr ids, positions, rows, samples, tables; /* one piece, as the host side */
	CUdeviceptr x, h, attention;
	CUdeviceptr partial, counters; /* of attention */
	CUdeviceptr qkv;               /* [tokens][q, k and v of a token] */
	CUdeviceptr gate_up;           /* [tokens][gate and up of a token] */
	CUdeviceptr inner;             /* [tokens][ffn] */
	CUdeviceptr sampled, logits, next, checksums;
	CUdeviceptr frequencies; /* of RoPE, f64 */
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
	/* A pass of few tokens spreads each context over blocks; one of many has blocks enough. */
	uint32_t splits_max; /* of the longest context */
	uint32_t split_rows; /* tokens of a pass, at most, that attention's scratch has room for */
	struct mm_pinned pinned; /* what these two are in: */
	uint32_t *host;          /* the batch's arrays */
	uint64_t *checksums;
	CUresult error; /* the first of the step */
	/* the step breaks off before this layer; beyond the last one: it does not */
	uint32_t break_at;
};

/* Bytes of the keys, or of the values, of a block in one layer. */
uint64_t mm_forward_part_bytes(const struct mm_arch *arch, uint32_t block_tokens,
			       enum mm_dtype kv_dtype);

/**
 * mm_forward_init() - stream, kernels and workspace
 * @f:       any bytes; give back with mm_forward_done()
 * @memory:  borrowed; the context is current
 * @weights: borrowed
 * @opts:    copied
 * @err:     gets the sentence, MM_SERVE_ERROR_BYTES
 *
 * kv is to be set before the first step. Return: 0; negative errno.
 */
int mm_forward_init(struct mm_forward *f, struct mm_memory *memory,
		    const struct mm_weights *weights, const struct mm_forward_opts *opts,
		    char *err);
void mm_forward_done(struct mm_forward *f);

/*
 * The batch is filled: what follows from it, n_rows, splits and decodes. Before mm_forward_step().
 */
void mm_forward_derive(struct mm_forward *f);

/**
 * mm_forward_step() - enqueue the step in @f->batch
 * @f: the memory's step is open
 *
 * Return: 0; negative errno: the step broke off, abandon it.
 */
int mm_forward_step(struct mm_forward *f);

/* Enqueues a copy of one block of KV, in all ranges. */
int mm_forward_move_block(struct mm_forward *f, uint32_t from, uint32_t to);

/**
 * mm_forward_verify() - compare the finished step's checksums with the files'
 * @f:        with opts.verify
 * @mismatch: called for each that differs; @layer is -1 outside the layers
 * @context:  passed on
 *
 * Return: how many differ.
 */
uint32_t mm_forward_verify(const struct mm_forward *f,
			   void (*mismatch)(void *context, int32_t layer, const char *tensor),
			   void *context);
