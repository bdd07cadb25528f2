/* SPDX-License-Identifier: Apache-2.0 */
/* xfer - jobs as in mmd/xfer/job.c; mm_cycles drives the cursors, as in mmd/xfer/tenant.c. */
#include "tools/lab/mmsim/xfer.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/pie.h"
#include "tools/lab/mmsim/device.h"
#include "tools/lab/mmsim/link.h"

void ms_xfer_done(struct ms_device *dev, uint64_t job, int result, uint64_t at_ns)
{
	const struct mm_msg done = { .user_data = job, .result = result };

	ms_fifo_push(&dev->jobs_done, &done);
	ms_heap_push(&dev->sim->heap, at_ns + MS_WAKE_NS, MS_JOB_DONE, (uint16_t)dev->index, 0);
}

/* ---- acts ---- */

static uint32_t layer_at(const struct ms_tenant *t, const struct mm_cycle_act *act)
{
	return mm_cycle_layer(&t->x.cycles, act->cursor, act->pos);
}

/* Returns the low half of a gate. @layer cycles, so its gate is not RESIDENT. */
static uint32_t gate_low_word(const struct ms_tenant *t, uint32_t layer)
{
	static const uint8_t word[] = { [MS_GATE_RESIDENT] = 0,
					[MS_GATE_READY] = MM_GATE_READY,
					[MS_GATE_DONE] = MM_GATE_DONE,
					[MS_GATE_EMPTY] = MM_GATE_EMPTY };

	return word[t->gate[layer]];
}

static void gate_put(struct ms_tenant *t, uint32_t layer, uint32_t word)
{
	ms_gate_set(t, layer, word == MM_GATE_READY ? MS_GATE_READY : MS_GATE_EMPTY);
}

static void gates_put(struct ms_tenant *t, uint32_t s, uint32_t first)
{
	const struct mm_cycle_slot *slot = &t->x.cycles.plan.slot[s];

	for (uint32_t i = 1; i < slot->n_layers; i++)
		gate_put(t, slot->layer[i], MM_GATE_EMPTY);
	gate_put(t, slot->layer[0], first);
}

static void gates_empty(struct ms_tenant *t)
{
	const struct mm_cycles *m = &t->x.cycles;

	for (uint32_t l = 0; l < m->plan.n_layers; l++)
		if (mm_cycles_gated(m, l))
			gate_put(t, l, MM_GATE_EMPTY);
}

/* How many layers the tenant has passed in its life when it comes to @layer next. */
static uint64_t layer_due(const struct ms_tenant *t, uint32_t layer)
{
	const uint64_t passed = t->step.begins * t->n_layers + t->step.layer;

	return passed + (layer + t->n_layers - passed % t->n_layers) % t->n_layers;
}

/* ---- classes of cold blocks ---- */

static struct ms_class *class_of(struct ms_tenant *t, uint32_t cursor)
{
	return &t->x.class[cursor - MM_SLOTS_MAX];
}

/* Chooses the rows of a layer: the live entries of now; and acknowledges what all classes have. */
static void class_choose(struct ms_tenant *t, uint32_t cursor)
{
	const struct mm_core_cold *cold = &t->x.plan.core.cold;
	const uint64_t most = MM_MIN(t->x.cold_limit, cold->entries);
	struct ms_class *class = class_of(t, cursor);
	uint64_t acked = UINT64_MAX;

	class->version = t->e.cold.version;
	class->rows = t->sim->opts.cold_full ? most : MM_MIN(t->e.cold.n_live, most);
	ms_cold_chosen(t, cursor - MM_SLOTS_MAX, most);
	for (uint32_t k = 0; k < cold->classes; k++)
		acked = MM_MIN(acked, t->x.class[k].version);
	t->x.cold_acked = MM_MAX(t->x.cold_acked, acked);
}

static uint64_t copy_bytes(struct ms_tenant *t, const struct mm_cycle_act *act)
{
	if (mm_cycle_is_class(act->cursor))
		return class_of(t, act->cursor)->rows * t->x.plan.core.cold.unit_bytes;
	return t->group[1 + layer_at(t, act)].bytes;
}

static void copy_start(struct ms_tenant *t, uint32_t cursor, uint64_t bytes, bool to_host,
		       uint64_t due)
{
	struct ms_cycle *c = &t->x.cycle[cursor];

	if (!bytes) {
		ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_LOOK_NS, MS_LANDED,
			     (uint16_t)t->index, cursor);
		return;
	}
	c->transfer = ms_link_start(t->dev, ms_flow_layers(t), (double)bytes, to_host, due);
	c->transfer->tenant = t;
	c->transfer->cursor = cursor;
}

