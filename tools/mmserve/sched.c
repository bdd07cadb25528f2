/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/sched.h"

#include <errno.h>
#include <string.h>

#include "mm/base.h"

uint32_t mm_sched_blocks(const struct mm_sched *s, uint32_t tokens)
{
	return (uint32_t)mm_div_up(tokens, s->config.block_tokens);
}

static int allocate(struct mm_sched *s)
{
	const struct mm_sched_config *c = &s->config;

	s->seqs = calloc(c->max_seqs, sizeof(*s->seqs));
	s->tables = calloc((size_t)c->max_batch * s->table_stride, sizeof(*s->tables));
	s->running = calloc(c->max_batch, sizeof(*s->running));
	s->rows = calloc(c->max_batch, sizeof(*s->rows));
	s->plan.items = calloc(c->max_batch, sizeof(*s->plan.items));
	s->plan.preempted = calloc(c->max_batch, sizeof(*s->plan.preempted));
	if (!s->seqs || !s->tables || !s->running || !s->rows || !s->plan.items ||
	    !s->plan.preempted)
		return -ENOMEM;
	return mm_kvblocks_init(&s->kv, c->kv_chunks, c->kv_blocks_per_chunk);
}

int mm_sched_init(struct mm_sched *s, const struct mm_sched_config *c)
{
	int r;

	*s = (struct mm_sched){ .config = *c, .queue = MM_KV_NONE };
	if (!c->max_seqs || !c->max_batch || c->max_batched_tokens < c->max_batch ||
	    !c->max_tokens || !c->block_tokens)
		return -EINVAL;
	s->table_stride = mm_sched_blocks(s, c->max_tokens);
	r = allocate(s);
	if (r)
		mm_sched_done(s);
	return r;
}

void mm_sched_done(struct mm_sched *s)
{
	mm_kvblocks_done(&s->kv);
	free(s->seqs);
	free(s->tables);
	free(s->running);
	free(s->rows);
	free(s->plan.items);
	free(s->plan.preempted);
	free(s->plan.swaps);
	free(s->slots);
	*s = (struct mm_sched){ 0 };
}

/* Queues by order: a new sequence goes to the end, a preempted one back to its place. */
static void enqueue(struct mm_sched *s, uint32_t seq)
{
	uint32_t *link = &s->queue;

	while (*link != MM_KV_NONE && s->seqs[*link].order < s->seqs[seq].order)
		link = &s->seqs[*link].next;
	s->seqs[seq].next = *link;
	*link = seq;
	s->seqs[seq].state = MM_SEQ_WAITING;
	s->n_waiting++;
}

static void dequeue(struct mm_sched *s, uint32_t seq)
{
	uint32_t *link = &s->queue;

	while (*link != seq)
		link = &s->seqs[*link].next;
	*link = s->seqs[seq].next;
	s->n_waiting--;
}

int mm_sched_add(struct mm_sched *s, uint32_t prompt, uint32_t output, uint64_t user,
		 uint32_t *ret_seq)
{
	const uint64_t limit = (uint64_t)prompt + output;
	const uint64_t arena = (uint64_t)s->kv.n_chunks * s->kv.blocks_per_chunk;
	uint32_t seq = s->free_hint;

	if (!prompt || !output || limit > s->config.max_tokens ||
	    mm_sched_blocks(s, (uint32_t)limit) > arena)
		return MM_E_RANGE;
	while (seq < s->config.max_seqs && s->seqs[seq].state != MM_SEQ_FREE)
		seq++;
	s->free_hint = seq;
	if (seq == s->config.max_seqs)
		return MM_E_FULL;
	s->seqs[seq] = (struct mm_seq){ .order = s->next_order++,
					.user = user,
					.prompt = prompt,
					.limit = (uint32_t)limit,
					.total = prompt };
	enqueue(s, seq);
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

/* All or nothing: blocks for the first @tokens tokens of @q. */
static bool reserve(struct mm_sched *s, struct mm_seq *q, uint32_t tokens)
{
	const uint32_t need = mm_sched_blocks(s, tokens);

	if (need > q->n_blocks && need - q->n_blocks > s->kv.free_blocks)
		return false;
	while (q->n_blocks < need)
		table_of(s, q)[q->n_blocks++] = mm_kvblocks_get(&s->kv);
	return true;
}

/* Takes @seq off the batch: its blocks fall free, its row too. */
static void leave(struct mm_sched *s, uint32_t seq, uint64_t now_ns)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t i = 0;

	while (q->n_blocks)
		mm_kvblocks_put(&s->kv, table_of(s, q)[--q->n_blocks], now_ns);
	s->rows[q->row] = false;
	while (s->running[i] != seq)
		i++;
	s->n_running--;
	memmove(s->running + i, s->running + i + 1, (s->n_running - i) * sizeof(*s->running));
}

