/* SPDX-License-Identifier: Apache-2.0 */
/*
 * market - state of the decisions which tenants get memory and which give it
 *
 * Concept:    The rooms below have the facts; the market has demands and decisions. The core points
 *             to it, and only files of the market and of the front know its members.
 * Ownership:  the core owns one; a tenant's parts belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/market/decide.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/demand.h"

struct mm_policy_ops;

/* The controller's view of one account in one settling. */
struct mm_c_part {
	uint64_t demand;    /* pages that its tenants may be granted and wait for */
	uint64_t kept;      /* pages of its room that are kept for its first demand */
	bool keeps;         /* a demand of the account keeps pages already */
	uint64_t room, min; /* pages left of what it may have soon, of its unused min */
};

struct mm_market {
	const struct mm_policy_ops *policy;
	struct mm_demand *demand; /* one per tenant index, as the next two */
	struct mm_c_lends *lends;
	struct mm_c_turn *tenant_turn;
	struct mm_c_turns turn;
	struct mm_c_expected expected;
	struct mm_c_sums sums;
	struct mm_c_part part[MM_CORE_ACCOUNTS_MAX];
	uint64_t kv_orders;          /* the last order of a KV demand */
	uint64_t unmet;              /* pages that all demands lacked at the last settling */
	uint64_t big_kept, big_mins; /* pages kept for big demands; of these, in their own mins */
	uint64_t sampled_ns;         /* when look.h took the last samples */
	uint32_t points_next;        /* tenant whose points are looked at first */

	/* The last decision: what it saw, what it remembers, what it wants. */
	struct mm_view view;
	struct mm_market_memory memory;
	struct mm_targets targets;
	uint64_t situation; /* mm_market_situation() at the last decision */
};

/* Allocates the market for @tenants and @accounts indexes. NULL: no memory. */
struct mm_market *mm_market_create(uint32_t tenants, uint32_t accounts);
/* Frees @market, which may be NULL. */
void mm_market_destroy(struct mm_market *market);
/* Points a tenant to the parts of its @index. */
void mm_market_attach(struct mm_market *market, struct mm_c_tenant *t, uint32_t index);
/*
 * Points a new tenant at @index to its parts, and clears them. @now_ns: on the clock of decisions,
 * which knows no scale of time.
 */
void mm_market_join(struct mm_market *market, struct mm_c_tenant *t, uint32_t index,
		    uint64_t now_ns);
/* Clears what is about the model of a tenant, which it has given back. */
void mm_market_unloaded(struct mm_c_tenant *t);
