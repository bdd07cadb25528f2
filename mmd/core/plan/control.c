/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/control.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/swap.h"
#include "mmd/core/book/emit.h"

static void control_issue(struct mm_core *c, struct mm_c_tenant *t, enum mm_xop op)
{
	struct mm_msg msg = { .opcode = (uint16_t)op, .arg = { t->id } };

	msg.epoch = op == MM_XOP_DETACH ? 0 : t->plan.epoch;
	t->ctl = mm_c_job_issue(c, mm_c_index(c, t), &msg);
}

void mm_c_control_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	enum mm_xop op;

	if (!c->xfer_up || t->ctl || !mm_c_burst(c))
		return;
	if (t->life != MM_LIFE_LIVE) {
		/* DETACH removes the swap space, which running jobs still need. */
		if (t->attached && !t->swap->jobs)
			control_issue(c, t, MM_XOP_DETACH);
		return;
	}
	op = mm_c_change_control(t);
	if (op != MM_XOP_NOP)
		control_issue(c, t, op);
}

void mm_c_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
		       int result)
{
	t->ctl = MM_JOB_NONE;
	if (job->opcode == MM_XOP_DETACH)
		t->attached = false;
	else if (t->life == MM_LIFE_LIVE)
		mm_c_change_control_done(c, t, job, result);
}
