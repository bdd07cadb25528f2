/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stepcost - the device time of an engine's step, without launching it
 *
 * Concept:    The sum of the costs of the kernels that mmserve's forward pass launches
 *             (tools/mmserve/engine/pass.c); a test checks that both agree. Every kernel's bytes
 *             and operations are linear in the tokens of the batch, the KV tokens read and the
 *             pairs attended, so a model on a device is a short list of factors, computed once.
 * Ownership:  plain values.
 * Threading:  any; there is no shared state.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/timing/cost.h"
#include "libclient/model/arch.h"

struct mm_step_opts {
	uint32_t weight_element_bytes; /* 2: fp16 */
	uint32_t kv_element_bytes;
	bool fused; /* q, k and v are one product, gate and up are one */
};

struct mm_step_batch {
	uint32_t tokens;
	uint32_t samples; /* tokens whose successor is sampled */
	uint64_t context; /* KV tokens read: mm_cost_context(), over the sequences */
	uint64_t pairs;   /* mm_cost_pairs(), over the sequences */
};

struct mm_step_ns {
	uint64_t before; /* embedding */
	uint64_t layer;  /* each layer */
	uint64_t after;  /* final norm, head, sampling */
};

struct mm_step_term {                   /* a kernel; all in nanoseconds */
	double fixed, token, context;   /* for moving bytes */
	double token_flops, pair_flops; /* for operations */
};

#define MM_STEP_TERMS_MAX 24u

struct mm_step_part {
	struct mm_step_term terms[MM_STEP_TERMS_MAX];
	uint32_t n;
};

struct mm_step_model {
	struct mm_step_part before, layer, after;
	double kernel_ns;
};

/* Initializes the model of @arch on the device of @profile, and keeps neither of them. */
void mm_step_model_init(struct mm_step_model *model, const struct mm_profile *profile,
			const struct mm_arch *arch, const struct mm_step_opts *opts);

/*
 * Adds one sequence's part of a step: @tokens tokens from position @first on. One token is a
 * decode; there may be none.
 */
static inline void mm_step_batch_add(struct mm_step_batch *batch, uint32_t first, uint32_t tokens,
				     bool sampled)
{
	batch->tokens += tokens;
	batch->samples += sampled;
	batch->context += mm_cost_context(first, tokens);
	batch->pairs += mm_cost_pairs(first, tokens);
}

/**
 * mm_step_cost() - compute the device time of a step with this batch
 *
 * The step's kernels take before + layers * layer + after, without copies to and from the host. A
 * call takes about 50 ns, so a simulator can call it for each step.
 */
void mm_step_cost(const struct mm_step_model *model, const struct mm_step_batch *batch,
		  struct mm_step_ns *ret);
