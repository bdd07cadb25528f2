/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan - which layers cycle, and what a step then costs
 *
 * Concept:    The n layers of a model lie on a circle: after the last one the next step's first one
 *             runs. alpha layers' worth of pages given away means m = alpha + 1 layers that cycle
 *             through one slot (beta = 1). A cycling layer is streamed in while the layers between it
 *             and its predecessor run, so what counts is the least gap between two of them.
 *             mm_plan_choose() finds a set; the mm_plan_step_* functions are protocol.md's arithmetic.
 * Ownership:  pure functions over the caller's storage.
 * Threading:  any.
 * Invariants: sets are ascending, without duplicates, every layer < n; m is 0 or >= 2.
 * Limits:     n <= MM_LAYERS_MAX. Worst case of mm_plan_choose(): O(n * m), shrinking O(m * m log n).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"

struct mm_plan_set {
	uint32_t m;
	uint16_t layer[MM_LAYERS_MAX + 1];
};

/* m for alpha layers away with one slot: 0, or alpha + 1. */
uint32_t mm_plan_cycling(uint32_t alpha);

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
 * @m:            wanted: 0 or 2..n
 * @current:      the set in force
 * @layer_pages:  pages of each layer
 * @budget_pages: free for layers that become resident
 * @ret_set:      written
 *
 * Growing: evenly spaced if the layers that this makes resident fit into the budget, else nested.
 * Shrinking: a subset, so that nothing but the returned layers is preloaded.
 * Return: pages that the preload needs (they may exceed the budget only when shrinking).
 */
uint64_t mm_plan_choose(uint32_t n, uint32_t m, const struct mm_plan_set *current,
			const uint32_t *layer_pages, uint64_t budget_pages,
			struct mm_plan_set *ret_set);

/* Layers of @a that are not in @b, in pages. */
uint64_t mm_plan_pages_only_in(const struct mm_plan_set *a, const struct mm_plan_set *b,
			       const uint32_t *layer_pages);

/**
 * mm_plan_step_ns() - duration of a step with evenly spaced layers
 * @beta:   slots, 1 or 2
 * @n:      layers
 * @m:      that cycle
 * @t_c_ns: one layer's computation
 * @t_t_ns: one layer's transfer
 *
 * beta = 1: m·T_c + max((n−m)·T_c, m·T_T). beta = 2: max(n·T_c, m·T_T). Saturates.
 * Return: nanoseconds.
 */
uint64_t mm_plan_step_ns(uint32_t beta, uint32_t n, uint32_t m, uint64_t t_c_ns, uint64_t t_t_ns);

/* The same for the very set, beta = 1: each gap g costs T_c + max((g−1)·T_c, T_T). */
uint64_t mm_plan_set_step_ns(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			     uint64_t t_t_ns);

/**
 * mm_plan_m_max() - the largest m that streams without making a step longer (beta = 1)
 * @n:             layers
 * @t_c_ns:        0: nothing was measured: 0 is returned
 * @t_t_ns:        likewise
 * @link_permille: of the link's time that this model may use
 *
 * The largest m with m·T_T <= (n−m)·T_c and m·T_T <= link_permille/1000 · n·T_c.
 * Return: 0, or 2..n.
 */
uint32_t mm_plan_m_max(uint32_t n, uint64_t t_c_ns, uint64_t t_t_ns, uint32_t link_permille);

/* Share of the link that m streamed layers take, in permille of a step without stalls; saturates. */
uint32_t mm_plan_link_permille(uint32_t n, uint32_t m, uint64_t t_c_ns, uint64_t t_t_ns);
