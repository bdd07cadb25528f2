/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/sched/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"

uint32_t mm_sched_blocks(const struct mm_sched *s, uint32_t tokens)
{
	return (uint32_t)mm_div_up(tokens, s->config.block_tokens);
}

static int blocks_allocate(struct mm_sched *s)
{
	const struct mm_sched_config *c = &s->config;
	const size_t blocks = (size_t)c->kv_chunks * c->kv_blocks_per_chunk;
	const int r = mm_kvblocks_init(&s->kv, c->kv_chunks, c->kv_blocks_per_chunk);

	if (r)
		return r;
	s->seqs = calloc(c->max_seqs, sizeof(*s->seqs));
	s->tables = calloc((size_t)c->max_batch * s->table_stride, sizeof(*s->tables));
	s->running = calloc(c->max_batch, sizeof(*s->running));
	s->rows = calloc(c->max_batch, sizeof(*s->rows));
	s->owner = calloc(blocks, sizeof(*s->owner));
	s->plan.items = calloc(c->max_batch, sizeof(*s->plan.items));
	s->plan.preempted = calloc(c->max_batch, sizeof(*s->plan.preempted));
	return s->seqs && s->tables && s->running && s->rows && s->owner && s->plan.items &&
			       s->plan.preempted
		       ? 0
		       : -ENOMEM;
}

static void all_free(struct mm_sched *s)
{
	for (uint32_t i = 0; i < s->config.max_seqs; i++)
		s->seqs[i].next = i + 1 < s->config.max_seqs ? i + 1 : MM_KV_NONE;
	for (uint32_t i = 0; i < s->config.max_batch; i++)
		s->rows[i] = s->config.max_batch - 1 - i;
}

int mm_sched_init(struct mm_sched *s, const struct mm_sched_config *c)
{
	int r;

	*s = (struct mm_sched){ .config = *c, .queue = MM_KV_NONE };
	if (!c->max_seqs || !c->max_batch || c->max_batched_tokens < c->max_batch ||
	    !c->max_tokens || !c->block_tokens)
		return -EINVAL;
	s->table_stride = mm_sched_blocks(s, c->max_tokens);
	r = blocks_allocate(s);
	if (r)
		mm_sched_done(s);
	else
		all_free(s);
	return r;
}

void mm_sched_done(struct mm_sched *s)
{
	mm_kvblocks_done(&s->kv);
	free(s->seqs);
	free(s->tables);
	free(s->backing);
	free(s->copying);
	mm_kvcold_done(&s->cold);
	free(s->running);
	free(s->rows);
	free(s->owner);
	free(s->plan.items);
	free(s->plan.preempted);
	free(s->plan.swaps);
	free(s->slots);
	*s = (struct mm_sched){ 0 };
}

/* ---- blocks that are wanted ---- */

uint32_t mm_sched_seq_wants(const struct mm_sched *s, const struct mm_seq *q)
{
	const uint64_t ahead = (uint64_t)mm_sched_blocks(s, q->total) + s->config.lookahead_blocks;

	return (uint32_t)MM_MIN(ahead, mm_sched_blocks(s, q->limit));
}

/*
 * Updates what a running sequence wants after its total has grown by one token. Called for each
 * sequence in each step, it avoids a division.
 */
static void seq_want_more(struct mm_sched *s, struct mm_seq *q)
{
	const uint64_t size = s->config.block_tokens;

	if (q->want * size >= q->limit ||
	    (uint64_t)(q->want - s->config.lookahead_blocks) * size >= q->total)
		return;
	q->want++;
	s->want_running++;
}

uint32_t mm_sched_blocks_queued(struct mm_sched *s)
{
	const uint64_t arena = mm_sched_arena_blocks(s);
	uint32_t room = s->config.max_batch - s->n_running;

	if (!s->want_known) {
		s->want_waiting = 0;
		for (uint32_t i = s->queue; i != MM_KV_NONE && room && s->want_waiting < arena;
		     i = s->seqs[i].next, room--)
			s->want_waiting += s->seqs[i].want;
		s->want_known = true;
	}
	return (uint32_t)MM_MIN(s->want_waiting, arena);
}

