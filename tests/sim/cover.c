/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/cover.h"

#include "mmd/core/book/book.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/plan/change.h"

#define COVER_NAME(name) #name,
const char *const cover_state_name[COVER_STATE_COUNT] = { COVER_STATES(COVER_NAME) };
const char *const cover_event_name[COVER_EVENT_COUNT] = { COVER_EVENTS(COVER_NAME) };
#undef COVER_NAME

/* ---- states ---- */

static const enum cover_state cover_of_change[MM_CHANGE_STATES] = {
	[MM_CHANGE_NONE] = COVER_NONE,
	[MM_CHANGE_LOAD] = COVER_LOAD,
	[MM_CHANGE_STEADY] = COVER_STEADY,
	[MM_CHANGE_PRELOAD] = COVER_PRELOAD,
	[MM_CHANGE_PREPARED] = COVER_PREPARED,
	[MM_CHANGE_FULL_QUIESCE] = COVER_F_QUIESCE,
	[MM_CHANGE_FULL_SWITCH] = COVER_F_SWITCH_DUE,
	[MM_CHANGE_FULL_SWITCHED] = COVER_F_SWITCHED,
	[MM_CHANGE_FULL_DONE] = COVER_DONE_DUE,
	[MM_CHANGE_PART_SWITCH] = COVER_P_SWITCH_DUE,
	[MM_CHANGE_PART_REPLAN] = COVER_P_REPLAN,
	[MM_CHANGE_PART_QUIESCE] = COVER_P_QUIESCE,
	[MM_CHANGE_PART_RESUME] = COVER_P_RESUME_DUE,
	[MM_CHANGE_PART_WINDOW] = COVER_P_WINDOW,
	[MM_CHANGE_PART_DONE] = COVER_DONE_DUE,
};

enum cover_state cover_state(const struct mm_core *core, uint32_t tenant)
{
	const struct mm_c_tenant *t = mm_c_tenant(core, tenant);

	if (!t)
		return COVER_GONE;
	if (t->life != MM_LIFE_LIVE)
		return COVER_ENDING;
	if (t->kicked)
		return COVER_KICKED;
	return cover_of_change[t->change->state];
}

/* ---- events ---- */

static void last_count(struct cover *cover, const struct world *w, uint32_t i)
{
	if (!cover->last[i].pending)
		return;
	cover->last[i].pending = false;
	cover->counts->next[cover->last[i].state][cover->last[i].event]
			   [cover_state(w->core, cover->last[i].tenant)]++;
}

static void event_note(struct cover *cover, struct world *w, uint32_t tenant,
		       enum cover_event event)
{
	const struct w_proc *p = w_proc_of(w, tenant);
	uint32_t i;

	if (!p)
		return;
	i = (uint32_t)(p - w->proc);
	last_count(cover, w, i);
	cover->last[i].pending = true;
	cover->last[i].state = cover_state(w->core, tenant);
	cover->last[i].event = event;
	cover->last[i].tenant = tenant;
}

static void cover_on_parked(struct cover *cover, struct world *w, const struct mm_c_tenant *t,
			    const struct mm_msg *msg)
{
	if (t->change->state == MM_CHANGE_PREPARED && t->change->broken)
		cover->counts->null_changes++;
	event_note(cover, w, t->id,
		   msg->epoch <= t->plan.epoch ? COVER_ON_PARKED_STALE
		   : msg->arg[0]               ? COVER_ON_PARKED_BROKEN
		   : w->xfer_up                ? COVER_ON_PARKED
					       : COVER_ON_PARKED_DOWN);
}

static void cover_on_request(struct cover *cover, struct world *w, uint32_t tenant,
			     const struct mm_msg *msg)
{
	const struct mm_c_tenant *t = mm_c_tenant(w->core, tenant);

	if (!t)
		return;
	switch (msg->opcode) {
	case MM_OP_PARKED:
		cover_on_parked(cover, w, t, msg);
		break;
	case MM_OP_MAPPED:
		event_note(cover, w, tenant, COVER_ON_MAPPED);
		break;
	case MM_OP_COMMITTED:
		event_note(cover, w, tenant,
			   msg->result ? COVER_ON_COMMITTED_ERROR : COVER_ON_COMMITTED);
		break;
	case MM_OP_RESYNC:
		event_note(cover, w, tenant, COVER_ON_RESYNC);
		break;
	case MM_OP_BYE:
		event_note(cover, w, tenant, COVER_ON_BYE);
		break;
	default:
		break;
	}
}

