/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvlayout - how large a chunk of KV is
 *
 * Concept:    a chunk is whole pages and holds whole blocks; what is left over at its end is lost. Of
 *             the sizes up to MM_KV_CHUNK_BLOCKS_MAX blocks or one page, the smallest is taken that
 *             loses at most 1/16, or else the one that loses least.
 */
#pragma once

#include <stdint.h>

#include "mm/base.h"

#define MM_KV_CHUNK_BLOCKS_MAX 64u

/* Return: the chunk's bytes, a multiple of @page_bytes, at least one block. */
static inline uint64_t mm_kv_chunk_bytes(uint64_t page_bytes, uint64_t block_bytes)
{
	const uint64_t most = mm_round_up(block_bytes * MM_KV_CHUNK_BLOCKS_MAX, page_bytes);
	uint64_t best = mm_round_up(block_bytes, page_bytes);

	for (uint64_t size = best; size <= most; size += page_bytes) {
		const uint64_t lost = size % block_bytes;

		if (lost * 16 <= size)
			return size;
		if ((double)lost / (double)size < (double)(best % block_bytes) / (double)best)
			best = size;
	}
	return best;
}
