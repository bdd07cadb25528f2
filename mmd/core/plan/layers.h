/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers - which layers cycle where they are not all alike
 *
 * Concept:    plan.h's question with a transfer time, a computing time and pages of each layer's
 *             own. What is asked for is pages set free: those of the layers that cycle less those
 *             of the slots. Of the sets that free so many, one with the shortest step, then the
 *             largest least slack is taken: the time by which the latest transfer of a step is
 *             early. With one slot a transfer may begin when the layer before it in the set is
 *             done. With two it may begin when the one before that is done, but transfers follow
 *             each other on the link.
 * Method:     for a given slack and a largest layer, a chain around the circle whose pages are most
 *             is found in O(n^2); the slack is found by bisection. What is more than needed stays
 *             at home. With two slots the chain is a start only (its transfers never overlap two
 *             layers), improved layer by layer. Layers are what tenants claim: a search that has
 *             looked at so many of them takes what it has.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 * Limits:     n <= MM_LAYERS_MAX; every time <= MM_LAYER_NS_MAX. One slot: exact to MM_SLACK_STEPS
 *             where transfers can be hidden. Two: see tests/unit/mmd/core/layers.c for how near to
 *             exhaustive search.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/plan/plan.h"

#define MM_LAYER_NS_MAX (UINT64_C(1) << 40)
#define MM_SLACK_STEPS  65536 /* of a step's computation: what the bisection tells apart */

struct mm_layers {
	uint32_t n;
	const uint32_t *pages;                /* of each; > 0 */
	uint64_t c_ns[MM_LAYERS_MAX + 1];     /* its computation */
	uint64_t t_ns[MM_LAYERS_MAX + 1];     /* its transfer */
	uint64_t begin_ns[MM_LAYERS_MAX + 2]; /* computation of those before it: mm_layers_sum() */
};

/* Fills in begin_ns when the rest is there. */
void mm_layers_sum(struct mm_layers *layers);

/* How a set is to lie to the one in force. */
enum mm_layers_how {
	MM_LAYERS_ANY, /* it need not; of nearly equal ones that with the fewest pages to preload */
	MM_LAYERS_GROW,   /* it holds all of it */
	MM_LAYERS_SHRINK, /* it is part of it */
};

/* Pages that @set sets free. */
uint64_t mm_layers_away(const struct mm_layers *layers, const struct mm_plan_set *set);

/**
 * mm_layers_choose() - the set that frees pages with the shortest step and the most slack
 * @layers:     any
 * @away_pages: to be set free, at least; > 0
 * @beta:       slots, 1 or 2
 * @current:    the set in force
 * @how:        GROW and SHRINK: @current is not empty
 * @ret_set:    written when true: beta is set, turn is 0
 *
 * Return: false if no set frees so many pages.
 */
bool mm_layers_choose(const struct mm_layers *layers, uint64_t away_pages, uint32_t beta,
		      const struct mm_plan_set *current, enum mm_layers_how how,
		      struct mm_plan_set *ret_set);

/* Duration of a step with this very set; with two slots steps are played until they repeat. */
uint64_t mm_layers_step_ns(const struct mm_layers *layers, const struct mm_plan_set *set);

/*
 * The least slack of a transfer; with two slots over windows of up to two steps. INT64_MAX: none
 * cycles.
 */
int64_t mm_layers_slack_ns(const struct mm_layers *layers, const struct mm_plan_set *set);

/* All layers' computation. */
uint64_t mm_layers_compute_ns(const struct mm_layers *layers);
