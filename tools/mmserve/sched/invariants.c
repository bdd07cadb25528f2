/* SPDX-License-Identifier: Apache-2.0 */
/* The invariants of a scheduler, for tests. */
#include <stdlib.h>

#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "tools/mmserve/sched/sched.h"

/* Return: what is wrong with word @at of a running sequence's table and the entry behind it. */
static const char *check_entry(const struct mm_sched *s, uint32_t seq, uint32_t at, uint32_t *sums)
{
	const struct mm_seq *q = &s->seqs[seq];
	const uint32_t word = mm_sched_table(s, seq)[at];
	const uint32_t entry = mm_sched_backing(s, q, at);
	const struct mm_kvcold_entry *e;

	if (entry == MM_KV_NONE)
		return word & MM_KV_COLD ? "a cold word has no entry behind it" : NULL;
	if (entry >= s->cold.n_entries)
		return "a block's entry does not exist";
	e = &s->cold.entries[entry];
	if ((uint64_t)(at + 1) * s->config.block_tokens > q->computed)
		return "a block that is not full has an entry";
	if (word & MM_KV_COLD ? word != (MM_KV_COLD | entry) || e->state != MM_KVCOLD_USABLE
			      : e->state < MM_KVCOLD_COPYING || e->state > MM_KVCOLD_LIVE)
		return "an entry's state is not that of its word";
	if (!(word & MM_KV_COLD) && (e->seq != seq || e->index != at))
		return "an entry on its way does not have its sequence";
	if (e->state == MM_KVCOLD_COPYING && e->block != word)
		return "a block moved while it was being copied";
	sums[e->state]++;
	return NULL;
}

static const char *check_cold_sums(const struct mm_seq *q, const uint32_t *sums)
{
	return q->n_cold == sums[MM_KVCOLD_USABLE] && q->n_copying == sums[MM_KVCOLD_COPYING] &&
			       q->n_backed == sums[MM_KVCOLD_LANDED] + sums[MM_KVCOLD_LIVE]
		       ? NULL
		       : "the counts of a sequence's entries are not theirs";
}

static const char *check_tables(const struct mm_sched *s, uint32_t seq, uint8_t *owned)
{
	const struct mm_seq *q = &s->seqs[seq];
	uint32_t sums[MM_KVCOLD_USABLE + 1] = { 0 };

	for (uint32_t j = 0; j < q->n_blocks; j++) {
		const uint32_t block = mm_sched_table(s, seq)[j];
		const char *wrong = s->backing ? check_entry(s, seq, j, sums) : NULL;

		if (wrong)
			return wrong;
		if (s->backing && block & MM_KV_COLD)
			continue;
		if (owned[block]++)
			return "a block belongs to two sequences";
		if (s->owner[block] != seq)
			return "a block's owner does not have it";
	}
	return check_cold_sums(q, sums);
}

static const char *check_rows(const struct mm_sched *s)
{
	mm_cleanup(mm_free_ptr) uint8_t *taken = calloc(1, s->config.max_batch);

	mm_assert(taken != NULL);
	for (uint32_t i = 0; i < s->config.max_batch; i++) {
		const uint32_t row =
			i < s->n_running ? s->seqs[s->running[i]].row : s->rows[i - s->n_running];

		if (row >= s->config.max_batch || taken[row]++)
			return "a row is lost, or has two owners";
	}
	return NULL;
}

static const char *check_running(const struct mm_sched *s, uint8_t *owned)
{
	uint64_t last = 0, want = 0;
	uint32_t blocks = 0, prompts = 0;
	const char *wrong = NULL;

	for (uint32_t i = 0; i < s->n_running && !wrong; i++) {
		const struct mm_seq *q = &s->seqs[s->running[i]];

		if (q->state != MM_SEQ_RUNNING)
			return "a running sequence's state is not its own";
		if (i && q->order <= last)
			return "the running are not in order of arrival";
		last = q->order;
		if (q->computed >= q->total || q->total >= q->limit)
			return "a running sequence has nothing left to do";
		if ((uint64_t)q->n_blocks * s->config.block_tokens < q->computed)
			return "computed tokens have no block";
		if (q->want != mm_sched_seq_wants(s, q))
			return "what a sequence wants was not kept up";
		blocks += q->n_blocks - q->n_cold;
		prompts += mm_seq_is_prompt(q);
		want += q->want;
		wrong = check_tables(s, s->running[i], owned);
	}
	if (wrong)
		return wrong;
	if (prompts != s->n_prompts || want != s->want_running)
		return "the sums over the running are not theirs";
	return blocks + s->n_orphans == s->kv.used_blocks ? check_rows(s)
							  : "a block in use belongs to nobody";
}

