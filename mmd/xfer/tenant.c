/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/xfer/tenant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libclient/ipc/clock.h"
#include "mm/base.h"
#include "mmd/log.h"

/* ---- gates and cursors ---- */

static struct mm_gate *gate_of(const struct mm_xcycle *c, uint32_t pos)
{
	struct mm_gate_region *gates = c->tenant->gate.base;

	return &gates->gate[c->tenant->plan->slot[c->slot].layer[pos]];
}

/* Pairs with the release of the tenant's stream write and of our own stores before a restart. */
static uint32_t gate_read(const struct mm_gate *gate)
{
	return __atomic_load_n(&gate->low, __ATOMIC_ACQUIRE);
}

static uint64_t low_offset(const struct mm_xtenant *t, const struct mm_gate *gate)
{
	return (uint64_t)((const char *)&gate->low - (const char *)t->gate.base);
}

static const struct mm_xpace *pace_of(const struct mm_xtenant *t)
{
	return &t->pool->dev->pace;
}

/*
 * The low half only: the high half is core's. Release: cursor and copied bytes come before. @seen_ns:
 * mm_xpace, of what it is written for.
 */
static void gate_write_for(const struct mm_xtenant *t, struct mm_gate *gate, uint64_t word,
			   uint64_t seen_ns)
{
	mm_xpace_write(pace_of(t), t->gate_inode, low_offset(t, gate), (uint32_t)word, seen_ns);
	__atomic_store_n(&gate->low, (uint32_t)word, __ATOMIC_RELEASE);
}

static void gate_write(const struct mm_xtenant *t, struct mm_gate *gate, uint64_t word)
{
	gate_write_for(t, gate, word, 0);
}

/* State and position change in one store: a kill in between would tear them. */
static void cursor_write(struct mm_xcycle *c, enum mm_cursor_state state, uint32_t pos)
{
	static_assert(offsetof(struct mm_xcursor, pos) == offsetof(struct mm_xcursor, state) + 4 &&
			      offsetof(struct mm_xcursor, state) % 8 == 0,
		      "one 64-bit store");

	__atomic_store_n((uint64_t *)(void *)&c->cursor->state,
			 (uint64_t)state | (uint64_t)pos << 32, __ATOMIC_RELEASE);
	c->pos = pos;
}

static uint32_t cycle_length(const struct mm_xcycle *c)
{
	return c->tenant->plan->slot[c->slot].n_layers;
}

static uint32_t next_pos(const struct mm_xcycle *c)
{
	return (c->pos + 1) % cycle_length(c);
}

static uint32_t previous_pos(const struct mm_xcycle *c)
{
	return (c->pos + cycle_length(c) - 1) % cycle_length(c);
}

/* ---- streaming ---- */

/* One writer, and readers that want whole numbers: relaxed, layers_streamed last. */
static void account(const struct mm_xcycle *c)
{
	struct mm_xcursor_region *r = c->tenant->cursor.base;
	uint64_t ns = mm_now_ns() - c->since_ns;

	__atomic_store_n(&r->bytes_streamed, r->bytes_streamed + c->transfer.bytes,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&r->copy_ns, r->copy_ns + ns, __ATOMIC_RELAXED);
	__atomic_store_n(&r->copy_last_ns, ns, __ATOMIC_RELAXED);
	__atomic_store_n(&r->layers_streamed, r->layers_streamed + 1, __ATOMIC_RELEASE);
}

/* One bit per layer, of our copy; the word that opens them all is core's to write at any time. */
static bool is_closed(const struct mm_xcycle *c)
{
	const struct mm_xplan_region *plan = c->tenant->plan, *shared = c->tenant->plan_region.base;
	uint16_t layer = plan->slot[c->slot].layer[c->pos];

	if (!(plan->closed[layer / 64] >> (layer % 64) & 1))
		return false;
	return __atomic_load_n(&shared->open, __ATOMIC_ACQUIRE) <
	       MM_XPLAN_OPEN(plan->epoch, layer + 1u);
}