uint32_t mm_sched_blocks_wanted(struct mm_sched *s)
{
	const uint64_t queued = mm_sched_blocks_queued(s);

	return (uint32_t)MM_MIN(s->want_running + queued, mm_sched_arena_blocks(s));
}

/* ---- sequences ---- */

/*
 * Puts @seq into the queue by order of arrival: a new sequence at the end, a preempted one near the
 * front.
 */
static void sched_enqueue(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t *link = &s->queue;

	if (s->queue != MM_KV_NONE && s->seqs[s->tail].order < q->order)
		link = &s->seqs[s->tail].next;
	while (*link != MM_KV_NONE && s->seqs[*link].order < q->order)
		link = &s->seqs[*link].next;
	q->next = *link;
	*link = seq;
	if (q->next == MM_KV_NONE)
		s->tail = seq;
	q->state = MM_SEQ_WAITING;
	s->n_waiting++;
	s->want_known = false;
}

static void sched_dequeue(struct mm_sched *s, uint32_t seq)
{
	uint32_t *link = &s->queue, before = MM_KV_NONE;

	while (*link != seq) {
		before = *link;
		link = &s->seqs[before].next;
	}
	*link = s->seqs[seq].next;
	if (*link == MM_KV_NONE)
		s->tail = before;
	s->n_waiting--;
	s->want_known = false;
}

int mm_sched_add(struct mm_sched *s, uint32_t prompt, uint32_t output, uint64_t user,
		 uint32_t *ret_seq)
{
	const uint64_t limit = (uint64_t)prompt + output;
	const uint32_t seq = s->free_seq;

	if (!prompt || !output || limit > s->config.max_tokens ||
	    mm_sched_blocks(s, (uint32_t)limit) > mm_sched_arena_blocks(s))
		return MM_E_RANGE;
	if (seq == MM_KV_NONE)
		return MM_E_FULL;
	s->free_seq = s->seqs[seq].next;
	s->seqs[seq] = (struct mm_seq){ .order = s->next_order++,
					.user = user,
					.prompt = prompt,
					.limit = (uint32_t)limit,
					.total = prompt };
	s->seqs[seq].want = mm_sched_seq_wants(s, &s->seqs[seq]);
	sched_enqueue(s, seq);
	*ret_seq = seq;
	return 0;
}

static uint32_t *table_of(const struct mm_sched *s, const struct mm_seq *q)
{
	return s->tables + (size_t)q->row * s->table_stride;
}

const uint32_t *mm_sched_table(const struct mm_sched *s, uint32_t seq)
{
	mm_assert(s->seqs[seq].state == MM_SEQ_RUNNING);
	return table_of(s, &s->seqs[seq]);
}

/* ---- slots of the swap space; the lowest are entries of the cold pool, if there is one ---- */

static uint32_t slot_get(struct mm_sched *s)
{
	const uint32_t slot = s->free_slot;

	if (s->free_slots-- == s->cold.n_free)
		return mm_kvcold_take_slot(&s->cold);
	s->free_slot = s->slots[slot];
	return slot;
}

static void slot_put(struct mm_sched *s, uint32_t slot)
{
	s->free_slots++;
	if (slot < s->cold.n_entries) {
		mm_kvcold_put(&s->cold, slot);
		return;
	}
	s->slots[slot] = s->free_slot;
	s->free_slot = slot;
}

/* Gives @seq blocks for its first @tokens tokens, or none if there are not enough. */
static bool blocks_reserve(struct mm_sched *s, uint32_t seq, uint32_t tokens)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t need, block;

	if ((uint64_t)q->n_blocks * s->config.block_tokens >= tokens)
		return true;
	need = mm_sched_blocks(s, tokens);
	if (need - q->n_blocks > s->kv.free_blocks)
		return false;
	while (q->n_blocks < need) {
		block = mm_kvblocks_get(&s->kv);
		s->owner[block] = seq;
		if (s->backing)
			s->backing[q->row * (size_t)s->table_stride + q->n_blocks] = MM_KV_NONE;
		table_of(s, q)[q->n_blocks++] = block;
	}
	return true;
}

/*
 * Frees the last block of a sequence. One that is being copied stays in use until the copy is done;
 * an entry is freed unless it is one of the slots by which the sequence was swapped out.
 */
