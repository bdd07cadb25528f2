/* SPDX-License-Identifier: Apache-2.0 */
/* Streaming: a tenant runs the gate protocol against a real xfer, which is quiesced and killed. */
#undef NDEBUG
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "libclient/ipc/sock.h"
#include "tests/unit/mmd/xfer/core.h"

#define LAYERS      5
#define LAYER_BYTES (2 * GRANULE + 4104) /* three pages, the last one not full */
#define STRIDE      (3 * GRANULE)
#define PLAN_PAGES  3

static const uint16_t cycle[] = { 1, 3, 4 }; /* 0 and 2 are resident */
static const uint32_t slot_page[PLAN_PAGES] = { 9, 2, 17 };

/* With two slots nothing is resident. */
static const uint16_t cycles[2][3] = { { 0, 2, 4 }, { 1, 3 } };
static const uint32_t slots_page[2][PLAN_PAGES] = { { 9, 2, 17 }, { 5, 11, 30 } };

/* pages of the slot that the layer cycles in; NULL: resident */
static const uint32_t *layer_pages[LAYERS];

/* A round takes longer from disk, and random cases were tried in memory: there are fewer rounds. */
static uint64_t rounds_of(uint64_t in_memory)
{
	const char *tier = getenv("MM_TEST_TIER");

	return tier && *tier ? in_memory / 5 : in_memory;
}

/* ---- core's side: plans, gates, cursors ---- */

static struct mm_gate *gate_at(struct core *core, uint32_t layer)
{
	return &((struct mm_gate_region *)core->gates.base)->gate[layer];
}

static uint32_t gate_low(struct core *core, uint32_t layer)
{
	return __atomic_load_n(&gate_at(core, layer)->low, __ATOMIC_ACQUIRE);
}

static struct mm_xcursor *cursor_at(struct core *core)
{
	return &((struct mm_xcursor_region *)core->cursors.base)->slot[0];
}

static uint32_t cursor_state(struct core *core)
{
	return __atomic_load_n(&cursor_at(core)->state, __ATOMIC_ACQUIRE);
}

/* A plan with an empty slot, into which xfer copies layer cycle[0]. */
static void write_plan(struct core *core, uint64_t epoch)
{
	struct mm_xplan_region *plan = core->plan.base;

	memset(plan, 0, sizeof(*plan));
	plan->epoch = epoch;
	plan->store_id = STORE;
	plan->n_layers = LAYERS;
	plan->n_slots = 1;
	for (uint32_t l = 0; l < LAYERS; l++) {
		plan->layer[l] = (struct mm_xplan_layer){ l * STRIDE, LAYER_BYTES };
		gate_at(core, l)->word = MM_GATE_RESIDENT;
	}
	plan->slot[0].n_layers = MM_ARRAY_SIZE(cycle);
	plan->slot[0].n_pages = PLAN_PAGES;
	memcpy(plan->slot[0].page, slot_page, sizeof(slot_page));
	memcpy(plan->slot[0].layer, cycle, sizeof(cycle));
	memset(layer_pages, 0, sizeof(layer_pages));
	for (size_t i = 0; i < MM_ARRAY_SIZE(cycle); i++) {
		gate_at(core, cycle[i])->word = MM_GATE_EMPTY;
		layer_pages[cycle[i]] = slot_page;
	}
	*cursor_at(core) = (struct mm_xcursor){ .epoch = epoch, .state = MM_CUR_COPYING };
}

static void write_plan_of_two(struct core *core, uint64_t epoch)
{
	struct mm_xplan_region *plan = core->plan.base;
	struct mm_xcursor_region *cursors = core->cursors.base;

	write_plan(core, epoch);
	plan->n_slots = 2;
	for (size_t s = 0; s < 2; s++) {
		plan->slot[s].n_layers = s == 0 ? 3 : 2;
		plan->slot[s].n_pages = PLAN_PAGES;
		memcpy(plan->slot[s].page, slots_page[s], sizeof(slots_page[s]));
		memcpy(plan->slot[s].layer, cycles[s], sizeof(cycles[s]));
		cursors->slot[s] = (struct mm_xcursor){ .epoch = epoch, .state = MM_CUR_COPYING };
	}
	for (uint32_t l = 0; l < LAYERS; l++) {
		gate_at(core, l)->word = MM_GATE_EMPTY;
		layer_pages[l] = slots_page[l % 2];
	}
}

