/* SPDX-License-Identifier: Apache-2.0 */
/* The acts, in their order, for everything that a driver can have seen. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/protocol/cycle.h"
#include "libclient/base/base.h"
#include "libclient/base/random.h"

#define EMPTY ((uint32_t)MM_GATE_EMPTY)
#define READY ((uint32_t)MM_GATE_READY)
#define DONE  ((uint32_t)MM_GATE_DONE)

static const uint32_t pages_a[] = { 9, 2, 17 }, pages_b[] = { 4, 25, 8 }, pages_c[] = { 5, 11, 30 };
static const uint16_t evens[] = { 0, 2, 4 }, odds[] = { 1, 3 };
static uint64_t nothing_closed[MM_XPLAN_LAYER_WORDS];

#define SLOT(layers, pages)                                         \
	((struct mm_cycle_slot){ .layer = (layers),                 \
				 .page = (pages),                   \
				 .n_layers = MM_ARRAY_SIZE(layers), \
				 .n_pages = MM_ARRAY_SIZE(pages) })

static struct mm_cycle_plan plan_one(uint64_t epoch)
{
	return (struct mm_cycle_plan){ .epoch = epoch,
				       .store = 3,
				       .closed = nothing_closed,
				       .n_slots = 1,
				       .slot = { SLOT(evens, pages_a) } };
}

static struct mm_cycle_plan plan_two(uint64_t epoch)
{
	struct mm_cycle_plan plan = plan_one(epoch);

	plan.n_slots = 2;
	plan.slot[1] = SLOT(odds, pages_b);
	return plan;
}

/* ---- expected acts ---- */

static const char *const kind_name[] = { "new",   "cursor", "epoch",  "gate",
					 "gates", "copy",   "cancel", "count" };

/* "s0 gate2=4" is an act on slot 0: gate at position 2, word 4. */
static void acts_print(const struct mm_cycle_acts *acts, char *text, size_t bytes)
{
	size_t at = 0;

	text[0] = '\0';
	for (uint32_t i = 0; i < acts->n; i++) {
		const struct mm_cycle_act *a = &acts->act[i];

		at += (size_t)snprintf(text + at, bytes - at, "%ss%u %s%u", i ? ", " : "",
				       a->cursor, kind_name[a->kind], a->pos);
		if (a->kind == MM_CYCLE_CURSOR)
			at += (size_t)snprintf(text + at, bytes - at, "=%s",
					       a->word == MM_CUR_HELD ? "held" : "copying");
		else if (a->kind == MM_CYCLE_GATE || a->kind == MM_CYCLE_GATES)
			at += (size_t)snprintf(text + at, bytes - at, "=%s",
					       a->word == READY   ? "ready"
					       : a->word == EMPTY ? "empty"
								  : "?");
	}
}

static void acts_expect(const struct mm_cycle_acts *acts, const char *want)
{
	char text[512];

	acts_print(acts, text, sizeof(text));
	assert_string_equal(text, want);
}

/* Takes up a plan; both slots are HELD at their first layer. */
static void slots_hold(struct mm_cycles *m, const struct mm_cycle_plan *plan)
{
	struct mm_cycle_acts acts;

	*m = (struct mm_cycles){ 0 };
	mm_cycles_take_up(m, plan);
	for (uint32_t s = 0; s < plan->n_slots; s++)
		mm_cycle_resume(m, s, MM_CUR_HELD, 0, READY, EMPTY, &acts);
}

static enum mm_cycle_look slot_look(const struct mm_cycles *m, uint32_t s)
{
	uint32_t layer;

	return mm_cycle_look(m, s, &layer);
}

/* Reports DONE at the slot's position: the next layer is being copied in. */
static void use_up(struct mm_cycles *m, uint32_t s)
{
	struct mm_cycle_acts acts;

	mm_cycle_saw_gate(m, s, DONE, &acts);
	assert_true(mm_cycle_copying(m, s));
}

/* ---- streaming ---- */