static void block_leave(struct mm_sched *s, struct mm_seq *q, uint64_t now_ns)
{
	const uint32_t at = --q->n_blocks, block = table_of(s, q)[at];
	const uint32_t entry = mm_sched_backing(s, q, at);

	if (entry != MM_KV_NONE && s->cold.entries[entry].state == MM_KVCOLD_COPYING) {
		s->cold.entries[entry].seq = MM_KV_NONE;
		s->n_orphans++;
		return;
	}
	if (entry != MM_KV_NONE && !q->n_slots)
		slot_put(s, entry);
	if (!(block & MM_KV_COLD))
		mm_kvblocks_put(&s->kv, block, now_ns);
}

/* Takes @seq out of the batch and frees its blocks and its row. */
static void seq_leave(struct mm_sched *s, uint32_t seq, uint64_t now_ns)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t i = s->n_running - 1;

	while (q->n_blocks)
		block_leave(s, q, now_ns);
	q->n_backed = q->n_copying = 0;
	if (!q->n_slots)
		q->n_cold = 0;
	while (s->running[i] != seq)
		i--;
	s->n_running--;
	memmove(s->running + i, s->running + i + 1, (s->n_running - i) * sizeof(*s->running));
	s->rows[s->config.max_batch - s->n_running - 1] = q->row;
	s->n_prompts -= mm_seq_is_prompt(q);
	s->want_running -= q->want;
	s->want_known = false;
}

/* ---- swap space ---- */

int mm_sched_set_swap(struct mm_sched *s, uint32_t slots)
{
	const size_t blocks = mm_sched_arena_blocks(s);

	s->slots = calloc(slots, sizeof(*s->slots));
	s->plan.swaps = calloc(blocks, sizeof(*s->plan.swaps));
	if (!s->slots || !s->plan.swaps)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		s->slots[i] = i + 1;
	s->n_slots = s->free_slots = slots;
	return 0;
}

static void plan_swap(struct mm_sched *s, uint32_t seq, uint32_t block, uint32_t slot)
{
	s->plan.swaps[s->plan.n_swaps++] = (struct mm_sched_swap){ seq, block, slot };
}

/*
 * Return: the slot that has the bytes of block @at of a running sequence already, or MM_KV_NONE. An
 * entry that is not usable yet becomes a plain slot.
 */
static uint32_t backing_keep(struct mm_sched *s, const struct mm_seq *q, uint32_t at)
{
	const uint32_t entry = mm_sched_backing(s, q, at);

	if (entry == MM_KV_NONE || s->cold.entries[entry].state == MM_KVCOLD_COPYING)
		return MM_KV_NONE;
	if (s->cold.entries[entry].state != MM_KVCOLD_USABLE || entry >= s->cold.room)
		mm_kvcold_park(&s->cold, entry);
	return entry;
}

/* Return: the slots that swap_out() needs for a running sequence besides its entries. */
static uint32_t swap_slots(const struct mm_sched *s, const struct mm_seq *q)
{
	return mm_sched_blocks(s, q->computed) - q->n_cold - q->n_backed;
}

/*
 * Plans to swap out the blocks of a running sequence's computed tokens, in order, or does nothing
 * if there are not enough slots. What is in entries is not copied.
 */
static bool swap_out(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	const uint32_t n = mm_sched_blocks(s, q->computed);
	uint32_t *link = &q->slot;

	if (!n || swap_slots(s, q) > s->free_slots)
		return false;
	q->n_cold = 0;
	for (; q->n_slots < n; q->n_slots++) {
		*link = backing_keep(s, q, q->n_slots);
		if (*link == MM_KV_NONE) {
			*link = slot_get(s);
			plan_swap(s, seq, table_of(s, q)[q->n_slots], *link);
		}
		q->n_cold += mm_kvcold_is_usable(&s->cold, *link);
		link = &s->slots[*link];
	}
	return true;
}

static void slots_drop(struct mm_sched *s, struct mm_seq *q)
{
	while (q->n_slots) {
		const uint32_t slot = q->slot;

		q->slot = s->slots[slot];
		q->n_slots--;
		slot_put(s, slot);
	}
	/* Those of a running sequence are words of its table, and none of its slots. */
	if (q->state != MM_SEQ_RUNNING)
		q->n_cold = 0;
}

