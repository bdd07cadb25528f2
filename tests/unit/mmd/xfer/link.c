/* SPDX-License-Identifier: Apache-2.0 */
/* The link and the order of a tenant's stores, on a software GPU in this process. */
#undef NDEBUG
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "mmd/xfer/link.h"
#include "mmd/xfer/tenant.h"
#include "tests/unit/mmd/xfer/core.h"

#define CHUNK     (GRANULE / 4)
#define POOL      16
#define TRANSFERS 64

struct bench {
	struct mm_xdev dev;
	struct mm_xpool pool;
	struct mm_xstage stage;
	struct mm_xstores stores;
	struct mm_xlink link;
	struct mm_xflow flow[2];
	struct mm_xtransfer transfer[2][TRANSFERS];
	struct mm_xswap *swaps;
	uint32_t landed, cancelled;
	char host[POOL * GRANULE];
};

static const uint32_t pages[POOL] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
static struct bench bench;

static void transfer_landed(struct mm_xtransfer *transfer, int result)
{
	(void)transfer;
	if (result == -ECANCELED)
		bench.cancelled++;
	else
		assert_int_equal(result, 0);
	bench.landed++;
}

static int setup(void **state)
{
	struct core *core;
	int fds[POOL];
	char err[200];

	assert_int_equal(core_setup(state), 0);
	core = *state;
	core_make_store(core, POOL * GRANULE);
	memset(&bench, 0, sizeof(bench));
	bench.dev = MM_XDEV_NULL;
	if (mm_xdev_open(&bench.dev, "software", 0, "", false, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	assert_int_equal(mm_xpool_init(&bench.pool, &bench.dev, GRANULE, POOL), 0);
	assert_int_equal(mm_xpool_create(&bench.pool, pages, POOL, fds), 0);
	for (size_t i = 0; i < POOL; i++)
		close(fds[i]);
	bench.stores.dev = &bench.dev;
	bench.stores.stage = &bench.stage;
	assert_int_equal(mm_xstores_add(&bench.stores, 1, POOL * GRANULE, dup(core->store.fd)), 0);
	assert_int_equal(mm_xlink_init(&bench.link, &bench.pool, &bench.stores, CHUNK), 0);
	for (size_t f = 0; f < 2; f++)
		mm_xlink_join(&bench.link, &bench.flow[f], 1);
	return 0;
}

static int teardown(void **state)
{
	for (size_t f = 0; f < 2; f++)
		mm_xlink_leave(&bench.link, &bench.flow[f]);
	mm_xlink_done(&bench.link);
	mm_xstores_done(&bench.stores);
	mm_xpool_done(&bench.pool);
	mm_xdev_close(&bench.dev);
	return core_teardown(state);
}

static void transfer_start_due(size_t flow, size_t i, uint64_t bytes, uint64_t due)
{
	bench.transfer[flow][i] = (struct mm_xtransfer){ .store = bench.stores.first,
							 .bytes = bytes,
							 .page = pages,
							 .due = due,
							 .landed = transfer_landed };
	mm_xlink_start(&bench.link, &bench.flow[flow], &bench.transfer[flow][i]);
}

static void transfer_start(size_t flow, size_t i, uint64_t bytes)
{
	transfer_start_due(flow, i, bytes, 0);
}

/* The first @bytes of the pages go to bench.host. */
static void transfer_start_out(size_t flow, size_t i, uint64_t bytes)
{
	bench.transfer[flow][i] = (struct mm_xtransfer){ .host = bench.host,
							 .to_host = true,
							 .bytes = bytes,
							 .page = pages,
							 .landed = transfer_landed };
	mm_xlink_start(&bench.link, &bench.flow[flow], &bench.transfer[flow][i]);
}

static uint64_t flow_issued_bytes(size_t flow)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < TRANSFERS; i++)
		sum += bench.transfer[flow][i].issued_bytes;
	return sum;
}

