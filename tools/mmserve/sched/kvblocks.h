/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvblocks - which blocks of the KV arena are in use
 *
 * Concept:    the arena consists of chunks, which mmd grants, and a chunk of blocks, which
 *             sequences hold: block_tokens tokens of every layer. Blocks are numbered through the
 *             whole arena; only those of usable chunks exist. The lowest free block is handed out
 *             first, so that the high chunks become empty and can be released. A chunk is removed
 *             in two phases. While it drains, none of its blocks is handed out, and those in use
 *             are moved or freed. Once it is retired, no block of it is in use and no later work
 *             refers to it, but work that was enqueued before may. When that work is done, the
 *             chunk is removed. The cost per step does not grow with the number of chunks, except
 *             for a scan of a bitmap of them.
 * Ownership:  only mm_kvblocks_init() allocates. A caller of mm_kvblocks_get() owns the block until
 *             mm_kvblocks_put().
 * Threading:  the engine's thread only.
 * Invariants: mm_kvblocks_check(). A draining chunk hands out nothing.
 * Limits:     fewer than 2^31 blocks. Times that are passed in never decrease.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MM_KV_NONE UINT32_MAX

struct mm_kv_chunk {
	uint32_t used; /* blocks in use */
	bool usable;
	bool draining;
	bool retired; /* draining and empty; the device may still work on it */
	uint64_t empty_since_ns;
	uint32_t older, younger; /* neighbours in the list of empty chunks */
	uint32_t at;             /* index in mm_kvblocks.draining */
};

struct mm_kvblocks {
	struct mm_kv_chunk *chunks;
	uint64_t *used;     /* one bit per block: it is in use */
	uint64_t *held;     /* one bit per chunk: it is usable */
	uint64_t *open;     /* one bit per chunk: it has a block to hand out */
	uint64_t *empty;    /* one bit per chunk: it is open, and none of its blocks is in use */
	uint32_t *draining; /* chunks that drain and are not retired, in no order */
	uint32_t n_chunks;
	uint32_t blocks_per_chunk;
	uint32_t free_blocks; /* in usable chunks that are not draining */
	uint32_t used_blocks;
	uint32_t usable_chunks;
	uint32_t used_chunks;     /* usable chunks with at least one block in use */
	uint32_t draining_chunks; /* usable chunks that drain, the retired included */
	uint32_t retired_chunks;
	uint32_t oldest, youngest; /* ends of the list of empty chunks; MM_KV_NONE: it is empty */
	uint32_t lowest;           /* word of open; all words below it are 0 */
};

/**
 * mm_kvblocks_init() - set up an arena without a usable chunk
 * @b:                any bytes; give back with mm_kvblocks_done()
 * @n_chunks:         at least 1
 * @blocks_per_chunk: at least 1
 *
 * Return: 0; -ENOMEM; -EINVAL too many blocks.
 */
int mm_kvblocks_init(struct mm_kvblocks *b, uint32_t n_chunks, uint32_t blocks_per_chunk);
void mm_kvblocks_done(struct mm_kvblocks *b);

/* Makes @chunk usable and empty. A chunk that is usable already stays as it is. */
void mm_kvblocks_add_chunk(struct mm_kvblocks *b, uint32_t chunk, uint64_t now_ns);

/* Removes a usable chunk, which must have no block in use. */
void mm_kvblocks_remove_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* From now on no block of @chunk is handed out, until the chunk is reopened or removed. */
void mm_kvblocks_drain_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* Blocks of @chunk, which drains and is not retired, may be handed out again. */
void mm_kvblocks_reopen_chunk(struct mm_kvblocks *b, uint32_t chunk);

/*
 * Return: of the draining chunks that are not retired, one with the most blocks in use, or
 * MM_KV_NONE.
 */
uint32_t mm_kvblocks_fullest_draining_chunk(const struct mm_kvblocks *b);

/*
 * Return: of the draining chunks that are not retired, one with the fewest blocks in use, or
 * MM_KV_NONE.
 */
uint32_t mm_kvblocks_draining_chunk(const struct mm_kvblocks *b);

/* Return: the blocks in use in draining chunks, all of which need another place. */
uint32_t mm_kvblocks_displaced(const struct mm_kvblocks *b);

/* Retires a draining chunk without a block in use, to which no later work may refer. */
void mm_kvblocks_retire_chunk(struct mm_kvblocks *b, uint32_t chunk);

/* Return: the lowest free block, now in use; MM_KV_NONE if there is none. */
uint32_t mm_kvblocks_get(struct mm_kvblocks *b);
void mm_kvblocks_put(struct mm_kvblocks *b, uint32_t block, uint64_t now_ns);

/**
 * mm_kvblocks_idle_chunk() - find a chunk to release of the engine's own accord
 * @b:        any
 * @since_ns: the chunk must have been empty since then or longer
 *
 * Return: the highest such chunk, or MM_KV_NONE.
 */
uint32_t mm_kvblocks_idle_chunk(const struct mm_kvblocks *b, uint64_t since_ns);

/* Return: the chunk that is cheapest to empty (fewest blocks, then highest), or MM_KV_NONE. */
uint32_t mm_kvblocks_cheapest_chunk(const struct mm_kvblocks *b);

/* Return: the first block in use from @block on and before @end, or MM_KV_NONE. */
uint32_t mm_kvblocks_next_used(const struct mm_kvblocks *b, uint32_t block, uint32_t end);

/* Return: NULL if all invariants hold, else the one that does not. */
const char *mm_kvblocks_check(const struct mm_kvblocks *b);
