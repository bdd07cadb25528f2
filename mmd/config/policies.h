/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies - the names of the policies, as choices of an option
 *
 * Concept:   Rows for a table of choices, in the order in which help lists them: mmd's --policy
 *            and those of the laboratory, which may add rows of their own behind them.
 * Threading: any; only constants.
 */
#pragma once

#include "libclient/support/options.h"
#include "mmd/core/core.h"

/* clang-format off */
#define MM_POLICY_CHOICES                                                                        \
	{ "recompute", MM_POLICY_RECOMPUTE, "each tenant gets its static share" },               \
	{ "elastic", MM_POLICY_ELASTIC, "KV memory is pooled, weights stay" },                   \
	{ "remap", MM_POLICY_REMAP, "pages of weights become KV memory, idle models' first" },   \
	{ "swap", MM_POLICY_SWAP, "as recompute, and engines may swap KV to host memory" },      \
	{ "naive", MM_POLICY_NAIVE, "for comparison, Mirage's Algorithm 1" },                    \
	{ "naive-bounded", MM_POLICY_NAIVE_BOUNDED, "for comparison, the same with its bound" }
/* clang-format on */