static int plan_activate(struct core *core, uint64_t epoch)
{
	return core_do(core, MM_XOP_ACTIVATE, epoch, TENANT, 0, 0, 0);
}

static int plan_quiesce(struct core *core, uint64_t epoch)
{
	return core_do(core, MM_XOP_QUIESCE, epoch, TENANT, 0, 0, 0);
}

/* Maps the slot's pages here, before a second thread runs. */
static void see_slot(struct core *core)
{
	char byte;

	for (size_t i = 0; i < 2 * PLAN_PAGES; i++)
		core_read(core, slots_page[i / PLAN_PAGES][i % PLAN_PAGES], 0, &byte, 1);
}

static void plan_prepare(struct core *core)
{
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	core_make_store(core, LAYERS * STRIDE);
	core_send_store(core);
	core_send_tenant(core);
	write_plan(core, 1);
	see_slot(core);
}

/* ---- the tenant ---- */

struct tenant {
	struct core *core;
	uint64_t steps; /* steps to run; 0: until stop */
	uint64_t done;
	bool stop;
	uint32_t restarts; /* restarts of xfer: the wait for a gate then begins anew */
	char failure[160];
	pthread_t thread;
};

static bool wait_gate(struct tenant *t, uint32_t layer)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
	uint32_t restarts = 0;

	while (!(__atomic_load_n(&gate_at(t->core, layer)->word, __ATOMIC_ACQUIRE) &
		 MM_GATE_PASS)) {
		uint32_t now = __atomic_load_n(&t->restarts, __ATOMIC_ACQUIRE);

		/* Kills may be so frequent that no copy ends before the last one. */
		if (now != restarts)
			until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
		restarts = now;
		if (mm_now_ns() > until_ns) {
			snprintf(t->failure, sizeof(t->failure),
				 "step %lu: layer %u never became ready: gate %lx cursor %u/%u",
				 t->done, layer, (unsigned long)gate_at(t->core, layer)->word,
				 cursor_at(t->core)->state, cursor_at(t->core)->pos);
			return false;
		}
		usleep(5);
	}
	return true;
}

/* Checks every byte of the layer, page by page. */
static bool layer_verify(struct tenant *t, uint32_t layer)
{
	const char *want = (const char *)t->core->store.base + layer * STRIDE;
	char got[4096];

	for (uint64_t at = 0; at < LAYER_BYTES; at += sizeof(got)) {
		size_t n = MM_MIN(sizeof(got), LAYER_BYTES - at);
		CUdeviceptr va =
			t->core->view + layer_pages[layer][at / GRANULE] * GRANULE + at % GRANULE;

		if (t->core->gpu.cuMemcpyDtoH(got, va, n) != CUDA_SUCCESS ||
		    memcmp(got, want + at, n) != 0) {
			snprintf(t->failure, sizeof(t->failure),
				 "step %lu: layer %u: wrong bytes at %lu", t->done, layer, at);
			return false;
		}
	}
	return true;
}

static bool run_layer(struct tenant *t, uint32_t layer)
{
	if (!wait_gate(t, layer) || (layer_pages[layer] && !layer_verify(t, layer)))
		return false;
	__atomic_store_n(&gate_at(t->core, layer)->low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
	return true;
}

static void set_step(struct tenant *t, uint64_t seq)
{
	struct mm_gate_region *gates = t->core->gates.base;

	__atomic_store_n(&gates->step_seq, seq, __ATOMIC_RELEASE);
}

static void *run_tenant(void *arg)
{
	struct tenant *t = arg;
	CUcontext ctx;

	(void)t->core->gpu.cuDevicePrimaryCtxRetain(&ctx, 0);
	(void)t->core->gpu.cuCtxSetCurrent(ctx);
	while (!t->failure[0] && !__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE) &&
	       (t->steps == 0 || t->done < t->steps)) {
		set_step(t, 2 * t->done + 1);
		for (uint32_t l = 0; l < LAYERS && run_layer(t, l); l++)
			;
		set_step(t, 2 * t->done + 2);
		__atomic_store_n(&t->done, t->done + 1, __ATOMIC_RELEASE);
	}
	(void)t->core->gpu.cuDevicePrimaryCtxRelease(0);
	return NULL;
}

