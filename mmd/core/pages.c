/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/state.h"
#include "mmd/core/tell.h"

#include "mm/base.h"

bool mm_c_reservable(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t pages)
{
	return mm_c_grantable(c, t->account) >= pages &&
	       mm_account_room(&c->account[t->account]) >= pages;
}

uint32_t mm_c_reserve(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_account *a = &c->account[t->account];
	uint32_t page;

	mm_assert(mm_account_charge(a, 1) == 0);
	page = mm_ledger_reserve(&c->ledger, mm_c_index(c, t), t->account, a->domain);
	mm_assert(page != MM_NO_PAGE);
	mm_ledger_charge(&c->ledger, page, t->account, false);
	return page;
}

/* The charge stays until the page is scrubbed. */
void mm_c_drop(struct mm_core *c, uint32_t page)
{
	mm_ledger_drop(&c->ledger, page);
}

static void uncharge(struct mm_core *c, uint32_t page)
{
	struct mm_page *p = &c->ledger.page[page];

	if (p->account == MM_DOMAIN_NONE)
		return;
	if (p->quarantined)
		mm_account_unquarantine(&c->account[p->account]);
	else
		mm_account_uncharge(&c->account[p->account], 1);
	mm_ledger_charge(&c->ledger, page, MM_DOMAIN_NONE, false);
}

void mm_c_scrubbed(struct mm_core *c, uint32_t page)
{
	struct mm_page *p = &c->ledger.page[page];

	uncharge(c, page);
	c->lost -= p->lost;
	p->lost = false;
	mm_ledger_scrub_end(&c->ledger, page);
}

/* Whoever had the page last pays for it; a page that nobody ever had costs nobody. */
void mm_c_quarantine(struct mm_core *c, uint32_t page, bool poisoned)
{
	struct mm_page *p = &c->ledger.page[page];

	if (p->last == MM_DOMAIN_NONE) {
		c->lost += !p->lost;
		p->lost = true;
		c->mins_stand = false;
	} else if (!p->quarantined) {
		mm_account_quarantine(&c->account[p->last], p->account != MM_DOMAIN_NONE);
		mm_ledger_charge(&c->ledger, page, p->last, true);
	}
	mm_ledger_quarantine(&c->ledger, page, poisoned);
}

bool mm_c_job_on_page(struct mm_core *c, enum mm_xop op, uint32_t page, uint32_t *ret_job)
{
	if (!c->xfer_up || !mm_c_job_room(c) || !mm_c_burst(c))
		return false;
	*ret_job = mm_c_job_issue(c, MM_NOBODY,
				  &(struct mm_msg){ .opcode = (uint16_t)op, .arg = { page } });
	return true;
}

void mm_c_scrub_all(struct mm_core *c)
{
	struct mm_ledger *l = &c->ledger;
	uint32_t job;
	bool anew;

	while (l->scrub.head != MM_NO_PAGE) {
		uint32_t page = l->scrub.head;

		if (l->page[page].suspect) {
			mm_c_quarantine_suspect(c, page);
			continue;
		}
		/* A min waits for pages that nobody can hold any more. */
		anew = l->page[page].last != MM_DOMAIN_NONE && mm_c_scrub_recreates(c);

		if (!mm_c_job_on_page(c, anew ? MM_XOP_RECREATE : MM_XOP_SCRUB, page, &job))
			return;
		mm_ledger_scrub_begin(l, page, job, anew);
	}
}

/* Now and then, the longest quarantined first; a page that fails again is last again. */
void mm_c_retry_quarantine(struct mm_core *c)
{
	struct mm_ledger *l = &c->ledger;
	uint32_t next, job;

	if (!l->quarantine.length)
		return;
	if (c->now_ns >= c->quarantine_retry_ns) {
		c->quarantine_retry_ns = c->now_ns + MM_RETRY_NS;
		c->quarantine_retries = MM_RETRY_BATCH;
	}
	/* One whose memory was not given up yet comes free by that, mostly: it does not count. */
	for (uint32_t i = l->quarantine.head; i != MM_NO_PAGE && c->quarantine_retries; i = next) {
		bool tried = l->page[i].recreating;

		next = l->page[i].next;
		if (l->page[i].poisoned)
			continue;
		if (!mm_c_job_on_page(c, MM_XOP_RECREATE, i, &job))
			return;
		mm_ledger_retry(l, i, job);
		c->quarantine_retries -= tried;
	}
}

static bool creatable(const struct mm_core *c, uint32_t page)
{
	const struct mm_page *p = &c->ledger.page[page];

	return page < c->ledger.pages && p->state == MM_PAGE_NONE && !p->job && !p->poisoned;
}

static void create_batch(struct mm_core *c, uint32_t first)
{
	uint32_t n = 1, job;

	while (n < MM_CREATE_BATCH && creatable(c, first + n))
		n++;
	job = mm_c_job_issue(c, MM_NOBODY,
			     &(struct mm_msg){ .opcode = MM_XOP_CREATE, .arg = { first, n } });
	for (uint32_t i = first; i < first + n; i++)
		mm_ledger_job(&c->ledger, i, job);
	c->create_next = first + n;
}

void mm_c_create_all(struct mm_core *c)
{
	if (c->create_retry_ns && c->now_ns >= c->create_retry_ns) {
		c->create_retry_ns = 0;
		c->create_next = 0;
	}
	while (c->create_next < c->ledger.pages && c->xfer_up && mm_c_job_room(c) &&
	       mm_c_burst(c)) {
		if (creatable(c, c->create_next))
			create_batch(c, c->create_next);
		else
			c->create_next++;
	}
}
