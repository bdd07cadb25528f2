/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes from plan to plan while a tenant goes on: slots that stay are not touched, those that
 * move wait until they are mapped.
 */
#undef NDEBUG
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "tests/unit/mmd/xfer/core.h"
#include "tests/unit/mmd/xfer/shape.h"

#define LAYERS      6
#define LAYER_BYTES (2 * GRANULE + 4104)
#define STRIDE      (3 * GRANULE)
#define PLAN_PAGES  3
#define ROUNDS      120

/* Two sets of pages for each slot, so that a slot can move. */
static const uint32_t slot_pages[2][2][PLAN_PAGES] = { { { 9, 2, 17 }, { 4, 25, 8 } },
						       { { 5, 11, 30 }, { 21, 3, 12 } } };

struct rig {
	struct core *core;
	uint64_t epoch;
	struct shape now;
	const uint32_t *mapped[LAYERS]; /* NULL: resident */
	unsigned int seed;
};

static struct mm_gate *gate_at(struct core *core, uint32_t layer)
{
	return &((struct mm_gate_region *)core->gates.base)->gate[layer];
}

static uint64_t gate_word(struct core *core, uint32_t layer)
{
	return __atomic_load_n(&gate_at(core, layer)->word, __ATOMIC_ACQUIRE);
}

static void gate_put(struct core *core, uint32_t layer, uint64_t word)
{
	__atomic_store_n(&gate_at(core, layer)->word, word, __ATOMIC_RELEASE);
}

static struct mm_xcursor *cursor_at(struct core *core, uint32_t s)
{
	return &((struct mm_xcursor_region *)core->cursors.base)->slot[s];
}

static void write_region(struct core *core, const struct shape *shape, uint64_t epoch)
{
	struct mm_xplan_region *plan = core->plan.base;

	plan->epoch = epoch;
	plan->store_id = STORE;
	plan->n_layers = LAYERS;
	plan->n_slots = shape->n_slots;
	for (uint32_t l = 0; l < LAYERS; l++)
		plan->layer[l] = (struct mm_xplan_layer){ l * STRIDE, LAYER_BYTES };
	for (uint32_t s = 0; s < shape->n_slots; s++) {
		plan->slot[s].n_layers = shape->n[s];
		plan->slot[s].n_pages = PLAN_PAGES;
		plan->slot[s].in_place = shape->in_place[s];
		memcpy(plan->slot[s].page, shape->pages[s], sizeof(slot_pages[0][0]));
		memcpy(plan->slot[s].layer, shape->layer[s], sizeof(shape->layer[s]));
	}
	plan->closed[0] = shape->closed;
}

static void open_layers(struct core *core, uint64_t epoch)
{
	struct mm_xplan_region *plan = core->plan.base;

	__atomic_store_n(&plan->open, MM_XPLAN_OPEN(epoch, LAYERS), __ATOMIC_RELEASE);
}

static int job_run(struct core *core, enum mm_xop op, uint64_t epoch)
{
	return core_do(core, op, epoch, TENANT, 0, 0, 0);
}

static void plan_prepare(struct core *core)
{
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	core_make_store(core, LAYERS * STRIDE);
	core_send_store(core);
	core_send_tenant(core);
	memset(core->plan.base, 0, sizeof(struct mm_xplan_region));
}

static bool pages_hold(struct core *core, const uint32_t *pages, uint32_t layer)
{
	return core_pages_hold(core, pages, layer * STRIDE, LAYER_BYTES);
}

static void wait_low(struct core *core, uint32_t layer, uint64_t low)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while ((uint32_t)gate_word(core, layer) != low) {
		if (mm_now_ns() > until_ns)
			fail_msg("gate %u is %lx, not %lx", layer,
				 (unsigned long)gate_word(core, layer), (unsigned long)low);
		usleep(50);
	}
}

static void wait_holds(struct core *core, const uint32_t *pages, uint32_t layer)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (!pages_hold(core, pages, layer)) {
		if (mm_now_ns() > until_ns)
			fail_msg("layer %u does not come", layer);
		usleep(100);
	}
}

/* Two slots: one cycles 0 2 4, the other 1 3; the first layer of each is in its slot. */
static const struct shape two = { .n_slots = 2,
				  .n = { 3, 2 },
				  .layer = { { 0, 2, 4 }, { 1, 3 } },
				  .pages = { slot_pages[0][0], slot_pages[1][0] } };

