/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rope - the angle by which each pair of a head rotates per position
 *
 * Concept:    pair i of a head rotates by theta^(-2i / head_dim) per position. A model that was
 *             extended to longer contexts rotates more slowly: "linear" divides all frequencies by
 *             a factor; "llama3" divides only those of long wavelengths, keeps those of short
 *             wavelengths, and blends in between.
 * Threading:  pure.
 */
#pragma once

#include "libclient/model/arch.h"

/* Computes the radians per position of each pair: @ret_frequencies has head_dim / 2 entries. */
void mm_rope_frequencies(const struct mm_arch *arch, double *ret_frequencies);
