/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/bounds.h"

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/market/market.h"
#include "mmd/core/plan/plans.h"

static bool is_page_or_none(const struct mm_core *c, uint32_t page)
{
	return page < c->opts.pages || page == MM_NO_PAGE;
}

static bool is_account_or_none(const struct mm_core *c, uint32_t account)
{
	return account < c->accounts_end || account == MM_DOMAIN_NONE;
}

static bool is_tenant_or(const struct mm_core *c, uint32_t index, uint32_t none)
{
	return index < c->tenants_end || index == none;
}

static bool list_is_within(const struct mm_core *c, const struct mm_page_list *list)
{
	return is_page_or_none(c, list->head) && is_page_or_none(c, list->tail);
}

static const char *ledger_bounds(const struct mm_core *c)
{
	const struct mm_ledger *l = &c->ledger;

	mm_must(l->pages == c->opts.pages);
	for (uint32_t i = 0; i < l->pages; i++) {
		const struct mm_page *p = &l->page[i];

		mm_must(is_page_or_none(c, p->next) && is_page_or_none(c, p->prev));
		mm_must(is_tenant_or(c, p->tenant, MM_NO_OWNER));
		mm_must(p->tenant == MM_NO_OWNER || c->tenant[p->tenant].life != MM_LIFE_NONE);
		mm_must(p->job <= c->jobs.n);
		mm_must(is_account_or_none(c, p->domain) && is_account_or_none(c, p->last) &&
			is_account_or_none(c, p->account));
	}
	for (uint32_t i = 0; i < MM_DOMAINS; i++)
		mm_must(list_is_within(c, &l->free[i]));
	mm_must(list_is_within(c, &l->scrub) && list_is_within(c, &l->quarantine));
	for (uint32_t i = 0; i < MM_CORE_TENANTS_MAX; i++)
		mm_must(list_is_within(c, &l->revoking[i]));
	return NULL;
}

static const char *accounts_bounds(const struct mm_core *c)
{
	mm_must(c->accounts_end <= c->opts.accounts_max && c->tenants_end <= c->opts.tenants_max);
	for (uint32_t i = 0; i < c->opts.accounts_max; i++) {
		const struct mm_account *a = &c->account[i];

		mm_must(a->domain < MM_MAX(c->accounts_end, 1u));
		mm_must(!a->used || (a->quota.weight && a->quota.weight <= MM_WEIGHT_MAX &&
				     a->quota.priority <= MM_PRIORITY_MAX));
		mm_must(a->quota.max_pages <= c->opts.pages);
	}
	return NULL;
}

/* The pages and tenants that a job names, which its end will use. */
static const char *job_bounds(const struct mm_core *c, const struct mm_job *j)
{
	const uint64_t *arg = j->msg.arg;

	mm_must(is_tenant_or(c, j->tenant, MM_NO_OWNER));
	switch (j->msg.opcode) {
	case MM_XOP_CREATE:
		mm_must(arg[0] <= c->opts.pages && arg[1] <= c->opts.pages - arg[0]);
		return NULL;
	case MM_XOP_SCRUB:
	case MM_XOP_RECREATE:
		mm_must(arg[0] < c->opts.pages);
		return NULL;
	case MM_XOP_COPY:
		mm_must(arg[0] < c->opts.pages);
		break;
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		mm_must(arg[0] >> 32 < MM_SWAP_LOTS);
		break;
	default:
		break;
	}
	mm_must(j->tenant != MM_NO_OWNER && c->tenant[j->tenant].life != MM_LIFE_NONE);
	return NULL;
}

/* The jobs in use form a chain, which has all of them. */
static const char *jobs_bounds(const struct mm_core *c)
{
	const struct mm_jobs *jobs = &c->jobs;
	uint32_t used = 0, n = 0, prev = MM_JOB_NONE;

	mm_must(jobs->n == c->opts.jobs_max + c->opts.tenants_max);
	mm_must(jobs->bulk_max == c->opts.jobs_max && jobs->bulk_used <= jobs->bulk_max);
	mm_must(jobs->first <= jobs->n && jobs->last <= jobs->n);
	for (uint32_t i = 0; i < jobs->n; i++) {
		const struct mm_job *j = &jobs->job[i];

		mm_must(j->next <= jobs->n && j->prev <= jobs->n);
		if (!j->used)
			continue;
		used++;
		mm_must_pass(job_bounds(c, j));
	}
	for (uint32_t job = jobs->first; job; job = jobs->job[job - 1].next) {
		mm_must(jobs->job[job - 1].used && jobs->job[job - 1].prev == prev);
		mm_must(++n <= used);
		prev = job;
	}
	mm_must(n == used && jobs->last == prev);
	return NULL;
}

