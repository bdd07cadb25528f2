/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_core_check() and mm_core_check_sentence(): whether an invariant of the core is broken.
 */
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/market/reconcile.h"
#include "mmd/core/market/turn.h"
#include "libclient/protocol/cold.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/plan/swap.h"

/* Marks a page as used, which must not be used for something else already. */
static const char *page_claim(const struct mm_core *c, uint32_t page)
{
	mm_must(page < c->ledger.pages);
	mm_must(!c->scratch[page]);
	c->scratch[page] = 1;
	return NULL;
}

static const char *page_claim_as(const struct mm_core *c, const struct mm_c_tenant *t,
				 uint32_t page, enum mm_page_state state)
{
	mm_must_pass(page_claim(c, page));
	mm_must(c->ledger.page[page].state == state);
	mm_must(c->ledger.page[page].tenant == mm_c_index(c, t));
	mm_must(c->ledger.page[page].account == t->account);
	return NULL;
}

/*
 * The layers of the plan alternate in its slots in order of execution, no slot has a single layer,
 * and each has as many pages as its largest layer.
 */
static const char *tenant_check_slots(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_plan *plan = &t->plan;
	uint32_t at[MM_SLOTS_MAX] = { 0 };

	mm_must(plan->m == t->change->set.m && plan->beta == t->change->set.beta);
	mm_must(t->sets->uneven || plan->m == mm_plan_cycling(plan->alpha, plan->beta));
	mm_must(!plan->m == !plan->alpha);
	mm_must(!plan->m ||
		mm_plan_pages(&t->change->set, t->layer_pages) >=
			mm_c_away_pages(t, plan->alpha) + mm_c_slots_pages(t, &t->change->set));
	mm_must(plan->m ? plan->beta >= 1 && plan->beta <= MM_SLOTS_MAX : !plan->beta);
	for (uint32_t i = 0; i < plan->m; i++) {
		uint32_t s = mm_plan_slot(&t->change->set, i);

		mm_must(s < plan->beta && at[s] < plan->slot[s].n_layers);
		mm_must(plan->beta < 2 || !i || s != mm_plan_slot(&t->change->set, i - 1));
		mm_must(plan->slot[s].layer[at[s]++] == t->change->set.layer[i]);
	}
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		const struct mm_core_slot *slot = &plan->slot[s];

		mm_must(at[s] == slot->n_layers && slot->n_layers != 1);
		mm_must(!slot->n_layers == (s >= plan->beta));
		mm_must(slot->n_pages == mm_plan_slot_pages(&t->change->set, s, t->layer_pages));
		for (uint32_t i = 0; i < slot->n_pages; i++)
			mm_must_pass(page_claim_as(c, t, t->slot_page[s][i], MM_PAGE_SLOT));
	}
	return NULL;
}

static const char *tenant_check_model(const struct mm_core *c, const struct mm_c_tenant *t)
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

			mm_must((t->own[entry] == MM_NO_PAGE) == cycles);
			mm_must(t->map[entry] == (cycles ? slot[i] : t->own[entry]) + 1);
			if (!cycles)
				mm_must_pass(page_claim_as(c, t, t->own[entry], MM_PAGE_PARAM));
		}
	}
	mm_must(k == t->change->set.m);
	mm_must_pass(tenant_check_slots(c, t));
	for (uint32_t i = 0; i < t->change->pre.n; i++)
		if (t->change->pre.page[i] != MM_NO_PAGE)
			mm_must_pass(page_claim_as(c, t, t->change->pre.page[i], MM_PAGE_DIRTY));
	return NULL;
}

static const char *tenant_check_kv(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t held = 0;

	for (uint32_t chunk = 0; chunk < t->kv.chunks_max; chunk++) {
		bool holds = mm_c_kv_holds(t, chunk);

		held += holds;
		for (uint32_t i = 0; i < t->kv.chunk_pages; i++) {
			mm_must(holds == !!t->map[MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i]);
			if (holds)
				mm_must_pass(page_claim_as(c, t, mm_c_kv_chunk_page(t, chunk, i),
							   MM_PAGE_KV));
		}
	}
	mm_must(held == t->kv.held);
	return NULL;
}

/* Memory of the third kind lies behind the arena, and is counted. */
static const char *tenant_check_mem(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t arena = t->kv.chunks_max * t->kv.chunk_pages, held = 0;

	mm_must(arena + t->mem.depth <= MM_KV_ENTRIES);
	for (uint32_t i = MM_MAP_ENTRIES - t->mem.depth; i < MM_MAP_ENTRIES; i++) {
		if (!t->map[i])
			continue;
		mm_must_pass(page_claim_as(c, t, t->map[i] - 1, MM_PAGE_MEM));
		held++;
	}
	mm_must(held == t->mem.held);
	return NULL;
}

/* Each chunk that a list names is held, and each job belongs to a list. */
static const char *tenant_check_swap(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t jobs = 0;
	bool any = false;

	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++) {
		const struct mm_c_swap_list *list = &t->swap->list[lot];

		jobs += list->jobs;
		any |= list->used;
		mm_must(list->used ? list->jobs || list->at < list->n : !list->jobs);
	}
	mm_must(jobs == t->swap->jobs);
	if (!any || t->life != MM_LIFE_LIVE)
		return NULL;
	for (uint32_t chunk = 0; chunk < t->kv.chunks_max; chunk++)
		mm_must((mm_c_kv_holds(t, chunk) && !mm_c_kv_in_window(t, chunk, chunk + 1)) ||
			!mm_c_swap_uses_chunks(c, t, chunk, 1));
	return NULL;
}

