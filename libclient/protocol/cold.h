/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cold - where cold blocks lie in their window: the arithmetic that all sides share
 *
 * Concept:    a block has a unit of bytes in each layer. Layers are divided into classes, l modulo
 *             the number of classes; layers of one class take turns in the same memory. Entry e of
 *             layer l lies at window + (classes * e + l) * unit, so a window of E entries has
 *             (classes * (E - 1) + layers) units.
 * Invariants: with 2 layers or more in each class, a class is filled while the others are read. If
 *             no number of classes divides the layers, one transfer of each step has no such time.
 * Threading:  pure.
 */
#pragma once

#include <stdint.h>

#include "mm/abi.h"

/* Bytes that one copy of rows brings in, at most. */
#define MM_COLD_ROWS_BYTES (UINT64_C(16) << 20)

/* The number of classes of a model; @layers is at least MM_COLD_CLASSES_MAX. */
static inline uint32_t mm_cold_layer_classes(uint32_t layers)
{
	for (uint32_t n = MM_COLD_CLASSES_MAX; n > 2; n--)
		if (layers % n == 0 && layers / n >= 2)
			return n;
	return 2;
}

/* Entries that have room in a window; 0: not even one. The product of unit and layers may wrap. */
static inline uint32_t mm_cold_window_entries(uint32_t classes, uint32_t layers,
					      uint64_t unit_bytes, uint64_t window_bytes)
{
	const uint64_t window_units = unit_bytes ? window_bytes / unit_bytes : 0;
	uint64_t entries;

	if (!classes || window_units < layers || !layers)
		return 0;
	entries = (window_units - layers) / classes + 1;
	return entries < MM_COLD_MAX ? (uint32_t)entries : MM_COLD_MAX;
}

/* Bytes of a window with room for @entries, 1 or more; none of the numbers may be beyond limits. */
static inline uint64_t mm_cold_window_bytes(uint32_t classes, uint32_t layers, uint64_t unit_bytes,
					    uint32_t entries)
{
	return ((uint64_t)classes * (entries - 1) + layers) * unit_bytes;
}
