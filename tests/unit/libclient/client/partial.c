/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that is mapped while steps go on: which steps and layers may run meanwhile. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/client/internal.h"
#include "libclient/support/clock.h"

/* The driver's unmapping, which a test can hold up, and its mapping, which it can make fail. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool held, waiting;
	int let_through; /* failures still to come */
	int map_failures;
	CUresult (*unmap)(CUdeviceptr va, size_t bytes);
	CUresult (*map)(CUdeviceptr va, size_t bytes, size_t offset,
			CUmemGenericAllocationHandle handle, unsigned long long flags);
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static CUresult slow_unmap(CUdeviceptr va, size_t bytes)
{
	pthread_mutex_lock(&driver.lock);
	if (driver.let_through)
		driver.let_through--;
	else
		driver.waiting = true;
	pthread_cond_broadcast(&driver.changed);
	while (driver.held && driver.waiting)
		pthread_cond_wait(&driver.changed, &driver.lock);
	pthread_mutex_unlock(&driver.lock);
	return driver.unmap(va, bytes);
}

static CUresult failing_map(CUdeviceptr va, size_t bytes, size_t offset,
			    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	if (driver.map_failures && driver.map_failures--)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return driver.map(va, bytes, offset, handle, flags);
}

static void hold_driver(struct fixture *f)
{
	struct mm_gpu_api *gpu = &f->client->gpu_own;

	mm_map_lock_take(&f->client->map_lock);
	driver.unmap = gpu->cuMemUnmap;
	gpu->cuMemUnmap = slow_unmap;
	driver.held = true;
	driver.waiting = false;
	driver.let_through = 0;
	mm_map_lock_give(&f->client->map_lock);
}

static void await_driver(void)
{
	pthread_mutex_lock(&driver.lock);
	while (!driver.waiting)
		pthread_cond_wait(&driver.changed, &driver.lock);
	pthread_mutex_unlock(&driver.lock);
}

static void let_driver_go(void)
{
	pthread_mutex_lock(&driver.lock);
	driver.held = false;
	pthread_cond_broadcast(&driver.changed);
	pthread_mutex_unlock(&driver.lock);
}

static uint64_t gate_word(struct fixture *f, uint32_t layer)
{
	return __atomic_load_n(&f->peer->gates->gate[layer].word, __ATOMIC_ACQUIRE);
}

static const struct mm_msg prepare = { .opcode = MM_EV_PREPARE, .epoch = 2 };
static const struct mm_msg go_on = { .opcode = MM_EV_SWITCH,
				     .epoch = 2,
				     .arg = { 1, 2, MM_SWITCH_PARTIAL } };

/* Layer 3 moves to the page of layer 1: layer 1 stays open, layer 3 is closed. */
static void begin_change(struct fixture *f)
{
	struct mm_msg parked;

	peer_event(f->peer, &prepare);
	parked = peer_expect(f->peer, MM_OP_PARKED);
	assert_int_equal(parked.arg[0], 0);
	peer_map(f->peer, 4, 3);
	peer_gate(f->peer, 1, MM_GATE_READY);
	peer_gate(f->peer, 3, MM_GATE_EMPTY);
	peer_event(f->peer, &go_on);
}

static void enqueue_layers(struct fixture *f)
{
	for (uint32_t i = 0; i < PEER_LAYERS; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
	}
}

static void await_gate(struct fixture *f, uint32_t layer, uint64_t bits)
{
	while (!(gate_word(f, layer) & bits))
		pause_ms(1);
}

/* Waits until the stream waits at the layer's gate, in a step that is timed at each layer. */
static void await_stream_at(struct fixture *f, uint32_t layer)
{
	CUevent before;
	CUresult res;

	mm_client_lock_take(&f->client->lock);
	before = f->client->step_list->events[2 * layer];
	mm_client_lock_give(&f->client->lock);
	while ((res = f->peer->gpu.cuEventQuery(before)) == CUDA_ERROR_NOT_READY)
		pause_ms(1);
	assert_int_equal(res, 0);
}

