/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/cooler.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/support/clock.h"
#include "libclient/support/size.h"
#include "mm/abi.h"
#include "tools/mmserve/engine/engine.h"
#include "tools/mmserve/engine/lender.h"

#define COOL_MARK (UINT64_C(1) << 63) /* in user_data: the list is one of entries */

static uint64_t layer_unit_bytes(const struct mm_engine *e)
{
	return 2 * e->kv.part_bytes;
}

/* Return: the chunks of a window for @entries, 1 or more. */
static uint32_t window_chunks(const struct mm_engine *e, uint32_t entries)
{
	const uint64_t units =
		(uint64_t)e->cooler.classes * (entries - 1) + e->weights->arch.layers;

	return (uint32_t)mm_div_up(units * layer_unit_bytes(e), e->kv.chunk_bytes);
}

static int MM_PRINTF(2, 3) cooler_refuse(struct mm_engine *e, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(e->err, MM_SERVE_ERROR_BYTES, "--cold %u: %s", e->opts.cold, text);
	return -EINVAL;
}

int mm_cooler_reserve(struct mm_engine *e)
{
	uint32_t chunks;

	if (!e->opts.cold)
		return 0;
	if (e->kv.ranges != 1)
		return cooler_refuse(e, "blocks lie in one piece only with --kv-layout "
					"block-major");
	if (layer_unit_bytes(e) % MM_COLD_UNIT_BYTES)
		return cooler_refuse(e,
				     "a block has %llu bytes in a layer, which must be a multiple "
				     "of %d: change --block-tokens",
				     (unsigned long long)layer_unit_bytes(e), MM_COLD_UNIT_BYTES);
	e->cooler.classes = MM_COLD_CLASSES_MAX;
	chunks = window_chunks(e, e->opts.cold);
	if (chunks >= e->memory->kv_pages_max / (e->kv.chunk_bytes / e->memory->page_bytes))
		return cooler_refuse(e, "the window alone would take all KV memory");
	e->cooler.chunks_max = chunks;
	return 0;
}

int mm_cooler_divide(struct mm_engine *e, uint32_t *chunks)
{
	const uint32_t window = e->cooler.chunks_max;

	if (!e->memory->fixed || !window)
		return 0;
	if (*chunks <= window) {
		cooler_refuse(e, "the window takes %u chunks, and the share has %u", window,
			      *chunks);
		return -E2BIG;
	}
	*chunks -= window;
	return 0;
}

int mm_cooler_open(struct mm_engine *e)
{
	const struct mm_cold_opts opts = { .size = sizeof(opts),
					   .unit_bytes = layer_unit_bytes(e),
					   .layers = e->weights->arch.layers,
					   .entries_max = e->opts.cold,
					   .floor = e->opts.cold };
	struct mm_cooler *c = &e->cooler;
	char size[32];
	int r;

	if (!e->opts.cold)
		return 0;
	if (!e->memory->ops->cold_open)
		return cooler_refuse(e, "this memory has no cold blocks");
	if (e->sched.n_slots < e->opts.cold)
		return cooler_refuse(e,
				     "each needs a block of the swap space, which has %u: "
				     "give it %s or more (--swap, and --swap-max of mmd)",
				     e->sched.n_slots,
				     mm_size_print(e->opts.cold * e->kv.block_bytes, size));
	r = e->memory->ops->cold_open(e->memory, &opts, &c->classes);
	if (r)
		return mm_lender_fail(e, r, "--cold");
	c->entries = e->opts.cold;
	c->chunks = window_chunks(e, c->entries);
	c->state.size = sizeof(c->state);
	r = mm_sched_set_cold(&e->sched, c->entries);
	if (e->memory->fixed)
		e->kvman.config.share_chunks = e->sched.kv.n_chunks;
	return r ? mm_lender_fail(e, r, "--cold") : 0;
}

uint32_t mm_cooler_address(const struct mm_engine *e, uint32_t entry)
{
	const struct mm_cooler *c = &e->cooler;
	const uint64_t window = c->state.window_first * e->kv.chunk_bytes;

	mm_assert(entry < e->sched.cold.room);
	return (uint32_t)((window + (uint64_t)c->classes * entry * layer_unit_bytes(e)) /
			  MM_KV_UNIT_BYTES);
}

/* ---- copies to entries ---- */

int mm_cooler_begin(struct mm_engine *e, const struct mm_sched_swap *swaps, uint32_t n)
{
	struct mm_swap_piece pieces[MM_KVMAN_COOLS];
	struct mm_cool_list *list = e->cooler.lists;
	const struct mm_cool_list *end = list + MM_COOL_LISTS;
	int r;

	while (list < end && list->n)
		list++;
	/* mmd's copies are not ordered with the engine's stream: moves must be done. */
	if (list == end ||
	    (e->kvman.n_retired && e->memory->gpu->cuEventQuery(e->retired_done) != CUDA_SUCCESS))
		return -EAGAIN;
	for (uint32_t i = 0; i < n; i++) {
		pieces[i] = (struct mm_swap_piece){
			.arena_offset = mm_kv_arena_offset(&e->kv, swaps[i].block),
			.swap_offset = swaps[i].slot * e->kv.block_bytes,
			.bytes = (uint32_t)e->kv.block_bytes,
		};
		list->entries[i] = swaps[i].slot;
	}
	r = e->memory->ops->swap(e->memory, false, pieces, n,
				 COOL_MARK | (uint64_t)(list - e->cooler.lists));
	if (r)
		return r == -EAGAIN ? r : mm_lender_fail(e, r, "cannot copy KV blocks");
	list->n = n;
	return 0;
}

