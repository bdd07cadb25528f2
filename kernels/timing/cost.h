/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - how long kernels and copies take on a device with a given profile
 *
 * Concept:    a roofline. A kernel moves bytes and does operations; the slower of the two decides,
 *             and no kernel takes less than kernel_ns. The bytes and operations of each kernel are
 *             defined only here, for the host kernels' cost functions and for tools/lab/stepcost.
 *             Activations count MM_COST_ACTIVATION_BYTES an element, as in a CUDA engine, although
 *             the host kernels hold them as F32.
 * Threading:  pure.
 */
#pragma once

#include <stdint.h>

#include "kernels/timing/profile.h"

#define MM_COST_ACTIVATION_BYTES 2.0
#define MM_COST_INDEX_BYTES      4.0 /* a token id, position, row or block number */
#define MM_COST_QUERY_TILE       64u /* query rows of a chunk that share one reading of the KV */

struct mm_cost {
	double bytes; /* bytes read from and written to device memory */
	double flops;
};

/**
 * mm_cost_ns() - device time of a kernel
 *
 * Return: nanoseconds, at least the profile's kernel_ns.
 */
uint64_t mm_cost_ns(const struct mm_profile *profile, const struct mm_cost *cost);

enum mm_link { MM_LINK_H2D, MM_LINK_D2H };

/**
 * mm_cost_copy_ns() - time of a copy between host and device
 * @both: whether the other direction is busy as well
 *
 * Return: nanoseconds, at least the profile's copy_ns.
 */
uint64_t mm_cost_copy_ns(const struct mm_profile *profile, enum mm_link link, uint64_t length_bytes,
			 int both);

/* Return: the time of a copy within the device, which reads and writes each byte. */
uint64_t mm_cost_device_copy_ns(const struct mm_profile *profile, uint64_t length_bytes);

/* Return: the time of a fill of device memory. */
uint64_t mm_cost_fill_ns(const struct mm_profile *profile, uint64_t length_bytes);

/*
 * @in, @out: parts of the time, 0 to 1, in which the link brings something in, and takes something
 * out. Return: the factor by which kernels take longer meanwhile, because a copy takes memory
 * bandwidth in either direction.
 */
static inline double mm_cost_slowdown(const struct mm_profile *profile, double in, double out)
{
	return 1 + in * profile->link_slows_in + out * profile->link_slows_out;
}

/* ---- what each kernel moves and does; element sizes in bytes ---- */

/* Reads a row of a table for each token; with @read_back, adds it to the existing values. */
static inline struct mm_cost mm_cost_embed(double tokens, double hidden, double element,
					   int read_back)
{
	return (struct mm_cost){
		.bytes = tokens *
			 (MM_COST_INDEX_BYTES +
			  hidden * (element + (1 + !!read_back) * MM_COST_ACTIVATION_BYTES)),
		.flops = read_back ? tokens * hidden : 0,
	};
}

static inline struct mm_cost mm_cost_gather(double rows, double hidden)
{
	return (struct mm_cost){
		.bytes = rows * (MM_COST_INDEX_BYTES + hidden * 2 * MM_COST_ACTIVATION_BYTES),
	};
}

/* @elements: read and written in total; each of @results takes @flops operations. */
static inline struct mm_cost mm_cost_elements(double elements, double results, double flops)
{
	return (struct mm_cost){ elements * MM_COST_ACTIVATION_BYTES, results * flops };
}

/* @vectors: bytes of weights for each column: the gain and, for layernorm, the bias. */
static inline struct mm_cost mm_cost_rmsnorm(double rows, double n, double vectors)
{
	struct mm_cost cost = mm_cost_elements(rows * n * 2, rows * n, 4);

	cost.bytes += n * vectors;
	return cost;
}

static inline struct mm_cost mm_cost_layernorm(double rows, double n, double vectors)
{
	struct mm_cost cost = mm_cost_elements(rows * n * 2, rows * n, 7);

	cost.bytes += n * vectors;
	return cost;
}

static inline struct mm_cost mm_cost_bias_add(double rows, double n, double element)
{
	struct mm_cost cost = mm_cost_elements(rows * n * 2, rows * n, 1);

	cost.bytes += n * element;
	return cost;
}

static inline struct mm_cost mm_cost_rope(double tokens, double width)
{
	struct mm_cost cost = mm_cost_elements(tokens * width * 2, tokens * width, 3);

	cost.bytes += tokens * MM_COST_INDEX_BYTES;
	return cost;
}

/* Counts an exponential as ten operations. */
static inline struct mm_cost mm_cost_swiglu(double rows, double n)
{
	return mm_cost_elements(rows * n * 3, rows * n, 13);
}

static inline struct mm_cost mm_cost_relu(double elements)
{
	return mm_cost_elements(elements * 2, elements, 1);
}

static inline struct mm_cost mm_cost_add(double elements)
{
	return mm_cost_elements(elements * 3, elements, 1);
}

/* The weights are read once for any number of tokens. */
static inline struct mm_cost mm_cost_gemm(double tokens, double outputs, double k, double element)
{
	return (struct mm_cost){
		.bytes = outputs * k * element + tokens * (outputs + k) * MM_COST_ACTIVATION_BYTES,
		.flops = 2 * tokens * outputs * k,
	};
}

static inline struct mm_cost mm_cost_kv_write(double tokens, double kv_dim, double kv_element)
{
	return (struct mm_cost){
		.bytes = tokens * (2 * MM_COST_INDEX_BYTES +
				   2 * kv_dim * (MM_COST_ACTIVATION_BYTES + kv_element)),
	};
}

/*
 * @context: KV tokens read, mm_cost_context() summed over the sequences; @pairs: mm_cost_pairs()
 * summed likewise. The cost includes reading queries and writing outputs.
 */
static inline struct mm_cost mm_cost_attention(double tokens, double context, double pairs,
					       double q_dim, double kv_dim, double kv_element)
{
	return (struct mm_cost){
		.bytes = context * 2 * kv_dim * kv_element +
			 tokens * (2 * MM_COST_INDEX_BYTES + 2 * q_dim * MM_COST_ACTIVATION_BYTES),
		.flops = 4 * pairs * q_dim,
	};
}

static inline struct mm_cost mm_cost_argmax(double rows, double n)
{
	return (struct mm_cost){
		.bytes = rows * (n * MM_COST_ACTIVATION_BYTES + MM_COST_INDEX_BYTES),
		.flops = rows * n,
	};
}

/*
 * Return: KV tokens that a chunk of @tokens from position @first on reads: the context once for
 * each tile of queries.
 */
static inline uint64_t mm_cost_context(uint64_t first, uint64_t tokens)
{
	const uint64_t full = tokens / MM_COST_QUERY_TILE;
	const uint64_t whole = full * first + MM_COST_QUERY_TILE * (full * (full + 1) / 2);

	return whole + (tokens % MM_COST_QUERY_TILE ? first + tokens : 0);
}

/* Return: pairs of a query and a key: each token attends to itself and all before it. */
static inline uint64_t mm_cost_pairs(uint64_t first, uint64_t tokens)
{
	return tokens * first + tokens * (tokens + 1) / 2;
}
