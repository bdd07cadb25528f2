/* SPDX-License-Identifier: Apache-2.0 */
/* Cold blocks: their declaration, their window, their limit, and what cannot be had of a window. */
#undef NDEBUG
#include "tests/unit/mmd/core/story.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mmd/core/image.h"
#include "mmd/core/knobs.h"
#include "mmd/core/why.h"
#include "mmd/fields/rows.h"

#define PAGE    4096u
#define LAYERS  8u
#define UNIT    1024u
#define ENTRIES 5u

static void cold_begin(uint32_t pages, enum mm_switch cold)
{
	struct mm_core_opts opts = { .pages = pages,
				     .page_bytes = PAGE,
				     .policy = MM_POLICY_REMAP,
				     .swap_max_bytes = 64 * PAGE,
				     .cold = cold,
				     .cold_max_permille = 20000 };

	w_init(w, &opts, 1);
	w_xfer_up(w);
	w_run(w);
}

static void world_begin(uint32_t pages)
{
	cold_begin(pages, MM_SWITCH_OFF);
}

/* A tenant with a model, twenty chunks of a page of which it holds @held, and a swap space. */
static struct w_proc *tenant_begin(uint64_t features, uint32_t layers, uint32_t ranges,
				   uint32_t held, uint64_t swap_bytes)
{
	struct w_proc *p = tenant_that(features, 0, layers, 1);

	w_kv_declare(w, p, 1, ranges, 20, 1);
	w_kv_want(w, p, held);
	w_run(w);
	assert_int_equal(p->held, held);
	if (swap_bytes)
		assert_int_equal(w_swap_open(w, p, swap_bytes), 0);
	return p;
}

static struct w_proc *tenant_declared(uint32_t held, uint32_t floor)
{
	struct w_proc *p = tenant_begin(MM_FEAT_KNOWN, LAYERS, 1, held, 10 * PAGE);

	w_cold_open(w, p, UNIT, ENTRIES, floor);
	w_run(w);
	assert_int_equal(p->cold.open_result, 0);
	assert_int_equal(p->cold.classes, 4);
	return p;
}

static void window_set(struct w_proc *p, uint32_t first, uint32_t chunks, int result)
{
	uint32_t answers = p->cold.window_answers;

	w_cold_window(w, p, first, chunks);
	pass_ms(20);
	assert_int_equal(p->cold.window_answers, answers + 1);
	assert_int_equal(p->cold.window_result, result);
}

static struct mm_core_tenant tenant_look(const struct w_proc *p)
{
	struct mm_core_tenant t;

	assert_true(mm_core_tenant(w->core, p->tenant, &t));
	return t;
}

static struct mm_core_why_cold why_of(const struct w_proc *p)
{
	struct mm_core_why why;

	assert_true(mm_core_why(w->core, p->tenant, &why));
	return why.cold;
}

/* Refused at once, so that nothing of it is left. */
static int chunk_release(struct w_proc *p, uint32_t chunk)
{
	const struct mm_msg msg = { .opcode = MM_OP_KV_RELEASE, .arg = { chunk } };
	struct mm_action a;
	int result = 1;

	assert_int_equal(mm_core_on_request(w->core, w->now_ns, p->tenant, &msg), 0);
	while (mm_core_next(w->core, &a))
		if (a.kind == MM_ACT_EVENT && a.msg.opcode == MM_EV_REPLY)
			result = a.msg.result;
	p->releases++;
	return result;
}

/* ---- the declaration ---- */

