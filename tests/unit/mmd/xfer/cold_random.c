/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold blocks under random plans: a tenant compares each byte that a layer reads, while live bits,
 * plans and windows change and xfer is killed.
 */
#undef NDEBUG
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/mmd/xfer/rig.h"

#define ROUNDS 30

/* Entries that the open step reads stay as they are. */
static void entries_change(struct rig *r)
{
	for (uint32_t i = rig_random(r, 4); i; i--) {
		uint32_t e = rig_random(r, r->entries);

		if (r->entry[e].live && !r->entry[e].used)
			rig_clear_entry(r, e);
		else if (!r->entry[e].live)
			rig_set_entry(r, e);
	}
}

static bool layer_cycles(const struct shape *shape, uint32_t layer)
{
	return shape->window || shape_pages(shape, layer);
}

static void random_slots(struct rig *r, struct shape *shape)
{
	shape_deal(shape, rig_random(r, 3), r->layers, &r->seed);
	for (uint32_t s = 0; s < shape->n_slots; s++)
		shape->pages[s] = s < r->now.n_slots && rig_random(r, 4)
					  ? r->now.pages[s]
					  : slot_pages[s][rig_random(r, 2)];
}

/* Three of four plans have cold blocks; two of three windows stay. */
static void random_shape(struct rig *r, struct shape *shape)
{
	*shape = (struct shape){ 0 };
	random_slots(r, shape);
	if (rig_random(r, 4)) {
		shape->window = r->now.window;
		shape->window_pages = r->now.window_pages;
		if (!shape->window || !rig_random(r, 3)) {
			shape->window = window_pages[rig_random(r, 2)];
			shape->window_pages = WINDOW_PAGES / 2 + rig_random(r, WINDOW_PAGES / 2);
		}
	}
	for (uint32_t l = 0; l < r->layers; l++)
		if (layer_cycles(shape, l) && shape_pages(shape, l) != r->mapped[l])
			shape->closed |= UINT64_C(1) << l;
}

static void replan_maybe_killed(struct rig *r)
{
	if (!rig_random(r, 3)) {
		core_push(r->core, (struct mm_msg){ .opcode = MM_XOP_REPLAN,
						    .epoch = r->epoch,
						    .arg = { TENANT } });
		usleep(rig_random(r, 800));
		rig_restart(r);
	}
	assert_int_equal(rig_job(r, MM_XOP_REPLAN, r->epoch), 0);
}

static void plan_change(struct rig *r)
{
	const struct shape old = r->now;
	struct shape next;

	random_shape(r, &next);
	r->now = next;
	for (uint32_t l = 0; l < r->layers; l++)
		if (layer_cycles(&r->now, l) && !layer_cycles(&old, l))
			rig_put_gate(r, l, MM_GATE_EMPTY);
	rig_write_plan(r, &r->now, ++r->epoch);
	replan_maybe_killed(r);
	for (uint32_t l = 0; l < r->layers; l++)
		if (!layer_cycles(&r->now, l) && layer_cycles(&old, l))
			rig_put_gate(r, l, MM_GATE_EMPTY);
}

static void plan_commit(struct rig *r)
{
	for (uint32_t l = 0; l < r->layers; l++) {
		if (!layer_cycles(&r->now, l))
			rig_put_gate(r, l, MM_GATE_RESIDENT);
		r->mapped[l] = shape_pages(&r->now, l);
	}
	__atomic_store_n(&rig_plan(r)->open, MM_XPLAN_OPEN(r->epoch, r->layers), __ATOMIC_RELEASE);
}

/* Many entries: some of them. */
static void rows_compare(struct rig *r, uint32_t layer)
{
	uint32_t stride = 1 + r->entries / 40, first = rig_random(r, stride);

	for (uint32_t e = first; e < rig_window_entries(r, &r->now); e += stride) {
		if (!r->entry[e].used)
			continue;
		if (!rig_row_is(r, &r->now, e, layer))
			fail_msg("epoch %lu: layer %u of %u, entry %u: wrong bytes", r->epoch,
				 layer, r->layers, e);
		r->rows_compared++;
	}
}

