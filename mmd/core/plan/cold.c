/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/cold.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/swap.h"

/* ---- the declaration ---- */

static int open_check(const struct mm_c_tenant *t, const struct mm_msg *msg)
{
	const uint64_t unit = msg->arg[0], layers = msg->arg[1], entries = msg->arg[2];
	uint64_t bytes;

	if (!(t->features & MM_FEAT_COLD) || t->kv.grouped)
		return -EOPNOTSUPP;
	if (t->cold.classes)
		return -EEXIST;
	if (t->model != MM_C_MODEL_READY || t->unload.due || layers != t->n_layers)
		return -EINVAL;
	if (layers < MM_COLD_CLASSES_MAX)
		return -EOPNOTSUPP;
	if (!unit || unit % MM_COLD_UNIT_BYTES || !entries || entries > MM_COLD_MAX ||
	    msg->arg[3] > entries || !t->kv.declared || t->kv.ranges != 1 || !t->swap->bytes)
		return -EINVAL;
	/* No driver takes a greater distance from row to row. */
	if (__builtin_mul_overflow(unit, layers, &bytes) || bytes > INT32_MAX ||
	    __builtin_mul_overflow(bytes, entries, &bytes) || bytes > t->swap->bytes)
		return -E2BIG;
	return 0;
}

int mm_c_cold_open(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	int r = open_check(t, msg);

	if (r) {
		mm_c_reply(c, t, msg, r);
		return 0;
	}
	mm_assert(!t->cold.window_due);
	t->cold = (struct mm_c_cold){ .classes = mm_cold_layer_classes(t->n_layers),
				      .entries_max = (uint32_t)msg->arg[2],
				      .floor = (uint32_t)msg->arg[3],
				      .unit_bytes = msg->arg[0],
				      .limit_due = true };
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_REPLY,
					  .user_data = msg->user_data,
					  .arg = { msg->opcode, t->cold.classes } });
	return 0;
}

void mm_c_cold_end(struct mm_c_tenant *t)
{
	t->cold = (struct mm_c_cold){ .window_due = t->cold.window_due,
				      .window_asks = t->cold.window_asks,
				      .was_first = t->plan.cold.first,
				      .was_chunks = t->plan.cold.chunks };
}

/* ---- the window ---- */

static uint32_t window_room(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t chunks)
{
	const struct mm_c_cold *cold = &t->cold;
	const uint64_t bytes = chunks * t->kv.chunk_pages * c->opts.page_bytes;
	const uint32_t entries =
		mm_cold_window_entries(cold->classes, t->n_layers, cold->unit_bytes, bytes);

	return MM_MIN(entries, cold->entries_max);
}

static int window_refusal(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t first,
			  uint64_t chunks)
{
	if (!t->cold.classes || t->unload.due)
		return -EPERM;
	if (t->cold.window_due)
		return -EBUSY;
	if (!chunks)
		return 0;
	if (first > t->kv.chunks_max || chunks > t->kv.chunks_max - first ||
	    !window_room(c, t, chunks))
		return -EINVAL;
	if (chunks > MM_SLOT_PAGES_MAX / t->kv.chunk_pages)
		return -E2BIG;
	for (uint64_t i = first; i < first + chunks; i++)
		if (!mm_c_kv_holds(t, (uint32_t)i))
			return -ENOENT;
	if (mm_c_swap_uses_chunks(c, t, (uint32_t)first, (uint32_t)chunks))
		return -EBUSY;
	return 0;
}

int mm_c_cold_window(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	int r = window_refusal(c, t, msg->arg[0], msg->arg[1]);

	if (r) {
		mm_c_reply(c, t, msg, r);
		return 0;
	}
	t->cold.window_due = true;
	t->cold.window_asks = msg->user_data;
	t->cold.first = msg->arg[1] ? (uint32_t)msg->arg[0] : 0;
	t->cold.chunks = (uint32_t)msg->arg[1];
	return 0;
}

static bool window_is_in_force(const struct mm_c_tenant *t)
{
	return t->plan.cold.first == t->cold.first && t->plan.cold.chunks == t->cold.chunks;
}

static bool window_is_due(const struct mm_c_tenant *t)
{
	return t->cold.classes && t->cold.window_due && !t->unload.due && !window_is_in_force(t);
}

struct mm_core_cold mm_c_cold_next(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (!window_is_due(t))
		return t->plan.cold;
	if (!t->cold.chunks)
		return (struct mm_core_cold){ 0 };
	return (struct mm_core_cold){ .classes = t->cold.classes,
				      .entries = window_room(c, t, t->cold.chunks),
				      .first = t->cold.first,
				      .chunks = t->cold.chunks,
				      .unit_bytes = t->cold.unit_bytes };
}

