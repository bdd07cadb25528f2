/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/rope.h"

#include <math.h>

static double rope_scale_llama3(const struct mm_rope *rope, double frequency)
{
	const double wavelength = 2 * M_PI / frequency;
	const double rotations = rope->original / wavelength; /* in the unscaled model's context */
	double keep;

	if (rotations > rope->high_factor)
		return frequency;
	if (rotations < rope->low_factor)
		return frequency / rope->factor;
	keep = (rotations - rope->low_factor) / (rope->high_factor - rope->low_factor);
	return (1 - keep) * frequency / rope->factor + keep * frequency;
}

void mm_rope_frequencies(const struct mm_arch *a, double *ret_frequencies)
{
	for (uint32_t i = 0; i < a->head_dim / 2; i++) {
		const double f = pow(a->rope.theta, -2.0 * i / a->head_dim);

		switch (a->rope.scaling) {
		case MM_ROPE_UNSCALED:
			ret_frequencies[i] = f;
			break;
		case MM_ROPE_LINEAR:
			ret_frequencies[i] = f / a->rope.factor;
			break;
		case MM_ROPE_LLAMA3:
			ret_frequencies[i] = rope_scale_llama3(&a->rope, f);
			break;
		}
	}
}
