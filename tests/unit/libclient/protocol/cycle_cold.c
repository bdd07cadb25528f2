/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of a tenant, of core and of xfer, which is killed between any two acts, over plans with
 * and without cold blocks. Bytes are symbols: which layer's weights are in a page, and of which
 * layer and version the rows are that a class has in the window.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/protocol/cycle.h"
#include "libclient/base/base.h"
#include "libclient/base/random.h"

#define EMPTY ((uint32_t)MM_GATE_EMPTY)
#define READY ((uint32_t)MM_GATE_READY)
#define DONE  ((uint32_t)MM_GATE_DONE)

#define LAYERS   9
#define PAGES    12
#define WINDOWS  2
#define STORE    3
#define NO_LAYER 99 /* bytes of no layer, or of several */
#define NO_COPY  98

/* more than a history of so few layers needs for its last steps */
#define EVENTS_TO_END 200000

struct plan {
	uint64_t epoch;
	uint32_t n_slots, classes, window, unit;
	uint64_t closed[MM_XPLAN_LAYER_WORDS];
	struct {
		uint32_t n, page;
		uint16_t layer[LAYERS];
		bool in_place;
	} slot[MM_SLOTS_MAX];
};

struct shared_cursor {
	struct mm_cycle_seen seen;
	uint64_t version;
};

/* The rows that a class has in a window. */
struct rows {
	uint32_t layer;
	uint64_t version;
};

struct copy {
	uint32_t layer; /* NO_COPY */
	bool half;
	bool chosen; /* the rows of a class are */
	uint64_t version;
};

enum phase { RUNS, PARKING, REPLANS, QUIESCES };

struct history {
	uint64_t rng;
	uint32_t n; /* layers of the model */
	uint64_t kill_each;
	/* memory that lasts */
	uint32_t gate[LAYERS];
	struct shared_cursor cursor[MM_CYCLES_MAX];
	struct plan region;
	uint64_t open, version, acked;
	uint32_t page[PAGES];
	struct {
		uint32_t unit, classes;
		struct rows rows[MM_COLD_CLASSES_MAX];
	} window[WINDOWS];
	/* core */
	enum phase phase;
	struct plan next;
	bool in_part;
	/* the tenant */
	bool in_step, in_layer;
	uint32_t layer;
	uint64_t needs; /* the version that its step counts on */
	uint64_t steps;
	/* xfer */
	struct plan plan;
	struct mm_cycles m;
	struct copy copy[MM_CYCLES_MAX];
	/* what came about */
	uint64_t kills, replans, fulls, kept, both;
};

static uint64_t history_random(struct history *h, uint64_t n)
{
	return mm_random_below(&h->rng, n);
}

/* ---- plans ---- */

static struct mm_cycle_plan plan_view(const struct history *h, const struct plan *p)
{
	struct mm_cycle_plan view = { .epoch = p->epoch,
				      .store = STORE,
				      .closed = p->closed,
				      .n_layers = h->n,
				      .n_slots = p->n_slots };

	for (uint32_t s = 0; s < p->n_slots; s++)
		view.slot[s] = (struct mm_cycle_slot){ .layer = p->slot[s].layer,
						       .page = &p->slot[s].page,
						       .n_layers = p->slot[s].n,
						       .n_pages = 1,
						       .in_place = p->slot[s].in_place };
	if (p->classes)
		view.cold = (struct mm_cycle_cold){ .classes = p->classes,
						    .n_pages = 1,
						    .unit_bytes = p->unit,
						    .page = &p->window };
	return view;
}

static bool plan_cycles(const struct plan *p)
{
	return p->n_slots || p->classes;
}

/* The slot of @layer under @p; MM_SLOTS_MAX: none. */
static uint32_t plan_slot(const struct plan *p, uint32_t layer)
{
	for (uint32_t s = 0; s < p->n_slots; s++)
		for (uint32_t i = 0; i < p->slot[s].n; i++)
			if (p->slot[s].layer[i] == layer)
				return s;
	return MM_SLOTS_MAX;
}

