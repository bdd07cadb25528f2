/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend - copies blocks to the swap space and back, between two steps, as in
 * tools/mmserve/engine/suspend.c.
 */
#include "tools/lab/mmsim/suspend.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/engine.h"
#include "tools/lab/mmsim/shell.h"

#define SHARES 8u /* swap space in static shares: about what a turn's KV may be */

int ms_suspend_open(struct ms_tenant *t)
{
	const uint64_t chunk = mm_kv_arena_chunk_total(&t->kv);
	const uint64_t slot = t->kv.block_bytes * t->kv.ranges;
	const uint64_t given_bytes = t->sim->opts.wl->swap_bytes;
	const uint64_t bytes =
		given_bytes == MM_WL_SWAP_AUTO ? SHARES * t->chunks_share * chunk : given_bytes;
	const uint64_t slots = MM_MIN(MM_MAX(bytes / slot, t->e.cold.entries_max), INT32_MAX);
	int r;

	t->e.swap_open = true;
	if (!slots)
		return 0;
	r = mm_core_on_swap_open(t->dev->core, t->sim->now_ns, t->id, slots * slot);
	ms_shell_settle(t->dev);
	if (!r)
		r = mm_sched_set_swap(&t->e.sched, (uint32_t)slots);
	return r || !t->e.cold.entries_max ? r : ms_cold_open(t);
}

static struct mm_swap_piece swap_piece(const struct ms_tenant *t, uint32_t swap)
{
	const struct mm_sched_swap *s = &t->e.plan->swaps[swap];

	return (struct mm_swap_piece){ .arena_offset = mm_kv_arena_offset(&t->kv, s->block),
				       .swap_offset = s->slot * t->kv.block_bytes,
				       .bytes = (uint32_t)t->kv.block_bytes };
}

/* Sends lists of copies, as many as may be under way at once. */
static void swap_lists_send(struct ms_tenant *t)
{
	while (t->e.swap_next < t->e.plan->n_swaps) {
		uint32_t lot = 0, n = 0;

		while (lot < MM_SWAP_LOTS && t->e.lot_used[lot])
			lot++;
		if (lot == MM_SWAP_LOTS)
			return;
		while (n < MM_SWAP_PIECES && t->e.swap_next < t->e.plan->n_swaps)
			t->e.pieces[lot][n++] = swap_piece(t, t->e.swap_next++);
		t->e.lot_used[lot] = true;
		t->e.swaps_flying++;
		ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_SWAP,
						    .arg = { lot, n, t->e.plan->swaps_in } });
	}
}

void ms_suspend_begin(struct ms_tenant *t, const struct mm_sched_plan *plan)
{
	t->e.plan = plan;
	t->e.suspending = true;
	t->e.swap_next = 0;
	t->s.swapped_bytes += plan->n_swaps * t->kv.block_bytes * t->kv.ranges;
	swap_lists_send(t);
}

void ms_suspend_landed(struct ms_tenant *t, uint32_t lot)
{
	mm_assert(t->e.suspending && lot < MM_SWAP_LOTS && t->e.lot_used[lot]);
	t->e.lot_used[lot] = false;
	t->e.swaps_flying--;
	swap_lists_send(t);
	if (t->e.swaps_flying)
		return;
	t->e.suspending = false;
	ms_engine_suspended(t);
}
