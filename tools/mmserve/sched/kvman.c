/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/sched/kvman.h"

#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"

uint32_t mm_kvman_size_arena(const struct mm_kvman_arena *a, struct mm_sched_config *c)
{
	const uint64_t blocks = mm_div_up(c->max_tokens, c->block_tokens) * c->max_batch;
	const uint64_t pages = a->chunk_bytes / a->page_bytes;
	uint64_t share;

	c->kv_chunks = (uint32_t)MM_MIN(MM_MAX(mm_div_up(blocks, c->kv_blocks_per_chunk), 1),
					MM_MAX(a->pages_max / pages, 1));
	share = a->share_bytes ? MM_MAX(a->share_bytes / a->chunk_bytes, 1) : c->kv_chunks;
	share = MM_MIN(share, c->kv_chunks);
	if (a->fixed)
		c->kv_chunks = (uint32_t)share;
	return (uint32_t)share;
}

int mm_kvman_init(struct mm_kvman *k, const struct mm_kvman_config *config, struct mm_sched *sched,
		  const struct mm_kvman_ops *ops, void *context)
{
	*k = (struct mm_kvman){ .config = *config, .sched = sched, .ops = ops, .context = context };
	k->moves = calloc(sched->kv.blocks_per_chunk, sizeof(*k->moves));
	k->usable = calloc(mm_div_up(sched->kv.n_chunks, 64), sizeof(*k->usable));
	k->retired = calloc(sched->kv.n_chunks, sizeof(*k->retired));
	if (k->moves && k->usable && k->retired)
		return 0;
	mm_kvman_done(k);
	return -ENOMEM;
}

void mm_kvman_done(struct mm_kvman *k)
{
	free(k->moves);
	free(k->usable);
	free(k->retired);
	*k = (struct mm_kvman){ 0 };
}

/* ---- answers and reclaims of the memory's owner ---- */

void mm_kvman_granted(struct mm_kvman *k, uint64_t now_ns)
{
	struct mm_kvblocks *kv = &k->sched->kv;
	const size_t words = mm_div_up(kv->n_chunks, 64);

	k->ops->usable(k->context, k->usable, words);
	for (size_t word = 0; word < words; word++) {
		for (uint64_t new = k->usable[word] & ~kv->held[word]; new; new &= new - 1) {
			const uint32_t bit = (uint32_t)__builtin_ctzll(new);
			const uint32_t chunk = (uint32_t)word * 64 + bit;

			if (chunk < kv->n_chunks)
				mm_kvblocks_add_chunk(kv, chunk, now_ns);
		}
	}
	k->chunks_max = MM_MAX(k->chunks_max, kv->usable_chunks);
}

void mm_kvman_denied(struct mm_kvman *k, uint64_t now_ns)
{
	k->may_grow = false;
	k->retry_at_ns = now_ns + k->config.retry_ns;
}

/*
 * A sequence that ends by itself costs nothing, one that is preempted must be computed again or
 * swapped. So nothing is preempted in the first half of the time, unless two steps take longer than
 * the second half.
 */
void mm_kvman_reclaim(struct mm_kvman *k, uint64_t deadline_ns, uint64_t now_ns)
{
	const uint32_t chunks = k->ops->owed(k->context);
	const uint64_t given = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	const uint64_t reserve = MM_MAX(given / 2, 2 * k->step_ns);

	mm_sched_reclaim(k->sched, chunks, now_ns + (given > reserve ? given - reserve : 0));
}

/* ---- releasing chunks ---- */

static int chunk_give_back(struct mm_kvman *k, uint32_t chunk)
{
	const int r = k->ops->release(k->context, chunk);

	if (r)
		return r;
	mm_kvblocks_remove_chunk(&k->sched->kv, chunk);
	k->chunks_released++;
	k->chunks_asked = 0;
	return 0;
}

/* Second phase: releases retired chunks once the device has done all work that could touch them. */
static int release_retired(struct mm_kvman *k)
{
	int r;

	if (!k->n_retired)
		return 0;
	r = k->ops->marked(k->context);
	while (k->n_retired && !r)
		r = chunk_give_back(k, k->retired[--k->n_retired]);
	return r == -EAGAIN ? 0 : r;
}

/* First phase: the copies precede the next step, as both are on the same stream. */
static int chunk_release_later(struct mm_kvman *k, uint32_t chunk, uint32_t moves)
{
	k->retired[k->n_retired++] = chunk;
	k->blocks_moved += moves;
	return moves ? k->ops->move(k->context, k->moves, moves) : 0;
}

/* Retires all draining chunks that can be emptied now. */
static int retire_chunks(struct mm_kvman *k, uint64_t now_ns)
{
	const uint32_t before = k->n_retired;
	uint32_t chunk, n;
	int r = 0;

	while (!r && !mm_sched_retire(k->sched, now_ns, &chunk, k->moves, &n))
		r = chunk_release_later(k, chunk, n);
	return r || k->n_retired == before ? r : k->ops->mark(k->context);
}

