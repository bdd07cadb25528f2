/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig - runs mmserve's engine in a test, with a model in a folder of its own, the software GPU, and
 *       a memory that lends
 *
 * Concept:    rig_serve() serves requests under given limits and remembers, for each output token,
 *             its id and a checksum of all its logits. With lend set, the memory behaves as mmd
 *             might, at random from a seed: it grants late, denies, reclaims chunks, aborts steps;
 *             chunks that it has not granted are filled with NaN. With cold, blocks are streamed
 *             (rig_cold.h), and with lend their limit changes, down to none.
 * Threading:  one thread.
 */
#pragma once

#include "tools/lab/mkmodel/sources.h"
#include "tools/mmserve/engine/engine.h"

#define RIG_OUTPUT_MAX 256u

/*
 * Sizes for the initializer of a struct mm_arch; where @kv_heads_ is 0 there are as many as heads.
 */
#define RIG_SIZES(hidden_, ffn_, layers_, heads_, kv_heads_, vocab_, max_position_) \
	.hidden = (hidden_), .ffn = (ffn_), .layers = (layers_), .heads = (heads_), \
	.kv_heads = (kv_heads_), .vocab = (vocab_), .max_position = (max_position_)
/* Limits of the scheduler for the initializer of a struct rig_run. */
#define RIG_LIMITS(block_tokens_, max_batch_, max_batched_tokens_)  \
	.block_tokens = (block_tokens_), .max_batch = (max_batch_), \
	.max_batched_tokens = (max_batched_tokens_)

struct rig_result { /* the result of a request */
	uint32_t n;
	uint32_t ids[RIG_OUTPUT_MAX];
	uint64_t logits[RIG_OUTPUT_MAX];
	double times[RIG_OUTPUT_MAX];
	double finish_s;
	char error[160];
};

struct rig_run {
	const char *module; /* NULL: $MM_KERNELS */
	uint32_t block_tokens;
	uint32_t max_batch;
	uint32_t max_batched_tokens;
	enum mm_kv_order kv_order;
	enum mm_dtype kv_dtype; /* 0: F32 */
	enum mm_admit admit;
	uint64_t kv_share_bytes; /* 0: plenty */
	uint64_t lend;           /* 0: plain memory; else the seed */
	uint32_t lend_pages;     /* most pages, of 4 KiB, that are lent; 0: 40 */
	uint64_t swap_bytes;     /* 0: no swap space; lists are copied late, and some fail */
	uint32_t cold;           /* entries; needs swap_bytes, and no graphs */
	bool patient;            /* with lend: reclaims have a deadline that leaves time */
	bool verify;
	bool fused;
	enum mm_gemm_kind gemm;
	bool fast;           /* products of the batch's size */
	uint32_t graphs_max; /* 0: no graphs */
	bool graphs_fail;    /* no graph can be made, which is no error */
	double time_scale;   /* 0: 1 */
	bool device_times;
	uint64_t corrupt; /* step before which a byte of a tensor on the device flips; 0: none */
	/* Called with the logits of each output token; may be NULL. */
	void (*on_logits)(void *context, uint64_t request, uint32_t output, const float *logits);
	void *context;
	struct mm_stats stats; /* written by rig_serve() */
	uint32_t window_given; /* the same: chunks of windows that were given back */
};

/* Return: a random model with all sizes filled in. */
struct mk_random rig_random(const struct mm_arch *arch, uint64_t seed);

/* Makes a new folder under TMPDIR with a model in it. */
void rig_model(const struct mk_source *source, const struct mk_format *format, char *ret_dir,
	       size_t dir_bytes);
void rig_remove(const char *dir);

/* Makes @n requests, short and long, whose prompts depend on @seed and the index only. */
void rig_requests(struct mm_requests *requests, size_t n, uint32_t vocab, uint64_t seed);

/* Fails unless each request has all of its tokens, with the ids and logits that it has in @want. */
void rig_compare(const char *what, const struct mm_requests *requests,
		 const struct rig_result *results, const struct rig_result *want);

/* Serves copies of @requests; fails the test on any error of the engine. */
void rig_serve(const char *dir, const struct mm_requests *requests, struct rig_run *run,
	       struct rig_result *ret_results);
