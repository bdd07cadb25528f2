/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of Documentation/protocol.md, one story per test. */
#undef NDEBUG
#include <errno.h>

#include "tests/unit/mmd/core/story.h"

static void expect_event(enum mm_ev op)
{
	struct mm_action a;

	assert_true(mm_core_next(w->core, &a));
	assert_int_equal(a.kind, MM_ACT_EVENT);
	assert_int_equal(a.msg.opcode, op);
	assert_false(mm_core_next(w->core, &a));
}

/* Takes out all actions, whose kinds must be @order, runs of a kind as one; returns the last. */
static struct mm_action expect_kinds(const enum mm_action_kind *order, uint32_t n)
{
	enum mm_action_kind last = MM_ACT_NONE;
	struct mm_action a;
	uint32_t at = 0;

	while (mm_core_next(w->core, &a)) {
		if (a.kind != last) {
			assert_in_range(at, 0, n - 1);
			assert_int_equal(a.kind, order[at++]);
		}
		last = a.kind;
	}
	assert_int_equal(at, n);
	return a;
}

/* From 5 layers away to 2: preloads come first, and fds are sent before PREPARE. */
static void begin_a_return(struct w_proc *p)
{
	struct mm_action a;
	uint32_t at;

	mm_core_plan_set(w->core, w->now_ns, p->tenant, 5, 1, &at);
	w_drain(w);
	story_steps(p, 5);
	w_run(w);
	mm_core_plan_set(w->core, w->now_ns, p->tenant, 2, 1, &at);
	for (uint32_t i = 0; i < 3 * 2; i++) {
		assert_true(mm_core_next(w->core, &a));
		assert_int_equal(a.msg.opcode, MM_XOP_COPY);
		w->page[a.msg.arg[0]].bytes =
			(struct w_bytes){ W_LAYER, p->store, (uint32_t)(a.msg.arg[2] / 4096) };
		w->job[w->jobs++] = a.msg;
	}
	while (w->jobs) {
		assert_false(mm_core_next(w->core, &a));
		mm_core_on_job_done(w->core, w->now_ns, w->job[--w->jobs].user_data, 0);
	}
	for (uint32_t i = 0; i < 3 * 2; i++) {
		assert_true(mm_core_next(w->core, &a));
		assert_int_equal(a.kind, MM_ACT_FDS);
	}
	expect_event(MM_EV_PREPARE);
	mm_core_on_request(w->core, w->now_ns, p->tenant,
			   &(struct mm_msg){ .opcode = MM_OP_PARKED, .epoch = 3 });
}

static void plan_commit(const struct w_proc *p)
{
	mm_core_on_request(w->core, w->now_ns, p->tenant,
			   &(struct mm_msg){ .opcode = MM_OP_COMMITTED, .epoch = 3 });
	assert_int_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_STEADY);
	mm_core_check(w->core);
}

static void the_order_of_a_full_change(void **state)
{
	static const enum mm_action_kind order[] = { MM_ACT_MAP, MM_ACT_GATE, MM_ACT_PLAN,
						     MM_ACT_EVENT, MM_ACT_JOB };
	struct w_proc *p;
	struct mm_action a;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_that(MM_FEAT_KNOWN & ~MM_FEAT_PARTIAL, 0, 8, 2);
	begin_a_return(p);
	assert_true(mm_core_next(w->core, &a));
	assert_int_equal(a.msg.opcode, MM_XOP_QUIESCE);
	assert_int_equal(a.msg.epoch, 2);
	assert_false(mm_core_next(w->core, &a));
	mm_core_on_job_done(w->core, w->now_ns, a.msg.user_data, 0);
	a = expect_kinds(order, MM_ARRAY_SIZE(order));
	assert_int_equal(a.msg.opcode, MM_XOP_ACTIVATE);
	assert_int_equal(a.msg.epoch, 3);
	assert_int_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_SWITCHED);
	/* Pages that the tenant gave up are scrubbed only after COMMITTED. */
	plan_commit(p);
}

static int mapped_send(const struct w_proc *p, uint64_t epoch, uint64_t layers)
{
	return mm_core_on_request(
		w->core, w->now_ns, p->tenant,
		&(struct mm_msg){ .opcode = MM_OP_MAPPED, .epoch = epoch, .arg = { layers } });
}

