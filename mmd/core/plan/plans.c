/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/plans.h"

#include <stdlib.h>

/* Gives every tenant index its own part of the storage, once. */
static void plans_share_out_tables(struct mm_plans *p, uint32_t tenants, uint32_t entries)
{
	uint32_t *at = p->storage;

	for (uint32_t i = 0; i < tenants; i++) {
		p->change[i].pre.entry = at;
		p->change[i].pre.page = at + entries;
		at += 2 * (size_t)entries;
	}
}

struct mm_plans *mm_plans_create(uint32_t tenants, uint32_t pages, uint32_t entries)
{
	struct mm_plans *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->change = calloc(tenants, sizeof(*p->change));
	p->sets = calloc(tenants, sizeof(*p->sets));
	p->swap = calloc(tenants, sizeof(*p->swap));
	p->swap_pieces =
		calloc((size_t)tenants * MM_SWAP_LOTS * MM_SWAP_PIECES, sizeof(*p->swap_pieces));
	p->spill = calloc(pages, sizeof(*p->spill));
	p->storage = calloc(2 * (size_t)tenants * entries, sizeof(*p->storage));
	if (!p->change || !p->sets || !p->swap || !p->swap_pieces || !p->spill || !p->storage) {
		mm_plans_destroy(p);
		return NULL;
	}
	plans_share_out_tables(p, tenants, entries);
	return p;
}

void mm_plans_destroy(struct mm_plans *p)
{
	if (!p)
		return;
	free(p->change);
	free(p->sets);
	free(p->swap);
	free(p->swap_pieces);
	free(p->spill);
	free(p->storage);
	free(p);
}

void mm_plans_attach(struct mm_plans *p, struct mm_c_tenant *t, uint32_t index)
{
	t->change = &p->change[index];
	t->sets = &p->sets[index];
	t->swap = &p->swap[index];
}

void mm_plans_join(struct mm_plans *p, struct mm_c_tenant *t, uint32_t index)
{
	const struct mm_c_preload pre = p->change[index].pre;

	mm_plans_attach(p, t, index);
	*t->change = (struct mm_change){ .pre = { .entry = pre.entry, .page = pre.page } };
	*t->sets = (struct mm_c_sets){ 0 };
	*t->swap = (struct mm_c_swap){ 0 };
}