/* ---- swap space ---- */

int mm_sched_set_swap(struct mm_sched *s, uint32_t slots)
{
	const size_t blocks = (size_t)s->kv.n_chunks * s->kv.blocks_per_chunk;

	s->slots = calloc(slots, sizeof(*s->slots));
	s->plan.swaps = calloc(blocks, sizeof(*s->plan.swaps));
	if (!s->slots || !s->plan.swaps)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		s->slots[i] = i + 1;
	s->n_slots = s->free_slots = slots;
	return 0;
}

static uint32_t slot_get(struct mm_sched *s)
{
	const uint32_t slot = s->free_slot;

	s->free_slot = s->slots[slot];
	s->free_slots--;
	return slot;
}

static void slot_put(struct mm_sched *s, uint32_t slot)
{
	s->slots[slot] = s->free_slot;
	s->free_slot = slot;
	s->free_slots++;
}

static void plan_swap(struct mm_sched *s, uint32_t seq, uint32_t block, uint32_t slot)
{
	s->plan.swaps[s->plan.n_swaps++] = (struct mm_sched_swap){ seq, block, slot };
}

/* All or nothing. A running sequence's computed blocks get slots, in order. */
static bool swap_out(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	const uint32_t n = mm_sched_blocks(s, q->computed);
	uint32_t *link = &q->slot;

	if (!n || n > s->free_slots)
		return false;
	while (q->n_slots < n) {
		*link = slot_get(s);
		plan_swap(s, seq, table_of(s, q)[q->n_slots++], *link);
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
}

/* The sequence has just got its blocks. Its slots are free for whoever is swapped out by a later plan. */
static void swap_in(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	const uint32_t n = q->n_slots;
	uint32_t slot = q->slot;

	for (uint32_t i = 0; i < n; i++, slot = s->slots[slot])
		plan_swap(s, seq, table_of(s, q)[i], slot);
	s->plan.swaps_in = s->plan.swaps_in || n;
	slots_drop(s, q);
}

void mm_sched_swap_failed(struct mm_sched *s, uint32_t seq, uint64_t now_ns)
{
	struct mm_seq *q = &s->seqs[seq];

	slots_drop(s, q);
	q->computed = 0;
	if (q->state != MM_SEQ_RUNNING)
		return;
	leave(s, seq, now_ns);
	enqueue(s, seq);
	s->plan.n_items = 0;
}

/* @swap: its blocks may go to the swap space, by this plan. */
static void preempt(struct mm_sched *s, uint32_t seq, bool swap, uint64_t now_ns)
{
	if (!swap || !swap_out(s, seq))
		s->seqs[seq].computed = 0;
	leave(s, seq, now_ns);
	s->seqs[seq].preemptions++;
	s->preemptions++;
	enqueue(s, seq);
}

static void retire(struct mm_sched *s, uint32_t seq)
{
	s->seqs[seq].state = MM_SEQ_FREE;
	s->free_hint = MM_MIN(s->free_hint, seq);
}

void mm_sched_remove(struct mm_sched *s, uint32_t seq, uint64_t now_ns)
{
	if (s->seqs[seq].state == MM_SEQ_RUNNING)
		leave(s, seq, now_ns);
	else if (s->seqs[seq].state == MM_SEQ_WAITING)
		dequeue(s, seq);
	slots_drop(s, &s->seqs[seq]);
	retire(s, seq);
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

static bool decodes(const struct mm_seq *q)
{
	return q->total - q->computed == 1;
}

/*
 * One token for each decoding sequence, oldest first. A victim is never one that is planned already:
 * those are older than the one that lacks a block.
 */
static void plan_decodes(struct mm_sched *s, uint64_t now_ns, bool may_grow)
{
	struct mm_sched_plan *p = &s->plan;

	for (uint32_t i = 0; i < s->n_running;) {
		const uint32_t seq = s->running[i];
		struct mm_seq *q = &s->seqs[seq];

		if (!decodes(q)) {
			i++;
		} else if (reserve(s, q, q->total)) {
			plan_item(s, seq, 1);
			i++;
		} else if (may_grow) {
			p->stalled++;
			i++;
		} else {
			p->preempted[p->n_preempted++] = s->running[s->n_running - 1];
			preempt(s, s->running[s->n_running - 1], true, now_ns);
		}
	}
}

static uint32_t budget_left(const struct mm_sched *s)
{
	return s->config.max_batched_tokens - s->plan.tokens;
}

/* Prompts, in chunks; their blocks were reserved when they were admitted. */
static void plan_prompt(struct mm_sched *s, uint32_t seq)
{
	const struct mm_seq *q = &s->seqs[seq];
	const uint32_t tokens = MM_MIN(q->total - q->computed, budget_left(s));

	if (tokens)
		plan_item(s, seq, tokens);
}

static void enter(struct mm_sched *s, uint32_t seq)
{
	struct mm_seq *q = &s->seqs[seq];
	uint32_t i = s->n_running++;

	q->state = MM_SEQ_RUNNING;
	for (q->row = 0; s->rows[q->row];)
		q->row++;
	s->rows[q->row] = true;
	for (; i > 0 && s->seqs[s->running[i - 1]].order > q->order; i--)
		s->running[i] = s->running[i - 1];
	s->running[i] = seq;
}

/*
 * The oldest that wait, as long as the whole prompt fits, with one token to spare (or the sequence
 * would be preempted right after its prompt).
 */
static void admit(struct mm_sched *s)
{
	while (s->queue != MM_KV_NONE && s->n_running < s->config.max_batch && budget_left(s)) {
		const uint32_t seq = s->queue;
		struct mm_seq *q = &s->seqs[seq];
		const uint32_t spare = MM_MIN(q->total + 1, q->limit);
		bool reserved;

		if (mm_sched_blocks(s, spare) > s->kv.free_blocks)
			return;
		dequeue(s, seq);
		enter(s, seq);
		reserved = reserve(s, q, q->total);
		mm_assert(reserved);
		swap_in(s, seq);
		plan_prompt(s, seq);
	}
}

const struct mm_sched_plan *mm_sched_step(struct mm_sched *s, uint64_t now_ns, bool may_grow)
{
	struct mm_sched_plan *p = &s->plan;

	p->n_items = p->tokens = p->n_preempted = p->stalled = p->n_swaps = 0;
	p->swaps_in = false;
	plan_decodes(s, now_ns, may_grow);
	for (uint32_t i = 0; i < s->n_running; i++) {
		if (!decodes(&s->seqs[s->running[i]]))
			plan_prompt(s, s->running[i]);
	}
	/*
	 * Whoever lost its blocks must not be let in again by the same step's shortage, and the free
	 * blocks are wanted for those that must leave a chunk.
	 */
	if (!p->n_preempted && !p->stalled && !mm_sched_owed(s))
		admit(s);
	return p;
}

uint32_t mm_sched_commit(struct mm_sched *s, uint64_t now_ns, uint64_t *ret_finished)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->plan.n_items; i++) {
		const struct mm_sched_item *item = &s->plan.items[i];
		struct mm_seq *q = &s->seqs[item->seq];

		q->computed += item->tokens;
		if (!item->samples)
			continue;
		if (++q->total < q->limit)
			continue;
		ret_finished[n++] = q->user;
		leave(s, item->seq, now_ns);
		retire(s, item->seq);
	}
	s->plan.n_items = 0;
	return n;
}

