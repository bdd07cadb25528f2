/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rows - the kernels that are bound by memory, not arithmetic: one form for all processors
 *
 * Concept:   plain functions over the structs of kernels/args/args.h; table.c exports them.
 * Threading: pure; no other thread may use their outputs meanwhile.
 */
#pragma once

#include "kernels/args/args.h"

void mm_rows_embed(const struct mm_embed_args *a);
void mm_rows_position_embed(const struct mm_position_embed_args *a);
void mm_rows_gather(const struct mm_gather_args *a);
void mm_rows_rmsnorm(const struct mm_rmsnorm_args *a);
void mm_rows_layernorm(const struct mm_layernorm_args *a);
void mm_rows_bias_add(const struct mm_bias_add_args *a);
void mm_rows_rope(const struct mm_rope_args *a);
void mm_rows_kv_write(const struct mm_kv_write_args *a);
void mm_rows_swiglu(const struct mm_swiglu_args *a);
void mm_rows_relu(const struct mm_relu_args *a);
void mm_rows_add(const struct mm_add_args *a);
void mm_rows_narrow(const struct mm_narrow_args *a);
void mm_rows_argmax(const struct mm_argmax_args *a);
void mm_rows_fill(const struct mm_fill_args *a);
void mm_rows_kv_gather(const struct mm_kv_gather_args *a);
void mm_rows_kv_scatter(const struct mm_kv_scatter_args *a);
