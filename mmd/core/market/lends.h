/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lends - state of a tenant's lending
 *
 * Concept:   Times at which layers were taken and returned, and the results of worth.c with the
 *            values that they depend on.
 * Ownership: the market has one per tenant index.
 * Threading: core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The most layers of a tenant that may be away, and what that number depends on. */
struct mm_c_cap {
	uint64_t epoch, claims, steps, t_t_ns;
	uint32_t link_permille, slow_permille;
	uint32_t alpha;
	uint32_t is_hidden_alpha; /* number that is_hidden is for; 0: none */
	bool is_hidden;           /* streaming with that many layers away is hidden */
};

struct mm_c_lends {
	uint64_t taken_ns; /* last time that layers were taken */
	/* last time that layers returned because too many were away; 0: never */
	uint64_t overdrawn_return_ns;
	uint64_t by_hand_ns;           /* since when the operator's plan waits for pages */
	struct mm_c_cap cap, cap_more; /* for the usual tolerance, and for a multiple of it */
	struct {
		uint64_t epoch, claims, steps;
		uint32_t alpha;
	} worthwhile; /* last result of mm_c_alpha_worthwhile() */
};
