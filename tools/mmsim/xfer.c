/* SPDX-License-Identifier: Apache-2.0 */
/* xfer: jobs, and the cursors of slots, as in mmd/xfer/{job,tenant}.c. */
#include <errno.h>
#include <string.h>

#include "mm/base.h"
#include "tools/mmsim/costs.h"
#include "tools/mmsim/sim.h"

void ms_xfer_done(struct ms_device *dev, uint64_t job, int result, uint64_t at_ns)
{
	const struct mm_msg done = { .user_data = job, .result = result };

	ms_fifo_push(&dev->jobs_done, &done);
	ms_heap_push(&dev->sim->heap, at_ns + MS_WAKE_NS, MS_JOB_DONE, (uint16_t)dev->index, 0);
}

/* ---- slots ---- */

static const struct mm_core_slot *slot_of(const struct ms_tenant *t, uint32_t s)
{
	return &t->x.plan.slot[s];
}

static uint32_t layer_of(const struct ms_tenant *t, uint32_t s)
{
	return slot_of(t, s)->layer[t->x.cycle[s].pos];
}

static bool is_closed(const struct ms_tenant *t, uint32_t layer)
{
	const struct mm_core_plan *plan = &t->x.plan;

	return plan->closed[layer / 64] >> (layer % 64) & 1 &&
	       t->x.open < MM_XPLAN_OPEN(plan->epoch, layer + 1);
}

static void copy_in(struct ms_tenant *t, uint32_t s)
{
	struct ms_cycle *c = &t->x.cycle[s];
	const uint64_t bytes = t->group[1 + layer_of(t, s)].bytes;

	c->since_ns = t->sim->now_ns;
	c->copying = true;
	c->transfer = ms_link_start(t->dev, ms_flow_layers(t), (double)bytes, false);
	c->transfer->tenant = t;
	c->transfer->slot = s;
}

static void hand_over(struct ms_tenant *t, uint32_t s)
{
	struct ms_cycle *c = &t->x.cycle[s];

	c->landed = false;
	c->held = true;
	t->x.bytes_streamed += t->group[1 + layer_of(t, s)].bytes;
	t->x.copy_ns += t->sim->now_ns - c->since_ns;
	t->x.layers_streamed++;
	ms_gate_set(t, layer_of(t, s), MS_GATE_READY);
}

static void poll_cycle(struct ms_tenant *t, uint32_t s)
{
	struct ms_cycle *c = &t->x.cycle[s];

	if (c->copying || c->stopped)
		return;
	if (c->landed) {
		if (!is_closed(t, layer_of(t, s)))
			hand_over(t, s);
		return;
	}
	if (t->gate[layer_of(t, s)] != MS_GATE_DONE)
		return;
	ms_gate_set(t, layer_of(t, s), MS_GATE_EMPTY);
	c->held = false;
	c->pos = (c->pos + 1) % slot_of(t, s)->n_layers;
	copy_in(t, s);
}

void ms_xfer_look(struct ms_tenant *t)
{
	for (uint32_t s = 0; t->x.active && s < t->x.plan.beta; s++)
		poll_cycle(t, s);
}

void ms_xfer_open(struct ms_tenant *t, uint64_t open)
{
	mm_assert(open > t->x.open);
	t->x.open = open;
	ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_LOOK_NS, MS_LOOK, (uint16_t)t->index, 0);
}

static bool copying(const struct ms_tenant *t)
{
	return t->x.cycle[0].copying || t->x.cycle[1].copying;
}

/* ---- plans ---- */

/* What core writes into the region; the cursors, while xfer does not serve the tenant. */
void ms_xfer_plan(struct ms_tenant *t, bool served)
{
	struct ms_xfer *x = &t->x;

	x->region = *mm_core_plan(t->dev->core, t->id);
	for (uint32_t s = 0; s < x->region.beta; s++) {
		const struct mm_core_slot *slot = &x->region.slot[s];

		for (uint32_t i = 0; i < slot->n_pages; i++)
			x->region_page[s][i] = mm_core_slot_page(t->dev->core, t->id, s, i);
		if (served)
			continue;
		mm_assert(!x->active);
		x->cycle[s].pos = 0;
		x->cycle[s].held = slot->in_place;
	}
}

static void take_pages(struct ms_tenant *t, uint32_t s)
{
	memcpy(t->x.cycle[s].page, t->x.region_page[s],
	       t->x.region.slot[s].n_pages * sizeof(uint32_t));
}

