/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/suspend.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/clock.h"
#include "libclient/base/base.h"

#define AUTO_SHARES  8u   /* swap space in static shares: about what a turn's KV may be */
#define LEAST_SHARES 2u   /* the same, where mmd has less room, or memory is the tenant's own */
#define POLL_MS      1000 /* longest time between two checks for signals */

static uint64_t slot_bytes(const struct mm_engine *e)
{
	return e->kv.block_bytes * e->kv.ranges;
}

static void go_without(const char *why)
{
	fprintf(stderr, "mmserve: no swap space, what is preempted is computed again: %s\n", why);
}

/*
 * Return: true if swapping is useful and the share is known; else chunks_share is the whole arena.
 */
static bool share_known(const struct mm_engine *e)
{
	return e->memory->swaps && (e->memory->fixed || e->opts.kv_share_bytes);
}

static uint64_t shares_bytes(const struct mm_engine *e, uint64_t shares)
{
	return share_known(e) ? shares * e->chunks_share * mm_kv_arena_chunk_total(&e->kv) : 0;
}

/* Opens a space of *@bytes, or, where mmd has less, of a half or a quarter, but of @least. */
static int space_open(struct mm_engine *e, uint64_t *bytes, uint64_t least)
{
	uint64_t slot = slot_bytes(e);
	int r = e->memory->ops->swap_open(e->memory, *bytes / slot * slot);

	while (r == -EDQUOT && *bytes / 2 >= MM_MAX(least, slot)) {
		*bytes /= 2;
		r = e->memory->ops->swap_open(e->memory, *bytes / slot * slot);
	}
	return r;
}

int mm_suspend_open(struct mm_engine *e)
{
	const bool by_policy = e->opts.swap_bytes == MM_SWAP_AUTO;
	uint64_t bytes = e->opts.swap_bytes, least = bytes;
	int r;

	if (by_policy) {
		least = shares_bytes(e, LEAST_SHARES);
		bytes = e->memory->fixed ? least : shares_bytes(e, AUTO_SHARES);
		least = MM_MAX(least, e->opts.cold * slot_bytes(e));
		bytes = MM_MAX(bytes, least);
	}
	bytes = MM_MIN(bytes / slot_bytes(e), INT32_MAX) * slot_bytes(e);
	if (!bytes)
		return 0;
	if (!e->memory->ops->swap_open) {
		go_without("this memory has none");
		return 0;
	}
	r = space_open(e, &bytes, least);
	if (r == -ECONNRESET)
		return r;
	if (!r)
		r = mm_sched_set_swap(&e->sched, (uint32_t)(bytes / slot_bytes(e)));
	/* No option requested the space, so mmd may have none. */
	if (r && by_policy && !e->memory->fixed)
		return 0;
	if (r)
		go_without(r == -ENOMEM ? strerror(ENOMEM) : e->memory->ops->error(e->memory));
	return 0;
}

/* ---- lists ---- */

struct swap_run { /* of a plan's swaps */
	struct mm_engine *e;
	const struct mm_sched_plan *plan;
	uint64_t now_ns;
	uint32_t flying;      /* lists that were sent and are not done */
	uint32_t first, last; /* the swaps that the current list may have pieces of */
	uint32_t n;
	struct mm_swap_piece pieces[MM_SWAP_PIECES];
};

/* Waits until a list is done, and handles the memory's events meanwhile. */
static int wait_one(struct mm_engine *e, struct mm_swap_done *ret_done)
{
	struct pollfd fd = { .fd = e->memory->ops->event_fd(e->memory), .events = POLLIN };

	for (;;) {
		/*
		 * Events are handled first: a list that is done after that makes the fd readable.
		 */
		int r = mm_engine_events(e);

		if (!r)
			r = e->memory->ops->swap_next(e->memory, ret_done);
		if (r != -EAGAIN)
			return r;
		poll(&fd, 1, POLL_MS);
	}
}

