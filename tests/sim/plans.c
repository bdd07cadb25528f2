/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories in which plans change by hand all the time, while xfer dies, jobs fail and steps break
 * off. Little else happens, so that a change meets another event in each of its states.
 */
#include <errno.h>

#include "tests/sim/history.h"
#include "tests/sim/mortal.h"

#define PLANS_TENANTS 5
#define REPLANS       4 /* changes of plan of each tenant, once the faults have stopped */

/* Relative frequencies of the sorts of events. */
struct plans_mix {
	uint32_t move, by_hand, engine, resync, fault, spawn;
	uint32_t down; /* xfer comes up again after so many chances, on average */
};

/* ---- the random world ---- */

static struct mm_core_opts plans_opts(struct world *w)
{
	struct mm_core_opts opts = h_opts(w);

	opts.pages = 150 + w_below(w, W_PAGES - 150);
	opts.change_ns = MM_NS_PER_MS / (10u << w_below(w, 5));
	opts.full_drain = !w_below(w, 12);
	opts.time_scale = 0;
	return opts;
}

static struct plans_mix plans_mix_any(struct world *w)
{
	return (struct plans_mix){ .move = 60,
				   .by_hand = 4 + w_below(w, 20),
				   .engine = w_below(w, 4),
				   .resync = w_below(w, 8),
				   .fault = w_below(w, 8),
				   .spawn = 1,
				   .down = 1 + w_below(w, 6) };
}

static void plans_model_any(struct world *w, struct w_proc *p)
{
	uint32_t layers = 4 + w_below(w, 9), pages[W_GROUPS], most = 1 + w_below(w, 2);
	bool equal = w_below(w, 3);

	pages[0] = w_below(w, 3);
	for (uint32_t i = 1; i <= layers; i++)
		pages[i] = equal ? most : 1 + w_below(w, 3);
	w_model_of(w, p, 1 + w_below(w, 4), pages, layers);
}

static void tenant_spawn(struct world *w)
{
	uint64_t features, quantum_ns;
	uint32_t n = 0;
	struct w_proc *p;

	W_FOREACH(w, q)
		n += q->used;
	if (n >= PLANS_TENANTS)
		return;
	features = w_below(w, 10) ? MM_FEAT_KNOWN : MM_FEAT_KNOWN & ~MM_FEAT_PARTIAL;
	p = w_join(w, w_below(w, W_ACCOUNTS), features);
	if (!p)
		return;
	h_count(H_JOINS, 1);
	plans_model_any(w, p);
	if (w_below(w, w->late_permille ? 2 : 8))
		return;
	quantum_ns = w_below(w, 30) * MM_NS_PER_MS;
	w_turn_join(w, p, (enum mm_turn_mode)w_below(w, MM_TURN_MODES), quantum_ns, 0);
}

/* Draws a process that is in use, or any if several draws fail. */
static struct w_proc *proc_any(struct world *w)
{
	struct w_proc *p = &w->proc[w_below(w, W_PROCS)];

	for (uint32_t i = 0; i < W_PROCS && !p->used; i++)
		p = &w->proc[w_below(w, W_PROCS)];
	return p;
}

/* ---- events ---- */

static void xfer_move(struct world *w, const struct plans_mix *mix)
{
	if (!w->xfer_up && !w_below(w, mix->down))
		w_xfer_up(w);
	for (uint32_t n = w_below(w, 5); n && w_xfer_work(w, 4, 0); n--)
		;
}

static void world_move(struct world *w, const struct plans_mix *mix)
{
	struct w_proc *p = proc_any(w);

	switch (w_below(w, 8)) {
	case 0:
	case 1:
		xfer_move(w, mix);
		break;
	case 2:
	case 3:
		for (uint32_t n = w_below(w, 50); n && w_proc_event(w, p) && !p->mapping; n--)
			;
		break;
	case 4:
		w_tick(w, w_below(w, 2 * MM_NS_PER_MS));
		break;
	default:
		for (uint32_t n = w_below(w, 24); n && w_proc_step(w, p); n--)
			w_xfer_stream(w, p);
		w_xfer_stream(w, p);
		break;
	}
}

static void plan_by_hand(struct world *w, const struct w_proc *p)
{
	uint32_t slots;
	int32_t alpha;

	if (!p->used)
		return;
	slots = w_below(w, MM_SLOTS_MAX + 1);
	alpha = (int32_t)w_below(w, MM_MAX(p->n_groups, 1));
	alpha -= !w_below(w, 8);
	h_count(H_BY_HAND, !w_plan_set(w, p, alpha, slots));
	w_drain(w);
}

/* Sends a RESYNC as a thread that was held up would, for steps that are in order again by now. */
static void steps_resync_late(struct world *w, struct w_proc *p)
{
	h_count(H_LATE_RESYNCS, 1);
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_RESYNC });
}

static void steps_resync(struct world *w, struct w_proc *p)
{
	if (!p->connected || p->frozen || !p->model_ready)
		return;
	if (p->machine.open)
		h_resync(w, p);
	else if (w_is_parked(p) || p->mapping || !w_below(w, 4))
		steps_resync_late(w, p);
}

static bool job_changes_plan(const struct mm_msg *job)
{
	return job->opcode == MM_XOP_REPLAN || job->opcode == MM_XOP_QUIESCE ||
	       job->opcode == MM_XOP_ACTIVATE;
}

