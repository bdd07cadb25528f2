/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/cold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/engine.h"
#include "tools/lab/mmsim/pie.h"

#define LISTS_MAX      4u /* lists to entries under way at once; the rest is left to preemptions */
#define BITS           64u
#define LACKS_NS       (100 * MM_NS_PER_MS) /* until chunks that a window lacks are given for it */
#define GIVES_NS       MM_NS_PER_S          /* until further ones are */
#define OFFERED_SHARES 4u /* of a tenant's share: cold blocks that are declared for the market */

/* ---- sizes ---- */

static uint64_t unit_bytes(const struct ms_tenant *t)
{
	return t->kv.block_bytes / t->n_layers;
}

static uint32_t entries_in(const struct ms_tenant *t, uint32_t chunks)
{
	return mm_cold_window_entries(mm_cold_layer_classes(t->n_layers), t->n_layers,
				      unit_bytes(t), chunks * mm_kv_arena_chunk_total(&t->kv));
}

uint32_t ms_cold_chunks(const struct ms_tenant *t, uint32_t entries)
{
	if (!entries)
		return 0;
	return (uint32_t)mm_div_up(mm_cold_window_bytes(mm_cold_layer_classes(t->n_layers),
							t->n_layers, unit_bytes(t), entries),
				   mm_kv_arena_chunk_total(&t->kv));
}

/* Does the market, or Pie, decide how many may be live? Then there is no floor. */
static bool is_offered(const struct ms_tenant *t)
{
	return t->dev->opts.cold == MM_SWITCH_ON || ms_pie_is_on(t);
}

uint32_t ms_cold_entries(const struct ms_tenant *t)
{
	const struct mm_core_opts *opts = &t->dev->opts;
	const uint32_t given = t->sim->opts.wl->cold_entries;
	uint64_t pages = MM_SLOT_PAGES_MAX, most;

	if (given || !is_offered(t))
		return given;
	most = t->sizes->kv_share_bytes / t->kv.block_bytes * OFFERED_SHARES;
	if (ms_pie_is_on(t))
		most = ms_pie_entries(t);
	pages = pages / t->chunk_pages * t->chunk_pages;
	return (uint32_t)MM_MIN(most, mm_cold_window_entries(mm_cold_layer_classes(t->n_layers),
							     t->n_layers, unit_bytes(t),
							     pages * opts->page_bytes));
}

bool ms_cold_is_on(const struct ms_tenant *t)
{
	return ms_cold_entries(t) && t->e.swaps && !t->e.fixed && t->kv.ranges == 1 &&
	       t->n_layers >= MM_COLD_CLASSES_MAX &&
	       t->kv.block_bytes % (t->n_layers * MM_COLD_UNIT_BYTES) == 0;
}

/* ---- life ---- */

int ms_cold_init(struct ms_tenant *t, uint32_t first)
{
	struct ms_cold *cold = &t->e.cold;
	const size_t words = mm_div_up(ms_cold_entries(t), BITS);

	if (!ms_cold_is_on(t))
		return 0;
	cold->first = first;
	cold->entries_max = ms_cold_entries(t);
	cold->window_max = ms_cold_chunks(t, cold->entries_max);
	cold->landed.item_bytes = sizeof(uint32_t);
	cold->live = calloc(words, sizeof(*cold->live));
	if (t->sim->opts.check == 1)
		cold->seen = calloc(words * MM_COLD_CLASSES_MAX, sizeof(*cold->seen));
	return cold->live && (t->sim->opts.check != 1 || cold->seen) ? 0 : -ENOMEM;
}

void ms_cold_done(struct ms_tenant *t)
{
	free(t->e.cold.live);
	free(t->e.cold.seen);
	ms_fifo_done(&t->e.cold.landed);
}

int ms_cold_open(struct ms_tenant *t)
{
	struct ms_cold *cold = &t->e.cold;

	cold->open_sent = true;
	ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_COLD_OPEN,
					    .arg = { unit_bytes(t), t->n_layers, cold->entries_max,
						     is_offered(t) ? 0 : cold->entries_max } });
	return mm_sched_set_cold(&t->e.sched, cold->entries_max);
}