static bool set_is_within(const struct mm_plan_set *set, uint32_t layers)
{
	if (set->m > layers || set->beta > MM_SLOTS_MAX || set->first_slot >= MM_SLOTS_MAX)
		return false;
	for (uint32_t i = 0; i < set->m; i++)
		if (set->layer[i] >= layers || (i && set->layer[i] <= set->layer[i - 1]))
			return false;
	return true;
}

static const char *model_bounds(const struct mm_core *c, const struct mm_c_tenant *t)
{
	mm_must(t->n_layers <= MM_LAYERS_MAX && t->plan.n_layers <= MM_LAYERS_MAX);
	mm_must(t->entries <= MM_MAP_KV_BASE);
	for (uint32_t i = 0; i <= t->n_layers; i++)
		mm_must(t->group[i].entry <= MM_MAP_KV_BASE &&
			t->group[i].pages <= MM_MAP_KV_BASE - t->group[i].entry);
	/* A model that is too large for the pool waits with more entries than its table has. */
	if (t->model != MM_C_MODEL_NONE && t->model != MM_C_MODEL_WAITING)
		mm_must(t->entries <= c->entries_max);
	for (uint32_t i = 0; i < t->n_layers && t->entries; i++)
		mm_must(t->layer_pages[i] <= t->entries);
	for (uint32_t i = 0; i < MM_MIN(t->entries, c->entries_max); i++)
		mm_must(is_page_or_none(c, t->own[i]));
	return NULL;
}

static const char *plan_bounds(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_core_plan *plan = &t->plan;

	mm_must(plan->m <= t->n_layers && plan->beta <= MM_SLOTS_MAX);
	mm_must(plan->slots_by_hand <= MM_SLOTS_MAX);
	mm_must(plan->alpha_by_hand >= -1 && plan->alpha_by_hand <= (int32_t)MM_LAYERS_MAX);
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		const struct mm_core_slot *slot = &plan->slot[s];

		mm_must(slot->n_layers <= t->n_layers && slot->n_pages <= MM_SLOT_PAGES_MAX);
		for (uint32_t i = 0; i < slot->n_layers; i++)
			mm_must(slot->layer[i] < t->n_layers);
		for (uint32_t i = 0; i < slot->n_pages; i++)
			mm_must(is_page_or_none(c, t->slot_page[s][i]));
	}
	return NULL;
}

static bool chunks_are_within(const struct mm_c_kv *kv, uint32_t first, uint32_t chunks)
{
	return first <= kv->chunks_max && chunks <= kv->chunks_max - first;
}

static const char *arena_bounds(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_c_kv *kv = &t->kv;

	mm_must(!kv->declared || (kv->chunk_pages && kv->ranges && kv->chunks_max));
	mm_must(kv->chunks_max <= MM_KV_ENTRIES && kv->chunk_pages <= MM_KV_ENTRIES);
	mm_must((uint64_t)kv->chunks_max * kv->chunk_pages <= MM_KV_ENTRIES);
	mm_must(!kv->ranges || kv->chunk_pages % kv->ranges == 0);
	mm_must(chunks_are_within(kv, t->plan.cold.first, t->plan.cold.chunks));
	mm_must(chunks_are_within(kv, t->cold.first, t->cold.chunks));
	mm_must(chunks_are_within(kv, t->cold.was_first, t->cold.was_chunks));
	mm_must(t->cold.entries_max <= MM_COLD_MAX && t->cold.by_hand <= t->cold.entries_max + 1);
	mm_must(t->cold.offered <= t->cold.entries_max && t->cold.live <= t->cold.entries_max);
	mm_must(t->cold.classes <= MM_COLD_CLASSES_MAX &&
		t->plan.cold.classes <= MM_COLD_CLASSES_MAX);
	mm_must(t->mem.depth <= MM_KV_ENTRIES && t->mem.wait.entry <= MM_MAP_ENTRIES &&
		t->mem.wait.pages <= MM_MAP_ENTRIES - t->mem.wait.entry);
	mm_must(t->map_end <= MM_MAP_KV_BASE && t->kv_map_end <= MM_KV_ENTRIES);
	for (uint32_t i = 0; i < MM_MAP_ENTRIES; i++)
		mm_must(t->map[i] <= c->opts.pages);
	return NULL;
}

static const char *change_bounds(const struct mm_core *c, const struct mm_c_tenant *t,
				 uint32_t index)
{
	const struct mm_change *change = &c->plans->change[index];
	const struct mm_c_sets *sets = &c->plans->sets[index];

	mm_must(set_is_within(&change->set, t->n_layers));
	mm_must(set_is_within(&change->next_set, MM_LAYERS_MAX));
	mm_must(change->mapped <= MM_LAYERS_MAX && change->open <= MM_LAYERS_MAX);
	mm_must(change->pre.n <= c->entries_max && change->pre.issued <= change->pre.n &&
		change->pre.done <= change->pre.n);
	for (uint32_t i = 0; i < change->pre.n; i++)
		mm_must(is_page_or_none(c, change->pre.page[i]) &&
			(change->pre.entry[i] < t->entries || change->pre.entry[i] == MM_NO_PAGE));
	/* The sets of a model that was given back or refused are left until the next one. */
	mm_must(sets->alpha_max <= MM_LAYERS_MAX && sets->alpha_max_two <= MM_LAYERS_MAX);
	for (uint32_t i = 0; sets->valid && i < MM_C_SETS; i++)
		mm_must(set_is_within(&sets->chosen[i].set, MM_LAYERS_MAX));
	return NULL;
}

