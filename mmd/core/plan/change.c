/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Performs the effects of the table's rows (change_rows.c), and finds the events that no peer
 * reports.
 */
#include "mmd/core/plan/change.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/pages.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/plan/cold.h"
#include "mmd/core/plan/model.h"
#include "mmd/core/plan/plans.h"
#include "mmd/core/plan/preload.h"
#include "mmd/core/plan/sets.h"

/* ---- change ---- */

static void model_load_refuse(struct mm_core *c, struct mm_c_tenant *t)
{
	int error = t->change->pre.error;

	mm_c_preload_drop(c, t);
	mm_c_model_refuse(c, t, error, MM_REFUSED_DEVICE);
}

static void preload_give_up(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_preload_drop(c, t);
	t->change->retry_ns = c->now_ns + MM_PAGE_RETRY_NS;
}

static void change_prepare(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_preload_send(c, t);
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = t->plan.epoch + 1 });
}

/*
 * Changes are limited by a token bucket of MM_CHANGES_AT_ONCE, refilled by one per opts.change_ns.
 * Each change makes the tenant's steps drain or wait, so policies that alternate between two plans
 * could keep it from computing at all. No change is exempt: those that must happen (RESYNC, the
 * operator's plan, pages for a min) begin first when the next one may begin, which is soon.
 */
uint64_t mm_c_change_may_at_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t at_once = (MM_CHANGES_AT_ONCE - 1) * c->opts.change_ns;

	return t->change->spent_ns > at_once ? t->change->spent_ns - at_once : 0;
}

bool mm_c_change_may_begin(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return c->now_ns >= mm_c_change_may_at_ns(c, t);
}

static void change_spend(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_assert(mm_c_change_may_begin(c, t));
	t->change->spent_ns = MM_MAX(t->change->spent_ns, c->now_ns) + c->opts.change_ns;
	c->stats.plan_changes_limited += !mm_c_change_may_begin(c, t);
}

/*
 * Uses the time of the last settling: statistics move c->now_ns on, but begin nothing that waits.
 */
uint64_t mm_c_change_deadline(const struct mm_core *c)
{
	uint64_t due = UINT64_MAX;

	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && t->change->state == MM_CHANGE_STEADY &&
		    c->settled_ns < mm_c_change_may_at_ns(c, t))
			due = MM_MIN(due, mm_c_change_may_at_ns(c, t));
	return due;
}

/*
 * Begins the change to next_set, whose pages are free. Every change of a plan in force begins here.
 */
static void change_start(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha)
{
	uint64_t gain =
		mm_plan_pages_only_in(&t->change->next_set, &t->change->set, t->layer_pages) +
		mm_c_slots_pages(t, &t->change->set);
	uint64_t blanks = mm_c_blank_pages(t, &t->change->next_set);

	change_spend(c, t);
	t->change->change_gain = gain + blanks - mm_c_slots_pages(t, &t->change->next_set);
	t->change->change_ns = c->now_ns;
	t->change->next_alpha = alpha;
	t->change->next_cold = mm_c_cold_next(c, t);
	mm_c_preload_begin(t);
	for (uint32_t i = 0, k = 0; i < t->change->set.m; i++) {
		while (k < t->change->next_set.m &&
		       t->change->next_set.layer[k] < t->change->set.layer[i])
			k++;
		if (k == t->change->next_set.m ||
		    t->change->next_set.layer[k] != t->change->set.layer[i])
			mm_c_preload_add(c, t, &t->group[1 + t->change->set.layer[i]]);
	}
	mm_c_preload_add_slots(c, t, blanks);
	mm_c_change_event(c, t, MM_CHANGE_BEGIN);
}

bool mm_c_change_begin(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha, uint32_t slots,
		       uint64_t budget_pages)
{
	uint64_t need;

	mm_assert(t->change->state == MM_CHANGE_STEADY);
	mm_assert(alpha <= t->sets->alpha_max);
	if (t->unload.due || !mm_c_change_may_begin(c, t) || !mm_c_burst(c))
		return false;
	need = mm_c_change_set(c, t, alpha, slots, budget_pages, &t->change->next_set);
	if (need > budget_pages || !mm_c_reservable(c, t, need))
		return false;
	change_start(c, t, alpha);
	mm_c_supply_changed(c);
	return true;
}

