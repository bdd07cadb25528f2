/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sets - which layers of a tenant's model cycle
 *
 * Concept:    plan.h's answers where a model's layers are alike, layers.h's where they are not, in
 *             the terms of a tenant: what it has measured, what cycles now, which pages a change
 *             needs. alpha counts pages in mean layers' worth; where layers are alike that is a
 *             number of layers.
 * Ownership:  a tenant's; the sets that were chosen are a cache.
 * Threading:  core thread only.
 * Trust:      times and weights are the tenant's claims; they steer what is taken from it.
 */
#pragma once

#include "mmd/core/book/book.h"
#include "mmd/core/plan/layers.h"
#include "mmd/core/plan/plan.h"

#define MM_C_WEIGHT_BITS 16 /* after the point of a layer's weight */

/* Sets that were chosen already, from the plan that is in force: choosing is asked for often. */
#define MM_C_SETS 32 /* what one bisection over alpha asks for, with one slot and with two */
struct mm_c_sets {
	uint32_t alpha_max, alpha_max_two;    /* with one slot, with two */
	bool uneven;                          /* its layers differ: layers.h, not plan.h */
	uint32_t c_weight[MM_LAYERS_MAX + 1]; /* a layer's computation: of the mean's */
	uint32_t t_weight[MM_LAYERS_MAX + 1]; /* its transfer: of the largest one's */
	uint64_t claims;                      /* how often they were weighed anew */

	/* a cache */
	bool valid;
	uint64_t epoch, t_c_ns, t_t_ns; /* that they were chosen for */
	uint64_t times_ns;              /* when those times were taken up */
	uint32_t next;                  /* to be overwritten */
	struct mm_c_chosen {
		uint32_t alpha, beta; /* beta 0: nothing here */
		bool nested;
		uint64_t copies; /* pages to preload */
		struct mm_plan_set set;
	} chosen[MM_C_SETS];
};

/* A model was laid out that may cycle. */
void mm_c_sets_init(struct mm_c_tenant *t);
/* What it says about its layers' computation has changed. */
void mm_c_sets_claim(struct mm_c_tenant *t);
/*
 * What was measured is the mean of the layers that cycle. Returns what its largest layer would
 * take.
 */
uint64_t mm_c_sets_largest_ns(const struct mm_c_tenant *t, uint64_t mean_ns);
/* Pages of a layer, on average. */
uint64_t mm_c_layer_pages(const struct mm_c_tenant *t);
/* Can @alpha be away with @beta slots? */
bool mm_c_alpha_possible(const struct mm_c_tenant *t, uint32_t alpha, uint32_t beta);
/* Pages that @alpha sets free, at least. */
uint64_t mm_c_away_pages(const struct mm_c_tenant *t, uint32_t alpha);
uint64_t mm_c_slots_pages(const struct mm_c_tenant *t, const struct mm_plan_set *set);
/* Pages for slots beyond those of the old slots and of the layers that leave. */
uint64_t mm_c_blank_pages(const struct mm_c_tenant *t, const struct mm_plan_set *next);
/*
 * The set, slots included, that @alpha would mean. @slots: how many it is to have where neither the
 * model nor the operator says it; 0: whichever makes the shorter step. Return: pages that it needs.
 */
uint64_t mm_c_change_set(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha,
			 uint32_t slots, uint64_t budget_pages, struct mm_plan_set *ret_set);
/* By what was measured: a step with this set; does streaming make no step longer. */
/* With other times of a mean layer's computation and a largest one's transfer. */
uint64_t mm_c_set_step_at(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			  uint64_t t_c_ns, uint64_t t_t_ns);
/* Its transfers in a step. */
uint64_t mm_c_set_stream_ns(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns);
uint64_t mm_c_set_step_ns(const struct mm_core *c, const struct mm_c_tenant *t,
			  const struct mm_plan_set *set);
bool mm_c_set_hidden(const struct mm_core *c, const struct mm_c_tenant *t,
		     const struct mm_plan_set *set);
