/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check - invariants of the simulator's memory: no page is used twice, and the tenants do not map
 * more pages than there are.
 */
#include "tools/lab/mmsim/check.h"

static void check_pool(struct ms_device *dev)
{
	struct mm_core_stats s;
	uint64_t sum = 0;

	mm_core_stats(dev->core, &s);
	for (uint32_t i = 0; i < MM_PAGE_STATES; i++)
		sum += s.pages[i];
	if (sum != dev->opts.pages)
		ms_fail(dev->sim, "the pages' states do not sum up to the pool");
}

/* Counts the pages of resident layers and slots, each page once. */
static uint64_t plan_pages(struct ms_tenant *t, const struct mm_core_plan *plan)
{
	uint64_t pages = t->entries;

	if (t->plan_pages && t->plan_pages_epoch == plan->epoch)
		return t->plan_pages;
	for (uint32_t s = 0; s < plan->beta; s++) {
		const struct mm_core_slot *slot = &plan->slot[s];

		pages += slot->n_pages;
		for (uint32_t i = 0; i < slot->n_layers; i++)
			pages -= t->first[slot->layer[i] + 2] - t->first[slot->layer[i] + 1];
	}
	t->plan_pages = pages;
	t->plan_pages_epoch = plan->epoch;
	return pages;
}

/* Checks that a tenant maps its resident layers and slots. Return: its pages, with KV. */
static uint64_t check_tenant(struct ms_tenant *t)
{
	const struct mm_core_plan *plan = mm_core_plan(t->dev->core, t->id);

	if (t->c.model_ready && plan && !t->c.busy &&
	    mm_core_plan_phase(t->dev->core, t->id) == MM_PLAN_STEADY &&
	    t->model_pages != plan_pages(t, plan))
		ms_fail(t->sim,
			"tenant %s does not map its resident layers and slots, and only them",
			t->name);
	return t->model_pages + t->kv_pages;
}

/* Checks that a tenant maps no more pages than the ledger has for it. */
static void check_ledger(struct ms_tenant *t)
{
	struct mm_core_tenant known;

	if (mm_core_tenant(t->dev->core, t->id, &known) &&
	    t->model_pages + t->kv_pages >
		    known.pages_param + known.pages_slot + known.pages_kv + known.pages_revoking)
		ms_fail(t->sim, "tenant %s maps more pages than are its", t->name);
}

void ms_check_event(struct ms_device *dev)
{
	const uint32_t every = dev->sim->opts.check;
	const bool all = every && dev->sim->checks++ % every == 0;
	uint64_t sum = 0;

	check_pool(dev);
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++) {
		struct ms_tenant *t = &dev->sim->tenants[i];

		if (t->dev != dev)
			continue;
		sum += check_tenant(t);
		if (all)
			check_ledger(t);
	}
	if (sum > dev->opts.pages)
		ms_fail(dev->sim, "more pages are mapped than there are");
	if (all)
		mm_core_check(dev->core);
}

/* Checks that every chunk whose blocks the scheduler may use is mapped. */
void ms_check_blocks(struct ms_tenant *t)
{
	const struct mm_kvblocks *kv = &t->e.sched.kv;
	const char *wrong;

	for (uint32_t i = 0; i < kv->n_chunks; i++)
		if (kv->chunks[i].usable && !(t->c.usable[i / 64] >> i % 64 & 1))
			ms_fail(t->sim, "tenant %s uses a chunk that it does not have", t->name);
	wrong = mm_sched_check(&t->e.sched);
	if (wrong)
		ms_fail(t->sim, "tenant %s: %s", t->name, wrong);
}