static bool plan_gates(const struct plan *p, uint32_t layer)
{
	return p->classes || plan_slot(p, layer) < MM_SLOTS_MAX;
}

/* A page that neither the plan in the region nor @p uses. */
static uint32_t page_unused(struct history *h, const struct plan *p)
{
	for (;;) {
		uint32_t page = (uint32_t)history_random(h, PAGES);
		bool used = false;

		for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
			used |= (s < h->region.n_slots && h->region.slot[s].page == page) ||
				(s < p->n_slots && p->slot[s].page == page);
		if (!used)
			return page;
	}
}

/* Layers that cycle, dealt out to the slots; true if each slot has two or more. */
static bool slots_deal(struct history *h, struct plan *p, uint32_t n_slots)
{
	uint32_t next = 0;

	for (uint32_t s = 0; s < MM_SLOTS_MAX; s++)
		p->slot[s].n = 0;
	for (uint32_t l = 0; n_slots && l < h->n; l++) {
		if (history_random(h, 3) == 0)
			continue;
		p->slot[next].layer[p->slot[next].n++] = (uint16_t)l;
		next = (next + 1) % n_slots;
	}
	for (uint32_t s = 0; s < n_slots; s++)
		if (p->slot[s].n < 2)
			return false;
	return true;
}

/* Chooses the plan that follows the one in the region. */
static void plan_choose(struct history *h)
{
	const struct plan *old = &h->region;
	struct plan *p = &h->next;
	uint32_t n_slots = (uint32_t)history_random(h, MM_SLOTS_MAX + 1);
	bool same_layers = history_random(h, 3) == 0;

	*p = (struct plan){ .epoch = old->epoch + 1 };
	if (history_random(h, 3)) {
		p->classes = h->n >= 8 && history_random(h, 2) ? 4 : 2;
		p->unit = 64 + 64 * (history_random(h, 8) == 0);
		p->window =
			history_random(h, 3) ? old->window : (uint32_t)history_random(h, WINDOWS);
		if (old->classes && history_random(h, 2)) {
			p->classes = old->classes;
			p->unit = old->unit;
		}
	}
	if (same_layers)
		n_slots = old->n_slots;
	while (!same_layers && !slots_deal(h, p, n_slots))
		;
	if (same_layers)
		memcpy(p->slot, old->slot, sizeof(p->slot));
	for (uint32_t s = 0; s < n_slots; s++) {
		p->slot[s].in_place = false;
		if (s < old->n_slots && history_random(h, 3)) {
			p->slot[s].page = old->slot[s].page;
		} else {
			p->slot[s].page = page_unused(h, p);
			p->slot[s].in_place =
				!p->classes && s >= old->n_slots && history_random(h, 2);
			h->page[p->slot[s].page] =
				p->slot[s].in_place ? p->slot[s].layer[0] : NO_LAYER;
		}
		p->n_slots = s + 1;
	}
}

/* ---- the device ---- */

/* Writes bytes where @cursor of the plan in force has its layer, which no kernel may be reading. */
static void memory_write(struct history *h, uint32_t cursor, uint32_t layer, uint64_t version)
{
	const struct plan *p = &h->plan;

	if (h->in_layer) {
		uint32_t l = h->layer;

		assert_true(cursor >= MM_SLOTS_MAX || plan_slot(p, l) != cursor);
		assert_true(cursor < MM_SLOTS_MAX || l % p->classes != cursor - MM_SLOTS_MAX);
	}
	if (cursor < MM_SLOTS_MAX) {
		h->page[p->slot[cursor].page] = layer;
		return;
	}
	if (h->window[p->window].unit != p->unit || h->window[p->window].classes != p->classes) {
		for (uint32_t k = 0; k < MM_COLD_CLASSES_MAX; k++)
			h->window[p->window].rows[k].layer = NO_LAYER;
		h->window[p->window].unit = p->unit;
		h->window[p->window].classes = p->classes;
	}
	h->window[p->window].rows[cursor - MM_SLOTS_MAX] =
		(struct rows){ .layer = layer, .version = version };
}