static void run_until(uint32_t n)
{
	const uint64_t deadline_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (bench.landed < n && mm_now_ns() < deadline_ns) {
		(void)mm_xlink_run(&bench.link);
		for (size_t i = 0; i < MM_XLANES; i++)
			assert_true(bench.link.lane[i].in_flight_bytes <=
				    (MM_XLINK_DEPTH + 1) * CHUNK);
		sched_yield();
	}
	assert_int_equal(bench.landed, n);
}

/* One flow has a single large transfer, the other many small ones: bytes count, not transfers. */
static void test_fair(void **state)
{
	(void)state;
	transfer_start(0, 0, 16 * GRANULE);
	for (size_t i = 0; i < TRANSFERS; i++)
		transfer_start(1, i, GRANULE / 8);
	while (flow_issued_bytes(1) < TRANSFERS * GRANULE / 8) {
		uint64_t a, b;

		(void)mm_xlink_run(&bench.link);
		a = flow_issued_bytes(0);
		b = flow_issued_bytes(1);
		assert_true((a > b ? a - b : b - a) <= 2 * CHUNK);
	}
	run_until(1 + TRANSFERS);
}

/* A flow that was idle starts level with the others: it has no credit. */
static void test_late_comer(void **state)
{
	uint64_t before;

	(void)state;
	transfer_start(0, 0, 16 * GRANULE);
	while (flow_issued_bytes(0) < 8 * GRANULE)
		(void)mm_xlink_run(&bench.link);
	transfer_start(1, 0, 16 * GRANULE);
	before = flow_issued_bytes(0);
	while (flow_issued_bytes(1) < 6 * GRANULE) {
		uint64_t a, b;

		(void)mm_xlink_run(&bench.link);
		a = flow_issued_bytes(0) - before;
		b = flow_issued_bytes(1);
		assert_true((a > b ? a - b : b - a) <= 2 * CHUNK);
	}
	run_until(2);
}

/* A heavier flow gets more bytes in proportion, and leaves the rest to the other one. */
static void test_weights(void **state)
{
	const uint64_t heavy = 3;

	(void)state;
	mm_xlink_leave(&bench.link, &bench.flow[1]);
	mm_xlink_join(&bench.link, &bench.flow[1], heavy);
	transfer_start(0, 0, 16 * GRANULE);
	while (flow_issued_bytes(0) < 2 * GRANULE)
		(void)mm_xlink_run(&bench.link);
	/* It comes late, and has no credit for that either. */
	transfer_start(1, 0, 16 * GRANULE);
	while (flow_issued_bytes(1) < 12 * GRANULE) {
		uint64_t light, weighted;

		(void)mm_xlink_run(&bench.link);
		light = flow_issued_bytes(0) - 2 * GRANULE;
		weighted = flow_issued_bytes(1) / heavy;
		assert_true((light > weighted ? light - weighted : weighted - light) <= 2 * CHUNK);
	}
	assert_true(flow_issued_bytes(0) > 5 * GRANULE);
	run_until(2);
}

/* Within a flow the oldest transfer is served first. */
static void test_order(void **state)
{
	(void)state;
	transfer_start(0, 0, 4 * GRANULE);
	transfer_start(0, 1, 4 * GRANULE);
	while (bench.transfer[0][0].issued_bytes < 4 * GRANULE) {
		assert_int_equal(bench.transfer[0][1].issued_bytes, 0);
		(void)mm_xlink_run(&bench.link);
	}
	run_until(2);
}

/* A transfer that is due first goes first, from its next chunk on, though another was begun. */
static void test_due(void **state)
{
	(void)state;
	transfer_start_due(0, 0, 8 * GRANULE, 7);
	transfer_start_due(0, 1, GRANULE, 9);
	(void)mm_xlink_run(&bench.link);
	assert_int_equal(bench.transfer[0][0].issued_bytes, MM_XLINK_DEPTH * CHUNK);
	transfer_start_due(0, 2, GRANULE, 3);
	transfer_start_due(0, 3, GRANULE, 3);
	while (bench.transfer[0][3].queued) {
		assert_int_equal(bench.transfer[0][0].issued_bytes, MM_XLINK_DEPTH * CHUNK);
		assert_true(!bench.transfer[0][2].queued || !bench.transfer[0][3].issued_bytes);
		(void)mm_xlink_run(&bench.link);
	}
	while (bench.transfer[0][0].queued) {
		assert_int_equal(bench.transfer[0][1].issued_bytes, 0);
		(void)mm_xlink_run(&bench.link);
	}
	run_until(4);
}