static int arena_compact(struct mm_kvman *k, uint64_t now_ns)
{
	uint32_t chunk, n;
	int r;

	if (mm_sched_compact(k->sched, now_ns, &chunk, k->moves, &n))
		return 0;
	r = chunk_release_later(k, chunk, n);
	return r ? r : k->ops->mark(k->context);
}

/*
 * Releases chunks that are not wanted: at once those that have been empty for idle_ns. If there are
 * none, and fewer chunks than are held have been wanted for idle_ns, it empties and releases one
 * chunk whose blocks fit into the others.
 */
static int arena_trim(struct mm_kvman *k, uint32_t wanted, uint64_t now_ns)
{
	struct mm_kvblocks *kv = &k->sched->kv;
	const uint32_t held = kv->usable_chunks - kv->draining_chunks;
	uint32_t chunk, drained = 0;

	if (k->config.fixed || wanted >= held) {
		k->surplus_since_ns = 0;
		return 0;
	}
	if (!k->surplus_since_ns)
		k->surplus_since_ns = now_ns;
	if (now_ns < k->config.idle_ns)
		return 0;
	for (; drained < held - wanted; drained++) {
		chunk = mm_kvblocks_idle_chunk(kv, now_ns - k->config.idle_ns);
		if (chunk == MM_KV_NONE)
			break;
		mm_kvblocks_drain_chunk(kv, chunk);
	}
	if (drained || now_ns - k->surplus_since_ns < k->config.idle_ns)
		return 0;
	k->surplus_since_ns = now_ns;
	return arena_compact(k, now_ns);
}

/* ---- requesting chunks ---- */

static uint32_t blocks_in_chunks(const struct mm_kvman *k, uint32_t blocks)
{
	const struct mm_kvblocks *kv = &k->sched->kv;

	return MM_MIN((uint32_t)mm_div_up(blocks, kv->blocks_per_chunk), kv->n_chunks);
}

/* Requests chunks ahead of need; it never waits for them. */
static int arena_grow(struct mm_kvman *k, uint32_t wanted, uint64_t now_ns)
{
	int r;

	if (k->may_grow && now_ns >= k->answer_due_ns)
		mm_kvman_denied(k, now_ns);
	/* While chunks are reclaimed or released, no more are requested. */
	if (wanted <= k->sched->kv.usable_chunks || k->sched->kv.draining_chunks) {
		k->may_grow = false;
		return 0;
	}
	if (wanted <= k->chunks_asked && now_ns < k->retry_at_ns)
		return 0;
	r = k->ops->want(k->context, wanted);
	k->chunks_asked = wanted;
	if (r == -EAGAIN) {
		/* Soon after a denial another grant is unlikely: sequences do not wait for it. */
		k->may_grow = k->may_grow || now_ns >= k->retry_at_ns;
		k->answer_due_ns = now_ns + k->config.answer_ns;
		k->retry_at_ns = now_ns + k->config.answer_ns;
		return 0;
	}
	mm_kvman_denied(k, now_ns);
	if (!r)
		mm_kvman_granted(k, now_ns);
	return r == -ENOSPC || r == -EDQUOT ? 0 : r;
}

void mm_kvman_turn(struct mm_kvman *k, bool may_run)
{
	/* A denial of the time without the turn says nothing of what comes in it. */
	if (k->off_turn && may_run) {
		k->may_grow = false;
		k->chunks_asked = 0;
		k->retry_at_ns = 0;
	}
	k->off_turn = !may_run;
}

/*
 * Off turn nothing computes, so waiting for sequences to end would be in vain: they are preempted
 * at once.
 */
const struct mm_sched_plan *mm_kvman_evict(struct mm_kvman *k, uint64_t now_ns)
{
	/* Chunks that were released meanwhile, or are not reclaimed any more, preempt nothing. */
	if (mm_sched_owed(k->sched))
		mm_sched_owe_at_most(k->sched, k->ops->owed(k->context));
	return mm_sched_evict(k->sched, now_ns, k->off_turn);
}

/* ---- cold blocks ---- */

/* Return: the blocks that are to be free for the running ones to grow and the oldest to enter. */
static uint64_t blocks_ahead(const struct mm_sched *s)
{
	uint64_t held = 0, ahead;

	for (uint32_t i = 0; i < s->n_running; i++)
		held += s->seqs[s->running[i]].n_blocks;
	ahead = s->want_running - MM_MIN(held, s->want_running);
	if (s->queue != MM_KV_NONE && s->n_running < s->config.max_batch) {
		const struct mm_seq *head = &s->seqs[s->queue];

		ahead += mm_sched_blocks(s, MM_MIN(head->total + 1, head->limit)) - head->n_cold;
	}
	return ahead;
}

