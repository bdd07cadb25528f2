/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layers - which layers cycle where layers differ
 *
 * Concept:    Answers the question of plan.h for layers that each have a transfer time, a computing
 *             time and a number of pages of their own. The caller requires a number of pages to be
 *             set free: the pages of the layers that cycle, less those of the slots. Of the sets
 *             that free so many, the one with the shortest step is chosen, then the one with the
 *             most slack: the time by which the latest transfer of a step is early. With one slot a
 *             transfer may begin when the layer before it in the set is done. With two slots it may
 *             begin when the layer before that one is done, but transfers follow each other on the
 *             link.
 * Method:     For a given slack and a largest layer, the chain around the circle with the most
 *             pages is found in O(n^2); the slack is found by bisection. Layers that need not cycle
 *             then stay resident. With two slots the chain, whose transfers never overlap two
 *             layers, is only a start that is improved layer by layer. Times are claims of tenants,
 *             so a search that has examined a fixed number of them returns the best set so far.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 * Limits:     n <= MM_LAYERS_MAX; every time <= MM_LAYER_NS_MAX. One slot: exact to MM_SLACK_STEPS
 *             where transfers can be hidden. Two slots: tests/unit/mmd/core/layers.c compares the
 *             result with an exhaustive search.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/plan/plan.h"

#define MM_LAYER_NS_MAX (UINT64_C(1) << 40)
/* resolution of the bisection: a step's computing time over this */
#define MM_SLACK_STEPS 65536

struct mm_layers {
	uint32_t n;
	const uint32_t *pages;            /* pages of each layer; > 0 */
	uint64_t c_ns[MM_LAYERS_MAX + 1]; /* computing time of each layer */
	uint64_t t_ns[MM_LAYERS_MAX + 1]; /* transfer time of each layer */
	/* computing time of all layers before it, by mm_layers_sum() */
	uint64_t begin_ns[MM_LAYERS_MAX + 2];
};

/* Fills in begin_ns; all other fields are set. */
void mm_layers_sum(struct mm_layers *layers);

/* How a set must relate to the one in force. */
enum mm_layers_how {
	/* not at all; of nearly equal sets the one with the fewest pages to preload is chosen */
	MM_LAYERS_ANY,
	MM_LAYERS_GROW,   /* it contains the one in force */
	MM_LAYERS_SHRINK, /* it is a subset of the one in force */
};

/* Returns the pages that @set sets free. */
uint64_t mm_layers_away(const struct mm_layers *layers, const struct mm_plan_set *set);

/**
 * mm_layers_choose() - the set that frees pages with the shortest step and the most slack
 * @layers:     complete, with begin_ns
 * @away_pages: least number of pages to set free; > 0
 * @beta:       slots, 1 or 2
 * @current:    the set in force
 * @how:        GROW and SHRINK: @current is not empty
 * @ret_set:    written when true: with beta set and first_slot 0
 *
 * Return: false if no set frees so many pages.
 */
bool mm_layers_choose(const struct mm_layers *layers, uint64_t away_pages, uint32_t beta,
		      const struct mm_plan_set *current, enum mm_layers_how how,
		      struct mm_plan_set *ret_set);

/*
 * Returns the duration of a step with exactly this set. With two slots, steps are simulated until
 * they repeat.
 */
uint64_t mm_layers_step_ns(const struct mm_layers *layers, const struct mm_plan_set *set);

/*
 * Returns the least slack of a transfer; with two slots, over windows of up to two steps.
 * INT64_MAX: no layer cycles.
 */
int64_t mm_layers_slack_ns(const struct mm_layers *layers, const struct mm_plan_set *set);

/* Returns the computing time of all layers. */
uint64_t mm_layers_compute_ns(const struct mm_layers *layers);