/* It may turn out later when a transfer is due, and that changes nothing for one that has ended. */
static void test_due_changes(void **state)
{
	(void)state;
	transfer_start_due(0, 0, 8 * GRANULE, 1);
	transfer_start_due(0, 1, 2 * GRANULE, 2);
	(void)mm_xlink_run(&bench.link);
	mm_xtransfer_set_due(&bench.transfer[0][0], 3);
	while (bench.transfer[0][1].queued) {
		assert_int_equal(bench.transfer[0][0].issued_bytes, MM_XLINK_DEPTH * CHUNK);
		(void)mm_xlink_run(&bench.link);
	}
	mm_xtransfer_set_due(&bench.transfer[0][1], 1);
	assert_true(TAILQ_FIRST(&bench.flow[0].queue[MM_XLANE_IN]) == &bench.transfer[0][0]);
	run_until(2);
	mm_xtransfer_set_due(&bench.transfer[0][0], 1);
	assert_true(TAILQ_EMPTY(&bench.flow[0].queue[MM_XLANE_IN]));
}

/* When a transfer is due says nothing to other flows. */
static void test_due_is_no_privilege(void **state)
{
	(void)state;
	transfer_start_due(0, 0, 8 * GRANULE, 0);
	transfer_start_due(1, 0, 8 * GRANULE, 1000000);
	while (bench.transfer[1][0].queued) {
		uint64_t a, b;

		(void)mm_xlink_run(&bench.link);
		a = flow_issued_bytes(0);
		b = flow_issued_bytes(1);
		assert_true((a > b ? a - b : b - a) <= 2 * CHUNK);
	}
	run_until(2);
}

/* Transfers out of the device, however many, take no chunk from those into it. */
static void test_lanes(void **state)
{
	const struct core *core = *state;

	assert_ptr_equal(bench.link.lane[MM_XLANE_IN].stream, bench.dev.copy);
	assert_ptr_equal(bench.link.lane[MM_XLANE_OUT].stream, bench.dev.copy_out);
	assert_ptr_not_equal(bench.dev.copy, bench.dev.copy_out);
	transfer_start(0, 0, 8 * GRANULE);
	run_until(1);
	transfer_start_out(0, 1, 8 * GRANULE);
	transfer_start_out(0, 2, 8 * GRANULE);
	(void)mm_xlink_run(&bench.link);
	assert_int_equal(bench.transfer[0][1].issued_bytes, MM_XLINK_DEPTH * CHUNK);
	transfer_start(0, 3, 16 * GRANULE);
	(void)mm_xlink_run(&bench.link);
	assert_true(bench.transfer[0][3].issued_bytes >= MM_XLINK_DEPTH * CHUNK);
	assert_int_equal(bench.transfer[0][2].issued_bytes, 0);
	assert_true(mm_xlink_busy(&bench.link));
	run_until(4);
	assert_false(mm_xlink_busy(&bench.link));
	assert_memory_equal(bench.host, core->store.base, 8 * GRANULE);
}

