/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/tenant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "libclient/support/fault.h"
#include "mmd/common/log.h"

/* ---- gates and cursors ---- */

/* The gate of the layer at position @pos of cursor @c. */
static struct mm_gate *gate_of(const struct mm_xtenant *t, uint32_t c, uint32_t pos)
{
	struct mm_gate_region *gates = t->gate.base;

	return &gates->gate[mm_cycle_layer(&t->cycles, c, pos)];
}

/*
 * Pairs with the release of the tenant's stream write, and of xfer's own stores before a restart.
 */
static uint32_t gate_read(const struct mm_gate *gate)
{
	return __atomic_load_n(&gate->low, __ATOMIC_ACQUIRE);
}

static uint64_t gate_low_offset(const struct mm_xtenant *t, const struct mm_gate *gate)
{
	return (uint64_t)((const char *)&gate->low - (const char *)t->gate.base);
}

static const struct mm_xpace *tenant_pace(const struct mm_xtenant *t)
{
	return &t->pool->dev->pace;
}

/*
 * Writes the low half only: the high half is core's. Release: the cursor and the copied bytes are
 * visible before it. @seen_ns: mm_xpace, device time of the cause of the write.
 */
static void gate_write(const struct mm_xtenant *t, struct mm_gate *gate, uint32_t word,
		       uint64_t seen_ns)
{
	mm_xpace_write(tenant_pace(t), t->gate_inode, gate_low_offset(t, gate), word, seen_ns);
	__atomic_store_n(&gate->low, word, __ATOMIC_RELEASE);
}

/* Empties the gates of slot @s, the gate of the first layer last; that gets @first. */
static void slot_gates_write(const struct mm_xtenant *t, uint32_t s, uint32_t first)
{
	for (uint32_t i = 1; i < t->plan->slot[s].n_layers; i++)
		gate_write(t, gate_of(t, s, i), (uint32_t)MM_GATE_EMPTY, 0);
	gate_write(t, gate_of(t, s, 0), first, 0);
}

static void tenant_gates_empty(const struct mm_xtenant *t)
{
	struct mm_gate_region *gates = t->gate.base;

	for (uint32_t l = 0; l < t->plan->n_layers; l++)
		if (mm_cycles_gated(&t->cycles, l))
			gate_write(t, &gates->gate[l], (uint32_t)MM_GATE_EMPTY, 0);
}

static struct mm_xcursor *cursor_of(const struct mm_xtenant *t, uint32_t c)
{
	struct mm_xcursor_region *cursors = t->cursor.base;

	return mm_cycle_is_class(c) ? &cursors->cold[c - MM_SLOTS_MAX] : &cursors->slot[c];
}

/*
 * State and position change in one store: a kill between two stores would leave them inconsistent.
 */
static void cursor_write(const struct mm_xtenant *t, uint32_t s, uint32_t state, uint32_t pos)
{
	static_assert(offsetof(struct mm_xcursor, pos) == offsetof(struct mm_xcursor, state) + 4 &&
			      offsetof(struct mm_xcursor, state) % 8 == 0,
		      "one 64-bit store");

	__atomic_store_n((uint64_t *)(void *)&cursor_of(t, s)->state,
			 (uint64_t)state | (uint64_t)pos << 32, __ATOMIC_RELEASE);
}

/* Core may write it at any time. */
static uint64_t plan_read_open(const struct mm_xtenant *t)
{
	const struct mm_xplan_region *shared = t->plan_region.base;

	return __atomic_load_n(&shared->open, __ATOMIC_ACQUIRE);
}

/* Where a test lets this xfer end as if it were killed: between any two words that it writes. */
static void tenant_kill_point(void)
{
	if (mm_fault("xfer.act"))
		_exit(1);
}

/* ---- classes ---- */

static struct mm_xrows *class_rows(const struct mm_xtenant *t, uint32_t c)
{
	return &t->cold->rows[c - MM_SLOTS_MAX];
}

/*
 * Each class holds, or is about to, rows of the version in its cursor. The tenant may write the
 * word, too, and then misleads itself alone.
 */
static void tenant_acknowledge(const struct mm_xtenant *t)
{
	struct mm_gate_region *gates = t->gate.base;
	uint64_t version = UINT64_MAX;

	for (uint32_t k = 0; k < t->plan->cold.classes; k++)
		version = MM_MIN(version, cursor_of(t, MM_CYCLE_CLASS(k))->version);
	if (version > __atomic_load_n(&gates->cold_acked, __ATOMIC_RELAXED))
		__atomic_store_n(&gates->cold_acked, version, __ATOMIC_RELEASE);
}

