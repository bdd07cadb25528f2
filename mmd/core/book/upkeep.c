/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that pages need without any request: to be created, scrubbed, and retried. */
#include "mmd/core/book/upkeep.h"

#include "libclient/base/base.h"
#include "mmd/core/book/health.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/book/emit.h"

void mm_c_scrub_all(struct mm_core *c)
{
	struct mm_ledger *l = &c->ledger;
	uint32_t job;
	bool anew;

	while (l->scrub.head != MM_NO_PAGE) {
		uint32_t page = l->scrub.head;

		if (mm_c_page_is_unfit(c, page)) {
			mm_c_quarantine_unfit(c, page);
			continue;
		}
		/* A min needs pages that no tenant can hold any more. */
		anew = l->page[page].last != MM_DOMAIN_NONE && mm_c_scrub_recreates(c);

		if (!mm_c_job_on_page(c, anew ? MM_XOP_RECREATE : MM_XOP_SCRUB, page, &job))
			return;
		mm_ledger_scrub_begin(l, page, job, anew);
	}
}

/*
 * A batch per interval, the page that was quarantined first before others; a page that fails again
 * is last again.
 */
void mm_c_retry_quarantine(struct mm_core *c)
{
	struct mm_ledger *l = &c->ledger;
	uint32_t next, job;

	if (!l->quarantine.length)
		return;
	if (c->now_ns >= c->quarantine_retry_ns) {
		c->quarantine_retry_ns = c->now_ns + MM_PAGE_RETRY_NS;
		c->quarantine_retries = MM_RETRY_BATCH;
	}
	/*
	 * A page whose memory was not released yet usually comes free by this job: it does not
	 * count.
	 */
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

static bool page_is_creatable(const struct mm_core *c, uint32_t page)
{
	const struct mm_page *p = &c->ledger.page[page];

	return page < c->ledger.pages && p->state == MM_PAGE_NONE && !p->job && !p->poisoned;
}

static void page_batch_create(struct mm_core *c, uint32_t first)
{
	uint32_t n = 1, job;

	while (n < MM_CREATE_BATCH && page_is_creatable(c, first + n))
		n++;
	job = mm_c_job_issue(c, MM_NO_OWNER,
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
		if (page_is_creatable(c, c->create_next))
			page_batch_create(c, c->create_next);
		else
			c->create_next++;
	}
}