static const char *swap_slots_check(const struct mm_sched *s, const struct mm_seq *q,
				    uint8_t *owned)
{
	uint32_t slot = q->slot, cold = 0;

	if (q->n_slots != (q->computed ? mm_sched_blocks(s, q->computed) : 0))
		return "a waiting sequence has computed tokens without a slot, or slots without";
	for (uint32_t i = 0; i < q->n_slots; i++, slot = s->slots[slot]) {
		if (owned[slot]++)
			return "a slot belongs to two sequences";
		if (slot >= s->cold.n_entries)
			continue;
		if (s->cold.entries[slot].state == MM_KVCOLD_USABLE && slot >= s->cold.room)
			return "a waiting sequence's entry is live beyond the room";
		if (s->cold.entries[slot].state == MM_KVCOLD_USABLE)
			cold++;
		else if (s->cold.entries[slot].state != MM_KVCOLD_SLOT)
			return "a waiting sequence has an entry that is on its way";
	}
	return cold == q->n_cold ? NULL : "a waiting sequence's entries are not its count";
}

static const char *check_free_slots(const struct mm_sched *s, uint32_t used, uint8_t *owned)
{
	uint32_t slot = s->free_slot;

	for (uint32_t i = 0; i < s->free_slots - s->cold.n_free; i++, slot = s->slots[slot])
		if (owned[slot]++ || slot < s->cold.n_entries)
			return "a free slot is somebody's";
	for (uint32_t i = 0; i < s->cold.n_entries; i++)
		if (s->cold.entries[i].state == MM_KVCOLD_FREE && owned[i]++)
			return "a free entry is somebody's";
	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct mm_seq *q = &s->seqs[s->running[i]];

		used += q->n_cold + q->n_backed + q->n_copying;
	}
	return used + s->n_orphans + s->free_slots == s->n_slots ? NULL : "a slot is lost";
}

/* Checks the entries that are on their way, and what chunks count of them. */
static const char *check_pending(const struct mm_sched *s)
{
	mm_cleanup(mm_free_ptr) uint32_t *copying = calloc(s->kv.n_chunks, sizeof(*copying));
	uint32_t orphans = 0;

	mm_assert(copying != NULL);
	for (uint32_t i = 0; i < s->cold.n_pending; i++) {
		const struct mm_kvcold_entry *e = &s->cold.entries[s->cold.pending[i]];

		if (e->state == MM_KVCOLD_COPYING)
			copying[e->block / s->kv.blocks_per_chunk]++;
		orphans += e->seq == MM_KV_NONE;
		if (e->seq == MM_KV_NONE && e->state != MM_KVCOLD_COPYING)
			return "an entry that belongs to nobody is on its way";
	}
	for (uint32_t i = 0; i < s->kv.n_chunks && s->copying; i++)
		if (copying[i] != s->copying[i] || (copying[i] && s->kv.chunks[i].retired))
			return "a chunk's copies are not its count";
	return orphans == s->n_orphans ? NULL : "the blocks of nobody are not their count";
}

static const char *check_waiting(const struct mm_sched *s)
{
	mm_cleanup(mm_free_ptr) uint8_t *owned = calloc(1, s->n_slots + 1);
	const char *wrong = NULL;
	uint32_t n = 0, slots = 0, last = MM_KV_NONE;

	mm_assert(owned != NULL);

	for (uint32_t i = s->queue; i != MM_KV_NONE; i = s->seqs[i].next, n++) {
		const struct mm_seq *q = &s->seqs[i];

		if (q->state != MM_SEQ_WAITING || q->n_blocks)
			return "a waiting sequence holds something";
		wrong = wrong ? wrong : swap_slots_check(s, q, owned);
		slots += q->n_slots;
		if (q->next != MM_KV_NONE && s->seqs[q->next].order <= q->order)
			return "the waiting are not in order of arrival";
		if (q->want != mm_sched_seq_wants(s, q))
			return "what a sequence wants was not kept up";
		last = i;
	}
	if (last != MM_KV_NONE && last != s->tail)
		return "the queue's tail is not its last";
	wrong = wrong ? wrong : check_free_slots(s, slots, owned);
	if (!wrong && n != s->n_waiting)
		return "the queue's length is not its count";
	return wrong;
}

static const char *free_seqs_check(const struct mm_sched *s)
{
	uint32_t n = s->n_running + s->n_waiting;

	for (uint32_t i = s->free_seq; i != MM_KV_NONE; i = s->seqs[i].next, n++)
		if (s->seqs[i].state != MM_SEQ_FREE || n == s->config.max_seqs)
			return "the list of free sequences is broken";
	return n == s->config.max_seqs ? NULL : "a sequence is lost";
}

const char *mm_sched_check(const struct mm_sched *s)
{
	mm_cleanup(mm_free_ptr) uint8_t *owned = calloc(1, mm_sched_arena_blocks(s));
	const char *wrong = mm_kvblocks_check(&s->kv);

	mm_assert(owned != NULL);
	if (!wrong && s->cold.n_entries)
		wrong = mm_kvcold_check(&s->cold);
	if (!wrong)
		wrong = check_pending(s);
	if (!wrong)
		wrong = check_running(s, owned);
	if (!wrong)
		wrong = check_waiting(s);
	return wrong ? wrong : free_seqs_check(s);
}
