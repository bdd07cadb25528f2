/* SPDX-License-Identifier: Apache-2.0 */
/* model - the layout of a model's groups. */
#include "tools/lab/mmsim/model.h"

/*
 * The layout of mmd's load role: group 0 is always resident and has the weights outside the layers,
 * and all vectors; each further group has the matrices of a layer.
 */
void ms_model_layout(struct ms_tenant *t, uint64_t page_bytes)
{
	uint64_t offset = 0;

	t->n_layers = t->arch->layers;
	for (uint32_t g = 0; g <= t->n_layers; g++) {
		const uint64_t bytes = g ? t->sizes->layer_bytes : t->sizes->resident_bytes;

		t->group[g] = (struct mm_core_group){ .store_offset = offset, .bytes = bytes };
		offset += mm_round_up(bytes, MM_ABI_PAGE_BYTES);
		t->first[g] = t->entries;
		t->entries += (uint32_t)mm_div_up(bytes, page_bytes);
	}
	t->first[t->n_layers + 1] = t->entries;
}

uint64_t ms_model_bytes(const struct ms_tenant *t)
{
	const struct mm_core_group *last = &t->group[t->n_layers];

	return last->store_offset + mm_round_up(last->bytes, MM_ABI_PAGE_BYTES);
}