static void activate_two(struct core *core)
{
	plan_prepare(core);
	write_region(core, &two, 1);
	for (uint32_t l = 0; l < LAYERS; l++)
		gate_put(core, l, l == 5 ? MM_GATE_RESIDENT : MM_GATE_EMPTY);
	for (uint32_t s = 0; s < 2; s++)
		*cursor_at(core, s) = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING };
	assert_int_equal(job_run(core, MM_XOP_ACTIVATE, 1), 0);
	wait_low(core, 0, MM_GATE_READY);
	wait_low(core, 1, MM_GATE_READY);
}

/*
 * Layer 5 joins the second slot: this changes neither the first slot nor the occupant of the
 * second.
 */
static void test_what_stays_is_left_alone(void **state)
{
	struct core *core = *state;
	struct shape next = two;

	activate_two(core);
	next.n[1] = 3;
	next.layer[1][2] = 5;
	next.closed = 1 << 5;
	for (uint32_t i = 0; i < PLAN_PAGES; i++) {
		core_fill(core, two.pages[0][i], 0xee);
		core_fill(core, two.pages[1][i], 0xee);
	}
	gate_put(core, 5, MM_GATE_EMPTY);
	write_region(core, &next, 2);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), 0);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), 0); /* a second time has no effect */
	assert_int_equal(job_run(core, MM_XOP_ACTIVATE, 2), 0);
	for (uint32_t s = 0; s < 2; s++) {
		unsigned char byte;

		assert_int_equal(gate_word(core, s), MM_GATE_READY);
		assert_int_equal(cursor_at(core, s)->epoch, 2);
		assert_int_equal(cursor_at(core, s)->state, MM_CUR_HELD);
		core_read(core, two.pages[s][0], 7, &byte, 1);
		assert_int_equal(byte, 0xee); /* not copied again */
	}
	/* Layers 1, 3, then 5, whose bytes arrive, but which core alone opens. */
	gate_put(core, 1, MM_GATE_DONE);
	wait_low(core, 3, MM_GATE_READY);
	gate_put(core, 3, MM_GATE_DONE);
	wait_low(core, 3, MM_GATE_EMPTY);
	wait_holds(core, two.pages[1], 5);
	assert_int_equal(gate_word(core, 5), MM_GATE_EMPTY);
	assert_int_equal(cursor_at(core, 1)->state, MM_CUR_COPYING);
	/* layers up to 4 are mapped, not 5 */
	((struct mm_xplan_region *)core->plan.base)->open = MM_XPLAN_OPEN(2, 5);
	usleep(3000);
	assert_int_equal(gate_word(core, 5), MM_GATE_EMPTY);
	open_layers(core, 2);
	wait_low(core, 5, MM_GATE_READY);
	assert_int_equal(job_run(core, MM_XOP_QUIESCE, 2), 0);
}

/* Slots that are used up, lose their occupant, move, or are new and in place. */
static void test_what_moves_begins_anew(void **state)
{
	struct core *core = *state;
	struct shape next = { .n_slots = 2,
			      .n = { 2, 2 },
			      .layer = { { 2, 4 }, { 3, 5 } },
			      .pages = { slot_pages[0][0], slot_pages[1][1] } };

	activate_two(core);
	gate_put(core, 0, MM_GATE_DONE);
	wait_low(core, 2, MM_GATE_READY); /* kept, since the next plan begins with it */
	for (uint32_t i = 0; i < PLAN_PAGES; i++)
		core_fill(core, two.pages[0][i], 0xee);
	gate_put(core, 5, MM_GATE_EMPTY);
	write_region(core, &next, 2);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), 0);
	assert_int_equal(gate_word(core, 2), MM_GATE_READY);
	assert_false(pages_hold(core, two.pages[0], 2));
	wait_low(core, 3, MM_GATE_READY);
	assert_true(pages_hold(core, next.pages[1], 3));
	/* No plan has the old pages any more, so they may be scrubbed. */
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, two.pages[1][0], 0, 0, 0), 0);
	/* One slot fewer, then a new one that has its first layer already. */
	next.n_slots = 1;
	write_region(core, &next, 3);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 3), 0);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, slot_pages[1][1][0], 0, 0, 0), 0);
	next.n_slots = 2;
	next.pages[1] = slot_pages[1][0];
	next.in_place[1] = true;
	gate_put(core, 3, MM_GATE_EMPTY);
	gate_put(core, 5, MM_GATE_EMPTY);
	write_region(core, &next, 4);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 4), 0);
	assert_int_equal(gate_word(core, 3), MM_GATE_READY);
	assert_int_equal(cursor_at(core, 1)->state, MM_CUR_HELD);
	assert_int_equal(gate_word(core, 2), MM_GATE_READY);
	gate_put(core, 3, MM_GATE_DONE);
	wait_low(core, 5, MM_GATE_READY);
	assert_true(pages_hold(core, next.pages[1], 5));
}

