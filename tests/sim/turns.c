/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns as the world sees them: which process was given one that it has not given back. A turn that
 * begins while turns are closed begins alone.
 */
#include "tests/sim/world.h"

/* Returns how many processes hold a turn. */
static uint32_t world_holders(struct world *w)
{
	uint32_t n = 0;

	W_FOREACH(w, p)
		n += p->turn != 0;
	return n;
}

static bool turns_are_open(const struct world *w)
{
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	return s.turns_beside;
}

static bool turns_may_open(const struct world *w)
{
	return w->opts.policy == MM_POLICY_REMAP && w->opts.sharing <= MM_SHARING_AUTO;
}

static void world_turn_begin(struct world *w, struct w_proc *p, uint64_t serial)
{
	uint32_t others = world_holders(w);

	mm_assert(p && p->connected && !p->turn);
	mm_assert(serial > w->turn_serial);
	/* A decision may open turns, and the next one close them, before there is an action. */
	mm_assert(!others || w->turns_opened || turns_may_open(w));
	w->turns_beside += others != 0;
	w->turn_serial = p->turn = serial;
	p->turn_until_ns = 0;
}

static void world_turn_end(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	mm_assert(p && p->turn && p->turn == msg->arg[0]);
	if (!msg->result) {
		mm_assert(!p->turn_until_ns && msg->arg[1] > w->now_ns);
		p->turn_until_ns = msg->arg[1];
		return;
	}
	mm_assert(p->turn_until_ns && p->turn_until_ns <= w->now_ns);
	w->turns_taken_beside += world_holders(w) > 1;
	p->turn = 0;
}

void w_turns_note_action(struct world *w, struct w_proc *p, const struct mm_action *a)
{
	w->turns_opened |= turns_are_open(w);
	if (a->kind == MM_ACT_KICK && p)
		p->turn = 0;
	if (a->kind != MM_ACT_EVENT)
		return;
	if (a->msg.opcode == MM_EV_TURN_BEGIN)
		world_turn_begin(w, p, a->msg.arg[0]);
	if (a->msg.opcode == MM_EV_TURN_END)
		world_turn_end(w, p, &a->msg);
}

void w_turns_note_request(struct w_proc *p, const struct mm_msg *msg)
{
	if (msg->opcode == MM_OP_BYE ||
	    (msg->opcode == MM_OP_TURN_JOIN && msg->arg[0] == MM_TURN_NONE) ||
	    (msg->opcode == MM_OP_TURN_DONE && msg->arg[0] == p->turn))
		p->turn = 0;
}

void w_turns_note_drained(struct world *w)
{
	w->turns_opened = turns_are_open(w);
}

void w_turns_check(struct world *w)
{
	if (turns_are_open(w) || world_holders(w) < 2)
		return;
	W_FOREACH(w, p)
		mm_assert(!p->turn || p->turn_until_ns > w->now_ns);
}
