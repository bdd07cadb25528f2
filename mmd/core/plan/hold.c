/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/hold.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"

/* Returns 0, or why the model is not held. */
static int hold_check(const struct mm_c_tenant *t)
{
	if (t->model != MM_C_MODEL_READY || t->unload.due)
		return -ENOENT;
	if (t->hold.on)
		return -EALREADY;
	return 0;
}

/* Whether the account has no room for the layers that are away. */
static bool hold_has_no_room(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_plan_set set;

	return t->plan.alpha && mm_c_change_set(c, t, 0, 0, 0, &set) > mm_c_room_soon(c, t);
}

int mm_c_hold_request(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	int r;

	if (msg->arg[0] > 1)
		return MM_E_PROTOCOL;
	if (!msg->arg[0]) {
		t->hold.on = t->hold.due = false;
		mm_c_reply(c, t, msg, 0);
		return 0;
	}
	r = hold_check(t);
	if (r) {
		mm_c_reply(c, t, msg, r);
		return 0;
	}
	t->hold = (struct mm_c_hold){ .on = true, .due = true, .asks = *msg };
	return 0;
}

void mm_c_hold_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	bool refuses;

	if (!t->hold.due || t->change->state != MM_CHANGE_STEADY || t->change->broken ||
	    !mm_c_burst(c))
		return;
	/* Once: what others of the account take after that may come back while the tenant waits. */
	refuses = !t->hold.checked && hold_has_no_room(c, t);
	t->hold.checked = true;
	if (t->plan.alpha && !refuses)
		return;
	t->hold.due = false;
	t->hold.on = !refuses;
	mm_c_reply(c, t, &t->hold.asks, refuses ? -EDQUOT : 0);
}
