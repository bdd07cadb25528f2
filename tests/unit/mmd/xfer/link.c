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
	uint32_t landed, cancelled;
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

static void transfer_start(size_t flow, size_t i, uint64_t bytes)
{
	bench.transfer[flow][i] = (struct mm_xtransfer){ .store = bench.stores.first,
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
		assert_true(bench.link.in_flight_bytes <= (MM_XLINK_DEPTH + 1) * CHUNK);
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

static void write_plan(struct core *core)
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

static void make_tenant(struct core *core)
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
	assert_int_equal(mm_xtenant_activate(watch.tenant, 1), 0);
}

static void test_store_order(void **state)
{
	const struct sigaction action = { .sa_sigaction = on_store, .sa_flags = SA_SIGINFO };
	const uint64_t coming = MM_CUR_COPYING, held = MM_CUR_HELD;
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	memset(&watch, 0, sizeof(watch));
	make_tenant(*state);
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

/* ---- a store that is in use ---- */

/* The plan ends at once, but the device still reads its store. */
static void test_a_copy_that_lands_uses_its_store(void **state)
{
	const uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
	struct mm_xstore *store = bench.stores.first;

	memset(&watch, 0, sizeof(watch));
	make_tenant(*state);
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
		T(test_cancel),
		T(test_store_order),
		T(test_a_copy_that_lands_uses_its_store),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