/* ---- acts ---- */

static bool killed_here(struct history *h)
{
	if (!h->kill_each || history_random(h, h->kill_each))
		return false;
	h->kills++;
	/* Copies that are on the device end before a new xfer begins. */
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		struct copy *copy = &h->copy[c];

		if (copy->layer != NO_COPY && history_random(h, 2))
			memory_write(h, c, history_random(h, 2) ? copy->layer : NO_LAYER,
				     copy->version);
		*copy = (struct copy){ .layer = NO_COPY };
	}
	h->m = (struct mm_cycles){ 0 };
	return true;
}

/* Writes the version into the cursor of a class, and what all classes have reached. */
static void version_write(struct history *h, uint32_t cursor)
{
	uint64_t least = UINT64_MAX;

	h->cursor[cursor].version = h->copy[cursor].version;
	for (uint32_t k = 0; k < h->plan.classes; k++)
		least = MM_MIN(least, h->cursor[MM_CYCLE_CLASS(k)].version);
	h->acked = MM_MAX(h->acked, least);
}

static bool copy_end(struct history *h, uint32_t cursor, bool complete);

/* False: xfer was killed. */
static bool cursor_write(struct history *h, const struct mm_cycle_act *act)
{
	struct shared_cursor *cursor = &h->cursor[act->cursor];
	bool rows = act->kind == MM_CYCLE_CURSOR && act->word == MM_CUR_COPYING &&
		    mm_cycle_is_class(act->cursor);

	if (rows) {
		h->copy[act->cursor].version = h->version;
		h->copy[act->cursor].chosen = true;
	}
	h->kept += act->kind == MM_CYCLE_KEEP;
	cursor->seen.state = act->word;
	cursor->seen.pos = act->pos;
	if (!rows)
		return true;
	if (killed_here(h))
		return false;
	version_write(h, act->cursor);
	return true;
}

/* False: xfer was killed. */
static bool gates_write(struct history *h, const struct mm_cycle_act *act)
{
	bool all = act->kind == MM_CYCLE_GATES_ALL;

	for (uint32_t l = LAYERS; l-- > 0;) {
		if (l >= h->n ||
		    (all ? !mm_cycles_gated(&h->m, l) : plan_slot(&h->plan, l) != act->cursor))
			continue;
		assert_true(plan_gates(&h->plan, l));
		h->gate[l] = EMPTY;
		if (killed_here(h))
			return false;
	}
	if (!all)
		h->gate[mm_cycle_layer(&h->m, act->cursor, 0)] = act->word;
	return true;
}

static bool layer_is_open(const struct history *h, uint32_t layer)
{
	return !(h->plan.closed[0] >> layer & 1) ||
	       h->open >= MM_XPLAN_OPEN(h->plan.epoch, layer + 1);
}

static void copy_begin(struct history *h, const struct mm_cycle_act *act)
{
	struct copy *copy = &h->copy[act->cursor];

	assert_true(copy->layer == NO_COPY);
	assert_true(!mm_cycle_is_class(act->cursor) || copy->chosen);
	copy->layer = mm_cycle_layer(&h->m, act->cursor, act->pos);
	copy->half = copy->chosen = false;
}

