/* SPDX-License-Identifier: Apache-2.0 */
/*
 * market - what decides who gets memory and who gives it, between one settling and the next
 *
 * Concept:    The floors below know what is so; here is what is wanted of it. The core points to it, and only the
 *             files of the market and those above can look into it.
 * Ownership:  the core owns one; a tenant's parts belong to its index.
 * Threading:  core thread only.
 */
#pragma once

#include "mmd/core/wish.h"

struct mm_market {
	struct mm_wish *wish; /* one per tenant index */
	uint64_t kv_turns;    /* numbers the turns of KV wishes */
};

/* NULL: no memory. */
struct mm_market *mm_market_create(uint32_t tenants);
/* NULL is allowed. */
void mm_market_destroy(struct mm_market *market);
