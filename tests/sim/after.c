/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a history, when the faults are over: every process gets what can be granted, and in
 * the end every page is free.
 */
#include <string.h>

#include "mmd/core/market/policy.h"
#include "tests/sim/history.h"
#include "tests/sim/mortal.h"

/*
 * Three with the knobs of a daemon (still.c): here tenants are idle after 5 ms, and layers may
 * return after 20, so that roles change as often as engines pause.
 */
#define CHANGES_PER_S   6
#define CHANGES_AT_ONCE 16
/* In rounds of 100 ms: a turn takes 12 s at most, and catching up 10 s more. */
#define TURN_ROUNDS (W_PROCS * 240)
/*
 * Pages may be kept for half a second for each that waits before, which waited as long for that,
 * and memory stays for five seconds with a turn that nobody uses, and for the next one as long.
 */
#define KEEP_ROUNDS (W_PROCS * 10 + 2 * 50)
/* In rounds of 20 ms: another tenant's chunks may be kept back for half a second. */
#define MIN_ROUNDS 50

/* @ns is scaled like the times of the controller. */
void h_round(struct world *w, uint64_t ns)
{
	while (w_xfer_work(w, 4, 0))
		;
	W_FOREACH(w, p) {
		while (w_proc_send_late(w, p))
			;
		while (w_proc_event(w, p))
			;
		for (uint32_t i = 0; i < 4 && w_proc_step(w, p); i++)
			w_xfer_stream(w, p);
		for (uint32_t i = 0; i < 3; i++)
			w_xfer_stream(w, p);
	}
	w_tick(w, ns * MM_MAX(w->opts.time_scale, 1));
}

void h_calm(struct world *w)
{
	w_cuts_end(w);
	w->late_permille = 0;
	if (!w->xfer_up)
		w_xfer_up(w);
	W_FOREACH(w, p) {
		p->frozen = false;
		if (p->hostile || (p->alive && !p->connected))
			w_kill(w, p);
		if (p->used)
			w_plan_set(w, p, -1, 0);
		w_drain(w);
	}
	h_steer_end(w);
	for (uint32_t i = 0; i < 120; i++)
		h_round(w, 8 * MM_NS_PER_MS);
	w_tick(w, 31 * MM_NS_PER_S *
			  MM_MAX(w->opts.time_scale,
				 1)); /* models that found no room are refused by now */
	for (uint32_t i = 0; i < 30; i++)
		h_round(w, 8 * MM_NS_PER_MS);
}

static bool all_moved(struct world *w, const uint64_t *steps)
{
	W_FOREACH(w, p)
		if (p->connected && p->model_ready && p->steps == steps[p - w->proc])
			return false;
	return true;
}

void h_assert_moving(struct world *w)
{
	uint64_t steps[W_PROCS];

	for (uint32_t i = 0; i < W_PROCS; i++)
		steps[i] = w->proc[i].steps;
	for (uint32_t i = 0; i < 120 || (i < H_MOVE_ROUNDS && !all_moved(w, steps)); i++)
		h_round(w, i < 120 ? MM_NS_PER_MS : 8 * MM_NS_PER_MS);
	mm_assert(all_moved(w, steps));
	W_FOREACH(w, p)
		mm_assert(!p->connected || !p->unloading); /* every model that was to go has gone */
	W_FOREACH(w, p)
		for (uint32_t lot = 0; p->connected && lot < MM_SWAP_LOTS; lot++)
			mm_assert(!p->lot[lot]); /* every list was answered */
}

static bool wants_kv(const struct w_proc *p)
{
	return p->connected && p->kv_declared;
}

static int64_t priority_of(const struct world *w, const struct w_proc *p)
{
	struct mm_core_account a;

	return mm_core_account_find(w->core, 1000 + p->account, &a) ? (int64_t)a.quota.priority : 0;
}

/*
 * Pages are kept back without end for processes of a higher priority that wait one after the other.
 */
static bool is_outranked(struct world *w, const struct w_proc *p)
{
	W_FOREACH(w, q)
		if (wants_kv(q) && !q->held && priority_of(w, q) > priority_of(w, p))
			return true;
	return false;
}

static bool kv_is_served(struct world *w, const struct w_proc *p)
{
	return !wants_kv(p) || p->held || is_outranked(w, p) || !w_could_have(w, p);
}

/*
 * Free pages may be kept for the layers of the process that computes: one that waits for its turn
 * gets its chunk then.
 */
static bool waits_for_turn(struct world *w)
{
	W_FOREACH(w, p)
		if (!kv_is_served(w, p) && p->machine.turn.mode != MM_TURN_NONE)
			return true;
	return false;
}

/* No process that could be granted a chunk goes without. */
static void assert_served(struct world *w)
{
	W_FOREACH(w, p)
		while (wants_kv(p) && w_kv_release(w, p))
			;
	W_FOREACH(w, p)
		if (wants_kv(p))
			w_kv_want(w, p, 1);
	for (uint32_t i = 0; i < KEEP_ROUNDS || (i < TURN_ROUNDS && waits_for_turn(w)); i++)
		h_round(w, 100 * MM_NS_PER_MS);
	W_FOREACH(w, p)
		mm_assert(kv_is_served(w, p));
}