static void layer_run(struct rig *r, uint32_t layer, bool *committed)
{
	if (!*committed &&
	    (shape_pages(&r->now, layer) != r->mapped[layer] || !layer_cycles(&r->now, layer))) {
		usleep(rig_random(r, 300));
		if (layer_cycles(&r->now, layer))
			assert_int_equal(rig_gate(r, layer), MM_GATE_EMPTY);
		plan_commit(r);
		*committed = true;
	}
	rig_wait_ready(r, layer);
	if (r->mapped[layer] &&
	    !core_pages_hold(r->core, r->mapped[layer], layer * STRIDE, LAYER_BYTES))
		fail_msg("epoch %lu: layer %u: wrong weights", r->epoch, layer);
	rows_compare(r, layer);
	__atomic_store_n(&rig_gates(r)->gate[layer].low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
}

/* The step may read what is live and acknowledged when it is planned. */
static void step_plan(struct rig *r)
{
	const uint64_t version = rig_acked(r);

	for (uint32_t e = 0; e < r->entries; e++)
		r->entry[e].used = r->entry[e].live && r->entry[e].version <= version;
}

static void step_run(struct rig *r, bool committed)
{
	uint32_t kill_at = rig_random(r, 4) ? r->layers : rig_random(r, r->layers);

	step_plan(r);
	__atomic_add_fetch(&rig_gates(r)->step_seq, 1, __ATOMIC_RELEASE);
	for (uint32_t l = 0; l < r->layers; l++) {
		if (l == kill_at) {
			usleep(rig_random(r, 200));
			rig_restart(r);
			assert_int_equal(rig_job(r, MM_XOP_ACTIVATE, r->epoch), 0);
		}
		entries_change(r);
		layer_run(r, l, &committed);
	}
	if (!committed)
		plan_commit(r);
	for (uint32_t e = 0; e < r->entries; e++)
		r->entry[e].used = false;
	__atomic_add_fetch(&rig_gates(r)->step_seq, 1, __ATOMIC_RELEASE);
}

static void random_run(struct core *core, uint32_t layers, uint64_t unit_bytes, uint32_t entries)
{
	const char *seed_text = getenv("MM_TEST_SEED");
	static struct rig r;

	rig_prepare(&r, core, layers, unit_bytes, entries);
	r.seed = seed_text ? (unsigned int)atoi(seed_text) : (unsigned int)getpid();
	print_message("seed=%u layers=%u entries=%u\n", r.seed, layers, entries);
	for (uint32_t l = 0; l < layers; l++)
		rig_put_gate(&r, l, MM_GATE_RESIDENT);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		plan_change(&r);
		step_run(&r, false);
		for (uint32_t n = rig_random(&r, 4); n; n--)
			step_run(&r, true);
	}
	print_message("%lu rows compared, %lu streamed\n", r.rows_compared,
		      rig_cursors(&r)->cold_rows);
	assert_true(r.rows_compared > 100);
	rig_done(&r);
}

/* Two classes, and layers that they do not divide; chunks smaller than a row. */
static void test_random_five_layers(void **state)
{
	struct core *core = *state;

	core->setup.chunk_bytes = 4096;
	random_run(core, 5, 8256, 7);
}

static void test_random_six_layers(void **state)
{
	random_run(*state, 6, 1088, 200);
}

/* One entry. */
static void test_random_eight_layers(void **state)
{
	random_run(*state, 8, GRANULE / 2 + 64, 1);
}

static void test_random_twelve_layers(void **state)
{
	struct core *core = *state;

	core->setup.chunk_bytes = GRANULE / 2;
	random_run(core, 12, 448, 300);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)
	const struct CMUnitTest tests[] = {
		T(test_random_five_layers),
		T(test_random_six_layers),
		T(test_random_eight_layers),
		T(test_random_twelve_layers),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
