/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The revocation ladder: a reclaim with a deadline, then what the account's on_timeout demands.
 *
 * Pages are reclaimed from an account that has more than its max, or more than its min while pages
 * for another account's min are missing: first by the policy, which sees what is owed
 * (market/look.h), then chunks in use. When a deadline has passed, the shell first checks the
 * process (MM_ACT_CHECK_STOPPED): one that is stopped, traced or frozen gets more time. A deadline
 * counts only if the core and xfer were there: it begins again when the core was late itself, and
 * when xfer was down. There are at most kill_max kills within kill_window_ns. Beyond that, pages
 * are counted as overdue as if on_timeout were quarantine, since so many late tenants at once are
 * more likely a fault of mmd.
 */
#include "mmd/core/ladder.h"

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/cold.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/demand.h"

/* ---- reclaims ---- */

static void tenant_reclaim_chunks(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages,
				  uint32_t most)
{
	uint64_t chunks = MM_MIN(mm_div_up(pages, t->kv.chunk_pages), most);

	mm_c_kv_reclaim_until(c, t, (uint32_t)chunks, c->now_ns + c->opts.reclaim_timeout_ns);
}

static bool tenant_must_give(struct mm_core *c, const struct mm_c_tenant *t)
{
	return (t->demand->reclaim_left && t->kv.held) || t->change->state == MM_CHANGE_PREPARED ||
	       t->model == MM_C_MODEL_LEAVING ||
	       (t->reclaim_deadline_ns && t->kv.held && mm_c_over(c, t->account));
}

/* Tenants by account, in their order: index of the first and of the next ones, or MM_NO_TENANT. */
struct tenant_lists {
	uint32_t first[MM_CORE_ACCOUNTS_MAX], next[MM_CORE_TENANTS_MAX];
};

static void tenants_list(const struct mm_core *c, struct tenant_lists *ret)
{
	for (uint32_t i = 0; i < c->accounts_end; i++)
		ret->first[i] = MM_NO_TENANT;
	for (uint32_t i = c->tenants_end; i--;) {
		const struct mm_c_tenant *t = &c->tenant[i];

		if (t->life == MM_LIFE_NONE)
			continue;
		ret->next[i] = ret->first[t->account];
		ret->first[t->account] = i;
	}
}

/* Chunks of windows are reclaimed only where the others do not suffice. */
static bool account_windows_due(const struct mm_core *c, const struct tenant_lists *lists,
				uint32_t first, uint64_t pages)
{
	for (uint32_t i = first; i != MM_NO_TENANT; i = lists->next[i]) {
		const struct mm_c_tenant *t = &c->tenant[i];

		if (t->life == MM_LIFE_LIVE && !t->kicked)
			pages -= MM_MIN(pages, (uint64_t)(t->kv.held - mm_c_window_chunks(t)) *
						       t->kv.chunk_pages);
	}
	return pages != 0;
}

/*
 * Reclaims @pages from the tenants at @first and behind it, of which @coming are on their way: what
 * a decision has taken from them. Those with a reclaim under way are left out, since that is
 * counted.
 */
static void account_reclaim(struct mm_core *c, const struct tenant_lists *lists, uint32_t first,
			    uint64_t pages, uint64_t coming)
{
	const bool windows = account_windows_due(c, lists, first, pages);

	for (uint32_t i = first; i != MM_NO_TENANT; i = lists->next[i]) {
		struct mm_c_tenant *t = &c->tenant[i];
		const uint32_t most = t->kv.held - (windows ? 0 : mm_c_window_chunks(t));

		if (t->life != MM_LIFE_LIVE || t->kicked || !most || coming >= pages)
			continue;
		if (c->now_ns < t->demand->reclaim_until_ns || !mm_c_burst(c))
			continue;
		tenant_reclaim_chunks(c, t, pages - coming, most);
		coming += (uint64_t)t->demand->reclaim_left * t->kv.chunk_pages;
	}
}