/* Each lane is shared by itself: who has much to send out is not behind in what it brings in. */
static void test_fair_in_each_lane(void **state)
{
	(void)state;
	transfer_start_out(0, 0, 16 * GRANULE);
	run_until(1);
	transfer_start(0, 1, 8 * GRANULE);
	transfer_start(1, 0, 8 * GRANULE);
	assert_int_equal(bench.flow[0].served_bytes[MM_XLANE_IN], 0);
	assert_int_equal(bench.flow[1].served_bytes[MM_XLANE_IN], 0);
	transfer_start_out(1, 1, 8 * GRANULE);
	/* It was idle in this lane. */
	assert_true(bench.flow[1].served_bytes[MM_XLANE_OUT] > 0);
	while (bench.transfer[0][1].queued && bench.transfer[1][0].queued) {
		uint64_t a, b;

		(void)mm_xlink_run(&bench.link);
		a = bench.transfer[0][1].issued_bytes;
		b = bench.transfer[1][0].issued_bytes;
		assert_true((a > b ? a - b : b - a) <= 2 * CHUNK);
	}
	run_until(4);
}

/* A cancelled transfer of either lane ends by itself. */
static void test_cancel_out(void **state)
{
	(void)state;
	transfer_start_out(0, 0, 16 * GRANULE);
	transfer_start(0, 1, GRANULE);
	(void)mm_xlink_run(&bench.link);
	mm_xlink_cancel(&bench.link, &bench.transfer[0][0]);
	run_until(2);
	assert_int_equal(bench.cancelled, 1);
	assert_int_equal(bench.transfer[0][1].issued_bytes, GRANULE);
}

static void test_cancel(void **state)
{
	(void)state;
	transfer_start(0, 0, 16 * GRANULE);
	transfer_start(0, 1, GRANULE);
	/* None of it was issued, so it is over at once. */
	mm_xlink_cancel(&bench.link, &bench.transfer[0][1]);
	assert_int_equal(bench.cancelled, 1);
	(void)mm_xlink_run(&bench.link);
	assert_true(bench.transfer[0][0].in_flight > 0);
	mm_xlink_cancel(&bench.link, &bench.transfer[0][0]);
	run_until(2);
	assert_int_equal(bench.cancelled, 2);
	assert_true(bench.transfer[0][0].issued_bytes < 16 * GRANULE);
	assert_false(mm_xlink_busy(&bench.link));
}

/* ---- the state that a kill between two stores would leave ---- */

#define MODEL_LAYERS 3

/*
 * The gates are mapped read-only, so every store to them faults. The cursor at that instant is what
 * a new xfer would find if this one were killed there.
 */
static struct {
	struct mm_xtenant *tenant;
	struct sigaction before;
	uint32_t stores;
	uint64_t cursor[8]; /* state | pos << 32, at each store */
	bool on_device[8];  /* part of the layer has yet to land */
} watch;

static uint64_t cursor_now(void)
{
	const struct mm_xcursor_region *r = watch.tenant->cursor.base;

	return (uint64_t)r->slot[0].state | (uint64_t)r->slot[0].pos << 32;
}

static void set_writable(bool writable)
{
	assert_int_equal(mprotect(watch.tenant->gate.base, sizeof(struct mm_gate_region),
				  writable ? PROT_READ | PROT_WRITE : PROT_READ),
			 0);
}

static void on_store(int signal, siginfo_t *info, void *context)
{
	const struct mm_xtransfer *transfer = &watch.tenant->cycle[0].transfer;
	const char *base = watch.tenant->gate.base;
	const char *at = info->si_addr;

	(void)signal;
	(void)context;
	if (at < base || at >= base + sizeof(struct mm_gate_region) ||
	    watch.stores == MM_ARRAY_SIZE(watch.cursor))
		_exit(99);
	watch.cursor[watch.stores] = cursor_now();
	watch.on_device[watch.stores] = transfer->in_flight > 0 || transfer->queued;
	watch.stores++;
	(void)mprotect(watch.tenant->gate.base, sizeof(struct mm_gate_region),
		       PROT_READ | PROT_WRITE);
}