/* Takes out the actions that open layers: gates of @homes layers, then MM_ACT_OPEN of @layers. */
static void expect_open(uint32_t homes, uint32_t layers)
{
	struct mm_action a;

	for (uint32_t i = 0; i < homes; i++) {
		assert_true(mm_core_next(w->core, &a));
		assert_int_equal(a.kind, MM_ACT_GATE);
		assert_int_equal(a.word, MM_GATE_RESIDENT);
		assert_in_range(a.entry, 0, layers - 1);
	}
	assert_true(mm_core_next(w->core, &a));
	assert_int_equal(a.kind, MM_ACT_OPEN);
	assert_int_equal(a.word, 3);
	assert_int_equal(a.entry, layers);
}

/* Three of eight layers return: as many layers as MAPPED reports are opened. */
static void open_in_order(const struct w_proc *p)
{
	const struct mm_core_slot *slot = &story_plan(p)->slot[0];
	uint32_t first = 0;

	assert_int_equal(mapped_send(p, 2, 1), MM_E_PROTOCOL);
	assert_int_equal(mapped_send(p, 3, 9), MM_E_PROTOCOL);
	while (p->gate[first] & MM_GATE_RESIDENT || slot->layer[0] == first ||
	       slot->layer[1] == first || slot->layer[2] == first)
		first++;
	assert_int_equal(mapped_send(p, 3, first + 1), 0);
	expect_open(1, first + 1);
	assert_false(mm_core_next(w->core, &(struct mm_action){ 0 }));
	assert_int_equal(mapped_send(p, 3, first), MM_E_PROTOCOL);
	plan_commit(p);
	expect_open(2, 8);
	assert_int_equal(mapped_send(p, 3, 8), MM_E_PROTOCOL);
}

/* Gates of layers that return are written after xfer's REPLAN, and opened when they are mapped. */
static void the_order_of_a_partial_change(void **state)
{
	static const enum mm_action_kind over[] = { MM_ACT_MAP, MM_ACT_PLAN, MM_ACT_JOB };
	static const enum mm_action_kind go_on[] = { MM_ACT_GATE, MM_ACT_EVENT };
	struct w_proc *p;
	struct mm_action a;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 2);
	begin_a_return(p);
	a = expect_kinds(over, MM_ARRAY_SIZE(over));
	assert_int_equal(a.msg.opcode, MM_XOP_REPLAN);
	assert_int_equal(a.msg.epoch, 3);
	mm_core_on_job_done(w->core, w->now_ns, a.msg.user_data, 0);
	a = expect_kinds(go_on, MM_ARRAY_SIZE(go_on));
	assert_int_equal(a.msg.opcode, MM_EV_SWITCH);
	assert_int_equal(a.msg.arg[2], MM_SWITCH_PARTIAL);
	open_in_order(p);
}

/* Between SWITCH and COMMITTED a step runs up to the first layer that moves. */
static void steps_go_on_while_it_maps(void **state)
{
	struct w_proc *p;
	uint32_t ran = 0;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 2);
	story_plan_by_hand(p, 1); /* for example layers 0 and 4 */
	story_steps(p, 3);
	w_run(w);
	story_plan_by_hand(p, 3);
	while (!p->mapping) {
		w_proc_step(w, p);
		w_xfer_stream(w, p);
		if (!w_xfer_work(w, 1, 0) && !p->mapping)
			w_proc_event(w, p);
	}
	assert_int_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_SWITCHED);
	for (uint32_t i = 0; i < 100; i++) {
		ran += w_proc_step(w, p);
		w_xfer_stream(w, p);
	}
	assert_in_range(ran, 2, 8); /* it began, ran layers, and waits at one */
	assert_true(p->machine.open && !(p->gate[p->layer] & MM_GATE_PASS));
	/* That step broke off: another change, in full, puts its gates in order. */
	w_resync(w, p);
	assert_true(w_proc_map(w, p));
	story_steps(p, 3);
	assert_int_equal(story_plan(p)->epoch, 4);
	assert_int_equal(story_plan(p)->alpha, 3);
}

/* If a step broke off before PARKED, the change that was prepared is made in full. */
static void broken_gates_make_a_change_full(void **state)
{
	struct mm_msg parked = { .opcode = MM_OP_PARKED, .epoch = 3, .arg = { MM_PARKED_BROKEN } };
	struct mm_steps_out out = { 0 };
	struct w_proc *p;
	struct mm_action a;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 2);
	story_plan_by_hand(p, 5);
	story_steps(p, 5);
	w_run(w);
	story_plan_by_hand(p, 6);
	mm_core_on_request(w->core, w->now_ns, p->tenant, &parked);
	assert_true(mm_core_next(w->core, &a));
	assert_int_equal(a.msg.opcode, MM_XOP_QUIESCE);
	w->job[w->jobs++] = a.msg;
	/* The step breaks off; the RESYNC of the other thread is late, and is never sent. */
	mm_steps_begin(&p->machine);
	mm_steps_end(&p->machine, true, &out);
	assert_int_equal(mm_steps_on_prepare(&p->machine, parked.epoch, &out), 0);
	assert_true(out.parked_broken);
	p->head = p->tail; /* its PREPARE, answered above */
	story_steps(p, 3);
	assert_int_equal(story_plan(p)->alpha, 6);
	parked.arg[0] = 2;
	parked.epoch = story_plan(p)->epoch + 1;
	story_plan_by_hand(p, 5);
	assert_int_equal(mm_core_on_request(w->core, w->now_ns, p->tenant, &parked), MM_E_PROTOCOL);
}

