/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cost - the bytes and operations of kernels, computed from their arguments
 *
 * Concept:    for the timed software GPU: table.c exports these functions beside the kernels. They
 *             count the work of a CUDA kernel of that name (kernels/timing/cost.h), not of the
 *             host's form.
 * Threading:  pure. mm_costs_paged_attention() reads the tokens' positions and sequences from
 *             device memory, as the kernel would, under the same rules (kernels/host/kernel.h).
 */
#pragma once

#include "kernels/args/args.h"
#include "kernels/args/gemm.h"
#include "kernels/timing/cost.h"

struct mm_cost mm_costs_embed(const struct mm_embed_args *a);
struct mm_cost mm_costs_position_embed(const struct mm_position_embed_args *a);
struct mm_cost mm_costs_gather(const struct mm_gather_args *a);
struct mm_cost mm_costs_rmsnorm(const struct mm_rmsnorm_args *a);
struct mm_cost mm_costs_layernorm(const struct mm_layernorm_args *a);
struct mm_cost mm_costs_bias_add(const struct mm_bias_add_args *a);
struct mm_cost mm_costs_rope(const struct mm_rope_args *a);
struct mm_cost mm_costs_kv_write(const struct mm_kv_write_args *a);
struct mm_cost mm_costs_paged_attention(const struct mm_paged_attention_args *a);
struct mm_cost mm_costs_swiglu(const struct mm_swiglu_args *a);
struct mm_cost mm_costs_relu(const struct mm_relu_args *a);
struct mm_cost mm_costs_add(const struct mm_add_args *a);
struct mm_cost mm_costs_gemm(const struct mm_gemm_args *a);
struct mm_cost mm_costs_narrow(const struct mm_narrow_args *a);
struct mm_cost mm_costs_argmax(const struct mm_argmax_args *a);
struct mm_cost mm_costs_checksum(const struct mm_checksum_args *a);
struct mm_cost mm_costs_fill(const struct mm_fill_args *a);
struct mm_cost mm_costs_kv_gather(const struct mm_kv_gather_args *a);
struct mm_cost mm_costs_kv_scatter(const struct mm_kv_scatter_args *a);
