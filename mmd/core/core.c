/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core object: its options, its memory, and the state for status, the plan region and tests.
 */
#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/knobs.h"
#include "mmd/core/market/controller.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/market/demand.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/plans.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/settle.h"

#define JOBS_DEFAULT 256

static void opts_set_defaults(struct mm_core_opts *o)
{
	o->tenants_max = o->tenants_max ? o->tenants_max : MM_CORE_TENANTS_DEFAULT;
	o->accounts_max = o->accounts_max ? o->accounts_max : MM_CORE_ACCOUNTS_DEFAULT;
	o->account_max_pages = o->account_max_pages ? o->account_max_pages : o->pages;
	o->account_max_pages = MM_MIN(o->account_max_pages, (uint64_t)o->pages);
	o->jobs_max = o->jobs_max ? o->jobs_max : JOBS_DEFAULT;
	o->swap_account_max_bytes =
		o->swap_account_max_bytes ? o->swap_account_max_bytes : o->swap_max_bytes;
	o->turn_quantum_max_ns =
		o->turn_quantum_max_ns ? o->turn_quantum_max_ns : MM_TURN_QUANTUM_BOUND_NS;
	o->revoke_ns = o->revoke_ns ? o->revoke_ns : MM_REVOKE_NS;
	o->reclaim_timeout_ns =
		o->reclaim_timeout_ns ? o->reclaim_timeout_ns : MM_RECLAIM_TIMEOUT_NS;
	o->stop_ns = o->stop_ns ? o->stop_ns : MM_STOP_NS;
	o->kill_window_ns = o->kill_window_ns ? o->kill_window_ns : MM_KILL_WINDOW_NS;
	o->kill_max = o->kill_max ? o->kill_max : MM_KILL_MAX;
	mm_knobs_set_defaults(o);
}

static void opts_scale_times(struct mm_core_opts *o)
{
	o->idle_ns *= o->time_scale;
	o->dwell_ns *= o->time_scale;
	o->change_ns *= o->time_scale;
	o->reclaim_ns *= o->time_scale;
}

static bool opts_knobs_are_valid(const struct mm_core_opts *o)
{
	const struct mm_knob *k;

	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		if (k->names ? !mm_knob_choice(k, o) : mm_knob_value(k, o) > k->max)
			return false;
	}
	return true;
}

static bool opts_are_valid(const struct mm_core_opts *o)
{
	return o->pages && o->pages < MM_NO_PAGE && o->page_bytes && o->policy < MM_POLICY_COUNT &&
	       o->tenants_max <= MM_CORE_TENANTS_MAX && o->tag < MM_TAGS_MAX &&
	       o->accounts_max > MM_ACCOUNTS_SPARE && o->accounts_max <= MM_CORE_ACCOUNTS_MAX &&
	       /* All jobs, one for control per tenant included, fit into xfer's ring at once. */
	       o->jobs_max <= MM_XQ_SLOTS - o->tenants_max && o->kill_max <= MM_KILLS_MAX &&
	       o->slots <= MM_SLOTS_MAX && o->turn_quantum_max_ns <= MM_TURN_QUANTUM_LIMIT_NS &&
	       o->turn_priority_max <= MM_TURN_PRIORITY_MAX && opts_knobs_are_valid(o);
}

/* Sets in @o the values of @opts that may change; its times are not scaled. */
static void opts_take_changeable(struct mm_core_opts *o, const struct mm_core_opts *opts)
{
	o->account_max_pages = opts->account_max_pages;
	o->on_timeout = opts->on_timeout;
	o->turn_quantum_max_ns = opts->turn_quantum_max_ns;
	o->turn_priority_max = opts->turn_priority_max;
	o->reversion = opts->reversion;
	o->sharing = opts->sharing;
	o->turn_cost_permille = opts->turn_cost_permille;
	o->idle_ns = opts->idle_ns;
	o->dwell_ns = opts->dwell_ns;
	o->change_ns = opts->change_ns;
	o->reclaim_ns = opts->reclaim_ns;
	o->link_slows_permille = opts->link_slows_permille;
	o->rho_permille = opts->rho_permille;
	o->cold = opts->cold;
	o->cold_max_permille = opts->cold_max_permille;
	o->reclaim_timeout_ns = opts->reclaim_timeout_ns;
	o->stop_ns = opts->stop_ns;
	o->kill_window_ns = opts->kill_window_ns;
	o->kill_max = opts->kill_max;
}

