/* SPDX-License-Identifier: Apache-2.0 */
/* Cold blocks of a tenant process. */
#include "tests/sim/world.h"

#include <string.h>

#include "libclient/protocol/cold.h"

void w_cold_open(struct world *w, struct w_proc *p, uint64_t unit_bytes, uint32_t entries,
		 uint32_t floor)
{
	p->cold.unit_bytes = unit_bytes;
	p->cold.entries_max = entries;
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_COLD_OPEN,
				 .user_data = 5,
				 .arg = { unit_bytes, p->n_groups - 1, entries, floor } });
}

void w_cold_window(struct world *w, struct w_proc *p, uint32_t first, uint32_t chunks)
{
	p->cold.asked = true;
	p->cold.next_first = first;
	p->cold.next_chunks = chunks;
	w_send(w, p,
	       &(struct mm_msg){
		       .opcode = MM_OP_COLD_WINDOW, .user_data = 6, .arg = { first, chunks } });
}

void w_cold_replied(struct w_proc *p, const struct mm_msg *msg)
{
	struct w_cold *cold = &p->cold;

	if (msg->arg[0] == MM_OP_COLD_OPEN) {
		mm_assert(p->hostile || msg->user_data == 5);
		cold->open_answers++;
		cold->open_result = msg->result;
		cold->classes = msg->result ? cold->classes : (uint32_t)msg->arg[1];
		if (!cold->classes)
			cold->entries_max = 0;
		return;
	}
	mm_assert(p->hostile || (msg->user_data == 6 && cold->asked));
	cold->window_answers++;
	cold->window_result = msg->result;
	cold->asked = false;
	if (msg->result)
		return;
	cold->first = cold->next_chunks ? cold->next_first : 0;
	cold->chunks = cold->next_chunks;
}

void w_cold_limited(struct w_proc *p, const struct mm_msg *msg)
{
	/* One that was sent before an unload was answered may come after it. */
	if (p->unloads && !p->cold.classes)
		return;
	/* The declaration is answered before its limit is told. */
	mm_assert(p->hostile || (p->cold.classes && msg->arg[0] <= p->cold.entries_max));
	p->cold.limit = (uint32_t)msg->arg[0];
	p->cold.deadline_ns = msg->arg[1];
	p->cold.limits++;
	if (!msg->arg[1])
		return;
	p->cold.least = p->cold.falls ? MM_MIN(p->cold.least, p->cold.limit) : p->cold.limit;
	p->cold.falls = true;
}

bool w_cold_names(const struct w_proc *p, uint32_t chunk)
{
	const struct w_cold *cold = &p->cold;

	return (chunk >= cold->first && chunk - cold->first < cold->chunks) ||
	       (cold->asked && chunk >= cold->next_first &&
		chunk - cold->next_first < cold->next_chunks);
}

void w_cold_end(struct w_proc *p)
{
	struct w_cold *cold = &p->cold;

	cold->classes = cold->limit = cold->entries_max = 0;
	cold->falls = false;
	cold->first = cold->chunks = 0;
	for (uint32_t e = 0; e < W_COLD; e++)
		w_cold_set(p, e, false);
}

/* ---- entries ---- */

uint32_t w_cold_room(const struct world *w, const struct w_proc *p, uint32_t chunks)
{
	const uint64_t bytes = chunks * p->chunk_pages * w->opts.page_bytes;

	if (!p->cold.classes || !p->n_groups)
		return 0;
	return MM_MIN(
		mm_cold_window_entries(p->cold.classes, p->n_groups - 1, p->cold.unit_bytes, bytes),
		p->cold.entries_max);
}

/* Entries that xfer may see as live: also those whose end is not acknowledged yet. */
static uint32_t live_most(const struct w_cold *cold)
{
	uint32_t n = 0;

	for (uint32_t e = 0; e < W_COLD; e++)
		n += cold->live[e] || cold->cleared[e] > cold->acked;
	return n;
}

void w_cold_change(struct w_proc *p)
{
	p->cold.version_before = p->cold.version;
	p->cold.torn = MM_COLD_CLASSES_MAX;
	memcpy(p->cold.live_before, p->cold.live, sizeof(p->cold.live_before));
}

void w_cold_set(struct w_proc *p, uint32_t entry, bool live)
{
	struct w_cold *cold = &p->cold;

	if (cold->live[entry] == live)
		return;
	if (live && live_most(cold) + (cold->cleared[entry] <= cold->acked) > cold->limit)
		return;
	cold->generation[entry] += live;
	cold->live[entry] = live;
	cold->version++;
	*(live ? &cold->since[entry] : &cold->cleared[entry]) = cold->version;
}

void w_cold_streamed(struct world *w, struct w_proc *p, uint64_t limit)
{
	p->cold.streamed = limit;
	/* Some rows are missing from now on; those that a step reads are not. */
	w->overruns += live_most(&p->cold) > limit;
}

/*
 * A limit that fell counts by number, since what xfer has seen of the bits is not known: entries
 * below it are streamed in any case.
 */
void w_cold_obey(struct world *w, struct w_proc *p)
{
	struct w_cold *cold = &p->cold;
	const uint32_t end = cold->falls ? MM_MIN(cold->least, cold->limit) : W_COLD;
	uint32_t left = cold->limit;

	cold->falls = false;
	for (uint32_t e = 0; e < W_COLD; e++) {
		if (cold->live[e] && (!left || e >= end))
			w_cold_set(p, e, false);
		left -= cold->live[e];
	}
	/* It is to give chunks of the window. */
	if (cold->classes && !cold->limit && cold->deadline_ns && cold->chunks && !cold->asked)
		w_cold_window(w, p, 0, 0);
}

/* ---- steps ---- */

/* Entries that have room in the window at which its addresses are, before and after a change. */
static uint32_t entries_in_place(const struct world *w, const struct w_proc *p)
{
	const struct w_cold *cold = &p->cold;
	const uint32_t room = w_cold_room(w, p, cold->chunks);

	if (!cold->asked)
		return room;
	if (!cold->next_chunks || cold->next_first != cold->first)
		return 0;
	return MM_MIN(room, w_cold_room(w, p, cold->next_chunks));
}

void w_cold_step_begin(struct world *w, struct w_proc *p)
{
	struct w_cold *cold = &p->cold;
	const uint32_t room = entries_in_place(w, p);
	bool any = false;

	w_cold_obey(w, p);
	for (uint32_t e = 0; e < W_COLD; e++) {
		const bool reads = e < room && cold->live[e] && cold->since[e] <= cold->acked;

		cold->reading[e] = reads ? cold->generation[e] : 0;
		any |= reads;
	}
	cold->reading_at = cold->first;
	w->steps_cold += any;
}

void w_cold_layer_run(struct world *w, struct w_proc *p, uint32_t layer)
{
	const struct w_cold *cold = &p->cold;

	for (uint32_t e = 0; e < W_COLD && !p->hostile; e++) {
		const struct w_unit *unit = &cold->unit[cold->classes * e + layer];

		if (!cold->reading[e])
			continue;
		mm_assert(p->region.cold.classes && p->region.cold.first == cold->reading_at);
		mm_assert(unit->entry == e && unit->layer == layer);
		mm_assert(unit->generation == cold->reading[e]);
		w->rows_read++;
	}
}

void w_cold_step_end(struct world *w, struct w_proc *p)
{
	(void)w;
	memset(p->cold.reading, 0, sizeof(p->cold.reading));
}