/*
 * Chooses the rows that class @c gets next. The cursor leaves the layer before, then gets the
 * version: after a kill in between, the next xfer chooses anew.
 */
static void class_choose_rows(const struct mm_xtenant *t, uint32_t c, uint32_t pos)
{
	const struct mm_gate_region *gates = t->gate.base;
	const struct mm_xplan_region *shared = t->plan_region.base;
	struct mm_xrows *rows = class_rows(t, c);

	mm_xrows_choose(rows, &gates->cold, t->plan->cold.entries, &shared->cold_limit);
	cursor_write(t, c, MM_CUR_COPYING, pos);
	tenant_kill_point();
	__atomic_store_n(&cursor_of(t, c)->version, rows->version, __ATOMIC_RELEASE);
	tenant_acknowledge(t);
}

/* ---- the order of execution ---- */

/* When the tenant comes to @layer next. */
static uint64_t layer_due(const struct mm_xtenant *t, uint32_t layer)
{
	uint32_t n_layers = t->plan->n_layers;

	return t->passed + (layer + n_layers - t->passed % n_layers) % n_layers;
}

static uint32_t cursor_occupant(const struct mm_xtenant *t, uint32_t c)
{
	return mm_cycle_layer(&t->cycles, c, t->cycles.cursor[c].pos);
}

/* True if a tenant that comes to @layer now can use the occupant of cursor @c next of all of it. */
static bool cursor_comes_next(const struct mm_xtenant *t, uint32_t c, uint32_t layer)
{
	uint32_t n_layers = t->plan->n_layers, occupant = cursor_occupant(t, c);
	uint32_t before = mm_cycle_layer(&t->cycles, c,
					 mm_cycle_before(&t->cycles, c, t->cycles.cursor[c].pos));

	return (occupant + n_layers - layer) % n_layers < (occupant + n_layers - before) % n_layers;
}

static bool cursors_come_next(const struct mm_xtenant *t, uint32_t layer)
{
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(&t->cycles.plan, c) && !cursor_comes_next(t, c, layer))
			return false;
	return true;
}

/*
 * Finds from the occupants of the cursors where the tenant is, when a plan begins or goes on. A
 * gate that shows DONE, but was not looked at yet, may make it impossible; then it is corrected
 * when that is seen.
 */
static void tenant_find_place(struct mm_xtenant *t)
{
	const struct mm_cycle_plan *plan = &t->cycles.plan;

	t->passed = 0;
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(plan, c) && cursors_come_next(t, cursor_occupant(t, c)))
			t->passed = cursor_occupant(t, c);
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(plan, c))
			mm_xtransfer_set_due(&t->cycle[c].transfer,
					     layer_due(t, cursor_occupant(t, c)));
}

/* The gates of other cursors may have been looked at before, though they come later. */
static void cursor_pass(struct mm_xtenant *t, uint32_t c)
{
	t->passed = MM_MAX(t->passed, t->cycle[c].transfer.due + 1);
}

/* ---- acts ---- */

static void class_count_streamed(const struct mm_xcycle *c)
{
	struct mm_xcursor_region *r = c->tenant->cursor.base;

	__atomic_store_n(&r->cold_bytes, r->cold_bytes + c->transfer.bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&r->cold_rows, r->cold_rows + c->transfer.rows->count, __ATOMIC_RELAXED);
}

/* There is one writer, and readers need only untorn numbers: relaxed; layers_streamed is last. */
static void tenant_count_streamed(const struct mm_xcycle *c)
{
	struct mm_xcursor_region *r = c->tenant->cursor.base;
	uint64_t ns = mm_now_ns() - c->since_ns;

	if (mm_cycle_is_class(c->cursor)) {
		class_count_streamed(c);
		return;
	}
	__atomic_store_n(&r->bytes_streamed, r->bytes_streamed + c->transfer.bytes,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&r->copy_ns, r->copy_ns + ns, __ATOMIC_RELAXED);
	__atomic_store_n(&r->copy_last_ns, ns, __ATOMIC_RELAXED);
	__atomic_store_n(&r->layers_streamed, r->layers_streamed + 1, __ATOMIC_RELEASE);
}

static void tenant_copy_landed(struct mm_xtransfer *transfer, int result);

