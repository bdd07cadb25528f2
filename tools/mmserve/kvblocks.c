/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/kvblocks.h"

#include <errno.h>

#include "mm/base.h"

int mm_kvblocks_init(struct mm_kvblocks *b, uint32_t n_chunks, uint32_t blocks_per_chunk)
{
	const uint64_t blocks = (uint64_t)n_chunks * blocks_per_chunk;

	*b = (struct mm_kvblocks){ .n_chunks = n_chunks, .blocks_per_chunk = blocks_per_chunk };
	if (!blocks || blocks > INT32_MAX)
		return -EINVAL;
	b->chunks = calloc(n_chunks, sizeof(*b->chunks));
	b->used = calloc(mm_div_up(blocks, 64), sizeof(*b->used));
	if (b->chunks && b->used)
		return 0;
	mm_kvblocks_done(b);
	return -ENOMEM;
}

void mm_kvblocks_done(struct mm_kvblocks *b)
{
	free(b->chunks);
	free(b->used);
	*b = (struct mm_kvblocks){ 0 };
}

void mm_kvblocks_add_chunk(struct mm_kvblocks *b, uint32_t chunk, uint64_t now_ns)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks);
	if (c->usable)
		return;
	*c = (struct mm_kv_chunk){ .usable = true, .empty_since_ns = now_ns };
	b->usable_chunks++;
	b->free_blocks += b->blocks_per_chunk;
	b->lowest = MM_MIN(b->lowest, chunk);
}

void mm_kvblocks_remove_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->usable && !c->used);
	if (!c->draining)
		b->free_blocks -= b->blocks_per_chunk;
	b->draining_chunks -= c->draining;
	b->retired_chunks -= c->retired;
	*c = (struct mm_kv_chunk){ 0 };
	b->usable_chunks--;
}

void mm_kvblocks_drain_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->usable);
	if (c->draining)
		return;
	c->draining = true;
	b->draining_chunks++;
	b->free_blocks -= b->blocks_per_chunk - c->used;
}

uint32_t mm_kvblocks_draining_chunk(const struct mm_kvblocks *b)
{
	uint32_t best = MM_KV_NONE;

	for (uint32_t chunk = 0; chunk < b->n_chunks; chunk++) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];

		if (!c->draining || c->retired)
			continue;
		if (best == MM_KV_NONE || c->used < b->chunks[best].used)
			best = chunk;
	}
	return best;
}

void mm_kvblocks_retire_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->draining && !c->retired && !c->used);
	c->retired = true;
	b->retired_chunks++;
}

static bool is_used(const struct mm_kvblocks *b, uint32_t block)
{
	return b->used[block / 64] >> block % 64 & 1;
}

static uint32_t take_from(struct mm_kvblocks *b, uint32_t chunk)
{
	uint32_t block = chunk * b->blocks_per_chunk;

	while (is_used(b, block))
		block++;
	b->used[block / 64] |= UINT64_C(1) << block % 64;
	b->chunks[chunk].used++;
	b->free_blocks--;
	b->used_blocks++;
	return block;
}

uint32_t mm_kvblocks_get(struct mm_kvblocks *b)
{
	if (!b->free_blocks)
		return MM_KV_NONE;
	for (uint32_t chunk = b->lowest; chunk < b->n_chunks; chunk++) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];

		if (!c->usable || c->draining || c->used == b->blocks_per_chunk)
			continue;
		b->lowest = chunk;
		return take_from(b, chunk);
	}
	return MM_KV_NONE;
}

void mm_kvblocks_put(struct mm_kvblocks *b, uint32_t block, uint64_t now_ns)
{
	const uint32_t chunk = block / b->blocks_per_chunk;
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && is_used(b, block));
	b->used[block / 64] &= ~(UINT64_C(1) << block % 64);
	b->used_blocks--;
	if (!--c->used)
		c->empty_since_ns = now_ns;
	if (c->draining)
		return;
	b->free_blocks++;
	b->lowest = MM_MIN(b->lowest, chunk);
}

uint32_t mm_kvblocks_idle_chunk(const struct mm_kvblocks *b, uint64_t since_ns)
{
	for (uint32_t chunk = b->n_chunks; chunk-- > 0;) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];

		if (c->usable && !c->draining && !c->used && c->empty_since_ns <= since_ns)
			return chunk;
	}
	return MM_KV_NONE;
}

uint32_t mm_kvblocks_cheapest_chunk(const struct mm_kvblocks *b)
{
	uint32_t best = MM_KV_NONE;

	for (uint32_t chunk = 0; chunk < b->n_chunks; chunk++) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];

		if (!c->usable || c->draining)
			continue;
		if (best == MM_KV_NONE || c->used <= b->chunks[best].used)
			best = chunk;
	}
	return best;
}

uint32_t mm_kvblocks_chunks_used(const struct mm_kvblocks *b)
{
	uint32_t n = 0;

	for (uint32_t chunk = 0; chunk < b->n_chunks; chunk++)
		n += b->chunks[chunk].used != 0;
	return n;
}

static uint32_t count_used(const struct mm_kvblocks *b, uint32_t chunk)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->blocks_per_chunk; i++)
		n += is_used(b, chunk * b->blocks_per_chunk + i);
	return n;
}

const char *mm_kvblocks_check(const struct mm_kvblocks *b)
{
	uint32_t usable = 0, free_blocks = 0, used = 0, draining = 0, retired = 0;

	for (uint32_t chunk = 0; chunk < b->n_chunks; chunk++) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];
		const uint32_t n = count_used(b, chunk);
		const uint32_t rest = b->blocks_per_chunk - n;

		if (n != c->used)
			return "a chunk's count is not that of its bits";
		if (!c->usable && (n || c->draining))
			return "a chunk that is not usable has blocks in use or drains";
		if (c->retired && (n || !c->draining))
			return "a retired chunk has blocks in use or does not drain";
		if (c->usable && !c->draining && rest && chunk < b->lowest)
			return "a free block lies below the search's start";
		usable += c->usable;
		used += n;
		draining += c->draining;
		retired += c->retired;
		free_blocks += c->usable && !c->draining ? rest : 0;
	}
	if (usable != b->usable_chunks || used != b->used_blocks || free_blocks != b->free_blocks ||
	    draining != b->draining_chunks || retired != b->retired_chunks)
		return "the sums are not those of the chunks";
	return NULL;
}