static uint8_t layer_byte(struct fixture *f, uint32_t layer)
{
	char name[16];
	struct mm_tensor tensor = { .size = sizeof(tensor) };

	snprintf(name, sizeof(name), "layer.%u", layer);
	assert_int_equal(mm_model_tensor(f->model, name, &tensor), 0);
	return fixture_read(f, tensor.va);
}

static void test_steps_go_on(void **state)
{
	struct fixture *f = *state;
	struct mm_client_info info = { .size = sizeof(info) };
	struct call end = { 0 };

	hold_driver(f);
	begin_change(f);
	await_driver();
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_client_info(f->client, &info), 0);
	assert_int_equal(info.plan_epoch, 2);
	assert_int_equal(info.layers_cycling, 2);
	assert_true(info.plan_held_ns > 0);
	enqueue_layers(f);
	call_start(&end, f, call_step_end);
	await_gate(f, 2, MM_GATE_DONE);
	assert_int_equal(gate_word(f, 1), MM_GATE_DONE);
	await_stream_at(f, 3);
	peer_absent(f->peer, MM_OP_COMMITTED, 20);
	assert_int_equal(gate_word(f, 3), MM_GATE_EMPTY);
	let_driver_go();
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	fixture_event(f, MM_EVENT_PLAN_CHANGED);
	assert_int_equal(layer_byte(f, 3), layer_byte(f, 1));
	peer_gate(f->peer, 3, MM_GATE_READY);
	assert_int_equal(call_join(&end), 0);
	assert_int_equal(end.info.gated, 2);
	/* The wait at a layer that was being mapped is timed. */
	assert_in_range(end.info.stall_ns, 15 * MM_NS_PER_MS, end.info.step_ns);
}

/* Layers 0 and 3 both move: MAPPED after the first lets the step go on to the second. */
static void test_layer_by_layer(void **state)
{
	struct fixture *f = *state;
	struct mm_msg mapped;
	struct call end = { 0 };

	hold_driver(f);
	driver.let_through = 1;
	peer_map(f->peer, 1, 3);
	peer_gate(f->peer, 0, MM_GATE_EMPTY);
	begin_change(f);
	await_driver();
	mapped = peer_expect(f->peer, MM_OP_MAPPED);
	assert_int_equal(mapped.epoch, 2);
	assert_int_equal(mapped.arg[0], 1);
	peer_absent(f->peer, MM_OP_COMMITTED, 10);
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f);
	call_start(&end, f, call_step_end);
	assert_int_equal(layer_byte(f, 0), layer_byte(f, 1));
	peer_gate(f->peer, 0, MM_GATE_READY);
	await_gate(f, 2, MM_GATE_DONE);
	let_driver_go();
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	peer_gate(f->peer, 3, MM_GATE_READY);
	assert_int_equal(call_join(&end), 0);
}

static int call_abandon(struct call *call)
{
	return mm_step_abandon(call->f->client, call->f->stream);
}

/*
 * Begins a step, enqueues all its layers and starts @act in another thread, while
 * the driver holds up the mapping of a change.
 */
static void act_during_change(struct fixture *f, struct call *call, int (*act)(struct call *))
{
	hold_driver(f);
	begin_change(f);
	await_driver();
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f);
	call_start(call, f, act);
	await_gate(f, 2, MM_GATE_DONE);
}

/* Aborted gates would let the stream access layer 3, where no page is mapped at that moment. */
static void test_abandoning_waits_for_the_mapping(void **state)
{
	struct fixture *f = *state;
	struct call call = { 0 };

	act_during_change(f, &call, call_abandon);
	pause_ms(20);
	assert_int_equal(gate_word(f, 3), MM_GATE_EMPTY);
	let_driver_go();
	assert_int_equal(call_join(&call), 0);
	peer_expect(f->peer, MM_OP_COMMITTED);
	peer_expect(f->peer, MM_OP_RESYNC);
}

static void test_death_waits_for_the_mapping(void **state)
{
	struct fixture *f = *state;
	struct call end = { 0 };

	act_during_change(f, &end, call_step_end);
	mm_link_fail(f->client, -EPROTO, "for the test");
	pause_ms(20);
	assert_int_equal(gate_word(f, 3), MM_GATE_EMPTY);
	let_driver_go();
	assert_int_equal(call_join(&end), -EPROTO);
	assert_int_equal(layer_byte(f, 3), layer_byte(f, 1));
}

