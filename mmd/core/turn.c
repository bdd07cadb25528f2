/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turn - temporal sharing: who of those that want it that way computes now
 *
 * Concept:    A tenant may join the turns of its device. Of those that joined, one at a time holds the
 *             turn and runs steps; the others count as idle, so that their memory may be lent. A turn
 *             ends when its holder has nothing to do, when its quantum is over and somebody waits
 *             (MM_TURN_DRAIN: only when the holder has run dry, within MM_TURN_DRAIN_MAX_NS), or when
 *             somebody of higher priority waits. The holder is asked, ends its open step and gives the
 *             turn back; one that does not is passed over when its grace is over.
 * Fairness:   the highest priority first, and each MM_TURN_AGE_NS of waiting counts as one more: also
 *             against being interrupted by the next one of high priority. Who was interrupted goes on
 *             to age as if it had not had its turn.
 * Trust:      quantum and priority are a tenant's word, within what the operator grants its account.
 *             Without a ready model, or at least KV that it holds or wants, it has nothing to compute
 *             with, and no turn. One that runs on without its turn takes computing time, never memory; status shows how
 *             often its turn had to be taken away.
 */
#include <errno.h>

#include "mm/base.h"
#include "mmd/core/controller.h"
#include "mmd/core/state.h"

#define MM_TURN_QUANTUM_NS   (200 * MM_NS_PER_MS)
#define MM_TURN_DRAIN_MAX_NS (10 * MM_NS_PER_S)
#define MM_TURN_GRACE_NS     (2 * MM_NS_PER_S)
#define MM_TURN_AGE_NS       MM_NS_PER_S

/* ---- requests ---- */

static void reply(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg, int result)
{
	mm_c_event(c, t,
		   &(struct mm_msg){ .opcode = MM_EV_REPLY,
				     .user_data = msg->user_data,
				     .result = result,
				     .arg = { msg->opcode } });
}

static bool holds(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->turn.holder == t;
}

static const struct mm_core_quota *quota(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return &c->account[t->account].quota;
}

static uint32_t priority(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return MM_MIN(t->turn.priority, quota(c, t)->turn_priority_max);
}

/* Of @ns, what its account may have while others wait. */
static uint64_t bounded(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t ns)
{
	return MM_MIN(ns, mm_c_time(c, quota(c, t)->turn_quantum_max_ns));
}

static uint64_t quantum(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return bounded(c, t, t->turn.quantum_ns);
}

int mm_c_turn_join(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint64_t quantum = msg->arg[1] ? msg->arg[1] : mm_c_time(c, MM_TURN_QUANTUM_NS);

	if (msg->arg[0] >= MM_TURN_MODES || msg->arg[2] > MM_TURN_PRIORITY_MAX)
		return MM_E_PROTOCOL;
	t->turn.mode = (enum mm_turn_mode)msg->arg[0];
	t->turn.quantum_ns = quantum;
	t->turn.priority = (uint32_t)msg->arg[2];
	if (t->turn.mode == MM_TURN_NONE) {
		t->turn.wants = false;
		if (holds(c, t))
			c->turn.holder = NULL;
	}
	reply(c, t, msg, 0);
	return 0;
}

/*
 * One that holds the turn already has it; the wish and a loss that is on its way may cross. So may the wish of one
 * thread and another's leaving the turns: who left needs none.
 */
int mm_c_turn_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	(void)msg;
	if (t->turn.mode == MM_TURN_NONE)
		return 0;
	if (!t->turn.wants && !t->turn.interrupted)
		t->turn.since_ns = c->now_ns;
	t->turn.wants = true;
	return 0;
}

/* Of a turn that was taken away meanwhile: too late, and no harm. */
int mm_c_turn_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (msg->arg[0] > c->turn.serial)
		return MM_E_PROTOCOL;
	if (holds(c, t) && msg->arg[0] == c->turn.serial)
		c->turn.holder = NULL;
	return 0;
}

/* ---- decisions ---- */

static bool present(const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && t->connected && !t->kicked;
}

static uint64_t rank(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return priority(c, t) + (c->now_ns - t->turn.since_ns) / mm_c_time(c, MM_TURN_AGE_NS);
}

/* An engine may have its weights elsewhere and only its KV here. */
static bool can_compute(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->model == MM_MODEL_READY ||
	       (t->model == MM_MODEL_NONE && (t->kv.held || mm_c_kv_unmet(c, t)));
}

