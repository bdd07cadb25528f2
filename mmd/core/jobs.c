/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/state.h"

#include <errno.h>

#include "mm/base.h"
#include "mmd/core/swap.h"

/* A job's id: slot | serial << 16, below 2^63: the shell's own jobs set the top bit. */
#define SLOT_BITS   16
#define SERIAL_MASK ((UINT64_C(1) << 47) - 1)

static bool is_control(uint16_t op)
{
	return op == MM_XOP_ACTIVATE || op == MM_XOP_QUIESCE || op == MM_XOP_DETACH ||
	       op == MM_XOP_REPLAN;
}

static bool is_swap(uint16_t op)
{
	return op == MM_XOP_SWAP_OUT || op == MM_XOP_SWAP_IN;
}

bool mm_c_job_room(const struct mm_core *c)
{
	return c->bulk_used < c->opts.jobs_max;
}

static uint32_t free_slot(const struct mm_core *c)
{
	uint32_t i = 0;

	while (c->job[i].used)
		i++;
	mm_assert(i < c->opts.jobs_max);
	return i;
}

static void link_last(struct mm_core *c, uint32_t job)
{
	struct mm_c_job *j = &c->job[job - 1];

	j->prev = c->job_last;
	j->next = MM_JOB_NONE;
	if (c->job_last)
		c->job[c->job_last - 1].next = job;
	else
		c->job_first = job;
	c->job_last = job;
}

static void unlink_job(struct mm_core *c, uint32_t job)
{
	struct mm_c_job *j = &c->job[job - 1];

	if (j->prev)
		c->job[j->prev - 1].next = j->next;
	else
		c->job_first = j->next;
	if (j->next)
		c->job[j->next - 1].prev = j->prev;
	else
		c->job_last = j->prev;
	j->used = false;
	if (!is_control(j->msg.opcode))
		c->bulk_used--;
}

static void push(struct mm_core *c, struct mm_c_job *j)
{
	j->issued_ns = c->now_ns;
	mm_c_emit(c, MM_ACT_JOB, j->tenant == MM_NOBODY ? NULL : &c->tenant[j->tenant])->msg =
		j->msg;
}

uint32_t mm_c_job_issue(struct mm_core *c, uint32_t tenant, const struct mm_msg *msg)
{
	bool control = is_control(msg->opcode);
	uint32_t slot = control ? c->opts.jobs_max + tenant : free_slot(c);
	struct mm_c_job *j = &c->job[slot];

	mm_assert(!j->used && c->xfer_up);
	c->job_serial = (c->job_serial + 1) & SERIAL_MASK;
	*j = (struct mm_c_job){
		.used = true, .tenant = tenant, .id = slot | c->job_serial << SLOT_BITS, .msg = *msg
	};
	j->msg.user_data = j->id;
	c->bulk_used += !control;
	link_last(c, slot + 1);
	push(c, j);
	return slot + 1;
}

static void control_issue(struct mm_core *c, struct mm_c_tenant *t, enum mm_xop op)
{
	struct mm_msg msg = { .opcode = (uint16_t)op, .arg = { t->id } };

	msg.epoch = op == MM_XOP_DETACH ? 0 : t->plan.epoch;
	t->ctl = mm_c_job_issue(c, mm_c_index(c, t), &msg);
}

/* One control job per tenant at a time, so that xfer never sees two of them in doubtful order. */
void mm_c_control(struct mm_core *c, struct mm_c_tenant *t)
{
	enum mm_xop op;

	if (!c->xfer_up || t->ctl || !mm_c_burst(c))
		return;
	if (t->life != MM_LIFE_LIVE) {
		/* It takes the swap space away, which running jobs still need. */
		if (t->attached && !t->swap.jobs)
			control_issue(c, t, MM_XOP_DETACH);
		return;
	}
	op = mm_c_change_control(t);
	if (op != MM_XOP_NOP)
		control_issue(c, t, op);
}

static void create_done(struct mm_core *c, const struct mm_c_job *j, int result, bool fatal)
{
	uint32_t first = (uint32_t)j->msg.arg[0], n = (uint32_t)j->msg.arg[1];

	for (uint32_t i = first; i < first + n; i++) {
		mm_ledger_job(&c->ledger, i, MM_JOB_NONE);
		c->ledger.page[i].poisoned = fatal;
		if (!result)
			mm_ledger_created(&c->ledger, i);
	}
	if (result)
		c->create_retry_ns = c->now_ns + MM_RETRY_NS;
}