int mm_core_tune(struct mm_core *c, uint64_t now_ns, const struct mm_core_opts *opts)
{
	struct mm_core_opts o = c->opts;

	mm_c_event_begin(c, now_ns);
	opts_take_changeable(&o, opts);
	opts_set_defaults(&o);
	if (!opts_are_valid(&o) || o.on_timeout >= MM_ON_TIMEOUTS)
		return MM_E_RANGE;
	opts_scale_times(&o);
	c->opts = o;
	mm_c_settle(c, now_ns);
	return 0;
}

/* Gives each tenant index its tables own and map, which it keeps for good. */
static void tenants_assign_tables(struct mm_core *c)
{
	uint32_t *at = c->storage;

	for (uint32_t i = 0; i < c->opts.tenants_max; i++) {
		struct mm_c_tenant *t = &c->tenant[i];

		t->own = at;
		t->map = at + c->entries_max;
		at += (size_t)c->entries_max + MM_MAP_ENTRIES;
	}
}

static int core_allocate(struct mm_core *c)
{
	struct mm_page *page = calloc(c->opts.pages, sizeof(*page));
	uint32_t tenants = c->opts.tenants_max;

	c->ledger.page = page;
	c->entries_max = MM_MIN(c->opts.pages, MM_MAP_KV_BASE);
	c->jobs.bulk_max = c->opts.jobs_max;
	c->jobs.n = c->opts.jobs_max + tenants;
	c->jobs.job = calloc(c->jobs.n, sizeof(*c->jobs.job));
	c->queue.action = calloc(MM_QUEUE_MAX, sizeof(*c->queue.action));
	c->tenant = calloc(tenants, sizeof(*c->tenant));
	c->account = calloc(c->opts.accounts_max, sizeof(*c->account));
	c->plans = mm_plans_create(tenants, c->opts.pages, c->entries_max);
	c->market = mm_market_create(tenants, c->opts.accounts_max);
	c->mins = calloc(1, sizeof(*c->mins));
	c->scratch = calloc(c->opts.pages, sizeof(*c->scratch));
	c->storage =
		calloc(tenants * ((size_t)c->entries_max + MM_MAP_ENTRIES), sizeof(*c->storage));
	if (!page || !c->jobs.job || !c->queue.action || !c->tenant || !c->account || !c->mins ||
	    !c->plans || !c->market || !c->scratch || !c->storage)
		return -ENOMEM;
	mm_ledger_init(&c->ledger, page, c->opts.pages);
	tenants_assign_tables(c);
	return 0;
}

int mm_core_create(const struct mm_core_opts *opts, struct mm_core **ret_core)
{
	struct mm_core *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->opts = *opts;
	opts_set_defaults(&c->opts);
	if (!opts_are_valid(&c->opts)) {
		mm_core_destroy(c);
		return -EINVAL;
	}
	opts_scale_times(&c->opts);
	if (core_allocate(c) < 0) {
		mm_core_destroy(c);
		return -ENOMEM;
	}
	c->market->policy = mm_policy_get(c->opts.policy);
	mm_c_turns_set(c, false, 0);
	mm_c_turns_set(c, false, 0);
	*ret_core = c;
	return 0;
}

struct mm_core *mm_core_destroy(struct mm_core *c)
{
	if (!c)
		return NULL;
	free(c->ledger.page);
	free(c->jobs.job);
	free(c->queue.action);
	free(c->tenant);
	free(c->account);
	mm_plans_destroy(c->plans);
	mm_market_destroy(c->market);
	free(c->mins);
	free(c->scratch);
	free(c->storage);
	free(c);
	return NULL;
}

/* ---- state ---- */

