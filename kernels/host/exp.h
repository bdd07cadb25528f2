/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp - e^x that is the same on every machine
 *
 * Concept:   the C library's expf() may differ in its last bit from one version or processor to the
 *            next; this one is a fixed sequence of IEEE operations (no contraction): reduce by
 *            multiples of ln 2, Taylor series to the 7th power, scale by the exponent field.
 * Limits:    relative error below 3e-7; 0 below -87, +inf above 88.7; NaN stays NaN.
 * Threading: pure.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/host/both.h"

MM_BOTH float mm_exp(float x)
{
	const float round = 0x1.8p23f; /* adding it rounds to an integer */
	const float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
	/* NaN, too, becomes a number here: C leaves its conversion to an integer undefined. */
	const float clamped = !(x >= -87.0f) ? -87.0f : x > 88.0f ? 88.0f : x;
	const float n = (clamped * 0x1.715476p0f + round) - round;
	const float r = (clamped - n * ln2_high) - n * ln2_low;
	uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
	float p, scale;

	p = 1.0f / 720 + r * (1.0f / 5040);
	p = 1.0f / 120 + r * p;
	p = 1.0f / 24 + r * p;
	p = 1.0f / 6 + r * p;
	p = 0.5f + r * p;
	p = 1.0f + r * p;
	p = 1.0f + r * p;
	memcpy(&scale, &bits, sizeof(scale));
	p *= scale;
	return x != x ? x : x < -87.0f ? 0.0f : x > 88.0f ? __builtin_inff() : p;
}
