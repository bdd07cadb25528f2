/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger - what every page of the pool is, at every instant
 *
 * Concept:    A page is in exactly one state; the functions below are the only way to change it and
 *             each names the transition that it is. A page remembers the account that had it last,
 *             and its domain: it may be granted again within that domain after a scrub; into
 *             another one only after it was created anew.
 *
 *               NONE ─created→ DIRTY ─scrub_begin→ SCRUBBING ─scrub_end→ FREE ─reserve→
 *               DIRTY(owner) DIRTY(owner) ─give→ PARAM | SLOT | KV ─revoke→ REVOKING ─drop→ DIRTY
 *
 *             So FREE is reached from SCRUBBING only, and nothing is issued on a page while it
 *             still counts as FREE.
 * Ownership:  the core owns the ledger, the ledger owns all pages; others hold page ids.
 * Jobs:       a page that a job is writing (job != 0) stays out of the scrub queue until the job
 *             ended: bytes that arrive after the scrub would leak.
 * Lists:      each FREE, unowned DIRTY, QUARANTINE and REVOKING page is on one list; FIFO order.
 * Threading:  core thread only.
 * Invariants: mm_ledger_check(): counts, lists and owners agree.
 */
#pragma once

#include "mmd/core/core.h"

#define MM_NOBODY      UINT32_MAX
#define MM_DOMAIN_NONE MM_ACCOUNTS_LIMIT /* nobody had it since it was created */
#define MM_DOMAINS     (MM_ACCOUNTS_LIMIT + 1)

struct mm_page {
	uint32_t next, prev; /* on its list; MM_NO_PAGE at the ends */
	uint32_t tenant;     /* index of the owner, MM_NOBODY */
	uint32_t job;        /* job slot + 1; 0: none */
	uint8_t state;       /* enum mm_page_state */
	uint16_t domain;     /* of the account that had it last, MM_DOMAIN_NONE */
	uint16_t last;       /* that account, MM_DOMAIN_NONE */
	uint16_t account;    /* who is charged, MM_DOMAIN_NONE */
	bool recreating;     /* SCRUBBING by RECREATE, or QUARANTINE without a handle */
	bool poisoned;       /* QUARANTINE for good: a job on it failed */
	bool quarantined;    /* its charge is in the account's quarantined part */
	bool lost;           /* out of use without anybody to charge */
	bool suspect;        /* in use when the device had a memory error: not to be used again */
};

struct mm_page_list {
	uint32_t head, tail, length;
};

struct mm_ledger {
	struct mm_page *page;
	uint32_t pages;
	uint64_t count[MM_PAGE_STATES];
	struct mm_page_list free[MM_DOMAINS]; /* by domain */
	struct mm_page_list scrub;            /* DIRTY, nobody's, no job */
	struct mm_page_list quarantine;
	struct mm_page_list revoking[MM_TENANTS_LIMIT];
	uint32_t inflight
		[MM_DOMAINS]; /* nobody's DIRTY and SCRUBBING, by the domain they will be of */
	uint32_t inflight_all;
	uint32_t leaving
		[MM_DOMAINS]; /* of those, by the account that is charged till they are FREE */
	uint32_t touched[MM_DOMAINS]; /* pages by the account that had them last */
	uint64_t changes;             /* of any page so far */
	uint32_t suspects;
};

/**
 * mm_ledger_init() - all pages NONE
 * @l:     caller's storage
 * @page:  @pages entries, caller's
 * @pages: of the pool
 */
void mm_ledger_init(struct mm_ledger *l, struct mm_page *page, uint32_t pages);

/* NONE -> DIRTY, nobody's. */
void mm_ledger_created(struct mm_ledger *l, uint32_t page);
/* DIRTY (nobody's) or FREE -> SCRUBBING under @job; @recreate: its handle is replaced. */
void mm_ledger_scrub_begin(struct mm_ledger *l, uint32_t page, uint32_t job, bool recreate);
/* SCRUBBING -> FREE; after a RECREATE -> DIRTY of no domain. */
void mm_ledger_scrub_end(struct mm_ledger *l, uint32_t page);
/* SCRUBBING or DIRTY without a job -> QUARANTINE. @poisoned: never tried again. */
void mm_ledger_quarantine(struct mm_ledger *l, uint32_t page, bool poisoned);
/* QUARANTINE (not poisoned) -> SCRUBBING by RECREATE. */
void mm_ledger_retry(struct mm_ledger *l, uint32_t page, uint32_t job);

/**
 * mm_ledger_reserve() - FREE -> DIRTY with an owner
 * @l:       any
 * @tenant:  index of the owner-to-be
 * @account: that has it from now on
 * @domain:  its account's: the one that the page enters
 *
 * Return: a page that @domain may have, its own first; MM_NO_PAGE: none.
 */
uint32_t mm_ledger_reserve(struct mm_ledger *l, uint32_t tenant, uint32_t account, uint32_t domain);
/* Free pages that @domain may have as they are. */
uint32_t mm_ledger_grantable(const struct mm_ledger *l, uint32_t domain);
/* Who pays for it (MM_DOMAIN_NONE: nobody), and whether as one that does not come free. */
void mm_ledger_charge(struct mm_ledger *l, uint32_t page, uint32_t account, bool quarantined);

/* DIRTY (owned, no job), PARAM or SLOT -> @state (PARAM, SLOT, KV). */
void mm_ledger_give(struct mm_ledger *l, uint32_t page, enum mm_page_state state);
/* PARAM, SLOT or KV -> REVOKING. */
void mm_ledger_revoke(struct mm_ledger *l, uint32_t page);
/* Owned DIRTY, KV or REVOKING -> DIRTY, nobody's. */
void mm_ledger_drop(struct mm_ledger *l, uint32_t page);
/*
 * Marks all that is in use: owned, or DIRTY or SCRUBBING with what it had. The mark goes when the
 * page is quarantined, from where it comes back with other memory only, or when its owner is
 * acquitted.
 */
void mm_ledger_suspect(struct mm_ledger *l);
void mm_ledger_acquit(struct mm_ledger *l, uint32_t tenant);

/* An owned DIRTY page gets written by @job; 0: the job ended. */
void mm_ledger_job(struct mm_ledger *l, uint32_t page, uint32_t job);

/*
 * Panics where the ledger contradicts itself. Nobody of an account or tenant at or above the ends
 * has any.
 */
void mm_ledger_check(const struct mm_ledger *l, uint32_t accounts_end, uint32_t tenants_end);