/* False: xfer was killed. */
static bool act_perform(struct history *h, const struct mm_cycle_act *act)
{
	uint32_t layer;

	switch (act->kind) {
	case MM_CYCLE_NEW:
		assert_true(h->copy[act->cursor].layer == NO_COPY);
		h->copy[act->cursor] = (struct copy){ .layer = NO_COPY };
		return true;
	case MM_CYCLE_CURSOR:
	case MM_CYCLE_KEEP:
		return cursor_write(h, act);
	case MM_CYCLE_EPOCH:
		h->cursor[act->cursor].seen.epoch = h->plan.epoch;
		return true;
	case MM_CYCLE_GATE:
		layer = mm_cycle_layer(&h->m, act->cursor, act->pos);
		assert_true(h->gate[layer] == EMPTY ||
			    (act->word == EMPTY && h->gate[layer] == DONE));
		assert_true(act->word == EMPTY || layer_is_open(h, layer));
		h->gate[layer] = act->word;
		return true;
	case MM_CYCLE_GATES:
	case MM_CYCLE_GATES_ALL:
		return gates_write(h, act);
	case MM_CYCLE_COPY:
		copy_begin(h, act);
		return true;
	case MM_CYCLE_CANCEL:
		/* The end is reported at once, or when the device is done. */
		return history_random(h, 2) || copy_end(h, act->cursor, false);
	case MM_CYCLE_COUNT:
		return true;
	}
	return false;
}

/* False: xfer was killed. */
static bool acts_perform(struct history *h, const struct mm_cycle_acts *acts)
{
	uint32_t held = 0;

	assert_true(acts->n <= MM_CYCLE_ACTS_MAX);
	for (uint32_t i = 0; i < acts->n; i++) {
		held += acts->act[i].kind == MM_CYCLE_CURSOR && acts->act[i].word == MM_CUR_HELD;
		if (killed_here(h) || !act_perform(h, &acts->act[i]))
			return false;
	}
	h->both += held == 2;
	return true;
}

/* ---- xfer ---- */

static bool copy_end(struct history *h, uint32_t cursor, bool complete)
{
	struct mm_cycle_acts acts;

	h->copy[cursor].layer = NO_COPY;
	mm_cycle_copied(&h->m, cursor, complete, h->open, &acts);
	return acts_perform(h, &acts);
}

static void copy_go_on(struct history *h, uint32_t c)
{
	struct copy *copy = &h->copy[c];

	memory_write(h, c, copy->half ? copy->layer : NO_LAYER, copy->version);
	if (copy->half)
		copy_end(h, c, true);
	copy->half = true;
}

static void cursor_look(struct history *h, uint32_t c)
{
	struct mm_cycle_acts acts = { 0 };
	uint32_t layer;

	switch (mm_cycle_look(&h->m, c, &layer)) {
	case MM_CYCLE_LOOK_NOWHERE:
		break;
	case MM_CYCLE_LOOK_GATE:
		mm_cycle_saw_gate(&h->m, c, h->gate[layer], &acts);
		break;
	case MM_CYCLE_LOOK_OPEN:
		mm_cycle_saw_open(&h->m, c, h->open, &acts);
		break;
	}
	acts_perform(h, &acts);
}

/* Serves the plan in the region, from where its cursors stand. */
static void plan_serve(struct history *h)
{
	struct mm_cycle_seen seen[MM_CYCLES_MAX];
	struct mm_cycle_acts acts;
	struct mm_cycle_plan view;

	h->plan = h->region;
	view = plan_view(h, &h->plan);
	if (view.cold.classes) {
		for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
			seen[c] = h->cursor[c].seen;
		mm_cycles_serve(&h->m, &view, seen, h->gate, &acts);
		acts_perform(h, &acts);
		return;
	}
	mm_cycles_take_up(&h->m, &view);
	for (uint32_t s = 0; s < view.n_slots; s++) {
		const struct mm_cycle_seen *c = &h->cursor[s].seen;

		if (mm_cycle_cursor_fits(&view, s, c->epoch, c->state, c->pos)) {
			uint32_t before = mm_cycle_before(&h->m, s, c->pos);

			mm_cycle_resume(&h->m, s, c->state, c->pos,
					h->gate[mm_cycle_layer(&h->m, s, c->pos)],
					h->gate[mm_cycle_layer(&h->m, s, before)], &acts);
		} else {
			mm_cycle_begin(&h->m, s, &acts);
		}
		if (!acts_perform(h, &acts))
			return;
	}
}

