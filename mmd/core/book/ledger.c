/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/ledger.h"

#include <string.h>

#include "libclient/base/base.h"

#define LIST_NULL ((struct mm_page_list){ .head = MM_NO_PAGE, .tail = MM_NO_PAGE })

static void page_list_push(struct mm_ledger *l, struct mm_page_list *list, uint32_t page)
{
	struct mm_page *p = &l->page[page];

	p->next = MM_NO_PAGE;
	p->prev = list->tail;
	if (list->tail == MM_NO_PAGE)
		list->head = page;
	else
		l->page[list->tail].next = page;
	list->tail = page;
	list->length++;
}

static void page_list_remove(struct mm_ledger *l, struct mm_page_list *list, uint32_t page)
{
	struct mm_page *p = &l->page[page];

	if (p->prev == MM_NO_PAGE)
		list->head = p->next;
	else
		l->page[p->prev].next = p->next;
	if (p->next == MM_NO_PAGE)
		list->tail = p->prev;
	else
		l->page[p->next].prev = p->prev;
	p->next = p->prev = MM_NO_PAGE;
	list->length--;
}

/* Returns the list that a page in this condition is on; NULL: none. */
static struct mm_page_list *page_list_of(struct mm_ledger *l, const struct mm_page *p)
{
	switch (p->state) {
	case MM_PAGE_FREE:
		return &l->free[p->domain];
	case MM_PAGE_DIRTY:
		return p->tenant == MM_NO_OWNER && !p->job ? &l->scrub : NULL;
	case MM_PAGE_QUARANTINE:
		return &l->quarantine;
	case MM_PAGE_REVOKING:
		return &l->revoking[p->tenant];
	default:
		return NULL;
	}
}

static bool page_is_inflight(const struct mm_page *p)
{
	return p->state == MM_PAGE_SCRUBBING ||
	       (p->state == MM_PAGE_DIRTY && p->tenant == MM_NO_OWNER);
}

/* Removes the page from every count and list; the caller changes it, then calls page_list_in(). */
static struct mm_page *page_list_out(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p = &l->page[page];
	struct mm_page_list *list = page_list_of(l, p);

	mm_assert(page < l->pages);
	if (list)
		page_list_remove(l, list, page);
	if (page_is_inflight(p)) {
		l->inflight[p->recreating ? MM_DOMAIN_NONE : p->domain]--;
		l->inflight_all--;
		l->leaving[p->quarantined ? MM_DOMAIN_NONE : p->account]--;
	}
	l->count[p->state]--;
	l->changes++;
	return p;
}

static void page_list_in(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p = &l->page[page];
	struct mm_page_list *list = page_list_of(l, p);

	if (list)
		page_list_push(l, list, page);
	if (page_is_inflight(p)) {
		l->inflight[p->recreating ? MM_DOMAIN_NONE : p->domain]++;
		l->inflight_all++;
		l->leaving[p->quarantined ? MM_DOMAIN_NONE : p->account]++;
	}
	l->count[p->state]++;
}

void mm_ledger_init(struct mm_ledger *l, struct mm_page *page, uint32_t pages)
{
	memset(l, 0, sizeof(*l));
	l->page = page;
	l->pages = pages;
	l->count[MM_PAGE_NONE] = l->touched[MM_DOMAIN_NONE] = pages;
	for (uint32_t i = 0; i < MM_DOMAINS; i++)
		l->free[i] = LIST_NULL;
	for (uint32_t i = 0; i < MM_CORE_TENANTS_MAX; i++)
		l->revoking[i] = LIST_NULL;
	l->scrub = l->quarantine = LIST_NULL;
	for (uint32_t i = 0; i < pages; i++)
		page[i] = (struct mm_page){ .next = MM_NO_PAGE,
					    .prev = MM_NO_PAGE,
					    .tenant = MM_NO_OWNER,
					    .state = MM_PAGE_NONE,
					    .domain = MM_DOMAIN_NONE,
					    .last = MM_DOMAIN_NONE,
					    .account = MM_DOMAIN_NONE };
}

static void page_set_last(struct mm_ledger *l, struct mm_page *p, uint32_t account, uint32_t domain)
{
	l->touched[p->last]--;
	p->last = (uint16_t)account;
	p->domain = (uint16_t)domain;
	l->touched[account]++;
}

void mm_ledger_created(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_NONE);
	p->state = MM_PAGE_DIRTY;
	p->job = 0;
	page_list_in(l, page);
}

void mm_ledger_scrub_begin(struct mm_ledger *l, uint32_t page, uint32_t job, bool recreate)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_DIRTY || (p->state == MM_PAGE_FREE && recreate));
	mm_assert(p->tenant == MM_NO_OWNER && !p->job && job);
	p->state = MM_PAGE_SCRUBBING;
	p->recreating = recreate;
	p->job = job;
	page_list_in(l, page);
}