void mm_c_change_begin_unload(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_assert(t->change->state == MM_CHANGE_STEADY && !t->copies);
	if (!mm_c_change_may_begin(c, t) || !mm_c_burst(c))
		return;
	change_spend(c, t);
	t->change->unload = true;
	/* Its pages are counted on by nobody before they are there. */
	t->change->change_gain = 0;
	t->change->change_ns = c->now_ns;
	t->change->next_alpha = t->plan.alpha;
	t->change->next_set = (struct mm_plan_set){ 0 };
	t->change->next_cold = (struct mm_core_cold){ 0 };
	mm_c_preload_begin(t);
	mm_c_change_event(c, t, MM_CHANGE_BEGIN);
}

static void spill_add(struct mm_core *c, uint32_t page)
{
	c->plans->spill[c->plans->n_spill++] = page;
}

static void slot_add(struct mm_core *c, struct mm_c_tenant *t, uint32_t s, uint32_t page)
{
	mm_ledger_give(&c->ledger, page, MM_PAGE_SLOT);
	t->slot_page[s][t->plan.slot[s].n_pages++] = page;
}

/*
 * Moves the layer's own pages, if it has any, to slot @s, or to the spilled pages if @s is
 * MM_SLOTS_MAX.
 */
static bool layer_pages_move(struct mm_core *c, struct mm_c_tenant *t, uint32_t layer, uint32_t s)
{
	const struct mm_c_group *g = &t->group[1 + layer];

	if (t->own[g->entry] == MM_NO_PAGE)
		return false;
	for (uint32_t i = g->entry; i < g->entry + g->pages; i++) {
		if (s < MM_SLOTS_MAX)
			slot_add(c, t, s, t->own[i]);
		else
			spill_add(c, t->own[i]);
		t->own[i] = MM_NO_PAGE;
	}
	return true;
}

/*
 * Sets the cycle of slot @s. The pages that it already has stay first, so that they may stay
 * mapped.
 */
static void slot_keep(struct mm_core *c, struct mm_c_tenant *t, uint32_t s)
{
	struct mm_core_slot *slot = &t->plan.slot[s];
	uint32_t pages = mm_plan_slot_pages(&t->change->next_set, s, t->layer_pages);
	bool fresh = !slot->n_pages, moved;

	slot->n_layers = 0;
	for (uint32_t i = 0; i < t->change->next_set.m; i++)
		if (mm_plan_slot(&t->change->next_set, i) == s)
			slot->layer[slot->n_layers++] = t->change->next_set.layer[i];
	while (slot->n_pages > pages)
		spill_add(c, t->slot_page[s][--slot->n_pages]);
	/*
	 * The first layer of a new slot brings its own pages with their bytes. Beside cold blocks
	 * no layer is ready before its class is, so all begin alike.
	 */
	moved = fresh && slot->n_layers && layer_pages_move(c, t, slot->layer[0], s);
	slot->in_place = moved && !t->change->next_cold.classes;
}

/*
 * Fills the slots: first with the pages that they have, then with those of layers that begin to
 * cycle, then with those that were reserved for slots. Pages that remain are revoked.
 */
static void slots_fill(struct mm_core *c, struct mm_c_tenant *t)
{
	c->plans->n_spill = 0;
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		slot_keep(c, t, s);
	for (uint32_t i = 0; i < t->change->next_set.m; i++)
		layer_pages_move(c, t, t->change->next_set.layer[i], MM_SLOTS_MAX);
	for (uint32_t i = 0; i < t->change->pre.n; i++)
		if (t->change->pre.entry[i] == MM_NO_PAGE)
			spill_add(c, t->change->pre.page[i]);
	for (uint32_t s = 0, at = 0; s < MM_SLOTS_MAX; s++) {
		uint32_t pages = mm_plan_slot_pages(&t->change->next_set, s, t->layer_pages);

		while (t->plan.slot[s].n_pages < pages) {
			mm_assert(at < c->plans->n_spill);
			slot_add(c, t, s, c->plans->spill[at]);
			c->plans->spill[at++] = MM_NO_PAGE;
		}
	}
	for (uint32_t i = 0; i < c->plans->n_spill; i++)
		if (c->plans->spill[i] != MM_NO_PAGE)
			mm_ledger_revoke(&c->ledger, c->plans->spill[i]);
}

