/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/turn.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/plan/sets.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/market/demand.h"

#define MM_TURN_QUANTUM_NS   (200 * MM_NS_PER_MS)
#define MM_TURN_DRAIN_MAX_NS (10 * MM_NS_PER_S)
#define MM_TURN_GRACE_NS     (2 * MM_NS_PER_S)
#define MM_TURN_AGE_NS       MM_NS_PER_S
#define MM_TURN_SLACK_NS     (4 * MM_NS_PER_S)
#define MM_TURN_AHEAD_NS     (14 * MM_NS_PER_S)
#define MM_TURN_HOME_PART    4 /* weight of a turn in home_ns_mean is 1/4 */
#define MM_TURN_LAPSES       3 /* lapses that count: each doubles the charge for the next */

static struct mm_account *turn_account_of(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return &c->account[t->account];
}

/* ---- what a tenant may request ---- */

static uint32_t priority_bound(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return MM_MIN(t->turn->priority, turn_account_of(c, t)->quota.turn_priority_max);
}

/* Returns @ns, or the longest turn that the account may have while others wait. */
static uint64_t time_bound(const struct mm_core *c, const struct mm_c_tenant *t, uint64_t ns)
{
	return MM_MIN(ns, mm_c_time(c, turn_account_of(c, t)->quota.turn_quantum_max_ns));
}

uint64_t mm_c_turn_quantum_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return time_bound(c, t, t->turn->quantum_ns);
}

static bool tenant_is_present(const struct mm_c_tenant *t)
{
	return t->life == MM_LIFE_LIVE && t->connected && !t->kicked;
}

/* An engine may have its weights elsewhere, and only its KV in the pool. */
static bool tenant_can_compute(const struct mm_c_tenant *t)
{
	return t->model == MM_C_MODEL_READY ||
	       (t->model == MM_C_MODEL_NONE && (t->kv.held || mm_c_kv_unmet(t)));
}

/* Returns whether @t has joined the turns and holds none. */
static bool tenant_lacks_turn(const struct mm_c_tenant *t)
{
	return t->turn->mode != MM_TURN_NONE && !t->turn->holds;
}

bool mm_c_turn_pending(const struct mm_core *c, const struct mm_c_tenant *t)
{
	(void)c;
	return t->turn->wants && tenant_lacks_turn(t) && tenant_is_present(t) &&
	       tenant_can_compute(t);
}

bool mm_c_idle(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (tenant_lacks_turn(t))
		return true;
	return c->now_ns - t->load.active_ns >= c->opts.idle_ns && !mm_c_kv_unmet(t);
}

/* ---- charges ---- */

static uint64_t time_weigh(const struct mm_account *a, uint64_t ns)
{
	return ns * MM_WEIGHT_DEFAULT / a->quota.weight;
}

/*
 * Returns @ahead_ns more than the least charge of the other tenants of @t's account that are
 * queued; UINT64_MAX: there is no other.
 */
static uint64_t least_charge_in_account(const struct mm_core *c, const struct mm_c_tenant *t,
					uint64_t ahead_ns)
{
	uint64_t least = UINT64_MAX;

	MM_FOREACH_TENANT(c, u)
		if (u != t && u->account == t->account && u->turn->queued)
			least = MM_MIN(least, u->turn->charged_ns + ahead_ns);
	return least;
}

/*
 * Returns @ahead_ns, by weight, more than the least charge of the accounts that are queued, without
 * @a; NULL: of all of them. UINT64_MAX: there is no other.
 */
static uint64_t least_charge_of_accounts(const struct mm_core *c, const struct mm_account *a,
					 uint64_t ahead_ns)
{
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < c->accounts_end; i++) {
		const struct mm_account *b = &c->account[i];

		if (b != a && b->used && b->turn.queued)
			least = MM_MIN(least, b->turn.charged_ns + time_weigh(b, ahead_ns));
	}
	return least;
}

static uint64_t turn_slack_ns(const struct mm_core *c)
{
	return mm_c_time(c, MM_TURN_SLACK_NS);
}

static uint64_t turn_ahead_ns(const struct mm_core *c)
{
	return mm_c_time(c, MM_TURN_AHEAD_NS);
}

static void tenant_charge(const struct mm_core *c, struct mm_c_tenant *t, uint64_t ns)
{
	t->turn->charged_ns =
		MM_MIN(t->turn->charged_ns + ns, least_charge_in_account(c, t, turn_ahead_ns(c)));
}