static const struct declaration {
	const char *name;
	uint64_t features;
	uint32_t layers, ranges;
	uint64_t swap_bytes, arg[4];
	int result;
} declarations[] = {
#define GOOD MM_FEAT_KNOWN, LAYERS, 1, 10 * PAGE
	{ "good", GOOD, { UNIT, LAYERS, ENTRIES, 2 }, 0 },
	{ "all of the swap space", GOOD, { 64, LAYERS, 80, 80 }, 0 },
	{ "no unit", GOOD, { 0, LAYERS, ENTRIES, 2 }, -EINVAL },
	{ "a unit that is no multiple", GOOD, { 96, LAYERS, ENTRIES, 2 }, -EINVAL },
	{ "other layers", GOOD, { UNIT, LAYERS - 1, ENTRIES, 2 }, -EINVAL },
	{ "other layers by 2^32",
	  GOOD,
	  { UNIT, LAYERS + (UINT64_C(1) << 32), ENTRIES, 2 },
	  -EINVAL },
	{ "no entries", GOOD, { UNIT, LAYERS, 0, 0 }, -EINVAL },
	{ "too many", GOOD, { 64, LAYERS, MM_COLD_MAX + 1, 0 }, -EINVAL },
	{ "a floor above", GOOD, { UNIT, LAYERS, ENTRIES, ENTRIES + 1 }, -EINVAL },
	{ "more than swap", GOOD, { UNIT, LAYERS, ENTRIES + 1, 2 }, -E2BIG },
	{ "it wraps", GOOD, { UINT64_C(1) << 62, LAYERS, ENTRIES, 2 }, -E2BIG },
	{ "a row too long", GOOD, { UINT64_C(1) << 30, LAYERS, 1, 0 }, -E2BIG },
	{ "two ranges",
	  MM_FEAT_KNOWN,
	  LAYERS,
	  2,
	  10 * PAGE,
	  { UNIT, LAYERS, ENTRIES, 2 },
	  -EINVAL },
	{ "no swap space", MM_FEAT_KNOWN, LAYERS, 1, 0, { UNIT, LAYERS, ENTRIES, 2 }, -EINVAL },
	{ "three layers", MM_FEAT_KNOWN, 3, 1, 10 * PAGE, { UNIT, 3, 1, 0 }, -EOPNOTSUPP },
	{ "not offered",
	  MM_FEAT_KNOWN & ~MM_FEAT_COLD,
	  LAYERS,
	  1,
	  10 * PAGE,
	  { UNIT, LAYERS, ENTRIES, 2 },
	  -EOPNOTSUPP },
};
#undef GOOD

static void declaration_check(const struct declaration *d)
{
	struct w_proc *p = tenant_begin(d->features, d->layers, d->ranges, 2, d->swap_bytes);

	p->cold.entries_max = (uint32_t)d->arg[2];
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_COLD_OPEN,
				 .user_data = 5,
				 .arg = { d->arg[0], d->arg[1], d->arg[2], d->arg[3] } });
	w_run(w);
	if (p->cold.open_answers != 1 || p->cold.open_result != d->result)
		fail_msg("%s: %d", d->name, p->cold.open_result);
	assert_int_equal(p->cold.limits, !d->result);
	assert_int_equal(p->cold.limit, d->result ? 0 : d->arg[3]);
	assert_int_equal(p->cold.streamed, p->cold.limit);
	if (d->result)
		return;
	w_cold_open(w, p, 64, 1, 0);
	w_run(w);
	assert_int_equal(p->cold.open_result, -EEXIST);
}

static void declarations_are_checked(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(declarations); i++) {
		world_begin(60);
		declaration_check(&declarations[i]);
		if (i + 1 < MM_ARRAY_SIZE(declarations))
			w_done(w);
	}
}

static void a_model_comes_first(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = w_join(w, 0, MM_FEAT_KNOWN);
	w_kv_declare(w, p, 1, 1, 20, 1);
	assert_int_equal(w_swap_open(w, p, 10 * PAGE), 0);
	p->n_groups = 1;
	w_cold_open(w, p, UNIT, ENTRIES, 0);
	w_run(w);
	assert_int_equal(p->cold.open_result, -EINVAL);
}

/* ---- the window ---- */

