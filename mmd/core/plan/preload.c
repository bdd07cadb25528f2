/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/preload.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/plan/plans.h"

#define COPY_BURST 8 /* jobs of one tenant before the next tenant is served */

void mm_c_preload_add(struct mm_core *c, struct mm_c_tenant *t, const struct mm_c_group *g)
{
	for (uint32_t i = 0; i < g->pages; i++) {
		t->change->pre.entry[t->change->pre.n] = g->entry + i;
		t->change->pre.page[t->change->pre.n++] = mm_c_page_reserve(c, t);
	}
}

/* Skips pages for slots: no COPY job fills them. */
static void preload_skip_slots(struct mm_c_tenant *t)
{
	while (t->change->pre.issued < t->change->pre.n &&
	       t->change->pre.entry[t->change->pre.issued] == MM_NO_PAGE) {
		t->change->pre.issued++;
		t->change->pre.done++;
	}
}

void mm_c_preload_add_slots(struct mm_core *c, struct mm_c_tenant *t, uint64_t pages)
{
	for (uint64_t i = 0; i < pages; i++) {
		t->change->pre.entry[t->change->pre.n] = MM_NO_PAGE;
		t->change->pre.page[t->change->pre.n++] = mm_c_page_reserve(c, t);
	}
	preload_skip_slots(t);
}

void mm_c_preload_begin(struct mm_c_tenant *t)
{
	t->change->pre.n = t->change->pre.issued = t->change->pre.done = 0;
	t->change->pre.error = 0;
	t->change->pre.sent = false;
}

/* A page that a job still writes is scrubbed only when the job has ended. */
void mm_c_preload_drop(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t i = 0; i < t->change->pre.n; i++) {
		uint32_t page = t->change->pre.page[i];

		if (page == MM_NO_PAGE)
			continue;
		if (!t->change->pre.sent) {
			mm_c_page_drop(c, page);
			continue;
		}
		mm_ledger_give(&c->ledger, page, MM_PAGE_PARAM);
		mm_ledger_revoke(&c->ledger, page);
	}
	t->change->pre.n = t->change->pre.issued = t->change->pre.done = 0;
	t->change->pre.sent = false;
}

void mm_c_preload_send(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t i = 0; i < t->change->pre.n; i++)
		mm_c_fds_send(c, t, t->change->pre.page[i]);
	t->change->pre.sent = true;
}

static const struct mm_c_group *entry_group(const struct mm_c_tenant *t, uint32_t entry)
{
	uint32_t low = 0, high = t->n_layers;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (t->group[mid].entry <= entry)
			low = mid;
		else
			high = mid - 1;
	}
	return &t->group[low];
}

static void preload_copy_issue(struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t entry = t->change->pre.entry[t->change->pre.issued],
		 page = t->change->pre.page[t->change->pre.issued];
	const struct mm_c_group *g = entry_group(t, entry);
	uint64_t offset = (uint64_t)(entry - g->entry) * c->opts.page_bytes;
	uint64_t bytes = MM_MIN(c->opts.page_bytes, g->bytes - offset);
	uint32_t job;

	job = mm_c_job_issue(c, mm_c_index(c, t),
			     &(struct mm_msg){ .opcode = MM_XOP_COPY,
					       .arg = { page, t->plan.store,
							g->store_offset + offset, bytes } });
	mm_ledger_job(&c->ledger, page, job);
	t->change->pre.issued++;
	t->copies++;
}

void mm_c_preload_issue(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t i = 0;
	     i < COPY_BURST && t->change->pre.issued < t->change->pre.n && !t->change->pre.error;
	     i++) {
		if (!c->xfer_up || !mm_c_job_room(c) || !mm_c_burst(c))
			return;
		preload_copy_issue(c, t);
		preload_skip_slots(t);
	}
}

void mm_c_preload_copied(struct mm_core *c, struct mm_c_tenant *t, uint32_t page, int result)
{
	(void)c;
	t->change->pre.done++;
	if (!result)
		return;
	if (!t->change->pre.error)
		t->change->pre.error = result < 0 ? result : -EIO;
	for (uint32_t i = 0; i < t->change->pre.n; i++)
		if (t->change->pre.page[i] == page)
			t->change->pre.page[i] = MM_NO_PAGE;
}
