/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lends - what the market remembers of a tenant's lending
 *
 * Ownership: the market has one per tenant index.
 * Threading: core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The most layers that may be away of an active tenant, and what it was worked out from. */
struct mm_c_cap {
	uint64_t epoch, claims, steps, t_t_ns;
	uint32_t link_permille, slow_permille;
	uint32_t alpha;
	uint32_t is_hidden_alpha; /* fewer than alpha, and whether they hide; 0: nobody asked */
	bool is_hidden;
};

struct mm_c_lends {
	uint64_t taken_ns;             /* last time that layers were taken */
	uint64_t relieved_ns;          /* last time that some came home as it streamed too much */
	uint64_t by_hand_ns;           /* since when the operator's plan waits for pages */
	struct mm_c_cap cap, cap_more; /* for as much as is tolerated, and for more of it */
	struct {
		uint64_t epoch, claims, steps;
		uint32_t alpha;
	} worthwhile; /* of what is away, with the KV memory of the first asking */
};