/* @seen_ns: mm_xpace, that the copy landed or the layer was opened */
static void hand_over(struct mm_xcycle *c, uint64_t seen_ns)
{
	c->landed = false;
	gate_write_for(c->tenant, gate_of(c, c->pos), MM_GATE_READY, seen_ns);
	cursor_write(c, MM_CUR_HELD, c->pos);
	account(c);
}

static void layer_landed(struct mm_xtransfer *transfer, int result)
{
	struct mm_xcycle *c =
		(struct mm_xcycle *)((char *)transfer - offsetof(struct mm_xcycle, transfer));

	c->copying = false;
	if (!c->tenant->active || c->dropped)
		return; /* quiesced or replanned meanwhile: gates and cursors are reset */
	if (result == MM_XLINK_UNREADABLE) {
		/* The cursor stays at COPYING: nobody runs on what is in the slot now. */
		c->tenant->failed = result;
		return;
	}
	if (result < 0) {
		/* All bounds were checked: it is the driver. A new xfer starts from the cursor. */
		mm_log(MM_LOG_ERROR, "xfer.stream_failed", "tenant=%" PRIu64 " error=%s",
		       c->tenant->id, strerror(-result));
		_exit(1);
	}
	c->landed = is_closed(c);
	if (!c->landed)
		hand_over(c, transfer->landed_ns);
}

static void copy_in(struct mm_xcycle *c, uint64_t now_ns)
{
	const struct mm_xplan_slot *slot = &c->tenant->plan->slot[c->slot];
	const struct mm_xplan_layer *layer = &c->tenant->plan->layer[slot->layer[c->pos]];

	c->since_ns = now_ns;
	c->copying = true;
	c->transfer.store_offset = layer->store_offset;
	c->transfer.bytes = layer->bytes;
	mm_xlink_start(c->tenant->link, &c->tenant->flow, &c->transfer);
}

static void poll_cycle(struct mm_xcycle *c, uint64_t now_ns)
{
	struct mm_gate *gate;
	uint32_t word;

	if (c->copying || c->stopped)
		return;
	if (c->landed) {
		if (!is_closed(c))
			hand_over(c, 0);
		return;
	}
	gate = gate_of(c, c->pos);
	word = gate_read(gate);
	if (!(word & MM_GATE_DONE))
		return;
	c->transfer.caused_ns = mm_xpace_saw(pace_of(c->tenant), c->tenant->gate_inode,
					     low_offset(c->tenant, gate), word);
	/* Intent first: from here on a new xfer knows that the occupant is void. */
	cursor_write(c, MM_CUR_COPYING, next_pos(c));
	gate_write(c->tenant, gate, MM_GATE_EMPTY);
	copy_in(c, now_ns);
}

/* Take up a cursor, ours of before a restart or core's of a new plan. */
static void resume_cycle(struct mm_xcycle *c, enum mm_cursor_state state, uint64_t now_ns)
{
	struct mm_gate *previous = gate_of(c, previous_pos(c));

	c->transfer.caused_ns = 0;
	if (state == MM_CUR_HELD)
		return;
	if (gate_read(gate_of(c, c->pos)) != MM_GATE_EMPTY) {
		/* READY was written before the kill; it may even be used up by now. Never again. */
		cursor_write(c, MM_CUR_HELD, c->pos);
		return;
	}
	if (gate_read(previous) & MM_GATE_DONE)
		gate_write(c->tenant, previous, MM_GATE_EMPTY);
	copy_in(c, now_ns);
}

void mm_xtenant_poll(struct mm_xtenant *tenant, uint64_t now_ns)
{
	tenant->looked_ns = now_ns;
	for (uint32_t s = 0; s < tenant->plan->n_slots; s++)
		poll_cycle(&tenant->cycle[s], now_ns);
}