/*
 * Gives a sequence that has just been admitted the words of its slots: usable entries as they are,
 * and blocks for the others.
 */
static void cold_resume(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t slot = q->slot, block;

	for (uint32_t i = 0; i < q->n_slots; i++, slot = s->slots[slot]) {
		const bool cold = mm_kvcold_is_usable(&s->cold, slot);

		block = cold ? MM_KV_COLD | slot : mm_kvblocks_get(&s->kv);
		if (!cold)
			s->owner[block] = seq;
		s->backing[q->row * (size_t)s->table_stride + i] = cold ? slot : MM_KV_NONE;
		table_of(s, q)[q->n_blocks++] = block;
	}
}

/*
 * Plans to swap in a sequence that has just got its blocks. Its slots may be used by sequences that
 * a later plan swaps out, but for the entries that are words of its table.
 */
static void swap_in(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	const uint32_t n = q->n_slots, before = s->plan.n_swaps;
	uint32_t slot = q->slot, next;

	for (uint32_t i = 0; i < n; i++, slot = s->slots[slot])
		if (!(table_of(s, q)[i] & MM_KV_COLD))
			plan_swap(s, seq, table_of(s, q)[i], slot);
	s->plan.swaps_in = s->plan.swaps_in || s->plan.n_swaps != before;
	for (slot = q->slot; q->n_slots; q->n_slots--, slot = next) {
		next = s->slots[slot];
		if (!(table_of(s, q)[n - q->n_slots] & MM_KV_COLD))
			slot_put(s, slot);
	}
}

void mm_sched_swap_failed(struct mm_sched *s, uint32_t seq, uint64_t now_ns)
{
	struct mm_seq *q = &s->seqs[seq];

	slots_drop(s, q);
	if (q->state == MM_SEQ_RUNNING) {
		seq_leave(s, seq, now_ns);
		sched_enqueue(s, seq);
		s->plan.n_items = 0;
	}
	q->computed = 0;
}

/* Preempts @seq by this plan. With @swap its blocks go to the swap space if there is room. */
static void seq_preempt(struct mm_sched *s, uint32_t seq, bool swap, uint64_t now_ns)
{
	const bool swapped = swap && swap_out(s, seq);

	s->plan.preempted[s->plan.n_preempted++] = seq;

	seq_leave(s, seq, now_ns);
	if (!swapped)
		s->seqs[seq].computed = 0;
	s->seqs[seq].preemptions++;
	s->preemptions++;
	sched_enqueue(s, seq);
}

static void seq_retire(struct mm_sched *s, uint32_t seq)
{
	s->seqs[seq].state = MM_SEQ_FREE;
	s->seqs[seq].next = s->free_seq;
	s->free_seq = seq;
}

void mm_sched_remove(struct mm_sched *s, uint32_t seq, uint64_t now_ns)
{
	if (s->seqs[seq].state == MM_SEQ_RUNNING)
		seq_leave(s, seq, now_ns);
	else if (s->seqs[seq].state == MM_SEQ_WAITING)
		sched_dequeue(s, seq);
	slots_drop(s, &s->seqs[seq]);
	seq_retire(s, seq);
}

static void plan_item(struct mm_sched *s, uint32_t seq, uint32_t tokens)
{
	struct mm_sched_plan *p = &s->plan;
	const struct mm_seq *q = &s->seqs[seq];

	p->items[p->n_items++] =
		(struct mm_sched_item){ .seq = seq,
					.first = q->computed,
					.tokens = tokens,
					.samples = q->computed + tokens == q->total };
	p->tokens += tokens;
}

static uint32_t budget_left(const struct mm_sched *s)
{
	return s->config.max_batched_tokens - s->plan.tokens;
}

/*
 * Plans the running sequences, oldest first: a token for each that decodes, and the rest of the
 * budget for prompts. A preempted sequence is never one that is planned already, as it is younger
 * than the one that lacks a block, or that one itself.
 */
