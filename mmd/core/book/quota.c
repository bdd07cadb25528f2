/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas of the operator: what accounts may have, what is kept for them, and who comes first. A min
 * is kept, not owed: there are enough FREE pages for all unused mins, in a domain that may have
 * them as they are: its own, or none. A page that another domain had does not count, since a
 * hostile tenant may still hold it. mm_c_mins_guard() creates pages anew until there are enough; a
 * grant to other accounts never leaves fewer.
 */
#include "mmd/core/book/quota.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/pages.h"

/* ---- mins ---- */

static uint64_t excess_over(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/*
 * Returns the pages in no domain that the mins of @domain need, because it has too few free pages
 * of its own.
 */
static uint64_t domain_lacks(const struct mm_core *c, const struct mm_c_mins *m, uint32_t domain)
{
	return excess_over(m->unused[domain], c->ledger.free[domain].length);
}

static void mins_compute(const struct mm_core *c, struct mm_c_mins *ret_mins)
{
	struct mm_c_mins *m = ret_mins;

	m->changes = c->ledger.changes;
	m->revision = c->quota_revision;
	m->all = m->shortfall = 0;
	memset(m->unused, 0, c->accounts_end * sizeof(*m->unused));
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		uint64_t unused = mm_account_unused_min(&c->account[i]);

		m->unused[c->account[i].domain] += unused;
		m->all += unused;
	}
	for (uint32_t i = 0; i < c->accounts_end; i++)
		m->shortfall += domain_lacks(c, m, i);
}

/* Returns the mins, computed anew if pages or quotas have changed: every demand needs them. */
static const struct mm_c_mins *mins_current(struct mm_core *c)
{
	struct mm_c_mins *m = c->mins;

	if (m->changes != c->ledger.changes || m->revision != c->quota_revision)
		mins_compute(c, m);
	return m;
}

uint64_t mm_c_unused_mins(struct mm_core *c)
{
	return c->min_sum ? mins_current(c)->all : 0;
}

uint64_t mm_c_kept_from(struct mm_core *c, uint32_t account)
{
	const struct mm_account *a = &c->account[account];
	const struct mm_c_mins *m;

	if (!c->min_sum)
		return 0;
	m = mins_current(c);
	return m->unused[a->domain] - mm_account_unused_min(a) + m->shortfall -
	       domain_lacks(c, m, a->domain);
}

uint64_t mm_c_grantable(struct mm_core *c, uint32_t account)
{
	return excess_over(mm_ledger_grantable(&c->ledger, c->account[account].domain),
			   mm_c_kept_from(c, account));
}

uint64_t mm_c_excess(const struct mm_core *c, uint32_t account)
{
	const struct mm_account *a = &c->account[account];

	if (!a->quota.min_pages)
		return UINT64_MAX;
	return excess_over(a->charged - MM_MIN(a->charged, c->ledger.leaving[account]),
			   a->quota.min_pages);
}

/*
 * Returns a free page of the domain, other than @domain, that has most of them beyond its own mins.
 */
static uint32_t foreign_page(struct mm_core *c, uint32_t domain)
{
	const struct mm_c_mins *m = mins_current(c);
	uint64_t most = 0, spare;
	uint32_t page = MM_NO_PAGE;

	for (uint32_t i = 0; i < c->accounts_end; i++) {
		spare = excess_over(c->ledger.free[i].length, m->unused[i]);
		if (i == domain || spare <= most)
			continue;
		most = spare;
		page = c->ledger.free[i].head;
	}
	return page;
}

static bool page_recreate(struct mm_core *c, uint32_t page)
{
	uint32_t job;

	if (page == MM_NO_PAGE || !mm_c_job_on_page(c, MM_XOP_RECREATE, page, &job))
		return false;
	mm_ledger_scrub_begin(&c->ledger, page, job, true);
	return true;
}

void mm_c_pages_convert(struct mm_core *c, uint32_t account, uint64_t pages)
{
	struct mm_ledger *l = &c->ledger;
	uint32_t domain = c->account[account].domain;
	uint64_t kept = mm_c_kept_from(c, account);

	while ((uint64_t)mm_ledger_grantable(l, domain) + l->inflight[domain] +
		       l->inflight[MM_DOMAIN_NONE] <
	       pages + kept)
		if (!page_recreate(c, foreign_page(c, domain)))
			return;
}