void ms_cold_replied(struct ms_tenant *t, const struct mm_msg *msg)
{
	struct ms_cold *cold = &t->e.cold;

	if (msg->arg[0] == MM_OP_COLD_OPEN) {
		cold->open = true;
		return;
	}
	cold->pending = false;
	if (!msg->result)
		cold->window = cold->requested;
	ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_COLD, .error = msg->result });
}

void ms_cold_limited(struct ms_tenant *t, const struct mm_msg *msg)
{
	t->e.cold.limit = (uint32_t)msg->arg[0];
	t->e.cold.deadline_ns = msg->arg[1];
	ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_COLD, .deadline_ns = msg->arg[1] });
}

bool ms_cold_is_ready(const struct ms_tenant *t)
{
	const struct ms_cold *cold = &t->e.cold;

	return !cold->entries_max || (is_offered(t) && cold->open) ||
	       (cold->open && cold->limit && !cold->pending && cold->window == cold->window_max);
}

/* ---- the window ---- */

/* An engine that has had nothing to do for a while gives its window back. */
static bool window_is_useful(const struct ms_tenant *t)
{
	return t->e.cold.open && t->sim->now_ns - t->e.cold.busy_ns <= t->e.kvman.config.idle_ns;
}

static uint32_t window_wanted(const struct ms_tenant *t)
{
	const struct ms_cold *cold = &t->e.cold;

	return window_is_useful(t) ? ms_cold_chunks(t, MM_MIN(cold->limit, cold->entries_max)) : 0;
}

bool ms_cold_is_in_force(const struct ms_tenant *t)
{
	return !t->e.cold.pending && window_wanted(t) == t->e.cold.window;
}

uint64_t ms_cold_next_ns(const struct ms_tenant *t)
{
	const struct ms_cold *cold = &t->e.cold;

	if (!cold->window || !window_is_useful(t))
		return UINT64_MAX;
	return cold->busy_ns + t->e.kvman.config.idle_ns + 1;
}

uint32_t ms_cold_held(const struct ms_tenant *t)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->e.cold.window_max; i++)
		n += ms_kv_has(t, t->e.cold.first + i);
	return n;
}

uint32_t ms_cold_wants(const struct ms_tenant *t)
{
	return MM_MAX(window_wanted(t), ms_cold_held(t));
}

static uint32_t arena_end(const struct ms_tenant *t)
{
	return t->e.cold.first + t->e.cold.window_max;
}

uint32_t ms_cold_first(const struct ms_tenant *t)
{
	return t->e.cold.entries_max ? arena_end(t) - window_wanted(t) : 0;
}

/* Are the last @chunks chunks of the arena there? */
static bool window_is_possible(const struct ms_tenant *t, uint32_t chunks)
{
	uint32_t n = 0;

	while (n < chunks && ms_kv_has(t, arena_end(t) - 1 - n))
		n++;
	return n == chunks;
}

/* Is an entry from @room on live? Those that block tables name are. */
static bool live_beyond(const struct ms_tenant *t, uint32_t room)
{
	const struct ms_cold *cold = &t->e.cold;

	for (uint32_t i = room; i < cold->entries_max; i++)
		if (cold->live[i / BITS] >> i % BITS & 1)
			return true;
	return false;
}

static void window_request(struct ms_tenant *t, uint32_t chunks)
{
	struct ms_cold *cold = &t->e.cold;

	cold->requested = chunks;
	cold->pending = true;
	ms_client_send(t,
		       &(struct mm_msg){ .opcode = MM_OP_COLD_WINDOW,
					 .arg = { chunks ? arena_end(t) - chunks : 0, chunks } });
}

