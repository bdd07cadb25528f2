/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that run on: the next one begins at once, and plans, voids and ends find them. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/client/internal.h"
#include "libclient/base/base.h"

#define LONG (180 * MM_NS_PER_S)

/* A step with all layers, which ends by itself once mmd has brought layer 3. */
static uint64_t submitted_step(struct fixture *f)
{
	uint64_t number = 0;

	assert_int_equal(mm_step_begin(f->client), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
	}
	assert_int_equal(mm_step_end_async(f->client, f->stream, &number), 0);
	return number;
}

/* mmd's part before the next step: layer 1 is in the slot again. */
static void bring_layer_1(struct fixture *f)
{
	while (!(shared(&f->peer->gates->gate[3].word) & MM_GATE_DONE))
		pause_ms(1);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_gate(f->peer, 1, MM_GATE_READY);
}

static int step_outcome(struct fixture *f, uint64_t number, uint64_t timeout_ns)
{
	struct mm_step_info info = { .size = sizeof(info) };
	int r = mm_step_wait(f->client, number, timeout_ns, &info);

	if (!r)
		assert_int_equal(info.gated, 2);
	return r;
}

static void test_two_at_once(void **state)
{
	struct fixture *f = *state;
	uint64_t first, second;

	cycle_two(f);
	first = submitted_step(f);
	assert_int_equal(step_outcome(f, first, 0), -ETIMEDOUT);
	second = submitted_step(f);
	assert_int_equal(second, first + 1);
	assert_int_equal(mm_step_begin(f->client), -EBUSY);
	bring_layer_3(f);
	assert_int_equal(fixture_event(f, MM_EVENT_STEP_ENDED).count, 1);
	assert_int_equal(shared(&f->peer->tenant->stats.steps), 1);
	assert_int_equal(shared(&f->peer->gates->step_seq) % 2, 1);
	assert_int_equal(step_outcome(f, second, 0), -ETIMEDOUT);
	assert_int_equal(step_outcome(f, first, 0), 0);
	assert_int_equal(step_outcome(f, first, 0), -ENOENT);
	bring_layer_1(f);
	bring_layer_3(f);
	assert_int_equal(step_outcome(f, second, LONG), 0);
	assert_int_equal(shared(&f->peer->tenant->stats.steps), 2);
	assert_int_equal(shared(&f->peer->gates->step_seq) % 2, 0);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
}

/* Many, always two in flight: each has its outcome, in order. */
static void test_many(void **state)
{
	struct fixture *f = *state;
	uint64_t before = 0;

	cycle_two(f);
	for (uint32_t i = 0; i < 100; i++) {
		uint64_t number = submitted_step(f);

		if (i)
			bring_layer_1(f);
		bring_layer_3(f);
		if (before)
			assert_int_equal(step_outcome(f, before, LONG), 0);
		before = number;
	}
	assert_int_equal(step_outcome(f, before, LONG), 0);
	assert_int_equal(shared(&f->peer->tenant->stats.steps), 100);
}

/* A plan change waits for the step that runs, and for no call of the engine. */
static void test_parked_by_itself(void **state)
{
	struct fixture *f = *state;
	struct call begin = { 0 };
	uint64_t number;

	cycle_two(f);
	number = submitted_step(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_absent(f->peer, MM_OP_PARKED, 30);
	call_start(&begin, f, call_step_begin);
	bring_layer_3(f);
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).arg[0], 0);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_RESIDENT);
	peer_gate(f->peer, 1, MM_GATE_READY);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3, .arg = { 1, 2 } });
	assert_int_equal(call_join(&begin), 0);
	assert_int_equal(step_outcome(f, number, LONG), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* A void reaches to the end of all that was begun. */
static void test_a_void_is_for_both(void **state)
{
	struct fixture *f = *state;
	uint64_t first, second;

	cycle_two(f);
	first = submitted_step(f);
	second = submitted_step(f);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		__atomic_fetch_or(&f->peer->gates->gate[i].word, MM_GATE_ABORT, __ATOMIC_SEQ_CST);
	assert_int_equal(step_outcome(f, first, LONG), -ECANCELED);
	assert_int_equal(step_outcome(f, second, LONG), -ECANCELED);
}

static void test_abandoned_behind_one(void **state)
{
	struct fixture *f = *state;
	uint64_t first;

	cycle_two(f);
	first = submitted_step(f);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(mm_step_abandon(f->client, f->stream), 0);
	assert_int_equal(step_outcome(f, first, LONG), -ECANCELED);
	null_change(f, 3);
	first = submitted_step(f);
	bring_layer_3(f);
	assert_int_equal(step_outcome(f, first, LONG), 0);
}

static void test_the_connection_ends(void **state)
{
	struct fixture *f = *state;
	uint64_t first, second;

	cycle_two(f);
	first = submitted_step(f);
	second = submitted_step(f);
	peer_disconnect(f->peer);
	assert_int_equal(step_outcome(f, first, LONG), -ECONNRESET);
	assert_int_equal(step_outcome(f, second, LONG), -ECONNRESET);
	assert_int_equal(step_outcome(f, second, LONG), -ENOENT);
}

/* Layers that the step leaves are passed over; one without an end is the engine's mistake. */
static void test_left_layers(void **state)
{
	struct fixture *f = *state;
	uint64_t number;

	cycle_two(f);
	assert_int_equal(mm_step_end_async(f->client, f->stream, &number), -EINVAL);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(mm_step_end_async(f->client, f->stream, &number), -EINVAL);
	assert_int_equal(mm_layer_end(f->model, 0, f->stream), 0);
	assert_int_equal(mm_step_end_async(f->client, f->stream, &number), 0);
	bring_layer_3(f);
	assert_int_equal(mm_step_wait(f->client, number, LONG, NULL), 0);
	assert_int_equal(shared(&f->peer->gates->gate[3].word), MM_GATE_DONE);
	assert_int_equal(mm_step_wait(f->client, number + 1, 0, NULL), -ENOENT);
	peer_absent(f->peer, MM_OP_RESYNC, 1);
}

/* It ends on all of its streams. */
static void test_streams(void **state)
{
	struct fixture *f = *state;
	uint32_t gate = 0;
	CUstream stream;
	uint64_t number;
	CUdeviceptr va;

	assert_int_equal(f->peer->gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), 0);
	assert_int_equal(
		f->peer->gpu.cuMemHostRegister(&gate, sizeof(gate), CU_MEMHOSTREGISTER_DEVICEMAP),
		0);
	assert_int_equal(f->peer->gpu.cuMemHostGetDevicePointer(&va, &gate, 0), 0);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_join(f->client, stream), 0);
	assert_int_equal(f->peer->gpu.cuStreamWaitValue32(stream, va, 1, CU_STREAM_WAIT_VALUE_EQ),
			 0);
	assert_int_equal(mm_step_end_async(f->client, f->stream, &number), 0);
	assert_int_equal(mm_step_wait(f->client, number, 30 * MM_NS_PER_MS, NULL), -ETIMEDOUT);
	__atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
	assert_int_equal(mm_step_wait(f->client, number, LONG, NULL), 0);
	f->peer->gpu.cuMemHostUnregister(&gate);
	f->peer->gpu.cuStreamDestroy(stream);
}

#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_two_at_once),          MODEL(test_many),
		MODEL(test_parked_by_itself),     MODEL(test_a_void_is_for_both),
		MODEL(test_abandoned_behind_one), MODEL(test_the_connection_ends),
		MODEL(test_left_layers),          MODEL(test_streams),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
