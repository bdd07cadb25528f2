/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan - which layers cycle, and what a step then costs
 *
 * Concept:    The n layers of a model lie on a circle: after the last one the next step's first one
 *             runs. alpha layers' worth of pages given away means m = alpha + beta layers that
 *             cycle through beta slots, in turn. With one slot a layer is streamed in while the
 *             layers between it and its predecessor run, so the least gap between two of them
 *             counts. With two, one slot fills while the other one's layer runs, so the sum of all
 *             transfers counts. mm_plan_choose() finds a set; mm_plan_set_step_ns() tells how
 *             long a step takes with it, by the arithmetic of Documentation/controller.md.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 * Invariants: sets are ascending, without duplicates, every layer < n; m is 0 or >= 2 * beta, so
 *             that no slot has a single layer.
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
	uint32_t beta;       /* slots: 0 where m is 0 */
	uint32_t first_slot; /* the slot of layer[0] */
	uint16_t layer[MM_LAYERS_MAX + 1];
};

/* Which slot the i-th layer of the set is in. */
static inline uint32_t mm_plan_slot(const struct mm_plan_set *set, uint32_t i)
{
	return set->beta == 2 ? (i + set->first_slot) % 2 : 0;
}

/* m for alpha layers away with @beta slots: 0, or alpha + beta. */
uint32_t mm_plan_cycling(uint32_t alpha, uint32_t beta);

/* Can alpha layers of n be away with @beta slots? Two need two layers each. */
bool mm_plan_possible(uint32_t n, uint32_t alpha, uint32_t beta);

/* The least distance from one layer of the set to the next around the circle of @n; @n if m < 2. */
uint32_t mm_plan_least_gap(const struct mm_plan_set *set, uint32_t n);

/**
 * mm_plan_even() - m evenly spaced layers, rotated to overlap a set most
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
 * Growing: evenly spaced if the layers that this makes resident fit into the budget, else nested.
 * Shrinking: a subset, so that nothing but the returned layers is preloaded. The slots take turns,
 * beginning with the one that leaves more layers where they are.
 * Return: pages that the preload needs (they may exceed the budget only when shrinking).
 */
uint64_t mm_plan_choose(uint32_t n, uint32_t m, uint32_t beta, const struct mm_plan_set *current,
			const uint32_t *layer_pages, uint64_t budget_pages,
			struct mm_plan_set *ret_set);

/* Pages of slot @slot: as many as its largest layer has. */
uint32_t mm_plan_slot_pages(const struct mm_plan_set *set, uint32_t slot,
			    const uint32_t *layer_pages);

/* Of its layers. */
uint64_t mm_plan_pages(const struct mm_plan_set *set, const uint32_t *layer_pages);

/* Which slot begins: whichever leaves more layers where they are in @current. */
void mm_plan_take_turns(const struct mm_plan_set *current, struct mm_plan_set *set);

/* Layers of @a that are not in @b, in pages. */
uint64_t mm_plan_pages_only_in(const struct mm_plan_set *a, const struct mm_plan_set *b,
			       const uint32_t *layer_pages);

/**
 * mm_plan_set_step_ns() - duration of a step with this very set
 * @set:    any
 * @n:      layers
 * @t_c_ns: one layer's computation
 * @t_t_ns: one layer's transfer
 *
 * beta = 1: each gap g costs T_c + max((g−1)·T_c, T_T). beta = 2: steps are played until they
 * repeat. With m layers evenly spaced that is m·T_c + max((n−m)·T_c, m·T_T) and, where m is even,
 * max(n·T_c, m·T_T); no set of m layers takes less.
 * Return: nanoseconds, saturated.
 */
uint64_t mm_plan_set_step_ns(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			     uint64_t t_t_ns);

/* Does streaming this set make no step longer? */
bool mm_plan_hidden(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns, uint64_t t_t_ns);

/**
 * mm_plan_beta() - which of two sets to take: the one with the shorter step
 * @one:    with one slot
 * @two:    with two
 * @n:      layers
 * @t_c_ns: 0: not measured
 * @t_t_ns: likewise
 *
 * Equal, or not measured: one slot while it is the looser one, (alpha+1)(alpha+2) < n.
 * Return: 1 or 2.
 */
uint32_t mm_plan_beta(const struct mm_plan_set *one, const struct mm_plan_set *two, uint32_t n,
		      uint64_t t_c_ns, uint64_t t_t_ns);