static void tenant_start(struct tenant *t)
{
	assert_int_equal(pthread_create(&t->thread, NULL, run_tenant, t), 0);
}

static void tenant_join(struct tenant *t)
{
	pthread_join(t->thread, NULL);
	if (t->failure[0])
		fail_msg("%s", t->failure);
}

/* ---- tests ---- */

static void xfer_restart(struct tenant *t)
{
	core_restart(t->core);
	assert_int_equal(plan_activate(t->core, 1), 0);
	__atomic_add_fetch(&t->restarts, 1, __ATOMIC_RELEASE);
}

static void test_rounds(void **state)
{
	struct core *core = *state;
	struct tenant t = { .core = core, .steps = rounds_of(2000) };
	const struct mm_xcursor_region *stats;

	plan_prepare(core);
	assert_int_equal(plan_activate(core, 1), 0);
	tenant_start(&t);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(plan_activate(core, 1), 0); /* the active epoch: no effect */
		usleep(3000);
	}
	tenant_join(&t);
	assert_int_equal(plan_quiesce(core, 1), 0);
	stats = core->cursors.base;
	/* Each step uses up three layers; the one after the last DONE may be on its way. */
	assert_in_range(stats->layers_streamed, 3 * t.steps, 3 * t.steps + 1);
	assert_int_equal(stats->bytes_streamed, stats->layers_streamed * LAYER_BYTES);
	assert_true(stats->copy_ns > 0 && stats->copy_last_ns > 0);
}

/* Two slots, each with a cursor of its own; xfer is killed now and then. */
static void test_two_slots(void **state)
{
	struct core *core = *state;
	struct tenant t = { .core = core, .steps = rounds_of(400) };

	plan_prepare(core);
	write_plan_of_two(core, 1);
	assert_int_equal(plan_activate(core, 1), 0);
	tenant_start(&t);
	for (int i = 0; i < 10; i++) {
		usleep(7000);
		xfer_restart(&t);
	}
	tenant_join(&t);
	assert_int_equal(plan_quiesce(core, 1), 0);
}

/* While no step is open, gates are still polled, but less often. */
static void test_idle_tenant(void **state)
{
	struct core *core = *state;
	struct tenant t = { .core = core };

	plan_prepare(core);
	assert_int_equal(plan_activate(core, 1), 0);
	assert_true(wait_gate(&t, cycle[0]));
	__atomic_store_n(&gate_at(core, cycle[0])->low, (uint32_t)MM_GATE_DONE, __ATOMIC_RELEASE);
	assert_true(wait_gate(&t, cycle[1]));
	assert_int_equal(gate_low(core, cycle[0]), MM_GATE_EMPTY);
}

/*
 * States that a kill can leave behind, one row per instant (a slot with layers 1, 3, 4). After
 * ACTIVATE, xfer must reach want_low in gates 1, 3, 4 and leave the cursor HELD at want_pos; copied
 * is the layer whose bytes are in the slot.
 */
static const struct {
	const char *what;
	uint32_t state, pos;
	uint32_t low[3];
	uint32_t want_low[3];
	uint32_t want_pos;
	int copied; /* index in cycle; -1: nothing is copied */
} instants[] = {
	{ "new plan, empty slot", MM_CUR_COPYING, 0, { 4, 4, 4 }, { 1, 4, 4 }, 0, 0 },
	{ "new plan, layer in place", MM_CUR_HELD, 0, { 1, 4, 4 }, { 1, 4, 4 }, 0, -1 },
	{ "tenant not done", MM_CUR_HELD, 1, { 4, 1, 4 }, { 4, 1, 4 }, 1, -1 },
	{ "DONE not yet seen", MM_CUR_HELD, 1, { 4, 2, 4 }, { 4, 4, 1 }, 2, 2 },
	{ "intent written, DONE not cleared", MM_CUR_COPYING, 2, { 4, 2, 4 }, { 4, 4, 1 }, 2, 2 },
	{ "DONE cleared, copy not finished", MM_CUR_COPYING, 2, { 4, 4, 4 }, { 4, 4, 1 }, 2, 2 },
	{ "READY written, not held", MM_CUR_COPYING, 2, { 4, 4, 1 }, { 4, 4, 1 }, 2, -1 },
	{ "READY written and used up", MM_CUR_COPYING, 2, { 4, 4, 2 }, { 1, 4, 4 }, 0, 0 },
	{ "wraps, DONE not cleared", MM_CUR_COPYING, 0, { 4, 4, 2 }, { 1, 4, 4 }, 0, 0 },
};