static void plan_running(struct mm_sched *s, uint64_t now_ns, bool may_grow)
{
	uint32_t budget = s->config.max_batched_tokens - (s->n_running - s->n_prompts);
	struct mm_sched_plan *p = &s->plan;

	for (uint32_t i = 0; i < s->n_running;) {
		const uint32_t seq = s->running[i], last = s->running[s->n_running - 1];
		const struct mm_seq *q = &s->seqs[seq];
		const bool prompt = mm_seq_is_prompt(q);
		const uint32_t tokens = prompt ? MM_MIN(q->total - q->computed, budget) : 1;

		if (tokens && !blocks_reserve(s, seq, q->computed + tokens)) {
			if (!may_grow) {
				seq_preempt(s, last, true, now_ns);
				continue;
			}
			p->stalled++;
		} else if (tokens) {
			plan_item(s, seq, tokens);
			budget -= prompt ? tokens : 0;
		}
		i++;
	}
}

static void seq_enter(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t i = s->n_running++;

	q->state = MM_SEQ_RUNNING;
	q->resumed = q->total;
	q->row = s->rows[s->config.max_batch - i - 1];
	s->n_prompts += mm_seq_is_prompt(q);
	s->want_running += q->want;
	s->want_known = false;
	for (; i > 0 && s->seqs[s->running[i - 1]].order > q->order; i--)
		s->running[i] = s->running[i - 1];
	s->running[i] = seq;
}

/*
 * Return: the blocks that must be free to admit @q, which then computes @tokens, if none of them is
 * in an entry.
 */
static uint32_t entry_blocks(const struct mm_sched *s, const struct mm_seq *q, uint32_t tokens)
{
	switch (s->config.admit) {
	case MM_ADMIT_WHOLE:
		return mm_sched_blocks(s, MM_MIN(q->total + 1, q->limit));
	case MM_ADMIT_FULL:
		return mm_sched_blocks(s, q->total);
	default:
		return mm_sched_blocks(s, q->computed + tokens);
	}
}

/*
 * With MM_ADMIT_CHUNK all tokens of a sequence and one more must fit into the chunks that do not
 * drain, else it would preempt itself for ever.
 */
static bool seq_can_fit(const struct mm_sched *s, const struct mm_seq *q)
{
	const struct mm_kvblocks *kv = &s->kv;
	const uint32_t whole = mm_sched_blocks(s, MM_MIN(q->total + 1, q->limit));

	return s->config.admit < MM_ADMIT_CHUNK ||
	       whole - q->n_cold <=
		       (kv->usable_chunks - kv->draining_chunks) * kv->blocks_per_chunk;
}

static bool seq_fits(const struct mm_sched *s, const struct mm_seq *q, uint32_t tokens)
{
	return entry_blocks(s, q, tokens) - q->n_cold <= s->kv.free_blocks && seq_can_fit(s, q);
}

/* Has a running sequence had its slice, and would its tokens fit into @slots? */
static bool slice_is_over(const struct mm_sched *s, const struct mm_seq *q, uint32_t slots)
{
	return !mm_seq_is_prompt(q) && q->total - q->resumed >= s->config.slice_tokens &&
	       swap_slots(s, q) <= slots;
}

/*
 * Swaps out sequences whose slices are over, those first that were admitted first, until the oldest
 * waiting one fits; none if it would not.
 */
static void slices_end(struct mm_sched *s, uint64_t now_ns)
{
	const struct mm_seq *head = &s->seqs[s->queue];
	const uint32_t tokens = MM_MIN(head->total - head->computed, s->config.max_batched_tokens);
	const uint32_t need = entry_blocks(s, head, tokens) - head->n_cold;
	uint32_t free = s->kv.free_blocks, slots = s->free_slots, n = 0;

	if (!seq_can_fit(s, head))
		return;
	for (uint32_t i = 0; i < s->n_running && free < need; i++) {
		const struct mm_seq *q = &s->seqs[s->running[i]];

		if (!slice_is_over(s, q, slots))
			continue;
		free += q->n_blocks - q->n_cold - q->n_copying;
		slots -= swap_slots(s, q);
		n++;
	}
	if (free < need)
		return;
	for (uint32_t i = 0; n; n--) {
		while (!slice_is_over(s, &s->seqs[s->running[i]], s->free_slots))
			i++;
		s->seqs[s->running[i]].order = s->next_order++;
		seq_preempt(s, s->running[i], true, now_ns);
		s->slices++;
	}
}

