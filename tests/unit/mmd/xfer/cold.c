/* SPDX-License-Identifier: Apache-2.0 */
/* Which rows of cold blocks are copied to the window, and what of a plan or a tenant is refused. */
#undef NDEBUG
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/protocol/cold.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/clock.h"
#include "tests/unit/mmd/xfer/rig.h"

/* Rows are counted behind READY. */
static void wait_rows(const struct rig *r, uint64_t rows)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
	const uint64_t *word = &rig_cursors(r)->cold_rows;

	while (__atomic_load_n(word, __ATOMIC_RELAXED) != rows && mm_now_ns() < until_ns)
		usleep(20);
	assert_int_equal(__atomic_load_n(word, __ATOMIC_RELAXED), rows);
}

static void window_fill(const struct rig *r, const struct shape *shape, unsigned char value)
{
	for (uint32_t i = 0; i < shape->window_pages; i++)
		core_fill(r->core, shape->window[i], value);
}

static bool row_holds_byte(const struct rig *r, const struct shape *shape, uint32_t entry,
			   uint32_t layer, unsigned char value)
{
	static unsigned char got[GRANULE];

	rig_read_window(r, shape, (r->classes * (uint64_t)entry + layer) * r->unit_bytes, got,
			r->unit_bytes);
	for (uint64_t i = 0; i < r->unit_bytes; i++)
		if (got[i] != value)
			return false;
	return true;
}

/* A plan without slots, whose classes begin at once. */
static void cold_activate(struct rig *r, const struct shape *shape)
{
	r->now = *shape;
	rig_write_plan(r, shape, ++r->epoch);
	for (uint32_t k = 0; k < r->classes; k++)
		rig_cursors(r)->cold[k] =
			(struct mm_xcursor){ .epoch = r->epoch, .state = MM_CUR_COPYING };
	assert_int_equal(rig_job(r, MM_XOP_ACTIVATE, r->epoch), 0);
	for (uint32_t k = 0; k < r->classes; k++)
		rig_wait_ready(r, k);
}