static void test_a_whole_cycle(void **state)
{
	static const char *const away[] = { "s0 cursor1=copying, s0 gate0=empty, s0 copy1",
					    "s0 cursor2=copying, s0 gate1=empty, s0 copy2",
					    "s0 cursor0=copying, s0 gate2=empty, s0 copy0" };
	static const char *const here[] = { "s0 gate1=ready, s0 cursor1=held, s0 count1",
					    "s0 gate2=ready, s0 cursor2=held, s0 count2",
					    "s0 gate0=ready, s0 cursor0=held, s0 count0" };
	struct mm_cycle_plan plan = plan_one(1);
	struct mm_cycle_acts acts;
	struct mm_cycles m;
	uint32_t layer;

	(void)state;
	slots_hold(&m, &plan);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(mm_cycle_look(&m, 0, &layer), MM_CYCLE_LOOK_GATE);
		assert_int_equal(layer, evens[i]);
		mm_cycle_saw_gate(&m, 0, READY, &acts);
		acts_expect(&acts, "");
		mm_cycle_saw_gate(&m, 0, i ? DONE : DONE | READY | UINT32_C(1) << 31, &acts);
		acts_expect(&acts, away[i]);
		assert_int_equal(slot_look(&m, 0), MM_CYCLE_LOOK_NOWHERE);
		mm_cycle_copied(&m, 0, true, 0, &acts);
		acts_expect(&acts, here[i]);
	}
}

static void test_closed_layers_wait(void **state)
{
	uint64_t closed[MM_XPLAN_LAYER_WORDS] = { 1 << 2 };
	struct mm_cycle_plan plan = plan_one(7);
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	plan.closed = closed;
	slots_hold(&m, &plan);
	use_up(&m, 0);
	/* layers up to 1 are mapped, not 2 */
	mm_cycle_copied(&m, 0, true, MM_XPLAN_OPEN(7, 2), &acts);
	acts_expect(&acts, "");
	assert_int_equal(slot_look(&m, 0), MM_CYCLE_LOOK_OPEN);
	mm_cycle_saw_open(&m, 0, MM_XPLAN_OPEN(6, 1000), &acts); /* of another plan */
	acts_expect(&acts, "");
	mm_cycle_saw_open(&m, 0, MM_XPLAN_OPEN(7, 3), &acts);
	acts_expect(&acts, "s0 gate1=ready, s0 cursor1=held, s0 count1");
	/* The next layer is not closed. */
	use_up(&m, 0);
	mm_cycle_copied(&m, 0, true, 0, &acts);
	acts_expect(&acts, "s0 gate2=ready, s0 cursor2=held, s0 count2");
}

static void test_a_copy_that_fails(void **state)
{
	struct mm_cycle_plan plan = plan_one(1), next = plan_one(2);
	uint32_t gate[MM_CYCLES_MAX] = { READY, 0 };
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	slots_hold(&m, &plan);
	use_up(&m, 0);
	mm_cycle_copied(&m, 0, false, 0, &acts);
	acts_expect(&acts, "");
	assert_int_equal(slot_look(&m, 0), MM_CYCLE_LOOK_NOWHERE);
	assert_false(mm_cycles_copying(&m));
	/* Whatever word the gate has, there are no acts. */
	assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
	acts_expect(&acts, "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, s0 copy0");
}

/* ---- cursors ---- */