static void activate(struct ms_tenant *t, uint64_t epoch)
{
	struct ms_xfer *x = &t->x;

	if (x->active && x->plan.epoch == epoch)
		return;
	mm_assert(!x->active && !copying(t) && x->region.epoch == epoch);
	x->plan = x->region;
	x->active = true;
	for (uint32_t s = 0; s < x->plan.beta; s++) {
		struct ms_cycle *c = &x->cycle[s];

		take_pages(t, s);
		c->landed = c->stopped = c->dropped = false;
		if (!c->held)
			copy_in(t, s);
	}
}

static bool same_pages(const struct ms_tenant *t, uint32_t s)
{
	const struct mm_core_slot *a = &t->x.plan.slot[s], *b = &t->x.region.slot[s];

	return a->n_pages == b->n_pages &&
	       !memcmp(t->x.cycle[s].page, t->x.region_page[s], a->n_pages * sizeof(uint32_t));
}

static bool slot_stays(const struct ms_tenant *t, uint32_t s)
{
	const struct mm_core_slot *a = &t->x.plan.slot[s], *b = &t->x.region.slot[s];

	return s < t->x.plan.beta && s < t->x.region.beta && same_pages(t, s) &&
	       a->n_layers == b->n_layers &&
	       !memcmp(a->layer, b->layer, a->n_layers * sizeof(a->layer[0]));
}

static bool occupant_stays(const struct ms_tenant *t, uint32_t s)
{
	const struct ms_cycle *c = &t->x.cycle[s];

	if (s >= t->x.plan.beta || s >= t->x.region.beta || !same_pages(t, s) || c->dropped ||
	    layer_of(t, s) != t->x.region.slot[s].layer[0])
		return false;
	return c->copying || c->landed || t->gate[layer_of(t, s)] == MS_GATE_READY;
}

/* True: nothing is on its way into a slot that changes. */
static bool slots_stop(struct ms_tenant *t)
{
	bool still = true;

	for (uint32_t s = 0; s < t->x.plan.beta; s++) {
		struct ms_cycle *c = &t->x.cycle[s];

		if (slot_stays(t, s))
			continue;
		c->stopped = true;
		if (!c->copying || occupant_stays(t, s))
			continue;
		if (!c->dropped) {
			c->dropped = true;
			ms_link_cancel(t->dev, c->transfer);
		}
		still &= !c->copying;
	}
	return still;
}

static void slot_begin(struct ms_tenant *t, uint32_t s, bool occupied)
{
	const struct mm_core_slot *slot = slot_of(t, s);
	struct ms_cycle *c = &t->x.cycle[s];

	if (!occupied)
		c->copying = c->landed = c->dropped = false;
	c->held = slot->in_place || (occupied && !c->copying && !c->landed);
	c->pos = 0;
	c->stopped = false;
	for (uint32_t i = 1; i < slot->n_layers; i++)
		ms_gate_set(t, slot->layer[i], MS_GATE_EMPTY);
	ms_gate_set(t, slot->layer[0], c->held ? MS_GATE_READY : MS_GATE_EMPTY);
	if (!c->held && !c->copying && !c->landed)
		copy_in(t, s);
}

static void go_over(struct ms_tenant *t)
{
	bool stays[MM_SLOTS_MAX], occupied[MM_SLOTS_MAX];
	struct ms_xfer *x = &t->x;

	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		stays[s] = slot_stays(t, s);
		occupied[s] = occupant_stays(t, s);
	}
	x->plan = x->region;
	for (uint32_t s = 0; s < x->plan.beta; s++) {
		take_pages(t, s);
		if (!stays[s])
			slot_begin(t, s, occupied[s]);
	}
}

/* ---- control jobs ---- */

static void quiesce(struct ms_tenant *t)
{
	t->x.active = false;
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		if (t->x.cycle[s].copying)
			ms_link_cancel(t->dev, t->x.cycle[s].transfer);
}

/* One that waits is asked again when a copy has landed. */
static void control(struct ms_tenant *t)
{
	const struct mm_msg job = t->x.waiting;
	bool done = true;

	if (job.opcode == MM_XOP_QUIESCE || job.opcode == MM_XOP_DETACH) {
		done = !copying(t);
	} else {
		mm_assert(t->x.active && t->x.region.epoch == job.epoch);
		done = slots_stop(t);
		if (done)
			go_over(t);
	}
	if (!done)
		return;
	t->x.waiting.opcode = MM_XOP_NOP;
	ms_xfer_done(t->dev, job.user_data, 0, t->sim->now_ns);
}