bool mm_c_turn_sooner(const struct mm_core *c, const struct mm_c_tenant *a,
		      const struct mm_c_tenant *b)
{
	if (mm_c_turn_comes(c, a) != mm_c_turn_comes(c, b))
		return mm_c_turn_comes(c, a);
	if (!mm_c_turn_comes(c, a))
		return false;
	return rank(c, a) != rank(c, b) ? rank(c, a) > rank(c, b)
					: a->turn.since_ns < b->turn.since_ns;
}

static struct mm_c_tenant *next_holder(const struct mm_core *c)
{
	struct mm_c_tenant *best = NULL;

	MM_FOREACH_TENANT(c, t)
	if (mm_c_turn_comes(c, t) && (!best || mm_c_turn_sooner(c, t, best)))
		best = t;
	return best;
}

struct mm_c_tenant *mm_c_turn_next(const struct mm_core *c)
{
	return next_holder(c);
}

static void begin(struct mm_core *c, struct mm_c_tenant *t)
{
	c->turn.holder = t;
	c->turn.serial++;
	c->turn.begun_ns = c->now_ns;
	c->turn.rank = rank(c, t);
	c->turn.asked = false;
	c->turn.home_ns = c->policy->overdrawn && t->plan.alpha ? 0 : c->now_ns;
	t->turn.wants = t->turn.interrupted = false;
	t->turn.turns++;
	mm_c_event(c, t,
		   &(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN,
				     .arg = { c->turn.serial, quantum(c, t) } });
}

static void say_end(struct mm_core *c, int result)
{
	mm_c_event(c, c->turn.holder,
		   &(struct mm_msg){ .opcode = MM_EV_TURN_END,
				     .result = result,
				     .arg = { c->turn.serial, c->turn.until_ns } });
}

static bool goes_before(const struct mm_core *c, const struct mm_c_tenant *next)
{
	return priority(c, next) > c->turn.rank;
}

/* So long that what it takes to bring the holder's layers home is a small part of it; not for ever. */
static uint64_t stretched(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t most = MM_MAX(quantum(c, t), mm_c_time(c, MM_TURN_STRETCH_NS)), home;

	if (!c->turn.home_ns)
		return most;
	home = MM_MIN(c->turn.home_ns - c->turn.begun_ns, most);
	return MM_MIN(MM_MAX(quantum(c, t), home * 1000 / c->opts.turn_cost_permille), most);
}

static uint64_t due_ns(const struct mm_core *c, const struct mm_c_tenant *next)
{
	const struct mm_c_tenant *t = c->turn.holder;

	if (goes_before(c, next))
		return c->turn.begun_ns;
	return c->turn.begun_ns + (t->turn.mode == MM_TURN_DRAIN
					   ? bounded(c, t, mm_c_time(c, MM_TURN_DRAIN_MAX_NS))
					   : stretched(c, t));
}

void mm_c_turns(struct mm_core *c)
{
	struct mm_c_tenant *next;

	if (c->turn.holder && !present(c->turn.holder))
		c->turn.holder = NULL;
	if (c->turn.holder && c->turn.asked && c->now_ns >= c->turn.until_ns) {
		say_end(c, -ETIMEDOUT);
		c->turn.holder->turn.overdue++;
		c->stats.turns_overdue++;
		c->turn.holder = NULL;
	}
	next = next_holder(c);
	if (!next)
		return;
	if (!c->turn.holder) {
		begin(c, next);
	} else if (!c->turn.asked && c->now_ns >= due_ns(c, next)) {
		c->turn.asked = true;
		c->turn.until_ns = c->now_ns + mm_c_time(c, MM_TURN_GRACE_NS);
		c->turn.holder->turn.interrupted = goes_before(c, next);
		say_end(c, 0);
	}
}

uint64_t mm_c_turn_deadline(const struct mm_core *c)
{
	const struct mm_c_tenant *next;

	if (!c->turn.holder)
		return UINT64_MAX;
	if (c->turn.asked)
		return c->turn.until_ns;
	next = next_holder(c);
	return next ? due_ns(c, next) : UINT64_MAX;
}

bool mm_c_turn_waits(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->turn.mode != MM_TURN_NONE && !holds(c, t);
}

bool mm_c_turn_comes(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->turn.wants && mm_c_turn_waits(c, t) && present(t) && can_compute(c, t);
}
