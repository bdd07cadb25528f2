/* SPDX-License-Identifier: Apache-2.0 */
/*
 * softblas product - the arithmetic of a product, as a host kernel of the software GPU
 *
 * Concept:    C = alpha op(A) op(B) + beta C, column-major as in BLAS, inputs of 16 or 32 bits,
 *             sums and C in F32. As in any fast BLAS the order of sums follows from the product's
 *             shape: k is cut into stretches whose length depends on how many columns there are;
 *             within one, element i goes to partial sum i mod 16 of a fixed tree, and the stretches
 *             are added in order. So the same rows in a product of another shape may get other
 *             bits.
 * Threading:  on the stream's worker, as kernels/host/kernel.h says.
 */
#pragma once

#include <stdint.h>

#include "mm/abi.h"

struct softblas_matrix {
	uint64_t va;
	uint32_t ld;    /* in elements */
	uint16_t dtype; /* enum mm_dtype */
	/* of A: elements of a row are adjacent along k; of B: elements of a column are not */
	uint16_t transposed;
};

struct softblas_args {
	struct softblas_matrix a, b, c;
	uint32_t m, n, k;
	float alpha, beta;
	uint32_t reserved;
};

static_assert(sizeof(struct softblas_args) == 72, "no padding");

#define SOFTBLAS_KERNEL "softblas_product"

/* Return: how many elements of k are summed before they are added to the rest. */
uint32_t softblas_stretch(uint32_t columns);

void softblas_product(const struct softblas_args *args);