static void cover_on_job(struct cover *cover, struct world *w, const struct mm_job *j, bool failed)
{
	static const struct {
		enum mm_xop op;
		enum cover_event done, failed;
	} jobs[] = {
		{ MM_XOP_COPY, COVER_ON_COPY_DONE, COVER_ON_COPY_FAILED },
		{ MM_XOP_ACTIVATE, COVER_ON_ACTIVATE_DONE, COVER_ON_ACTIVATE_FAILED },
		{ MM_XOP_QUIESCE, COVER_ON_QUIESCE_DONE, COVER_ON_QUIESCE_FAILED },
		{ MM_XOP_REPLAN, COVER_ON_REPLAN_DONE, COVER_ON_REPLAN_FAILED },
	};

	for (uint32_t i = 0; i < MM_ARRAY_SIZE(jobs); i++)
		if (j->msg.opcode == jobs[i].op)
			event_note(cover, w, w->core->tenant[j->tenant].id,
				   failed ? jobs[i].failed : jobs[i].done);
}

/* If xfer died of the oldest job before, the job counts as failed. */
static void cover_on_fault(struct cover *cover, struct world *w)
{
	uint32_t job = w->core->jobs.first;

	if (job && w->core->jobs.job[job - 1].deaths)
		cover_on_job(cover, w, &w->core->jobs.job[job - 1], true);
}

static void cover_on_disconnect(struct cover *cover, struct world *w, uint32_t tenant)
{
	const struct mm_c_tenant *t = mm_c_tenant(w->core, tenant);

	if (!t)
		return;
	cover->counts->kicked_with_job += t->kicked && t->life == MM_LIFE_LIVE && t->ctl;
	event_note(cover, w, tenant, t->kicked ? COVER_ON_KICKED : COVER_ON_DISCONNECT);
}

static void cover_on_all(struct cover *cover, struct world *w, enum cover_event what)
{
	W_FOREACH(w, p)
		if (p->used)
			event_note(cover, w, p->tenant, what);
}

/* The low half of the id is the slot of the job in the core's table. */
static const struct mm_job *job_of(const struct world *w, const struct mm_msg *job)
{
	return &w->core->jobs.job[job->user_data & 0xffff];
}

static void cover_on_event(struct world *w, enum w_event event, uint32_t tenant,
			   const struct mm_msg *msg, int result)
{
	struct cover *cover = w->watcher;

	switch (event) {
	case W_EVENT_REQUEST:
		cover_on_request(cover, w, tenant, msg);
		break;
	case W_EVENT_JOB_DONE:
		cover_on_job(cover, w, job_of(w, msg), result != 0);
		break;
	case W_EVENT_DISCONNECT:
		cover_on_disconnect(cover, w, tenant);
		break;
	case W_EVENT_DEAD:
		event_note(cover, w, tenant, COVER_ON_DEAD);
		break;
	case W_EVENT_XFER_UP:
		cover_on_all(cover, w, COVER_ON_XFER_UP);
		break;
	case W_EVENT_XFER_DOWN:
		cover_on_all(cover, w, COVER_ON_XFER_DOWN);
		break;
	case W_EVENT_XFER_FAULT:
		cover_on_fault(cover, w);
		break;
	}
}

/* ---- counting ---- */

void cover_watch(struct cover *cover, struct world *w, struct cover_counts *counts)
{
	*cover = (struct cover){ .counts = counts };
	*counts = (struct cover_counts){ 0 };
	w->watch = cover_on_event;
	w->watcher = cover;
}

void cover_end(struct cover *cover, struct world *w)
{
	for (uint32_t i = 0; i < W_PROCS; i++)
		last_count(cover, w, i);
}

uint64_t cover_times(const struct cover_counts *counts, enum cover_state state,
		     enum cover_event event)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < COVER_STATE_COUNT; i++)
		n += counts->next[state][event][i];
	return n;
}

void cover_add(struct cover_counts *sum, const struct cover_counts *counts)
{
	for (uint32_t s = 0; s < COVER_STATE_COUNT; s++)
		for (uint32_t e = 0; e < COVER_EVENT_COUNT; e++)
			for (uint32_t n = 0; n < COVER_STATE_COUNT; n++)
				sum->next[s][e][n] += counts->next[s][e][n];
	sum->kicked_with_job += counts->kicked_with_job;
	sum->null_changes += counts->null_changes;
}