static void write_plan_of_one(struct core *core)
{
	struct mm_xplan_region *plan = core->plan.base;
	struct mm_xcursor_region *cursors = core->cursors.base;
	struct mm_gate_region *gates = core->gates.base;

	*plan = (struct mm_xplan_region){
		.epoch = 1, .store_id = 1, .n_layers = MODEL_LAYERS, .n_slots = 1
	};
	plan->slot[0].n_layers = MODEL_LAYERS;
	plan->slot[0].n_pages = 2;
	for (uint16_t l = 0; l < MODEL_LAYERS; l++) {
		plan->layer[l] = (struct mm_xplan_layer){ l * GRANULE, GRANULE + 64 };
		plan->slot[0].layer[l] = l;
		plan->slot[0].page[l % 2] = l % 2;
		gates->gate[l].word = MM_GATE_EMPTY;
	}
	/* Layer 2 is in the slot and used up; the next position wraps to layer 0. */
	gates->gate[2].word = MM_GATE_DONE;
	cursors->slot[0] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_HELD, .pos = 2 };
}

static void make_tenant(struct core *core, void (*write_plan)(struct core *core))
{
	int fds[3];

	assert_int_equal(mm_region_create(sizeof(struct mm_gate_region), MM_REGION_SHARED, "gates",
					  &core->gates),
			 0);
	assert_int_equal(mm_region_create(sizeof(struct mm_xplan_region), MM_REGION_SHARED, "plan",
					  &core->plan),
			 0);
	assert_int_equal(mm_region_create(sizeof(struct mm_xcursor_region), MM_REGION_SHARED,
					  "cursors", &core->cursors),
			 0);
	write_plan(core);
	fds[0] = dup(core->gates.fd);
	fds[1] = dup(core->plan.fd);
	fds[2] = dup(core->cursors.fd);
	assert_int_equal(mm_xtenant_create(TENANT, fds, &bench.link, &watch.tenant), 0);
	watch.tenant->swaps = &bench.swaps;
	assert_int_equal(mm_xtenant_activate(watch.tenant, 1), 0);
}

static void test_store_order(void **state)
{
	const struct sigaction action = { .sa_sigaction = on_store, .sa_flags = SA_SIGINFO };
	const uint64_t coming = MM_CUR_COPYING, held = MM_CUR_HELD;
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	memset(&watch, 0, sizeof(watch));
	make_tenant(*state, write_plan_of_one);
	assert_int_equal(sigaction(SIGSEGV, &action, &watch.before), 0);
	set_writable(false);
	mm_xtenant_poll(watch.tenant, mm_now_ns());
	/* The gate was cleared once, with the intent already written. */
	assert_int_equal(watch.stores, 1);
	assert_int_equal(watch.cursor[0], coming);
	assert_true(mm_xtenant_copying(watch.tenant));
	set_writable(false);
	while (watch.stores < 2 && mm_now_ns() < until_ns)
		(void)mm_xlink_run(&bench.link);
	/* READY was written once, when all bytes had landed, and HELD after it. */
	assert_int_equal(watch.stores, 2);
	assert_int_equal(watch.cursor[1], coming);
	assert_false(watch.on_device[1]);
	assert_int_equal(cursor_now(), held);
	set_writable(false);
	mm_xtenant_poll(watch.tenant, mm_now_ns());
	assert_int_equal(watch.stores, 2);
	set_writable(true);
	assert_int_equal(sigaction(SIGSEGV, &watch.before, NULL), 0);
	mm_xtenant_quiesce(watch.tenant);
	mm_xtenant_destroy(watch.tenant);
}

/* ---- the order of layers ---- */

#define TWO_LAYERS 6

/* Slot 0 has the even layers, slot 1 the odd ones; the tenant has passed 3 and 4. */
static void write_plan_of_two(struct core *core)
{
	struct mm_xplan_region *plan = core->plan.base;
	struct mm_xcursor_region *cursors = core->cursors.base;
	struct mm_gate_region *gates = core->gates.base;

	*plan = (struct mm_xplan_region){
		.epoch = 1, .store_id = 1, .n_layers = TWO_LAYERS, .n_slots = 2
	};
	for (uint16_t l = 0; l < TWO_LAYERS; l++) {
		plan->layer[l] = (struct mm_xplan_layer){ l * GRANULE, GRANULE + 64 };
		plan->slot[l % 2].layer[plan->slot[l % 2].n_layers++] = l;
		gates->gate[l].word = MM_GATE_EMPTY;
	}
	for (uint32_t p = 0; p < 4; p++)
		plan->slot[p % 2].page[plan->slot[p % 2].n_pages++] = p;
	gates->gate[4].word = gates->gate[3].word = MM_GATE_DONE;
	cursors->slot[0] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_HELD, .pos = 2 };
	cursors->slot[1] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_HELD, .pos = 1 };
}