static void test_resume(void **state)
{
	static const struct {
		enum mm_cursor_state cursor;
		uint32_t pos, gate, previous;
		const char *want;
	} cases[] = {
		{ MM_CUR_HELD, 1, READY, EMPTY, "s0 new1" },
		{ MM_CUR_HELD, 1, DONE, EMPTY, "s0 new1" },
		{ MM_CUR_HELD, 1, EMPTY, DONE, "s0 new1" },
		{ MM_CUR_COPYING, 1, EMPTY, EMPTY, "s0 new1, s0 copy1" },
		{ MM_CUR_COPYING, 1, EMPTY, DONE, "s0 new1, s0 gate0=empty, s0 copy1" },
		{ MM_CUR_COPYING, 0, EMPTY, DONE, "s0 new0, s0 gate2=empty, s0 copy0" },
		{ MM_CUR_COPYING, 1, EMPTY, READY, "s0 new1, s0 copy1" },
		{ MM_CUR_COPYING, 1, READY, EMPTY, "s0 new1, s0 cursor1=held" },
		{ MM_CUR_COPYING, 1, DONE, EMPTY, "s0 new1, s0 cursor1=held" },
		/* words that only a tenant can have written */
		{ MM_CUR_COPYING, 1, 0, EMPTY, "s0 new1, s0 cursor1=held" },
		{ MM_CUR_COPYING, 1, EMPTY | READY, DONE, "s0 new1, s0 cursor1=held" },
		{ MM_CUR_COPYING, 1, UINT32_MAX, UINT32_MAX, "s0 new1, s0 cursor1=held" },
		{ MM_CUR_COPYING, 1, EMPTY, UINT32_MAX, "s0 new1, s0 gate0=empty, s0 copy1" },
	};
	struct mm_cycle_plan plan = plan_one(1);

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_cycles m = { 0 };
		struct mm_cycle_acts acts;

		mm_cycles_take_up(&m, &plan);
		mm_cycle_resume(&m, 0, cases[i].cursor, cases[i].pos, cases[i].gate,
				cases[i].previous, &acts);
		acts_expect(&acts, cases[i].want);
		assert_int_equal(m.cursor[0].pos, cases[i].pos);
		assert_int_equal(mm_cycles_copying(&m), strstr(cases[i].want, "copy") != NULL);
	}
}

static void test_cursors_that_fit(void **state)
{
	struct mm_cycle_plan plan = plan_one(5);

	(void)state;
	assert_true(mm_cycle_cursor_fits(&plan, 0, 5, MM_CUR_HELD, 2));
	assert_true(mm_cycle_cursor_fits(&plan, 0, 5, MM_CUR_COPYING, 0));
	assert_false(mm_cycle_cursor_fits(&plan, 0, 4, MM_CUR_HELD, 2));
	assert_false(mm_cycle_cursor_fits(&plan, 0, 5, MM_CUR_COPYING + 1, 2));
	assert_false(mm_cycle_cursor_fits(&plan, 0, 5, MM_CUR_HELD, 3));
}

static void test_begin(void **state)
{
	struct mm_cycle_plan plan = plan_two(1);
	struct mm_cycle_acts acts;
	struct mm_cycles m = { 0 };

	(void)state;
	plan.slot[1].in_place = true;
	mm_cycles_take_up(&m, &plan);
	assert_int_equal(slot_look(&m, 0), MM_CYCLE_LOOK_NOWHERE);
	mm_cycle_begin(&m, 0, &acts);
	acts_expect(&acts, "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, s0 copy0");
	mm_cycle_begin(&m, 1, &acts);
	acts_expect(&acts, "s1 new0, s1 gates0=ready, s1 cursor0=held, s1 epoch0");
	assert_int_equal(slot_look(&m, 1), MM_CYCLE_LOOK_GATE);
}

/* ---- replan ---- */

/* One slot stays, in any state; the other gets other layers. */
static void test_what_stays_and_what_changes(void **state)
{
	static const uint16_t other[] = { 3, 5 };
	struct mm_cycle_plan plan = plan_two(1), next = plan_two(2);
	uint32_t gate[MM_CYCLES_MAX] = { READY, READY };
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	next.slot[1] = SLOT(other, pages_b);
	slots_hold(&m, &plan);
	use_up(&m, 0);
	assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
	acts_expect(&acts, "s0 epoch1, s1 new0, s1 gates0=empty, s1 cursor0=copying, s1 epoch0, "
			   "s1 copy0");
	assert_int_equal(m.cursor[0].state, MM_CYCLE_COPYING);
	mm_cycle_copied(&m, 0, true, 0, &acts);
	acts_expect(&acts, "s0 gate1=ready, s0 cursor1=held, s0 count1");
}

/*
 * An occupant, or a layer on its way, that the next plan needs first on the same pages stays, and
 * its copy goes on.
 */