bool mm_cooler_take(struct mm_engine *e, const struct mm_swap_done *done)
{
	struct mm_cool_list *list;

	if (!(done->user_data & COOL_MARK))
		return false;
	list = &e->cooler.lists[done->user_data & ~COOL_MARK];
	e->stats.swaps_failed += done->error != 0;
	if (!done->error)
		e->stats.cold_out_bytes += list->n * e->kv.block_bytes;
	for (uint32_t i = 0; i < list->n; i++)
		mm_sched_cooled(&e->sched, list->entries[i], done->error, mm_now_ns());
	list->n = 0;
	return true;
}

static int lists_take(struct mm_engine *e)
{
	struct mm_swap_done done = { .size = sizeof(done) };
	int r;

	while (!(r = e->memory->ops->swap_next(e->memory, &done))) {
		const bool taken = mm_cooler_take(e, &done);

		mm_assert(taken); /* the others are waited for by those who sent them */
	}
	return r == -EAGAIN ? 0 : mm_lender_fail(e, r, "cannot copy KV blocks");
}

/* Tells mmd which entries are live. */
static int live_commit(struct mm_engine *e)
{
	struct mm_kvcold *pool = &e->sched.cold;
	bool live, any = mm_kvcold_is_due(pool);
	uint32_t entry;

	while (mm_kvcold_changed(pool, &entry, &live)) {
		const int r = e->memory->ops->cold_set(e->memory, entry, live);

		if (r)
			return mm_lender_fail(e, r, "cannot name a cold block");
		any = true;
	}
	if (any)
		mm_kvcold_committed(pool, e->memory->ops->cold_commit(e->memory));
	return 0;
}

/* ---- the window ---- */

static uint32_t window_end(const struct mm_engine *e)
{
	return e->sched.kv.n_chunks + e->cooler.chunks_max;
}

/* At the arena's end: all free chunks from there on are granted before those of hot blocks. */
static uint32_t window_first(const struct mm_engine *e)
{
	return window_end(e) - e->cooler.chunks;
}

static int window_want(struct mm_engine *e, uint32_t hot)
{
	const struct mm_cooler *c = &e->cooler;

	return e->memory->ops->kv_want(e->memory, hot + (c->open ? c->chunks : c->held),
				       window_first(e));
}

int mm_cooler_want(struct mm_engine *e, uint32_t chunks_total)
{
	struct mm_cooler *c = &e->cooler;

	if (c->entries && e->memory->fixed) {
		chunks_total = MM_MIN(chunks_total, e->kvman.config.share_chunks);
		if (chunks_total <= e->sched.kv.usable_chunks)
			return -ENOSPC;
	}
	c->asked = chunks_total;
	return window_want(e, chunks_total);
}

uint32_t mm_cooler_owed(struct mm_engine *e)
{
	struct mm_cooler *c = &e->cooler;
	const uint32_t owed = e->memory->ops->kv_owed(e->memory);

	if (c->held && owed > e->sched.kv.usable_chunks)
		c->yields = true;
	return c->yields || !c->open ? owed - MM_MIN(owed, c->held) : owed;
}

static int window_chunk_release(struct mm_engine *e, uint32_t chunk)
{
	const int r = e->memory->ops->kv_release(e->memory, chunk);

	/* The demand has become less by it. */
	e->kvman.chunks_asked = 0;
	e->kvman.retry_at_ns = 0;
	return r ? mm_lender_fail(e, r, "cannot give a KV chunk back") : 0;
}

/*
 * Counts the chunks behind those of hot blocks that are usable, from @keep on; those before it go
 * back: they were granted for a larger window, or for one that has ended, and nobody uses them.
 */
static int window_look(struct mm_engine *e, uint32_t keep)
{
	const uint32_t end = window_end(e);
	uint64_t usable[MM_MAP_ENTRIES / 64] = { 0 };
	int r = 0;

	e->cooler.held = 0;
	e->memory->ops->kv_usable(e->memory, usable, mm_div_up(end, 64));
	for (uint32_t i = e->sched.kv.n_chunks; i < end && !r; i++) {
		if (!(usable[i / 64] >> i % 64 & 1))
			continue;
		e->cooler.held += i >= keep;
		if (i < keep && !e->memory->fixed)
			r = window_chunk_release(e, i);
	}
	return r;
}

static int window_request(struct mm_engine *e, uint32_t chunks)
{
	const int r = e->memory->ops->cold_window(e->memory, window_first(e), chunks);

	return !r || r == -EBUSY || r == -ENOENT ? 0 : mm_lender_fail(e, r, "--cold: no window");
}