static const struct mm_xtransfer *slot_transfer(uint32_t s)
{
	return &watch.tenant->cycle[s].transfer;
}

static void copies_land(void)
{
	const uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (mm_xtenant_copying(watch.tenant) && mm_now_ns() < until_ns)
		(void)mm_xlink_run(&bench.link);
	assert_false(mm_xtenant_copying(watch.tenant));
}

static void tenant_end(void)
{
	mm_xtenant_quiesce(watch.tenant);
	copies_land();
	mm_xtenant_destroy(watch.tenant);
}

/* Slot 0 is looked at first, but what slot 1 is to get is needed first. */
static void test_two_slots_by_need(void **state)
{
	struct mm_gate_region *gates;

	memset(&watch, 0, sizeof(watch));
	make_tenant(*state, write_plan_of_two);
	gates = watch.tenant->gate.base;
	mm_xtenant_poll(watch.tenant, mm_now_ns());
	/* Layer 5 of this step, then layer 0 of the next one. */
	assert_int_equal(slot_transfer(1)->due, 5);
	assert_int_equal(slot_transfer(0)->due, TWO_LAYERS);
	while (slot_transfer(1)->queued) {
		assert_int_equal(slot_transfer(0)->issued_bytes, 0);
		(void)mm_xlink_run(&bench.link);
	}
	copies_land();
	/* A step goes on in its order, and the count with it. */
	for (uint64_t at = TWO_LAYERS - 1; at < 4 * TWO_LAYERS; at++) {
		const uint32_t l = (uint32_t)(at % TWO_LAYERS);

		assert_int_equal(gates->gate[l].low, MM_GATE_READY);
		__atomic_store_n(&gates->gate[l].low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
		mm_xtenant_poll(watch.tenant, mm_now_ns());
		assert_int_equal(slot_transfer(l % 2)->due, at + 2);
		copies_land();
	}
	tenant_end();
}

/* A new xfer knows from the occupants alone which slot is needed first. */
static void test_the_place_is_found_again(void **state)
{
	struct core *core = *state;
	struct mm_xcursor_region *cursors;

	memset(&watch, 0, sizeof(watch));
	make_tenant(core, write_plan_of_two);
	cursors = core->cursors.base;
	mm_xtenant_quiesce(watch.tenant);
	cursors->slot[0] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING, .pos = 0 };
	cursors->slot[1] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING, .pos = 2 };
	assert_int_equal(mm_xtenant_activate(watch.tenant, 1), 0);
	assert_true(slot_transfer(1)->due < slot_transfer(0)->due);
	mm_xtenant_quiesce(watch.tenant);
	cursors->slot[0] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING, .pos = 0 };
	cursors->slot[1] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING, .pos = 0 };
	assert_int_equal(mm_xtenant_activate(watch.tenant, 1), 0);
	assert_true(slot_transfer(0)->due < slot_transfer(1)->due);
	tenant_end();
}

/*
 * A tenant says of one slot only that it has passed its layers, again and again: the other's copy
 * comes first then, and nothing else happens.
 */
