/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/pages.h"

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/emit.h"

uint32_t mm_c_page_reserve(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_account *a = &c->account[t->account];
	uint32_t page;

	mm_assert(mm_account_charge(a, 1) == 0);
	page = mm_ledger_reserve(&c->ledger, mm_c_index(c, t), t->account, a->domain);
	mm_assert(page != MM_NO_PAGE);
	mm_ledger_charge(&c->ledger, page, t->account, false);
	return page;
}

void mm_c_page_drop(struct mm_core *c, uint32_t page)
{
	mm_ledger_drop(&c->ledger, page);
}

static void page_uncharge(struct mm_core *c, uint32_t page)
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

void mm_c_page_scrubbed(struct mm_core *c, uint32_t page)
{
	struct mm_page *p = &c->ledger.page[page];

	page_uncharge(c, page);
	c->lost -= p->lost;
	p->lost = false;
	mm_ledger_scrub_end(&c->ledger, page);
}

/*
 * The account that had the page last is charged; a page that no account ever had is charged to
 * none. A page that was charged to nobody may have covered a min, even that of another account of
 * its domain.
 */
void mm_c_page_quarantine(struct mm_core *c, uint32_t page, bool poisoned)
{
	struct mm_page *p = &c->ledger.page[page];

	if (p->account == MM_DOMAIN_NONE)
		c->mins_covered = false;
	if (p->last == MM_DOMAIN_NONE) {
		c->lost += !p->lost;
		p->lost = true;
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
	*ret_job = mm_c_job_issue(c, MM_NO_OWNER,
				  &(struct mm_msg){ .opcode = (uint16_t)op, .arg = { page } });
	return true;
}