/* Gives back the chunks that no window needs. */
static void window_release(struct ms_tenant *t, uint32_t wanted)
{
	const uint32_t end = arena_end(t) - MM_MAX(wanted, t->e.cold.window);

	for (uint32_t chunk = t->e.cold.first; chunk < end; chunk++)
		if (ms_kv_has(t, chunk))
			ms_kv_release(t, chunk);
}

uint32_t ms_cold_lacks(const struct ms_tenant *t)
{
	const struct ms_cold *cold = &t->e.cold;

	return t->c.released < cold->gives_at ? (uint32_t)(cold->gives_at - t->c.released) : 0;
}

/*
 * mmd has no memory for the window where it has given all to this tenant: then some chunks of
 * kvman's are emptied and released, and come back as the window's.
 */
static void window_await(struct ms_tenant *t)
{
	struct ms_cold *cold = &t->e.cold;
	const uint32_t wanted = window_wanted(t), held = ms_cold_held(t);
	const uint64_t now_ns = t->sim->now_ns;

	if (held >= wanted) {
		cold->lacks_ns = 0;
		cold->gives_at = t->c.released;
	} else if (!cold->lacks_ns) {
		cold->lacks_ns = now_ns + LACKS_NS;
	} else if (now_ns >= cold->lacks_ns && !ms_cold_lacks(t)) {
		cold->gives_at = t->c.released + (wanted - held);
		cold->lacks_ns = now_ns + GIVES_NS;
		mm_sched_reclaim(&t->e.sched, ms_kv_owed(t), now_ns + LACKS_NS);
	}
}

static void window_adjust(struct ms_tenant *t)
{
	struct ms_cold *cold = &t->e.cold;
	const uint32_t wanted = window_wanted(t), now = MM_MIN(wanted, cold->window);
	uint32_t room = MM_MIN(entries_in(t, now), MM_MIN(cold->limit, cold->entries_max));

	/* Without a deadline what is cold stays so until it ends by itself. */
	if (!cold->deadline_ns && room < t->e.sched.cold.room &&
	    (cold->flying || live_beyond(t, room)))
		room = t->e.sched.cold.room;
	if (t->e.sched.cold.room != room)
		mm_sched_cold_room(&t->e.sched, room);
	if (cold->pending)
		return;
	window_release(t, wanted);
	window_await(t);
	if (wanted > cold->window && window_is_possible(t, wanted))
		window_request(t, wanted);
	else if (wanted < cold->window && room <= entries_in(t, wanted) && !live_beyond(t, room))
		window_request(t, wanted);
}

/* ---- entries ---- */

static void live_set(struct ms_cold *cold, uint32_t entry, bool live)
{
	uint64_t *word = &cold->live[entry / BITS];
	const uint64_t bit = UINT64_C(1) << entry % BITS;

	cold->n_live += live;
	cold->n_live -= *word & bit ? 1 : 0;
	*word = live ? *word | bit : *word & ~bit;
}

static void live_commit(struct ms_tenant *t)
{
	struct ms_cold *cold = &t->e.cold;
	bool due = mm_kvcold_is_due(&t->e.sched.cold);
	uint32_t entry;
	bool live;

	while (mm_kvcold_changed(&t->e.sched.cold, &entry, &live)) {
		live_set(cold, entry, live);
		due = true;
	}
	if (due)
		mm_kvcold_committed(&t->e.sched.cold, ++cold->version);
}

static void lists_take(struct ms_tenant *t)
{
	struct ms_cold *cold = &t->e.cold;
	const uint32_t *landed;

	while ((landed = ms_fifo_at(&cold->landed, 0))) {
		const uint32_t lot = *landed;

		ms_fifo_drop(&cold->landed);
		for (uint32_t i = 0; i < cold->n[lot]; i++)
			mm_sched_cooled(&t->e.sched, cold->entry[lot][i], false, t->sim->now_ns);
		cold->n[lot] = 0;
		t->e.lot_used[lot] = false;
		cold->flying--;
	}
}

