/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvarena - the addresses of the keys and values of a block
 *
 * Concept:    a block holds block_tokens tokens of every layer: two parts per layer, keys and
 *             values. In the block-major layout the arena is one range and a block's parts follow
 *             each other. In the separate layout each part has a range of its own (2 * layers
 *             ranges, like engines that allocate K and V layer by layer), and the ranges grow and
 *             shrink in lock-step. A block has the same offset in every range, so one block table
 *             serves both layouts. A chunk has whole pages and whole blocks in every range; the
 *             bytes behind its last block are lost. The size of a chunk is the smallest one up to
 *             MM_KV_CHUNK_BLOCKS_MAX blocks or one page that loses at most 1/16, or else the one
 *             that loses least. In an arena that never grows or shrinks, it is the size with
 *             which most blocks fit into the share.
 * Ownership:  mm_kv_arena_init() allocates the list of addresses; the caller that opens the arena
 *             fills it in.
 * Threading:  none; the caller's.
 * Invariants: block_bytes is a multiple of MM_KV_UNIT_BYTES, chunk_bytes of the page.
 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "kernels/args/args.h"
#include "libclient/base/base.h"
#include "mm/gpu.h"

#define MM_KV_CHUNK_BLOCKS_MAX 64u
#define MM_KV_FIXED_BLOCKS_MAX 128u

enum mm_kv_order { MM_KV_BLOCK_MAJOR, MM_KV_SEPARATE };

struct mm_kv_arena {
	enum mm_kv_order order;
	uint32_t ranges;           /* 1, or 2 * layers */
	uint32_t blocks_per_chunk; /* the same in every range */
	uint64_t part_bytes;       /* the keys, or the values, of a block in one layer */
	uint64_t block_bytes;      /* a block in one range */
	uint64_t chunk_bytes;      /* a chunk in one range */
	CUdeviceptr *va;           /* [ranges] where each begins */
};

/* Return: the bytes of a chunk in one range: a multiple of @page_bytes, at least one block. */
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

/*
 * Return: the bytes of a chunk in one range that always has @share_bytes: the smallest size with
 * which most blocks fit.
 */
static inline uint64_t mm_kv_fixed_chunk_bytes(uint64_t page_bytes, uint64_t block_bytes,
					       uint64_t share_bytes)
{
	const uint64_t most = mm_round_up(block_bytes * MM_KV_FIXED_BLOCKS_MAX, page_bytes);
	uint64_t best = mm_kv_chunk_bytes(page_bytes, block_bytes);

	for (uint64_t size = mm_round_up(block_bytes, page_bytes); size <= most;
	     size += page_bytes) {
		const uint64_t blocks = share_bytes / size * (size / block_bytes);
		const uint64_t before = share_bytes / best * (best / block_bytes);

		if (blocks > before || (blocks == before && blocks && size < best))
			best = size;
	}
	return best;
}

/**
 * mm_kv_arena_init() - compute the sizes of an arena; its addresses are all 0
 * @a:          any bytes; give back with mm_kv_arena_done()
 * @order:      how the parts are laid out
 * @layers:     at least 1
 * @part_bytes: the keys, or the values, of a block in one layer
 * @page_bytes: a chunk has a multiple of this in each range
 *
 * Return: 0; -ENOMEM.
 */
static inline int mm_kv_arena_init(struct mm_kv_arena *a, enum mm_kv_order order, uint32_t layers,
				   uint64_t part_bytes, uint64_t page_bytes)
{
	const uint32_t parts = 2 * layers;
	const uint32_t in_range = order == MM_KV_SEPARATE ? 1 : parts;

	*a = (struct mm_kv_arena){ .order = order,
				   .ranges = parts / in_range,
				   .part_bytes = part_bytes };
	a->block_bytes = mm_round_up(in_range * part_bytes, MM_KV_UNIT_BYTES);
	a->chunk_bytes = mm_kv_chunk_bytes(page_bytes, a->block_bytes);
	a->blocks_per_chunk = (uint32_t)(a->chunk_bytes / a->block_bytes);
	a->va = calloc(a->ranges, sizeof(*a->va));
	return a->va ? 0 : -ENOMEM;
}

/*
 * Chooses the chunks of an arena that always has @share_bytes in all ranges together. To be called
 * right after mm_kv_arena_init().
 */
static inline void mm_kv_arena_fix(struct mm_kv_arena *a, uint64_t page_bytes, uint64_t share_bytes)
{
	a->chunk_bytes =
		mm_kv_fixed_chunk_bytes(page_bytes, a->block_bytes, share_bytes / a->ranges);
	a->blocks_per_chunk = (uint32_t)(a->chunk_bytes / a->block_bytes);
}

static inline void mm_kv_arena_done(struct mm_kv_arena *a)
{
	free(a->va);
	*a = (struct mm_kv_arena){ 0 };
}

/* Return: the bytes of a chunk in all ranges together. */
static inline uint64_t mm_kv_arena_chunk_total(const struct mm_kv_arena *a)
{
	return a->chunk_bytes * a->ranges;
}

/* Return: the offset of @block in every range. */
static inline uint64_t mm_kv_arena_offset(const struct mm_kv_arena *a, uint32_t block)
{
	return block / a->blocks_per_chunk * a->chunk_bytes +
	       block % a->blocks_per_chunk * a->block_bytes;
}

/*
 * Return: the address of part @part (2 * layer: keys; 2 * layer + 1: values) of the block at
 * offset 0.
 */
static inline CUdeviceptr mm_kv_arena_part(const struct mm_kv_arena *a, uint32_t part)
{
	return a->order == MM_KV_SEPARATE ? a->va[part] : a->va[0] + part * a->part_bytes;
}
