/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a tenant that are events of the change of its plan. */
#include "mmd/core/plan/change.h"

#include "libclient/base/base.h"

/*
 * The flag replaces a RESYNC, since a RESYNC that another thread sends may arrive after this
 * request.
 */
int mm_c_change_parked(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (msg->epoch <= t->plan.epoch)
		return 0; /* the request and the end of that change crossed */
	if (t->change->state != MM_CHANGE_PREPARED || msg->epoch != t->plan.epoch + 1 ||
	    msg->arg[0] & ~MM_PARKED_BROKEN)
		return MM_E_PROTOCOL;
	if (msg->arg[0] & MM_PARKED_BROKEN)
		mm_c_change_event(c, t, MM_CHANGE_RESYNC);
	return mm_c_change_event(c, t, MM_CHANGE_PARKED);
}

int mm_c_change_mapped(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	int r;

	if (msg->epoch != t->plan.epoch || msg->arg[0] > t->n_layers)
		return MM_E_PROTOCOL;
	r = mm_c_change_event(c, t, MM_CHANGE_MAPPED);
	if (r || msg->arg[0] < t->change->mapped)
		return MM_E_PROTOCOL;
	t->change->mapped = (uint32_t)msg->arg[0];
	return 0;
}

int mm_c_change_committed(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (msg->epoch < t->plan.epoch)
		return 0;
	if (msg->epoch != t->plan.epoch)
		return MM_E_PROTOCOL;
	return mm_c_change_event(c, t, msg->result ? MM_CHANGE_COMMIT_FAILED : MM_CHANGE_COMMITTED);
}

/*
 * A RESYNC for a step of an older plan is ignored: the PARKED that followed the step reported that
 * it broke off, so the change was in full. Epoch 0: the request does not name the plan of the step.
 */
int mm_c_change_resync(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (msg->epoch > t->plan.epoch)
		return MM_E_PROTOCOL;
	if (msg->epoch && msg->epoch < t->plan.epoch)
		return 0;
	return mm_c_change_event(c, t, MM_CHANGE_RESYNC);
}