static void resync_is_a_null_change(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 2);
	story_plan_by_hand(p, 3);
	story_steps(p, 2);
	for (uint32_t i = 0; i < 4; i++)
		w_proc_step(w, p);
	assert_true(p->machine.open);
	w_resync(w, p);
	story_steps(p, 2);
	assert_int_equal(story_plan(p)->epoch, 3);
	assert_int_equal(story_plan(p)->alpha, 3);
}

static void resync_that_crosses_prepare_is_dropped(void **state)
{
	struct w_proc *p;

	(void)state;
	story_begin(MM_POLICY_REMAP, 80);
	p = tenant_with(0, 8, 2);
	w_proc_step(w, p);
	w_proc_step(w, p);
	story_plan_by_hand(p, 3); /* its PREPARE is on its way */
	w_resync(w, p);
	w_run(w);
	story_steps(p, 2);
	assert_int_equal(story_plan(p)->epoch, 2);
	assert_int_equal(story_plan(p)->alpha, 3);
}

static void xfer_may_die_in_any_phase(void **state)
{
	(void)state;
	for (uint32_t when = 0; when < 60; when++) {
		struct w_proc *p;

		story_begin(MM_POLICY_REMAP, 80);
		p = tenant_with(0, 8, 2);
		story_plan_by_hand(p, 4);
		story_steps(p, 1);
		story_plan_by_hand(p, 1);
		for (uint32_t i = 0; i < when; i++) {
			if (i % 3 == 0)
				w_xfer_work(w, 1, 0);
			if (i % 3 == 1)
				w_proc_event(w, p);
			if (i % 3 == 2 && w_proc_step(w, p))
				w_xfer_stream(w, p);
		}
		w_xfer_kill(w, false);
		pass_ms(10);
		w_xfer_up(w);
		story_steps(p, 3);
		assert_int_equal(story_plan(p)->alpha, 1);
		w_kill(w, p);
		w_run(w);
		assert_int_equal(story_stats().pages[MM_PAGE_FREE], 80);
		if (when + 1 < 60)
			w_done(w);
	}
}

/* A tenant whose model is loaded although xfer ends @times times with the first copy under way. */
static struct w_proc *load_while_xfer_ends(uint32_t times, bool fault)
{
	struct w_proc *p;

	story_begin(MM_POLICY_REMAP, 40);
	p = w_join(w, 0, MM_FEAT_KNOWN);
	w_model(w, p, 1, 4, 2, 1);
	for (uint32_t i = 0; i < times; i++) {
		assert_int_equal(w->job[0].opcode, MM_XOP_COPY);
		w_xfer_kill(w, fault);
		w_xfer_up(w);
	}
	w_run(w);
	return p;
}

static void a_job_that_kills_xfer_twice_is_given_up(void **state)
{
	const struct w_proc *p = load_while_xfer_ends(2, true);

	(void)state;
	assert_int_equal(p->model_result, -EIO);
	assert_int_equal(story_stats().pages[MM_PAGE_QUARANTINE], 1);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 39);
}

static void a_job_is_not_blamed_for_kills_from_outside(void **state)
{
	const struct w_proc *p = load_while_xfer_ends(5, false);

	(void)state;
	assert_int_equal(p->model_result, 0);
	assert_int_equal(story_stats().pages[MM_PAGE_QUARANTINE], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_order_of_a_full_change),
		TEST(the_order_of_a_partial_change),
		TEST(steps_go_on_while_it_maps),
		TEST(broken_gates_make_a_change_full),
		TEST(resync_is_a_null_change),
		TEST(resync_that_crosses_prepare_is_dropped),
		TEST(xfer_may_die_in_any_phase),
		TEST(a_job_that_kills_xfer_twice_is_given_up),
		TEST(a_job_is_not_blamed_for_kills_from_outside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