static void account_charge(const struct mm_core *c, struct mm_account *a, uint64_t ns)
{
	a->turn.charged_ns = MM_MIN(a->turn.charged_ns + time_weigh(a, ns),
				    least_charge_of_accounts(c, a, turn_ahead_ns(c)));
}

/* Charges the holder for the time since looked_ns, if others waited then. */
static void holder_charge(struct mm_core *c)
{
	uint64_t ns = c->now_ns - c->market->turn.looked_ns;
	struct mm_c_tenant *t = c->market->turn.holder;

	c->market->turn.looked_ns = c->now_ns;
	if (t && c->market->turn.account_contended)
		tenant_charge(c, t, ns);
	if (t && c->market->turn.device_contended)
		account_charge(c, turn_account_of(c, t), ns);
}

/* Finds the tenant that holds alone, after a change of holders or of the mode. */
static void holder_update(struct mm_core *c)
{
	struct mm_c_turns *device = &c->market->turn;

	device->holder = NULL;
	if (device->beside || device->holders != 1)
		return;
	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds)
			device->holder = t;
}

static bool holder_awaits_kv(const struct mm_c_tenant *t)
{
	return t->kv.held < t->turn->kv_left && mm_c_kv_unmet(t);
}

/*
 * Notes whether KV of @t came back that it had lost since its turn before. Once nothing more is
 * awaited, what comes is for new work.
 */
static void holder_note_kv(const struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_c_turn *turn = t->turn;

	if (!turn->kv_awaited)
		return;
	if (t->kv.held > turn->kv_back) {
		turn->kv_back = t->kv.held;
		turn->kv_ns = c->now_ns;
	}
	turn->kv_awaited = holder_awaits_kv(t);
}

/*
 * Adds the turn that ends to home_ns_mean. One that ended before all layers were resident counts
 * with its length, if that is more than the mean: it says only that the time is longer.
 */
static void holder_measure_home(const struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_c_turn *turn = t->turn;
	uint64_t mean = turn->home_ns_mean, home;

	if (!turn->alone)
		return;
	home = MM_MAX(turn->home_ns ? turn->home_ns : c->now_ns, turn->kv_ns) - turn->begun_ns;
	if (!turn->home_ns && home < mean)
		return;
	mean = mean ? mean - mean / MM_TURN_HOME_PART + home / MM_TURN_HOME_PART : home;
	turn->home_ns_mean = MM_MAX(mean, 1);
}

static void holder_leave(struct mm_core *c, struct mm_c_tenant *t)
{
	holder_measure_home(c, t);
	t->turn->kv_left = t->kv.held;
	holder_charge(c);
	turn_account_of(c, t)->turn.interrupted = t->turn->interrupted;
	if (!t->turn->interrupted)
		turn_account_of(c, t)->turn.since_ns = c->now_ns;
	t->turn->holds = false;
	c->market->turn.holders--;
	holder_update(c);
}

void mm_c_turn_leave(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->turn->holds)
		holder_leave(c, t);
}

/*
 * Takes the turn away. The holder was late by all of its grace and may still compute, so it comes
 * after all others of its account.
 */
static void holder_overdue(struct mm_core *c, struct mm_c_tenant *t)
{
	uint64_t late_ns = mm_c_time(c, MM_TURN_GRACE_NS),
		 most = least_charge_in_account(c, t, turn_slack_ns(c));

	holder_leave(c, t);
	if (most != UINT64_MAX)
		t->turn->charged_ns = MM_MAX(t->turn->charged_ns, most);
	tenant_charge(c, t, late_ns << t->turn->lapses);
	account_charge(c, turn_account_of(c, t), late_ns);
	t->turn->lapses = MM_MIN(t->turn->lapses + 1, (uint32_t)MM_TURN_LAPSES);
	t->turn->interrupted = false;
	t->turn->overdue++;
	c->stats.turns_overdue++;
}

/* ---- the queue ---- */

/*
 * Returns the charge of one that is queued again. It is raised towards @least_ns, that of those
 * that waited meanwhile, by at most the time @away_ns: one that is queued again at once loses
 * nothing.
 */
static uint64_t charge_catch_up(uint64_t charged_ns, uint64_t least_ns, uint64_t away_ns)
{
	if (least_ns == UINT64_MAX || charged_ns >= least_ns)
		return charged_ns;
	return charged_ns + MM_MIN(least_ns - charged_ns, away_ns);
}

