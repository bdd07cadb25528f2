/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/book/emit.h"

bool mm_c_kv_holds(const struct mm_c_tenant *t, uint32_t chunk)
{
	return t->kv.held_map[chunk / 64] >> (chunk % 64) & 1;
}

uint32_t mm_c_kv_chunk_page(const struct mm_c_tenant *t, uint32_t chunk, uint32_t i)
{
	return t->map[MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i] - 1;
}

static bool chunks_overlap(uint64_t first, uint64_t end, uint32_t window, uint32_t chunks)
{
	return chunks && first < (uint64_t)window + chunks && window < end;
}

bool mm_c_kv_in_window(const struct mm_c_tenant *t, uint64_t first, uint64_t end)
{
	const struct mm_c_cold *cold = &t->cold;

	return chunks_overlap(first, end, t->plan.cold.first, t->plan.cold.chunks) ||
	       chunks_overlap(first, end, cold->was_first, cold->was_chunks) ||
	       (cold->window_due && chunks_overlap(first, end, cold->first, cold->chunks));
}

int mm_c_kv_declare(const struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint64_t bytes = msg->arg[0], ranges = msg->arg[1], chunks = msg->arg[2];
	uint64_t pages = bytes / c->opts.page_bytes;

	if (t->kv.declared)
		return -EEXIST;
	if (!bytes || bytes % c->opts.page_bytes || !ranges || !chunks || msg->arg[3] > chunks)
		return -EINVAL;
	if (pages > MM_KV_ENTRIES || ranges > MM_KV_ENTRIES / pages ||
	    chunks > (MM_KV_ENTRIES - t->mem.depth) / (pages * ranges))
		return -E2BIG;
	t->kv.declared = true;
	t->kv.chunk_pages = (uint32_t)(pages * ranges);
	t->kv.ranges = (uint32_t)ranges;
	t->kv.chunks_max = (uint32_t)chunks;
	t->kv.share = (uint32_t)msg->arg[3];
	return 0;
}

/* Returns the lowest chunk from @from on that is not held; it may lie behind the arena. */
static uint32_t chunk_not_held(const struct mm_c_tenant *t, uint32_t from)
{
	uint32_t word = from / 64;
	uint64_t below = ~(UINT64_MAX << from % 64);

	while ((t->kv.held_map[word] | below) == UINT64_MAX) {
		if (++word == MM_ARRAY_SIZE(t->kv.held_map))
			return MM_KV_ENTRIES;
		below = 0;
	}
	return word * 64 + (uint32_t)__builtin_ctzll(~(t->kv.held_map[word] | below));
}

/* The caller has checked that there is one. */
static uint32_t chunk_to_give(const struct mm_c_tenant *t)
{
	uint32_t chunk = MM_KV_ENTRIES;

	if (t->kv.grouped)
		return t->kv.offer;
	if (t->kv.first < t->kv.chunks_max)
		chunk = chunk_not_held(t, t->kv.first);
	return chunk < t->kv.chunks_max ? chunk : chunk_not_held(t, 0);
}

void mm_c_kv_give(struct mm_core *c, struct mm_c_tenant *t)
{
	uint32_t chunk = chunk_to_give(t);

	mm_assert(chunk < t->kv.chunks_max && !mm_c_kv_holds(t, chunk));
	t->kv.offer = MM_NO_CHUNK;
	for (uint32_t i = 0; i < t->kv.chunk_pages; i++) {
		uint32_t page = mm_c_page_reserve(c, t);

		mm_ledger_give(&c->ledger, page, MM_PAGE_KV);
		mm_c_map_set(c, t, MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i, page);
		mm_c_fds_send(c, t, page);
	}
	t->kv.held_map[chunk / 64] |= UINT64_C(1) << (chunk % 64);
	t->kv.held++;
	mm_c_demand_changed(c);
	c->stats.grants++;
	mm_c_event_send(c, t, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { chunk } });
}

void mm_c_kv_drop(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunk)
{
	for (uint32_t i = 0; i < t->kv.chunk_pages; i++) {
		mm_c_page_drop(c, mm_c_kv_chunk_page(t, chunk, i));
		mm_c_map_set(c, t, MM_MAP_KV_BASE + chunk * t->kv.chunk_pages + i, MM_NO_PAGE);
	}
	t->kv.held_map[chunk / 64] &= ~(UINT64_C(1) << (chunk % 64));
	t->kv.held--;
	mm_c_tally_add(c, t, released, 1);
}