/* Drops all state of the cursor's previous plan. */
static void cursor_set_up(struct mm_xtenant *t, uint32_t c)
{
	t->cycle[c] = (struct mm_xcycle){ .tenant = t,
					  .cursor = c,
					  .transfer = { .landed = tenant_copy_landed } };
	if (mm_cycle_is_class(c)) {
		t->cycle[c].transfer.rows = class_rows(t, c);
	} else {
		t->cycle[c].transfer.store = t->store;
		t->cycle[c].transfer.page = t->plan->slot[c].page;
	}
}

/* Puts the rows of @layer, which were chosen before, into @transfer. */
static void class_prepare_copy(const struct mm_xtenant *t, struct mm_xtransfer *transfer,
			       uint32_t layer)
{
	const uint64_t unit_bytes = t->plan->cold.unit_bytes;

	const struct mm_xplace place = { .swap = t->cold->swap,
					 .from = layer * unit_bytes,
					 .from_pitch = t->plan->n_layers * unit_bytes,
					 .to_va = t->cold->window.va + layer * unit_bytes,
					 .to_pitch = t->plan->cold.classes * unit_bytes,
					 .width = unit_bytes };

	mm_xrows_begin(transfer->rows, &place);
	transfer->bytes = transfer->rows->count * unit_bytes;
}

static void cursor_copy_begin(struct mm_xcycle *c, uint32_t pos, uint64_t now_ns)
{
	struct mm_xtenant *t = c->tenant;
	const uint32_t number = mm_cycle_layer(&t->cycles, c->cursor, pos);
	const struct mm_xplan_layer *layer = &t->plan->layer[number];

	c->since_ns = now_ns;
	if (mm_cycle_is_class(c->cursor)) {
		class_prepare_copy(t, &c->transfer, number);
	} else {
		c->transfer.store_offset = layer->store_offset;
		c->transfer.bytes = layer->bytes;
	}
	c->transfer.due = layer_due(t, number);
	mm_xlink_start(t->link, &t->flow, &c->transfer);
}

/* @seen_ns: mm_xpace, device time at which the cause of the act happened; 0: not known. */
static void tenant_act_perform(struct mm_xtenant *t, const struct mm_cycle_act *act,
			       uint64_t seen_ns, uint64_t now_ns)
{
	uint32_t c = act->cursor;

	switch (act->kind) {
	case MM_CYCLE_NEW:
		cursor_set_up(t, c);
		return;
	case MM_CYCLE_CURSOR:
		if (mm_cycle_is_class(c) && act->word == MM_CUR_COPYING)
			class_choose_rows(t, c, act->pos);
		else
			cursor_write(t, c, act->word, act->pos);
		return;
	case MM_CYCLE_KEEP:
		cursor_write(t, c, act->word, act->pos);
		return;
	case MM_CYCLE_EPOCH:
		__atomic_store_n(&cursor_of(t, c)->epoch, t->plan->epoch, __ATOMIC_RELEASE);
		return;
	case MM_CYCLE_GATE:
		gate_write(t, gate_of(t, c, act->pos), act->word, seen_ns);
		return;
	case MM_CYCLE_GATES:
		slot_gates_write(t, c, act->word);
		return;
	case MM_CYCLE_GATES_ALL:
		tenant_gates_empty(t);
		return;
	case MM_CYCLE_COPY:
		cursor_copy_begin(&t->cycle[c], act->pos, now_ns);
		return;
	case MM_CYCLE_CANCEL:
		mm_xlink_cancel(t->link, &t->cycle[c].transfer);
		return;
	case MM_CYCLE_COUNT:
		tenant_count_streamed(&t->cycle[c]);
		return;
	}
}

static void tenant_acts_perform(struct mm_xtenant *t, const struct mm_cycle_acts *acts,
				uint64_t seen_ns, uint64_t now_ns)
{
	for (uint32_t i = 0; i < acts->n; i++) {
		tenant_kill_point();
		tenant_act_perform(t, &acts->act[i], seen_ns, now_ns);
	}
}

/* ---- streaming ---- */

/* The next cursor of the plan from @c on whose occupant is @layer, or MM_CYCLES_MAX. */
static uint32_t layer_next_cursor(const struct mm_xtenant *t, uint32_t layer, uint32_t c)
{
	while (c < MM_CYCLES_MAX &&
	       !(mm_cycle_has(&t->cycles.plan, c) && cursor_occupant(t, c) == layer))
		c++;
	return c;
}