static int suspend_wait(struct swap_run *run)
{
	struct mm_swap_done done = { .size = sizeof(done) };
	const int r = wait_one(run->e, &done);

	if (r || mm_cooler_take(run->e, &done))
		return r;
	run->flying--;
	if (!done.error)
		return 0;
	run->e->stats.swaps_failed++;
	for (uint32_t i = (uint32_t)(done.user_data >> 32); i <= (uint32_t)done.user_data; i++)
		mm_sched_swap_failed(&run->e->sched, run->plan->swaps[i].seq, run->now_ns);
	return 0;
}

static int suspend_flush(struct swap_run *run)
{
	struct mm_memory *m = run->e->memory;
	int r = run->n ? -EAGAIN : 0;

	while (r == -EAGAIN) {
		r = m->ops->swap(m, run->plan->swaps_in, run->pieces, run->n,
				 (uint64_t)run->first << 32 | run->last);
		run->flying += !r;
		if (r != -EAGAIN)
			break;
		/* As many lists as possible are under way: one must be done first. */
		r = run->flying ? suspend_wait(run) : -EPROTO;
		if (!r)
			r = -EAGAIN;
	}
	run->n = 0;
	return r;
}

static int suspend_add_piece(struct swap_run *run, uint32_t swap, uint32_t range)
{
	const struct mm_kv_arena *kv = &run->e->kv;
	const struct mm_sched_swap *s = &run->plan->swaps[swap];
	const uint64_t part = (uint64_t)range * run->e->sched.n_slots + s->slot;

	run->pieces[run->n++] =
		(struct mm_swap_piece){ .arena_offset = mm_kv_arena_offset(kv, s->block),
					.swap_offset = part * kv->block_bytes,
					.bytes = (uint32_t)kv->block_bytes,
					.range = range };
	return run->n == MM_SWAP_PIECES ? suspend_flush(run) : 0;
}

/* Adds the pieces range by range, so that pieces of adjacent blocks follow each other. */
static int suspend_send_range(struct swap_run *run, uint32_t first, uint32_t end)
{
	int r = 0;

	run->first = first;
	run->last = end - 1;
	for (uint32_t range = 0; range < run->e->kv.ranges; range++)
		for (uint32_t i = first; i < end && !r; i++)
			r = suspend_add_piece(run, i, range);
	return r ? r : suspend_flush(run);
}

/*
 * Waits for moves of blocks: these may be swapped out now, and mmd's copies are not ordered with
 * the engine's stream.
 */
static int moves_settle(struct mm_engine *e)
{
	const CUresult res = e->memory->gpu->cuStreamSynchronize(e->forward.stream);

	if (res)
		snprintf(e->err, MM_SERVE_ERROR_BYTES, "cannot move KV blocks: %s",
			 mm_gpu_strerror(e->memory->gpu, res));
	return mm_gpu_errno(res);
}

int mm_suspend_run(struct mm_engine *e, const struct mm_sched_plan *plan)
{
	const uint32_t each = MM_MAX(MM_SWAP_PIECES / e->kv.ranges, 1);
	const uint64_t begin = mm_now_ns(), bytes = plan->n_swaps * slot_bytes(e);
	struct swap_run run = { .e = e, .plan = plan, .now_ns = begin };
	int r = moves_settle(e);

	for (uint32_t i = 0; i < plan->n_swaps && !r; i += each)
		r = suspend_send_range(&run, i, MM_MIN(i + each, plan->n_swaps));
	while (run.flying && !r)
		r = suspend_wait(&run);
	if (plan->swaps_in)
		e->stats.swapped_in_bytes += bytes;
	else
		e->stats.swapped_out_bytes += bytes;
	e->stats.swap_s += mm_stamps_seconds(&e->stamps, mm_now_ns() - begin);
	if (r && r != -EINTR && !*e->err)
		snprintf(e->err, MM_SERVE_ERROR_BYTES, "cannot swap: %.1000s",
			 e->memory->ops->error(e->memory));
	return r;
}