void mm_ledger_scrub_end(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_SCRUBBING);
	p->job = 0;
	if (p->recreating) {
		p->recreating = false;
		page_set_last(l, p, MM_DOMAIN_NONE, MM_DOMAIN_NONE);
		p->state = MM_PAGE_DIRTY;
	} else {
		p->state = MM_PAGE_FREE;
	}
	page_list_in(l, page);
}

void mm_ledger_quarantine(struct mm_ledger *l, uint32_t page, bool poisoned)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_SCRUBBING || p->state == MM_PAGE_DIRTY);
	p->state = MM_PAGE_QUARANTINE;
	l->suspects -= p->suspect;
	p->suspect = p->unheld = false;
	p->tenant = MM_NO_OWNER;
	p->job = 0;
	p->poisoned = poisoned;
	page_list_in(l, page);
}

void mm_ledger_retry(struct mm_ledger *l, uint32_t page, uint32_t job)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_QUARANTINE && !p->poisoned && job);
	p->state = MM_PAGE_SCRUBBING;
	p->recreating = true;
	p->job = job;
	page_list_in(l, page);
}

uint32_t mm_ledger_reserve(struct mm_ledger *l, uint32_t tenant, uint32_t account, uint32_t domain)
{
	uint32_t page = l->free[domain].head;
	struct mm_page *p;

	if (page == MM_NO_PAGE)
		page = l->free[MM_DOMAIN_NONE].head;
	if (page == MM_NO_PAGE)
		return MM_NO_PAGE;
	p = page_list_out(l, page);
	mm_assert(p->state == MM_PAGE_FREE && !p->job);
	p->state = MM_PAGE_DIRTY;
	p->tenant = tenant;
	page_set_last(l, p, account, domain);
	page_list_in(l, page);
	return page;
}

uint32_t mm_ledger_grantable(const struct mm_ledger *l, uint32_t domain)
{
	return l->free[domain].length + l->free[MM_DOMAIN_NONE].length;
}

void mm_ledger_charge(struct mm_ledger *l, uint32_t page, uint32_t account, bool quarantined)
{
	struct mm_page *p = page_list_out(l, page);

	p->account = (uint16_t)account;
	p->quarantined = quarantined;
	page_list_in(l, page);
}

void mm_ledger_give(struct mm_ledger *l, uint32_t page, enum mm_page_state state)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->tenant != MM_NO_OWNER && !p->job);
	mm_assert(p->state == MM_PAGE_DIRTY || p->state == MM_PAGE_PARAM ||
		  p->state == MM_PAGE_SLOT);
	mm_assert(state == MM_PAGE_PARAM || state == MM_PAGE_SLOT || state == MM_PAGE_KV ||
		  state == MM_PAGE_MEM);
	p->state = (uint8_t)state;
	page_list_in(l, page);
}

void mm_ledger_revoke(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_PARAM || p->state == MM_PAGE_SLOT || p->state == MM_PAGE_KV ||
		  p->state == MM_PAGE_MEM);
	p->state = MM_PAGE_REVOKING;
	page_list_in(l, page);
}

void mm_ledger_drop(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->tenant != MM_NO_OWNER);
	mm_assert(p->state == MM_PAGE_DIRTY || p->state == MM_PAGE_KV || p->state == MM_PAGE_MEM ||
		  p->state == MM_PAGE_REVOKING);
	p->state = MM_PAGE_DIRTY;
	p->tenant = MM_NO_OWNER;
	page_list_in(l, page);
}

void mm_ledger_suspect(struct mm_ledger *l)
{
	for (uint32_t i = 0; i < l->pages; i++) {
		struct mm_page *p = &l->page[i];

		if (p->suspect || p->recreating || p->state == MM_PAGE_NONE ||
		    p->state == MM_PAGE_FREE || p->state == MM_PAGE_QUARANTINE)
			continue;
		p->suspect = true;
		l->suspects++;
	}
}

void mm_ledger_suspect_clear(struct mm_ledger *l, uint32_t tenant)
{
	for (uint32_t i = 0; i < l->pages; i++) {
		if (l->page[i].tenant != tenant)
			continue;
		l->suspects -= l->page[i].suspect;
		l->page[i].suspect = false;
	}
}

bool mm_ledger_is_made(const struct mm_page *p)
{
	return p->state != MM_PAGE_NONE && p->state != MM_PAGE_QUARANTINE && !p->recreating;
}

void mm_ledger_unheld(struct mm_ledger *l, uint32_t page)
{
	struct mm_page *p;

	if (!mm_ledger_is_made(&l->page[page]))
		return;
	p = page_list_out(l, page);
	if (p->state == MM_PAGE_FREE)
		p->state = MM_PAGE_DIRTY;
	p->unheld = true;
	page_list_in(l, page);
}

void mm_ledger_job(struct mm_ledger *l, uint32_t page, uint32_t job)
{
	struct mm_page *p = page_list_out(l, page);

	mm_assert(p->state == MM_PAGE_DIRTY || p->state == MM_PAGE_NONE);
	mm_assert(!job || !p->job);
	p->job = job;
	page_list_in(l, page);
}