static bool state_settled(struct core *core, size_t i)
{
	for (size_t g = 0; g < 3; g++)
		if (gate_low(core, cycle[g]) != instants[i].want_low[g])
			return false;
	return cursor_state(core) == MM_CUR_HELD && cursor_at(core)->pos == instants[i].want_pos;
}

static void check_instant(struct core *core, size_t i, uint64_t epoch)
{
	struct tenant t = { .core = core };
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
	unsigned char byte;

	write_plan(core, epoch);
	cursor_at(core)->state = instants[i].state;
	cursor_at(core)->pos = instants[i].pos;
	for (size_t g = 0; g < 3; g++)
		gate_at(core, cycle[g])->word = instants[i].low[g];
	for (size_t p = 0; p < PLAN_PAGES; p++)
		core_fill(core, slot_page[p], 0xee);
	assert_int_equal(plan_activate(core, epoch), 0);
	while (!state_settled(core, i) && mm_now_ns() < until_ns)
		usleep(50);
	usleep(3000); /* it must stay so */
	if (!state_settled(core, i))
		fail_msg("%s: gates %u %u %u cursor %u/%u", instants[i].what,
			 gate_low(core, cycle[0]), gate_low(core, cycle[1]),
			 gate_low(core, cycle[2]), cursor_at(core)->state, cursor_at(core)->pos);
	core_read(core, slot_page[0], 0, &byte, 1);
	if (instants[i].copied < 0)
		assert_int_equal(byte, 0xee);
	else if (!layer_verify(&t, cycle[instants[i].copied]))
		fail_msg("%s: %s", instants[i].what, t.failure);
	assert_int_equal(plan_quiesce(core, epoch), 0);
}

static void test_instants(void **state)
{
	struct core *core = *state;

	plan_prepare(core);
	for (size_t i = 0; i < MM_ARRAY_SIZE(instants); i++)
		check_instant(core, i, i + 1);
}

/* After the acknowledgement xfer writes nothing of the tenant's, however far a copy was. */
static void test_quiesce(void **state)
{
	struct core *core = *state;
	unsigned char byte;
	unsigned int seed = 1;

	core->setup.chunk_bytes = 4096;
	plan_prepare(core);
	for (uint64_t epoch = 1; epoch <= 60; epoch++) {
		struct mm_xcursor before;
		uint32_t low[3];

		write_plan(core, epoch);
		assert_int_equal(plan_activate(core, epoch), 0);
		usleep((unsigned int)rand_r(&seed) % 400);
		assert_int_equal(plan_quiesce(core, epoch), 0);
		before = *cursor_at(core);
		for (size_t p = 0; p < PLAN_PAGES; p++)
			core_fill(core, slot_page[p], 0xee);
		for (size_t g = 0; g < 3; g++) {
			low[g] = gate_low(core, cycle[g]);
			gate_at(core, cycle[g])->low = MM_GATE_DONE;
		}
		usleep(2000);
		assert_memory_equal(&before, cursor_at(core), sizeof(before));
		for (size_t g = 0; g < 3; g++)
			assert_int_equal(gate_low(core, cycle[g]), MM_GATE_DONE);
		for (size_t p = 0; p < PLAN_PAGES; p++) {
			core_read(core, slot_page[p], 100, &byte, 1);
			assert_int_equal(byte, 0xee);
		}
		/* Either the copy was cut off, or READY was written before the acknowledgement. */
		assert_int_equal(low[0],
				 before.state == MM_CUR_HELD ? MM_GATE_READY : MM_GATE_EMPTY);
	}
}