static void copy_done(struct mm_core *c, const struct mm_c_job *j, int result, bool fatal)
{
	uint32_t page = (uint32_t)j->msg.arg[0];
	struct mm_c_tenant *t = &c->tenant[j->tenant];

	mm_ledger_job(&c->ledger, page, MM_JOB_NONE);
	t->copies--;
	if (!result)
		mm_c_load_copied(c, j->issued_ns, j->msg.arg[3]);
	if (c->ledger.page[page].tenant == j->tenant)
		mm_c_copied(c, t, page, result);
	if (fatal)
		mm_c_quarantine(c, page, true);
	else if (result && c->ledger.page[page].tenant == j->tenant)
		mm_c_drop(c, page);
}

static void control_done(struct mm_core *c, const struct mm_c_job *j, int result)
{
	struct mm_c_tenant *t = &c->tenant[j->tenant];

	t->ctl = MM_JOB_NONE;
	if (j->msg.opcode == MM_XOP_DETACH)
		t->attached = false;
	else if (t->life == MM_LIFE_LIVE)
		mm_c_change_control_done(c, t, &j->msg, result);
}

/* @fatal: xfer died of it; it is not tried again. A QUIESCE or DETACH is then as good as done. */
static void finish(struct mm_core *c, uint32_t job, int result, bool fatal)
{
	struct mm_c_job j = c->job[job - 1];
	uint32_t page = (uint32_t)j.msg.arg[0];

	unlink_job(c, job);
	switch (j.msg.opcode) {
	case MM_XOP_CREATE:
		create_done(c, &j, result, fatal);
		break;
	case MM_XOP_COPY:
		copy_done(c, &j, result, fatal);
		break;
	case MM_XOP_SCRUB:
	case MM_XOP_RECREATE:
		if (!result && c->ledger.page[page].suspect)
			mm_c_quarantine_suspect(c, page);
		else if (!result)
			mm_c_scrubbed(c, page);
		else
			mm_c_quarantine(c, page, fatal || j.msg.opcode == MM_XOP_SCRUB);
		break;
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		mm_c_swap_job_done(c, &j.msg, &c->tenant[j.tenant], result);
		break;
	default:
		control_done(c, &j, result);
	}
}

int mm_core_on_job_done(struct mm_core *c, uint64_t now_ns, uint64_t job, int result)
{
	uint64_t slot = job & ((1u << SLOT_BITS) - 1);

	if (slot >= c->jobs || !c->job[slot].used || c->job[slot].id != job)
		return MM_E_PROTOCOL;
	c->now_ns = MM_MAX(c->now_ns, now_ns);
	finish(c, (uint32_t)slot + 1, result, false);
	mm_c_settle(c, now_ns);
	return 0;
}

void mm_core_on_xfer_up(struct mm_core *c, uint64_t now_ns, uint64_t xfer_epoch)
{
	uint32_t next;

	(void)xfer_epoch;
	if (c->xfer_up)
		mm_core_on_xfer_down(c, now_ns);
	c->now_ns = MM_MAX(c->now_ns, now_ns);
	c->xfer_up = true;
	mm_c_ladder_restart(c);
	for (uint32_t job = c->job_first; job; job = next) {
		struct mm_c_job *j = &c->job[job - 1];

		next = j->next;
		if (j->msg.opcode == MM_XOP_COPY &&
		    c->ledger.page[j->msg.arg[0]].tenant != j->tenant)
			finish(c, job, -ECANCELED, false);
		else if (is_swap(j->msg.opcode) && c->tenant[j->tenant].life != MM_LIFE_LIVE)
			finish(c, job, -ECANCELED, false);
		else
			push(c, j);
	}
	MM_FOREACH_TENANT(c, t)
	mm_c_change_xfer_up(t);
	mm_c_settle(c, now_ns);
}

void mm_core_on_xfer_down(struct mm_core *c, uint64_t now_ns)
{
	c->now_ns = MM_MAX(c->now_ns, now_ns);
	c->xfer_up = false;
	mm_c_settle(c, now_ns);
}

/* xfer works in the order of issue: the oldest job is the one that it may have died of. */
void mm_core_on_xfer_fault(struct mm_core *c, uint64_t now_ns)
{
	uint32_t job = c->job_first;

	c->now_ns = MM_MAX(c->now_ns, now_ns);
	if (c->xfer_up)
		return;
	if (job && ++c->job[job - 1].deaths >= 2)
		finish(c, job, -EIO, true);
	mm_c_settle(c, now_ns);
}