/* The connection died before the SWITCH: gates are aborted, so that the plan is not mapped. */
static void test_the_dead_map_nothing(void **state)
{
	struct fixture *f = *state;
	uint8_t before = layer_byte(f, 3);

	peer_event(f->peer, &prepare);
	peer_expect(f->peer, MM_OP_PARKED);
	mm_link_fail(f->client, -EPROTO, "for the test");
	peer_map(f->peer, 4, 3);
	peer_event(f->peer, &go_on);
	fixture_event(f, MM_EVENT_DISCONNECTED);
	mm_service_stop(f->client);
	assert_int_equal(layer_byte(f, 3), before);
}

/* Where mapping failed some page is mapped, because the gates will be aborted. */
static void test_mapping_fails(void **state)
{
	struct fixture *f = *state;
	struct mm_gpu_api *gpu = &f->client->gpu_own;

	mm_map_lock_take(&f->client->map_lock);
	driver.map = gpu->cuMemMap;
	gpu->cuMemMap = failing_map;
	driver.map_failures = 1;
	mm_map_lock_give(&f->client->map_lock);
	begin_change(f);
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, -ENOMEM);
	layer_byte(f, 3); /* does not fault */
	assert_int_equal(mm_step_begin(f->client), 0);
	enqueue_layers(f);
	peer_disconnect(f->peer);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), -ECONNRESET);
}

/* The gates are out of order: mmd is informed before PARKED and by it. */
static void test_parked_says_that_a_step_broke_off(void **state)
{
	struct fixture *f = *state;
	struct mm_msg msg = prepare;

	begin_change(f);
	peer_expect(f->peer, MM_OP_COMMITTED);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(mm_layer_end(f->model, 0, f->stream), 0);
	msg.epoch = 3;
	peer_event(f->peer, &msg);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).arg[0], MM_PARKED_BROKEN);
	peer_expect(f->peer, MM_OP_RESYNC);
	/* Only a change that puts them in order is accepted. */
	msg = go_on;
	msg.epoch = 3;
	peer_event(f->peer, &msg);
	assert_int_equal(fixture_event(f, MM_EVENT_PLAN_CHANGED).count, 1);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

static void test_out_of_order(void **state)
{
	struct fixture *f = *state;

	peer_event(f->peer, &go_on); /* there was no PARKED for it */
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

static void test_unknown_flags(void **state)
{
	struct fixture *f = *state;
	struct mm_msg msg = go_on;

	peer_event(f->peer, &prepare);
	peer_expect(f->peer, MM_OP_PARKED);
	msg.arg[2] = 3;
	peer_event(f->peer, &msg);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

/* ---- a SWITCH and the end cross ---- */

static void *close_main(void *client)
{
	return mm_client_close(client);
}

/*
 * Events that mmd sent before the engine closes its client are no error: BYE is sent, and its reply
 * awaited.
 */
static void end_as_it_switches(struct fixture *f, const struct mm_msg *switches)
{
	pthread_t closes;

	cycle_two(f);
	hold_driver(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	assert_int_equal(pthread_create(&closes, NULL, close_main, f->client), 0);
	await_driver(); /* the client is unmapping everything */
	peer_event(f->peer, switches);
	pause_ms(50);
	let_driver_go();
	peer_expect(f->peer, MM_OP_BYE);
	pthread_join(closes, NULL);
	f->client = NULL;
	peer_absent(f->peer, MM_OP_COMMITTED, 0);
}

static void test_end_as_it_switches(void **state)
{
	const struct mm_msg full = { .opcode = MM_EV_SWITCH, .epoch = 3, .arg = { 1, 2 } };

	end_as_it_switches(*state, &full);
}

static void test_end_as_it_switches_in_part(void **state)
{
	const struct mm_msg partial = { .opcode = MM_EV_SWITCH,
					.epoch = 3,
					.arg = { 1, 2, MM_SWITCH_PARTIAL } };

	end_as_it_switches(*state, &partial);
}

/*
 * The client is closed after it began the SWITCH and before it mapped: that is no failure of the
 * device.
 */
static void test_end_before_a_switch_is_mapped(void **state)
{
	struct fixture *f = *state;

	cycle_two(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	mm_map_lock_take(&f->client->map_lock);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3, .arg = { 1, 2 } });
	pause_ms(50);
	f->client->closing = true;
	mm_map_lock_give(&f->client->map_lock);
	peer_absent(f->peer, MM_OP_COMMITTED, 50);
	f->client = mm_client_close(f->client);
	peer_expect(f->peer, MM_OP_BYE);
}

/*
 * The client continues and will never map that model: mmd is informed, or its pages would stay in
 * use.
 */
static void test_switch_of_a_load_that_was_given_up(void **state)
{
	struct fixture *f = *state;

	mm_client_lock_take(&f->client->lock);
	f->client->model_phase = MM_CLIENT_MODEL_BROKEN;
	mm_client_lock_give(&f->client->lock);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3 });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, -ECANCELED);
}