static const char *lots_bounds(const struct mm_core *c, uint32_t index)
{
	const struct mm_c_swap *swap = &c->plans->swap[index];
	const struct mm_swap_piece *piece =
		&c->plans->swap_pieces[(size_t)index * MM_SWAP_LOTS * MM_SWAP_PIECES];
	const struct mm_c_kv *kv = &c->tenant[index].kv;
	const uint64_t range = c->opts.page_bytes * kv->chunks_max * kv->chunk_pages;

	mm_must(swap->next_lot < MM_SWAP_LOTS);
	for (uint32_t lot = 0; lot < MM_SWAP_LOTS; lot++, piece += MM_SWAP_PIECES) {
		const struct mm_c_swap_list *list = &swap->list[lot];

		mm_must(!list->used || kv->declared);
		mm_must(list->n <= MM_SWAP_PIECES && list->at <= list->n);
		for (uint32_t i = 0; list->used && i < list->n; i++)
			mm_must(piece[i].range < kv->ranges && piece[i].bytes &&
				piece[i].arena_offset <= range / kv->ranges &&
				piece[i].bytes <= range / kv->ranges - piece[i].arena_offset);
	}
	return NULL;
}

static const char *waits_bounds(const struct mm_c_tally *tally)
{
	mm_must(tally->waits <= MM_WAITS_MAX);
	for (uint32_t i = 0; i < tally->waits; i++)
		mm_must(tally->wait[i].chunks);
	return NULL;
}

static const char *tenants_bounds(const struct mm_core *c)
{
	for (uint32_t i = c->tenants_end; i < c->opts.tenants_max; i++)
		mm_must(c->tenant[i].life == MM_LIFE_NONE);
	MM_FOREACH_TENANT(c, t) {
		const uint32_t index = mm_c_index(c, t);

		mm_must(MM_TENANT_INDEX(t->id) == index);
		mm_must(t->account < c->accounts_end && c->account[t->account].used);
		mm_must(t->ctl <= c->jobs.n && (!t->ctl || c->jobs.job[t->ctl - 1].used));
		mm_must_pass(model_bounds(c, t));
		mm_must_pass(plan_bounds(c, t));
		mm_must_pass(arena_bounds(c, t));
		mm_must_pass(change_bounds(c, t, index));
		mm_must_pass(lots_bounds(c, index));
		mm_must_pass(waits_bounds(&t->tally));
		mm_must(t->load.slope.n <= MM_SLOPE_PAIRS && t->load.slope.next < MM_SLOPE_PAIRS);
		mm_must(c->market->lends[index].points.n <= MM_VIEW_POINTS &&
			c->market->lends[index].points.next_n <= MM_VIEW_POINTS &&
			c->market->lends[index].points.next_at <= MM_VIEW_POINTS);
	}
	return NULL;
}

static const char *market_bounds(const struct mm_core *c)
{
	const struct mm_market *m = c->market;

	mm_must(m->view.n_tenants <= c->opts.tenants_max);
	mm_must(m->view.n_accounts <= c->opts.accounts_max);
	for (uint32_t i = 0; i < m->view.n_tenants; i++)
		mm_must(m->view.tenant[i].index < c->opts.tenants_max &&
			m->view.tenant[i].account < c->opts.accounts_max &&
			m->view.tenant[i].points <= MM_VIEW_POINTS);
	mm_must(m->memory.memory_of < c->opts.tenants_max || m->memory.memory_of == MM_NO_TENANT);
	mm_must(m->memory.memory_account < c->opts.accounts_max);
	mm_must(m->targets.memory_of < c->opts.tenants_max || m->targets.memory_of == MM_NO_TENANT);
	mm_must(m->targets.turn_of < c->opts.tenants_max || m->targets.turn_of == MM_NO_TENANT);
	return NULL;
}

const char *mm_core_bounds(const struct mm_core *c)
{
	mm_must(c->opts.time_scale && c->opts.slots <= MM_SLOTS_MAX);
	mm_must(c->opts.kill_max <= MM_KILLS_MAX);
	mm_must(c->create_next <= c->opts.pages);
	mm_must_pass(accounts_bounds(c));
	mm_must_pass(ledger_bounds(c));
	mm_must_pass(jobs_bounds(c));
	mm_must_pass(tenants_bounds(c));
	mm_must_pass(market_bounds(c));
	return NULL;
}