/* Device time at which all of @layer that has landed was there. */
static uint64_t layer_landed_ns(const struct mm_xtenant *t, uint32_t layer)
{
	uint64_t ns = 0;

	for (uint32_t c = layer_next_cursor(t, layer, 0); c < MM_CYCLES_MAX;
	     c = layer_next_cursor(t, layer, c + 1))
		ns = MM_MAX(ns, t->cycle[c].transfer.landed_ns);
	return ns;
}

static void tenant_copy_landed(struct mm_xtransfer *transfer, int result)
{
	struct mm_xcycle *c =
		(struct mm_xcycle *)((char *)transfer - offsetof(struct mm_xcycle, transfer));
	struct mm_xtenant *t = c->tenant;
	bool wanted = t->cycles.cursor[c->cursor].state == MM_CYCLE_COPYING;
	struct mm_cycle_acts acts;

	if (wanted && result == MM_XLINK_UNREADABLE) {
		/* The cursor stays at COPYING, so that no step runs on what is in the slot now. */
		t->failure = result;
	} else if (wanted && result < 0) {
		/*
		 * All bounds were checked, so the driver failed. A new xfer starts from the cursor.
		 */
		mm_log(MM_LOG_ERROR, "xfer.stream_failed", "tenant=%" PRIu64 " error=%s", t->id,
		       strerror(-result));
		_exit(1);
	}
	mm_cycle_copied(&t->cycles, c->cursor, result >= 0, plan_read_open(t), &acts);
	if (acts.n > 0)
		tenant_acts_perform(t, &acts, layer_landed_ns(t, cursor_occupant(t, c->cursor)), 0);
}

/* Handles a gate of cursor @c that shows DONE: the low half of the gate is @low. */
static void cursor_gate_done(struct mm_xtenant *t, uint32_t c, const struct mm_gate *gate,
			     uint32_t low, uint64_t now_ns)
{
	const uint32_t layer = cursor_occupant(t, c);
	const uint64_t ns =
		mm_xpace_saw(tenant_pace(t), t->gate_inode, gate_low_offset(t, gate), low);
	struct mm_cycle_acts acts;

	cursor_pass(t, c);
	for (uint32_t i = layer_next_cursor(t, layer, 0); i < MM_CYCLES_MAX;
	     i = layer_next_cursor(t, layer, i + 1))
		t->cycle[i].transfer.caused_ns = ns;
	mm_cycle_saw_gate(&t->cycles, c, low, &acts);
	tenant_acts_perform(t, &acts, 0, now_ns);
}

static void cursor_read_open(struct mm_xtenant *t, uint32_t c, uint64_t now_ns)
{
	struct mm_cycle_acts acts;

	mm_cycle_saw_open(&t->cycles, c, plan_read_open(t), &acts);
	tenant_acts_perform(t, &acts, 0, now_ns);
}

static void cursor_poll(struct mm_xtenant *t, uint32_t c, uint64_t now_ns)
{
	const struct mm_gate_region *gates = t->gate.base;
	const struct mm_gate *gate;
	uint32_t layer, low;

	switch (mm_cycle_look(&t->cycles, c, &layer)) {
	case MM_CYCLE_LOOK_NOWHERE:
		return;
	case MM_CYCLE_LOOK_GATE:
		gate = &gates->gate[layer];
		low = gate_read(gate);
		if (!mm_cycle_gate_idle(low))
			cursor_gate_done(t, c, gate, low, now_ns);
		return;
	case MM_CYCLE_LOOK_OPEN:
		cursor_read_open(t, c, now_ns);
		return;
	}
}

void mm_xtenant_poll(struct mm_xtenant *tenant, uint64_t now_ns)
{
	tenant->polled_ns = now_ns;
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		cursor_poll(tenant, c, now_ns);
}

bool mm_xtenant_in_step(const struct mm_xtenant *tenant)
{
	const struct mm_gate_region *gates = tenant->gate.base;

	return __atomic_load_n(&gates->step_seq, __ATOMIC_ACQUIRE) & 1;
}

/* ---- plans ---- */

/* NULL: core has sent none. */
static struct mm_xswap *tenant_swap(const struct mm_xtenant *t)
{
	return t->swaps ? mm_xswap_find(*t->swaps, t->id) : NULL;
}

