/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sincos - sine and cosine that are the same on every machine
 *
 * Concept:   for RoPE, whose angles (position * frequency) are doubles and large. Like exp.h, a
 *            fixed sequence of IEEE operations, in double: reduce by multiples of pi / 2 in four
 *            pieces of 21 bits, of which each multiple is exact; Taylor series to the 13th and 14th
 *            power; round to float once. A GPU for servers computes doubles at half speed, and one
 *            pair serves all heads of a token.
 * Limits:    angles up to 2^32; absolute error before the rounding to float below 1e-13, or that of
 *            the angle itself where it is larger.
 * Threading: pure.
 */
#pragma once

#include "kernels/host/both.h"

MM_BOTH void mm_sincos(double angle, float *ret_sin, float *ret_cos)
{
	const double round = 0x1.8p52; /* adding it rounds to an integer */
	const double n = (angle * 0x1.45f306dc9c883p-1 + round) - round;
	const double r = (((angle - n * 0x1.921fbp0) - n * 0x1.5110bp-22) - n * 0x1.18469p-44) -
			 n * 0x1.13198a2e03707p-65;
	const double s = r * r;
	const unsigned int quadrant = (unsigned int)(long long)n & 3;
	double sine, cosine;

	sine = -1.0 / 39916800 + s * (1.0 / 6227020800);
	sine = 1.0 / 362880 + s * sine;
	sine = -1.0 / 5040 + s * sine;
	sine = 1.0 / 120 + s * sine;
	sine = -1.0 / 6 + s * sine;
	sine = r + r * (s * sine);
	cosine = 1.0 / 479001600 + s * (-1.0 / 87178291200);
	cosine = -1.0 / 3628800 + s * cosine;
	cosine = 1.0 / 40320 + s * cosine;
	cosine = -1.0 / 720 + s * cosine;
	cosine = 1.0 / 24 + s * cosine;
	cosine = -0.5 + s * cosine;
	cosine = 1.0 + s * cosine;
	*ret_sin = (float)(quadrant & 1 ? cosine : sine) * (quadrant & 2 ? -1.0f : 1.0f);
	*ret_cos = (float)(quadrant & 1 ? sine : cosine) *
		   (quadrant == 1 || quadrant == 2 ? -1.0f : 1.0f);
}