uint32_t mm_sched_blocks_wanted(const struct mm_sched *s, uint32_t lookahead)
{
	const uint64_t arena = (uint64_t)s->kv.n_chunks * s->kv.blocks_per_chunk;
	uint32_t room = s->config.max_batch - s->n_running;
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct mm_seq *q = &s->seqs[s->running[i]];

		blocks += mm_sched_blocks(s, MM_MIN(q->total + lookahead, q->limit));
	}
	for (uint32_t i = s->queue; i != MM_KV_NONE && room; i = s->seqs[i].next, room--)
		blocks +=
			mm_sched_blocks(s, MM_MIN(s->seqs[i].total + lookahead, s->seqs[i].limit));
	return (uint32_t)MM_MIN(blocks, arena);
}

/* Gives every block of @chunk that is in use a new place. */
static uint32_t move_blocks(struct mm_sched *s, uint32_t chunk, uint64_t now_ns,
			    struct mm_sched_move *moves)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct mm_seq *q = &s->seqs[s->running[i]];
		uint32_t *table = table_of(s, q);

		for (uint32_t j = 0; j < q->n_blocks; j++) {
			if (table[j] / s->kv.blocks_per_chunk != chunk)
				continue;
			moves[n].from = table[j];
			moves[n].to = mm_kvblocks_get(&s->kv);
			mm_assert(moves[n].to != MM_KV_NONE);
			mm_kvblocks_put(&s->kv, table[j], now_ns);
			table[j] = moves[n++].to;
		}
	}
	return n;
}

uint32_t mm_sched_reclaim(struct mm_sched *s, uint32_t chunks, uint64_t force_ns)
{
	uint32_t n = 0, chunk;

	if (!mm_sched_owed(s) || force_ns < s->force_ns)
		s->force_ns = force_ns;
	for (; n < chunks; n++) {
		chunk = mm_kvblocks_cheapest_chunk(&s->kv);
		if (chunk == MM_KV_NONE)
			break;
		mm_kvblocks_drain_chunk(&s->kv, chunk);
	}
	return n;
}