static void test_a_false_done_is_harmless(void **state)
{
	struct mm_gate_region *gates;
	uint64_t last = 0;

	memset(&watch, 0, sizeof(watch));
	make_tenant(*state, write_plan_of_two);
	gates = watch.tenant->gate.base;
	for (uint32_t i = 0; i < 5 * TWO_LAYERS; i++) {
		for (uint16_t l = 0; l < TWO_LAYERS; l += 2)
			if (gates->gate[l].low == MM_GATE_READY)
				gates->gate[l].low = (uint32_t)MM_GATE_DONE;
		mm_xtenant_poll(watch.tenant, mm_now_ns());
		assert_true(slot_transfer(0)->due > last);
		last = slot_transfer(0)->due;
		copies_land();
	}
	/* The other slot has kept its turn, and gets level as soon as it goes on. */
	gates->gate[5].low = (uint32_t)MM_GATE_DONE;
	mm_xtenant_poll(watch.tenant, mm_now_ns());
	assert_true(slot_transfer(1)->due + 2 * (uint64_t)TWO_LAYERS > last);
	tenant_end();
}

#define COLD_LAYERS  8
#define COLD_ENTRIES 7
#define COLD_UNIT    UINT64_C(4096)

/* Layers 1 and 6 share a slot, and there are cold blocks; layer 0 comes next. */
static void write_plan_with_cold(struct core *core)
{
	struct mm_xplan_region *plan = core->plan.base;
	struct mm_xcursor_region *cursors = core->cursors.base;
	struct mm_gate_region *gates = core->gates.base;

	*plan = (struct mm_xplan_region){ .epoch = 1,
					  .store_id = 1,
					  .n_layers = COLD_LAYERS,
					  .n_slots = 1,
					  .cold_limit = COLD_ENTRIES };
	plan->slot[0].n_layers = plan->slot[0].n_pages = plan->cold.n_pages = 2;
	plan->slot[0].layer[0] = 1;
	plan->slot[0].layer[1] = 6;
	plan->layer[1] = plan->layer[6] = (struct mm_xplan_layer){ 0, GRANULE + 64 };
	for (uint32_t p = 0; p < 2; p++) {
		plan->slot[0].page[p] = p;
		plan->cold.page[p] = 2 + p;
	}
	plan->cold.classes = 4;
	plan->cold.entries = COLD_ENTRIES;
	plan->cold.unit_bytes = COLD_UNIT;
	for (uint32_t l = 0; l < COLD_LAYERS; l++)
		gates->gate[l].word = MM_GATE_EMPTY;
	gates->cold.live[0] = (1 << COLD_ENTRIES) - 1;
	gates->cold.version = 1;
	cursors->slot[0] = (struct mm_xcursor){ .epoch = 1, .state = MM_CUR_COPYING };
	for (uint32_t k = 0; k < 4; k++)
		cursors->cold[k] = cursors->slot[0];
}

static void cold_space_make(void)
{
	const uint64_t bytes = COLD_ENTRIES * COLD_LAYERS * COLD_UNIT;
	struct mm_region space;

	assert_int_equal(mm_region_create(bytes, MM_REGION_SHARED, "swap", &space), 0);
	assert_int_equal(mm_xswap_add(&bench.swaps, &bench.link, TENANT, bytes, dup(space.fd)), 0);
	mm_region_done(&space);
}

