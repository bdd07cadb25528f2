/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/sched/kvblocks.h"

#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"

#define WORD_BITS 64u

static bool get_bit(const uint64_t *bits, uint32_t i)
{
	return bits[i / WORD_BITS] >> i % WORD_BITS & 1;
}

static void set_bit(uint64_t *bits, uint32_t i, bool value)
{
	const uint64_t bit = UINT64_C(1) << i % WORD_BITS;

	bits[i / WORD_BITS] = value ? bits[i / WORD_BITS] | bit : bits[i / WORD_BITS] & ~bit;
}

int mm_kvblocks_init(struct mm_kvblocks *b, uint32_t n_chunks, uint32_t blocks_per_chunk)
{
	const uint64_t blocks = (uint64_t)n_chunks * blocks_per_chunk;
	const size_t words = mm_div_up(n_chunks, WORD_BITS);

	*b = (struct mm_kvblocks){ .n_chunks = n_chunks,
				   .blocks_per_chunk = blocks_per_chunk,
				   .oldest = MM_KV_NONE,
				   .youngest = MM_KV_NONE };
	if (!blocks || blocks > INT32_MAX)
		return -EINVAL;
	b->chunks = calloc(n_chunks, sizeof(*b->chunks));
	b->used = calloc(mm_div_up(blocks, WORD_BITS), sizeof(*b->used));
	b->held = calloc(words, sizeof(*b->held));
	b->open = calloc(words, sizeof(*b->open));
	b->empty = calloc(words, sizeof(*b->empty));
	b->draining = calloc(n_chunks, sizeof(*b->draining));
	if (b->chunks && b->used && b->held && b->open && b->empty && b->draining)
		return 0;
	mm_kvblocks_done(b);
	return -ENOMEM;
}

void mm_kvblocks_done(struct mm_kvblocks *b)
{
	free(b->chunks);
	free(b->used);
	free(b->held);
	free(b->open);
	free(b->empty);
	free(b->draining);
	*b = (struct mm_kvblocks){ 0 };
}

/* ---- the lists of chunks ---- */

static void empty_put(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	set_bit(b->empty, chunk, true);
	c->older = b->youngest;
	c->younger = MM_KV_NONE;
	if (b->youngest == MM_KV_NONE)
		b->oldest = chunk;
	else
		b->chunks[b->youngest].younger = chunk;
	b->youngest = chunk;
}

static void empty_take(struct mm_kvblocks *b, uint32_t chunk)
{
	const struct mm_kv_chunk *c = &b->chunks[chunk];

	set_bit(b->empty, chunk, false);
	if (c->older == MM_KV_NONE)
		b->oldest = c->younger;
	else
		b->chunks[c->older].younger = c->younger;
	if (c->younger == MM_KV_NONE)
		b->youngest = c->older;
	else
		b->chunks[c->younger].older = c->older;
}

static void open_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	set_bit(b->open, chunk, true);
	b->lowest = MM_MIN(b->lowest, chunk / WORD_BITS);
}

static uint32_t n_listed(const struct mm_kvblocks *b)
{
	return b->draining_chunks - b->retired_chunks;
}

/* Takes @chunk off the list of those that drain; to be called before the counts change. */
static void chunk_unlist(struct mm_kvblocks *b, uint32_t chunk)
{
	const uint32_t last = b->draining[n_listed(b) - 1], at = b->chunks[chunk].at;

	b->draining[at] = last;
	b->chunks[last].at = at;
}

/* ---- chunks come and go ---- */

void mm_kvblocks_add_chunk(struct mm_kvblocks *b, uint32_t chunk, uint64_t now_ns)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks);
	if (c->usable)
		return;
	*c = (struct mm_kv_chunk){ .usable = true, .empty_since_ns = now_ns };
	b->usable_chunks++;
	b->free_blocks += b->blocks_per_chunk;
	set_bit(b->held, chunk, true);
	open_chunk(b, chunk);
	empty_put(b, chunk);
}

void mm_kvblocks_remove_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->usable && !c->used);
	if (!c->draining)
		mm_kvblocks_drain_chunk(b, chunk);
	if (!c->retired)
		chunk_unlist(b, chunk);
	b->draining_chunks--;
	b->retired_chunks -= c->retired;
	*c = (struct mm_kv_chunk){ 0 };
	set_bit(b->held, chunk, false);
	b->usable_chunks--;
}