static uint64_t mins_missing(const struct mm_core *c, const struct mm_c_mins *m)
{
	return excess_over(m->shortfall, c->ledger.free[MM_DOMAIN_NONE].length +
						 c->ledger.inflight[MM_DOMAIN_NONE]);
}

uint64_t mm_c_mins_missing(struct mm_core *c)
{
	return c->min_sum ? mins_missing(c, mins_current(c)) : 0;
}

static bool mins_are_covered(struct mm_core *c)
{
	return mins_current(c)->shortfall <= c->ledger.free[MM_DOMAIN_NONE].length;
}

void mm_c_mins_guard(struct mm_core *c)
{
	if (c->mins_covered)
		return;
	while (mm_c_mins_missing(c) && page_recreate(c, foreign_page(c, MM_DOMAIN_NONE)))
		;
	c->mins_covered = mins_are_covered(c);
}

bool mm_c_scrub_recreates(struct mm_core *c)
{
	return !c->mins_covered && mm_c_mins_missing(c);
}

bool mm_c_reservable(struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages)
{
	return mm_c_grantable(c, t->account) >= pages &&
	       mm_account_room(&c->account[t->account]) >= pages;
}

uint64_t mm_c_room_soon(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return mm_account_room(&c->account[t->account]) + c->ledger.leaving[t->account];
}

/* ---- entries ---- */

static bool account_departed(const struct mm_core *c, uint32_t i)
{
	const struct mm_account *a = &c->account[i];

	return a->used && !a->stays && !a->tenants && !mm_account_use(a) && !c->ledger.leaving[i];
}

/*
 * Returns the number of entries in use. *ret_first: the departed account with free pages that left
 * first.
 */
static uint32_t entries_used(struct mm_core *c, uint32_t *ret_first)
{
	uint32_t used = 0, first = MM_DOMAIN_NONE;

	for (uint32_t i = 0; i < c->accounts_end; i++) {
		struct mm_account *a = &c->account[i];

		if (account_departed(c, i) && !c->ledger.touched[i])
			a->used = false;
		used += a->used;
		if (account_departed(c, i) && c->ledger.free[i].length &&
		    (first == MM_DOMAIN_NONE || a->left_at < c->account[first].left_at))
			first = i;
	}
	*ret_first = first;
	return used;
}

void mm_c_accounts_recycle(struct mm_core *c)
{
	uint32_t first;

	while (entries_used(c, &first) > c->opts.accounts_max - MM_ACCOUNTS_SPARE &&
	       first != MM_DOMAIN_NONE) {
		do
			if (!page_recreate(c, c->ledger.free[first].head))
				return;
		while (c->ledger.free[first].length);
	}
}

static struct mm_account *account_open(struct mm_core *c, uint64_t key,
				       const struct mm_core_quota *quota)
{
	struct mm_account *a;
	uint32_t first;

	entries_used(c, &first);
	a = mm_account_open(c->account, c->opts.accounts_max, key, quota);
	if (a)
		c->accounts_end = MM_MAX(c->accounts_end, (uint32_t)(a - c->account) + 1);
	return a;
}

struct mm_account *mm_c_account_of(struct mm_core *c, const struct mm_core_join *join)
{
	struct mm_account *a = mm_account_find(c->account, c->accounts_end, join->account);
	struct mm_core_quota quota;

	if (a && (a->stays || a->charged || a->tenants))
		return a;
	mm_core_quota_default(c, &quota);
	if (join->account_max_pages)
		quota.max_pages = join->account_max_pages;
	if (!a) {
		a = account_open(c, join->account, &quota);
		if (a)
			a->revision = ++c->quota_revision;
	}
	if (a)
		a->quota = quota;
	return a;
}

/* ---- quotas of the operator ---- */