/* Has blocks copied to entries if too few are free, or will be when the copies before are used. */
static int arena_cool(struct mm_kvman *k, uint64_t now_ns)
{
	struct mm_sched *s = k->sched;
	const uint64_t soon = (uint64_t)s->kv.free_blocks + mm_sched_cooling(s);
	struct mm_sched_swap swaps[MM_KVMAN_COOLS];
	uint64_t ahead;
	uint32_t n;
	int r;

	k->cools_more = false;
	if (!s->cold.room || !k->ops->cool)
		return 0;
	ahead = blocks_ahead(s) + mm_kvblocks_displaced(&s->kv);
	if (ahead <= soon)
		return 0;
	n = mm_sched_cool(s, (uint32_t)MM_MIN(ahead - soon, MM_KVMAN_COOLS), swaps);
	if (!n)
		return 0;
	r = k->ops->cool(k->context, swaps, n);
	k->blocks_cooled += r ? 0 : n;
	k->cools_more = !r && n == MM_KVMAN_COOLS && ahead - soon > n;
	for (uint32_t i = 0; i < n && r; i++)
		mm_sched_cooled(s, swaps[i].slot, true, now_ns);
	return r == -EAGAIN ? 0 : r;
}

int mm_kvman_manage(struct mm_kvman *k, uint64_t now_ns)
{
	const uint32_t blocks = mm_sched_blocks_wanted(k->sched);
	/*
	 * Blocks for which there is room in entries are requested nevertheless: while mmd has
	 * memory, prompts are let in at once, and nothing is streamed.
	 */
	const uint32_t cold = mm_sched_cold_words(k->sched);
	const uint32_t wanted = blocks_in_chunks(k, blocks - MM_MIN(blocks, cold));
	const struct mm_kvman_load load = {
		.chunks_used = k->sched->kv.used_chunks,
		.chunks_queued = blocks_in_chunks(k, mm_sched_blocks_queued(k->sched)),
		.waiting = k->sched->n_waiting,
		.running = k->sched->n_running,
	};
	int r;

	k->wanted = wanted;
	k->ops->load(k->context, &load);
	r = arena_grow(k, k->config.fixed ? MM_MAX(wanted, k->config.share_chunks) : wanted,
		       now_ns);
	if (!r)
		r = release_retired(k);
	if (!r)
		r = arena_trim(k, MM_MAX(wanted, k->config.keep_chunks), now_ns);
	if (!r)
		r = retire_chunks(k, now_ns);
	if (!r)
		r = release_retired(k);
	return r ? r : arena_cool(k, now_ns);
}

/* ---- steps ---- */

const struct mm_sched_plan *mm_kvman_plan(struct mm_kvman *k, uint64_t now_ns)
{
	return mm_sched_step(k->sched, now_ns, k->may_grow);
}

void mm_kvman_runs(struct mm_kvman *k)
{
	k->stuck_since_ns = 0;
}

void mm_kvman_ran(struct mm_kvman *k, uint64_t step_ns)
{
	k->step_ns = step_ns;
}

bool mm_kvman_yields(const struct mm_kvman *k)
{
	return !k->may_grow && (k->sched->n_running || k->sched->n_waiting);
}

uint32_t mm_kvman_stuck(struct mm_kvman *k, uint64_t now_ns)
{
	const struct mm_sched *s = k->sched;
	const uint32_t seq = s->n_running ? s->running[0] : s->queue;

	if (seq == MM_KV_NONE) {
		k->stuck_since_ns = 0;
		return MM_KV_NONE;
	}
	if (!k->stuck_since_ns)
		k->stuck_since_ns = now_ns;
	if (now_ns - k->stuck_since_ns < k->config.timeout_ns)
		return MM_KV_NONE;
	k->stuck_since_ns = 0;
	return seq;
}

static uint64_t trim_at_ns(const struct mm_kvman *k)
{
	const struct mm_kvblocks *kv = &k->sched->kv;
	uint64_t since = k->surplus_since_ns;

	if (!since)
		return UINT64_MAX;
	if (kv->oldest != MM_KV_NONE)
		since = MM_MIN(since, kv->chunks[kv->oldest].empty_since_ns);
	return since + k->config.idle_ns;
}

uint64_t mm_kvman_next_ns(const struct mm_kvman *k)
{
	const struct mm_sched *s = k->sched;
	uint64_t next = k->cools_more ? 0 : trim_at_ns(k);

	if (k->may_grow)
		next = MM_MIN(next, k->answer_due_ns);
	else if (k->wanted > s->kv.usable_chunks && !s->kv.draining_chunks)
		next = k->wanted > k->chunks_asked ? 0 : MM_MIN(next, k->retry_at_ns);
	if (mm_sched_owed(s))
		next = k->off_turn ? 0 : MM_MIN(next, s->force_ns);
	if (k->stuck_since_ns)
		next = MM_MIN(next, k->stuck_since_ns + k->config.timeout_ns);
	return next;
}