static int window_fill(struct mm_engine *e, uint64_t now_ns)
{
	struct mm_cooler *c = &e->cooler;
	int r;

	if (now_ns < c->want_ns)
		return 0;
	c->want_ns = now_ns + e->kvman.config.retry_ns;
	r = window_want(e, MM_MAX(e->sched.kv.usable_chunks, c->asked));
	if (r && r != -EAGAIN && r != -ENOSPC && r != -EDQUOT)
		return mm_lender_fail(e, r, "cannot ask for KV memory");
	return window_look(e, window_first(e));
}

/* Requests its chunks, and once all are there, that they be the window. */
static int window_pursue(struct mm_engine *e, uint64_t now_ns)
{
	struct mm_cooler *c = &e->cooler;
	int r = c->held < c->chunks ? window_fill(e, now_ns) : 0;

	if (r || c->held < c->chunks || now_ns < c->request_ns)
		return r;
	c->request_ns = now_ns + e->kvman.config.retry_ns;
	return window_request(e, c->chunks);
}

/* Return: the chunks of a window that starves hot blocks less; 0: there is to be none. */
static uint32_t window_halve(const struct mm_engine *e)
{
	const uint32_t least = window_chunks(e, 1);

	return e->cooler.chunks == least ? 0 : MM_MAX(e->cooler.chunks / 2, least);
}

static int window_release(struct mm_engine *e, uint64_t now_ns)
{
	struct mm_cooler *c = &e->cooler;
	const int r = window_look(e, window_end(e));

	c->chunks = c->starves ? window_halve(e) : window_chunks(e, c->entries);
	c->starves = c->yields = false;
	c->want_ns = now_ns + e->kvman.config.retry_ns;
	return r;
}

/*
 * Nothing can run, and the window may be why. It ends then, and the next one is half as large,
 * until there has been no work for a while.
 */
static bool window_starves(const struct mm_engine *e, uint64_t now_ns)
{
	const uint64_t since_ns = e->kvman.stuck_since_ns;

	return e->cooler.held && since_ns && now_ns - since_ns > e->kvman.config.answer_ns / 4;
}

static bool window_is_wanted(struct mm_engine *e, uint64_t now_ns)
{
	struct mm_cooler *c = &e->cooler;
	bool idle;

	if (!c->busy_ns || e->sched.n_running || e->sched.n_waiting)
		c->busy_ns = now_ns;
	if (e->memory->fixed)
		return c->state.limit != 0;
	if (window_starves(e, now_ns))
		c->starves = c->yields = true;
	idle = now_ns - c->busy_ns > e->kvman.config.idle_ns;
	if (idle && !c->held)
		c->chunks = window_chunks(e, c->entries);
	return c->state.limit && c->chunks && !c->yields && !idle;
}

static int window_turn(struct mm_engine *e, uint64_t now_ns)
{
	struct mm_cooler *c = &e->cooler;
	const int error = c->state.error;
	int r = 0;

	if (error && error != -EBUSY && error != -ENOENT && error != -ECANCELED) {
		cooler_refuse(e, "mmd refused the window: %s", strerror(-error));
		return error;
	}
	c->open = window_is_wanted(e, now_ns);
	if (c->state.pending)
		return 0;
	if (!c->state.window_chunks)
		r = window_look(e, window_first(e));
	if (r)
		return r;
	if (c->open)
		return c->state.window_chunks ? 0 : window_pursue(e, now_ns);
	if (!c->state.window_chunks)
		return c->held ? window_release(e, now_ns) : 0;
	/* The sequences that read entries are evicted first. */
	return e->sched.cold.room || mm_sched_cold_words(&e->sched) ? 0 : window_request(e, 0);
}

int mm_cooler_turn(struct mm_engine *e, uint64_t now_ns)
{
	struct mm_cooler *c = &e->cooler;
	int r;

	if (!c->entries)
		return 0;
	r = lists_take(e);
	if (!r)
		r = live_commit(e);
	if (r)
		return r;
	r = e->memory->ops->cold_state(e->memory, &c->state);
	if (r)
		return mm_lender_fail(e, r, "--cold");
	r = window_turn(e, now_ns);
	if (r)
		return r;
	/* One that is to end may do so during any step from now on. */
	mm_sched_cold_room(&e->sched, c->open && !c->state.pending && c->state.window_chunks
					      ? MM_MIN(c->state.limit, c->state.entries)
					      : 0);
	mm_sched_cold_acked(&e->sched, c->state.acked, now_ns);
	return 0;
}

void mm_cooler_count(struct mm_engine *e, const struct mm_sched_plan *plan)
{
	struct mm_stats *stats = &e->stats;

	if (!e->cooler.entries)
		return;
	stats->cold_entries_max = MM_MAX(stats->cold_entries_max, e->sched.cold.n_live);
	for (uint32_t i = 0; i < plan->n_items; i++) {
		const struct mm_seq *q = &e->sched.seqs[plan->items[i].seq];

		stats->blocks_read += q->n_blocks;
		stats->cold_read += q->n_cold;
	}
}