/* Pie's layers go back to the host after each step. */
static bool class_return(struct ms_tenant *t, uint32_t cursor, uint64_t due)
{
	struct ms_class *class;

	if (!mm_cycle_is_class(cursor) || !ms_pie_is_on(t))
		return false;
	class = class_of(t, cursor);
	class->returns = class->held > 0;
	class->due = due;
	if (class->returns)
		copy_start(t, cursor, class->held * t->x.plan.core.cold.unit_bytes, true, due);
	else
		class->held = class->rows;
	return class->returns;
}

static void class_returned(struct ms_tenant *t, uint32_t cursor)
{
	struct ms_class *class = class_of(t, cursor);

	class->returns = false;
	t->x.returned_bytes += class->held * t->x.plan.core.cold.unit_bytes;
	class->held = class->rows;
	copy_start(t, cursor, class->rows * t->x.plan.core.cold.unit_bytes, false, class->due);
}

static void copy_begin(struct ms_tenant *t, const struct mm_cycle_act *act)
{
	const uint64_t due = layer_due(t, layer_at(t, act));

	t->x.cycle[act->cursor].since_ns = t->sim->now_ns;
	if (!class_return(t, act->cursor, due))
		copy_start(t, act->cursor, copy_bytes(t, act), false, due);
}

static void copy_cancel(struct ms_tenant *t, uint32_t cursor)
{
	if (mm_cycle_is_class(cursor))
		class_of(t, cursor)->returns = false;
	if (t->x.cycle[cursor].transfer)
		ms_link_cancel(t->dev, t->x.cycle[cursor].transfer);
}

static void streamed_count(struct ms_tenant *t, const struct mm_cycle_act *act)
{
	if (mm_cycle_is_class(act->cursor)) {
		t->x.cold_bytes += copy_bytes(t, act);
		t->x.cold_rows += class_of(t, act->cursor)->rows;
		return;
	}
	t->x.bytes_streamed += t->group[1 + layer_at(t, act)].bytes;
	t->x.copy_ns += t->sim->now_ns - t->x.cycle[act->cursor].since_ns;
	t->x.layers_streamed++;
}

/* Performs an act. Cursors are not written, because only a restarted xfer would read them. */
static void act_perform(struct ms_tenant *t, const struct mm_cycle_act *act)
{
	switch (act->kind) {
	case MM_CYCLE_NEW:
		t->x.cycle[act->cursor].transfer = NULL;
		return;
	case MM_CYCLE_CURSOR:
		if (mm_cycle_is_class(act->cursor) && act->word == MM_CUR_COPYING)
			class_choose(t, act->cursor);
		return;
	case MM_CYCLE_KEEP:
	case MM_CYCLE_EPOCH:
		return;
	case MM_CYCLE_GATE:
		gate_put(t, layer_at(t, act), act->word);
		return;
	case MM_CYCLE_GATES:
		gates_put(t, act->cursor, act->word);
		return;
	case MM_CYCLE_GATES_ALL:
		gates_empty(t);
		return;
	case MM_CYCLE_COPY:
		copy_begin(t, act);
		return;
	case MM_CYCLE_CANCEL:
		copy_cancel(t, act->cursor);
		return;
	case MM_CYCLE_COUNT:
		streamed_count(t, act);
		return;
	}
}

static void acts_perform(struct ms_tenant *t, const struct mm_cycle_acts *acts)
{
	for (uint32_t i = 0; i < acts->n; i++)
		act_perform(t, &acts->act[i]);
}

/* ---- cursors ---- */

static void cursor_look(struct ms_tenant *t, uint32_t c)
{
	struct mm_cycle_acts acts = { 0 };
	uint32_t layer;

	switch (mm_cycle_look(&t->x.cycles, c, &layer)) {
	case MM_CYCLE_LOOK_NOWHERE:
		break;
	case MM_CYCLE_LOOK_GATE:
		mm_cycle_saw_gate(&t->x.cycles, c, gate_low_word(t, layer), &acts);
		break;
	case MM_CYCLE_LOOK_OPEN:
		mm_cycle_saw_open(&t->x.cycles, c, t->x.open, &acts);
		break;
	}
	acts_perform(t, &acts);
}

void ms_xfer_look(struct ms_tenant *t)
{
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		cursor_look(t, c);
}

void ms_xfer_open(struct ms_tenant *t, uint64_t open)
{
	mm_assert(open > t->x.open);
	t->x.open = open;
	ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_LOOK_NS, MS_LOOK, (uint16_t)t->index, 0);
}

/* ---- plans ---- */

/*
 * Copies the core's plan into the region. Cursors are written only while xfer does not serve the
 * tenant.
 */
