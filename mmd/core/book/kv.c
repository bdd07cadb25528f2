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

/* Returns the lowest chunk that is not held; the caller has checked that there is one. */
static uint32_t chunk_to_give(const struct mm_c_tenant *t)
{
	uint32_t word = 0;

	if (t->kv.grouped)
		return t->kv.offer;
	while (t->kv.held_map[word] == UINT64_MAX)
		word++;
	return word * 64 + (uint32_t)__builtin_ctzll(~t->kv.held_map[word]);
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
