/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_core_check(): panics if an invariant of the core is broken.
 */
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/market/reconcile.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/plan/swap.h"

/* Marks a page as used; panics if it is used for something else already. */
static void page_claim(const struct mm_core *c, uint32_t page)
{
	mm_assert(page < c->ledger.pages);
	mm_assert(!c->scratch[page]);
	c->scratch[page] = 1;
}

static void page_claim_as(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t page,
			  enum mm_page_state state)
{
	page_claim(c, page);
	mm_assert(c->ledger.page[page].state == state);
	mm_assert(c->ledger.page[page].tenant == mm_c_index(c, t));
	mm_assert(c->ledger.page[page].account == t->account);
}

/*
 * The layers of the plan alternate in its slots in order of execution, no slot has a single layer,
 * and each has as many pages as its largest layer.
 */
static void tenant_check_slots(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_plan *plan = &t->plan;
	uint32_t at[MM_SLOTS_MAX] = { 0 };

	mm_assert(plan->m == t->change->set.m && plan->beta == t->change->set.beta);
	mm_assert(t->sets->uneven || plan->m == mm_plan_cycling(plan->alpha, plan->beta));
	mm_assert(!plan->m == !plan->alpha);
	mm_assert(!plan->m ||
		  mm_plan_pages(&t->change->set, t->layer_pages) >=
			  mm_c_away_pages(t, plan->alpha) + mm_c_slots_pages(t, &t->change->set));
	mm_assert(plan->m ? plan->beta >= 1 && plan->beta <= MM_SLOTS_MAX : !plan->beta);
	for (uint32_t i = 0; i < plan->m; i++) {
		uint32_t s = mm_plan_slot(&t->change->set, i);

		mm_assert(s < plan->beta && at[s] < plan->slot[s].n_layers);
		mm_assert(plan->beta < 2 || !i || s != mm_plan_slot(&t->change->set, i - 1));
		mm_assert(plan->slot[s].layer[at[s]++] == t->change->set.layer[i]);
	}
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		const struct mm_core_slot *slot = &plan->slot[s];

		mm_assert(at[s] == slot->n_layers && slot->n_layers != 1);
		mm_assert(!slot->n_layers == (s >= plan->beta));
		mm_assert(slot->n_pages == mm_plan_slot_pages(&t->change->set, s, t->layer_pages));
		for (uint32_t i = 0; i < slot->n_pages; i++)
			page_claim_as(c, t, t->slot_page[s][i], MM_PAGE_SLOT);
	}
}

static void tenant_check_model(const struct mm_core *c, const struct mm_c_tenant *t)
{
	bool given = t->model == MM_C_MODEL_SWITCHED || t->model == MM_C_MODEL_READY;
	uint32_t k = 0;

	for (uint32_t g = 0; given && g <= t->n_layers; g++) {
		bool cycles = g && k < t->change->set.m && t->change->set.layer[k] == g - 1;
		const uint32_t *slot =
			cycles ? t->slot_page[mm_plan_slot(&t->change->set, k)] : NULL;

		k += cycles;
		for (uint32_t i = 0; i < t->group[g].pages; i++) {
			uint32_t entry = t->group[g].entry + i;

			mm_assert((t->own[entry] == MM_NO_PAGE) == cycles);
			mm_assert(t->map[entry] == (cycles ? slot[i] : t->own[entry]) + 1);
			if (!cycles)
				page_claim_as(c, t, t->own[entry], MM_PAGE_PARAM);
		}
	}
	mm_assert(k == t->change->set.m);
	tenant_check_slots(c, t);
	for (uint32_t i = 0; i < t->change->pre.n; i++)
		if (t->change->pre.page[i] != MM_NO_PAGE)
			page_claim_as(c, t, t->change->pre.page[i], MM_PAGE_DIRTY);
}

static void tenant_check_kv(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t held = 0;

	for (uint32_t chunk = 0; chunk < t->kv.chunks_max; chunk++) {
		bool holds = mm_c_kv_holds(t, chunk);

		held += holds;
		for (uint32_t i = 0; i < t->kv.chunk_pages; i++) {
			mm_assert(holds ==
				  !!t->map[MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i]);
			if (holds)
				page_claim_as(c, t, mm_c_kv_chunk_page(t, chunk, i), MM_PAGE_KV);
		}
	}
	mm_assert(held == t->kv.held);
}

/* Memory of the third kind lies behind the arena, and is counted. */
static void tenant_check_mem(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t arena = t->kv.chunks_max * t->kv.chunk_pages, held = 0;

	mm_assert(arena + t->mem.depth <= MM_KV_ENTRIES);
	for (uint32_t i = MM_MAP_ENTRIES - t->mem.depth; i < MM_MAP_ENTRIES; i++) {
		if (!t->map[i])
			continue;
		page_claim_as(c, t, t->map[i] - 1, MM_PAGE_MEM);
		held++;
	}
	mm_assert(held == t->mem.held);
}