static void xfer_kill_in_change(struct world *w)
{
	bool changes = false;

	for (uint32_t i = 0; i < w->jobs; i++)
		changes |= job_changes_plan(&w->job[i]);
	if (changes || !w_below(w, 4))
		w_xfer_kill(w, !w_below(w, 3));
}

/* Fails a job that may fail; QUIESCE and DETACH do not. */
static void job_fail(struct world *w)
{
	if (!w->jobs)
		return;
	if (w->job[0].opcode == MM_XOP_COPY || w->job[0].opcode == MM_XOP_REPLAN ||
	    w->job[0].opcode == MM_XOP_ACTIVATE)
		h_count(H_JOB_ERRORS, w_xfer_work(w, 1, -EIO));
}

/* Fails a mapping that is under way. */
static void commit_fail(struct world *w, struct w_proc *p)
{
	if (p->mapping && p->connected)
		w_proc_map_fail(w, p);
}

static void tenant_end(struct world *w, struct w_proc *p)
{
	if (w_below(w, 3)) {
		if (p->alive && !p->connected)
			h_kill(w, p);
		return;
	}
	switch (w_below(w, 3)) {
	case 0:
		h_kill(w, p);
		break;
	case 1:
		if (p->connected)
			h_disconnect(w, p);
		break;
	default:
		if (p->connected && !p->machine.open)
			w_bye(w, p);
		break;
	}
}

static void fault_any(struct world *w)
{
	struct w_proc *p = proc_any(w);

	switch (w_below(w, 10)) {
	case 0:
	case 1:
	case 2:
	case 3:
		xfer_kill_in_change(w);
		break;
	case 4:
	case 5:
		job_fail(w);
		break;
	case 6:
		if (!w_below(w, 2))
			commit_fail(w, p);
		break;
	case 7:
		tenant_end(w, p);
		break;
	default:
		p->frozen = !p->frozen && !w_below(w, 3);
		break;
	}
}

static void plans_step(struct world *w, const struct plans_mix *mix)
{
	uint32_t random = w_below(w, mix->move + mix->by_hand + mix->engine + mix->resync +
					     mix->fault + mix->spawn);

	w->now_ns += w_below(w, 100000);
	if (random < mix->move)
		world_move(w, mix);
	else if ((random -= mix->move) < mix->by_hand)
		plan_by_hand(w, proc_any(w));
	else if ((random -= mix->by_hand) < mix->engine)
		h_engine(w, proc_any(w));
	else if ((random -= mix->engine) < mix->resync)
		steps_resync(w, proc_any(w));
	else if (random - mix->resync < mix->fault)
		fault_any(w);
	else
		tenant_spawn(w);
}

/* ---- afterwards ---- */

/*
 * The layers that each slot had streamed when the plan in force was first seen, the epoch of that
 * plan, and that of the one before.
 */
struct slots_seen {
	uint64_t before, epoch, streamed[MM_SLOTS_MAX];
};

static bool proc_streams(const struct w_proc *p)
{
	return p->connected && p->model_ready && p->cycles.active;
}

/* Returns true if every slot of its plan has streamed all of its layers since. */
static bool proc_cycled(const struct w_proc *p, struct slots_seen *seen)
{
	if (!proc_streams(p))
		return true;
	if (seen->epoch != p->plan.epoch) {
		seen->epoch = p->plan.epoch;
		for (uint32_t s = 0; s < p->plan.beta; s++)
			seen->streamed[s] = p->streamed[s];
	}
	for (uint32_t s = 0; s < p->plan.beta; s++)
		if (p->streamed[s] - seen->streamed[s] < p->plan.slot[s].n_layers)
			return false;
	return true;
}

static bool procs_cycled(struct world *w, struct slots_seen *seen)
{
	bool all = true;

	W_FOREACH(w, p)
		all &= proc_cycled(p, &seen[p - w->proc]);
	return all;
}

/* Changes all plans by hand; then each slot, also a new one, must stream a whole cycle. */
static void plans_assert_cycling(struct world *w)
{
	struct slots_seen seen[W_PROCS] = { 0 };
	uint32_t i = 0;

	W_FOREACH(w, p) {
		seen[p - w->proc].before = p->plan.epoch;
		plan_by_hand(w, p);
	}
	for (; i < 40 || (i < H_MOVE_ROUNDS && !procs_cycled(w, seen)); i++)
		h_round(w, i < 40 ? MM_NS_PER_MS : 8 * MM_NS_PER_MS);
	mm_assert(procs_cycled(w, seen));
	W_FOREACH(w, p)
		h_count(H_CYCLES, proc_streams(p) && p->plan.epoch != seen[p - w->proc].before);
}

static void plans_after(struct world *w)
{
	h_calm(w);
	for (uint32_t i = 0; i < REPLANS; i++)
		plans_assert_cycling(w);
	h_assert_moving(w);
}

void h_plans(struct world *w, uint64_t seed, uint64_t steps)
{
	struct mm_core_opts opts;
	struct plans_mix mix;

	w->rng = seed * 131 + 7;
	opts = plans_opts(w);
	h_begin(w, &opts, seed);
	mix = plans_mix_any(w);
	w_xfer_up(w);
	for (uint32_t i = 0; i < PLANS_TENANTS - 1; i++)
		tenant_spawn(w);
	for (uint32_t i = 0; i < 8; i++)
		h_round(w, MM_NS_PER_MS);
	for (uint64_t i = 0; i < steps; i++) {
		plans_step(w, &mix);
		h_send_late(w);
	}
	plans_after(w);
}