static uint64_t time_away(const struct mm_core *c, uint64_t left_ns)
{
	return c->now_ns - left_ns < turn_ahead_ns(c) ? c->now_ns - left_ns : UINT64_MAX;
}

/* One that was interrupted and is queued again at once keeps its age. */
static bool aging_continues(const struct mm_core *c, bool interrupted, uint64_t left_ns)
{
	return interrupted && c->now_ns - left_ns < mm_c_time(c, MM_TURN_AGE_NS);
}

static void tenant_queue_update(struct mm_core *c, struct mm_c_tenant *t, bool queued)
{
	if (queued && !t->turn->queued) {
		t->turn->charged_ns =
			charge_catch_up(t->turn->charged_ns, least_charge_in_account(c, t, 0),
					time_away(c, t->turn->left_ns));
		if (!aging_continues(c, t->turn->interrupted, t->turn->left_ns))
			t->turn->since_ns = c->now_ns;
	}
	if (t->turn->queued && !queued)
		t->turn->left_ns = c->now_ns;
	t->turn->queued = queued;
}

static void account_queue_update(struct mm_core *c, struct mm_account *a)
{
	uint64_t away_ns = time_away(c, a->turn.left_ns);

	if (a->turn.n && !a->turn.queued) {
		a->turn.charged_ns =
			charge_catch_up(a->turn.charged_ns, least_charge_of_accounts(c, a, 0),
					away_ns == UINT64_MAX ? away_ns : time_weigh(a, away_ns));
		if (!aging_continues(c, a->turn.interrupted, a->turn.left_ns))
			a->turn.since_ns = c->now_ns;
	}
	if (a->turn.queued && !a->turn.n)
		a->turn.left_ns = c->now_ns;
	a->turn.queued = a->turn.n != 0;
}

static void tenant_queue_count(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_account *a = turn_account_of(c, t);
	bool pending = mm_c_turn_pending(c, t);

	tenant_queue_update(c, t, pending || t->turn->holds);
	if (t->turn->queued) {
		a->turn.n++;
		a->turn.most_ns = MM_MIN(a->turn.most_ns, t->turn->charged_ns + turn_slack_ns(c));
	}
	if (!pending)
		return;
	a->turn.priority = MM_MAX(a->turn.priority, priority_bound(c, t));
	if (c->market->turn.holder && t->account == c->market->turn.holder->account)
		c->market->turn.account_contended = true;
	else
		c->market->turn.device_contended = true;
}

/* Returns the most that others may be charged while @a is queued. */
static uint64_t account_bound(const struct mm_account *a, uint64_t ahead_ns)
{
	return a->used && a->turn.queued ? a->turn.charged_ns + time_weigh(a, ahead_ns)
					 : UINT64_MAX;
}

/*
 * Charges are weighed when they are made, so after a change of weights one may be beyond the bound.
 * Lowers those to the bound, one after the other: a charge that was lowered bounds the next ones.
 * Each is bounded by the least of all others, so the two least bounds say it for all of them.
 */
static void account_charges_cap(struct mm_core *c)
{
	uint64_t least = UINT64_MAX, second = UINT64_MAX;
	uint32_t of = MM_DOMAIN_NONE;

	for (uint32_t i = 0; i < c->accounts_end; i++) {
		uint64_t bound = account_bound(&c->account[i], turn_ahead_ns(c));

		second = MM_MIN(second, MM_MAX(bound, least));
		of = bound < least ? i : of;
		least = MM_MIN(least, bound);
	}
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		struct mm_account *a = &c->account[i];
		uint64_t others = i == of ? second : least;

		if (a->turn.charged_ns <= others)
			continue;
		/* Its bound was not the least, and does not become it, but it may be the second. */
		a->turn.charged_ns = others;
		second = MM_MIN(second, account_bound(a, turn_ahead_ns(c)));
	}
}

static void turn_queue_update(struct mm_core *c)
{
	c->market->turn.account_contended = c->market->turn.device_contended = false;
	for (uint32_t i = 0; i < c->accounts_end; i++) {
		c->account[i].turn.n = c->account[i].turn.priority = 0;
		c->account[i].turn.most_ns = UINT64_MAX;
	}
	MM_FOREACH_TENANT(c, t)
		tenant_queue_count(c, t);
	for (uint32_t i = 0; i < c->accounts_end; i++)
		account_queue_update(c, &c->account[i]);
	account_charges_cap(c);
	c->market->turn.most_ns = least_charge_of_accounts(c, NULL, turn_slack_ns(c));
}

