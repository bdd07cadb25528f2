/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets - which layers of a tenant's model cycle
 *
 * Concept:    Applies plan.h where the layers of a model are alike, and layers.h where they differ,
 *             to a tenant: its measured times, the layers that cycle now, and the pages that a
 *             change needs. alpha counts pages in units of the mean layer; where layers are alike
 *             that is a number of layers.
 * Ownership:  a tenant's. The sets that were chosen are state: they stick to the times that were
 *             valid when they were first asked for, so that asking anew gives other ones.
 * Threading:  core thread only.
 * Trust:      Times and weights are claims of the tenant; they only affect what is taken from it.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/plan/layers.h"
#include "mmd/core/plan/plan.h"

#define MM_C_WEIGHT_BITS 16 /* fraction bits of a layer's weight */

/* Sets that were already chosen for the plan in force: callers ask for the same ones often. */
#define MM_C_SETS 32 /* enough for one bisection over alpha, with one slot and with two */
struct mm_c_sets {
	uint32_t alpha_max, alpha_max_two; /* largest alpha with one slot, and with two */
	bool uneven; /* its layers differ, so layers.h applies and not plan.h */
	/* computing time of a layer, relative to the mean */
	uint32_t c_weight[MM_LAYERS_MAX + 1];
	/* transfer time of a layer, relative to the largest */
	uint32_t t_weight[MM_LAYERS_MAX + 1];
	uint64_t claims; /* number of times that the weights were computed */

	/* what was chosen for the plan in force; valid: there is something */
	bool valid;
	uint64_t epoch, t_c_ns, t_t_ns; /* plan and times that the sets were chosen for */
	uint64_t times_ns;              /* when those times were copied here */
	uint32_t next;                  /* entry that is overwritten next */
	struct mm_c_chosen {
		uint32_t alpha, beta; /* beta 0: the entry is empty */
		bool nested;
		uint64_t copies; /* pages to preload */
		struct mm_plan_set set;
	} chosen[MM_C_SETS];
};

/* Prepares the sets of a model that was laid out and whose layers may cycle. */
void mm_c_sets_init(struct mm_c_tenant *t);
/* Recomputes the weights after the tenant's claims about its layers have changed. */
void mm_c_sets_claim(struct mm_c_tenant *t);
/*
 * Returns the transfer time of the largest layer, given the measured mean of the layers that cycle.
 */
uint64_t mm_c_sets_largest_ns(const struct mm_c_tenant *t, uint64_t mean_ns);
/* Returns the mean number of pages of a layer. */
uint64_t mm_c_layer_pages(const struct mm_c_tenant *t);
/* True if @alpha can be away with @beta slots. */
bool mm_c_alpha_possible(const struct mm_c_tenant *t, uint32_t alpha, uint32_t beta);
/* Returns the least number of pages that @alpha sets free. */
uint64_t mm_c_away_pages(const struct mm_c_tenant *t, uint32_t alpha);
/* Returns the pages of all slots of the set. */
uint64_t mm_c_slots_pages(const struct mm_c_tenant *t, const struct mm_plan_set *set);
/*
 * Returns the pages that the slots of @next need beyond those of the old slots and of the layers
 * that begin to cycle.
 */
uint64_t mm_c_blank_pages(const struct mm_c_tenant *t, const struct mm_plan_set *next);
/*
 * Chooses the set for @alpha. @slots: the number of slots, unless the model or the operator
 * determines it; 0: whichever makes the shorter step. Returns the pages that the change needs.
 */
uint64_t mm_c_change_set(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha,
			 uint32_t slots, uint64_t budget_pages, struct mm_plan_set *ret_set);
/*
 * Predicts the step time with this set for the given times of the mean layer's computation and of
 * the largest layer's transfer.
 */
uint64_t mm_c_set_step_at(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			  uint64_t t_c_ns, uint64_t t_t_ns);
/* Returns the time of all transfers of a step. */
uint64_t mm_c_set_stream_ns(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns);
/* Predicts the step time with this set from the measured times. */
uint64_t mm_c_set_step_ns(const struct mm_core *c, const struct mm_c_tenant *t,
			  const struct mm_plan_set *set);
/* True if, by the measured times, streaming this set makes no step longer. */
bool mm_c_set_hidden(const struct mm_core *c, const struct mm_c_tenant *t,
		     const struct mm_plan_set *set);