static int plan_check_slot(const struct mm_xtenant *t, const struct mm_xplan_region *plan,
			   const struct mm_xstore *store, const struct mm_xplan_slot *slot,
			   bool *layer_seen)
{
	if (slot->n_layers < 2 || slot->n_layers > plan->n_layers || slot->n_pages == 0 ||
	    slot->n_pages > MM_SLOT_PAGES_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < slot->n_pages; i++)
		if (!mm_xpool_has(t->pool, slot->page[i]))
			return -EINVAL;
	for (uint32_t i = 0; i < slot->n_layers; i++) {
		uint16_t l = slot->layer[i];

		if (l >= plan->n_layers || layer_seen[l])
			return -EINVAL;
		layer_seen[l] = true;
		if (plan->layer[l].bytes > slot->n_pages * t->pool->page_bytes ||
		    !mm_xstore_holds(store, plan->layer[l].store_offset, plan->layer[l].bytes))
			return -EINVAL;
	}
	return 0;
}

/* Regions of builds without cold blocks are shorter. */
static int plan_check_cold(const struct mm_xtenant *t, const struct mm_xplan_region *plan)
{
	if (plan->cold.classes == 0)
		return 0;
	if (t->gate.size_bytes < sizeof(struct mm_gate_region) ||
	    t->plan_region.size_bytes < sizeof(struct mm_xplan_region))
		return -EINVAL;
	return mm_xcold_check(plan, t->pool, tenant_swap(t));
}

static int plan_check(const struct mm_xtenant *t, const struct mm_xplan_region *plan,
		      const struct mm_xstore *store)
{
	bool layer_seen[MM_LAYERS_MAX] = { false };

	if (plan->n_layers > MM_LAYERS_MAX || plan->n_slots > MM_SLOTS_MAX)
		return -EINVAL;
	for (uint32_t s = 0; s < plan->n_slots; s++) {
		int r = plan_check_slot(t, plan, store, &plan->slot[s], layer_seen);

		if (r < 0)
			return r;
	}
	return plan_check_cold(t, plan);
}

/* The machine's view of @plan, a private copy that has been checked. */
static struct mm_cycle_plan tenant_plan_view(const struct mm_xplan_region *plan)
{
	struct mm_cycle_plan view = { .epoch = plan->epoch,
				      .store = plan->store_id,
				      .closed = plan->closed,
				      .n_layers = plan->n_layers,
				      .n_slots = plan->n_slots,
				      .cold = { .classes = plan->cold.classes,
						.n_pages = plan->cold.n_pages,
						.unit_bytes = plan->cold.unit_bytes,
						.page = plan->cold.page } };

	for (uint32_t s = 0; s < plan->n_slots; s++)
		view.slot[s] = (struct mm_cycle_slot){ .layer = plan->slot[s].layer,
						       .page = plan->slot[s].page,
						       .n_layers = plan->slot[s].n_layers,
						       .n_pages = plan->slot[s].n_pages,
						       .in_place = plan->slot[s].in_place };
	return view;
}

static bool cursor_fits(const struct mm_xtenant *t, const struct mm_cycle_plan *plan, uint32_t c)
{
	const struct mm_xcursor *cursor = cursor_of(t, c);

	return mm_cycle_cursor_fits(plan, c, cursor->epoch, cursor->state, cursor->pos);
}

/* Copies the plan region into @copy and checks the copy. */
static int tenant_plan_read(const struct mm_xtenant *t, uint64_t epoch,
			    struct mm_xplan_region *copy, struct mm_xstore **ret_store)
{
	struct mm_xstore *store = NULL;

	memset(copy, 0, sizeof(*copy));
	memcpy(copy, t->plan_region.base, t->plan_region.size_bytes);
	if (copy->epoch != epoch)
		return -ESTALE;
	if (copy->n_slots > 0 && copy->n_slots <= MM_SLOTS_MAX) {
		store = mm_xstores_find(t->link->stores, copy->store_id);
		if (!store)
			return -ENOENT;
	}
	*ret_store = store;
	return plan_check(t, copy, store);
}

/* Goes on from the cursor of slot @s: xfer's own from before a restart, or core's of a new plan. */
static void slot_resume(struct mm_xtenant *t, uint32_t s, struct mm_cycle_acts *acts)
{
	const struct mm_xcursor *cursor = cursor_of(t, s);
	uint32_t pos = cursor->pos, before = mm_cycle_before(&t->cycles, s, pos);
	uint32_t gate = gate_read(gate_of(t, s, pos));
	uint32_t previous = gate_read(gate_of(t, s, before));

	mm_cycle_resume(&t->cycles, s, cursor->state, pos, gate, previous, acts);
}