/* Returns by how much a charge is more than @most_ns. */
static uint64_t charge_beyond(uint64_t charged_ns, uint64_t most_ns)
{
	return charged_ns > most_ns ? charged_ns - most_ns : 0;
}

static uint64_t rank_of(const struct mm_core *c, uint32_t priority, uint64_t since_ns)
{
	return priority + (c->now_ns - since_ns) / mm_c_time(c, MM_TURN_AGE_NS);
}

static uint64_t tenant_rank(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return rank_of(c, priority_bound(c, t), t->turn->since_ns);
}

static bool account_before(const struct mm_core *c, const struct mm_account *a,
			   const struct mm_account *b)
{
	uint64_t beyond_a = charge_beyond(a->turn.charged_ns, c->market->turn.most_ns);
	uint64_t beyond_b = charge_beyond(b->turn.charged_ns, c->market->turn.most_ns);
	uint64_t rank_a = rank_of(c, a->turn.priority, a->turn.since_ns);
	uint64_t rank_b = rank_of(c, b->turn.priority, b->turn.since_ns);

	if (beyond_a != beyond_b)
		return beyond_a < beyond_b;
	if (rank_a != rank_b)
		return rank_a > rank_b;
	return a->turn.since_ns != b->turn.since_ns ? a->turn.since_ns < b->turn.since_ns
						    : a->key < b->key;
}

static bool tenant_before_in_account(const struct mm_core *c, const struct mm_c_tenant *a,
				     const struct mm_c_tenant *b)
{
	uint64_t most_ns = turn_account_of(c, a)->turn.most_ns;
	uint64_t beyond_a = charge_beyond(a->turn->charged_ns, most_ns);
	uint64_t beyond_b = charge_beyond(b->turn->charged_ns, most_ns);

	if (beyond_a != beyond_b)
		return beyond_a < beyond_b;
	return tenant_rank(c, a) != tenant_rank(c, b) ? tenant_rank(c, a) > tenant_rank(c, b)
						      : a->turn->since_ns < b->turn->since_ns;
}

bool mm_c_turn_before(const struct mm_core *c, const struct mm_c_tenant *a,
		      const struct mm_c_tenant *b)
{
	if (mm_c_turn_pending(c, a) != mm_c_turn_pending(c, b))
		return mm_c_turn_pending(c, a);
	if (!mm_c_turn_pending(c, a))
		return false;
	return a->account != b->account
		       ? account_before(c, turn_account_of(c, a), turn_account_of(c, b))
		       : tenant_before_in_account(c, a, b);
}

struct mm_c_tenant *mm_c_turn_next(const struct mm_core *c)
{
	struct mm_c_tenant *best = NULL;

	MM_FOREACH_TENANT(c, t)
		if (mm_c_turn_pending(c, t) && (!best || mm_c_turn_before(c, t, best)))
			best = t;
	return best;
}

/* ---- requests ---- */

int mm_c_turn_join(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	uint64_t quantum = msg->arg[1] ? msg->arg[1] : mm_c_time(c, MM_TURN_QUANTUM_NS);

	if (msg->arg[0] >= MM_TURN_MODES || msg->arg[2] > MM_TURN_PRIORITY_MAX)
		return MM_E_PROTOCOL;
	/* Two groups whose ranks hold each other's turns would wait for ever. */
	if (t->kv.grouped && msg->arg[0] != MM_TURN_NONE) {
		mm_c_reply(c, t, msg, -EBUSY);
		return 0;
	}
	t->turn->mode = (enum mm_turn_mode)msg->arg[0];
	t->turn->quantum_ns = quantum;
	t->turn->priority = (uint32_t)msg->arg[2];
	if (t->turn->mode == MM_TURN_NONE) {
		t->turn->wants = false;
		mm_c_turn_leave(c, t);
	}
	mm_c_reply(c, t, msg, 0);
	return 0;
}

/*
 * The holder may request a turn, too: the request and the end of its turn may cross. So may the
 * request of one thread and another thread's leave; then the request is dropped.
 */
int mm_c_turn_want(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	(void)msg;
	if (t->turn->mode == MM_TURN_NONE)
		return 0;
	if (!t->turn->wants && !t->turn->interrupted)
		t->turn->since_ns = c->now_ns;
	t->turn->wants = true;
	return 0;
}