static void control_begin(struct ms_device *dev, const struct mm_msg *job)
{
	struct ms_tenant *t = ms_tenant_of(dev, (uint32_t)job->arg[0]);

	mm_assert(t && t->x.waiting.opcode == MM_XOP_NOP);
	if (job->opcode == MM_XOP_ACTIVATE) {
		activate(t, job->epoch);
		ms_xfer_done(dev, job->user_data, 0, dev->sim->now_ns);
		return;
	}
	t->x.waiting = *job;
	if (job->opcode != MM_XOP_REPLAN)
		quiesce(t);
	control(t);
}

/* ---- pages ---- */

/* Nobody maps what is about to be written, and no slot is streamed into it. */
static void assert_unused(const struct ms_device *dev, uint32_t page)
{
	mm_assert(page < dev->opts.pages && !dev->holder[page]);
}

static void scrub(struct ms_device *dev, const struct mm_msg *job)
{
	const uint64_t now = dev->sim->now_ns;

	assert_unused(dev, (uint32_t)job->arg[0]);
	mm_assert(mm_core_page(dev->core, (uint32_t)job->arg[0], NULL) == MM_PAGE_SCRUBBING);
	dev->scrub_free_ns = MM_MAX(dev->scrub_free_ns, now) +
			     mm_cost_fill_ns(&dev->profile, dev->opts.page_bytes);
	ms_xfer_done(dev, job->user_data, 0, dev->scrub_free_ns + MS_LOOK_NS);
}

/* Creation is a call for each page: nothing else is begun meanwhile. */
static void create(struct ms_device *dev, const struct mm_msg *job, uint64_t pages,
		   uint64_t drop_ns)
{
	const struct mm_profile *p = &dev->profile;

	dev->xfer_free_ns = ms_driver_call(dev, pages * (p->create_ns + p->export_ns) + drop_ns);
	ms_xfer_done(dev, job->user_data, 0, dev->xfer_free_ns);
}

static void copy(struct ms_device *dev, const struct mm_msg *job)
{
	struct ms_transfer *transfer;

	assert_unused(dev, (uint32_t)job->arg[0]);
	mm_assert(mm_core_page(dev->core, (uint32_t)job->arg[0], NULL) == MM_PAGE_DIRTY);
	transfer = ms_link_start(dev, 0, (double)job->arg[3], false);
	transfer->job = job->user_data;
	dev->copied_bytes += (double)job->arg[3];
}

static void swap(struct ms_device *dev, const struct mm_msg *job)
{
	struct ms_tenant *t = ms_tenant_of(dev, (uint32_t)job->arg[0]);
	const bool out = job->opcode == MM_XOP_SWAP_OUT;
	struct ms_transfer *transfer;

	mm_assert(t != NULL);
	transfer = ms_link_start(dev, ms_flow_swaps(t), (double)job->arg[3], out);
	transfer->job = job->user_data;
	dev->swapped_bytes += (double)job->arg[3];
}

void ms_xfer_job(struct ms_device *dev, struct mm_msg *job)
{
	if (dev->sim->now_ns < dev->xfer_free_ns && job->opcode != MM_XOP_CREATE) {
		ms_fifo_push(&dev->jobs, job);
		ms_heap_push(&dev->sim->heap, dev->xfer_free_ns, MS_JOB, (uint16_t)dev->index, 0);
		return;
	}
	switch (job->opcode) {
	case MM_XOP_CREATE:
		create(dev, job, job->arg[1], 0);
		break;
	case MM_XOP_RECREATE:
		create(dev, job, 1, dev->profile.unmap_ns + dev->profile.release_ns);
		break;
	case MM_XOP_SCRUB:
		scrub(dev, job);
		break;
	case MM_XOP_COPY:
		copy(dev, job);
		break;
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		swap(dev, job);
		break;
	default:
		control_begin(dev, job);
	}
}

/* ---- what lands ---- */

void ms_xfer_transfer_done(struct ms_device *dev, struct ms_transfer *transfer)
{
	const uint64_t now = dev->sim->now_ns;

	if (transfer->job)
		ms_xfer_done(dev, transfer->job, 0, now + MS_LOOK_NS);
	else
		ms_heap_push(&dev->sim->heap, now + MS_LOOK_NS, MS_LANDED,
			     (uint16_t)transfer->tenant->index, transfer->slot);
}

void ms_xfer_landed(struct ms_tenant *t, uint32_t slot)
{
	struct ms_cycle *c = &t->x.cycle[slot];

	mm_assert(c->copying);
	c->copying = false;
	c->transfer = NULL;
	if (t->x.active && !c->dropped) {
		c->landed = true;
		if (!is_closed(t, layer_of(t, slot)))
			hand_over(t, slot);
	}
	if (t->x.waiting.opcode != MM_XOP_NOP)
		control(t);
}
