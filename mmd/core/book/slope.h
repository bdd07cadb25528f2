/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slope - by how much a tenant's steps are longer when more KV is in use
 *
 * Concept:   Least squares over the logarithms of the last pairs (KV in use, computing time of a
 *            step): the slope is d ln(step) / d ln(KV in use). Sums are of integers and exact, so
 *            a pair that leaves is subtracted again.
 * Ownership: pure functions over the caller's storage.
 * Threading: any.
 * Trust:     Both numbers are claims; the slope is at most 1.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_SLOPE_PAIRS 256
#define MM_SLOPE_LEAST 64 /* pairs before a slope is known */

struct mm_slope {
	uint16_t x[MM_SLOPE_PAIRS], y[MM_SLOPE_PAIRS]; /* log2, with MM_SLOPE_BITS of fraction */
	uint32_t n, next;
	int64_t sum_x, sum_y, sum_xx, sum_xy;
};

/* Notes a step of @step_ns with @kv chunks in use; both are above 0. */
void mm_slope_add(struct mm_slope *s, uint64_t kv, uint64_t step_ns);
/*
 * Gets the slope, 0 to 1000 permille. False: there are too few pairs, or the KV in use was always
 * about the same.
 */
bool mm_slope_permille(const struct mm_slope *s, uint32_t *ret_permille);
