/* SPDX-License-Identifier: Apache-2.0 */
/* shell - mmd's shell: performs the core's actions, receives requests, samples statistics. */
#include "tools/lab/mmsim/shell.h"

#include "libclient/base/base.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/check.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/xfer.h"

/* ---- what goes to a tenant: mmd/shell/outbox.c ---- */

/* Sends descriptors that follow each other; later items wait until they are acknowledged. */
static void send_fds(struct ms_tenant *t)
{
	struct ms_item batch = { .kind = MM_ACT_FDS };
	const struct ms_item *item;

	while (batch.page < MS_FD_BATCH && (item = ms_fifo_at(&t->outbox, 0)) &&
	       item->kind == MM_ACT_FDS) {
		batch.page++;
		ms_fifo_drop(&t->outbox);
	}
	t->unacked = true;
	ms_fifo_push(&t->c.inbox, &batch);
	ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_WAKE_NS, MS_DELIVER, (uint16_t)t->index, 0);
}

static void map_entry(struct ms_tenant *t, const struct ms_item *item)
{
	if (item->entry >= MM_MAP_KV_BASE)
		t->c.kv_view[item->entry - MM_MAP_KV_BASE] = item->page;
	else
		t->c.view[item->entry] = item->page;
}

static void replies_flush(struct ms_tenant *t)
{
	const struct ms_item *item;

	while (!t->unacked && (item = ms_fifo_at(&t->outbox, 0))) {
		if (item->kind == MM_ACT_FDS) {
			send_fds(t);
			continue;
		}
		if (item->kind == MM_ACT_MAP) {
			map_entry(t, item);
		} else {
			ms_fifo_push(&t->c.inbox, item);
			ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_WAKE_NS, MS_DELIVER,
				     (uint16_t)t->index, 0);
		}
		ms_fifo_drop(&t->outbox);
	}
}

/* The acknowledgement of descriptors arrived; only the items behind them have waited for it. */
void ms_shell_ack(struct ms_tenant *t)
{
	t->unacked = false;
	replies_flush(t);
}

/* ---- actions ---- */

static void action_enqueue(struct ms_tenant *t, const struct mm_action *a)
{
	const struct ms_item item = {
		.kind = a->kind, .entry = a->entry, .page = a->page, .msg = a->msg
	};

	ms_fifo_push(&t->outbox, &item);
}

static void act_gate(struct ms_tenant *t, const struct mm_action *a)
{
	ms_gate_set(t, a->entry,
		    a->word == MM_GATE_RESIDENT ? MS_GATE_RESIDENT
		    : a->word == MM_GATE_READY  ? MS_GATE_READY
						: MS_GATE_EMPTY);
}

static void act_job(struct ms_device *dev, const struct mm_action *a)
{
	ms_fifo_push(&dev->jobs, &a->msg);
	ms_heap_push(&dev->sim->heap, dev->sim->now_ns + MS_WAKE_NS, MS_JOB, (uint16_t)dev->index,
		     0);
}

static void action_perform(struct ms_device *dev, const struct mm_action *a)
{
	struct ms_tenant *t = a->kind == MM_ACT_JOB ? NULL : ms_tenant_of(dev, a->tenant);

	switch (a->kind) {
	case MM_ACT_JOB:
		act_job(dev, a);
		return;
	case MM_ACT_GATE:
		act_gate(t, a);
		return;
	case MM_ACT_PLAN:
		ms_xfer_plan(t, a->entry != 0);
		return;
	case MM_ACT_OPEN:
		ms_xfer_open(t, MM_XPLAN_OPEN(a->word, a->entry));
		return;
	case MM_ACT_COLD_LIMIT:
		t->x.cold_limit = a->word;
		return;
	case MM_ACT_FDS:
	case MM_ACT_MAP:
	case MM_ACT_EVENT:
		action_enqueue(t, a);
		return;
	case MM_ACT_CHECK_STOPPED:
		mm_core_on_stopped_checked(dev->core, dev->sim->now_ns, a->tenant, false);
		return;
	case MM_ACT_KICK:
	case MM_ACT_KILL:
	case MM_ACT_ABORT:
	case MM_ACT_ALARM:
		ms_fail(dev->sim, "mmd gives up tenant %s: %s", t ? t->name : "?",
			a->reason ? a->reason : "its gates are aborted");
		return;
	default:
		return;
	}
}

void ms_shell_settle(struct ms_device *dev)
{
	struct mm_action a;

	while (mm_core_next(dev->core, &a))
		action_perform(dev, &a);
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++) {
		struct ms_tenant *t = &dev->sim->tenants[i];

		if (t->dev == dev && !t->unacked && ms_fifo_length(&t->outbox))
			replies_flush(t);
	}
	dev->deadline_ns = mm_core_deadline(dev->core);
	ms_check_event(dev);
}

/* ---- events ---- */

void ms_shell_request(struct ms_tenant *t)
{
	const struct mm_msg msg = *(const struct mm_msg *)ms_fifo_at(&t->requests, 0);
	int r;

	ms_fifo_drop(&t->requests);
	if (msg.opcode == MM_OP_SWAP)
		r = mm_core_on_swap(t->dev->core, t->sim->now_ns, t->id, &msg,
				    t->e.pieces[msg.arg[0]]);
	else
		r = mm_core_on_request(t->dev->core, t->sim->now_ns, t->id, &msg);
	if (r)
		ms_fail(t->sim, "tenant %s: mmd refuses request %u", t->name, msg.opcode);
	ms_shell_settle(t->dev);
}

void ms_shell_job_done(struct ms_device *dev)
{
	const struct mm_msg done = *(const struct mm_msg *)ms_fifo_at(&dev->jobs_done, 0);

	ms_fifo_drop(&dev->jobs_done);
	if (mm_core_on_job_done(dev->core, dev->sim->now_ns, done.user_data, done.result))
		ms_fail(dev->sim, "mmd does not know a job that is done");
	ms_shell_settle(dev);
}

void ms_shell_tick(struct ms_device *dev)
{
	mm_core_on_tick(dev->core, dev->sim->now_ns);
	ms_shell_settle(dev);
}

static void tenant_sample(struct ms_tenant *t)
{
	struct ms_xfer *x = &t->x;
	const uint64_t layers = x->layers_streamed - x->layers_seen;

	t->c.stats.step_seq = t->c.step_seq;
	mm_core_on_stats(t->dev->core, t->sim->now_ns, t->id, &t->c.stats);
	if (t->e.cold.entries_max)
		mm_core_on_cold_live(t->dev->core, t->id, t->e.cold.n_live);
	if (layers)
		mm_core_on_streamed(t->dev->core, t->id, (x->copy_ns - x->copy_seen_ns) / layers);
	x->layers_seen = x->layers_streamed;
	x->copy_seen_ns = x->copy_ns;
}

void ms_shell_sample(struct ms_device *dev)
{
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++)
		if (dev->sim->tenants[i].dev == dev)
			tenant_sample(&dev->sim->tenants[i]);
	ms_shell_settle(dev);
	ms_heap_push(&dev->sim->heap, dev->sim->now_ns + MS_SAMPLE_NS, MS_SAMPLE,
		     (uint16_t)dev->index, 0);
}