static void test_occupants_that_stay(void **state)
{
	static const uint16_t next_layers[] = { 2, 4 };
	static const struct {
		bool copied, closed;
		uint32_t gate;
		const char *want;
	} cases[] = {
		{ false, false, EMPTY, "s0 gates0=empty, s0 cursor0=copying, s0 epoch0" },
		{ true, true, EMPTY, "s0 gates0=empty, s0 cursor0=copying, s0 epoch0" },
		{ true, false, READY, "s0 gates0=ready, s0 cursor0=held, s0 epoch0" },
		{ true, false, DONE,
		  "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, s0 copy0" },
		{ true, false, READY | DONE,
		  "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, s0 copy0" },
	};
	uint64_t closed[MM_XPLAN_LAYER_WORDS] = { 1 << 2 };

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_cycle_plan plan = plan_one(1), next = plan_one(2);
		uint32_t gate[MM_CYCLES_MAX] = { cases[i].gate, 0 };
		struct mm_cycle_acts acts;
		struct mm_cycles m;

		plan.closed = cases[i].closed ? closed : nothing_closed;
		next.slot[0] = SLOT(next_layers, pages_a);
		slots_hold(&m, &plan);
		use_up(&m, 0);
		if (cases[i].copied)
			mm_cycle_copied(&m, 0, true, 0, &acts);
		assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
		acts_expect(&acts, cases[i].want);
		assert_int_equal(m.cursor[0].pos, 0);
	}
}

/*
 * The occupant does not stay with other or fewer pages, another store, a first layer in place, or
 * when the slot is gone.
 */
static void test_occupants_that_go(void **state)
{
	static const uint16_t next_layers[] = { 2, 4 };

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		struct mm_cycle_plan plan = plan_one(1), next = plan_one(2);
		uint32_t gate[MM_CYCLES_MAX] = { EMPTY, 0 };
		struct mm_cycle_acts acts;
		struct mm_cycles m;

		next.slot[0] = SLOT(next_layers, pages_a);
		if (i == 0)
			next.slot[0].page = pages_c;
		next.store += i == 1;
		next.slot[0].in_place = i == 2;
		next.n_slots -= i == 3;
		next.slot[0].n_pages -= i == 4;
		slots_hold(&m, &plan);
		use_up(&m, 0);
		assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), -EINPROGRESS);
		acts_expect(&acts, "s0 cancel1");
		/* It is cancelled once, and no copy is begun. */
		assert_int_equal(slot_look(&m, 0), MM_CYCLE_LOOK_NOWHERE);
		assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), -EINPROGRESS);
		acts_expect(&acts, "");
		mm_cycle_copied(&m, 0, true, 0, &acts); /* all bytes came, but too late */
		acts_expect(&acts, "");
		assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
		acts_expect(&acts,
			    i == 3   ? ""
			    : i == 2 ? "s0 new0, s0 gates0=ready, s0 cursor0=held, s0 epoch0"
				     : "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, "
				       "s0 copy0");
	}
}

/* The driver reports the end of a copy while it performs CANCEL, and calls again at once. */
static void test_cancel_reports_at_once(void **state)
{
	struct mm_cycle_plan plan = plan_two(1), next = plan_two(2);
	uint32_t gate[MM_CYCLES_MAX] = { 0 }, rounds = 0;
	struct mm_cycle_acts acts, inner;
	struct mm_cycles m;
	int r;

	(void)state;
	next.slot[0].page = pages_c;
	next.slot[1].page = pages_a;
	slots_hold(&m, &plan);
	use_up(&m, 0);
	use_up(&m, 1);
	do {
		r = mm_cycles_replan(&m, &next, gate, &acts);
		for (uint32_t i = 0; r && i < acts.n; i++) {
			assert_int_equal(acts.act[i].kind, MM_CYCLE_CANCEL);
			mm_cycle_copied(&m, acts.act[i].cursor, false, 0, &inner);
			acts_expect(&inner, "");
		}
		rounds++;
	} while (r && acts.n);
	assert_int_equal(r, 0);
	assert_int_equal(rounds, 2);
	acts_expect(&acts, "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, s0 copy0, "
			   "s1 new0, s1 gates0=empty, s1 cursor0=copying, s1 epoch0, s1 copy0");
}