/* Tries to go over to the plan in the region. */
static void plan_go_over(struct history *h)
{
	const struct mm_cycle_plan next = plan_view(h, &h->region);
	uint32_t gate[MM_CYCLES_MAX] = { 0 };
	struct mm_cycle_acts acts;
	int r;

	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		if (mm_cycle_has(&h->m.plan, c))
			gate[c] = h->gate[mm_cycle_layer(&h->m, c, h->m.cursor[c].pos)];
	r = mm_cycles_replan(&h->m, &next, gate, &acts);
	if (r == 0) {
		struct mm_cycle_plan view;

		h->plan = h->region;
		view = plan_view(h, &h->plan);
		mm_cycles_rebind(&h->m, &view);
	} else {
		assert_int_equal(r, -EINPROGRESS);
	}
	acts_perform(h, &acts);
}

static void xfer_act(struct history *h)
{
	uint32_t c = (uint32_t)history_random(h, MM_CYCLES_MAX);

	if (killed_here(h))
		return;
	if (h->copy[c].layer != NO_COPY) {
		copy_go_on(h, c);
	} else if (!h->m.active) {
		if (!mm_cycles_copying(&h->m) && h->phase != QUIESCES && plan_cycles(&h->region))
			plan_serve(h);
	} else if (h->phase == REPLANS && h->m.plan.epoch != h->region.epoch &&
		   history_random(h, 2)) {
		plan_go_over(h);
	} else {
		cursor_look(h, c);
	}
}

/* ---- core ---- */

static void cursors_write(struct history *h)
{
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++) {
		const struct plan *p = &h->region;
		bool held = c < p->n_slots && p->slot[c].in_place;

		h->cursor[c] = (struct shared_cursor){
			.seen = { .epoch = p->epoch, .state = held ? MM_CUR_HELD : MM_CUR_COPYING }
		};
	}
}

/* The tenant is parked and xfer serves nothing. */
static void plan_reset(struct history *h)
{
	h->region = h->next;
	for (uint32_t l = 0; l < h->n; l++)
		h->gate[l] = EMPTY;
	for (uint32_t s = 0; s < h->region.n_slots; s++)
		if (h->region.slot[s].in_place)
			h->gate[h->region.slot[s].layer[0]] = READY;
	cursors_write(h);
	h->fulls++;
	h->phase = RUNS;
}

/* The tenant is parked; xfer goes over while it serves. */
static void replan_begin(struct history *h)
{
	for (uint32_t l = 0; l < h->n; l++) {
		if (plan_gates(&h->next, l) && history_random(h, 4) == 0)
			h->next.closed[0] |= UINT64_C(1) << l;
		if (plan_gates(&h->next, l) && !plan_gates(&h->region, l))
			h->gate[l] = EMPTY;
	}
	for (uint32_t s = 0; s < h->next.n_slots; s++)
		if (h->next.slot[s].in_place)
			h->next.closed[0] &= ~(UINT64_C(1) << h->next.slot[s].layer[0]);
	h->region = h->next;
	h->replans++;
	h->phase = REPLANS;
}

/* The tenant has mapped one layer more. */
static void layers_open(struct history *h)
{
	if (h->open < MM_XPLAN_OPEN(h->region.epoch, h->n))
		h->open = MM_MAX(h->open + 1, MM_XPLAN_OPEN(h->region.epoch, 1));
}

static void core_act(struct history *h, bool more)
{
	const struct plan *p = &h->region;
	struct mm_cycle_acts acts;

	switch (h->phase) {
	case RUNS:
		layers_open(h);
		if (more && history_random(h, 60) == 0)
			h->phase = PARKING;
		return;
	case PARKING:
		layers_open(h);
		if (h->in_step)
			return;
		plan_choose(h);
		h->in_part = plan_cycles(p) && plan_cycles(&h->next) && history_random(h, 4);
		if (h->in_part) {
			replan_begin(h);
			return;
		}
		mm_cycles_quiesce(&h->m, &acts);
		h->phase = QUIESCES;
		acts_perform(h, &acts);
		return;
	case QUIESCES:
		if (!mm_cycles_copying(&h->m))
			plan_reset(h);
		return;
	case REPLANS:
		if (h->m.active && h->m.plan.epoch == p->epoch)
			h->phase = RUNS;
		return;
	}
}

