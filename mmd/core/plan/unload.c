/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/unload.h"

#include <errno.h>

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/plan/change.h"

int mm_c_unload_request(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg)
{
	if (t->unload.due) {
		mm_c_reply(c, t, &t->unload.asks, -EALREADY);
		t->unload.asks = *msg;
	} else if (t->model != MM_C_MODEL_READY) {
		mm_c_reply(c, t, msg, -ENOENT);
	} else if (t->hold.on) {
		mm_c_reply(c, t, msg, -EBUSY);
	} else {
		t->unload = (struct mm_c_unload){ .due = true, .asks = *msg };
	}
	return 0;
}

bool mm_c_unload_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	if (!t->unload.due || t->kicked)
		return false;
	if (t->change->state == MM_CHANGE_STEADY)
		mm_c_change_begin_unload(c, t);
	if (t->model != MM_C_MODEL_NONE || !mm_c_burst(c))
		return false;
	t->unload.due = false;
	mm_c_reply(c, t, &t->unload.asks, 0);
	return true;
}