static void windows_are_checked(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_begin(MM_FEAT_KNOWN, LAYERS, 1, 8, 10 * PAGE);
	window_set(p, 0, 2, -EPERM);
	w_cold_open(w, p, UNIT, ENTRIES, 2);
	w_run(w);
	window_set(p, 0, 1, -EINVAL); /* a block has two pages */
	window_set(p, 19, 2, -EINVAL);
	window_set(p, 21, 1, -EINVAL);
	window_set(p, UINT32_MAX, UINT32_MAX, -EINVAL);
	window_set(p, 7, 2, -ENOENT);
	assert_null(story_plan(p)->cold.classes ? p : NULL);
	window_set(p, 6, 2, 0);
	assert_int_equal(story_plan(p)->cold.classes, 4);
	assert_int_equal(story_plan(p)->cold.entries, 1);
	window_set(p, 3, 5, 0); /* 20 units: 8, and three times four */
	assert_int_equal(story_plan(p)->cold.entries, 4);
	window_set(p, 0, 8, 0); /* no more entries than were declared */
	assert_int_equal(story_plan(p)->cold.entries, ENTRIES);
	window_set(p, 5, 0, 0);
	assert_int_equal(story_plan(p)->cold.classes, 0);
	assert_int_equal(story_plan(p)->cold.first, 0);
}

/* There is one request at a time; the second one is not the end of the first. */
static void one_window_at_a_time(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_declared(8, 2);
	w_cold_window(w, p, 0, 4);
	assert_int_equal(p->cold.window_answers, 0);
	assert_true(tenant_look(p).cold_window_pending);
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_COLD_WINDOW, .user_data = 6, .arg = { 4, 4 } });
	for (uint32_t i = 0; i < 20 && !p->cold.window_answers; i++)
		w_proc_event(w, p);
	assert_int_equal(p->cold.window_result, -EBUSY);
	p->cold.asked = true;
	pass_ms(20);
	assert_int_equal(p->cold.window_answers, 2);
	assert_int_equal(p->cold.window_result, 0);
	assert_int_equal(story_plan(p)->cold.chunks, 4);
}

/* All layers cycle, and are resident again without a window. */
static void all_gates_follow_the_window(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	for (uint32_t full = 0; full < 2; full++) {
		uint64_t features = full ? MM_FEAT_KNOWN & ~MM_FEAT_PARTIAL : MM_FEAT_KNOWN;

		p = tenant_begin(features, LAYERS, 1, 8, 10 * PAGE);
		w_cold_open(w, p, UNIT, ENTRIES, 2);
		w_run(w);
		window_set(p, 0, 4, 0);
		for (uint32_t i = 0; i < LAYERS; i++)
			assert_false(p->gate[i] & MM_GATE_RESIDENT);
		assert_int_equal(p->machine.plan.cycling, LAYERS);
		assert_int_equal(story_plan(p)->m, 0);
		/* Layers are lent, and come home, beside it. */
		story_plan_by_hand(p, 2);
		pass_ms(20);
		assert_int_equal(story_plan(p)->alpha, 2);
		assert_int_equal(story_plan(p)->cold.chunks, 4);
		assert_false(story_plan(p)->slot[0].in_place);
		story_plan_by_hand(p, 0);
		pass_ms(20);
		assert_int_equal(story_plan(p)->alpha, 0);
		assert_int_equal(p->machine.plan.cycling, LAYERS);
		window_set(p, 0, 0, 0);
		for (uint32_t i = 0; i < LAYERS; i++)
			assert_int_equal(p->gate[i], MM_GATE_RESIDENT);
		w_kill(w, p);
		w_run(w);
	}
}

