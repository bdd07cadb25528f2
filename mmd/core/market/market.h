/* SPDX-License-Identifier: Apache-2.0 */
/*
 * market - what decides who gets memory and who gives it, between one settling and the next
 *
 * Concept:    The floors below know what is so; here is what is wanted of it. The core points to
 *             it, and only the files of the market and those above can look into it.
 * Ownership:  the core owns one; a tenant's parts belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/market/forecast.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/supply.h"
#include "mmd/core/market/turn.h"
#include "mmd/core/market/wish.h"

struct mm_policy_ops;

/* What the controller reckons with of one account, as of one settling. */
struct mm_c_part {
	uint64_t demand; /* pages that its tenants ask for */
	uint64_t kept;   /* of its room, for who comes first */
	bool keeps;
	uint64_t room, min; /* left of what it may have soon, of its unused min */
};

struct mm_market {
	const struct mm_policy_ops *policy;
	struct mm_wish *demand; /* one per tenant index, as the next two */
	struct mm_c_lends *lends;
	struct mm_c_turn *tenant_turn;
	struct mm_c_turns turn;
	struct mm_c_forecast forecast;
	struct mm_c_expected expected;
	struct mm_c_sums sums;
	struct mm_c_part part[MM_ACCOUNTS_LIMIT];
	uint64_t kv_turns;    /* numbers the turns of KV wishes */
	uint64_t recalled_ns; /* when KV in use was last asked back for layers */
	uint64_t surplus_ns;  /* since when there is more than is needed; 0: there is not */
	bool kv_unmet;        /* KV wishes lacked pages, at the last settling */
	uint64_t unmet;       /* pages that wishes wait for, at the last settling */
};

/* NULL: no memory. */
struct mm_market *mm_market_create(uint32_t tenants);
/* NULL is allowed. */
void mm_market_destroy(struct mm_market *market);
/* A tenant joins at @index: nothing is known of it. */
void mm_market_join(struct mm_market *market, struct mm_c_tenant *t, uint32_t index);
