/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks of the running sequences become entries of the cold pool, and when. See sched.h. */
#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "tools/mmserve/sched/sched.h"

int mm_sched_set_cold(struct mm_sched *s, uint32_t entries)
{
	const size_t words = (size_t)s->config.max_batch * s->table_stride;
	int r;

	mm_assert(entries && entries <= s->n_slots && s->free_slots == s->n_slots);
	r = mm_kvcold_init(&s->cold, entries);
	if (r)
		return r;
	s->backing = malloc(words * sizeof(*s->backing));
	s->copying = calloc(s->kv.n_chunks, sizeof(*s->copying));
	if (!s->backing || !s->copying)
		return -ENOMEM;
	/* The free slots are those behind the entries; free_slots counts the entries, too. */
	s->free_slot = entries;
	return 0;
}

static uint32_t *cold_row(uint32_t *rows, const struct mm_sched *s, const struct mm_seq *q)
{
	return rows + (size_t)q->row * s->table_stride;
}

/* ---- the room ---- */

/* Entries that wait to become usable, and may not any more: their blocks stay. */
static void pending_drop(struct mm_sched *s)
{
	struct mm_kvcold *c = &s->cold;

	for (uint32_t i = 0; i < c->n_pending;) {
		const uint32_t entry = c->pending[i];
		const struct mm_kvcold_entry *e = &c->entries[entry];

		if (entry < c->room || e->state == MM_KVCOLD_COPYING) {
			i++;
			continue;
		}
		cold_row(s->backing, s, &s->seqs[e->seq])[e->index] = MM_KV_NONE;
		s->seqs[e->seq].n_backed--;
		mm_kvcold_put(c, entry);
		s->free_slots++;
	}
}

/* The entries of a waiting sequence that may not be streamed any more are copied back later. */
static void waiting_warm(struct mm_sched *s, struct mm_seq *q)
{
	uint32_t slot = q->slot;

	for (uint32_t j = 0; j < q->n_slots; j++, slot = s->slots[slot]) {
		if (slot < s->cold.room || !mm_kvcold_is_usable(&s->cold, slot))
			continue;
		mm_kvcold_park(&s->cold, slot);
		q->n_cold--;
	}
}

void mm_sched_cold_room(struct mm_sched *s, uint32_t room)
{
	const uint32_t before = s->cold.room;

	s->cold.room = MM_MIN(room, s->cold.n_entries);
	if (s->cold.room >= before)
		return;
	s->cold_shrunk = true;
	pending_drop(s);
	for (uint32_t i = s->queue; i != MM_KV_NONE; i = s->seqs[i].next)
		waiting_warm(s, &s->seqs[i]);
}

/* ---- cooling ---- */

/* Return: the sealed blocks of a running sequence that have no entry. */
static uint32_t seq_coolable(const struct mm_sched *s, const struct mm_seq *q)
{
	return q->computed / s->config.block_tokens - q->n_cold - q->n_backed - q->n_copying;
}

/* Return: the running sequence with the most blocks that can be cooled; MM_KV_NONE: none can. */
static uint32_t coolest_seq(const struct mm_sched *s)
{
	uint32_t best = MM_KV_NONE, most = 0;

	for (uint32_t i = 0; i < s->n_running; i++) {
		const uint32_t n = seq_coolable(s, &s->seqs[s->running[i]]);

		if (n > most) {
			most = n;
			best = s->running[i];
		}
	}
	return best;
}

uint32_t mm_sched_cool(struct mm_sched *s, uint32_t want, struct mm_sched_swap *ret_swaps)
{
	uint32_t n = 0, seq = MM_KV_NONE, at = 0, entry;

	while (n < want && (entry = mm_kvcold_lowest(&s->cold)) != MM_KV_NONE) {
		const uint32_t best = coolest_seq(s);
		struct mm_seq *q;
		uint32_t block;

		if (best == MM_KV_NONE)
			break;
		at = best == seq ? at : 0;
		seq = best;
		q = &s->seqs[seq];
		while (mm_sched_backing(s, q, at) != MM_KV_NONE)
			at++;
		block = cold_row(s->tables, s, q)[at];
		mm_kvcold_copy(&s->cold, entry, seq, at, block);
		cold_row(s->backing, s, q)[at] = entry;
		s->copying[block / s->kv.blocks_per_chunk]++;
		s->free_slots--;
		q->n_copying++;
		ret_swaps[n++] = (struct mm_sched_swap){ seq, block, entry };
	}
	return n;
}

void mm_sched_cooled(struct mm_sched *s, uint32_t entry, bool failed, uint64_t now_ns)
{
	struct mm_kvcold_entry *e = &s->cold.entries[entry];
	struct mm_seq *q = e->seq == MM_KV_NONE ? NULL : &s->seqs[e->seq];

	mm_assert(e->state == MM_KVCOLD_COPYING);
	s->copying[e->block / s->kv.blocks_per_chunk]--;
	if (q) {
		q->n_copying--;
	} else {
		mm_kvblocks_put(&s->kv, e->block, now_ns);
		s->n_orphans--;
	}
	if (q && !failed && entry < s->cold.room) {
		q->n_backed++;
		mm_kvcold_land(&s->cold, entry);
		return;
	}
	if (q)
		cold_row(s->backing, s, q)[e->index] = MM_KV_NONE;
	mm_kvcold_put(&s->cold, entry);
	s->free_slots++;
}

void mm_sched_cold_acked(struct mm_sched *s, uint64_t acked, uint64_t now_ns)
{
	struct mm_kvcold *c = &s->cold;

	c->acked = MM_MAX(c->acked, acked);
	for (uint32_t i = 0; i < c->n_pending;) {
		const uint32_t entry = c->pending[i];
		const struct mm_kvcold_entry *e = &c->entries[entry];
		struct mm_seq *q;

		if (e->state != MM_KVCOLD_LIVE || e->version > c->acked) {
			i++;
			continue;
		}
		q = &s->seqs[e->seq];
		mm_kvblocks_put(&s->kv, cold_row(s->tables, s, q)[e->index], now_ns);
		cold_row(s->tables, s, q)[e->index] = MM_KV_COLD | entry;
		q->n_backed--;
		q->n_cold++;
		mm_kvcold_use(c, entry);
	}
}

uint32_t mm_sched_cooling(const struct mm_sched *s)
{
	return s->cold.n_pending;
}

uint32_t mm_sched_cold_words(const struct mm_sched *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_running && s->cold.n_entries; i++)
		n += s->seqs[s->running[i]].n_cold;
	return n;
}