/*
 * A slot that no earlier plan had comes with its first layer in it; no copy into it is begun. Then
 * it streams.
 */
static void test_new_slot_in_place_streams(void **state)
{
	static const uint16_t order[] = { 5, 3, 5, 3 };
	struct core *core = *state;
	struct shape next = { .n_slots = 1,
			      .n = { 3, 2 },
			      .layer = { { 0, 2, 4 }, { 3, 5 } },
			      .pages = { slot_pages[0][0], slot_pages[1][0] } };
	uint16_t used_up = 3;

	plan_prepare(core);
	for (uint32_t l = 0; l < LAYERS; l++)
		gate_put(core, l, l < 5 && l % 2 == 0 ? MM_GATE_EMPTY : MM_GATE_RESIDENT);
	write_region(core, &next, 1);
	*cursor_at(core, 0) = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING };
	assert_int_equal(job_run(core, MM_XOP_ACTIVATE, 1), 0);
	wait_low(core, 0, MM_GATE_READY);
	next.n_slots = 2;
	next.in_place[1] = true;
	gate_put(core, 3, MM_GATE_EMPTY);
	gate_put(core, 5, MM_GATE_EMPTY);
	write_region(core, &next, 2);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), 0);
	assert_int_equal(gate_word(core, 3), MM_GATE_READY);
	assert_int_equal(cursor_at(core, 1)->state, MM_CUR_HELD);
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(order); i++) {
		gate_put(core, used_up, MM_GATE_DONE);
		wait_low(core, order[i], MM_GATE_READY);
		assert_int_equal(gate_word(core, used_up), MM_GATE_EMPTY);
		assert_true(pages_hold(core, next.pages[1], order[i]));
		used_up = order[i];
	}
	assert_int_equal(gate_word(core, 0), MM_GATE_READY); /* the other slot waits, as before */
}

/* After the acknowledgement no bytes land in pages that have left, however far a copy was. */
static void test_nothing_lands_late(void **state)
{
	struct core *core = *state;
	struct shape next = two;
	unsigned int seed = 5;

	core->setup.chunk_bytes = 4096;
	activate_two(core);
	for (uint64_t epoch = 2; epoch < 40; epoch++) {
		const uint32_t *old = next.pages[0];
		unsigned char byte;

		gate_put(core, 0, MM_GATE_DONE);
		usleep((unsigned int)rand_r(&seed) % 400);
		next.pages[0] = slot_pages[0][epoch % 2 ? 0 : 1];
		write_region(core, &next, epoch);
		assert_int_equal(job_run(core, MM_XOP_REPLAN, epoch), 0);
		assert_int_equal(gate_word(core, 2), MM_GATE_EMPTY);
		for (uint32_t i = 0; i < PLAN_PAGES; i++)
			core_fill(core, old[i], 0xee);
		wait_low(core, 0, MM_GATE_READY);
		assert_true(pages_hold(core, next.pages[0], 0));
		for (uint32_t i = 0; i < PLAN_PAGES; i++) {
			core_read(core, old[i], 100, &byte, 1);
			assert_int_equal(byte, 0xee);
		}
		/* The other slot was not touched. */
		assert_int_equal(gate_word(core, 1), MM_GATE_READY);
	}
}

static void test_refusals(void **state)
{
	struct core *core = *state;
	struct shape next = two;

	activate_two(core);
	assert_int_equal(core_do(core, MM_XOP_REPLAN, 2, 99, 0, 0, 0), -ENOENT);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), -ESTALE); /* the region has epoch 1 */
	next.n[1] = 1;
	write_region(core, &next, 2);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), -EINVAL);
	/* The plan that was active is still served. */
	gate_put(core, 0, MM_GATE_DONE);
	wait_low(core, 2, MM_GATE_READY);
	write_region(core, &two, 3);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 3), 0);
	assert_int_equal(job_run(core, MM_XOP_REPLAN, 2), -ESTALE);
	assert_int_equal(gate_word(core, 2), MM_GATE_READY);
}

/* ---- random plans, kills, and a tenant that checks each byte ---- */

static uint32_t random_below(struct rig *r, uint32_t n)
{
	return (uint32_t)rand_r(&r->seed) % n;
}

static void random_shape(struct rig *r, struct shape *shape)
{
	*shape = (struct shape){ 0 };
	shape_deal(shape, 1 + random_below(r, 2), LAYERS, &r->seed);
	for (uint32_t s = 0; s < shape->n_slots; s++)
		shape->pages[s] = s < r->now.n_slots && random_below(r, 4)
					  ? r->now.pages[s]
					  : slot_pages[s][random_below(r, 2)];
	for (uint32_t l = 0; l < LAYERS; l++)
		if (shape_pages(shape, l) && shape_pages(shape, l) != r->mapped[l])
			shape->closed |= UINT64_C(1) << l;
}

