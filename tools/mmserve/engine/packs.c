/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/packs.h"

#include <errno.h>
#include <stdio.h>

#include "libclient/base/base.h"

/* A rule of two members ends with MM_W_COUNT. */
static const enum mm_weight rules[MM_PACKS_MAX][MM_PACK_WIDEST] = {
	{ MM_W_Q, MM_W_K, MM_W_V },
	{ MM_W_Q_BIAS, MM_W_K_BIAS, MM_W_V_BIAS },
	{ MM_W_GATE, MM_W_UP, MM_W_COUNT },
};

static uint32_t n_members(size_t rule)
{
	return rules[rule][MM_PACK_WIDEST - 1] == MM_W_COUNT ? 2 : 3;
}

void mm_serve_packs_make(const struct mm_arch *arch, struct mm_serve_packs *ret)
{
	*ret = (struct mm_serve_packs){ .opts = { .size = sizeof(ret->opts),
						  .packs = ret->packs,
						  .pack_size = sizeof(ret->packs[0]) } };
	for (size_t i = 0; i < MM_PACKS_MAX; i++) {
		const size_t n = ret->opts.n_packs;

		if (!mm_arch_has(arch, rules[i][0]))
			continue;
		for (uint32_t m = 0; m < n_members(i); m++) {
			mm_arch_name(arch, rules[i][m], MM_ANY_LAYER, ret->names[n][m],
				     sizeof(ret->names[n][m]));
			ret->members[n][m] = ret->names[n][m];
		}
		ret->packs[n] =
			(struct mm_pack){ .members = ret->members[n], .n_members = n_members(i) };
		ret->opts.n_packs++;
	}
}

static bool tensors_are_adjacent(const struct mm_weights *w, uint32_t layer,
				 const enum mm_weight *roles, uint32_t n)
{
	for (uint32_t m = 1; m < n; m++) {
		const struct mm_bound *before = mm_weights_at(w, layer, roles[m - 1]);
		const struct mm_bound *it = mm_weights_at(w, layer, roles[m]);

		if (it->va != before->va + before->bytes || it->dtype != before->dtype)
			return false;
	}
	return true;
}

int mm_weights_fuse(struct mm_weights *w, char *err)
{
	for (uint32_t layer = 0; layer < w->arch.layers; layer++) {
		for (size_t i = 0; i < MM_PACKS_MAX; i++) {
			if (!mm_arch_has(&w->arch, rules[i][0]) ||
			    tensors_are_adjacent(w, layer, rules[i], n_members(i)))
				continue;
			snprintf(err, MM_SERVE_ERROR_BYTES,
				 "layer %u: %s and what belongs to it do not lie adjacent", layer,
				 mm_arch_short_name(&w->arch, rules[i][0]));
			return -EBADMSG;
		}
	}
	w->fused = true;
	return 0;
}