static void slots_serve(struct mm_xtenant *t, const struct mm_cycle_plan *view, uint64_t now_ns)
{
	struct mm_cycle_acts acts;

	mm_cycles_take_up(&t->cycles, view);
	for (uint32_t s = 0; s < view->n_slots; s++) {
		if (cursor_fits(t, view, s))
			slot_resume(t, s, &acts);
		else
			mm_cycle_begin(&t->cycles, s, &acts);
		tenant_acts_perform(t, &acts, 0, now_ns);
	}
}

/* Slots and classes have gates in common, so the machine looks at all cursors together. */
static void cursors_serve(struct mm_xtenant *t, const struct mm_cycle_plan *view, uint64_t now_ns)
{
	const struct mm_gate_region *gates = t->gate.base;
	struct mm_cycle_seen seen[MM_CYCLES_MAX] = { 0 };
	uint32_t gate[MM_LAYERS_MAX];
	struct mm_cycle_acts acts;

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		seen[c] = (struct mm_cycle_seen){ .epoch = cursor_of(t, c)->epoch,
						  .state = cursor_of(t, c)->state,
						  .pos = cursor_of(t, c)->pos };
	for (uint32_t l = 0; l < view->n_layers; l++)
		gate[l] = gate_read(&gates->gate[l]);
	mm_cycles_serve(&t->cycles, view, seen, gate, &acts);
	tenant_acts_perform(t, &acts, 0, now_ns);
}

/*
 * Serves the private copy of the plan: cursors that carry its epoch go on from there, others begin
 * at their first layer.
 */
static int plan_serve(struct mm_xtenant *t, struct mm_xstore *store)
{
	const struct mm_cycle_plan view = tenant_plan_view(t->plan);
	int r = mm_xcold_prepare(t->cold, t->pool, &t->plan->cold);

	if (r < 0)
		return r;
	mm_xcold_take(t->cold, &t->plan->cold, tenant_swap(t));
	t->store = store;
	if (view.cold.classes > 0)
		cursors_serve(t, &view, mm_now_ns());
	else
		slots_serve(t, &view, mm_now_ns());
	tenant_find_place(t);
	return 0;
}

static int cursors_check(const struct mm_xtenant *t)
{
	const struct mm_cycle_plan view = tenant_plan_view(t->plan);

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(&view, c) && !cursor_fits(t, &view, c))
			return -EINVAL;
	return 0;
}

int mm_xtenant_activate(struct mm_xtenant *tenant, uint64_t epoch)
{
	bool active = tenant->cycles.active;
	struct mm_xstore *store;
	int r;

	if (active && mm_xtenant_epoch(tenant) == epoch)
		return 0;
	if (active || mm_xtenant_copying(tenant))
		return -EBUSY;
	r = tenant_plan_read(tenant, epoch, tenant->plan, &store);
	if (r == 0)
		r = cursors_check(tenant);
	return r < 0 ? r : plan_serve(tenant, store);
}

/* ---- replan ---- */

/*
 * Copies the plan in place: a copy that goes on reads the page list, which must not move or change.
 */
static void plan_move(struct mm_xtenant *t, struct mm_xstore *store)
{
	struct mm_cycle_plan view;

	memcpy(t->plan, t->next_plan, sizeof(*t->plan));
	mm_xcold_take(t->cold, &t->plan->cold, tenant_swap(t));
	t->store = store;
	view = tenant_plan_view(t->plan);
	mm_cycles_rebind(&t->cycles, &view);
}

/*
 * A copy of which nothing is on the device ends while it is cancelled; then the loop tries again.
 */
static int plan_go_over(struct mm_xtenant *t, struct mm_xstore *store)
{
	const struct mm_cycle_plan next = tenant_plan_view(t->next_plan);
	struct mm_cycle_acts acts;
	int r = mm_xcold_prepare(t->cold, t->pool, &t->next_plan->cold);

	if (r < 0)
		return r;
	do {
		uint32_t gate[MM_CYCLES_MAX] = { 0 };

		for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
			if (mm_cycle_has(&t->cycles.plan, c))
				gate[c] = gate_read(gate_of(t, c, t->cycles.cursor[c].pos));
		r = mm_cycles_replan(&t->cycles, &next, gate, &acts);
		if (r == 0)
			plan_move(t, store);
		tenant_acts_perform(t, &acts, 0, mm_now_ns());
	} while (r == -EINPROGRESS && acts.n > 0);
	if (r == 0)
		tenant_find_place(t);
	return r;
}

