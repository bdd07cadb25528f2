/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draft - a decision in the making
 *
 * Concept:   For each tenant its role and its numbers in pages, from the view; the steps of the
 *            decision fill in layers (away.h), KV (split.h), the mode (mode.h). A draft can be made
 *            as if all computed side by side, to see what memory that would have.
 * Units:     pages, unless a name says otherwise.
 * Ownership: on the stack of mm_market_decide().
 * Threading: any.
 */
#pragma once

#include "mmd/core/market/targets.h"
#include "mmd/core/market/value.h"
#include "mmd/core/market/view.h"

#define MM_DRAFT_AHEAD_PART 8 /* of the KV that it wants, what who computes will want next */

enum mm_role {
	MM_ROLE_COMPUTES,
	MM_ROLE_WAITS, /* for its turn */
	MM_ROLE_IDLE,
	MM_ROLES
};

struct mm_draft_row {
	const struct mm_view_tenant *t;
	enum mm_role role;
	bool works;           /* has work, whether it may compute or not */
	uint32_t alpha;       /* as it is, then as it is to be */
	uint32_t alpha_least; /* of layers, for others than KV of who computes */
	uint64_t held, want;  /* KV; what it wants in all, at least what it holds */
	uint64_t part;        /* of KV that it is entitled to: its share, if it wants so much */
	uint64_t keep;        /* of what it holds */
	uint64_t level;       /* KV that it may have */
	uint64_t low, high;   /* bounds of the level while KV is divided */
	uint64_t bound;       /* KV with which all its own layers still fit, if it waits */
	enum mm_target_why why;
	/* Its bid: of ln(rate) for ln(its KV), if it lacks some; its weight over the mean. */
	int64_t gain_permille;
	uint32_t weight_permille;
	uint32_t cold; /* entries that may be live */
	enum mm_cool_why cold_why;
	uint32_t cold_pays;  /* entries that its limit grows to */
	uint32_t cold_cap;   /* the most that it may have after its steps waited */
	bool cold_bids;      /* it wants as many cold blocks as pay */
	bool cold_cut;       /* its steps waited longer than predicted: the cap is lowered */
	bool cold_room;      /* further blocks of it can become cold before layers are needed */
	bool cold_used;      /* the limit is raised, or made use of */
	uint32_t cold_load;  /* that layers are chosen beside: permille of its mean step's time */
	uint32_t cold_link;  /* permille of the link's time for those that count */
	uint64_t cold_mean;  /* KV that a request waits for, of late: in 256ths of a page */
	uint32_t cold_alpha; /* the least layers away for which there is room beside cold blocks */
	int64_t worth, worth_more;
	/* For the operator, as in struct mm_target. */
	bool valued;
	struct mm_value value;
};

struct mm_draft {
	const struct mm_view *view;
	bool beside;
	bool rotates;        /* memory is for one of those side by side, as if it had a turn */
	uint64_t pages;      /* for models and KV of all tenants */
	bool is_short;       /* those who compute lack pages that others do not lend */
	uint64_t cold_pages; /* that cold blocks gain */
	uint32_t n;          /* rows, one for each tenant of the view */
	uint32_t computing, waiting, working, joined;
	uint32_t orders; /* entries of order[] */
	uint16_t order[MM_CORE_TENANTS_MAX];
	struct mm_draft_row row[MM_CORE_TENANTS_MAX];
};

/* Begins with the numbers of the view; no roles. */
void mm_draft_begin(struct mm_draft *d, const struct mm_view *view);
/*
 * Gives roles, side by side or in turns, and begins with the layers and KV that are. @turn_of:
 * index of the tenant whose turn memory is for.
 */
void mm_draft_roles(struct mm_draft *d, bool beside, uint32_t turn_of);
/* Returns the pages of the model of @row with @alpha layers away. */
uint64_t mm_draft_resident(const struct mm_draft_row *row, uint32_t alpha);
/* Returns the most layers that @row may lend by the decision. */
uint32_t mm_draft_lends(const struct mm_draft_row *row);

/* Returns whether @a precedes @b. */
typedef bool mm_draft_before(const struct mm_draft_row *a, const struct mm_draft_row *b);
/* Sorts the rows of @role into order[]; equals by their index. */
void mm_draft_order(struct mm_draft *d, enum mm_role role, mm_draft_before *before);