/* Each chunk that a list names is held, and each job belongs to a list. */
static void tenant_check_swap(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t jobs = 0;
	bool any = false;

	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++) {
		const struct mm_c_swap_list *list = &t->swap->list[lot];

		jobs += list->jobs;
		any |= list->used;
		mm_assert(list->used ? list->jobs || list->at < list->n : !list->jobs);
	}
	mm_assert(jobs == t->swap->jobs);
	if (!any || t->life != MM_LIFE_LIVE)
		return;
	for (uint32_t chunk = 0; chunk < t->kv.chunks_max; chunk++)
		mm_assert(mm_c_kv_holds(t, chunk) || !mm_c_swap_uses_chunk(c, t, chunk));
}

static void core_check_accounts(const struct mm_core *c)
{
	uint32_t charged[MM_DOMAINS], quarantined[MM_DOMAINS];
	uint64_t min_sum = 0;

	memset(charged, 0, c->accounts_end * sizeof(*charged));
	memset(quarantined, 0, c->accounts_end * sizeof(*quarantined));
	charged[MM_DOMAIN_NONE] = quarantined[MM_DOMAIN_NONE] = 0;

	for (uint32_t i = 0; i < c->ledger.pages; i++) {
		const struct mm_page *p = &c->ledger.page[i];

		if (p->quarantined)
			quarantined[p->account]++;
		else
			charged[p->account]++;
	}
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		const struct mm_account *a = &c->account[i];

		mm_assert(a->charged == charged[i] && a->quarantined == quarantined[i]);
		/*
		 * The operator may have lowered the max of an account that stays below its charge.
		 */
		mm_assert(a->charged <= a->quota.max_pages || !a->charged || a->stays);
		min_sum += a->used ? a->quota.min_pages : 0;
		mm_assert(a->used ||
			  (!a->tenants && !a->charged && !a->quarantined && !c->ledger.touched[i]));
	}
	for (uint32_t i = c->accounts_end; i < c->opts.accounts_max; i++)
		mm_assert(!c->account[i].used);
	mm_assert(min_sum == c->min_sum && min_sum <= c->opts.pages);
}

/*
 * Pages of @domain that are free. MM_DOMAIN_NONE: pages of no domain that are free, or will be
 * after a scrub and have no owner.
 */
static uint64_t sure_pages_of(const struct mm_core *c, uint32_t domain)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < c->ledger.pages; i++) {
		const struct mm_page *p = &c->ledger.page[i];
		bool scrubbed = p->tenant == MM_NO_OWNER && !p->recreating && !p->lost &&
				domain == MM_DOMAIN_NONE &&
				(p->state == MM_PAGE_DIRTY || p->state == MM_PAGE_SCRUBBING);

		n += p->domain == domain && (p->state == MM_PAGE_FREE || scrubbed);
	}
	return n;
}

/*
 * Free pages of a domain and pages of no domain cover the unused part of each min, so that no other
 * tenant can keep an account from it.
 */
static void core_check_mins(const struct mm_core *c)
{
	uint64_t unused[MM_CORE_ACCOUNTS_MAX], short_pages = 0;

	if (!c->mins_covered || !c->min_sum)
		return;
	memset(unused, 0, c->accounts_end * sizeof(*unused));
	for (uint32_t i = 0; i < c->accounts_end; i++)
		unused[c->account[i].domain] += mm_account_unused_min(&c->account[i]);
	for (uint32_t i = 0; i < c->accounts_end; i++)
		if (unused[i])
			short_pages += unused[i] - MM_MIN(unused[i], sure_pages_of(c, i));
	mm_assert(short_pages <= sure_pages_of(c, MM_DOMAIN_NONE));
}

/* A page that a tenant owns and that has no use waits for the proof of the tenant's end. */
static void core_check_unclaimed(const struct mm_core *c)
{
	for (uint32_t i = 0; i < c->ledger.pages; i++) {
		const struct mm_page *p = &c->ledger.page[i];

		if (c->scratch[i] || p->tenant == MM_NO_OWNER)
			continue;
		mm_assert(p->state == MM_PAGE_REVOKING);
		mm_assert(c->tenant[p->tenant].life != MM_LIFE_NONE);
	}
}

static void core_check_jobs(const struct mm_core *c)
{
	uint32_t n = 0, bulk = 0;

	for (uint32_t job = c->jobs.first; job; job = c->jobs.job[job - 1].next) {
		mm_assert(c->jobs.job[job - 1].used && ++n <= c->jobs.n);
		bulk += job - 1 < c->opts.jobs_max;
	}
	mm_assert(bulk == c->jobs.bulk_used);
	for (uint32_t i = 0; i < c->ledger.pages; i++)
		mm_assert(!c->ledger.page[i].job || c->jobs.job[c->ledger.page[i].job - 1].used);
}

void mm_core_check(const struct mm_core *c)
{
	mm_ledger_check(&c->ledger, c->accounts_end, c->tenants_end);
	core_check_accounts(c);
	core_check_mins(c);
	core_check_jobs(c);
	memset(c->scratch, 0, c->ledger.pages * sizeof(*c->scratch));
	MM_FOREACH_TENANT(c, t) {
		tenant_check_swap(c, t);
		if (t->life != MM_LIFE_LIVE)
			continue;
		tenant_check_model(c, t);
		tenant_check_kv(c, t);
		tenant_check_mem(c, t);
	}
	core_check_unclaimed(c);
	mm_c_turns_check(c);
	mm_c_targets_check(c);
}