int mm_xtenant_replan(struct mm_xtenant *tenant, uint64_t epoch)
{
	bool active = tenant->cycles.active;
	struct mm_xstore *store;
	int r;

	if (active && mm_xtenant_epoch(tenant) >= epoch)
		return mm_xtenant_epoch(tenant) == epoch ? 0 : -ESTALE;
	r = tenant_plan_read(tenant, epoch, tenant->next_plan, &store);
	if (r < 0)
		return r;
	if (active)
		return plan_go_over(tenant, store);
	/* This is a new xfer, or no layers cycled before. */
	if (mm_xtenant_copying(tenant))
		return -EINPROGRESS;
	memcpy(tenant->plan, tenant->next_plan, sizeof(*tenant->plan));
	return plan_serve(tenant, store);
}

void mm_xtenant_quiesce(struct mm_xtenant *tenant)
{
	struct mm_cycle_acts acts;

	mm_cycles_quiesce(&tenant->cycles, &acts);
	tenant_acts_perform(tenant, &acts, 0, 0);
	if (!mm_xtenant_copying(tenant))
		mm_xcold_release(tenant->cold);
}

bool mm_xtenant_uses(const struct mm_xtenant *tenant, const struct mm_xstore *store)
{
	return (mm_xtenant_copying(tenant) || mm_xtenant_cycles(tenant)) && tenant->store == store;
}

/* ---- life ---- */

static int tenant_open_regions(struct mm_xtenant *tenant, const int fds[3])
{
	/* The first two are shorter if an earlier build of core made them. */
	int r = mm_region_open_between(fds[0], MM_GATE_REGION_BYTES_MIN,
				       sizeof(struct mm_gate_region), true, &tenant->gate);
	int r_plan =
		mm_region_open_between(fds[1], MM_XPLAN_REGION_BYTES_MIN,
				       sizeof(struct mm_xplan_region), false, &tenant->plan_region);
	int r_cursor =
		mm_region_open(fds[2], sizeof(struct mm_xcursor_region), true, &tenant->cursor);

	return r ? r : r_plan ? r_plan : r_cursor;
}

int mm_xtenant_create(uint64_t id, const int fds[3], struct mm_xlink *link,
		      struct mm_xtenant **ret_tenant)
{
	struct mm_xtenant *tenant = calloc(1, sizeof(*tenant));
	struct stat st;
	int r = -ENOMEM;

	if (!tenant) {
		for (size_t i = 0; i < 3; i++)
			close(fds[i]);
		return r;
	}
	*tenant = (struct mm_xtenant){ .id = id,
				       .gate = MM_REGION_NULL,
				       .plan_region = MM_REGION_NULL,
				       .cursor = MM_REGION_NULL,
				       .link = link,
				       .pool = link->pool };
	mm_xlink_join(link, &tenant->flow, MM_XLINK_WEIGHT);
	r = tenant_open_regions(tenant, fds);
	if (r == 0 && fstat(tenant->gate.fd, &st) == 0)
		tenant->gate_inode = st.st_ino;
	if (r == 0 && mm_fault("xfer.tenant"))
		r = -ENOMEM;
	if (r == 0) {
		tenant->plan = malloc(sizeof(*tenant->plan));
		tenant->next_plan = malloc(sizeof(*tenant->next_plan));
		tenant->cold = calloc(1, sizeof(*tenant->cold));
		r = tenant->plan && tenant->next_plan && tenant->cold ? 0 : -ENOMEM;
	}
	if (r < 0) {
		mm_xtenant_destroy(tenant);
		return r;
	}
	*ret_tenant = tenant;
	return 0;
}

void mm_xtenant_destroy(struct mm_xtenant *tenant)
{
	mm_assert(!mm_xtenant_copying(tenant));
	if (tenant->cold)
		mm_xcold_release(tenant->cold);
	mm_xlink_leave(tenant->link, &tenant->flow);
	mm_region_done(&tenant->gate);
	mm_region_done(&tenant->plan_region);
	mm_region_done(&tenant->cursor);
	free(tenant->plan);
	free(tenant->next_plan);
	free(tenant->cold);
	free(tenant);
}