/* While one copy is awaited, a slot that stays streams on. */
static void test_a_replan_that_waits(void **state)
{
	static const uint16_t three[] = { 1, 3, 5 };
	struct mm_cycle_plan plan = plan_two(1), next = plan_two(2), third = plan_two(3);
	uint32_t gate[MM_CYCLES_MAX] = { 0 };
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	next.slot[0].page = pages_c;
	slots_hold(&m, &plan);
	use_up(&m, 0);
	assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), -EINPROGRESS);
	mm_cycle_saw_gate(&m, 1, DONE, &acts);
	acts_expect(&acts, "s1 cursor1=copying, s1 gate0=empty, s1 copy1");
	/*
	 * With another plan instead, a dropped copy begins anew, even in a slot that would have
	 * stayed.
	 */
	third.slot[1] = SLOT(three, pages_b);
	assert_int_equal(mm_cycles_replan(&m, &third, gate, &acts), -EINPROGRESS);
	acts_expect(&acts, "s1 cancel1");
	mm_cycle_copied(&m, 1, false, 0, &acts);
	assert_int_equal(mm_cycles_replan(&m, &third, gate, &acts), -EINPROGRESS);
	acts_expect(&acts, "");
	mm_cycle_copied(&m, 0, false, 0, &acts);
	assert_int_equal(mm_cycles_replan(&m, &third, gate, &acts), 0);
	acts_expect(&acts, "s0 new0, s0 gates0=empty, s0 cursor0=copying, s0 epoch0, s0 copy0, "
			   "s1 new0, s1 gates0=empty, s1 cursor0=copying, s1 epoch0, s1 copy0");
}

/*
 * In a slot that changes no copy begins before a plan is in force: the one that changes it, or
 * another by which the slot stays.
 */
static void test_what_waits_begins_nothing(void **state)
{
	static const uint16_t three[] = { 1, 3, 5 };

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		struct mm_cycle_plan plan = plan_two(1), next = plan_two(2);
		uint32_t gate[MM_CYCLES_MAX] = { 0, READY };
		struct mm_cycle_acts acts;
		struct mm_cycles m;

		next.slot[0].page = pages_c;
		next.slot[1] = SLOT(three, pages_b);
		slots_hold(&m, &plan);
		use_up(&m, 0);
		assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), -EINPROGRESS);
		assert_int_equal(slot_look(&m, 1), MM_CYCLE_LOOK_NOWHERE);
		mm_cycle_copied(&m, 0, false, 0, &acts);
		if (i == 1)
			next.slot[1] = plan.slot[1];
		assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
		assert_int_equal(slot_look(&m, 1), MM_CYCLE_LOOK_GATE);
	}
}

/* A slot that no earlier plan had comes in place, and streams a whole cycle. */
static void test_new_in_place(void **state)
{
	struct mm_cycle_plan plan = plan_one(1), next = plan_two(2);
	uint32_t gate[MM_CYCLES_MAX] = { READY, 0 };
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	next.slot[1].in_place = true;
	slots_hold(&m, &plan);
	assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
	acts_expect(&acts, "s0 epoch0, s1 new0, s1 gates0=ready, s1 cursor0=held, s1 epoch0");
	for (uint32_t i = 0; i < 2; i++) {
		mm_cycle_saw_gate(&m, 1, DONE, &acts);
		assert_int_equal(acts.n, 3);
		assert_int_equal(acts.act[2].kind, MM_CYCLE_COPY);
		mm_cycle_copied(&m, 1, true, 0, &acts);
		assert_int_equal(acts.n, 3);
	}
	/* A slot that goes and comes back has kept nothing. */
	plan.epoch = 3;
	assert_int_equal(mm_cycles_replan(&m, &plan, gate, &acts), 0);
	acts_expect(&acts, "s0 epoch0");
	assert_int_equal(slot_look(&m, 1), MM_CYCLE_LOOK_NOWHERE);
	next.epoch = 4;
	assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
	acts_expect(&acts, "s0 epoch0, s1 new0, s1 gates0=ready, s1 cursor0=held, s1 epoch0");
}

