/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account - the pages that are charged to an account, its max and its min
 *
 * Concept:    An account is charged before a page is reserved for one of its tenants, and uncharged
 *             when the page is FREE again: scrubbed, after the holder has acknowledged or is dead.
 *             A page that does not come free is moved to the quarantined part: it still counts
 *             against the account, although no tenant has it. The use of an account is the sum of
 *             both parts. The max bounds the use; the min is kept for the account (quota.c).
 *             Priority determines who is granted first and gives last; weight, how accounts of one
 *             priority share.
 * Domain:     Accounts that trust each other share a domain. An account is a domain of its own (its
 *             index), or is in that of an account that stays.
 * Ownership:  The core owns the table. An entry exists while the operator's configuration names it,
 *             or while it has tenants, charges, or pages that it was the last to have. Such pages
 *             are created anew when entries run short (mm_c_accounts_recycle()).
 * Threading:  core thread only.
 * Invariants: No charge exceeds max_pages; the sum of all min_pages is at most the pool.
 * Limits:     the entries that the caller provides, at most MM_CORE_ACCOUNTS_MAX.
 */
#pragma once

#include "mmd/core/core.h"

struct mm_account {
	bool used;
	bool stays; /* the operator named it */
	uint64_t key;
	uint32_t domain; /* index of the account whose domain it is in */
	struct mm_core_quota quota;
	uint64_t revision;
	uint32_t charged;
	uint32_t quarantined;
	uint32_t tenants;
	/*
	 * pages granted, over the weight; of accounts that wait, the one with the least is next
	 */
	uint64_t served;
	uint64_t left_at; /* orders accounts by when they lost their last tenant */
	struct mm_account_turn {
		bool interrupted;  /* its last turn ended for an account of higher priority */
		uint64_t since_ns; /* when it began to wait for a turn, or had its last one */
		bool queued;       /* one of its tenants holds the turn, or waits for it */
		uint64_t left_ns;  /* when the last of its tenants stopped holding or waiting */
		/* computing time over the weight, of turns that other accounts waited for */
		uint64_t charged_ns;
		/* valid within one decision of market/turn.c */
		uint32_t n;        /* tenants that hold the turn or wait for it */
		uint32_t priority; /* highest priority of its tenants that wait */
		/*
		 * least charged_ns of its tenants plus a slack: only time beyond it counts against
		 * a tenant
		 */
		uint64_t most_ns;
	} turn;
	struct mm_core_tally tally; /* of all tenants that it has had (tally.h) */
};

/* Returns the entry of @key among the first @n; NULL: there is none. */
struct mm_account *mm_account_find(struct mm_account *table, uint32_t n, uint64_t key);
/*
 * Takes the first unused entry of @max for @key, as a domain of its own. Returns NULL if all are
 * used.
 */
struct mm_account *mm_account_open(struct mm_account *table, uint32_t max, uint64_t key,
				   const struct mm_core_quota *quota);
uint64_t mm_account_use(const struct mm_account *a);
/* Returns the pages that may still be charged below its max. */
uint64_t mm_account_room(const struct mm_account *a);
/* Returns the pages of its min that it does not use. */
uint64_t mm_account_unused_min(const struct mm_account *a);
/* Returns 0, or MM_E_QUOTA: nothing was charged. */
int mm_account_charge(struct mm_account *a, uint32_t pages);
void mm_account_uncharge(struct mm_account *a, uint32_t pages);
/* Counts a page, charged before or not, as one that does not come free; and undoes this. */
void mm_account_quarantine(struct mm_account *a, bool charged);
void mm_account_unquarantine(struct mm_account *a);
/*
 * Advances the account's virtual time by @pages that it was granted, divided by its weight.
 * @served: the highest virtual time of all accounts, which is raised if this one's is higher.
 */
void mm_account_serve(struct mm_account *a, uint32_t pages, uint64_t *served);
/* Begins to wait: what it did not request while it did not wait is not owed to it. */
void mm_account_wait(struct mm_account *a, uint64_t served);
