/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blas backend - computes the matrix products of kernels/args/gemm.h, in one of two ways
 *
 * Concept:    a struct mm_gemm is one of two backends. *kernel* launches the module's mm_gemm: what
 *             the software GPU does, the same bits for every batch on every machine. *cublas* is
 *             the vendor's library, found at run time: x is narrowed to the dtype of 16-bit weights
 *             by the module's mm_narrow, products are accumulated and written in F32; F32 weights
 *             are multiplied in F32, without TF32.
 * Numbers:    narrowing rounds x to 11 (F16) or 8 (BF16) significant bits, once, like engines that
 *             keep activations in 16 bits. A value above 65504 becomes infinite in F16, and its row
 *             is lost: nothing is clamped, so that the fault is visible. Inputs of products are
 *             normed, or come out of a feed-forward of normed ones, and models made for F16 keep
 *             them below that; the residual stream, which grows larger, stays in F32 and is never
 *             narrowed.
 * Batches:    a BLAS chooses its algorithm, and with it the order of sums, by the shape of a
 *             product. In deterministic mode all products have one shape: mm_gemm_opts.rows rows,
 *             as many products of them as it takes, the last padded with zeros; leading dimensions
 *             and the alignment of addresses are the same for each as well. So a row's bits depend
 *             neither on the batch nor on how a prompt was cut. This holds on one machine, for one
 *             matrix: other devices and versions of the library choose otherwise, and may choose
 *             otherwise for q, k and v as one matrix. It rests on one assumption that a BLAS does
 *             not promise: within one product all rows are summed in the same way, wherever they
 *             are. In fast mode a product is as large as the batch.
 * Rows:       MM_GEMM_ROWS is 64. A product of n rows does 2n operations for each weight it reads:
 *             at 64, reading 16-bit weights takes longer than the arithmetic on A100, H100 and
 *             H200, so that padding costs decode next to nothing, and a tile of 64 rows is one that
 *             tensor cores take whole. Prefill is slower: it reads the weights again for every 64
 *             tokens.
 * Graphs:     mm_gemm_multiply() only enqueues, from memory that was allocated by mm_gemm_open(),
 *             and can be captured. Libraries load their code when it is first used, which a capture
 *             may refuse: multiply each shape once before a capture.
 * Threading:  one thread at a time, and one product at a time on the device: scratch is shared, so
 *             the caller must order products on two streams.
 * Ownership:  the module and the driver's table are borrowed; scratch and workspace are its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/args/gemm.h"
#include "mm/gpu.h"

#define MM_GEMM_ROWS 64u

enum mm_gemm_kind {
	MM_GEMM_KERNEL,
	MM_GEMM_CUBLAS,
};

struct mm_gemm_opts {
	enum mm_gemm_kind kind;
	CUmodule module;     /* contains mm_gemm or, for cublas, mm_narrow */
	bool fast;           /* cublas: products are as large as the batch */
	uint32_t rows;       /* cublas, not fast: rows of each product; 0: MM_GEMM_ROWS */
	uint32_t max_tokens; /* the most tokens of a multiplication */
	uint32_t max_k;
	uint32_t max_y_stride;  /* the greatest stride of a y without room for whole products */
	size_t workspace_bytes; /* of cuBLAS; 0: as much as it uses at best */
};

struct mm_gemm;

/**
 * mm_gemm_open() - make a backend ready
 * @gpu:       borrowed; its context is current, the primary one for cublas
 * @opts:      copied
 * @ret_gemm:  written only on success; released with mm_gemm_close()
 * @err:       gets one line with the reason for a failure
 * @err_bytes: size of @err
 *
 * Return: 0; -ENOENT no library or no such kernel; -ENOSYS the library lacks what is needed;
 * -ENOMEM; other negative errno from the driver or the library.
 */
int mm_gemm_open(const struct mm_gpu_api *gpu, const struct mm_gemm_opts *opts,
		 struct mm_gemm **ret_gemm, char *err, size_t err_bytes);

/**
 * mm_gemm_room() - rows that y should have room for
 * @gemm: open
 * @rows: of a multiplication
 *
 * Where y has that room and a->y_rows is that number, products are written straight into it, and
 * the rows after the first a->tokens are overwritten; else the last product goes through scratch
 * and is copied.
 *
 * Return: @rows or more.
 */
uint32_t mm_gemm_room(const struct mm_gemm *gemm, uint32_t rows);

/**
 * mm_gemm_multiply() - enqueue y = x . w
 * @gemm:   open
 * @a:      within the limits of opts
 * @stream: of the same context; may be capturing
 *
 * Return: an error of the driver's launches; a status of the library is translated to the nearest.
 */
CUresult mm_gemm_multiply(struct mm_gemm *gemm, const struct mm_gemm_args *a, CUstream stream);

/* Return: "kernel", or the library's version and mode. */
const char *mm_gemm_describe(const struct mm_gemm *gemm);

/* Accepts NULL. No product may be running. */
void mm_gemm_close(struct mm_gemm *gemm);
