/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape - a plan as a test has it: layers in slots, pages of the slots and of the window
 *
 * Ownership: the lists of pages are the test's, and constant; they are compared by address.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SHAPE_LAYERS 12 /* the most */

struct shape {
	uint32_t n_slots;
	uint32_t n[2];
	uint16_t layer[2][SHAPE_LAYERS];
	const uint32_t *pages[2];
	bool in_place[2];
	uint64_t closed;
	/* no pages: no cold blocks */
	const uint32_t *window;
	uint32_t window_pages;
};

/* The pages of the slot that @layer cycles in, or NULL. */
const uint32_t *shape_pages(const struct shape *shape, uint32_t layer);

/* Deals some of the layers out to @n_slots slots of an empty shape, two to each at least. */
void shape_deal(struct shape *shape, uint32_t n_slots, uint32_t layers, unsigned int *seed);
