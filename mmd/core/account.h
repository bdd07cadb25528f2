/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account - who is charged for pages, and how many may be charged
 *
 * Concept:    An account (a uid, say) is charged before a page is reserved for one of its tenants and
 *             uncharged when the page is FREE again: scrubbed, after the holder's ack or death. A page
 *             that does not come free is moved to the quarantined part: it still counts against the
 *             account, though nothing more could be done about it.
 * Ownership:  the core owns the table. An entry lives while it has tenants, charges or pages that were
 *             last of its domain: a page's domain is the entry's index.
 * Threading:  core thread only.
 * Invariants: charged <= max_pages.
 * Limits:     MM_ACCOUNTS_MAX.
 */
#pragma once

#include "mmd/core/core.h"

struct mm_account {
	bool used;
	uint64_t key;
	uint64_t max_pages;
	uint32_t charged;
	uint32_t quarantined;
	uint32_t tenants;
};

/* The entry of @key; NULL: none. */
struct mm_account *mm_account_find(struct mm_account *table, uint64_t key);
/* The first unused entry, now @key's; NULL: full. */
struct mm_account *mm_account_open(struct mm_account *table, uint64_t key, uint64_t max_pages);
/* Pages that may still be charged. */
uint64_t mm_account_room(const struct mm_account *a);
/* 0; MM_E_QUOTA: nothing was charged. */
int mm_account_charge(struct mm_account *a, uint32_t pages);
void mm_account_uncharge(struct mm_account *a, uint32_t pages);
/* A page that was charged (or not) does not come free; and did after all. */
void mm_account_quarantine(struct mm_account *a, bool charged);
void mm_account_unquarantine(struct mm_account *a);