static void test_epochs(void **state)
{
	struct core *core = *state;
	struct tenant t = { .core = core };

	plan_prepare(core);
	assert_int_equal(plan_activate(core, 2), -ESTALE); /* the region has epoch 1 */
	assert_int_equal(plan_activate(core, 1), 0);
	write_plan(core, 2);
	assert_int_equal(plan_activate(core, 2), -EBUSY); /* not quiesced */
	assert_int_equal(plan_quiesce(core, 1), 0);
	assert_int_equal(plan_quiesce(core, 1), 0); /* a second time has no effect */
	write_plan(core, 2);
	assert_int_equal(plan_activate(core, 2), 0);
	assert_int_equal(plan_quiesce(core, 1),
			 -ESTALE); /* it comes late, and must not stop epoch 2 */
	assert_true(wait_gate(&t, cycle[0]));
	assert_true(layer_verify(&t, cycle[0]));
	/* A plan uses them: neither the bytes nor the store may be dropped. */
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, slot_page[0], 0, 0, 0), -EBUSY);
	assert_int_equal(core_do(core, MM_XOP_COPY, 0, slot_page[1], STORE, 0, 8), -EBUSY);
	assert_int_equal(core_do(core, MM_XOP_RECREATE, 0, slot_page[2], 0, 0, 0), -EBUSY);
	assert_int_equal(core_do(core, MM_XOP_STORE_DROP, 0, STORE, 0, 0, 0), -EBUSY);
	assert_int_equal(core_do(core, MM_XOP_DETACH, 0, TENANT, 0, 0, 0), 0);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, slot_page[0], 0, 0, 0), 0);
	assert_int_equal(core_do(core, MM_XOP_STORE_DROP, 0, STORE, 0, 0, 0), 0);
	assert_int_equal(plan_activate(core, 2), -ENOENT);
}

/* A plan with one wrong value is refused, and the next good one is served. */
static void plan_corrupt(struct core *core, size_t which)
{
	struct mm_xplan_region *plan = core->plan.base;

	switch (which) {
	case 0:
		plan->n_layers = MM_LAYERS_MAX + 1;
		break;
	case 1:
		plan->n_slots = MM_SLOTS_MAX + 1;
		break;
	case 2:
		plan->slot[0].n_layers = 1; /* one layer is ambiguous */
		break;
	case 3:
		plan->slot[0].n_layers = LAYERS + 1;
		break;
	case 4:
		plan->slot[0].n_pages = 0;
		break;
	case 5:
		plan->slot[0].n_pages = MM_SLOT_PAGES_MAX + 1;
		break;
	case 6:
		plan->slot[0].page[1] = 32; /* pages are 0 to 31 */
		break;
	case 7:
		plan->slot[0].layer[1] = LAYERS;
		break;
	case 8:
		plan->slot[0].layer[1] = cycle[0]; /* the same layer twice */
		break;
	case 9:
		plan->layer[3].bytes = PLAN_PAGES * GRANULE + 1;
		break;
	case 10:
		plan->layer[3].store_offset = LAYERS * STRIDE - LAYER_BYTES + 1;
		break;
	case 11:
		plan->layer[3].store_offset = UINT64_MAX - 8;
		break;
	case 12:
		cursor_at(core)->pos = 3;
		break;
	case 13:
		cursor_at(core)->state = 2;
		break;
	case 14:
		cursor_at(core)->epoch = 77;
		break;
	default:
		fail();
	}
}

static void test_bad_plans(void **state)
{
	struct core *core = *state;

	plan_prepare(core);
	for (size_t i = 0; i <= 14; i++) {
		int r;

		write_plan(core, 1);
		plan_corrupt(core, i);
		r = plan_activate(core, 1);
		if (r != -EINVAL)
			fail_msg("plan %zu: %d", i, r);
	}
	write_plan(core, 1);
	((struct mm_xplan_region *)core->plan.base)->store_id = 99;
	assert_int_equal(plan_activate(core, 1), -ENOENT);
	write_plan(core, 1);
	assert_int_equal(plan_activate(core, 1), 0);
}

static uint64_t tenant_done(struct tenant *t)
{
	return __atomic_load_n(&t->done, __ATOMIC_ACQUIRE);
}