/* Called with map_lock, as a load that is given up does, which would also destroy the model. */
static struct mm_model *take_model_away(struct fixture *f)
{
	struct mm_steps_out out = { 0 };
	struct mm_model *model;

	mm_client_lock_take(&f->client->lock);
	model = f->client->model;
	f->client->model = NULL;
	f->client->model_phase = MM_CLIENT_MODEL_NONE;
	mm_steps_drop_plan(&f->client->steps, &out);
	mm_step_out_perform(f->client, &out);
	mm_client_lock_give(&f->client->lock);
	return model;
}

static void put_model_back(struct fixture *f, struct mm_model *model)
{
	mm_client_lock_take(&f->client->lock);
	f->client->model = model;
	f->client->model_phase = MM_CLIENT_MODEL_READY;
	mm_client_lock_give(&f->client->lock);
}

static void await_switch_taken_up(struct fixture *f)
{
	bool taken_up = false;

	for (uint32_t ms = 0; !taken_up; ms++) {
		assert_true(ms < 180000);
		pause_ms(1);
		mm_client_lock_take(&f->client->lock);
		taken_up = f->client->steps.state == MM_STEPS_MAP;
		mm_client_lock_give(&f->client->lock);
	}
}

/* The model is removed after the SWITCH was begun and before it is mapped. */
static void test_model_gone_before_its_switch_is_mapped(void **state)
{
	const struct mm_msg full = { .opcode = MM_EV_SWITCH, .epoch = 2, .arg = { 1, 2 } };
	struct fixture *f = *state;
	uint8_t before = layer_byte(f, 3);
	struct mm_model *model;
	struct mm_msg answer;

	peer_event(f->peer, &prepare);
	peer_expect(f->peer, MM_OP_PARKED);
	peer_map(f->peer, 4, 3);
	mm_map_lock_take(&f->client->map_lock);
	peer_event(f->peer, &full);
	await_switch_taken_up(f);
	model = take_model_away(f);
	mm_map_lock_give(&f->client->map_lock);
	answer = peer_expect(f->peer, MM_OP_COMMITTED);
	put_model_back(f, model);
	assert_int_equal(answer.result, -ECANCELED);
	assert_int_equal(layer_byte(f, 3), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_steps_go_on),
		MODEL(test_layer_by_layer),
		MODEL(test_abandoning_waits_for_the_mapping),
		MODEL(test_death_waits_for_the_mapping),
		MODEL(test_the_dead_map_nothing),
		MODEL(test_mapping_fails),
		MODEL(test_parked_says_that_a_step_broke_off),
		MODEL(test_out_of_order),
		MODEL(test_unknown_flags),
		MODEL(test_end_as_it_switches),
		MODEL(test_end_as_it_switches_in_part),
		MODEL(test_end_before_a_switch_is_mapped),
		MODEL(test_switch_of_a_load_that_was_given_up),
		MODEL(test_model_gone_before_its_switch_is_mapped),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
