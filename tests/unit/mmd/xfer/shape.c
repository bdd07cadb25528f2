/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/mmd/xfer/shape.h"

#include <stdlib.h>

const uint32_t *shape_pages(const struct shape *shape, uint32_t layer)
{
	for (uint32_t s = 0; s < shape->n_slots; s++)
		for (uint32_t i = 0; i < shape->n[s]; i++)
			if (shape->layer[s][i] == layer)
				return shape->pages[s];
	return NULL;
}

void shape_deal(struct shape *shape, uint32_t n_slots, uint32_t layers, unsigned int *seed)
{
	const uint32_t least = 2 * n_slots;
	uint32_t m, mask = 0, slot = 0;

	shape->n_slots = n_slots;
	if (n_slots == 0)
		return;
	m = least + (uint32_t)rand_r(seed) % (layers + 1 - least);
	while ((uint32_t)__builtin_popcount(mask) < m)
		mask |= 1u << (uint32_t)rand_r(seed) % layers;
	for (uint32_t l = 0; l < layers; l++) {
		if (!(mask >> l & 1))
			continue;
		shape->layer[slot][shape->n[slot]++] = (uint16_t)l;
		slot = (slot + 1) % n_slots;
	}
}
