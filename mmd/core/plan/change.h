/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_change - how a model gets its first plan, and how one plan replaces another
 *
 * Concept:    One state per tenant, and one table of rows (state, event, condition) -> (state,
 *             effect). An event is a reported fact: the market begins a change, pages are filled,
 *             the tenant has parked, xfer ended a control job, the queue has room. An event without
 *             a row cannot happen: from mmd itself it fails an assertion, from a tenant it is a
 *             protocol error. change_rows.h has the table, change.c the effects.
 * Full, part: In a change in full no step runs until the change is done. In a change in part steps
 *             go on, and only layers that are mapped elsewhere wait. Documentation/protocol.md
 *             gives the reasons for the order of events.
 * Queue:      A state that waits only for MM_CHANGE_ROOM is left within the event that led to it,
 *             unless the queue is full; then mm_core_next() settles again.
 * xfer:       The state, and the plan that xfer serves, determine the control job that a tenant
 *             needs: mm_c_change_control(). Only reported ends of jobs change struct mm_change.
 * Threading:  core thread only.
 * Invariants: At most one row matches; the effect of every row fits into MM_BURST_MAX actions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/core/book/book.h"
#include "mmd/core/plan/change_rows.h"
#include "mmd/core/plan/plan.h"
#include "mmd/core/plan/preload.h"

struct mm_change {
	enum mm_change_state state;
	bool unload; /* the change under way ends the model */
	bool broken; /* a step broke off: a change in full must put the gates in order */
	/* epoch of the plan that xfer serves; 0: it serves none */
	uint64_t served_epoch;
	/* layers from the first on that the tenant reported as mapped, and that the core opened */
	uint32_t mapped, open;
	/* bit per layer that the change in part makes resident */
	uint64_t home[MM_LAYER_WORDS];

	struct mm_plan_set set, next_set;
	uint32_t next_alpha;
	struct mm_core_cold next_cold;
	struct mm_c_preload pre;
	uint64_t change_ns; /* start of the change that is under way */
	/* token bucket: the changes so far are paid for until then, at one per opts.change_ns */
	uint64_t spent_ns;
	uint64_t change_gain; /* pages that the change sets free */
	uint64_t retry_ns;    /* after a change failed: the next one begins no earlier */
};

/* Returns 0, or MM_E_PROTOCOL for an event of a tenant that has no row. */
int mm_c_change_event(struct mm_core *c, struct mm_c_tenant *t, enum mm_change_event event);
/* True while a change or a first plan is under way. */
static inline bool mm_c_is_changing(const struct mm_c_tenant *t)
{
	return t->change->state != MM_CHANGE_NONE && t->change->state != MM_CHANGE_STEADY;
}
/* Performs everything that has become possible without an event. */
void mm_c_change_settle(struct mm_core *c, struct mm_c_tenant *t);
/*
 * Begins the first plan of the waiting model: its pages are preloaded. Returns false if they are
 * not free.
 */
bool mm_c_change_begin_first(struct mm_core *c, struct mm_c_tenant *t);
/*
 * Begins a change to @alpha, with @slots as for mm_c_change_set(), if the pages that it needs are
 * free and within the budget. Returns false if it cannot begin now.
 */
bool mm_c_change_begin(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha, uint32_t slots,
		       uint64_t budget_pages);
/* Begins the change that ends the model, if a change may begin now. */
void mm_c_change_begin_unload(struct mm_core *c, struct mm_c_tenant *t);
/*
 * True if the plan of the tenant was not changed too often recently. Every change waits for this,
 * whatever its reason.
 */
bool mm_c_change_may_begin(const struct mm_core *c, const struct mm_c_tenant *t);
/* Returns when the next change of the plan may begin; it is past if one may begin now. */
uint64_t mm_c_change_may_at_ns(const struct mm_core *c, const struct mm_c_tenant *t);
/*
 * Returns when the first change that is waiting because of mm_c_change_may_begin() may begin;
 * UINT64_MAX: none waits.
 */
uint64_t mm_c_change_deadline(const struct mm_core *c);
/* Ends the change because the tenant has ended. */
void mm_c_change_cancel(struct mm_core *c, struct mm_c_tenant *t);
/*
 * True while steps run and the tenant maps. An ABORT would then let steps pass to addresses where
 * nothing is mapped.
 */
bool mm_c_change_in_window(const struct mm_c_tenant *t);

/* Returns the control job that a live tenant needs; MM_XOP_NOP: none. */
enum mm_xop mm_c_change_control(const struct mm_c_tenant *t);
/* Handles the end of a control job. @job: as it was issued. */
void mm_c_change_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
			      int result);
/* Notes that xfer is new, and serves no plan. */
void mm_c_change_xfer_up(struct mm_c_tenant *t);
/* Requests of the tenant. Each returns 0 or MM_E_PROTOCOL. */
int mm_c_change_parked(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_mapped(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_committed(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_change_resync(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