void ms_xfer_plan(struct ms_tenant *t, bool served)
{
	struct ms_xfer *x = &t->x;

	x->region.core = *mm_core_plan(t->dev->core, t->id);
	x->region.n_window = 0;
	for (uint32_t page;
	     (page = mm_core_cold_page(t->dev->core, t->id, x->region.n_window)) != MM_NO_PAGE;)
		x->region.window[x->region.n_window++] = page;
	for (uint32_t s = 0; s < x->region.core.beta; s++) {
		const struct mm_core_slot *slot = &x->region.core.slot[s];

		for (uint32_t i = 0; i < slot->n_pages; i++)
			x->region.page[s][i] = mm_core_slot_page(t->dev->core, t->id, s, i);
		if (served)
			continue;
		mm_assert(!x->cycles.active);
		x->cursor[s] = slot->in_place ? MM_CUR_HELD : MM_CUR_COPYING;
	}
}

static struct mm_cycle_plan plan_view(const struct ms_xplan *plan)
{
	struct mm_cycle_plan view = { .epoch = plan->core.epoch,
				      .store = plan->core.store,
				      .closed = plan->core.closed,
				      .n_layers = plan->core.n_layers,
				      .n_slots = plan->core.beta };

	view.cold = (struct mm_cycle_cold){ .classes = plan->core.cold.classes,
					    .n_pages = plan->n_window,
					    .unit_bytes = plan->core.cold.unit_bytes,
					    .page = plan->window };
	for (uint32_t s = 0; s < plan->core.beta; s++)
		view.slot[s] = (struct mm_cycle_slot){ .layer = plan->core.slot[s].layer,
						       .page = plan->page[s],
						       .n_layers = plan->core.slot[s].n_layers,
						       .n_pages = plan->core.slot[s].n_pages,
						       .in_place = plan->core.slot[s].in_place };
	return view;
}

/* Makes the current contents of the region the plan in service. */
static struct mm_cycle_plan plan_take(struct ms_tenant *t)
{
	const struct ms_xplan *region = &t->x.region;

	t->x.plan.core = region->core;
	t->x.plan.n_window = region->n_window;
	memcpy(t->x.plan.window, region->window, region->n_window * sizeof(region->window[0]));
	for (uint32_t s = 0; s < region->core.beta; s++)
		memcpy(t->x.plan.page[s], region->page[s],
		       region->core.slot[s].n_pages * sizeof(region->page[s][0]));
	return plan_view(&t->x.plan);
}

/* Serves a plan with cold blocks, all of whose cursors begin. */
static void plan_serve(struct ms_tenant *t, const struct mm_cycle_plan *view)
{
	struct mm_cycle_seen seen[MM_CYCLES_MAX];
	uint32_t gate[MM_LAYERS_MAX];
	struct mm_cycle_acts acts;

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		seen[c] = (struct mm_cycle_seen){ .epoch = view->epoch, .state = MM_CUR_COPYING };
	for (uint32_t layer = 0; layer < t->n_layers; layer++)
		gate[layer] = gate_low_word(t, layer);
	mm_cycles_serve(&t->x.cycles, view, seen, gate, &acts);
	acts_perform(t, &acts);
}

static void plan_activate(struct ms_tenant *t, uint64_t epoch)
{
	struct mm_cycles *m = &t->x.cycles;
	struct mm_cycle_plan view;
	struct mm_cycle_acts acts;

	if (m->active && m->plan.epoch == epoch)
		return;
	mm_assert(!m->active && t->x.region.core.epoch == epoch);
	view = plan_take(t);
	if (view.cold.classes) {
		plan_serve(t, &view);
		return;
	}
	mm_cycles_take_up(m, &view);
	for (uint32_t s = 0; s < view.n_slots; s++) {
		uint32_t gate = gate_low_word(t, view.slot[s].layer[0]);
		uint32_t before = mm_cycle_layer(m, s, mm_cycle_before(m, s, 0));

		mm_cycle_resume(m, s, t->x.cursor[s], 0, gate, gate_low_word(t, before), &acts);
		acts_perform(t, &acts);
	}
}

/* Goes over to the plan in the region. Return: false: copies must land first. */
static bool plan_replace(struct ms_tenant *t)
{
	const struct mm_cycle_plan next = plan_view(&t->x.region);
	struct mm_cycles *m = &t->x.cycles;
	uint32_t gate[MM_CYCLES_MAX] = { 0 };
	struct mm_cycle_acts acts;
	int r;

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(&m->plan, c))
			gate[c] = gate_low_word(t, mm_cycle_layer(m, c, m->cursor[c].pos));
	r = mm_cycles_replan(m, &next, gate, &acts);
	if (r == 0) {
		const struct mm_cycle_plan view = plan_take(t);

		mm_cycles_rebind(m, &view);
	}
	/* Cancelled copies end later, so trying again at once would change nothing. */
	acts_perform(t, &acts);
	return r == 0;
}

/* ---- control jobs ---- */