/* The tenant runs on while xfer is killed at random moments: no wrong layer, no hang. */
static void test_kills(void **state)
{
	struct core *core = *state;
	struct tenant t = { .core = core };
	const char *seed_text = getenv("MM_TEST_SEED");
	unsigned int seed = seed_text ? (unsigned int)atoi(seed_text) : (unsigned int)getpid();
	uint64_t before;

	print_message("seed=%u\n", seed);
	core->setup.chunk_bytes = GRANULE / 2;
	plan_prepare(core);
	assert_int_equal(plan_activate(core, 1), 0);
	tenant_start(&t);
	for (int kills = 0; kills < (int)rounds_of(100) && !t.failure[0]; kills++) {
		usleep((unsigned int)rand_r(&seed) % 4000);
		xfer_restart(&t);
	}
	before = tenant_done(&t);
	while (tenant_done(&t) < before + 50 && !t.failure[0])
		usleep(1000);
	__atomic_store_n(&t.stop, true, __ATOMIC_RELEASE);
	tenant_join(&t);
	print_message("%lu steps over %lu kills\n", t.done, rounds_of(100));
}

/* Random words in the gates spoil this tenant's results only; xfer serves on. */
static void test_hostile_gates(void **state)
{
	struct core *core = *state;
	struct mm_gate_region *gates;
	struct tenant t = { .core = core };
	unsigned int seed = 3;

	plan_prepare(core);
	assert_int_equal(plan_activate(core, 1), 0);
	gates = core->gates.base;
	for (int i = 0; i < 200000; i++) {
		uint32_t layer = (uint32_t)rand_r(&seed) % LAYERS;

		__atomic_store_n(&gates->gate[layer].low, (uint32_t)rand_r(&seed) % 8,
				 __ATOMIC_RELAXED);
		__atomic_store_n(&gates->step_seq, (uint64_t)rand_r(&seed), __ATOMIC_RELAXED);
	}
	assert_int_equal(plan_quiesce(core, 1), 0);
	write_plan(core, 2);
	assert_int_equal(plan_activate(core, 2), 0);
	assert_true(wait_gate(&t, cycle[0]));
	assert_true(layer_verify(&t, cycle[0]));
}

/* A disk that holds less than it should is reported to core once; all else goes on. */
static void test_disk_fails(void **state)
{
	struct core *core = *state;
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);
	char path[32];

	plan_prepare(core);
	if (core->disk_fd < 0)
		skip();
	assert_int_equal(core_do(core, MM_XOP_COPY, 0, 0, STORE, GRANULE, 8), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", core->disk_fd);
	assert_int_equal(truncate(path, 4096), 0);
	assert_int_equal(plan_activate(core, 1), 0);
	while (!core->failed_tenant) {
		assert_true(mm_now_ns() < until_ns);
		assert_int_equal(mm_sock_wait(core->sock, POLLIN, until_ns), 0);
		core_collect(core);
	}
	assert_int_equal(core->failed_tenant, TENANT);
	assert_int_equal(core->failed_result, -EREMOTEIO);
	/* No gate showed READY for that layer. */
	assert_int_equal(gate_low(core, cycle[0]), MM_GATE_EMPTY);
	assert_int_equal(cursor_state(core), MM_CUR_COPYING);
	assert_int_equal(core_do(core, MM_XOP_COPY, 0, 0, STORE, GRANULE, 8), -EREMOTEIO);
	assert_int_equal(core_do(core, MM_XOP_COPY, 0, 0, STORE, 0, 8), 0);
	assert_int_equal(core_do(core, MM_XOP_SCRUB, 0, 0, 0, 0, 0), 0);
	assert_int_equal(plan_quiesce(core, 1), 0);
	assert_int_equal(core_do(core, MM_XOP_DETACH, 0, TENANT, 0, 0, 0), 0);
	assert_int_equal(core_do(core, MM_XOP_STORE_DROP, 0, STORE, 0, 0, 0), 0);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, core_setup, core_teardown)
	const struct CMUnitTest tests[] = {
		T(test_rounds),        T(test_two_slots),  T(test_idle_tenant), T(test_instants),
		T(test_quiesce),       T(test_epochs),     T(test_bad_plans),   T(test_kills),
		T(test_hostile_gates), T(test_disk_fails),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
