/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value - what layers away are worth to all who compute, and what they cost
 *
 * Concept:   A rate counts by its logarithm, so that neither the scale of a claim nor the size of a
 *            model matters: twice the KV of one tenant is worth twice the KV of another. KV of who
 *            lacks it gains; the longer steps of who streams, and kernels that the link's traffic
 *            slows, cost. Of the numbers of layers that the clause allows, the best one is chosen.
 *            Documentation/market.md has the formulas and where they come from.
 * Units:     values in millionths of ln(rate), summed over those who compute; parts in permille.
 * Threading: any; integers only.
 */
#pragma once

#include "mmd/core/market/view.h"

#define MM_VALUE_ONE        1000000 /* of ln(rate) */
#define MM_VALUE_HYSTERESIS 15000   /* by which another number of layers must be better */
#define MM_VALUE_STALL      2       /* times rho that a stall costs, over who computes */
#define MM_VALUE_FREE_SLOW  50      /* permille that the clause leaves without any gain */
#define MM_VALUE_SEVERE     1000    /* permille from which steps are longer that hardly compute */
#define MM_VALUE_STAY_PART  4       /* of the clause that what is already there may exceed it by */
#define MM_VALUE_LINK_LEAST 50      /* permille of the link's time that is left to anybody */
#define MM_VALUE_SLOW_KNOWN (UINT32_MAX - 1)

/* Everything that the choice for one tenant depends on besides itself. */
struct mm_value {
	uint32_t computing;       /* tenants that compute at once */
	uint32_t weight_permille; /* of the tenant, relative to the mean of those */
	int64_t gain_permille;    /* of ln(rate) for ln(KV of those who lack it) */
	uint64_t kv_pages;        /* that those could have if the tenant lent nothing */
	uint64_t kv_enough;       /* beyond that KV is worth nothing more */
	uint64_t cold_load;       /* of its own cold blocks, permille of its mean step's time */
	uint32_t rho_permille, link_slows_permille;
	uint32_t link_permille; /* of the link's time that others take */
	uint32_t slow_most;     /* by the clause */
	uint32_t alpha_least, alpha_most;
};

struct mm_value_choice {
	uint32_t alpha;
	bool stays;   /* the best is too little better than what is */
	bool clause;  /* the clause allows no more */
	bool unknown; /* what it costs was not measured yet */
	int64_t worth, worth_more;
};

/* Returns ln(@num / @den) in millionths; both positive. */
int64_t mm_value_ln(uint64_t num, uint64_t den);
/* Returns by how much its steps are longer with @alpha layers away; UINT32_MAX: not known. */
uint32_t mm_value_slow(const struct mm_view_tenant *t, uint32_t alpha);
/*
 * Returns by how much steps of @t are longer if transfers that take @load permille of the mean
 * step's time are in each; UINT32_MAX: not known.
 */
uint32_t mm_value_waits(const struct mm_view_tenant *t, uint64_t load);
/* Returns the permille of the link's time that @alpha layers away take. */
uint32_t mm_value_link(const struct mm_view_tenant *t, uint32_t alpha);
/*
 * Returns d ln(step) / d ln(KV) of @t in permille: the KV's part of its memory, or as measured,
 * within half and twice that.
 */
uint32_t mm_value_kappa(const struct mm_view_tenant *t);
/* Returns the permille by which streaming may make steps of @t longer; see Documentation. */
uint32_t mm_value_clause(const struct mm_view_tenant *t);
/* Returns the cost of @alpha layers away beside what others take of the link. */
struct mm_view_point mm_value_cost(const struct mm_value *v, const struct mm_view_tenant *t,
				   uint32_t alpha);
/* Returns the value of @alpha layers away; its cost must be known. */
int64_t mm_value_at(const struct mm_value *v, const struct mm_view_tenant *t, uint32_t alpha);
/* Chooses how many layers are to be away; @now are. */
struct mm_value_choice mm_value_choose(const struct mm_value *v, const struct mm_view_tenant *t,
				       uint32_t now);