static void plan_quiesce(struct ms_tenant *t)
{
	struct mm_cycle_acts acts;

	mm_cycles_quiesce(&t->x.cycles, &acts);
	acts_perform(t, &acts);
}

/* Tries a control job; one that must wait is tried again when a copy has landed. */
static void control_job_run(struct ms_tenant *t)
{
	const struct mm_msg job = t->x.waiting;
	bool done = true;

	if (job.opcode == MM_XOP_QUIESCE || job.opcode == MM_XOP_DETACH) {
		done = !mm_cycles_copying(&t->x.cycles);
	} else {
		mm_assert(t->x.region.core.epoch == job.epoch);
		done = plan_replace(t);
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
		plan_activate(t, job->epoch);
		ms_xfer_done(dev, job->user_data, 0, dev->sim->now_ns);
		return;
	}
	t->x.waiting = *job;
	if (job->opcode != MM_XOP_REPLAN)
		plan_quiesce(t);
	control_job_run(t);
}

/* ---- pages ---- */

/* Asserts that no tenant maps a page that is about to be written. */
static void assert_unused(const struct ms_device *dev, uint32_t page)
{
	mm_assert(page < dev->opts.pages && !dev->holder[page]);
}

static void scrub_job_run(struct ms_device *dev, const struct mm_msg *job)
{
	const uint64_t now = dev->sim->now_ns;

	assert_unused(dev, (uint32_t)job->arg[0]);
	mm_assert(mm_core_page(dev->core, (uint32_t)job->arg[0], NULL) == MM_PAGE_SCRUBBING);
	dev->scrub_free_ns = MM_MAX(dev->scrub_free_ns, now) +
			     mm_cost_fill_ns(&dev->profile, dev->opts.page_bytes);
	ms_xfer_done(dev, job->user_data, 0, dev->scrub_free_ns + MS_LOOK_NS);
}

/* Creates pages with one driver call each; xfer begins nothing else in that time. */
static void create_job_run(struct ms_device *dev, const struct mm_msg *job, uint64_t pages,
			   uint64_t drop_ns)
{
	const struct mm_profile *p = &dev->profile;

	dev->xfer_free_ns = ms_driver_call(dev, pages * (p->create_ns + p->export_ns) + drop_ns);
	ms_xfer_done(dev, job->user_data, 0, dev->xfer_free_ns);
}

static void copy_job_run(struct ms_device *dev, const struct mm_msg *job)
{
	struct ms_transfer *transfer;

	assert_unused(dev, (uint32_t)job->arg[0]);
	mm_assert(mm_core_page(dev->core, (uint32_t)job->arg[0], NULL) == MM_PAGE_DIRTY);
	transfer = ms_link_start(dev, 0, (double)job->arg[3], false, 0);
	transfer->job = job->user_data;
	dev->copied_bytes += (double)job->arg[3];
}

static void swap_job_run(struct ms_device *dev, const struct mm_msg *job)
{
	struct ms_tenant *t = ms_tenant_of(dev, (uint32_t)job->arg[0]);
	const bool out = job->opcode == MM_XOP_SWAP_OUT;
	struct ms_transfer *transfer;

	mm_assert(t != NULL);
	transfer = ms_link_start(dev, ms_flow_swaps(t), (double)job->arg[3], out, 0);
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
		create_job_run(dev, job, job->arg[1], 0);
		break;
	case MM_XOP_RECREATE:
		create_job_run(dev, job, 1, dev->profile.unmap_ns + dev->profile.release_ns);
		break;
	case MM_XOP_SCRUB:
		scrub_job_run(dev, job);
		break;
	case MM_XOP_COPY:
		copy_job_run(dev, job);
		break;
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		swap_job_run(dev, job);
		break;
	default:
		control_begin(dev, job);
	}
}

/* ---- what lands ---- */

void ms_xfer_transfer_done(struct ms_device *dev, struct ms_transfer *transfer)
{
	const uint64_t at = dev->sim->now_ns + MS_LOOK_NS;

	if (transfer->job) {
		ms_xfer_done(dev, transfer->job, 0, at);
		return;
	}
	transfer->tenant->x.cycle[transfer->cursor].transfer = NULL;
	if (mm_cycle_is_class(transfer->cursor) &&
	    class_of(transfer->tenant, transfer->cursor)->returns) {
		class_returned(transfer->tenant, transfer->cursor);
		return;
	}
	ms_heap_push(&dev->sim->heap, at, MS_LANDED, (uint16_t)transfer->tenant->index,
		     transfer->cursor);
}

void ms_xfer_landed(struct ms_tenant *t, uint32_t cursor)
{
	struct mm_cycle_acts acts;

	mm_cycle_copied(&t->x.cycles, cursor, true, t->x.open, &acts);
	acts_perform(t, &acts);
	if (t->x.waiting.opcode != MM_XOP_NOP)
		control_job_run(t);
}