static void a_window_is_neither_released_nor_swapped(void **state)
{
	struct mm_swap_piece piece = { .arena_offset = 3 * PAGE, .bytes = PAGE };
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_declared(8, 2);
	w_cold_window(w, p, 2, 3); /* on its way already */
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(chunk_release(p, 2), -EBUSY);
		assert_int_equal(chunk_release(p, 4), -EBUSY);
		assert_true(w_swap(w, p, false, &piece, 1));
		pass_ms(20);
		assert_int_equal(p->swap_result, -EBUSY);
	}
	assert_int_equal(story_plan(p)->cold.chunks, 3);
	/* A list that names a chunk keeps it from becoming one of a window. */
	piece.arena_offset = 6 * PAGE;
	assert_true(w_swap(w, p, false, &piece, 1));
	w_cold_window(w, p, 5, 2);
	pass_ms(20);
	assert_int_equal(p->cold.window_result, -EBUSY);
	assert_int_equal(p->swap_result, 0);
	assert_int_equal(story_plan(p)->cold.first, 2);
	/* xfer may fill the old window until the change is done. */
	w_cold_window(w, p, 5, 2);
	for (uint32_t i = 0; i < 100 && story_plan(p)->cold.first != 5; i++) {
		w_xfer_work(w, 1, 0);
		w_proc_event(w, p);
	}
	assert_int_equal(story_plan(p)->cold.first, 5);
	assert_int_not_equal(mm_core_plan_phase(w->core, p->tenant), MM_PLAN_STEADY);
	assert_int_equal(chunk_release(p, 2), -EBUSY);
	pass_ms(20);
	assert_int_equal(p->cold.window_result, 0);
	assert_int_equal(chunk_release(p, 5), -EBUSY);
	w_kv_release_chunk(w, p, 2);
	pass_ms(20);
	assert_int_equal(tenant_look(p).kv_chunks, 7);
}

/* ---- the limit ---- */

static int cold_set(const struct w_proc *p, int32_t limit, uint32_t *ret_max)
{
	int r = mm_core_cold_set(w->core, w->now_ns, p->tenant, limit, ret_max);

	w_drain(w);
	w_run(w);
	return r;
}

static void a_limit_rises_at_once_and_falls_later(void **state)
{
	const uint64_t timeout_ms = MM_RECLAIM_TIMEOUT_NS / MM_NS_PER_MS;
	struct w_proc *p;
	uint32_t max = 0;

	(void)state;
	world_begin(60);
	p = tenant_begin(MM_FEAT_KNOWN, LAYERS, 1, 8, 10 * PAGE);
	assert_int_equal(cold_set(p, 1, &max), MM_E_STALE);
	assert_true(why_of(p).why == MM_COOL_NONE && !why_of(p).most);
	w_cold_open(w, p, UNIT, ENTRIES, 2);
	w_run(w);
	assert_true(why_of(p).why == MM_COOL_FLOOR && why_of(p).most == ENTRIES);
	assert_true(why_of(p).floor == 2 && why_of(p).limit == 2);
	assert_true(!why_of(p).entries && why_of(p).block_bytes == LAYERS * UNIT);
	assert_int_equal(tenant_look(p).cold_by_hand, -1);
	assert_int_equal(cold_set(p, ENTRIES + 1, &max), MM_E_RANGE);
	assert_int_equal(max, ENTRIES);
	assert_int_equal(cold_set(p, -2, &max), MM_E_RANGE);
	assert_int_equal(p->cold.limits, 1);
	assert_int_equal(cold_set(p, 4, &max), 0);
	assert_int_equal(p->cold.limit, 4);
	assert_int_equal(p->cold.streamed, 4);
	assert_int_equal(p->cold.deadline_ns, 0);
	assert_int_equal(tenant_look(p).cold_by_hand, 4);
	assert_true(why_of(p).why == MM_COOL_BY_HAND && why_of(p).limit == 4);
	assert_int_equal(cold_set(p, 1, &max), 0);
	assert_true(why_of(p).limit == 1 && why_of(p).streamed == 4 && why_of(p).falls);
	assert_int_equal(p->cold.limit, 1);
	assert_int_equal(p->cold.streamed, 4);
	assert_true(p->cold.deadline_ns > w->now_ns);
	/* It rises, but not so far as xfer still streams: the deadline stays. */
	assert_int_equal(cold_set(p, 3, &max), 0);
	assert_int_equal(p->cold.limit, 3);
	assert_int_equal(p->cold.streamed, 4);
	pass_ms((uint32_t)timeout_ms + 10);
	assert_int_equal(p->cold.streamed, 3);
	assert_int_equal(p->cold.limits, 4);
	assert_int_equal(cold_set(p, -1, &max), 0);
	assert_int_equal(p->cold.limit, 2);
	/* Without xfer nothing comes back from the host. */
	w_xfer_kill(w, false);
	w_tick(w, 2 * MM_RECLAIM_TIMEOUT_NS);
	assert_int_equal(p->cold.streamed, 3);
	w_xfer_up(w);
	assert_int_equal(p->cold.streamed, 3);
	pass_ms((uint32_t)timeout_ms + 10);
	assert_int_equal(p->cold.streamed, 2);
}