void mm_core_quota_default(const struct mm_core *c, struct mm_core_quota *ret_quota)
{
	*ret_quota = (struct mm_core_quota){
		.max_pages = c->opts.account_max_pages,
		.weight = MM_WEIGHT_DEFAULT,
		.on_timeout = c->opts.on_timeout,
		.turn_quantum_max_ns = c->opts.turn_quantum_max_ns,
		.turn_priority_max = c->opts.turn_priority_max,
	};
}

static struct mm_core_quota quota_fill_in(const struct mm_core *c,
					  const struct mm_core_quota *quota)
{
	struct mm_core_quota q = *quota;

	q.max_pages = MM_MIN(q.max_pages ? q.max_pages : c->opts.pages, (uint64_t)c->opts.pages);
	q.weight = q.weight ? q.weight : MM_WEIGHT_DEFAULT;
	q.turn_quantum_max_ns =
		q.turn_quantum_max_ns ? q.turn_quantum_max_ns : c->opts.turn_quantum_max_ns;
	return q;
}

const char *mm_core_quota_check(const struct mm_core *c, uint64_t account,
				const struct mm_core_quota *quota)
{
	struct mm_core_quota q = quota_fill_in(c, quota);
	const struct mm_account *a;
	uint64_t sum;

	if (q.min_pages > c->opts.pages)
		return "min is more than the pool";
	if (q.min_pages > q.max_pages)
		return "min is more than max";
	if (q.weight > MM_WEIGHT_MAX || q.priority > MM_PRIORITY_MAX ||
	    q.on_timeout >= MM_ON_TIMEOUTS)
		return "weight, priority or on_timeout is out of range";
	if (q.turn_quantum_max_ns > MM_TURN_QUANTUM_LIMIT_NS ||
	    q.turn_priority_max > MM_TURN_PRIORITY_MAX)
		return "turn_quantum_max or turn_priority_max is out of range";
	if (q.goal_ttft_ns > MM_GOAL_NS_MAX || q.goal_tpot_ns > MM_GOAL_NS_MAX)
		return "goal_ttft or goal_tpot is out of range";
	a = mm_account_find(c->account, c->accounts_end, account);
	sum = c->min_sum - (a ? a->quota.min_pages : 0);
	return sum + q.min_pages > c->opts.pages ? "the mins of all accounts are more than the pool"
						 : NULL;
}

void mm_c_quota_put(struct mm_core *c, struct mm_account *a, const struct mm_core_quota *quota)
{
	c->min_sum -= a->quota.min_pages;
	a->quota = quota_fill_in(c, quota);
	a->stays = true;
	a->revision = ++c->quota_revision;
	c->min_sum += a->quota.min_pages;
	c->mins_covered = false;
}

struct mm_account *mm_c_account_named(struct mm_core *c, uint64_t account)
{
	struct mm_core_quota quota;

	mm_core_quota_default(c, &quota);
	return account_open(c, account, &quota);
}

/*
 * Returns the pages that it holds beyond its max, or beyond its min while the mins of others lack
 * pages.
 */
static uint64_t pages_over(const struct mm_core *c, uint32_t account, const struct mm_c_mins *m)
{
	const struct mm_account *a = &c->account[account];
	uint64_t held = excess_over(mm_account_use(a), c->ledger.leaving[account]);
	uint64_t over = a->used ? excess_over(held, a->quota.max_pages) : 0;

	if (!m || !a->used)
		return over;
	return MM_MAX(over, MM_MIN(mins_missing(c, m), excess_over(held, a->quota.min_pages)));
}

static bool mins_uncovered(const struct mm_core *c)
{
	return !c->mins_covered && c->min_sum;
}

uint64_t mm_c_over(struct mm_core *c, uint32_t account)
{
	return pages_over(c, account, mins_uncovered(c) ? mins_current(c) : NULL);
}

uint64_t mm_c_over_computed(const struct mm_core *c, uint32_t account)
{
	struct mm_c_mins m;

	if (!mins_uncovered(c))
		return pages_over(c, account, NULL);
	mins_compute(c, &m);
	return pages_over(c, account, &m);
}

bool mm_c_quota_is_pending(const struct mm_core *c, const struct mm_account *a)
{
	return mm_account_use(a) > a->quota.max_pages ||
	       (mm_account_unused_min(a) && !c->mins_covered);
}
