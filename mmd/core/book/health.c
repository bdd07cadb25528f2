/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles a memory error that the device contained. The device reports neither whose memory it was
 * nor where. So everything that was in use is suspect and is not used again as it is: when such a
 * page comes free it is quarantined and then created anew, by which the driver gets the memory back
 * and retires what is bad. Tenants that go on computing are cleared: the error ends the work of the
 * process that ran into it.
 */
#include "mmd/core/book/health.h"

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/pages.h"

#define PROOF_STEPS 2 /* the first step that ends may have read everything before the error */

void mm_c_suspect(struct mm_core *c)
{
	c->stats.memory_errors++;
	mm_ledger_suspect(&c->ledger);
	MM_FOREACH_TENANT(c, t)
		t->suspect = MM_SUSPECT;
}

void mm_c_suspect_clear(struct mm_core *c, struct mm_c_tenant *t, uint64_t steps)
{
	if (t->suspect == MM_SUSPECT) {
		t->suspect = MM_SUSPECT_SEEN;
		t->suspect_steps = steps;
	} else if (t->suspect == MM_SUSPECT_SEEN && steps - t->suspect_steps >= PROOF_STEPS) {
		t->suspect = MM_SUSPECT_NOT;
		mm_ledger_suspect_clear(&c->ledger, mm_c_index(c, t));
	}
}

bool mm_c_page_is_unfit(const struct mm_core *c, uint32_t page)
{
	const struct mm_page *p = &c->ledger.page[page];

	return p->suspect || p->unheld;
}

void mm_c_unheld(struct mm_core *c, uint32_t page)
{
	bool is_free = c->ledger.page[page].state == MM_PAGE_FREE;

	mm_ledger_unheld(&c->ledger, page);
	if (is_free)
		mm_c_quarantine_unfit(c, page);
}

/* A suspect page waits: by the retry, the driver has recorded what it found. */
void mm_c_quarantine_unfit(struct mm_core *c, uint32_t page)
{
	bool suspect = c->ledger.page[page].suspect;

	mm_c_page_quarantine(c, page, false);
	if (!suspect) {
		c->quarantine_retry_ns = MM_MIN(c->quarantine_retry_ns, c->now_ns);
		return;
	}
	c->stats.suspects_quarantined++;
	c->quarantine_retries = 0;
	if (c->quarantine_retry_ns <= c->now_ns)
		c->quarantine_retry_ns = c->now_ns + MM_PAGE_RETRY_NS;
}