/* Returns whether the tenant holds each of these chunks. */
static bool tenant_holds_chunks(const struct mm_c_tenant *t, uint32_t first, uint32_t chunks)
{
	if (first > t->kv.chunks_max || chunks > t->kv.chunks_max - first)
		return false;
	for (uint32_t i = first; i < first + chunks; i++)
		if (!mm_c_kv_holds(t, i))
			return false;
	return true;
}

/*
 * A plan streams cold blocks as they were declared, through chunks that the tenant holds; so it
 * holds those of the plan before while they may be written, and those that it has requested.
 */
static const char *tenant_check_cold(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_cold *now = &t->plan.cold;
	const struct mm_c_cold *cold = &t->cold;

	mm_must(!now->classes == !now->chunks && !now->classes == !now->entries);
	mm_must(!now->classes ||
		(now->classes == cold->classes && now->unit_bytes == cold->unit_bytes &&
		 now->entries <= cold->entries_max && t->model == MM_C_MODEL_READY));
	mm_must(!now->classes || (t->kv.ranges == 1 &&
				  (uint64_t)now->chunks * t->kv.chunk_pages <= MM_SLOT_PAGES_MAX));
	mm_must(!now->classes ||
		mm_cold_window_bytes(now->classes, t->n_layers, now->unit_bytes, now->entries) <=
			(uint64_t)now->chunks * t->kv.chunk_pages * c->opts.page_bytes);
	mm_must(!now->classes || (!t->plan.slot[0].in_place && !t->plan.slot[1].in_place));
	mm_must(tenant_holds_chunks(t, now->first, now->chunks));
	mm_must(!cold->window_due || tenant_holds_chunks(t, cold->first, cold->chunks));
	mm_must(tenant_holds_chunks(t, cold->was_first, cold->was_chunks));
	mm_must(!cold->classes ||
		(cold->limit <= cold->entries_max && cold->streamed <= cold->entries_max &&
		 (cold->limit_due || cold->limit <= cold->streamed)));
	mm_must(!cold->cut_ns || cold->limit < cold->streamed);
	return NULL;
}

static const char *core_check_accounts(const struct mm_core *c)
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

		mm_must(a->charged == charged[i] && a->quarantined == quarantined[i]);
		/*
		 * The operator may have lowered the max of an account that stays below its charge.
		 */
		mm_must(a->charged <= a->quota.max_pages || !a->charged || a->stays);
		min_sum += a->used ? a->quota.min_pages : 0;
		mm_must(a->used ||
			(!a->tenants && !a->charged && !a->quarantined && !c->ledger.touched[i]));
	}
	for (uint32_t i = c->accounts_end; i < c->opts.accounts_max; i++)
		mm_must(!c->account[i].used);
	mm_must(min_sum == c->min_sum && min_sum <= c->opts.pages);
	return NULL;
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
static const char *core_check_mins(const struct mm_core *c)
{
	uint64_t unused[MM_CORE_ACCOUNTS_MAX], short_pages = 0;

	if (!c->mins_covered || !c->min_sum)
		return NULL;
	memset(unused, 0, c->accounts_end * sizeof(*unused));
	for (uint32_t i = 0; i < c->accounts_end; i++)
		unused[c->account[i].domain] += mm_account_unused_min(&c->account[i]);
	for (uint32_t i = 0; i < c->accounts_end; i++)
		if (unused[i])
			short_pages += unused[i] - MM_MIN(unused[i], sure_pages_of(c, i));
	mm_must(short_pages <= sure_pages_of(c, MM_DOMAIN_NONE));
	return NULL;
}

/* A page that a tenant owns and that has no use waits for the proof of the tenant's end. */
static const char *core_check_unclaimed(const struct mm_core *c)
{
	for (uint32_t i = 0; i < c->ledger.pages; i++) {
		const struct mm_page *p = &c->ledger.page[i];

		if (c->scratch[i] || p->tenant == MM_NO_OWNER)
			continue;
		mm_must(p->state == MM_PAGE_REVOKING);
		mm_must(c->tenant[p->tenant].life != MM_LIFE_NONE);
	}
	return NULL;
}

static const char *core_check_jobs(const struct mm_core *c)
{
	uint32_t n = 0, bulk = 0;

	for (uint32_t job = c->jobs.first; job; job = c->jobs.job[job - 1].next) {
		mm_must(c->jobs.job[job - 1].used && ++n <= c->jobs.n);
		bulk += job - 1 < c->opts.jobs_max;
	}
	mm_must(bulk == c->jobs.bulk_used);
	for (uint32_t i = 0; i < c->ledger.pages; i++)
		mm_must(!c->ledger.page[i].job || c->jobs.job[c->ledger.page[i].job - 1].used);
	return NULL;
}

const char *mm_core_check_sentence(const struct mm_core *c)
{
	mm_must_pass(mm_ledger_check_sentence(&c->ledger, c->accounts_end, c->tenants_end));
	mm_must_pass(core_check_accounts(c));
	mm_must_pass(core_check_mins(c));
	mm_must_pass(core_check_jobs(c));
	memset(c->scratch, 0, c->ledger.pages * sizeof(*c->scratch));
	MM_FOREACH_TENANT(c, t) {
		mm_must_pass(tenant_check_swap(c, t));
		if (t->life != MM_LIFE_LIVE)
			continue;
		mm_must_pass(tenant_check_model(c, t));
		mm_must_pass(tenant_check_kv(c, t));
		mm_must_pass(tenant_check_mem(c, t));
		mm_must_pass(tenant_check_cold(c, t));
	}
	mm_must_pass(core_check_unclaimed(c));
	mm_must_pass(mm_c_turns_check(c));
	mm_must_pass(mm_c_targets_check(c));
	return NULL;
}

void mm_core_check(const struct mm_core *c)
{
	const char *why = mm_core_check_sentence(c);

	if (why)
		mm_panic(why, __FILE__, __LINE__);
}