static uint64_t change_gate_word(const struct mm_c_tenant *t, uint32_t slot, uint32_t layer)
{
	const struct mm_core_slot *s = &t->plan.slot[slot];

	return s->in_place && s->layer[0] == layer ? MM_GATE_READY : MM_GATE_EMPTY;
}

static void gates_reset(struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t k = 0;

	for (uint32_t layer = 0; layer < t->n_layers; layer++) {
		struct mm_action *a = mm_c_emit(c, MM_ACT_GATE, t);

		a->entry = layer;
		a->word = MM_GATE_RESIDENT;
		if (t->plan.cold.classes)
			a->word = MM_GATE_EMPTY;
		if (k == t->change->set.m || t->change->set.layer[k] != layer)
			continue;
		a->word = change_gate_word(t, mm_plan_slot(&t->change->set, k), layer);
		k++;
	}
}

static void layer_bit_set(uint64_t *words, uint32_t layer)
{
	words[layer / 64] |= UINT64_C(1) << (layer % 64);
}

static bool layer_bit(const uint64_t *words, uint32_t layer)
{
	return words[layer / 64] >> (layer % 64) & 1;
}

/* Returns true if a page of the group is mapped elsewhere now. */
static bool group_update(struct mm_core *c, struct mm_c_tenant *t, uint32_t g, const uint32_t *slot)
{
	bool changed = false;

	for (uint32_t i = 0; i < t->group[g].pages; i++) {
		uint32_t entry = t->group[g].entry + i;
		uint32_t page = slot ? slot[i] : t->own[entry];

		changed |= t->map[entry] != page + 1;
		mm_c_map_set(c, t, entry, page);
	}
	return changed;
}

/*
 * Writes the new plan into the map table. If the change is in part, layers that cycle and are
 * mapped elsewhere become closed; t->change->home closes the layers that no longer cycle. Beside
 * cold blocks all layers cycle, also those that come home.
 */
static void table_update(struct mm_core *c, struct mm_c_tenant *t, bool in_part)
{
	uint32_t k = 0;

	memset(t->plan.closed, 0, sizeof(t->plan.closed));
	for (uint32_t g = 0; g <= t->n_layers; g++) {
		bool cycles = g && k < t->change->set.m && t->change->set.layer[k] == g - 1;
		const uint32_t *slot =
			cycles ? t->slot_page[mm_plan_slot(&t->change->set, k)] : NULL;

		k += cycles;
		if (group_update(c, t, g, slot) && in_part &&
		    (cycles || (g && t->plan.cold.classes)))
			layer_bit_set(t->plan.closed, g - 1);
	}
}

static void layers_count(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha, uint32_t next)
{
	const uint32_t takes = next > alpha ? next - alpha : 0;
	const uint32_t returns = alpha > next ? alpha - next : 0;

	c->stats.takes += takes;
	c->stats.returns += returns;
	mm_c_tally_add(c, t, takes, takes);
	mm_c_tally_add(c, t, returns, returns);
}

/* Puts the new plan in force, in the ledger and in the map table. */
static void plan_enter(struct mm_core *c, struct mm_c_tenant *t, bool in_part)
{
	struct mm_core_plan *plan = &t->plan;

	for (uint32_t i = 0; i < t->change->pre.n; i++) {
		if (t->change->pre.entry[i] == MM_NO_PAGE)
			continue;
		mm_ledger_give(&c->ledger, t->change->pre.page[i], MM_PAGE_PARAM);
		t->own[t->change->pre.entry[i]] = t->change->pre.page[i];
	}
	slots_fill(c, t);
	if (!t->change->pre.sent)
		mm_c_preload_send(c, t);
	t->change->pre.n = t->change->pre.issued = t->change->pre.done = 0;
	layers_count(c, t, plan->alpha, t->change->next_alpha);
	t->change->set = t->change->next_set;
	plan->epoch++;
	plan->alpha = t->change->next_alpha;
	plan->m = t->change->set.m;
	plan->beta = t->change->set.beta;
	mm_c_cold_enter(t, &t->change->next_cold);
	table_update(c, t, in_part);
}