/* Every process except @but demands all there is, and releases a chunk now and then. */
static void greed_but(struct world *w, const struct w_proc *but, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		W_FOREACH(w, p) {
			if (!wants_kv(p) || p == but)
				continue;
			if (p->held > 1 || (p->held && !w_below(w, 4)))
				w_kv_release(w, p);
			w_kv_want(w, p, p->chunks_max);
			p->used_chunks = p->held;
			w_stats(w, p, 1);
		}
		h_round(w, 20 * MM_NS_PER_MS);
	}
}

static uint32_t wakes_count(const struct world *w)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < W_PROCS; i++)
		n += w->proc[i].wakes;
	return n;
}

/*
 * Plans are not changed all the time: so many a second of each tenant, and some at once; and two
 * for each time that a tenant was idle and went back to work, whose layers were lent meanwhile.
 */
static void assert_changes(struct world *w, const struct mm_core_stats *before, uint64_t since_ns,
			   uint32_t wakes)
{
	uint64_t ms = (w->now_ns - since_ns) / MM_NS_PER_MS / MM_MAX(w->opts.time_scale, 1);
	struct mm_core_stats now;

	mm_core_stats(w->core, &now);
	mm_assert(w->opts.policy != MM_POLICY_REMAP ||
		  now.plan_changes - before->plan_changes <=
			  now.tenants * (CHANGES_AT_ONCE + CHANGES_PER_S * ms / 1000) +
				  2 * (wakes_count(w) - wakes));
}

/*
 * If every process demands all there is and releases a chunk now and then, every process gets some
 * again, unless its account is full or has a lower priority.
 */
static void assert_fair(struct world *w)
{
	uint32_t grants[W_PROCS], all = 0, wakes;
	struct mm_core_stats before;
	uint64_t since_ns;

	greed_but(w, NULL, 60);
	for (uint32_t i = 0; i < W_PROCS; i++)
		grants[i] = w->proc[i].grants;
	mm_core_stats(w->core, &before);
	since_ns = w->now_ns;
	wakes = wakes_count(w);
	greed_but(w, NULL, 240);
	assert_changes(w, &before, since_ns, wakes);
	W_FOREACH(w, p)
		all += wants_kv(p) ? p->grants - grants[p - w->proc] : 0;
	W_FOREACH(w, p)
		if (wants_kv(p) && !w->quotas && !w->account_max[p->account] && all > 40 * W_PROCS)
			mm_assert(p->grants > grants[p - w->proc]);
}

/* Returns the number of chunks that the policy allows the process. */
static uint32_t chunks_allowed(const struct world *w, const struct w_proc *p)
{
	return mm_policy_get(w->opts.policy)->kv_static ? MM_MIN(p->share, p->chunks_max)
							: p->chunks_max;
}

/* A min that was raised above what the others have left waits for them. */
static bool min_is_granted(const struct world *w, const struct w_proc *p)
{
	struct mm_core_account a;
	uint64_t missing;

	mm_assert(mm_core_account_find(w->core, 1000 + p->account, &a));
	missing = a.quota.min_pages - MM_MIN(a.quota.min_pages, a.charged + a.quarantined);
	return a.pending || missing < p->chunk_pages || p->held >= chunks_allowed(w, p);
}

/* The min of an account can be granted, whatever the others demand and hold. */
static void assert_mins(struct world *w)
{
	W_FOREACH(w, p) {
		struct mm_core_account a;

		if (!wants_kv(p) || w->xfer_faults ||
		    !mm_core_account_find(w->core, 1000 + p->account, &a))
			continue;
		while (w_kv_release(w, p))
			;
		w_kv_want(w, p, 0);
		greed_but(w, p, 20);
		w_kv_want(w, p, p->chunks_max);
		for (uint32_t i = 0; i < 20 || (i < MIN_ROUNDS && !min_is_granted(w, p)); i++)
			h_round(w, 20 * MM_NS_PER_MS);
		mm_assert(min_is_granted(w, p));
	}
}

void h_end(struct world *w)
{
	struct mm_core_stats s;

	W_FOREACH(w, p)
		w_kill(w, p);
	for (uint32_t i = 0; i < 60; i++)
		h_round(w, 200 * MM_NS_PER_MS);
	mm_core_stats(w->core, &s);
	mm_assert(s.tenants == 0);
	mm_assert(s.pages[MM_PAGE_FREE] + s.pages[MM_PAGE_QUARANTINE] + s.pages[MM_PAGE_NONE] ==
		  w->opts.pages);
	/* The pages of a job during which xfer failed twice are lost. */
	mm_assert(s.pages[MM_PAGE_QUARANTINE] <= w->xfer_faults / 2);
	mm_assert(s.pages[MM_PAGE_NONE] <= w->xfer_faults / 2 * MM_FD_BATCH_MAX);
}

void h_after(struct world *w)
{
	h_calm(w);
	h_assert_moving(w);
	if (!w_below(w, 2))
		assert_served(w);
	if (!w_below(w, 3))
		assert_fair(w);
	if (!w_below(w, 3))
		assert_mins(w);
}