/* If the turn was taken away meanwhile, there is nothing to do. */
int mm_c_turn_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (msg->arg[0] > t->turn->serial)
		return MM_E_PROTOCOL;
	if (!t->turn->holds || msg->arg[0] != t->turn->serial)
		return 0;
	t->turn->lapses -= t->turn->lapses != 0;
	holder_leave(c, t);
	return 0;
}

/* ---- decisions ---- */

static void turn_begin(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_c_turn *turn = t->turn;

	turn->holds = true;
	turn->serial = ++c->market->turn.serial;
	turn->begun_ns = c->market->turn.begun_ns = c->now_ns;
	turn->rank = tenant_rank(c, t);
	turn->account_rank = rank_of(c, priority_bound(c, t), turn_account_of(c, t)->turn.since_ns);
	turn->return_requested = turn->closing = false;
	turn->home_ns = c->market->policy->market ? 0 : c->now_ns;
	turn->alone = !c->market->turn.beside;
	turn->kv_awaited = holder_awaits_kv(t);
	turn->kv_back = t->kv.held;
	turn->kv_ns = c->now_ns;
	turn->wants = turn->interrupted = turn_account_of(c, t)->turn.interrupted = false;
	turn->turns++;
	c->market->turn.holders++;
	holder_update(c);
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN,
					  .arg = { turn->serial, mm_c_turn_quantum_ns(c, t) } });
}

static void turn_end_send(struct mm_core *c, const struct mm_c_tenant *t, int result)
{
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_TURN_END,
					  .result = result,
					  .arg = { t->turn->serial, t->turn->until_ns } });
}

static void turn_end_request(struct mm_core *c, struct mm_c_tenant *t, bool interrupted)
{
	t->turn->return_requested = true;
	t->turn->until_ns = c->now_ns + mm_c_time(c, MM_TURN_GRACE_NS);
	t->turn->interrupted = interrupted;
	turn_end_send(c, t, 0);
}

/*
 * Returns a quantum of which the return of the holder's layers is only a part, turn_cost_permille;
 * at most MM_TURN_STRETCH_NS, or a longer quantum that it requested.
 */
static uint64_t quantum_stretched(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t stretched = MM_MAX(t->turn->quantum_ns, mm_c_time(c, MM_TURN_STRETCH_NS));
	uint64_t most = time_bound(c, t, stretched), home;

	if (!t->turn->home_ns)
		return most;
	home = MM_MIN(t->turn->home_ns - t->turn->begun_ns, most);
	return MM_MIN(MM_MAX(mm_c_turn_quantum_ns(c, t), home * 1000 / c->opts.turn_cost_permille),
		      most);
}

/* Returns how long a turn is when another tenant waits. */
static uint64_t turn_length_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t set = c->market->turn.quantum_ns;

	if (t->turn->mode == MM_TURN_DRAIN)
		return MM_MAX(set, time_bound(c, t, mm_c_time(c, MM_TURN_DRAIN_MAX_NS)));
	return set ? set : quantum_stretched(c, t);
}

/*
 * Returns how long the holder may go on because @next was charged for more time than it and the
 * slack together; 0: @next was not.
 */
static uint64_t turn_behind_ns(const struct mm_core *c, const struct mm_c_tenant *next)
{
	const struct mm_c_tenant *t = c->market->turn.holder;
	const struct mm_account *a = turn_account_of(c, t), *b = turn_account_of(c, next);

	if (a == b)
		return charge_beyond(next->turn->charged_ns,
				     t->turn->charged_ns + turn_slack_ns(c));
	return charge_beyond(b->turn.charged_ns,
			     a->turn.charged_ns + time_weigh(a, turn_slack_ns(c))) *
	       a->quota.weight / MM_WEIGHT_DEFAULT;
}

static bool tenant_interrupts(const struct mm_core *c, const struct mm_c_tenant *next)
{
	const struct mm_c_tenant *t = c->market->turn.holder;

	return priority_bound(c, next) >
	       (next->account == t->account ? t->turn->rank : t->turn->account_rank);
}

static uint64_t turn_due_ns(const struct mm_core *c, const struct mm_c_tenant *next)
{
	const struct mm_c_tenant *t = c->market->turn.holder;
	uint64_t due = t->turn->begun_ns, behind = turn_behind_ns(c, next);

	if (!tenant_interrupts(c, next))
		due += turn_length_ns(c, t);
	return behind ? MM_MAX(due, c->market->turn.looked_ns + behind) : due;
}