static void layer_used(uint32_t layer)
{
	struct mm_gate_region *gates = watch.tenant->gate.base;

	assert_int_equal(gates->gate[layer].low, MM_GATE_READY);
	__atomic_store_n(&gates->gate[layer].low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
	mm_xtenant_poll(watch.tenant, mm_now_ns());
}

/*
 * Layer 1 leaves slot and class at once. The slot's copy begins first, but the class's next layer
 * is needed before the slot's.
 */
static void test_weights_and_rows_by_need(void **state)
{
	struct mm_gate_region *gates;

	memset(&watch, 0, sizeof(watch));
	cold_space_make();
	make_tenant(*state, write_plan_with_cold);
	gates = watch.tenant->gate.base;
	for (uint32_t step = 0; step < 4; step++) {
		const uint64_t at = step * COLD_LAYERS;

		for (uint32_t l = 0; l < COLD_LAYERS; l++) {
			const struct mm_xtransfer *rows = slot_transfer(MM_CYCLE_CLASS(l % 4));

			copies_land();
			layer_used(l);
			assert_int_equal(rows->due, at + l + 4);
			assert_int_equal(rows->bytes, COLD_ENTRIES * COLD_UNIT);
			/* The rows of layer 1 are there, its weights are not. */
			if (l == 6)
				assert_int_equal(gates->gate[1].low, MM_GATE_EMPTY);
			if (l != 1)
				continue;
			assert_int_equal(slot_transfer(0)->due, at + 6);
			while (rows->queued) {
				assert_int_equal(slot_transfer(0)->issued_bytes, 0);
				(void)mm_xlink_run(&bench.link);
			}
		}
		assert_int_equal(slot_transfer(0)->due, at + COLD_LAYERS + 1);
	}
	tenant_end();
	mm_xswap_drop(&bench.swaps, bench.swaps);
}

static struct {
	uint64_t event_ns;  /* of the next event: each is earlier than the one before */
	uint64_t ready1_ns; /* READY of layer 1 */
} clock_false;

static int event_earlier(CUevent event, uint64_t *ret_ns)
{
	(void)event;
	*ret_ns = clock_false.event_ns -= 100;
	return 0;
}

static int write_noted(int device, uint64_t inode, uint64_t offset, uint32_t value, uint64_t ns)
{
	(void)device;
	(void)inode;
	if (offset == offsetof(struct mm_gate_region, gate[1].low) && value == MM_GATE_READY)
		clock_false.ready1_ns = ns;
	return 0;
}

/* In device time a layer is ready when both have landed, whichever is seen first. */
static void test_ready_is_the_later_of_both(void **state)
{
	const struct mm_xtransfer *rows;

	memset(&watch, 0, sizeof(watch));
	clock_false.event_ns = 1000000;
	bench.dev.pace.event_ns = event_earlier;
	bench.dev.pace.wrote = write_noted;
	cold_space_make();
	make_tenant(*state, write_plan_with_cold);
	copies_land();
	rows = slot_transfer(MM_CYCLE_CLASS(1));
	assert_true(slot_transfer(0)->landed_ns > rows->landed_ns && rows->landed_ns > 0);
	assert_int_equal(clock_false.ready1_ns, slot_transfer(0)->landed_ns);
	tenant_end();
	mm_xswap_drop(&bench.swaps, bench.swaps);
}

/* ---- a store that is in use ---- */

/* The plan ends at once, but the device still reads its store. */
static void test_a_copy_that_lands_uses_its_store(void **state)
{
	const uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
	struct mm_xstore *store = bench.stores.first;

	memset(&watch, 0, sizeof(watch));
	make_tenant(*state, write_plan_of_one);
	assert_true(mm_xtenant_uses(watch.tenant, store));
	mm_xtenant_poll(watch.tenant, mm_now_ns());
	(void)mm_xlink_run(&bench.link);
	/* The link notices landings only when it runs, which it does not here. */
	assert_true(watch.tenant->cycle[0].transfer.in_flight > 0);
	mm_xtenant_quiesce(watch.tenant);
	assert_false(mm_xtenant_cycles(watch.tenant));
	assert_true(mm_xtenant_uses(watch.tenant, store));
	while (mm_xtenant_copying(watch.tenant) && mm_now_ns() < until_ns) {
		(void)mm_xlink_run(&bench.link);
		sched_yield();
	}
	assert_false(mm_xtenant_uses(watch.tenant, store));
	mm_xtenant_destroy(watch.tenant);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_fair),
		T(test_late_comer),
		T(test_weights),
		T(test_order),
		T(test_due),
		T(test_due_changes),
		T(test_due_is_no_privilege),
		T(test_lanes),
		T(test_fair_in_each_lane),
		T(test_cancel),
		T(test_cancel_out),
		T(test_store_order),
		T(test_two_slots_by_need),
		T(test_the_place_is_found_again),
		T(test_a_false_done_is_harmless),
		T(test_weights_and_rows_by_need),
		T(test_ready_is_the_later_of_both),
		T(test_a_copy_that_lands_uses_its_store),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