/* ---- the market ---- */

/* Runs steps for @ms; each is reported. The tenant uses all that it holds. */
static void steps_run(struct w_proc *p, uint32_t ms, uint64_t waiting)
{
	struct mm_tenant_stats stats = { .running = 2, .waiting = waiting };

	for (uint32_t i = 0; i < ms / 10; i++) {
		stats.steps = stats.samples = w->now_ns;
		stats.step_seq = 2 * w->now_ns;
		stats.step_ns = 10 * MM_NS_PER_MS;
		stats.kv_chunks_used = waiting ? p->held : 1;
		mm_core_on_stats(w->core, w->now_ns, p->tenant, &stats);
		/* The transfer of a layer says how fast blocks come. */
		mm_core_on_streamed(w->core, p->tenant, 10000);
		w_drain(w);
		pass_ms(10);
	}
}

static void who_lacks_kv_may_have_cold_blocks(void **state)
{
	struct w_proc *p;
	uint32_t live;

	(void)state;
	/* The device is full: the rest of what it wants can only be cold. */
	cold_begin(30, MM_SWITCH_ON);
	p = tenant_declared(8, 0);
	assert_int_equal(p->cold.limit, 0);
	steps_run(p, 500, 0);
	assert_int_equal(p->cold.limit, 0);
	w_kv_want(w, p, 20);
	steps_run(p, 500, 9);
	assert_int_equal(p->cold.deadline_ns, 0);
	assert_true(p->cold.limit > 0);
	assert_int_equal(p->cold.streamed, p->cold.limit);
	/* It grows as it is made use of. */
	for (uint32_t i = 0; i < 5; i++) {
		mm_core_on_cold_live(w->core, p->tenant, p->cold.limit);
		steps_run(p, 300, 9);
	}
	assert_int_equal(p->cold.limit, ENTRIES);
	assert_int_equal(why_of(p).why, MM_COOL_MOST);
	assert_int_equal(why_of(p).live, ENTRIES);
	/* Nothing is taken from it when the demand is over; what is free of the limit goes. */
	live = 1;
	mm_core_on_cold_live(w->core, p->tenant, live);
	w_kv_want(w, p, p->held);
	steps_run(p, 8000, 0);
	assert_int_equal(p->cold.limit, live + 1);
	assert_int_equal(p->cold.deadline_ns, 0);
	assert_int_equal(p->cold.streamed, ENTRIES);
	assert_int_equal(why_of(p).why, MM_COOL_ENOUGH);
}