/* Takes the turn from a holder that has gone, or has not given it back in time. */
static void holder_check(struct mm_core *c, struct mm_c_tenant *t)
{
	if (!tenant_is_present(t)) {
		holder_leave(c, t);
	} else if (t->turn->return_requested && c->now_ns >= t->turn->until_ns && mm_c_burst(c)) {
		turn_end_send(c, t, -ETIMEDOUT);
		holder_overdue(c, t);
	}
}

/* While turns are open: begins the turn of each tenant that waits. */
static void turns_begin_all(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (mm_c_turn_pending(c, t) && mm_c_burst(c))
			turn_begin(c, t);
}

/* Returns whether all holders have been told to give their turns back. */
static bool returns_are_requested(const struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds && !t->turn->return_requested)
			return false;
	return true;
}

/* While turns close: all holders are to give theirs back. */
static void turns_end_all(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds && !t->turn->return_requested && mm_c_burst(c)) {
			turn_end_request(c, t, false);
			t->turn->closing = true;
		}
}

/* While turns are closed: begins the next turn, or ends the present one for it. */
static void turn_pass_on(struct mm_core *c)
{
	struct mm_c_tenant *next = mm_c_turn_next(c), *t = c->market->turn.holder;

	if (!next)
		return;
	if (!t) {
		turn_begin(c, next);
		turn_queue_update(c);
	} else if (!t->turn->return_requested && c->now_ns >= turn_due_ns(c, next)) {
		turn_end_request(c, t, tenant_interrupts(c, next));
	}
}

void mm_c_turns_set(struct mm_core *c, bool beside, uint64_t quantum_ns)
{
	if (c->opts.sharing != MM_SHARING_AUTO)
		beside = c->opts.sharing == MM_SHARING_BESIDE;
	c->market->turn.quantum_ns = quantum_ns;
	if (c->market->turn.beside == beside)
		return;
	holder_charge(c);
	c->market->turn.beside = beside;
	holder_update(c);
	mm_c_supply_changed(c);
}

void mm_c_turns(struct mm_core *c)
{
	holder_charge(c);
	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds)
			holder_check(c, t);
	turn_queue_update(c);
	if (c->market->turn.beside)
		turns_begin_all(c);
	else if (c->market->turn.holders > 1)
		turns_end_all(c);
	else
		turn_pass_on(c);
}

void mm_c_turns_measure(struct mm_core *c)
{
	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds)
			holder_note_kv(c, t);
}

/* Returns the time until which the first of the holders must have given its turn back. */
static uint64_t returns_deadline(const struct mm_core *c)
{
	uint64_t due = UINT64_MAX;

	MM_FOREACH_TENANT(c, t)
		if (t->turn->holds && t->turn->return_requested)
			due = MM_MIN(due, t->turn->until_ns);
	return due;
}

uint64_t mm_c_turn_deadline(const struct mm_core *c)
{
	const struct mm_c_tenant *next = mm_c_turn_next(c), *t = c->market->turn.holder;
	uint64_t due = returns_deadline(c);

	/*
	 * A tenant that can compute only since the controller's part of this settling gets the turn
	 * in the next one. So does a change of the mode that was decided there.
	 */
	if (c->market->turn.beside)
		return next ? MM_MIN(due, c->settled_ns) : due;
	if (!t && c->market->turn.holders)
		return returns_are_requested(c) ? due : MM_MIN(due, c->settled_ns);
	if (!t)
		return next ? c->settled_ns : UINT64_MAX;
	if (t->turn->return_requested)
		return due;
	return next ? turn_due_ns(c, next) : UINT64_MAX;
}

/* Holders have joined, and have turns of different serials; the one that holds alone is known. */
const char *mm_c_turns_check(const struct mm_core *c)
{
	const struct mm_c_turns *device = &c->market->turn;
	uint32_t holders = 0;

	MM_FOREACH_TENANT(c, t) {
		mm_must(t->turn->serial <= device->serial);
		if (!t->turn->holds)
			continue;
		holders++;
		mm_must(t->turn->mode != MM_TURN_NONE && t->turn->serial);
		MM_FOREACH_TENANT(c, u)
			mm_must(u == t || u->turn->serial != t->turn->serial);
		mm_must(device->beside || device->holders > 1 || device->holder == t);
	}
	mm_must(holders == device->holders);
	mm_must(!device->holder || (!device->beside && holders == 1));
	return NULL;
}