static void switch_send(struct mm_core *c, struct mm_c_tenant *t, uint64_t flags)
{
	const bool cold = t->plan.cold.classes;
	const uint32_t m = cold ? t->n_layers : t->plan.m;

	mm_c_event_send(c, t,
			&(struct mm_msg){
				.opcode = MM_EV_SWITCH,
				.epoch = t->plan.epoch,
				.arg = { t->plan.alpha, m, flags | (cold ? MM_SWITCH_COLD : 0) } });
}

/* xfer is quiescent and no step runs, so all gates and cursors are written anew. */
static void switch_full(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->model == MM_C_MODEL_LOADING) {
		t->model = MM_C_MODEL_SWITCHED;
		t->change->next_set.m = t->change->next_set.beta = t->change->next_alpha = 0;
	}
	mm_c_cold_parked(c, t);
	plan_enter(c, t, false);
	t->change->broken = false;
	gates_reset(c, t);
	if (mm_core_plan_cycles(&t->plan))
		mm_c_emit(c, MM_ACT_PLAN, t);
	switch_send(c, t, 0);
}

/* The tenant may map the pages of its model until it has answered this. */
static void model_pages_revoke(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t i = 0; i < t->entries; i++) {
		if (t->own[i] != MM_NO_PAGE)
			mm_ledger_revoke(&c->ledger, t->own[i]);
		mm_c_map_set(c, t, i, MM_NO_PAGE);
	}
	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		for (uint32_t i = 0; i < t->plan.slot[s].n_pages; i++)
			mm_ledger_revoke(&c->ledger, t->slot_page[s][i]);
}

/* xfer is quiescent and no step runs. Of the plan only its epoch is left, and the store. */
static void switch_empty(struct mm_core *c, struct mm_c_tenant *t)
{
	model_pages_revoke(c, t);
	mm_c_cold_end(t);
	t->model = MM_C_MODEL_LEAVING;
	t->entries = t->n_layers = 0;
	t->plan = (struct mm_core_plan){ .epoch = t->plan.epoch + 1,
					 .alpha_by_hand = -1,
					 .store = t->plan.store };
	t->change->set = (struct mm_plan_set){ 0 };
	t->change->next_alpha = 0;
	t->change->broken = false;
	*t->sets = (struct mm_c_sets){ 0 };
	mm_c_load_forget(t);
	mm_c_demand_changed(c);
	switch_send(c, t, MM_SWITCH_EMPTY);
}

static void gate_set(struct mm_core *c, const struct mm_c_tenant *t, uint32_t layer, uint64_t word)
{
	struct mm_action *a = mm_c_emit(c, MM_ACT_GATE, t);

	a->entry = layer;
	a->word = word;
}

/* Sets the bits of the layers that cycle in the plan in force. */
static void cycling_layers(const struct mm_c_tenant *t, uint64_t *ret_words)
{
	memset(ret_words, 0, MM_LAYER_WORDS * sizeof(*ret_words));
	for (uint32_t i = 0; i < t->change->set.m; i++)
		layer_bit_set(ret_words, t->change->set.layer[i]);
	for (uint32_t layer = 0; t->plan.cold.classes && layer < t->n_layers; layer++)
		layer_bit_set(ret_words, layer);
}

/* The word of the gate of a layer that was resident and cycles from now on. */
static uint64_t new_cycler_word(const struct mm_c_tenant *t, uint32_t layer, bool served)
{
	for (uint32_t i = 0; !served && i < t->change->set.m; i++)
		if (t->change->set.layer[i] == layer)
			return change_gate_word(t, mm_plan_slot(&t->change->set, i), layer);
	return MM_GATE_EMPTY;
}

/*
 * The tenant is parked, and xfer serves the old plan. Only the core writes gates of layers that
 * were resident: they are closed at once. xfer writes the others until it has gone over to the new
 * plan.
 */
static void switch_part(struct mm_core *c, struct mm_c_tenant *t)
{
	uint64_t cycled[MM_LAYER_WORDS], cycles[MM_LAYER_WORDS];
	bool served = mm_core_plan_cycles(&t->plan);

	t->change->mapped = t->change->open = 0;
	mm_c_cold_parked(c, t);
	cycling_layers(t, cycled);
	plan_enter(c, t, true);
	cycling_layers(t, cycles);
	for (uint32_t i = 0; i < MM_LAYER_WORDS; i++)
		t->change->home[i] = cycled[i] & ~cycles[i];
	for (uint32_t layer = 0; layer < t->n_layers; layer++)
		if (layer_bit(cycles, layer) && !layer_bit(cycled, layer))
			gate_set(c, t, layer, new_cycler_word(t, layer, served));
	if (mm_core_plan_cycles(&t->plan))
		mm_c_emit(c, MM_ACT_PLAN, t)->entry = served;
}