/* Admits waiting sequences, oldest first, until one does not fit. */
static void seq_admit(struct mm_sched *s)
{
	const bool whole = s->config.admit == MM_ADMIT_WHOLE;

	while (s->queue != MM_KV_NONE && s->n_running < s->config.max_batch && budget_left(s)) {
		const uint32_t seq = s->queue;
		const struct mm_seq *q = &s->seqs[seq];
		const uint32_t tokens = MM_MIN(q->total - q->computed, budget_left(s));
		bool reserved;

		if (!seq_fits(s, q, tokens))
			return;
		sched_dequeue(s, seq);
		seq_enter(s, seq);
		if (q->n_cold)
			cold_resume(s, seq);
		reserved = blocks_reserve(s, seq, whole ? q->total : q->computed + tokens);
		mm_assert(reserved);
		swap_in(s, seq);
		plan_item(s, seq, tokens);
	}
}

static struct mm_sched_plan *plan_nothing(struct mm_sched *s)
{
	struct mm_sched_plan *p = &s->plan;

	p->n_items = p->tokens = p->n_preempted = p->stalled = p->n_swaps = 0;
	p->swaps_in = false;
	return p;
}

const struct mm_sched_plan *mm_sched_step(struct mm_sched *s, uint64_t now_ns, bool may_grow)
{
	const struct mm_sched_plan *p = plan_nothing(s);

	if (s->config.slice_tokens && s->queue != MM_KV_NONE && !may_grow && !mm_sched_owed(s) &&
	    s->n_running < s->config.max_batch)
		slices_end(s, now_ns);
	plan_running(s, now_ns, may_grow);
	/*
	 * A sequence that was just preempted must not be admitted again by the same step, and
	 * while chunks drain, the free blocks are needed for the blocks of those chunks.
	 */
	if (!p->n_preempted && !p->stalled && !mm_sched_owed(s))
		seq_admit(s);
	return p;
}

uint32_t mm_sched_commit(struct mm_sched *s, uint64_t now_ns, uint64_t *ret_finished)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->plan.n_items; i++) {
		const struct mm_sched_item *item = &s->plan.items[i];
		struct mm_seq *q = &s->seqs[item->seq];

		s->n_prompts -= mm_seq_is_prompt(q);
		q->computed += item->tokens;
		q->total += item->samples;
		s->n_prompts += mm_seq_is_prompt(q);
		if (q->total < q->limit) {
			seq_want_more(s, q);
			continue;
		}
		ret_finished[n++] = q->user;
		seq_leave(s, item->seq, now_ns);
		seq_retire(s, item->seq);
	}
	s->plan.n_items = 0;
	return n;
}

/* Moves every block of @chunk that is in use to another chunk. Return: how many moves. */
static uint32_t move_blocks(struct mm_sched *s, uint32_t chunk, uint64_t now_ns,
			    struct mm_sched_move *moves)
{
	const uint32_t first = chunk * s->kv.blocks_per_chunk;
	const uint32_t end = first + s->kv.blocks_per_chunk;
	uint32_t n = 0;

	for (uint32_t from = mm_kvblocks_next_used(&s->kv, first, end); from != MM_KV_NONE;
	     from = mm_kvblocks_next_used(&s->kv, from + 1, end)) {
		uint32_t *entry = table_of(s, &s->seqs[s->owner[from]]);

		while (*entry != from)
			entry++;
		*entry = mm_kvblocks_get(&s->kv);
		mm_assert(*entry != MM_KV_NONE);
		s->owner[*entry] = s->owner[from];
		mm_kvblocks_put(&s->kv, from, now_ns);
		moves[n++] = (struct mm_sched_move){ from, *entry };
	}
	return n;
}

