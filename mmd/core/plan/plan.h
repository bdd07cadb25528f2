/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan - which layers cycle, and what a step then costs
 *
 * Concept:    The n layers of a model lie on a circle: after the last one, the first one of the
 *             next step runs. To lend the pages of alpha layers, m = alpha + beta layers cycle
 *             through beta slots. With one slot a layer is streamed in while the layers between it
 *             and its predecessor run, so the least gap between two of them counts. With two slots,
 *             one is filled while the layer in the other one runs, so the sum of all transfers
 *             counts. mm_plan_choose() finds a set; mm_plan_set_step_ns() computes how long a step
 *             takes with it, by the arithmetic of Documentation/controller.md.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 * Invariants: A set is ascending and without duplicates, and every layer is < n; m is 0 or at least
 *             2 * beta, so that no slot has a single layer.
 * Limits:     n <= MM_LAYERS_MAX. Worst case of mm_plan_choose(): O(n * m), shrinking O(m * m log
 *             n).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

struct mm_plan_set {
	uint32_t m;
	uint32_t beta;       /* number of slots; 0 if m is 0 */
	uint32_t first_slot; /* slot that layer[0] is in */
	uint16_t layer[MM_LAYERS_MAX + 1];
};

/* Returns the slot that the i-th layer of the set is in. */
static inline uint32_t mm_plan_slot(const struct mm_plan_set *set, uint32_t i)
{
	return set->beta == 2 ? (i + set->first_slot) % 2 : 0;
}

/* Returns m for alpha layers away with @beta slots: 0, or alpha + beta. */
uint32_t mm_plan_cycling(uint32_t alpha, uint32_t beta);

/* True if alpha layers of n can be away with @beta slots. Two slots need two layers each. */
bool mm_plan_possible(uint32_t n, uint32_t alpha, uint32_t beta);

/*
 * Returns the least distance from one layer of the set to the next, around the circle of @n; @n if
 * m < 2.
 */
uint32_t mm_plan_least_gap(const struct mm_plan_set *set, uint32_t n);

/**
 * mm_plan_even() - m evenly spaced layers, rotated such that most of them are in a given set
 * @n:       layers
 * @m:       2..n, or 0
 * @current: the set to overlap; may be empty
 * @ret_set: written; its least gap is floor(n / m), which no set of m exceeds
 */
void mm_plan_even(uint32_t n, uint32_t m, const struct mm_plan_set *current,
		  struct mm_plan_set *ret_set);

/**
 * mm_plan_grow() - keep a set, add layers so that the least gap stays largest
 * @n:       layers
 * @m:       > current->m, <= n
 * @current: at least one layer
 * @ret_set: written; a superset of @current
 */
void mm_plan_grow(uint32_t n, uint32_t m, const struct mm_plan_set *current,
		  struct mm_plan_set *ret_set);

/**
 * mm_plan_shrink() - the m layers of a set whose least gap is largest
 * @n:       layers
 * @m:       2..current->m
 * @current: any
 * @ret_set: written; a subset of @current
 */
void mm_plan_shrink(uint32_t n, uint32_t m, const struct mm_plan_set *current,
		    struct mm_plan_set *ret_set);

/**
 * mm_plan_choose() - the next set, given what may be preloaded
 * @n:            layers
 * @m:            wanted: 0 or 2 * @beta..n
 * @beta:         slots, 1 or 2
 * @current:      the set in force
 * @layer_pages:  pages of each layer
 * @budget_pages: free for layers that become resident
 * @ret_set:      written
 *
 * A set that grows is evenly spaced if the layers that this makes resident fit into the budget,
 * else it contains @current. A set that shrinks is a subset of @current, so only layers that return
 * home are preloaded. Layers alternate between two slots; the first slot is the one with which more
 * layers stay in their slots.
 * Return: pages that the preload needs. Only a set that shrinks may need more than the budget.
 */
uint64_t mm_plan_choose(uint32_t n, uint32_t m, uint32_t beta, const struct mm_plan_set *current,
			const uint32_t *layer_pages, uint64_t budget_pages,
			struct mm_plan_set *ret_set);

/* Returns the pages of slot @slot: as many as its largest layer has. */
uint32_t mm_plan_slot_pages(const struct mm_plan_set *set, uint32_t slot,
			    const uint32_t *layer_pages);

/* Returns the pages of all layers of the set. */
uint64_t mm_plan_pages(const struct mm_plan_set *set, const uint32_t *layer_pages);

/*
 * Chooses the slot of the first layer of @set, such that more layers stay in their slots of
 * @current.
 */
void mm_plan_choose_first_slot(const struct mm_plan_set *current, struct mm_plan_set *set);

/* Returns the pages of the layers of @a that are not in @b. */
uint64_t mm_plan_pages_only_in(const struct mm_plan_set *a, const struct mm_plan_set *b,
			       const uint32_t *layer_pages);

/**
 * mm_plan_set_step_ns() - duration of a step with exactly this set
 * @set:    any
 * @n:      layers
 * @t_c_ns: time in which one layer is computed
 * @t_t_ns: time in which one layer is transferred
 *
 * beta = 1: each gap g costs T_c + max((g−1)·T_c, T_T). beta = 2: steps are simulated until they
 * repeat. With m layers evenly spaced that is m·T_c + max((n−m)·T_c, m·T_T) and, where m is even,
 * max(n·T_c, m·T_T); no set of m layers takes less.
 * Return: nanoseconds, saturated.
 */
uint64_t mm_plan_set_step_ns(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			     uint64_t t_t_ns);

/* True if streaming this set makes no step longer. */
bool mm_plan_hidden(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns, uint64_t t_t_ns);

/**
 * mm_plan_beta() - choose between a set with one slot and one with two, by the length of the step
 * @one:    with one slot
 * @two:    with two
 * @n:      layers
 * @t_c_ns: 0: not measured
 * @t_t_ns: 0: not measured
 *
 * If both steps are equally long, or not measured: one slot while (alpha+1)(alpha+2) < n.
 * Return: 1 or 2.
 */
uint32_t mm_plan_beta(const struct mm_plan_set *one, const struct mm_plan_set *two, uint32_t n,
		      uint64_t t_c_ns, uint64_t t_t_ns);