/*
 * xfer has gone over to the new plan. Steps go on, up to the first layer that must be mapped anew.
 */
static void change_resume(struct mm_core *c, struct mm_c_tenant *t)
{
	for (uint32_t layer = 0; layer < t->n_layers; layer++)
		if (layer_bit(t->change->home, layer))
			gate_set(c, t, layer, MM_GATE_EMPTY);
	switch_send(c, t, MM_SWITCH_PARTIAL);
}

/*
 * Layers below @end are mapped according to the plan. Opens those that returned home; xfer opens
 * the others.
 */
static void layers_open(struct mm_core *c, struct mm_c_tenant *t, uint32_t end)
{
	for (uint32_t layer = t->change->open; layer < end; layer++)
		if (layer_bit(t->change->home, layer))
			gate_set(c, t, layer, MM_GATE_RESIDENT);
	t->change->open = end;
	if (mm_core_plan_cycles(&t->plan)) {
		struct mm_action *a = mm_c_emit(c, MM_ACT_OPEN, t);

		a->entry = end;
		a->word = t->plan.epoch;
	}
}

static void mapped_layers_open(struct mm_core *c, struct mm_c_tenant *t)
{
	layers_open(c, t, t->change->mapped);
}

/* The tenant has unmapped all pages that were revoked. */
static void left_pages_drop(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_page_list *out = &c->ledger.revoking[mm_c_index(c, t)];

	while (out->head != MM_NO_PAGE)
		mm_c_page_drop(c, out->head);
}

/* Everything is mapped according to the plan. */
static void change_finish(struct mm_core *c, struct mm_c_tenant *t)
{
	(void)t;
	c->stats.plan_changes++;
	mm_c_tally_add(c, t, plan_changes, 1);
}

static void change_finish_part(struct mm_core *c, struct mm_c_tenant *t)
{
	if (t->change->open < t->n_layers)
		layers_open(c, t, t->n_layers);
	change_finish(c, t);
}

static void change_finish_first(struct mm_core *c, struct mm_c_tenant *t)
{
	t->model = MM_C_MODEL_READY;
	mm_c_event_send(c, t, &(struct mm_msg){ .opcode = MM_EV_MODEL_READY });
}

static void change_finish_empty(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_assert(t->has_store && !t->copies && !t->ctl && !t->change->served_epoch);
	t->change->unload = t->change->broken = false;
	t->change->retry_ns = 0;
	t->model = MM_C_MODEL_NONE;
	mm_c_demand_changed(c);
	mm_c_emit(c, MM_ACT_MODEL_DROP, t);
	t->has_store = false;
}

static void change_note_broken(struct mm_core *c, struct mm_c_tenant *t)
{
	(void)c;
	t->change->broken = true;
}

static void kick_unmapped(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_kick(c, t, "could not map its plan");
}

static void kick_unserved(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_kick(c, t, "xfer could not serve its plan");
}

static void kick_and_abort(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_emit(c, MM_ACT_ABORT, t);
	kick_unserved(c, t);
}

static void change_end(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_preload_drop(c, t);
	t->change->state = MM_CHANGE_NONE;
	t->change->broken = t->change->unload = false;
	t->change->served_epoch = 0;
	t->change->mapped = t->change->open = 0;
	memset(t->change->home, 0, sizeof(t->change->home));
}

/* ---- the machine ---- */