void mm_sched_reclaim(struct mm_sched *s, uint32_t chunks, uint64_t force_ns)
{
	uint32_t chunk;

	if (!mm_sched_owed(s) || force_ns < s->force_ns)
		s->force_ns = force_ns;
	while (s->kv.draining_chunks < chunks) {
		chunk = mm_kvblocks_cheapest_chunk(&s->kv);
		if (chunk == MM_KV_NONE)
			break;
		mm_kvblocks_drain_chunk(&s->kv, chunk);
	}
	mm_sched_owe_at_most(s, chunks);
}

void mm_sched_owe_at_most(struct mm_sched *s, uint32_t chunks)
{
	while (s->kv.draining_chunks > chunks && mm_sched_owed(s))
		mm_kvblocks_reopen_chunk(&s->kv, mm_kvblocks_fullest_draining_chunk(&s->kv));
}

/*
 * Return: the running sequence with the fewest computed tokens; the @spared oldest are not
 * considered while others run.
 */
static uint32_t cheapest_victim(const struct mm_sched *s, uint32_t spared)
{
	uint32_t best = s->running[s->n_running - 1];

	for (uint32_t i = s->n_running; i-- > spared;)
		if (s->seqs[s->running[i]].computed < s->seqs[best].computed)
			best = s->running[i];
	return best;
}

/* Preempts the sequences whose tables have entries that may not be streamed any more. */
static void cold_evict(struct mm_sched *s, uint64_t now_ns)
{
	s->cold_shrunk = false;
	for (uint32_t i = s->n_running; i-- > 0;) {
		const struct mm_seq *q = &s->seqs[s->running[i]];
		const uint32_t *table = table_of(s, q);
		uint32_t j = 0;

		while (j < q->n_blocks &&
		       (!(table[j] & MM_KV_COLD) || (table[j] & ~MM_KV_COLD) < s->cold.room))
			j++;
		if (j < q->n_blocks)
			seq_preempt(s, s->running[i], true, now_ns);
	}
}

const struct mm_sched_plan *mm_sched_evict(struct mm_sched *s, uint64_t now_ns, bool idle)
{
	const struct mm_sched_plan *p = plan_nothing(s);

	if (s->cold_shrunk)
		cold_evict(s, now_ns);
	if (!mm_sched_owed(s) || (now_ns < s->force_ns && !idle))
		return p;
	/* Blocks that are still being copied for nobody are free when the copy is done. */
	while (mm_kvblocks_displaced(&s->kv) > s->kv.free_blocks + s->n_orphans && s->n_running) {
		const uint32_t seq = cheapest_victim(s, !idle);
		const bool swap = s->seqs[seq].computed >= s->config.swap_tokens;

		seq_preempt(s, seq, swap, now_ns);
	}
	return p;
}

/* Is a block of @chunk being copied to an entry? It may not move then. */
static bool chunk_is_copied(const struct mm_sched *s, uint32_t chunk)
{
	return s->copying && s->copying[chunk];
}

int mm_sched_retire(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		    struct mm_sched_move *ret_moves, uint32_t *ret_n)
{
	const uint32_t chunk = mm_kvblocks_draining_chunk(&s->kv);

	if (chunk == MM_KV_NONE)
		return MM_E_EMPTY;
	if (s->kv.chunks[chunk].used > s->kv.free_blocks || chunk_is_copied(s, chunk))
		return MM_E_FULL;
	*ret_n = move_blocks(s, chunk, now_ns, ret_moves);
	mm_kvblocks_retire_chunk(&s->kv, chunk);
	*ret_chunk = chunk;
	return 0;
}

int mm_sched_compact(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		     struct mm_sched_move *ret_moves, uint32_t *ret_n)
{
	const uint32_t chunk = mm_kvblocks_cheapest_chunk(&s->kv);
	uint32_t used;

	if (chunk == MM_KV_NONE)
		return MM_E_EMPTY;
	used = s->kv.chunks[chunk].used;
	if (chunk_is_copied(s, chunk) || used > s->kv.free_blocks - (s->kv.blocks_per_chunk - used))
		return MM_E_EMPTY;
	mm_kvblocks_drain_chunk(&s->kv, chunk);
	*ret_n = move_blocks(s, chunk, now_ns, ret_moves);
	mm_kvblocks_retire_chunk(&s->kv, chunk);
	*ret_chunk = chunk;
	return 0;
}