void mm_kvblocks_drain_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->usable);
	if (c->draining)
		return;
	c->draining = true;
	c->at = n_listed(b);
	b->draining[c->at] = chunk;
	b->draining_chunks++;
	b->free_blocks -= b->blocks_per_chunk - c->used;
	set_bit(b->open, chunk, false);
	if (!c->used)
		empty_take(b, chunk);
}

void mm_kvblocks_reopen_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->draining && !c->retired);
	chunk_unlist(b, chunk);
	c->draining = false;
	b->draining_chunks--;
	b->free_blocks += b->blocks_per_chunk - c->used;
	if (c->used < b->blocks_per_chunk)
		open_chunk(b, chunk);
	if (!c->used)
		empty_put(b, chunk);
}

uint32_t mm_kvblocks_fullest_draining_chunk(const struct mm_kvblocks *b)
{
	uint32_t best = MM_KV_NONE;

	for (uint32_t i = 0; i < n_listed(b); i++) {
		const uint32_t chunk = b->draining[i];

		if (best == MM_KV_NONE || b->chunks[chunk].used > b->chunks[best].used)
			best = chunk;
	}
	return best;
}

uint32_t mm_kvblocks_draining_chunk(const struct mm_kvblocks *b)
{
	uint32_t best = MM_KV_NONE;

	for (uint32_t i = 0; i < n_listed(b); i++) {
		const uint32_t chunk = b->draining[i];

		if (!b->chunks[chunk].used)
			return chunk;
		if (best == MM_KV_NONE || b->chunks[chunk].used < b->chunks[best].used)
			best = chunk;
	}
	return best;
}

uint32_t mm_kvblocks_displaced(const struct mm_kvblocks *b)
{
	uint32_t blocks = 0;

	for (uint32_t i = 0; i < n_listed(b); i++)
		blocks += b->chunks[b->draining[i]].used;
	return blocks;
}

void mm_kvblocks_retire_chunk(struct mm_kvblocks *b, uint32_t chunk)
{
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && c->draining && !c->retired && !c->used);
	chunk_unlist(b, chunk);
	c->retired = true;
	b->retired_chunks++;
}

/* ---- blocks ---- */

/* Takes the first free block of @chunk, which has one. */
static uint32_t chunk_take_block(struct mm_kvblocks *b, uint32_t chunk)
{
	const uint32_t first = chunk * b->blocks_per_chunk;
	struct mm_kv_chunk *c = &b->chunks[chunk];
	uint32_t word = first / WORD_BITS, block;
	uint64_t bits = ~b->used[word] & UINT64_MAX << first % WORD_BITS;

	while (!bits)
		bits = ~b->used[++word];
	block = word * WORD_BITS + (uint32_t)__builtin_ctzll(bits);
	set_bit(b->used, block, true);
	if (!c->used++) {
		b->used_chunks++;
		empty_take(b, chunk);
	}
	if (c->used == b->blocks_per_chunk)
		set_bit(b->open, chunk, false);
	b->free_blocks--;
	b->used_blocks++;
	return block;
}

uint32_t mm_kvblocks_get(struct mm_kvblocks *b)
{
	if (!b->free_blocks)
		return MM_KV_NONE;
	while (!b->open[b->lowest])
		b->lowest++;
	return chunk_take_block(b, b->lowest * WORD_BITS +
					   (uint32_t)__builtin_ctzll(b->open[b->lowest]));
}

void mm_kvblocks_put(struct mm_kvblocks *b, uint32_t block, uint64_t now_ns)
{
	const uint32_t chunk = block / b->blocks_per_chunk;
	struct mm_kv_chunk *c = &b->chunks[chunk];

	mm_assert(chunk < b->n_chunks && get_bit(b->used, block));
	set_bit(b->used, block, false);
	b->used_blocks--;
	if (!--c->used) {
		b->used_chunks--;
		c->empty_since_ns = now_ns;
	}
	if (c->draining)
		return;
	b->free_blocks++;
	open_chunk(b, chunk);
	if (!c->used)
		empty_put(b, chunk);
}

uint32_t mm_kvblocks_next_used(const struct mm_kvblocks *b, uint32_t block, uint32_t end)
{
	for (; block < end; block = block / WORD_BITS * WORD_BITS + WORD_BITS) {
		const uint64_t bits = b->used[block / WORD_BITS] >> block % WORD_BITS;
		const uint32_t found = bits ? block + (uint32_t)__builtin_ctzll(bits) : end;

		if (bits)
			return found < end ? found : MM_KV_NONE;
	}
	return MM_KV_NONE;
}