bool mm_xtenant_in_step(const struct mm_xtenant *tenant)
{
	const struct mm_gate_region *gates = tenant->gate.base;

	return __atomic_load_n(&gates->step_seq, __ATOMIC_ACQUIRE) & 1;
}

/* ---- plans ---- */

static int check_slot(const struct mm_xtenant *t, const struct mm_xplan_region *plan,
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

static int check_plan(const struct mm_xtenant *t, const struct mm_xplan_region *plan,
		      const struct mm_xstore *store)
{
	bool layer_seen[MM_LAYERS_MAX] = { false };

	if (plan->n_layers > MM_LAYERS_MAX || plan->n_slots > MM_SLOTS_MAX)
		return -EINVAL;
	for (uint32_t s = 0; s < plan->n_slots; s++) {
		int rc = check_slot(t, plan, store, &plan->slot[s], layer_seen);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static bool cursor_fits(const struct mm_xtenant *t, const struct mm_xplan_region *plan, uint32_t s)
{
	const struct mm_xcursor_region *cursors = t->cursor.base;
	const struct mm_xcursor *cursor = &cursors->slot[s];

	return cursor->epoch == plan->epoch && cursor->state <= MM_CUR_COPYING &&
	       cursor->pos < plan->slot[s].n_layers;
}

/* The plan region as it is now, checked, into @copy. */
static int plan_take(const struct mm_xtenant *t, uint64_t epoch, struct mm_xplan_region *copy,
		     struct mm_xstore **ret_store)
{
	struct mm_xstore *store = NULL;

	memcpy(copy, t->plan_region.base, sizeof(*copy));
	if (copy->epoch != epoch)
		return -ESTALE;
	if (copy->n_slots > 0 && copy->n_slots <= MM_SLOTS_MAX) {
		store = mm_xstores_find(t->link->stores, copy->store_id);
		if (!store)
			return -ENOENT;
	}
	*ret_store = store;
	return check_plan(t, copy, store);
}

static void cycle_set_up(struct mm_xtenant *t, uint32_t s, struct mm_xstore *store)
{
	struct mm_xcursor_region *cursors = t->cursor.base;

	t->cycle[s] = (struct mm_xcycle){
		.tenant = t,
		.slot = s,
		.cursor = &cursors->slot[s],
		.pos = cursors->slot[s].pos,
		.transfer = { .store = store,
			      .page = t->plan->slot[s].page,
			      .landed = layer_landed },
	};
}

static void take_up(struct mm_xtenant *t, struct mm_xstore *store)
{
	uint64_t now_ns = mm_now_ns();

	t->active = true;
	t->epoch = t->plan->epoch;
	for (uint32_t s = 0; s < t->plan->n_slots; s++) {
		cycle_set_up(t, s, store);
		resume_cycle(&t->cycle[s], t->cycle[s].cursor->state, now_ns);
	}
}

int mm_xtenant_activate(struct mm_xtenant *tenant, uint64_t epoch)
{
	struct mm_xstore *store;
	int rc;

	if (tenant->active && tenant->epoch == epoch)
		return 0;
	if (tenant->active || mm_xtenant_copying(tenant))
		return -EBUSY;
	rc = plan_take(tenant, epoch, tenant->plan, &store);
	for (uint32_t s = 0; rc == 0 && s < tenant->plan->n_slots; s++)
		if (!cursor_fits(tenant, tenant->plan, s))
			rc = -EINVAL;
	if (rc == 0)
		take_up(tenant, store);
	return rc;
}

/* ---- replan ---- */

static bool same_pages(const struct mm_xplan_slot *a, const struct mm_xplan_slot *b)
{
	return a->n_pages == b->n_pages &&
	       memcmp(a->page, b->page, a->n_pages * sizeof(a->page[0])) == 0;
}

/* Nothing about slot @s changes. */
static bool slot_stays(const struct mm_xtenant *t, uint32_t s)
{
	const struct mm_xplan_slot *a = &t->plan->slot[s], *b = &t->coming->slot[s];

	return s < t->plan->n_slots && s < t->coming->n_slots &&
	       t->plan->store_id == t->coming->store_id && same_pages(a, b) &&
	       a->n_layers == b->n_layers &&
	       memcmp(a->layer, b->layer, a->n_layers * sizeof(a->layer[0])) == 0;
}

/* What is in the slot, or coming in, is what the next step needs from it first. */
static bool occupant_stays(const struct mm_xtenant *t, uint32_t s)
{
	const struct mm_xcycle *c = &t->cycle[s];
	const struct mm_xplan_slot *a = &t->plan->slot[s], *b = &t->coming->slot[s];

	if (s >= t->plan->n_slots || s >= t->coming->n_slots ||
	    t->plan->store_id != t->coming->store_id || !same_pages(a, b) || c->dropped ||
	    a->layer[c->pos] != b->layer[0])
		return false;
	return c->copying || c->landed || gate_read(gate_of(c, c->pos)) == MM_GATE_READY;
}

/* True: nothing is on its way into a slot that changes. */
static bool slots_stop(struct mm_xtenant *t)
{
	bool still = true;

	for (uint32_t s = 0; s < t->plan->n_slots; s++) {
		struct mm_xcycle *c = &t->cycle[s];

		if (slot_stays(t, s))
			continue;
		c->stopped = true;
		if (!c->copying || occupant_stays(t, s))
			continue;
		if (!c->dropped) {
			c->dropped = true;
			mm_xlink_cancel(t->link, &c->transfer);
		}
		still &= !c->copying;
	}
	return still;
}

/* Gates first, then where the cursor stands, then whose it is: a kill before that begins here again. */
static void slot_begin(struct mm_xtenant *t, uint32_t s, bool occupied, uint64_t now_ns)
{
	const struct mm_xplan_slot *slot = &t->plan->slot[s];
	struct mm_xcycle *c = &t->cycle[s];
	bool held = slot->in_place || (occupied && !c->copying && !c->landed);

	for (uint32_t i = 1; i < slot->n_layers; i++)
		gate_write(t, gate_of(c, i), MM_GATE_EMPTY);
	gate_write(t, gate_of(c, 0), held ? MM_GATE_READY : MM_GATE_EMPTY);
	cursor_write(c, held ? MM_CUR_HELD : MM_CUR_COPYING, 0);
	__atomic_store_n(&c->cursor->epoch, t->plan->epoch, __ATOMIC_RELEASE);
	c->stopped = false;
	if (!held && !c->copying && !c->landed) {
		c->transfer.caused_ns = 0;
		copy_in(c, now_ns);
	}
}

static void go_over(struct mm_xtenant *t, struct mm_xstore *store)
{
	bool stays[MM_SLOTS_MAX], occupied[MM_SLOTS_MAX];
	uint64_t now_ns = mm_now_ns();

	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++) {
		stays[s] = slot_stays(t, s);
		occupied[s] = occupant_stays(t, s);
	}
	/* Where a transfer goes on, its pages stay the same, and where they are. */
	memcpy(t->plan, t->coming, sizeof(*t->plan));
	t->epoch = t->plan->epoch;
	for (uint32_t s = 0; s < t->plan->n_slots; s++) {
		if (stays[s]) {
			__atomic_store_n(&t->cycle[s].cursor->epoch, t->epoch, __ATOMIC_RELEASE);
			continue;
		}
		if (!occupied[s])
			cycle_set_up(t, s, store);
		slot_begin(t, s, occupied[s], now_ns);
	}
}

/* Nothing was active: a new xfer, or nothing cycled. */
static void begin_anew(struct mm_xtenant *t, struct mm_xstore *store)
{
	uint64_t now_ns = mm_now_ns();

	memcpy(t->plan, t->coming, sizeof(*t->plan));
	t->active = true;
	t->epoch = t->plan->epoch;
	for (uint32_t s = 0; s < t->plan->n_slots; s++) {
		bool fits = cursor_fits(t, t->plan, s);

		cycle_set_up(t, s, store);
		if (fits)
			resume_cycle(&t->cycle[s], t->cycle[s].cursor->state, now_ns);
		else
			slot_begin(t, s, false, now_ns);
	}
}

int mm_xtenant_replan(struct mm_xtenant *tenant, uint64_t epoch)
{
	struct mm_xstore *store;
	int rc;

	if (tenant->active && tenant->epoch >= epoch)
		return tenant->epoch == epoch ? 0 : -ESTALE;
	rc = plan_take(tenant, epoch, tenant->coming, &store);
	if (rc < 0)
		return rc;
	if (tenant->active ? !slots_stop(tenant) : mm_xtenant_copying(tenant))
		return -EINPROGRESS;
	if (tenant->active)
		go_over(tenant, store);
	else
		begin_anew(tenant, store);
	return 0;
}

void mm_xtenant_quiesce(struct mm_xtenant *tenant)
{
	tenant->active = false;
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		if (tenant->cycle[s].copying)
			mm_xlink_cancel(tenant->link, &tenant->cycle[s].transfer);
}

bool mm_xtenant_copying(const struct mm_xtenant *tenant)
{
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		if (tenant->cycle[s].copying)
			return true;
	return false;
}

bool mm_xtenant_uses(const struct mm_xtenant *tenant, const struct mm_xstore *store)
{
	return mm_xtenant_copying(tenant)
		       ? tenant->cycle[0].transfer.store == store
		       : mm_xtenant_cycles(tenant) && tenant->plan->store_id == store->id;
}

/* ---- life ---- */

static int open_regions(struct mm_xtenant *tenant, const int fds[3])
{
	int rc = mm_region_open(fds[0], sizeof(struct mm_gate_region), true, &tenant->gate);
	int rc_plan =
		mm_region_open(fds[1], sizeof(struct mm_xplan_region), false, &tenant->plan_region);
	int rc_cursor =
		mm_region_open(fds[2], sizeof(struct mm_xcursor_region), true, &tenant->cursor);

	return rc ? rc : rc_plan ? rc_plan : rc_cursor;
}

int mm_xtenant_create(uint64_t id, const int fds[3], struct mm_xlink *link,
		      struct mm_xtenant **ret_tenant)
{
	struct mm_xtenant *tenant = calloc(1, sizeof(*tenant));
	struct stat st;
	int rc = -ENOMEM;

	if (!tenant) {
		for (size_t i = 0; i < 3; i++)
			close(fds[i]);
		return rc;
	}
	*tenant = (struct mm_xtenant){ .id = id,
				       .gate = MM_REGION_NULL,
				       .plan_region = MM_REGION_NULL,
				       .cursor = MM_REGION_NULL,
				       .link = link,
				       .pool = link->pool };
	mm_xlink_join(link, &tenant->flow);
	rc = open_regions(tenant, fds);
	if (rc == 0 && fstat(tenant->gate.fd, &st) == 0)
		tenant->gate_inode = st.st_ino;
	if (rc == 0 && mm_fault("xfer.tenant"))
		rc = -ENOMEM;
	if (rc == 0) {
		tenant->plan = malloc(sizeof(*tenant->plan));
		tenant->coming = malloc(sizeof(*tenant->coming));
		rc = tenant->plan && tenant->coming ? 0 : -ENOMEM;
	}
	if (rc < 0) {
		mm_xtenant_destroy(tenant);
		return rc;
	}
	*ret_tenant = tenant;
	return 0;
}

void mm_xtenant_destroy(struct mm_xtenant *tenant)
{
	mm_assert(!mm_xtenant_copying(tenant));
	mm_xlink_leave(tenant->link, &tenant->flow);
	mm_region_done(&tenant->gate);
	mm_region_done(&tenant->plan_region);
	mm_region_done(&tenant->cursor);
	free(tenant->plan);
	free(tenant->coming);
	free(tenant);
}