/* Of those that run, the one with the fewest tokens to compute again; the oldest only when alone. */
static uint32_t cheapest_victim(const struct mm_sched *s)
{
	uint32_t best = s->running[s->n_running - 1];

	for (uint32_t i = s->n_running - 1; i > 0; i--)
		if (s->seqs[s->running[i]].computed < s->seqs[best].computed)
			best = s->running[i];
	return best;
}

int mm_sched_retire(struct mm_sched *s, uint64_t now_ns, uint32_t *ret_chunk,
		    struct mm_sched_move *ret_moves, uint32_t *ret_n)
{
	const uint32_t chunk = mm_kvblocks_draining_chunk(&s->kv);
	const struct mm_kv_chunk *c;

	if (chunk == MM_KV_NONE)
		return MM_E_EMPTY;
	c = &s->kv.chunks[chunk];
	if (c->used > s->kv.free_blocks && now_ns < s->force_ns)
		return MM_E_FULL;
	while (c->used > s->kv.free_blocks)
		preempt(s, cheapest_victim(s), false, now_ns);
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
	if (used > s->kv.free_blocks - (s->kv.blocks_per_chunk - used))
		return MM_E_EMPTY;
	mm_kvblocks_drain_chunk(&s->kv, chunk);
	*ret_n = move_blocks(s, chunk, now_ns, ret_moves);
	mm_kvblocks_retire_chunk(&s->kv, chunk);
	*ret_chunk = chunk;
	return 0;
}

static const char *check_running(const struct mm_sched *s, uint8_t *owned)
{
	uint64_t last = 0;
	uint32_t blocks = 0;

	for (uint32_t i = 0; i < s->n_running; i++) {
		const struct mm_seq *q = &s->seqs[s->running[i]];

		if (q->state != MM_SEQ_RUNNING || !s->rows[q->row])
			return "a running sequence's state or row is not its own";
		if (i && q->order <= last)
			return "the running are not in order of arrival";
		last = q->order;
		if (q->computed >= q->total || q->total >= q->limit)
			return "a running sequence has nothing left to do";
		if ((uint64_t)q->n_blocks * s->config.block_tokens < q->computed)
			return "computed tokens have no block";
		blocks += q->n_blocks;
		for (uint32_t j = 0; j < q->n_blocks; j++)
			if (owned[table_of(s, q)[j]]++)
				return "a block belongs to two sequences";
	}
	return blocks == s->kv.used_blocks ? NULL : "a block in use belongs to nobody";
}

static const char *check_slots(const struct mm_sched *s, const struct mm_seq *q, uint8_t *owned)
{
	uint32_t slot = q->slot;

	if (q->n_slots != (q->computed ? mm_sched_blocks(s, q->computed) : 0))
		return "a waiting sequence has computed tokens without a slot, or slots without";
	for (uint32_t i = 0; i < q->n_slots; i++, slot = s->slots[slot])
		if (owned[slot]++)
			return "a slot belongs to two sequences";
	return NULL;
}

static const char *check_free_slots(const struct mm_sched *s, uint32_t used, uint8_t *owned)
{
	uint32_t slot = s->free_slot;

	for (uint32_t i = 0; i < s->free_slots; i++, slot = s->slots[slot])
		if (owned[slot]++)
			return "a free slot is somebody's";
	return used + s->free_slots == s->n_slots ? NULL : "a slot is lost";
}

static const char *check_waiting(const struct mm_sched *s)
{
	mm_cleanup(mm_free_ptr) uint8_t *owned = calloc(1, s->n_slots + 1);
	const char *wrong = NULL;
	uint32_t n = 0, slots = 0;

	mm_assert(owned != NULL);

	for (uint32_t i = s->queue; i != MM_KV_NONE; i = s->seqs[i].next, n++) {
		const struct mm_seq *q = &s->seqs[i];

		if (q->state != MM_SEQ_WAITING || q->n_blocks)
			return "a waiting sequence holds something";
		wrong = wrong ? wrong : check_slots(s, q, owned);
		slots += q->n_slots;
		if (q->next != MM_KV_NONE && s->seqs[q->next].order <= q->order)
			return "the waiting are not in order of arrival";
	}
	wrong = wrong ? wrong : check_free_slots(s, slots, owned);
	if (!wrong && n != s->n_waiting)
		return "the queue's length is not its count";
	return wrong;
}

const char *mm_sched_check(const struct mm_sched *s)
{
	const size_t blocks = (size_t)s->kv.n_chunks * s->kv.blocks_per_chunk;
	mm_cleanup(mm_free_ptr) uint8_t *owned = calloc(1, blocks);
	const char *wrong = mm_kvblocks_check(&s->kv);

	mm_assert(owned != NULL);
	if (!wrong)
		wrong = check_running(s, owned);
	return wrong ? wrong : check_waiting(s);
}