/* The plan in force is read at the place to which it was moved. */
static void test_rebind(void **state)
{
	struct mm_cycle_plan plan = plan_one(1), next = plan_one(2), moved;
	uint32_t gate[MM_CYCLES_MAX] = { READY, 0 }, layer;
	uint16_t layers[3] = { 0, 2, 5 }, there[3];
	uint32_t pages[3], pages_there[3];
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	memcpy(pages, pages_c, sizeof(pages));
	next.slot[0] = SLOT(layers, pages);
	slots_hold(&m, &plan);
	assert_int_equal(mm_cycles_replan(&m, &next, gate, &acts), 0);
	memcpy(there, layers, sizeof(there));
	memcpy(pages_there, pages, sizeof(pages_there));
	moved = next;
	moved.slot[0].layer = there;
	moved.slot[0].page = pages_there;
	mm_cycles_rebind(&m, &moved);
	memset(layers, 0, sizeof(layers));
	mm_cycle_copied(&m, 0, true, 0, &acts);
	use_up(&m, 0);
	mm_cycle_copied(&m, 0, true, 0, &acts);
	use_up(&m, 0);
	mm_cycle_copied(&m, 0, true, 0, &acts);
	assert_int_equal(mm_cycle_look(&m, 0, &layer), MM_CYCLE_LOOK_GATE);
	assert_int_equal(layer, 5);
}

static void test_quiesce(void **state)
{
	struct mm_cycle_plan plan = plan_two(1);
	struct mm_cycle_acts acts;
	struct mm_cycles m;

	(void)state;
	slots_hold(&m, &plan);
	use_up(&m, 1);
	mm_cycles_quiesce(&m, &acts);
	acts_expect(&acts, "s1 cancel1");
	mm_cycles_quiesce(&m, &acts); /* a second time cancels nothing */
	acts_expect(&acts, "");
	assert_int_equal(slot_look(&m, 0), MM_CYCLE_LOOK_NOWHERE);
	assert_int_equal(slot_look(&m, 1), MM_CYCLE_LOOK_NOWHERE);
	assert_true(mm_cycles_copying(&m));
	mm_cycle_copied(&m, 1, true, 0, &acts);
	acts_expect(&acts, "");
	assert_false(mm_cycles_copying(&m));
	mm_cycles_take_up(&m, &plan);
	assert_true(m.active);
}

/* ---- hostile gates ---- */

/*
 * Any word in any gate at any time causes neither an assertion nor an act on a slot that the plan
 * does not have.
 */
static void test_any_word_in_a_gate(void **state)
{
	struct mm_cycle_plan plan[2] = { plan_two(1), plan_two(1) };
	struct mm_cycles m = { 0 };
	uint64_t seed = 1;

	(void)state;
	plan[1].slot[0].page = pages_c;
	slots_hold(&m, &plan[0]);
	for (uint32_t i = 0; i < 200000; i++) {
		uint32_t word, s, gate[MM_CYCLES_MAX];
		uint64_t bits;
		struct mm_cycle_acts acts = { 0 };

		bits = mm_random_next(&seed);
		word = (uint32_t)(bits >> 32) >> (bits >> 20) % 32;
		s = bits & 1;
		gate[0] = gate[1] = word;
		if (mm_cycle_copying(&m, s))
			mm_cycle_copied(&m, s, seed >> 50 & 7, word, &acts);
		else if (slot_look(&m, s) == MM_CYCLE_LOOK_GATE)
			mm_cycle_saw_gate(&m, s, word, &acts);
		for (uint32_t k = 0; k < acts.n; k++) {
			assert_true(acts.act[k].cursor == s);
			assert_true(acts.act[k].pos < m.plan.slot[s].n_layers);
		}
		if (i % 16)
			continue;
		plan[i / 16 % 2].epoch = m.plan.epoch + 1;
		if (mm_cycles_replan(&m, &plan[i / 16 % 2], gate, &acts) == 0)
			assert_true(acts.n <= MM_CYCLE_ACTS_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_whole_cycle),
		cmocka_unit_test(test_closed_layers_wait),
		cmocka_unit_test(test_a_copy_that_fails),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_cursors_that_fit),
		cmocka_unit_test(test_begin),
		cmocka_unit_test(test_what_stays_and_what_changes),
		cmocka_unit_test(test_occupants_that_stay),
		cmocka_unit_test(test_occupants_that_go),
		cmocka_unit_test(test_cancel_reports_at_once),
		cmocka_unit_test(test_a_replan_that_waits),
		cmocka_unit_test(test_what_waits_begins_nothing),
		cmocka_unit_test(test_new_in_place),
		cmocka_unit_test(test_rebind),
		cmocka_unit_test(test_quiesce),
		cmocka_unit_test(test_any_word_in_a_gate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