/* Entries that the market leaves live are cut off by whoever may, though the limit is no lower. */
static void what_stays_live_may_be_cut_off(void **state)
{
	const uint64_t timeout_ms = MM_RECLAIM_TIMEOUT_NS / MM_NS_PER_MS;
	struct w_proc *p;
	uint64_t pages;
	uint32_t max, limits;

	(void)state;
	for (uint32_t by_hand = 0; by_hand < 2; by_hand++) {
		cold_begin(30, MM_SWITCH_ON);
		p = tenant_declared(8, 0);
		w_kv_want(w, p, 20);
		for (uint32_t i = 0; i < 8; i++) {
			steps_run(p, 300, 9);
			mm_core_on_cold_live(w->core, p->tenant, p->cold.limit);
		}
		assert_int_equal(p->cold.streamed, ENTRIES);
		window_set(p, 4, 4, 0);
		mm_core_on_cold_live(w->core, p->tenant, 0);
		w_kv_want(w, p, p->held);
		steps_run(p, 8000, 0);
		assert_true(!p->cold.limit && !p->cold.deadline_ns);
		assert_int_equal(p->cold.streamed, ENTRIES);
		limits = p->cold.limits;
		if (by_hand)
			assert_int_equal(cold_set(p, 0, &max), 0);
		else
			assert_int_equal(mm_core_steer(w->core, w->now_ns, p->tenant,
						       MM_STEER_REVOKE, 0, &pages),
					 0);
		w_drain(w);
		w_run(w);
		assert_int_equal(p->cold.limits, limits + 1);
		assert_true(!p->cold.limit && p->cold.deadline_ns > w->now_ns);
		pass_ms((uint32_t)timeout_ms / 2);
		assert_int_equal(p->cold.streamed, ENTRIES);
		pass_ms((uint32_t)timeout_ms / 2 + 10);
		/* The ladder deals with who does not end its window. */
		assert_int_equal(p->cold.streamed, by_hand ? 0 : ENTRIES);
		assert_int_equal(p->cold.limits, limits + 1);
		if (!by_hand)
			w_done(w);
	}
}

static void without_the_knob_nobody_gets_more(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(30);
	p = tenant_declared(8, 2);
	w_kv_want(w, p, 20);
	steps_run(p, 1000, 9);
	assert_int_equal(p->cold.limit, 2);
	assert_int_equal(why_of(p).why, MM_COOL_FLOOR);
}

/* ---- reclaims ---- */

/* The operator takes all beyond the share: the window ends, and then its chunks are given. */
static void a_revoke_ends_the_window(void **state)
{
	struct w_proc *p;
	uint64_t pages;

	(void)state;
	world_begin(60);
	p = tenant_declared(8, 2);
	window_set(p, 4, 4, 0);
	assert_true(why_of(p).window_bytes == UINT64_C(4) * PAGE && !why_of(p).gives);
	assert_int_equal(why_of(p).entries, story_plan(p)->cold.entries);
	assert_int_equal(mm_core_steer(w->core, w->now_ns, p->tenant, MM_STEER_REVOKE, 0, &pages),
			 0);
	w_drain(w);
	w_run(w);
	assert_int_equal(p->reclaim, 7);
	assert_int_equal(p->cold.limit, 0);
	assert_true(why_of(p).gives && !why_of(p).limit);
	assert_int_equal(p->cold.streamed, 2);
	assert_true(p->cold.deadline_ns > w->now_ns);
	while (w_kv_release(w, p))
		;
	assert_int_equal(p->held, 4);
	window_set(p, 0, 0, 0);
	/* Until they are given, it would have to end another window at once. */
	assert_true(why_of(p).gives && !p->cold.limit);
	window_set(p, 4, 4, -EBUSY);
	while (p->reclaim && w_kv_release(w, p))
		;
	w_run(w);
	assert_int_equal(tenant_look(p).kv_chunks, 1);
	/* It may have entries again, where it finds room for a window. */
	assert_true(!why_of(p).gives && !why_of(p).window_bytes);
	assert_int_equal(p->cold.limit, 2);
	assert_int_equal(p->cold.streamed, 2);
}

/* A tenant with a window of the last four of its eight chunks, which must give two. */
static struct w_proc *tenant_that_gives_two(void)
{
	const struct mm_core_quota quota = { .max_pages = LAYERS + 1 + 6, .weight = 100 };
	struct w_proc *p;

	world_begin(60);
	p = tenant_declared(8, 2);
	window_set(p, 4, 4, 0);
	assert_int_equal(w_quota_set(w, 0, &quota), MM_QUOTA_DEFERRED);
	w_run(w);
	assert_int_equal(p->reclaim, 2);
	assert_int_equal(p->cold.limit, 2);
	return p;
}