void ms_cold_poll(struct ms_tenant *t)
{
	struct ms_cold *cold = &t->e.cold;

	if (!cold->open)
		return;
	if (t->e.sched.n_running || t->e.sched.n_waiting || !t->sim->started)
		cold->busy_ns = t->sim->now_ns;
	lists_take(t);
	window_adjust(t);
	live_commit(t);
	cold->used = t->x.cold_acked;
	mm_sched_cold_acked(&t->e.sched, cold->used, t->sim->now_ns);
	if (cold->chunks_asked != cold->chunks_hot + ms_cold_wants(t))
		ms_kv_want(t, cold->chunks_hot);
}

int ms_cold_cool(struct ms_tenant *t, const struct mm_sched_swap *swaps, uint32_t n)
{
	struct ms_cold *cold = &t->e.cold;
	uint32_t lot = 0;

	while (lot < MM_SWAP_LOTS && t->e.lot_used[lot])
		lot++;
	if (lot == MM_SWAP_LOTS || cold->flying == LISTS_MAX ||
	    cold->n_live + mm_sched_cooling(&t->e.sched) > cold->limit)
		return -EAGAIN;
	mm_assert(n <= MM_KVMAN_COOLS);
	for (uint32_t i = 0; i < n; i++) {
		cold->entry[lot][i] = swaps[i].slot;
		t->e.pieces[lot][i] =
			(struct mm_swap_piece){ .arena_offset =
							mm_kv_arena_offset(&t->kv, swaps[i].block),
						.swap_offset = swaps[i].slot * t->kv.block_bytes,
						.bytes = (uint32_t)t->kv.block_bytes };
	}
	cold->n[lot] = n;
	cold->flying++;
	cold->cooled += n;
	t->e.lot_used[lot] = true;
	ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_SWAP, .arg = { lot, n, false } });
	return 0;
}

bool ms_cold_landed(struct ms_tenant *t, uint32_t lot)
{
	if (!t->e.cold.n[lot])
		return false;
	ms_fifo_push(&t->e.cold.landed, &lot);
	ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_COLD });
	return true;
}

/* ---- what must hold ---- */

void ms_cold_chosen(struct ms_tenant *t, uint32_t class, uint64_t most)
{
	const struct ms_cold *cold = &t->e.cold;
	const size_t words = mm_div_up(cold->entries_max, BITS);
	uint64_t left = most;

	for (size_t i = 0; cold->seen && i < words; i++) {
		uint64_t *seen = &cold->seen[class * words + i];

		*seen = 0;
		for (uint64_t rest = cold->live[i]; rest && left; rest &= rest - 1, left--)
			*seen |= rest & -rest;
	}
}

static bool words_are_seen(const struct ms_tenant *t, const struct mm_seq *q, const uint64_t *seen)
{
	const uint32_t *table = &t->e.sched.tables[(size_t)q->row * t->e.sched.table_stride];

	for (uint32_t i = 0; i < q->n_blocks; i++) {
		const uint32_t entry = table[i] & ~MM_KV_COLD;

		if (table[i] & MM_KV_COLD && !(seen[entry / BITS] >> entry % BITS & 1))
			return false;
	}
	return true;
}

void ms_cold_check_layer(struct ms_tenant *t, uint32_t layer)
{
	const struct ms_cold *cold = &t->e.cold;
	const uint32_t classes = t->x.plan.core.cold.classes;
	const size_t words = mm_div_up(cold->entries_max, BITS);

	if (!classes) {
		if (mm_sched_cold_words(&t->e.sched))
			ms_fail(t->sim, "tenant %s reads entries without a window", t->name);
		return;
	}
	if (t->x.class[layer % classes].version < cold->used)
		ms_fail(t->sim, "tenant %s: layer %u has an older version than was acknowledged",
			t->name, layer);
	for (uint32_t i = 0; cold->seen && i < t->e.sched.n_running; i++)
		if (!words_are_seen(t, &t->e.sched.seqs[t->e.sched.running[i]],
				    &cold->seen[layer % classes * words]))
			ms_fail(t->sim, "tenant %s: layer %u lacks an entry that it reads", t->name,
				layer);
}