void mm_core_stats(const struct mm_core *c, struct mm_core_stats *ret_stats)
{
	*ret_stats = c->stats;
	ret_stats->tenants = ret_stats->alpha_sum = 0;
	ret_stats->turns = c->market->turn.serial;
	ret_stats->suspects = c->ledger.suspects;
	ret_stats->turns_beside = c->market->turn.beside;
	ret_stats->turn_holder = MM_NO_TENANT;
	for (uint32_t i = 0; i < MM_PAGE_STATES; i++)
		ret_stats->pages[i] = c->ledger.count[i];
	MM_FOREACH_TENANT(c, t) {
		ret_stats->tenants++;
		ret_stats->alpha_sum += t->life == MM_LIFE_LIVE ? t->plan.alpha : 0;
		if (t->turn->holds && c->market->turn.holders == 1)
			ret_stats->turn_holder = t->id;
	}
}

bool mm_core_tenant(const struct mm_core *c, uint32_t tenant, struct mm_core_tenant *ret_tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (!t)
		return false;
	*ret_tenant = (struct mm_core_tenant){
		.tenant = t->id,
		.account = c->account[t->account].key,
		.pages_revoking = c->ledger.revoking[mm_c_index(c, t)].length,
		.kv_chunks = t->kv.held,
		.kv_wanted = t->demand->wanted,
		.kv_chunks_max = t->kv.chunks_max,
		.kv_chunk_pages = t->kv.chunk_pages,
		.kv_used = (uint32_t)MM_MIN(t->load.last.kv_chunks_used, t->kv.held),
		.stall_permille = t->load.stall_permille,
		.step_ns = mm_c_steps_mean_ns(&t->load.steps),
		.swap_bytes = t->swap->bytes,
		.attached = t->attached,
		.idle = mm_c_idle(c, t),
		.model_ready = t->model == MM_C_MODEL_READY,
		.has_model = t->model != MM_C_MODEL_NONE,
		.model_held = t->hold.on,
		.model_pinned = t->steer.pinned,
		.model_activates = t->steer.activates,
		.drains = t->steer.drains,
		.drain_until_ns = t->steer.drain_until_ns,
		.revoking_chunks = mm_c_revoking(t),
		.turn_mode = t->turn->mode,
		.turn_wanted = t->turn->wants,
		.turns = t->turn->turns,
		.turns_overdue = t->turn->overdue,
		.turn_home_ns = t->turn->home_ns_mean,
		.cold_entries_max = t->cold.entries_max,
		.cold_limit = t->cold.limit,
		.cold_by_hand = (int32_t)t->cold.by_hand - 1,
		.cold_window_pending = t->cold.window_due,
	};
	if (t->life != MM_LIFE_LIVE)
		return true;
	ret_tenant->pages_kv = t->kv.held * t->kv.chunk_pages;
	ret_tenant->pages_mem = t->mem.held;
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		ret_tenant->pages_slot += t->plan.slot[s].n_pages;
	for (uint32_t i = 0; i < t->entries; i++)
		ret_tenant->pages_param += t->own[i] != MM_NO_PAGE;
	return true;
}

void mm_core_tally(const struct mm_core *c, struct mm_core_tally *ret_tally)
{
	*ret_tally = c->tally;
}

uint64_t mm_core_tally_bound_ns(uint32_t i)
{
	mm_assert(i < MM_TALLY_BOUNDS);
	return mm_c_tally_bounds_ns[i];
}

bool mm_core_tally_tenant(const struct mm_core *c, uint32_t tenant, struct mm_core_tally *ret_tally)
{
	const struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (t)
		*ret_tally = t->tally.happened;
	return t != NULL;
}

bool mm_core_tally_account(const struct mm_core *c, uint64_t account,
			   struct mm_core_tally *ret_tally)
{
	const struct mm_account *a = mm_account_find(c->account, c->accounts_end, account);

	if (a)
		*ret_tally = a->tally;
	return a != NULL;
}

const struct mm_core_plan *mm_core_plan(const struct mm_core *c, uint32_t tenant)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (!t || (t->model != MM_C_MODEL_READY && t->model != MM_C_MODEL_SWITCHED))
		return NULL;
	return &t->plan;
}