/* Releases what is reclaimed; of the window of @chunks nothing has to be. */
static void two_are_given(struct w_proc *p, uint32_t chunks)
{
	while (p->reclaim && w_kv_release(w, p))
		;
	assert_int_equal(p->held, 6);
	w_run(w);
	assert_int_equal(story_plan(p)->cold.chunks, chunks);
}

static void a_small_reclaim_leaves_the_window(void **state)
{
	(void)state;
	two_are_given(tenant_that_gives_two(), 4);
}

/* One tenant's window is left as long as others of its account have enough besides. */
static void windows_are_the_last_to_be_given(void **state)
{
	struct mm_core_quota quota = { .max_pages = 2 * (LAYERS + 1) + 8 + 2, .weight = 100 };
	struct w_proc *p, *other;

	(void)state;
	world_begin(60);
	other = tenant_begin(MM_FEAT_KNOWN, LAYERS, 1, 8, 0);
	p = tenant_declared(8, 2);
	window_set(p, 0, 8, 0);
	assert_int_equal(w_quota_set(w, 0, &quota), MM_QUOTA_DEFERRED);
	w_run(w);
	assert_int_equal(p->reclaim, 0);
	assert_int_equal(p->cold.limit, 2);
	assert_int_equal(other->reclaim, 6);
	while (other->reclaim && w_kv_release(w, other))
		;
	w_run(w);
	assert_int_equal(other->held, 2);
	quota.max_pages = 2 * (LAYERS + 1) + 4;
	assert_int_equal(w_quota_set(w, 0, &quota), MM_QUOTA_DEFERRED);
	w_run(w);
	assert_int_equal(p->reclaim + other->reclaim, 6);
	assert_true(p->reclaim >= 4);
	assert_int_equal(p->cold.limit, 0);
}

/* It was told what to give in time, so what it asks for now must not cut its entries off. */
static void a_window_grows_into_no_reclaim(void **state)
{
	struct w_proc *p = tenant_that_gives_two();

	(void)state;
	pass_ms((uint32_t)(MM_RECLAIM_TIMEOUT_NS / MM_NS_PER_MS) - 100);
	window_set(p, 1, 7, -EBUSY);
	assert_int_equal(p->cold.limit, 2);
	window_set(p, 2, 6, 0);
	assert_int_equal(p->cold.limit, 2);
	two_are_given(p, 6);
}

/* An idle tenant's empty chunks go to others, but not its window. */
static void others_do_not_get_the_window(void **state)
{
	struct w_proc *p, *other;

	(void)state;
	world_begin(40);
	p = tenant_declared(20, 2);
	window_set(p, 4, 4, 0);
	p->used_chunks = 0;
	other = tenant_begin(MM_FEAT_KNOWN, 4, 1, 0, 0);
	w_kv_want(w, other, 20);
	for (uint32_t i = 0; i < 400; i++) {
		w_stats(w, p, 0);
		w_stats(w, other, 1);
		pass_ms(5);
		while (p->reclaim && w_kv_release(w, p))
			;
		assert_int_equal(p->cold.limit, 2);
	}
	assert_int_equal(story_plan(p)->cold.chunks, 4);
	assert_true(p->held >= 4 && p->held < 20);
	assert_true(other->held > 2);
}

/* ---- images ---- */

/* Reads the core's image as a build would that knows all but this table of it. */
static int image_read_without(const char *table)
{
	static struct mm_rows_reader r;
	const struct mm_fields *roots[64], *fields;
	const size_t room = mm_core_image_room(w->core);
	uint8_t *image = malloc(room);
	struct mm_row row;
	uint32_t n = 0;
	size_t bytes;
	int e;

	assert_non_null(image);
	assert_int_equal(mm_core_image_save(w->core, image, room, &bytes), 0);
	for (uint32_t i = 0; (fields = mm_core_image_fields(i)); i++)
		if (strcmp(fields->name, table) != 0)
			roots[n++] = fields;
	e = mm_rows_open(&r, image, bytes, roots, n);
	while (!e)
		e = mm_rows_next(&r, &row);
	free(image);
	return e;
}