static void (*const change_effects[])(struct mm_core *c, struct mm_c_tenant *t) = {
	[MM_CHANGE_DO_PREPARE] = change_prepare,
	[MM_CHANGE_DO_REFUSE] = model_load_refuse,
	[MM_CHANGE_DO_GIVE_UP] = preload_give_up,
	[MM_CHANGE_DO_SWITCH_FULL] = switch_full,
	[MM_CHANGE_DO_SWITCH_PART] = switch_part,
	[MM_CHANGE_DO_SWITCH_EMPTY] = switch_empty,
	[MM_CHANGE_DO_RESUME] = change_resume,
	[MM_CHANGE_DO_OPEN] = mapped_layers_open,
	[MM_CHANGE_DO_RETURN] = left_pages_drop,
	[MM_CHANGE_DO_FINISH] = change_finish,
	[MM_CHANGE_DO_FINISH_PART] = change_finish_part,
	[MM_CHANGE_DO_FINISH_FIRST] = change_finish_first,
	[MM_CHANGE_DO_FINISH_EMPTY] = change_finish_empty,
	[MM_CHANGE_DO_NOTE_BROKEN] = change_note_broken,
	[MM_CHANGE_DO_KICK_UNMAPPED] = kick_unmapped,
	[MM_CHANGE_DO_KICK_UNSERVED] = kick_unserved,
	[MM_CHANGE_DO_KICK_AND_ABORT] = kick_and_abort,
	[MM_CHANGE_DO_END] = change_end,
};
static_assert(MM_ARRAY_SIZE(change_effects) == MM_CHANGE_EFFECTS, "each effect is performed");

static uint32_t change_facts(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint32_t f = 0;

	f |= t->change->unload ? MM_CHANGE_UNLOAD : 0;
	f |= t->model != MM_C_MODEL_READY && !t->change->unload ? MM_CHANGE_FIRST : 0;
	f |= t->change->pre.n > t->change->pre.done ? MM_CHANGE_COPIES : 0;
	if (t->features & MM_FEAT_PARTIAL && !c->opts.full_drain && !t->change->broken &&
	    !t->change->unload)
		f |= MM_CHANGE_IN_PART;
	f |= mm_core_plan_cycles(&t->plan) ? MM_CHANGE_CYCLES : 0;
	if (t->change->next_set.m || t->change->next_cold.classes)
		f |= MM_CHANGE_WILL_CYCLE;
	f |= t->kicked ? MM_CHANGE_KICKED : 0;
	return f;
}

int mm_c_change_event(struct mm_core *c, struct mm_c_tenant *t, enum mm_change_event event)
{
	const struct mm_change_row *row =
		mm_change_row(t->change->state, event, change_facts(c, t));

	mm_assert(row || mm_change_is_tenants(event));
	if (!row)
		return MM_E_PROTOCOL;
	if (row->next != MM_CHANGE_STATES)
		t->change->state = row->next;
	if (row->effect != MM_CHANGE_DO_NOTHING)
		change_effects[row->effect](c, t);
	return 0;
}

bool mm_c_change_begin_first(struct mm_core *c, struct mm_c_tenant *t)
{
	if (!mm_c_reservable(c, t, t->entries))
		return false;
	mm_c_preload_begin(t);
	for (uint32_t g = 0; g <= t->n_layers; g++)
		mm_c_preload_add(c, t, &t->group[g]);
	t->model = MM_C_MODEL_LOADING;
	mm_c_demand_changed(c);
	mm_c_change_event(c, t, MM_CHANGE_BEGIN);
	return true;
}

void mm_c_change_cancel(struct mm_core *c, struct mm_c_tenant *t)
{
	mm_c_change_event(c, t, MM_CHANGE_END);
}

bool mm_c_change_in_window(const struct mm_c_tenant *t)
{
	return t->change->state == MM_CHANGE_PART_WINDOW || t->change->state == MM_CHANGE_PART_DONE;
}

/* ---- xfer ---- */

/* xfer serves a plan from its SWITCH, or from the REPLAN to it, until the next QUIESCE. */
enum mm_xop mm_c_change_control(const struct mm_c_tenant *t)
{
	bool is_served = t->change->served_epoch == t->plan.epoch;

