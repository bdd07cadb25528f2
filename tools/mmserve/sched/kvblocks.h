/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvblocks - which blocks of the KV arena are in use
 *
 * Concept:    the arena is chunks (what mmd lends) of blocks (what a sequence holds: block_tokens
 *             tokens of every layer). Blocks are numbered through the whole arena; only those of
 *             usable chunks exist. The lowest free block is handed out first, so that the high
 *             chunks empty themselves and can be given back. A chunk leaves in two phases:
 *             draining, it hands out nothing and its blocks are moved or freed; retired, no block
 *             is in use and no later work refers to it, but work that is enqueued may; then it is
 *             removed. Per step nothing here costs more with more chunks, but for a look through a
 *             bitmap of them.
 * Ownership:  mm_kvblocks_init() allocates, nothing later does. Whoever got a block gives it back.
 * Threading:  the engine's thread only.
 * Invariants: mm_kvblocks_check(). A draining chunk hands out nothing.
 * Limits:     2^31 blocks. Times that are passed in never go back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_KV_NONE UINT32_MAX

struct mm_kv_chunk {
	uint32_t used; /* blocks */
	bool usable;
	bool draining;
	bool retired; /* draining, empty, waits for the device's work to end */
	uint64_t empty_since_ns;
	uint32_t older, younger; /* in the list of empty chunks */
	uint32_t at;             /* in the list of those that drain */
};

struct mm_kvblocks {
	struct mm_kv_chunk *chunks;
	uint64_t *used;     /* one bit per block */
	uint64_t *held;     /* one bit per chunk: it is usable */
	uint64_t *open;     /* likewise: it would hand out a block */
	uint64_t *empty;    /* likewise: it would, and none of its blocks is in use */
	uint32_t *draining; /* chunks that drain and are not retired, in no order */
	uint32_t n_chunks;
	uint32_t blocks_per_chunk;
	uint32_t free_blocks; /* in usable chunks that are not draining */
	uint32_t used_blocks;
	uint32_t usable_chunks;
	uint32_t used_chunks;     /* with at least one block in use */
	uint32_t draining_chunks; /* of the usable; those that are retired included */
	uint32_t retired_chunks;
	uint32_t oldest, youngest; /* of the empty chunks; MM_KV_NONE: there is none */
	uint32_t lowest;           /* no bit of open is set in a word below */
};

/**
 * mm_kvblocks_init() - an arena without a usable chunk
 * @b:                any bytes; give back with mm_kvblocks_done()
 * @n_chunks:         at least 1
 * @blocks_per_chunk: at least 1
 *
 * Return: 0; -ENOMEM; -EINVAL too many blocks.
 */
int mm_kvblocks_init(struct mm_kvblocks *b, uint32_t n_chunks, uint32_t blocks_per_chunk);
void mm_kvblocks_done(struct mm_kvblocks *b);

/* A chunk arrived. One that is usable already stays as it is. */
void mm_kvblocks_add_chunk(struct mm_kvblocks *b, uint32_t chunk, uint64_t now_ns);

/* A chunk goes; it must have no block in use. */
void mm_kvblocks_remove_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* Hands out nothing of @chunk any more, until it is removed. */
void mm_kvblocks_drain_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* One that drains and is not retired: it hands out blocks again. */
void mm_kvblocks_reopen_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* Of the draining chunks that are not retired, one with the most blocks in use; MM_KV_NONE. */
uint32_t mm_kvblocks_fullest_draining_chunk(const struct mm_kvblocks *b);

/* Of the draining chunks that are not retired, one with the fewest blocks in use; MM_KV_NONE. */
uint32_t mm_kvblocks_draining_chunk(const struct mm_kvblocks *b);

/* Blocks in use in draining chunks: so many must find another place. */
uint32_t mm_kvblocks_displaced(const struct mm_kvblocks *b);

/* A draining chunk without a block in use: nothing new refers to it. */
void mm_kvblocks_retire_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* Return: the lowest free block, now in use; MM_KV_NONE if there is none. */
uint32_t mm_kvblocks_get(struct mm_kvblocks *b);
void mm_kvblocks_put(struct mm_kvblocks *b, uint32_t block, uint64_t now_ns);

/**
 * mm_kvblocks_idle_chunk() - a chunk to give back unasked
 * @b:        any
 * @since_ns: it must have been empty since then or earlier
 *
 * Return: the highest such chunk, or MM_KV_NONE.
 */
uint32_t mm_kvblocks_idle_chunk(const struct mm_kvblocks *b, uint64_t since_ns);

/* Return: the chunk that is cheapest to empty (fewest blocks, then highest), or MM_KV_NONE. */
uint32_t mm_kvblocks_cheapest_chunk(const struct mm_kvblocks *b);

/* Return: the first block in use from @block on, before @end; MM_KV_NONE. */
uint32_t mm_kvblocks_next_used(const struct mm_kvblocks *b, uint32_t block, uint32_t end);

/* Return: NULL if all invariants hold, else the one that does not. */
const char *mm_kvblocks_check(const struct mm_kvblocks *b);