static void builds_without_cold_blocks_take_none_over(void **state)
{
	static const char table[] = "struct image_cold";
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_begin(MM_FEAT_KNOWN, LAYERS, 1, 8, 10 * PAGE);
	assert_int_equal(image_read_without(table), MM_E_EMPTY);
	w_cold_open(w, p, UNIT, ENTRIES, 2);
	w_run(w);
	assert_int_equal(image_read_without(table), -EPROTO);
	assert_int_equal(image_read_without(""), MM_E_EMPTY);
	assert_true(w_unload(w, p));
	pass_ms(50);
	assert_int_equal(image_read_without(table), MM_E_EMPTY);
}

/* ---- ends ---- */

static void all_ends_with_the_model(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_declared(8, 2);
	window_set(p, 4, 4, 0);
	w_cold_window(w, p, 0, 4);
	assert_true(w_unload(w, p));
	pass_ms(50);
	assert_int_equal(p->unloads, 1);
	assert_int_equal(p->cold.window_answers, 2);
	/* It was put in force before the model went, or not at all. */
	assert_true(p->cold.window_result == 0 || p->cold.window_result == -ECANCELED);
	assert_int_equal(tenant_look(p).cold_entries_max, 0);
	w_kv_release_chunk(w, p, 5);
	w_run(w);
	assert_int_equal(tenant_look(p).kv_chunks, 7);
	w_model(w, p, 9, LAYERS + 2, 1, 1);
	pass_ms(50);
	assert_int_equal(story_plan(p)->cold.classes, 0);
	window_set(p, 0, 4, -EPERM);
	w_cold_open(w, p, UNIT, 4, 1);
	w_run(w);
	assert_int_equal(p->cold.open_result, 0);
	assert_int_equal(p->cold.classes, 2);
	assert_int_equal(p->cold.limit, 1);
	window_set(p, 0, 4, 0);
	w_kill(w, p);
	w_run(w);
	assert_int_equal(story_stats().pages[MM_PAGE_FREE], 60);
}

/* A window that waits for another change when the model begins to go is never put in force. */
static void a_window_on_its_way_is_called_off(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_declared(8, 2);
	story_plan_by_hand(p, 2);
	w_cold_window(w, p, 0, 4);
	assert_true(tenant_look(p).cold_window_pending);
	assert_true(w_unload(w, p));
	pass_ms(50);
	assert_int_equal(p->unloads, 1);
	assert_int_equal(p->cold.window_answers, 1);
	assert_int_equal(p->cold.window_result, -ECANCELED);
	assert_false(tenant_look(p).cold_window_pending);
}

static void a_model_that_goes_gets_no_window(void **state)
{
	struct w_proc *p;

	(void)state;
	world_begin(60);
	p = tenant_declared(8, 2);
	assert_true(w_unload(w, p));
	w_cold_window(w, p, 0, 4);
	pass_ms(50);
	assert_int_equal(p->cold.window_answers, 1);
	assert_int_equal(p->cold.window_result, -EPERM);
	assert_int_equal(p->unloads, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(declarations_are_checked),
		TEST(a_model_comes_first),
		TEST(windows_are_checked),
		TEST(one_window_at_a_time),
		TEST(all_gates_follow_the_window),
		TEST(a_window_is_neither_released_nor_swapped),
		TEST(a_limit_rises_at_once_and_falls_later),
		TEST(who_lacks_kv_may_have_cold_blocks),
		TEST(what_stays_live_may_be_cut_off),
		TEST(without_the_knob_nobody_gets_more),
		TEST(a_revoke_ends_the_window),
		TEST(a_small_reclaim_leaves_the_window),
		TEST(windows_are_the_last_to_be_given),
		TEST(a_window_grows_into_no_reclaim),
		TEST(others_do_not_get_the_window),
		TEST(builds_without_cold_blocks_take_none_over),
		TEST(all_ends_with_the_model),
		TEST(a_window_on_its_way_is_called_off),
		TEST(a_model_that_goes_gets_no_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