/* A request to one account changes nothing that is on its way from another. */
static void accounts_reclaim(struct mm_core *c)
{
	uint64_t over[MM_CORE_ACCOUNTS_MAX], coming[MM_CORE_ACCOUNTS_MAX];
	struct tenant_lists lists;
	bool any = false;

	for (uint32_t i = 0; i < c->accounts_end; i++) {
		over[i] = mm_c_over(c, i);
		coming[i] = over[i] ? mm_c_expected(c, i) : 0;
		any = any || over[i];
	}
	if (!any)
		return;
	tenants_list(c, &lists);
	for (uint32_t i = 0; i < c->accounts_end; i++)
		if (over[i])
			account_reclaim(c, &lists, lists.first[i], over[i], coming[i]);
}

/* The operator revokes what a tenant has beyond its share: the same request, of it alone. */
static void tenants_revoke(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t) {
		const uint64_t chunks = mm_c_revoking(t);

		if (chunks && t->life == MM_LIFE_LIVE && !t->kicked &&
		    c->now_ns >= t->demand->reclaim_until_ns && mm_c_burst(c))
			tenant_reclaim_chunks(c, t, chunks * t->kv.chunk_pages, t->kv.held);
	}
}

/* Returns until when @t must give what is left of a reclaim; 0: nothing is due. */
static uint64_t tenant_gives_until(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (!t->demand->reclaim_left)
		return 0;
	if (c->now_ns < t->demand->reclaim_until_ns)
		return t->demand->reclaim_until_ns;
	return t->reclaim_deadline_ns;
}

static bool window_suffices(const struct mm_c_tenant *t, uint32_t window)
{
	return t->demand->reclaim_left <= t->kv.held - window;
}

uint64_t mm_c_ladder_window_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_c_cold *cold = &t->cold;
	const uint32_t window = mm_c_window_chunks(t);

	if (window && window_suffices(t, window))
		return 0;
	/* One that has ended its window is not told of another before it has given. */
	if (!window && (!cold->classes || cold->limit_due || cold->limit))
		return 0;
	return tenant_gives_until(c, t);
}

bool mm_c_ladder_has_window(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t chunks)
{
	return window_suffices(t, chunks) || !tenant_gives_until(c, t);
}

/* ---- deadlines ---- */

static uint64_t *tenant_deadline_of(struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE ? &t->reclaim_deadline_ns : &t->revoke_at_ns;
}

static uint64_t tenant_time_allowed(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE ? c->opts.reclaim_timeout_ns : c->opts.revoke_ns;
}

static bool tenant_has_deadline(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (t->killed || t->life == MM_LIFE_NONE || t->life == MM_LIFE_PROVEN)
		return false;
	if (t->life == MM_LIFE_LIVE)
		return !t->kicked && t->connected && t->reclaim_deadline_ns;
	return !t->bye && !t->dead && c->ledger.revoking[mm_c_index(c, t)].head != MM_NO_PAGE;
}

uint64_t mm_c_ladder_deadline(const struct mm_core *c)
{
	uint64_t due = UINT64_MAX;

	if (!c->xfer_up)
		return due;
	MM_FOREACH_TENANT(c, t)
		if (tenant_has_deadline(c, t) && !t->stopped_check_due)
			due = MM_MIN(due, *tenant_deadline_of(t));
	return due;
}

void mm_c_ladder_restart(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (tenant_has_deadline(c, t))
			*tenant_deadline_of(t) = c->now_ns + tenant_time_allowed(c, t);
	mm_c_cold_restart(c);
}