/* ---- the tenant ---- */

/* The bytes that the kernels of the layer read. */
static void layer_check(const struct history *h)
{
	const struct plan *p = &h->region;
	uint32_t l = h->layer, s = plan_slot(p, l);

	if (s < MM_SLOTS_MAX)
		assert_int_equal(h->page[p->slot[s].page], l);
	if (p->classes) {
		const struct rows *rows = &h->window[p->window].rows[l % p->classes];

		assert_int_equal(h->window[p->window].unit, p->unit);
		assert_int_equal(h->window[p->window].classes, p->classes);
		assert_int_equal(rows->layer, l);
		assert_true(rows->version >= h->needs);
	}
}

static void tenant_act(struct history *h)
{
	if (!h->in_step) {
		if (h->phase != RUNS)
			return;
		h->in_step = true;
		h->layer = 0;
		h->needs = h->acked;
		return;
	}
	if (!h->in_layer) {
		h->in_layer = !plan_gates(&h->region, h->layer) || h->gate[h->layer] == READY;
		if (h->in_layer)
			layer_check(h);
		return;
	}
	layer_check(h);
	h->in_layer = false;
	if (plan_gates(&h->region, h->layer))
		h->gate[h->layer] = DONE;
	if (++h->layer == h->n) {
		h->in_step = false;
		h->steps++;
	}
}

/* ---- histories ---- */

static void history_step(struct history *h, bool more)
{
	switch (history_random(h, 8)) {
	case 0:
		core_act(h, more);
		return;
	case 1:
		h->version += history_random(h, 4) == 0;
		return;
	case 2:
	case 3:
		tenant_act(h);
		return;
	default:
		xfer_act(h);
		return;
	}
}

static void history_play(struct history *h, uint64_t seed, uint32_t events)
{
	static const uint32_t layers[] = { 4, 5, 8, 9 };
	uint64_t until, left = EVENTS_TO_END;

	*h = (struct history){ .rng = mm_random_seed(seed, 1, 2),
			       .n = layers[seed % MM_ARRAY_SIZE(layers)],
			       .version = 1 };
	h->kill_each = UINT64_C(8) << seed / 4 % 8;
	for (uint32_t c = 0; c < MM_CYCLES_MAX; c++)
		h->copy[c].layer = NO_COPY;
	for (uint32_t i = 0; i < events; i++)
		history_step(h, true);
	/* After the last kill and the last change, steps go on. */
	h->kill_each = 0;
	for (until = h->steps + 4; h->steps < until && left; left--)
		history_step(h, false);
	if (!left)
		fail_msg("seed %llu hangs", (unsigned long long)seed);
}

static void test_histories(void **state)
{
	static struct history h;
	uint64_t seeds = 10000;
	struct history sum = { 0 };

	(void)state;
	if (getenv("MM_TEST_LONG"))
		seeds = 200000;
	for (uint64_t seed = 0; seed < seeds; seed++) {
		history_play(&h, seed, 3000);
		sum.kills += h.kills;
		sum.replans += h.replans;
		sum.fulls += h.fulls;
		sum.kept += h.kept;
		sum.both += h.both;
		sum.steps += h.steps;
	}
	print_message("steps %llu kills %llu replans %llu full changes %llu rows kept %llu "
		      "handed over for two %llu\n",
		      (unsigned long long)sum.steps, (unsigned long long)sum.kills,
		      (unsigned long long)sum.replans, (unsigned long long)sum.fulls,
		      (unsigned long long)sum.kept, (unsigned long long)sum.both);
	assert_true(sum.kills && sum.replans && sum.fulls && sum.kept && sum.both);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_histories),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
