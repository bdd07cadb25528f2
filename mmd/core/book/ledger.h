/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger - the state of every page of the pool at every moment
 *
 * Concept:    A page is in exactly one state; only the functions below change it, and each names
 *             the transition that it makes. A page remembers the account that had it last and that
 *             account's domain: within that domain it may be granted again after a scrub, in
 *             another one only after it was created anew.
 *
 *               NONE ─created→ DIRTY ─scrub_begin→ SCRUBBING ─scrub_end→ FREE ─reserve→
 *               DIRTY(owner) ─give→ PARAM | SLOT | KV | MEM ─revoke→ REVOKING ─drop→ DIRTY
 *
 *             So FREE is reached from SCRUBBING only, and no job is issued on a page while it still
 *             counts as FREE.
 * Ownership:  The core owns the ledger, and the ledger owns all pages; others hold page numbers.
 * Jobs:       A page that a job is writing (job != 0) is not scrubbed until the job has ended:
 *             bytes that arrive after the scrub would leak.
 * Lists:      Each FREE, unowned DIRTY, QUARANTINE and REVOKING page is on one list, in FIFO order.
 * Threading:  core thread only.
 * Invariants: Counts, lists and owners agree; mm_ledger_check() checks this.
 */
#pragma once

#include "mmd/core/core.h"

#define MM_NO_OWNER    UINT32_MAX
#define MM_DOMAIN_NONE MM_CORE_ACCOUNTS_MAX /* no account has had it since it was created */
#define MM_DOMAINS     (MM_CORE_ACCOUNTS_MAX + 1)

struct mm_page {
	uint32_t next, prev; /* neighbours on its list; MM_NO_PAGE at the ends */
	uint32_t tenant;     /* index of the owner, or MM_NO_OWNER */
	uint32_t job;        /* slot + 1 of the job that writes it; 0: none */
	uint8_t state;       /* enum mm_page_state */
	uint16_t domain;     /* domain of the account that had it last, or MM_DOMAIN_NONE */
	uint16_t last;       /* account that had it last, or MM_DOMAIN_NONE */
	uint16_t account;    /* account that is charged, or MM_DOMAIN_NONE */
	bool recreating;     /* SCRUBBING by RECREATE, or QUARANTINE without a handle */
	bool poisoned;       /* QUARANTINE for ever: a job on it failed */
	bool quarantined;    /* its charge is in the quarantined part of the account */
	bool lost;           /* out of use, and charged to no account */
	/* it was in use when the device had a memory error, and must not be used again as it is */
	bool suspect;
	/* mmd has lost its descriptor: the page can be given to nobody any more as it is */
	bool unheld;
};

struct mm_page_list {
	uint32_t head, tail, length;
};

struct mm_ledger {
	struct mm_page *page;
	uint32_t pages;
	uint64_t count[MM_PAGE_STATES];
	struct mm_page_list free[MM_DOMAINS]; /* by domain */
	struct mm_page_list scrub;            /* DIRTY pages without an owner and without a job */
	struct mm_page_list quarantine;
	struct mm_page_list revoking[MM_CORE_TENANTS_MAX];
	/* DIRTY and SCRUBBING pages without an owner, by the domain that they will be in */
	uint32_t inflight[MM_DOMAINS];
	uint32_t inflight_all;
	/* the same pages, by the account that is charged until they are FREE */
	uint32_t leaving[MM_DOMAINS];
	uint32_t touched[MM_DOMAINS]; /* pages by the account that had them last */
	uint32_t suspects;
	uint64_t changes; /* counts changes of any page */
};

/**
 * mm_ledger_init() - all pages NONE
 * @l:     storage of the caller
 * @page:  @pages entries of the caller
 * @pages: number of pages of the pool
 */
void mm_ledger_init(struct mm_ledger *l, struct mm_page *page, uint32_t pages);

/* NONE -> DIRTY without an owner. */
void mm_ledger_created(struct mm_ledger *l, uint32_t page);
/* DIRTY (without an owner) or FREE -> SCRUBBING under @job. @recreate: the handle is replaced. */
void mm_ledger_scrub_begin(struct mm_ledger *l, uint32_t page, uint32_t job, bool recreate);
/* SCRUBBING -> FREE, or after a RECREATE -> DIRTY, in no domain. */
void mm_ledger_scrub_end(struct mm_ledger *l, uint32_t page);
/* SCRUBBING, or DIRTY without a job -> QUARANTINE. @poisoned: never retried. */
void mm_ledger_quarantine(struct mm_ledger *l, uint32_t page, bool poisoned);
/* QUARANTINE (not poisoned) -> SCRUBBING by RECREATE. */
void mm_ledger_retry(struct mm_ledger *l, uint32_t page, uint32_t job);

/**
 * mm_ledger_reserve() - FREE -> DIRTY with an owner
 * @l:       initialised
 * @tenant:  index of the owner-to-be
 * @account: account that has the page from now on
 * @domain:  domain of that account, which the page enters
 *
 * Return: a page that @domain may have, preferably one of its own; MM_NO_PAGE: there is none.
 */
uint32_t mm_ledger_reserve(struct mm_ledger *l, uint32_t tenant, uint32_t account, uint32_t domain);
/* Returns the number of free pages that @domain may have as they are. */
uint32_t mm_ledger_grantable(const struct mm_ledger *l, uint32_t domain);
/*
 * Charges the page to @account (MM_DOMAIN_NONE: to none). @quarantined: as one that does not come
 * free.
 */
void mm_ledger_charge(struct mm_ledger *l, uint32_t page, uint32_t account, bool quarantined);

/* DIRTY (owned, without a job), PARAM or SLOT -> @state (PARAM, SLOT, KV or MEM). */
void mm_ledger_give(struct mm_ledger *l, uint32_t page, enum mm_page_state state);
/* PARAM, SLOT, KV or MEM -> REVOKING. */
void mm_ledger_revoke(struct mm_ledger *l, uint32_t page);
/* Owned DIRTY, KV, MEM or REVOKING -> DIRTY without an owner. */
void mm_ledger_drop(struct mm_ledger *l, uint32_t page);
/*
 * Marks every page that is in use as suspect: owned pages, and DIRTY or SCRUBBING ones with their
 * old content. The mark is removed when the page is quarantined, from where it returns only with
 * other memory, or when its owner is cleared.
 */
void mm_ledger_suspect(struct mm_ledger *l);
/* Removes the mark from the pages of a tenant that is cleared. */
void mm_ledger_suspect_clear(struct mm_ledger *l, uint32_t tenant);

/* Whether the page has memory, and no job that gives it other memory. */
bool mm_ledger_is_made(const struct mm_page *page);
/*
 * Marks a page as unheld, until it is quarantined. FREE -> DIRTY without an owner; one that has no
 * memory, or gets other memory, stays as it is.
 */
void mm_ledger_unheld(struct mm_ledger *l, uint32_t page);

/* Notes that @job writes an owned DIRTY page, or creates a page; 0: the job has ended. */
void mm_ledger_job(struct mm_ledger *l, uint32_t page, uint32_t job);

/*
 * Panics if the ledger contradicts itself. Accounts and tenants with an index >= the given ends
 * must have no pages.
 */
void mm_ledger_check(const struct mm_ledger *l, uint32_t accounts_end, uint32_t tenants_end);
/* Returns how the ledger contradicts itself, where mm_ledger_check() panics; NULL: it does not. */
const char *mm_ledger_check_sentence(const struct mm_ledger *l, uint32_t accounts_end,
				     uint32_t tenants_end);
