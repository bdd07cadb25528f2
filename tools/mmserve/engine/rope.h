/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope - how fast each pair of a head rotates with the position
 *
 * Concept:    pair i of a head turns by theta^(-2i / head_dim) per position. A model that was
 *             stretched to longer contexts turns slower: "linear" divides all frequencies by a
 *             factor; "llama3" those whose wavelength is long, leaves short ones alone and blends
 *             in between.
 * Threading:  pure.
 */
#pragma once

#include "libclient/model/arch.h"

/* Radians per position of each pair: @ret_frequencies has head_dim / 2 entries. */
void mm_rope_frequencies(const struct mm_arch *arch, double *ret_frequencies);
