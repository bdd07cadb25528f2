/* SPDX-License-Identifier: Apache-2.0 */
/*
 * account - who is charged for pages, how many may be charged, and how many are kept for it
 *
 * Concept:    An account is charged before a page is reserved for one of its tenants and uncharged
 *             when the page is FREE again: scrubbed, after the holder's ack or death. A page that
 *             does not come free is moved to the quarantined part: it still counts against the
 *             account, though nothing more could be done about it. Its use is both parts. The max
 *             bounds the use; the min is kept for it (quota.c). Priority says who gets first and
 *             gives last, the weight how those of one priority share.
 * Domain:     those who trust each other. An account is its own domain (its index), or joined that
 *             of an account that stays.
 * Ownership:  the core owns the table. An entry lives while it stays by the operator's word, has
 *             tenants, charges, or pages that it was the last to have: those are created anew when
 *             entries run short (mm_c_recycle()).
 * Threading:  core thread only.
 * Invariants: nothing is charged beyond max_pages; the sum of all min_pages is at most the pool.
 * Limits:     as many entries as the caller has; at most MM_ACCOUNTS_LIMIT.
 */
#pragma once

#include "mmd/core/core.h"

struct mm_account {
	bool used;
	bool stays; /* the operator named it */
	uint64_t key;
	uint32_t domain; /* an account's index */
	struct mm_core_quota quota;
	uint64_t revision;
	uint32_t charged;
	uint32_t quarantined;
	uint32_t tenants;
	uint64_t served;  /* pages granted in turns, by weight: who has least is next */
	uint64_t left_at; /* order in which accounts lost their last tenant */
	struct mm_account_turn {
		bool interrupted;    /* its last turn ended for an account of higher priority */
		uint64_t since_ns;   /* since when it wants one, or had its last one */
		bool queued;         /* one of its tenants holds the turn, or waits for it */
		uint64_t left_ns;    /* since when none does */
		uint64_t charged_ns; /* by weight, for turns that other accounts waited for */
		/* as of one look */
		uint32_t n;        /* tenants that hold it or wait */
		uint32_t priority; /* the highest of those that wait */
		uint64_t most_ns;  /* as struct mm_core's, among its tenants */
	} turn;
};

/* The entry of @key among the first @n; NULL: none. */
struct mm_account *mm_account_find(struct mm_account *table, uint32_t n, uint64_t key);
/* The first unused entry of @max, now @key's, a domain of its own; NULL: full. */
struct mm_account *mm_account_open(struct mm_account *table, uint32_t max, uint64_t key,
				   const struct mm_core_quota *quota);
uint64_t mm_account_use(const struct mm_account *a);
/* Pages that its max allows to be charged still. */
uint64_t mm_account_room(const struct mm_account *a);
/* Pages of its min that it does not use. */
uint64_t mm_account_unused_min(const struct mm_account *a);
/* 0; MM_E_QUOTA: nothing was charged. */
int mm_account_charge(struct mm_account *a, uint32_t pages);
void mm_account_uncharge(struct mm_account *a, uint32_t pages);
/* A page that was charged (or not) does not come free; and did after all. */
void mm_account_quarantine(struct mm_account *a, bool charged);
void mm_account_unquarantine(struct mm_account *a);
/* It was granted @pages in its turn; @served is the highest that any was at when it was granted. */
void mm_account_serve(struct mm_account *a, uint32_t pages, uint64_t *served);
/* It waits again: what it did not ask for meanwhile is not owed to it. */
void mm_account_wait(struct mm_account *a, uint64_t served);