/* ---- which chunk ---- */

uint32_t mm_kvblocks_idle_chunk(const struct mm_kvblocks *b, uint64_t since_ns)
{
	if (b->oldest == MM_KV_NONE || b->chunks[b->oldest].empty_since_ns > since_ns)
		return MM_KV_NONE;
	for (size_t word = mm_div_up(b->n_chunks, WORD_BITS); word-- > 0;) {
		for (uint64_t bits = b->empty[word]; bits;) {
			const uint32_t bit = 63 - (uint32_t)__builtin_clzll(bits);
			const uint32_t chunk = (uint32_t)word * WORD_BITS + bit;

			if (b->chunks[chunk].empty_since_ns <= since_ns)
				return chunk;
			bits &= ~(UINT64_C(1) << bit);
		}
	}
	return MM_KV_NONE;
}

uint32_t mm_kvblocks_cheapest_chunk(const struct mm_kvblocks *b)
{
	uint32_t best = mm_kvblocks_idle_chunk(b, UINT64_MAX);

	if (best != MM_KV_NONE)
		return best;
	for (uint32_t chunk = b->n_chunks; chunk-- > 0;) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];

		if (!c->usable || c->draining)
			continue;
		if (c->used == 1)
			return chunk;
		if (best == MM_KV_NONE || c->used < b->chunks[best].used)
			best = chunk;
	}
	return best;
}

/* ---- invariants ---- */

static uint32_t count_used(const struct mm_kvblocks *b, uint32_t chunk)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->blocks_per_chunk; i++)
		n += get_bit(b->used, chunk * b->blocks_per_chunk + i);
	return n;
}

static const char *check_chunk(const struct mm_kvblocks *b, uint32_t chunk)
{
	const struct mm_kv_chunk *c = &b->chunks[chunk];
	const uint32_t n = count_used(b, chunk);
	const bool offers = c->usable && !c->draining && n < b->blocks_per_chunk;

	if (n != c->used)
		return "a chunk's count is not that of its bits";
	if (!c->usable && (n || c->draining))
		return "a chunk that is not usable has blocks in use or drains";
	if (c->retired && (n || !c->draining))
		return "a retired chunk has blocks in use or does not drain";
	if (get_bit(b->held, chunk) != c->usable || get_bit(b->open, chunk) != offers ||
	    get_bit(b->empty, chunk) != (offers && !n))
		return "a chunk's bits are not its state";
	if (offers && chunk / WORD_BITS < b->lowest)
		return "a free block lies below the search's start";
	if (c->draining && !c->retired && (c->at >= n_listed(b) || b->draining[c->at] != chunk))
		return "a chunk that drains is not in its list";
	return NULL;
}

static const char *check_empty(const struct mm_kvblocks *b, uint32_t empty)
{
	uint32_t older = MM_KV_NONE;

	for (uint32_t i = b->oldest; i != MM_KV_NONE; i = b->chunks[i].younger) {
		if (b->chunks[i].older != older || !get_bit(b->empty, i) || !empty--)
			return "the list of empty chunks is broken";
		older = i;
	}
	return empty || b->youngest != older ? "an empty chunk is not in its list" : NULL;
}

const char *mm_kvblocks_check(const struct mm_kvblocks *b)
{
	uint32_t usable = 0, free_blocks = 0, used = 0, draining = 0, retired = 0, used_chunks = 0;
	uint32_t empty = 0;

	for (uint32_t chunk = 0; chunk < b->n_chunks; chunk++) {
		const struct mm_kv_chunk *c = &b->chunks[chunk];
		const char *wrong = check_chunk(b, chunk);

		if (wrong)
			return wrong;
		usable += c->usable;
		used += c->used;
		used_chunks += c->used != 0;
		draining += c->draining;
		retired += c->retired;
		empty += get_bit(b->empty, chunk);
		free_blocks += c->usable && !c->draining ? b->blocks_per_chunk - c->used : 0;
	}
	if (usable != b->usable_chunks || used != b->used_blocks || free_blocks != b->free_blocks ||
	    draining != b->draining_chunks || retired != b->retired_chunks ||
	    used_chunks != b->used_chunks)
		return "the sums are not those of the chunks";
	return check_empty(b, empty);
}
