/* SPDX-License-Identifier: Apache-2.0 */
/*
 * narrow - conversion of F32 to 16 bits
 *
 * Concept:   F16 and BF16 are computed from the bits, rounded to nearest even.
 * Threading: any; there is no shared state.
 */
#pragma once

#include "tools/lab/mkmodel/hf.h"

/**
 * mk_narrow() - convert one F32 to 16 bits, rounded to nearest even
 * @dtype:    MM_DTYPE_F16 or MM_DTYPE_BF16
 * @ret_bits: written only on success
 *
 * Return: 0; -ERANGE the value is not finite, or not representable.
 */
int mk_narrow(float value, enum mm_dtype dtype, uint16_t *ret_bits);