	if (t->kicked)
		return MM_XOP_NOP;
	switch (t->change->state) {
	case MM_CHANGE_FULL_QUIESCE:
	case MM_CHANGE_PART_QUIESCE:
		return MM_XOP_QUIESCE;
	case MM_CHANGE_PART_REPLAN:
		return is_served ? MM_XOP_NOP : MM_XOP_REPLAN;
	case MM_CHANGE_STEADY:
	case MM_CHANGE_PRELOAD:
	case MM_CHANGE_PREPARED:
	case MM_CHANGE_FULL_SWITCHED:
	case MM_CHANGE_FULL_DONE:
	case MM_CHANGE_PART_RESUME:
	case MM_CHANGE_PART_WINDOW:
	case MM_CHANGE_PART_DONE:
		return mm_core_plan_cycles(&t->plan) && !is_served ? MM_XOP_ACTIVATE : MM_XOP_NOP;
	case MM_CHANGE_NONE:
	case MM_CHANGE_LOAD:
	case MM_CHANGE_FULL_SWITCH:
	case MM_CHANGE_PART_SWITCH:
	case MM_CHANGE_STATES:
		break;
	}
	return MM_XOP_NOP;
}

/*
 * A QUIESCE counts as done whatever its result: an xfer that does not know the tenant, or died
 * during the job, accesses nothing of the tenant.
 */
void mm_c_change_control_done(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *job,
			      int result)
{
	enum mm_change_event event = MM_CHANGE_QUIESCED;

	t->change->served_epoch = job->opcode == MM_XOP_QUIESCE ? 0 : job->epoch;
	if (job->opcode == MM_XOP_ACTIVATE)
		event = result ? MM_CHANGE_ACTIVATE_FAILED : MM_CHANGE_ACTIVATED;
	else if (job->opcode == MM_XOP_REPLAN)
		event = result ? MM_CHANGE_REPLAN_FAILED : MM_CHANGE_REPLANNED;
	mm_c_change_event(c, t, event);
}

void mm_c_change_xfer_up(struct mm_c_tenant *t)
{
	t->change->served_epoch = 0;
}

/* ---- settling ---- */

static bool preload_due(struct mm_core *c, struct mm_c_tenant *t, enum mm_change_event *ret_event)
{
	mm_c_preload_issue(c, t);
	if (t->change->pre.error && !t->copies) {
		*ret_event = MM_CHANGE_COPY_FAILED;
		return true;
	}
	if (t->change->pre.done < t->change->pre.n || t->change->pre.error || !mm_c_burst(c))
		return false;
	*ret_event = MM_CHANGE_COPIED;
	return true;
}

/*
 * Begins the change that moves no layer: before anything else happens, the gates of this plan are
 * put in order, the window that was requested is put in force, and a limit of cold blocks counts.
 */
static void change_begin_null(struct mm_core *c, struct mm_c_tenant *t)
{
	if ((!t->change->broken && !mm_c_cold_is_due(c, t)) || !mm_c_change_may_begin(c, t) ||
	    !mm_c_burst(c))
		return;
	t->change->next_set = t->change->set;
	change_start(c, t, t->plan.alpha);
}

/* Returns true if an event is due that nobody reports. */
static bool change_due(struct mm_core *c, struct mm_c_tenant *t, enum mm_change_event *ret_event)
{
	*ret_event = MM_CHANGE_ROOM;
	switch (t->change->state) {
	case MM_CHANGE_LOAD:
	case MM_CHANGE_PRELOAD:
		return preload_due(c, t, ret_event);
	case MM_CHANGE_FULL_SWITCH:
	case MM_CHANGE_FULL_DONE:
	case MM_CHANGE_PART_RESUME:
	case MM_CHANGE_PART_DONE:
		return mm_c_burst(c);
	case MM_CHANGE_PART_SWITCH:
		/* The plan region must not change while an ACTIVATE reads it. */
		return mm_c_burst(c) && !t->ctl;
	case MM_CHANGE_PART_WINDOW:
		return t->change->mapped > t->change->open && mm_c_burst(c);
	case MM_CHANGE_NONE:
	case MM_CHANGE_STEADY:
	case MM_CHANGE_PREPARED:
	case MM_CHANGE_FULL_QUIESCE:
	case MM_CHANGE_FULL_SWITCHED:
	case MM_CHANGE_PART_REPLAN:
	case MM_CHANGE_PART_QUIESCE:
	case MM_CHANGE_STATES:
		break;
	}
	return false;
}

void mm_c_change_settle(struct mm_core *c, struct mm_c_tenant *t)
{
	enum mm_change_event event;

	while (!t->kicked && change_due(c, t, &event))
		mm_c_change_event(c, t, event);
	if (!t->kicked && t->change->state == MM_CHANGE_STEADY)
		change_begin_null(c, t);
}