void mm_c_cold_enter(struct mm_c_tenant *t, const struct mm_core_cold *next)
{
	t->cold.was_first = t->plan.cold.first;
	t->cold.was_chunks = t->plan.cold.chunks;
	t->plan.cold = *next;
}

static void window_answer(struct mm_core *c, struct mm_c_tenant *t)
{
	const struct mm_msg asks = { .opcode = MM_OP_COLD_WINDOW,
				     .user_data = t->cold.window_asks };
	const bool ended = !t->cold.classes;

	if (!t->cold.window_due ||
	    (!ended && (t->change->state != MM_CHANGE_STEADY || !window_is_in_force(t))) ||
	    !mm_c_burst(c))
		return;
	t->cold.window_due = false;
	mm_c_reply(c, t, &asks, ended ? -ECANCELED : 0);
}

/* ---- the limit ---- */

uint32_t mm_c_cold_wanted(const struct mm_c_tenant *t)
{
	const struct mm_c_cold *cold = &t->cold;

	return cold->by_hand ? cold->by_hand - 1 : MM_MAX(cold->floor, cold->offered);
}

static void limit_stream(struct mm_core *c, struct mm_c_tenant *t)
{
	t->cold.streamed = t->cold.limit;
	t->cold.cut_ns = 0;
	mm_c_emit(c, MM_ACT_COLD_LIMIT, t)->word = t->cold.streamed;
}

/* The market only wants no more of them: those that are live stay, and are streamed. */
static bool limit_cuts(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t limit,
		       uint64_t give_ns)
{
	return limit < t->cold.streamed &&
	       (give_ns || t->cold.by_hand || c->opts.cold != MM_SWITCH_ON);
}

/* The market may have lowered it as far already, without a deadline. */
static bool limit_is_due(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t limit,
			 uint64_t give_ns)
{
	return t->cold.limit_due || limit != t->cold.limit ||
	       (!t->cold.cut_ns && limit_cuts(c, t, limit, give_ns));
}

/*
 * The deadline has passed. A limit of the ladder's is never due: it serves the end of the window,
 * and who does not give the window's chunks is the ladder's to deal with. A tenant cannot get
 * entries back from the host without xfer.
 */
static bool cut_is_due(const struct mm_core *c, const struct mm_c_tenant *t)
{
	const struct mm_c_cold *cold = &t->cold;

	return cold->cut_ns && c->now_ns >= cold->cut_ns && c->xfer_up &&
	       cold->limit == mm_c_cold_wanted(t) && limit_cuts(c, t, cold->limit, 0);
}

bool mm_c_cold_is_due(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return window_is_due(t) || (t->plan.cold.classes && !t->unload.due && cut_is_due(c, t));
}

void mm_c_cold_parked(struct mm_core *c, struct mm_c_tenant *t)
{
	if (cut_is_due(c, t))
		limit_stream(c, t);
}

static void limit_tell(struct mm_core *c, struct mm_c_tenant *t, uint32_t limit, uint64_t give_ns)
{
	struct mm_c_cold *cold = &t->cold;

	if (!limit_cuts(c, t, limit, give_ns))
		cold->cut_ns = 0;
	else if (!cold->cut_ns || limit < cold->limit)
		cold->cut_ns = give_ns ? give_ns : c->now_ns + c->opts.reclaim_timeout_ns;
	cold->limit = limit;
	if (limit >= cold->streamed)
		limit_stream(c, t);
	cold->limit_due = false;
	mm_c_event_send(
		c, t,
		&(struct mm_msg){ .opcode = MM_EV_COLD_LIMIT, .arg = { limit, cold->cut_ns } });
}

void mm_c_cold_settle(struct mm_core *c, struct mm_c_tenant *t, uint64_t give_ns)
{
	struct mm_c_cold *cold = &t->cold;
	uint32_t limit = give_ns ? 0 : mm_c_cold_wanted(t);

	/* Nothing is filled any more but what the plan in force names. */
	if (!mm_c_is_changing(t))
		cold->was_first = cold->was_chunks = 0;
	if (t->kicked)
		return;
	window_answer(c, t);
	if (!cold->classes)
		return;
	if (limit_is_due(c, t, limit, give_ns) && mm_c_burst(c))
		limit_tell(c, t, limit, give_ns);
	/* No step reads entries without a window. */
	if (!t->plan.cold.classes && cut_is_due(c, t) && mm_c_burst(c))
		limit_stream(c, t);
}

uint64_t mm_c_cold_deadline(const struct mm_core *c)
{
	uint64_t due = UINT64_MAX;

	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && !t->kicked && c->settled_ns < t->cold.cut_ns &&
		    c->xfer_up)
			due = MM_MIN(due, t->cold.cut_ns);
	return due;
}

void mm_c_cold_restart(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->cold.cut_ns)
			t->cold.cut_ns = c->now_ns + c->opts.reclaim_timeout_ns;
}
