/* SPDX-License-Identifier: Apache-2.0 */
/* random - random weights from a seed (sources.h). */
#include "tools/lab/mkmodel/sources.h"

#include <math.h>

#include "libclient/base/random.h"

/* Maps bits to a uniform number in [-1, 1), in steps of 2^-23, which F32 represents exactly. */
static float uniform_of(uint64_t bits)
{
	return (float)((int32_t)(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

static bool is_gain(enum mm_weight weight)
{
	return weight == MM_W_INPUT_NORM || weight == MM_W_POST_NORM || weight == MM_W_FINAL_NORM;
}

/*
 * Widths of the distribution with which activations keep their size from layer to layer, and the
 * output depends on the whole context. Uniform numbers of width sqrt(3 / n) have variance 1 / n.
 * - Attention is sharper than that; else each position would see the mean of all positions.
 * - The embedding is small, also in wide models; else the residual stream would carry the last
 *   token through a tied head.
 * - Blocks that norms follow are smaller; else the layers would lose their input.
 */
static float weight_width(const struct mm_arch *a, enum mm_weight weight, uint32_t rows,
			  uint32_t columns)
{
	const float even = sqrtf(3.0f / (float)columns);

	if (!rows)
		return is_gain(weight) ? 0.125f : 0.03f;
	switch (weight) {
	case MM_W_EMBED:
	case MM_W_POSITIONS:
		return 0.25f * sqrtf(fminf(1024.0f / (float)columns, 1.0f));
	case MM_W_Q:
	case MM_W_K:
		return 3 * even;
	case MM_W_O:
	case MM_W_DOWN:
		return a->post_norm ? even / 2 : even;
	default:
		return even;
	}
}

void mk_random_row(void *context, enum mm_weight weight, uint32_t layer, uint32_t row, float *out)
{
	const struct mk_random *r = context;
	const uint64_t block = mm_random_mix(mm_random_mix(r->seed) + (uint64_t)weight);
	const uint64_t stream = mm_random_mix(block + layer) + row;
	uint32_t rows, columns;
	float scale;

	mm_arch_size(&r->arch, weight, &rows, &columns);
	scale = weight_width(&r->arch, weight, rows, columns);
	for (uint32_t i = 0; i < columns; i++)
		out[i] = scale * uniform_of(mm_random_mix(mm_random_mix(stream) + i)) +
			 (is_gain(weight) ? 1.0f : 0.0f);
}