static void layer_pass(const struct rig *r, uint32_t layer)
{
	rig_wait_ready(r, layer);
	__atomic_store_n(&rig_gates(r)->gate[layer].low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
}

static void step_pass(const struct rig *r)
{
	for (uint32_t l = 0; l < r->layers; l++)
		layer_pass(r, l);
}

#define HELD_MAX 64

static const struct shape eight = { .window = window_pages[0], .window_pages = 2 };

/* ---- what is streamed ---- */

/* Which entries count: below the window's end, the lowest of them. Others stay as they are. */
static void test_live_rows_alone(void **state)
{
	struct rig r;

	rig_prepare(&r, *state, 8, 4096, 12); /* the window of 2 pages has 7 entries */
	assert_int_equal(r.classes, 4);
	assert_int_equal(rig_window_entries(&r, &eight), 7);
	for (uint32_t e = 1; e < 12; e += 2)
		rig_set_entry(&r, e);
	rig_plan(&r)->cold_limit = 2;
	window_fill(&r, &eight, 0xee);
	cold_activate(&r, &eight);
	for (uint32_t l = 0; l < 4; l++) {
		assert_true(rig_row_is(&r, &eight, 1, l));
		assert_true(rig_row_is(&r, &eight, 3, l));
		for (uint32_t e = 0; e < 7; e++)
			assert_true(e == 1 || e == 3 || row_holds_byte(&r, &eight, e, l, 0xee));
	}
	rig_plan(&r)->cold_limit = 3;
	step_pass(&r);
	rig_wait_ready(&r, 0);
	for (uint32_t e = 1; e < 7; e += 2)
		assert_true(rig_row_is(&r, &eight, e, 0));
	for (uint32_t e = 0; e < 7; e += 2)
		assert_true(e == 0 || rig_row_is(&r, &eight, e - 1, 4) ||
			    row_holds_byte(&r, &eight, e, 0, 0xee));
	/* Two rows of four layers, then three of eight. */
	wait_rows(&r, 4 * 2 + 8 * 3);
	assert_int_equal(rig_cursors(&r)->cold_bytes, 32 * 4096);
	assert_int_equal(rig_cursors(&r)->layers_streamed, 0);
	rig_done(&r);
}

/* No live entry: every layer is handed over all the same. */
static void test_no_rows(void **state)
{
	struct rig r;

	rig_prepare(&r, *state, 5, 4096, 7);
	window_fill(&r, &eight, 0xee);
	cold_activate(&r, &eight);
	step_pass(&r);
	step_pass(&r);
	rig_wait_ready(&r, 0);
	assert_int_equal(rig_cursors(&r)->cold_bytes, 0);
	for (uint32_t i = 0; i < eight.window_pages; i++)
		core_assert_bytes(r.core, eight.window[i], 0, GRANULE, 0xee);
	rig_done(&r);
}

/* A class has the version that it chose its rows by; the tenant gets the least of them. */
static void test_versions(void **state)
{
	struct rig r;

	rig_prepare(&r, *state, 8, 4096, 7);
	r.version = 40;
	rig_set_entry(&r, 3);
	cold_activate(&r, &eight);
	for (uint32_t k = 0; k < 4; k++)
		assert_int_equal(rig_cursors(&r)->cold[k].version, 41);
	assert_int_equal(rig_acked(&r), 41);
	rig_set_entry(&r, 4);
	for (uint32_t l = 0; l < 4; l++) {
		assert_int_equal(rig_acked(&r), 41);
		layer_pass(&r, l);
		rig_wait_ready(&r, l + 4);
		assert_int_equal(rig_cursors(&r)->cold[l].version, 42);
		assert_true(rig_row_is(&r, &eight, 4, l + 4));
	}
	assert_int_equal(rig_acked(&r), 42);
	/* Versions of a tenant that lies: what was acknowledged does not go back. */
	r.version = 6;
	rig_next_version(&r);
	for (uint32_t l = 4; l < 8; l++)
		layer_pass(&r, l);
	for (uint32_t l = 0; l < 4; l++)
		rig_wait_ready(&r, l);
	assert_int_equal(rig_cursors(&r)->cold[2].version, 7);
	assert_int_equal(rig_acked(&r), 42);
	r.version = UINT64_MAX - 1;
	rig_next_version(&r);
	step_pass(&r);
	for (uint32_t l = 0; l < 4; l++)
		rig_wait_ready(&r, l);
	assert_int_equal(rig_acked(&r), UINT64_MAX);
	rig_done(&r);
}

/* A row that begins in one registration of the swap space ends in the next. */
static void test_row_in_two_registrations(void **state)
{
	const struct shape shape = { .window = window_pages[0], .window_pages = 12 };
	const uint32_t entry = 699, layer = 50;
	struct rig r;
	uint64_t at;

	rig_prepare(&r, *state, 1000, 192, 702);
	at = ((uint64_t)entry * r.layers + layer) * 192;
	assert_true(at < MM_SWAP_PART_BYTES && at + 192 > MM_SWAP_PART_BYTES);
	assert_true(rig_window_entries(&r, &shape) > 701);
	rig_set_entry(&r, 0);
	for (uint32_t e = 697; e < 702; e++)
		rig_set_entry(&r, e);
	cold_activate(&r, &shape);
	for (uint32_t l = 0; l < 60; l++) {
		rig_wait_ready(&r, l);
		for (uint32_t e = 697; e < 702; e++)
			if (!rig_row_is(&r, &shape, e, l))
				fail_msg("entry %u of layer %u", e, l);
		assert_true(rig_row_is(&r, &shape, 0, l));
		layer_pass(&r, l);
	}
	rig_done(&r);
}

/* ---- plans ---- */

static int plan_change(struct rig *r, const struct shape *shape)
{
	rig_write_plan(r, shape, ++r->epoch);
	return rig_job(r, MM_XOP_REPLAN, r->epoch);
}

/* A window that stays keeps its rows, which then have the version that they had. */
static void test_window_that_stays(void **state)
{
	struct shape next = eight;
	struct rig r;

	rig_prepare(&r, *state, 8, 4096, 7);
	rig_set_entry(&r, 2);
	cold_activate(&r, &eight);
	window_fill(&r, &eight, 0xee);
	rig_set_entry(&r, 5);
	assert_int_equal(plan_change(&r, &eight), 0);
	for (uint32_t l = 0; l < 4; l++) {
		assert_int_equal(rig_gate(&r, l), MM_GATE_READY);
		assert_int_equal(rig_cursors(&r)->cold[l].epoch, r.epoch);
		assert_int_equal(rig_cursors(&r)->cold[l].version, 1);
		assert_true(row_holds_byte(&r, &eight, 2, l, 0xee));
	}
	assert_int_equal(rig_acked(&r), 1);
	/* Another order of the same pages is another window. */
	next.window = (const uint32_t[]){ eight.window[1], eight.window[0] };
	assert_int_equal(plan_change(&r, &next), 0);
	for (uint32_t l = 0; l < 4; l++) {
		rig_wait_ready(&r, l);
		assert_int_equal(rig_cursors(&r)->cold[l].version, 2);
		assert_true(rig_row_is(&r, &next, 2, l));
		assert_true(rig_row_is(&r, &next, 5, l));
	}
	assert_int_equal(rig_acked(&r), 2);
	rig_done(&r);
}

/* Takes what memory the device has. Return: in how many pieces. */
static uint32_t device_fill(struct core *core, CUmemGenericAllocationHandle *held)
{
	const CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	uint32_t n = 0;

	for (uint64_t bytes = 256 * GRANULE; bytes >= GRANULE; bytes /= 2)
		while (core->gpu.cuMemCreate(&held[n], bytes, &prop, 0) == CUDA_SUCCESS)
			assert_true(++n < HELD_MAX);
	return n;
}

/* While a plan has a window, nothing else may be done to its pages; then all may. */
static void test_pages_of_a_window(void **state)
{
	const struct shape other = { .window = window_pages[1], .window_pages = 3 }, none = { 0 };
	CUmemGenericAllocationHandle held[HELD_MAX];
	struct rig r;
	uint32_t n;

	rig_prepare(&r, *state, 8, 4096, 7);
	rig_set_entry(&r, 2);
	cold_activate(&r, &eight);
	assert_int_equal(core_do(r.core, MM_XOP_SCRUB, 0, eight.window[1], 0, 0, 0), -EBUSY);
	assert_int_equal(core_do(r.core, MM_XOP_RECREATE, 0, eight.window[1], 0, 0, 0), -EBUSY);
	assert_int_equal(
		core_do(r.core, MM_XOP_SWAP_IN, 0, TENANT, eight.window[0] * GRANULE, 0, 64),
		-EBUSY);
	assert_int_equal(plan_change(&r, &other), 0);
	assert_int_equal(core_do(r.core, MM_XOP_SCRUB, 0, eight.window[1], 0, 0, 0), 0);
	assert_int_equal(core_do(r.core, MM_XOP_SCRUB, 0, other.window[2], 0, 0, 0), -EBUSY);
	assert_int_equal(plan_change(&r, &none), 0);
	assert_int_equal(core_do(r.core, MM_XOP_SCRUB, 0, other.window[2], 0, 0, 0), 0);
	assert_int_equal(plan_change(&r, &eight), 0);
	rig_wait_ready(&r, 0);
	assert_int_equal(rig_job(&r, MM_XOP_QUIESCE, r.epoch), 0);
	/* There is memory for the new page only if nobody holds the old one. */
	mm_close_fd(&r.core->page_fd[eight.window[1]]);
	n = device_fill(r.core, held);
	assert_int_equal(core_do(r.core, MM_XOP_RECREATE, 0, eight.window[1], 0, 0, 0), 0);
	while (n > 0)
		assert_int_equal(r.core->gpu.cuMemRelease(held[--n]), CUDA_SUCCESS);
	assert_int_equal(core_do(r.core, MM_XOP_DETACH, 0, TENANT, 0, 0, 0), 0);
	rig_done(&r);
}

/* ---- false numbers ---- */

/* A plan with cold blocks of which one number is false. */
static const struct {
	uint32_t n_layers, classes, entries, n_pages, page_1;
	uint64_t unit_bytes;
} false_plans[] = {
	{ 8, 1, 7, 2, 1, 4096 },
	{ 8, 5, 7, 2, 1, 4096 },
	{ 8, UINT32_MAX, 7, 2, 1, 4096 },
	{ 7, 4, 7, 2, 1, 4096 }, /* fewer than two in a class */
	{ 0, 4, 7, 2, 1, 4096 },
	{ UINT32_MAX, 4, 7, 2, 1, 4096 },
	{ 8, 4, 0, 2, 1, 4096 },
	{ 8, 4, 8, 2, 1, 4096 }, /* no room in the window */
	{ 8, 4, MM_COLD_MAX + 1, 2, 1, 4096 },
	{ 8, 4, UINT32_MAX, 2, 1, 4096 },
	{ 8, 4, 7, 0, 1, 4096 },
	{ 8, 4, 7, 1, 1, 4096 },
	{ 8, 4, 7, MM_SLOT_PAGES_MAX + 1, 1, 4096 },
	{ 8, 4, 7, UINT32_MAX, 1, 4096 },
	{ 8, 4, 7, 2, 32, 4096 }, /* the pool has 32 pages */
	{ 8, 4, 7, 2, UINT32_MAX, 4096 },
	{ 8, 4, 7, 2, 1, 0 },
	{ 8, 4, 7, 2, 1, 4088 },
	{ 8, 4, 7, 2, 1, 4160 }, /* more than space and window have */
	{ 8, 4, 7, 2, 1, UINT64_MAX - 63 },
	{ 8, 4, 7, 2, 1, UINT64_C(1) << 61 }, /* times 8: 0 */
};

static void region_spoil(const struct rig *r, size_t i)
{
	struct mm_xplan_cold *cold = &rig_plan(r)->cold;

	rig_plan(r)->n_layers = false_plans[i].n_layers;
	cold->classes = false_plans[i].classes;
	cold->entries = false_plans[i].entries;
	cold->n_pages = false_plans[i].n_pages;
	cold->page[1] = false_plans[i].page_1;
	cold->unit_bytes = false_plans[i].unit_bytes;
}

static void test_refused_plans(void **state)
{
	struct rig r;

	rig_prepare(&r, *state, 8, 4096, 7);
	rig_set_entry(&r, 2);
	cold_activate(&r, &eight);
	for (size_t i = 0; i < MM_ARRAY_SIZE(false_plans); i++) {
		print_message("case %zu\n", i);
		rig_write_plan(&r, &eight, 100 + i);
		region_spoil(&r, i);
		assert_int_equal(rig_job(&r, MM_XOP_REPLAN, 100 + i), -EINVAL);
	}
	/* The plan that was active is still served. */
	for (uint32_t l = 0; l < 8; l++) {
		rig_wait_ready(&r, l);
		assert_true(rig_row_is(&r, &eight, 2, l));
		layer_pass(&r, l);
	}
	rig_done(&r);
}

static void test_no_swap_space(void **state)
{
	struct core *core = *state;
	struct rig r = {
		.core = core, .layers = 8, .classes = 4, .unit_bytes = 4096, .entries = 7
	};

	core_start(core);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	core_send_tenant(core);
	rig_write_plan(&r, &eight, 1);
	assert_int_equal(rig_job(&r, MM_XOP_REPLAN, 1), -EINVAL);
}

/* Core of an earlier build made a region: all but cold blocks works. */
static void regions_are_short(struct core *core, uint64_t gate_bytes, uint64_t plan_bytes)
{
	const struct shape slots = {
		.n_slots = 1, .n = { 4 }, .layer = { { 0, 2, 4, 6 } }, .pages = { slot_pages[0][0] }
	};
	struct shape both = slots;
	struct rig r;

	assert_int_equal(mm_region_create(gate_bytes, MM_REGION_SHARED, "gates", &core->gates), 0);
	assert_int_equal(mm_region_create(plan_bytes, MM_REGION_READONLY, "plan", &core->plan), 0);
	assert_int_equal(mm_region_create(sizeof(struct mm_xcursor_region), MM_REGION_SHARED,
					  "cursors", &core->cursors),
			 0);
	r = (struct rig){ .core = core, .layers = 8, .classes = 4, .unit_bytes = 64, .entries = 7 };
	core_start(core);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	core_make_store(core, STORE_LAYERS * STRIDE);
	core_send_store(core);
	core_send_tenant(core);
	assert_int_equal(mm_region_create(7 * 8 * 64, MM_REGION_SHARED, "swap", &r.space), 0);
	rig_send_space(&r);
	if (plan_bytes > MM_XPLAN_REGION_BYTES_MIN) {
		both.window = window_pages[0];
		both.window_pages = 1;
		rig_write_plan(&r, &both, 1);
		assert_int_equal(rig_job(&r, MM_XOP_REPLAN, 1), -EINVAL);
	}
	rig_plan(&r)->epoch = 2;
	rig_plan(&r)->store_id = STORE;
	rig_plan(&r)->n_layers = 8;
	rig_plan(&r)->n_slots = 1;
	rig_plan(&r)->slot[0].n_layers = 4;
	rig_plan(&r)->slot[0].n_pages = SLOT_PAGES;
	memcpy(rig_plan(&r)->slot[0].page, slot_pages[0][0], sizeof(slot_pages[0][0]));
	memcpy(rig_plan(&r)->slot[0].layer, slots.layer[0], sizeof(slots.layer[0]));
	for (uint32_t l = 0; l < 8; l++)
		rig_plan(&r)->layer[l] = (struct mm_xplan_layer){ l * STRIDE, LAYER_BYTES };
	if (plan_bytes > MM_XPLAN_REGION_BYTES_MIN)
		memset(&rig_plan(&r)->cold, 0, sizeof(rig_plan(&r)->cold));
	assert_int_equal(rig_job(&r, MM_XOP_REPLAN, 2), 0);
	for (uint32_t l = 0; l < 8; l += 2)
		layer_pass(&r, l);
	rig_wait_ready(&r, 0);
	rig_done(&r);
}

static void test_short_gate_region(void **state)
{
	regions_are_short(*state, MM_GATE_REGION_BYTES_MIN, sizeof(struct mm_xplan_region));
}

static void test_short_plan_region(void **state)
{
	regions_are_short(*state, sizeof(struct mm_gate_region), MM_XPLAN_REGION_BYTES_MIN);
}

/* No build makes such a region. */
static void test_plan_region_with_half_a_window(void **state)
{
	regions_are_short(*state, sizeof(struct mm_gate_region),
			  sizeof(struct mm_xplan_region) - 64);
}

struct scribbler {
	struct mm_cold_live *live;
	bool ends;
};

/* Bits and versions without sense, as fast as it can. */
static void *bitmap_scribble(void *arg)
{
	struct scribbler *s = arg;
	unsigned int seed = 7;

	while (!__atomic_load_n(&s->ends, __ATOMIC_RELAXED)) {
		uint64_t word = (uint64_t)rand_r(&seed) << 40 ^ (uint64_t)rand_r(&seed) << 20 ^
				(uint64_t)rand_r(&seed);

		__atomic_store_n(&s->live->live[word % MM_ARRAY_SIZE(s->live->live)], word,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&s->live->live[word % 2], ~word, __ATOMIC_RELAXED);
		__atomic_store_n(&s->live->version, word, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* A tenant that writes the bitmap while it is read harms only the rows of its own window. */
static void test_bitmap_that_changes(void **state)
{
	const struct shape shape = { .window = window_pages[0], .window_pages = 5 };
	struct scribbler scribbler;
	pthread_t thread;
	uint64_t window_bytes;
	struct rig r;

	r = (struct rig){ 0 };
	rig_prepare(&r, *state, 9, 1088, 90);
	assert_true(rig_window_entries(&r, &shape) == 90);
	window_bytes = mm_cold_window_bytes(r.classes, r.layers, r.unit_bytes, 90);
	for (uint32_t i = 0; i < r.core->setup.pages; i++)
		core_fill(r.core, i, 0xee);
	memset(r.space.base, 0x11, r.space.size_bytes);
	scribbler = (struct scribbler){ .live = &rig_gates(&r)->cold };
	assert_int_equal(pthread_create(&thread, NULL, bitmap_scribble, &scribbler), 0);
	cold_activate(&r, &shape);
	for (uint32_t i = 0; i < 100; i++)
		step_pass(&r);
	__atomic_store_n(&scribbler.ends, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(rig_cursors(&r)->cold_rows > 0);
	for (uint32_t i = 0; i < r.core->setup.pages; i++) {
		bool in_window = false;

		for (uint32_t p = 0; p < shape.window_pages; p++)
			in_window |= shape.window[p] == i;
		if (!in_window)
			core_assert_bytes(r.core, i, 0, GRANULE, 0xee);
	}
	core_assert_bytes(r.core, shape.window[window_bytes / GRANULE], window_bytes % GRANULE,
			  GRANULE, 0xee);
	rig_done(&r);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)
	const struct CMUnitTest tests[] = {
		T(test_live_rows_alone),
		T(test_no_rows),
		T(test_versions),
		T(test_row_in_two_registrations),
		T(test_window_that_stays),
		T(test_pages_of_a_window),
		T(test_refused_plans),
		T(test_no_swap_space),
		T(test_short_gate_region),
		T(test_short_plan_region),
		T(test_plan_region_with_half_a_window),
		T(test_bitmap_that_changes),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