static void tenant_deadline_update(struct mm_core *c, struct mm_c_tenant *t)
{
	uint64_t *until = tenant_deadline_of(t);

	if (t->life == MM_LIFE_LIVE) {
		if (!mm_c_revoking(t) && (!mm_c_over(c, t->account) || !tenant_must_give(c, t))) {
			t->reclaim_deadline_ns = t->stopped_ns = 0;
			t->overdue = false;
			return;
		}
		if (!t->reclaim_deadline_ns)
			t->reclaim_deadline_ns = c->now_ns + c->opts.reclaim_timeout_ns;
	}
	if (!tenant_has_deadline(c, t) || t->stopped_check_due || !c->xfer_up || c->now_ns < *until)
		return;
	/* If the core itself is late, it may have kept the tenant from answering. */
	if (c->now_ns - *until > tenant_time_allowed(c, t) / 2) {
		*until = c->now_ns + tenant_time_allowed(c, t);
		c->stats.deadlines_restarted++;
		return;
	}
	if (!mm_c_burst(c))
		return;
	t->stopped_check_due = true;
	mm_c_emit(c, MM_ACT_CHECK_STOPPED, t);
}

void mm_c_ladder(struct mm_core *c)
{
	accounts_reclaim(c);
	tenants_revoke(c);
	MM_FOREACH_TENANT(c, t)
		tenant_deadline_update(c, t);
}

/* ---- passed deadlines ---- */

/* A fault of mmd looks as if all tenants were late at once. */
static bool breaker_is_open(const struct mm_core *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MM_KILLS_MAX; i++)
		n += c->kill_ns[i] && c->now_ns - c->kill_ns[i] < c->opts.kill_window_ns;
	return n >= c->opts.kill_max;
}

static void overdue_kill(struct mm_core *c, struct mm_c_tenant *t)
{
	t->killed = true;
	c->kill_ns[c->stats.kills++ % MM_KILLS_MAX] = MM_MAX(c->now_ns, 1);
	mm_c_tally_add(c, t, kills, 1);
	mm_c_emit(c, MM_ACT_KILL, t)->reason = "its pages are overdue";
}

/* Kills nothing: the account stays charged until the pages are back. */
static void overdue_wait(struct mm_core *c, struct mm_c_tenant *t, const char *reason)
{
	struct mm_page_list *list = &c->ledger.revoking[mm_c_index(c, t)];

	*tenant_deadline_of(t) = c->now_ns + tenant_time_allowed(c, t);
	if (!t->overdue) {
		c->stats.overdue++;
		mm_c_emit(c, MM_ACT_ALARM, t)->reason = reason;
	}
	t->overdue = true;
	/*
	 * A tenant without a connection cannot acknowledge. Whether its pages can be created anew
	 * depends on the driver, so they are quarantined and tried.
	 */
	while (t->life == MM_LIFE_ENDING && !t->attached && list->head != MM_NO_PAGE) {
		uint32_t page = list->head;

		mm_c_page_drop(c, page);
		mm_c_page_quarantine(c, page, false);
	}
}

void mm_core_on_stopped_checked(struct mm_core *c, uint64_t now_ns, uint32_t tenant, bool stopped)
{
	struct mm_c_tenant *t = mm_c_tenant(c, tenant);

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	if (!t || !t->stopped_check_due)
		return;
	t->stopped_check_due = false;
	if (!tenant_has_deadline(c, t))
		return;
	if (!stopped)
		t->stopped_ns = 0;
	else if (!t->stopped_ns)
		t->stopped_ns = MM_MAX(c->now_ns, 1);
	if (c->account[t->account].quota.on_timeout == MM_ON_TIMEOUT_QUARANTINE)
		overdue_wait(c, t, "its pages are overdue");
	else if (stopped && c->now_ns - t->stopped_ns < c->opts.stop_ns)
		*tenant_deadline_of(t) = c->now_ns + tenant_time_allowed(c, t);
	else if (!breaker_is_open(c))
		overdue_kill(c, t);
	else {
		c->stats.kills_withheld++;
		overdue_wait(c, t, "too many kills: not killed, though its pages are overdue");
	}
}

void mm_core_kills(const struct mm_core *c, bool *ret_open, uint32_t *ret_max)
{
	*ret_open = breaker_is_open(c);
	*ret_max = c->opts.kill_max;
}