/* REPLAN, sometimes with a kill before it is done. */
static void replan_maybe_killed(struct rig *r)
{
	if (!random_below(r, 4)) {
		core_push(r->core, (struct mm_msg){ .opcode = MM_XOP_REPLAN,
						    .epoch = r->epoch,
						    .arg = { TENANT } });
		usleep(random_below(r, 600));
		core_restart(r->core);
	}
	assert_int_equal(job_run(r->core, MM_XOP_REPLAN, r->epoch), 0);
}

static void plan_change(struct rig *r)
{
	struct shape next;

	random_shape(r, &next);
	for (uint32_t l = 0; l < LAYERS; l++)
		if (shape_pages(&next, l) && !r->mapped[l])
			gate_put(r->core, l, MM_GATE_EMPTY);
	r->now = next;
	write_region(r->core, &next, ++r->epoch);
	replan_maybe_killed(r);
	for (uint32_t l = 0; l < LAYERS; l++)
		if (r->mapped[l] && !shape_pages(&next, l))
			gate_put(r->core, l, MM_GATE_EMPTY);
}

static void plan_commit(struct rig *r)
{
	for (uint32_t l = 0; l < LAYERS; l++) {
		if (r->mapped[l] && !shape_pages(&r->now, l))
			gate_put(r->core, l, MM_GATE_RESIDENT);
		r->mapped[l] = shape_pages(&r->now, l);
	}
	open_layers(r->core, r->epoch);
}

static void run_layer(struct rig *r, uint32_t layer, bool *committed)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	if (!*committed && shape_pages(&r->now, layer) != r->mapped[layer]) {
		usleep(random_below(r, 500));
		assert_int_equal(gate_word(r->core, layer), MM_GATE_EMPTY);
		plan_commit(r);
		*committed = true;
	}
	while (!(gate_word(r->core, layer) & MM_GATE_PASS)) {
		if (mm_now_ns() > until_ns)
			fail_msg("epoch %lu: layer %u: gate %lx cursors %u/%u %u/%u", r->epoch,
				 layer, (unsigned long)gate_word(r->core, layer),
				 cursor_at(r->core, 0)->state, cursor_at(r->core, 0)->pos,
				 cursor_at(r->core, 1)->state, cursor_at(r->core, 1)->pos);
		usleep(20);
	}
	if (r->mapped[layer] && !pages_hold(r->core, r->mapped[layer], layer))
		fail_msg("epoch %lu: layer %u: wrong bytes", r->epoch, layer);
	__atomic_store_n(&gate_at(r->core, layer)->low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
}

static void tenant_step(struct rig *r, bool committed)
{
	struct mm_gate_region *gates = r->core->gates.base;
	uint32_t kill_at = random_below(r, 6) ? LAYERS : random_below(r, LAYERS);

	__atomic_add_fetch(&gates->step_seq, 1, __ATOMIC_RELEASE);
	for (uint32_t l = 0; l < LAYERS; l++) {
		if (l == kill_at) {
			core_restart(r->core);
			assert_int_equal(job_run(r->core, MM_XOP_ACTIVATE, r->epoch), 0);
		}
		run_layer(r, l, &committed);
	}
	if (!committed)
		plan_commit(r);
	__atomic_add_fetch(&gates->step_seq, 1, __ATOMIC_RELEASE);
}

static void test_random_plans_and_kills(void **state)
{
	const char *seed_text = getenv("MM_TEST_SEED");
	struct rig r = { .core = *state,
			 .seed = seed_text ? (unsigned int)atoi(seed_text)
					   : (unsigned int)getpid() };

	print_message("seed=%u\n", r.seed);
	r.core->setup.chunk_bytes = GRANULE / 2;
	plan_prepare(r.core);
	for (uint32_t l = 0; l < LAYERS; l++)
		gate_put(r.core, l, MM_GATE_RESIDENT);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		plan_change(&r);
		tenant_step(&r, false);
		for (uint32_t n = random_below(&r, 3); n; n--)
			tenant_step(&r, true);
	}
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)
	const struct CMUnitTest tests[] = {
		T(test_what_stays_is_left_alone),
		T(test_what_moves_begins_anew),
		T(test_new_slot_in_place_streams),
		T(test_nothing_lands_late),
		T(test_refusals),
		T(test_random_plans_and_kills),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
