/* SPDX-License-Identifier: Apache-2.0 */
/*
 * narrow - conversion from F32 to the dtypes of 16 bits
 *
 * Concept:    done with integers, so that every machine and compiler gives the same bits. Widening
 *             is in lanes.h.
 * Threading:  pure.
 */
#pragma once

#include <stdint.h>
#include <string.h>

/* Rounds to the nearest, ties to even; a value that is too large becomes infinite. */
static inline uint16_t mm_narrow_f16(float value)
{
	uint32_t bits;
	uint16_t sign;

	memcpy(&bits, &value, sizeof(bits));
	sign = (uint16_t)(bits >> 16 & 0x8000u);
	bits &= 0x7fffffffu;
	if (bits > 0x7f800000u) /* NaN */
		return sign | 0x7e00u;
	if (bits >= 0x477ff000u)
		return sign | 0x7c00u;
	if (bits < 0x38800000u) { /* below the normal numbers: beside 0.5 units are 2^-24 */
		memcpy(&value, &bits, sizeof(value));
		value += 0.5f;
		memcpy(&bits, &value, sizeof(bits));
		return sign | (uint16_t)(bits - 0x3f000000u);
	}
	bits += 0xfffu + (bits >> 13 & 1);
	return sign | (uint16_t)((bits >> 13) - ((127 - 15) << 10));
}

static inline uint16_t mm_narrow_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if ((bits & 0x7fffffffu) > 0x7f800000u) /* NaN */
		return (uint16_t)(bits >> 16 | 0x40u);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