static const char *page_list_check(const struct mm_ledger *l, const struct mm_page_list *list,
				   enum mm_page_state state, uint32_t *sum)
{
	uint32_t n = 0;
	uint32_t prev = MM_NO_PAGE;

	for (uint32_t i = list->head; i != MM_NO_PAGE; i = l->page[i].next) {
		mm_must(l->page[i].state == state);
		mm_must(l->page[i].prev == prev);
		mm_must(++n <= list->length);
		prev = i;
	}
	mm_must(list->tail == prev && n == list->length);
	*sum += n;
	return NULL;
}

static const char *page_check(const struct mm_page *p)
{
	bool owned = p->tenant != MM_NO_OWNER;

	switch (p->state) {
	case MM_PAGE_NONE:
		mm_must(!owned && p->account == MM_DOMAIN_NONE);
		break;
	case MM_PAGE_FREE:
		mm_must(!owned && !p->job && p->account == MM_DOMAIN_NONE);
		mm_must(!p->suspect && !p->unheld);
		break;
	case MM_PAGE_SCRUBBING:
		mm_must(!owned && p->job);
		break;
	case MM_PAGE_QUARANTINE:
		mm_must(!owned && !p->job && !p->suspect && !p->unheld);
		break;
	case MM_PAGE_PARAM:
	case MM_PAGE_SLOT:
	case MM_PAGE_KV:
	case MM_PAGE_MEM:
	case MM_PAGE_REVOKING:
		mm_must(owned && !p->job && p->account == p->last);
		break;
	default:
		break;
	}
	return NULL;
}

/*
 * Checks the counts by domain and account, and that no page is counted under one at or above @end.
 */
static const char *domains_check(const struct mm_ledger *l, uint32_t end)
{
	uint32_t touched[MM_DOMAINS], leaving[MM_DOMAINS], filed = 0, sum = 0;

	memset(touched, 0, end * sizeof(*touched));
	memset(leaving, 0, end * sizeof(*leaving));
	touched[MM_DOMAIN_NONE] = leaving[MM_DOMAIN_NONE] = 0;
	for (uint32_t i = 0; i < l->pages; i++) {
		const struct mm_page *p = &l->page[i];

		mm_must(p->last < end || p->last == MM_DOMAIN_NONE);
		mm_must(p->account < end || p->account == MM_DOMAIN_NONE);
		touched[p->last]++;
		if (page_is_inflight(p))
			leaving[p->quarantined ? MM_DOMAIN_NONE : p->account]++;
	}
	for (uint32_t k = 0; k <= end; k++) {
		uint32_t i = k < end ? k : MM_DOMAIN_NONE;

		mm_must(touched[i] == l->touched[i] && leaving[i] == l->leaving[i]);
		mm_must_pass(page_list_check(l, &l->free[i], MM_PAGE_FREE, &filed));
		sum += l->inflight[i];
	}
	mm_must(filed == l->count[MM_PAGE_FREE] && sum == l->inflight_all);
	return NULL;
}

const char *mm_ledger_check_sentence(const struct mm_ledger *l, uint32_t accounts_end,
				     uint32_t tenants_end)
{
	uint64_t count[MM_PAGE_STATES] = { 0 };
	uint32_t inflight = 0, revoking = 0, scrub = 0, suspects = 0, waiting = 0;
	uint32_t quarantined = 0;

	for (uint32_t i = 0; i < l->pages; i++) {
		mm_must(l->page[i].state < MM_PAGE_STATES);
		mm_must_pass(page_check(&l->page[i]));
		count[l->page[i].state]++;
		suspects += l->page[i].suspect;
		inflight += page_is_inflight(&l->page[i]);
		scrub += l->page[i].state == MM_PAGE_DIRTY && l->page[i].tenant == MM_NO_OWNER &&
			 !l->page[i].job;
	}
	mm_must(!memcmp(count, l->count, sizeof(count)));
	mm_must(inflight == l->inflight_all);
	mm_must(suspects == l->suspects);
	mm_must_pass(domains_check(l, accounts_end));
	mm_must_pass(page_list_check(l, &l->scrub, MM_PAGE_DIRTY, &waiting));
	mm_must(waiting == scrub);
	mm_must_pass(page_list_check(l, &l->quarantine, MM_PAGE_QUARANTINE, &quarantined));
	mm_must(quarantined == count[MM_PAGE_QUARANTINE]);
	for (uint32_t i = 0; i < tenants_end; i++)
		mm_must_pass(page_list_check(l, &l->revoking[i], MM_PAGE_REVOKING, &revoking));
	mm_must(revoking == count[MM_PAGE_REVOKING]);
	return NULL;
}

void mm_ledger_check(const struct mm_ledger *l, uint32_t accounts_end, uint32_t tenants_end)
{
	const char *why = mm_ledger_check_sentence(l, accounts_end, tenants_end);

	if (why)
		mm_panic(why, __FILE__, __LINE__);
}
