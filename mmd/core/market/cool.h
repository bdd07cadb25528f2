/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cool - how many blocks of a tenant's KV may be cold
 *
 * Concept:   A cold block lies in host memory and crosses the link once in each step, through a
 *            window of the tenant's arena. So the offer is: device memory of a block, less its part
 *            of the window, for link time in every step; there is no way back to pay for, because
 *            cold blocks end with their sequences. The price hides behind the computation until the
 *            link has no time left. An offer is made to whom lacks KV, for its own KV alone, and
 *            comes before the layers of one who computes alone, which cost more link time for each
 *            page. Where several compute, layers come first: their memory is for whoever lacks it.
 * Room:      Prompts, and the last blocks of sequences, must be on the device. One who computes
 *            alone and has no room for them has a layer or two away besides.
 * Limits:    A limit permits: who does not need it streams nothing. It is never below the floor
 *            that the tenant declared, and the operator's limit is left as it is. One that is
 *            lowered says that no further blocks shall become cold; those that are stay so.
 * Stability: Who lacks nothing any more keeps what is live, so that its limit falls with its
 *            sequences, instead of with the hunger that the limit itself has ended. Several who
 *            want the link's time get equal parts of it, and what one leaves is the others'.
 *            Steps that wait longer than was predicted lower a cap, which rises again slowly.
 * Units:     entries are blocks; loads in permille of the mean step's computing time.
 * Threading: any; integers only.
 */
#pragma once

#include "mmd/core/market/decide.h"
#include "mmd/core/market/draft.h"

#define MM_COOL_LINK_LEFT 100 /* permille of the link's time that cold blocks leave to others */
#define MM_COOL_HUNGRY    100 /* permille of late time in which it lacked KV: then it wants more */
#define MM_COOL_STARVES   990 /* the same where several compute: all of the last seconds */
#define MM_COOL_BESIDE    2   /* the most layers that are away for room beside cold blocks */

/* Everything that the choice for one tenant depends on besides itself. */
struct mm_cool {
	uint32_t computing;       /* tenants that compute at once */
	uint32_t weight_permille; /* of the tenant, relative to the mean of those */
	int64_t gain_permille;    /* of ln(rate) for ln(its KV) */
	uint64_t kv_bytes;        /* that it has on the device */
	uint64_t kv_enough;       /* beyond that KV is worth nothing more */
	uint32_t rho_permille, link_slows_permille;
	uint32_t link_permille; /* of the link's time that others and its own layers take */
	uint32_t slow_most;     /* permille by which its steps may be longer */
};

/* Returns the transfers of @entries in a step of @t, on a link that nobody else uses. */
uint64_t mm_cool_load(const struct mm_view_tenant *t, uint32_t entries);
/* Returns the device memory that @entries of @t gain, less their window. */
uint64_t mm_cool_gain_bytes(const struct mm_view_tenant *t, uint32_t entries);
/* Returns the value of @entries, in millionths of ln(rate); INT64_MIN: they are not allowed. */
int64_t mm_cool_worth(const struct mm_cool *cool, const struct mm_view_tenant *t, uint32_t entries);
/* Returns the best number of entries up to @most. */
uint32_t mm_cool_best(const struct mm_cool *cool, const struct mm_view_tenant *t, uint32_t most);

/*
 * Sets all cold_ fields of each row, with the layers that are away now, and @d->cold_pages. Rows
 * have their gain.
 */
void mm_cool_decide(struct mm_draft *d, const struct mm_market_memory *memory);
/* Notes in @memory what the next decision depends on, after @d was decided. */
void mm_cool_note(const struct mm_draft *d, struct mm_market_memory *memory);