static const enum mm_plan_phase phase_of_change[MM_CHANGE_STATES] = {
	[MM_CHANGE_NONE] = MM_PLAN_STEADY,           [MM_CHANGE_LOAD] = MM_PLAN_PRELOAD,
	[MM_CHANGE_STEADY] = MM_PLAN_STEADY,         [MM_CHANGE_PRELOAD] = MM_PLAN_PRELOAD,
	[MM_CHANGE_PREPARED] = MM_PLAN_PREPARED,     [MM_CHANGE_FULL_QUIESCE] = MM_PLAN_QUIESCING,
	[MM_CHANGE_FULL_SWITCH] = MM_PLAN_QUIESCING, [MM_CHANGE_FULL_SWITCHED] = MM_PLAN_SWITCHED,
	[MM_CHANGE_FULL_DONE] = MM_PLAN_SWITCHED,    [MM_CHANGE_PART_SWITCH] = MM_PLAN_QUIESCING,
	[MM_CHANGE_PART_REPLAN] = MM_PLAN_QUIESCING, [MM_CHANGE_PART_QUIESCE] = MM_PLAN_QUIESCING,
	[MM_CHANGE_PART_RESUME] = MM_PLAN_QUIESCING, [MM_CHANGE_PART_WINDOW] = MM_PLAN_SWITCHED,
	[MM_CHANGE_PART_DONE] = MM_PLAN_SWITCHED,
};

enum mm_plan_phase mm_core_plan_phase(const struct mm_core *c, uint32_t tenant)
{
	const struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	return t ? phase_of_change[t->change->state] : MM_PLAN_STEADY;
}

uint32_t mm_core_slot_page(const struct mm_core *c, uint32_t tenant, uint32_t slot, uint32_t i)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (!t || slot >= MM_SLOTS_MAX || i >= t->plan.slot[slot].n_pages)
		return MM_NO_PAGE;
	return t->slot_page[slot][i];
}

uint32_t mm_core_cold_page(const struct mm_core *c, uint32_t tenant, uint32_t i)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	if (!t || !t->plan.cold.chunks || i / t->kv.chunk_pages >= t->plan.cold.chunks)
		return MM_NO_PAGE;
	return mm_c_kv_chunk_page(t, t->plan.cold.first + i / t->kv.chunk_pages,
				  i % t->kv.chunk_pages);
}

uint64_t mm_core_features(const struct mm_core *c)
{
	const struct mm_policy_ops *policy = mm_policy_get(c->opts.policy);

	return (policy->kv_static ? MM_FEAT_KV_FIXED : 0) |
	       (policy->kv_swaps ? MM_FEAT_KV_SWAP : 0);
}

enum mm_page_state mm_core_page(const struct mm_core *c, uint32_t page, uint32_t *ret_tenant)
{
	const struct mm_page *p;

	mm_assert(page < c->ledger.pages);
	p = &c->ledger.page[page];
	if (ret_tenant)
		*ret_tenant = p->tenant == MM_NO_OWNER ? MM_NO_OWNER : c->tenant[p->tenant].id;
	return (enum mm_page_state)p->state;
}

bool mm_core_page_is_made(const struct mm_core *c, uint32_t page)
{
	mm_assert(page < c->ledger.pages);
	return mm_ledger_is_made(&c->ledger.page[page]);
}

bool mm_core_xfer_is_up(const struct mm_core *c)
{
	return c->xfer_up;
}

bool mm_core_has_job(const struct mm_core *c, uint64_t job)
{
	return mm_jobs_find(&c->jobs, job) != MM_JOB_NONE;
}

bool mm_core_next_job(const struct mm_core *c, uint32_t *at, struct mm_msg *ret_msg)
{
	uint32_t job = *at ? c->jobs.job[*at - 1].next : c->jobs.first;

	if (!job)
		return false;
	*at = job;
	*ret_msg = c->jobs.job[job - 1].msg;
	ret_msg->user_data = c->jobs.job[job - 1].id;
	return true;
}
