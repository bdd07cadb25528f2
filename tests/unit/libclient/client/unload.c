/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a model back: what is unmapped and when, what is refused, and the loads that follow. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/client/internal.h"
#include "mm/client_model.h"
#include "tests/unit/libclient/client/fixture.h"

static int call_unload(struct call *call)
{
	return mm_model_unload(call->f->model);
}

static void plan_prepare(struct fixture *f, uint64_t epoch)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = epoch });
	assert_int_equal(peer_expect(f->peer, MM_OP_PARKED).epoch, epoch);
}

static void table_clear(struct fixture *f)
{
	for (uint32_t entry = 0; entry <= PEER_LAYERS; entry++)
		peer_map(f->peer, entry, 0);
}

static void switch_empty(struct fixture *f, uint64_t epoch)
{
	table_clear(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
					      .epoch = epoch,
					      .arg = { 0, 0, MM_SWITCH_EMPTY } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
}

static void answer(struct fixture *f, const struct mm_msg *request, int result)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .result = result,
					      .user_data = request->user_data,
					      .arg = { request->opcode } });
}

/* mmd's part in taking the model back, as far as the answer. */
static void take_back(struct fixture *f, struct call *unload, uint64_t epoch)
{
	struct mm_msg request = peer_expect(f->peer, MM_OP_UNLOAD);

	plan_prepare(f, epoch);
	switch_empty(f, epoch);
	answer(f, &request, 0);
	if (call_join(unload))
		fail_msg("%s", unload->error);
	f->model = NULL;
}

static void step_with_layers(struct fixture *f)
{
	assert_int_equal(mm_step_begin(f->client), 0);
	for (uint32_t i = 0; i < PEER_LAYERS; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
	}
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* The memory is the device's again, once mmd has let go of it too. */
static void test_pages_are_let_go(void **state)
{
	struct fixture *f = *state;
	size_t before, after, total;
	struct call unload = { 0 };
	struct mm_client_info info = { .size = sizeof(info) };

	for (uint32_t page = 0; page <= PEER_LAYERS; page++)
		peer_drop_page(f->peer, page);
	f->peer->gpu.cuMemGetInfo(&before, &total);
	call_start(&unload, f, call_unload);
	take_back(f, &unload, 2);
	f->peer->gpu.cuMemGetInfo(&after, &total);
	assert_int_equal(after - before, (1 + PEER_LAYERS) * PEER_PAGE_BYTES);
	assert_int_equal(mm_client_info(f->client, &info), 0);
	assert_int_equal(info.plan_epoch, 0);
	/* A step without a model. */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

static void test_loads_that_follow(void **state)
{
	struct fixture *f = *state;
	uint16_t weights[PEER_LAYERS] = { 1, 2, 3, 4 };
	struct mm_gate_times *times;

	for (int i = 0; i < 4; i++) {
		struct call unload = { 0 };

		step_with_layers(f);
		assert_int_equal(mm_gate_times_open(f->model, &times), 0);
		assert_int_equal(mm_model_compute(f->model, weights, PEER_LAYERS), 0);
		assert_int_equal(f->peer->tenant->stats.compute[3], 4);
		call_start(&unload, f, call_unload);
		take_back(f, &unload, 2);
		assert_int_equal(f->peer->tenant->stats.compute[3], 0);
		fixture_load(f);
	}
	step_with_layers(f);
}

static void test_refused(void **state)
{
	struct fixture *f = *state;
	struct call unload = { 0 }, again = { 0 };
	struct mm_msg request;

	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_model_unload(f->model), -EBUSY);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_absent(f->peer, MM_OP_UNLOAD, 20);
	/* mmd refuses: the model is as before. */
	call_start(&unload, f, call_unload);
	request = peer_expect(f->peer, MM_OP_UNLOAD);
	answer(f, &request, -EBUSY);
	assert_int_equal(call_join(&unload), -EBUSY);
	step_with_layers(f);
	call_start(&unload, f, call_unload);
	request = peer_expect(f->peer, MM_OP_UNLOAD);
	call_start(&again, f, call_unload);
	assert_int_equal(call_join(&again), -EALREADY);
	assert_non_null(strstr(again.error, "thread"));
	/* No layer runs any more, though a step may. */
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), -EINVAL);
	assert_non_null(strstr(mm_client_error(f->client), "unloaded"));
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(mm_model_hold(f->model, MM_TIMEOUT_NEVER), -ENOENT);
	plan_prepare(f, 2);
	switch_empty(f, 2);
	answer(f, &request, 0);
	assert_int_equal(call_join(&unload), 0);
}

static int call_hold(struct call *call)
{
	return mm_model_hold(call->f->model, MM_TIMEOUT_NEVER);
}

static void test_held(void **state)
{
	struct fixture *f = *state;
	struct call hold = { 0 };
	struct mm_msg request;

	call_start(&hold, f, call_hold);
	request = peer_expect(f->peer, MM_OP_HOLD);
	assert_int_equal(mm_model_unload(f->model), -EBUSY);
	answer(f, &request, 0);
	assert_int_equal(call_join(&hold), 0);
	assert_int_equal(mm_model_unload(f->model), -EBUSY);
	assert_non_null(strstr(mm_client_error(f->client), "held"));
	peer_absent(f->peer, MM_OP_UNLOAD, 20);
}

/* A plan change that was under way ends first; its layers are mapped, then all are unmapped. */
static void test_behind_a_plan_change(void **state)
{
	struct fixture *f = *state;
	struct call unload = { 0 };
	struct mm_msg request;

	call_start(&unload, f, call_unload);
	request = peer_expect(f->peer, MM_OP_UNLOAD);
	plan_prepare(f, 2);
	peer_map(f->peer, 4, 3);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2, .arg = { 1, 2 } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).epoch, 2);
	plan_prepare(f, 3);
	switch_empty(f, 3);
	answer(f, &request, 0);
	assert_int_equal(call_join(&unload), 0);
	fixture_load(f);
	step_with_layers(f);
}

static void test_connection_dies(void **state)
{
	struct fixture *f = *state;
	struct call unload = { 0 };

	call_start(&unload, f, call_unload);
	peer_expect(f->peer, MM_OP_UNLOAD);
	plan_prepare(f, 2);
	peer_disconnect(f->peer);
	assert_int_equal(call_join(&unload), -ECONNRESET);
	assert_int_equal(mm_model_unload(f->model), -ECONNRESET);
}

/* mmd has the model go that nobody gave back. */
static void test_not_asked_for(void **state)
{
	struct fixture *f = *state;

	plan_prepare(f, 2);
	table_clear(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
					      .epoch = 2,
					      .arg = { 0, 0, MM_SWITCH_EMPTY } });
	fixture_event(f, MM_EVENT_DISCONNECTED);
	assert_int_equal(mm_step_begin(f->client), -EPROTO);
}

/* A plan without a model must not have layers that cycle. */
static void test_empty_plan_with_layers(void **state)
{
	struct fixture *f = *state;
	struct call unload = { 0 };

	call_start(&unload, f, call_unload);
	peer_expect(f->peer, MM_OP_UNLOAD);
	plan_prepare(f, 2);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
					      .epoch = 2,
					      .arg = { 1, 2, MM_SWITCH_EMPTY } });
	assert_int_equal(call_join(&unload), -EPROTO);
}

/* mmd takes its time: what was asked for goes on, and another call waits for its end. */
static void test_out_of_time(void **state)
{
	struct fixture *f = *state;
	const uint64_t timeout_ns = f->client->timeout_ns;
	struct call unload = { 0 };
	struct mm_msg request;

	f->client->timeout_ns = MM_NS_PER_S / 10;
	assert_int_equal(mm_model_unload(f->model), -ETIMEDOUT);
	assert_non_null(strstr(mm_client_error(f->client), "again"));
	f->client->timeout_ns = timeout_ns;
	request = peer_expect(f->peer, MM_OP_UNLOAD);
	plan_prepare(f, 2);
	switch_empty(f, 2);
	/* The answer comes when nobody waits; the next request finds no model. */
	answer(f, &request, 0);
	call_start(&unload, f, call_unload);
	request = peer_expect(f->peer, MM_OP_UNLOAD);
	answer(f, &request, -ENOENT);
	assert_int_equal(call_join(&unload), 0);
	fixture_load(f);
	step_with_layers(f);
}

static int setup_older(void **state)
{
	int r = fixture_setup_model(state);
	struct fixture *f = *state;

	f->client->welcome.features &= ~MM_FEAT_UNLOAD;
	return r;
}

static void test_older_mmd(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mm_model_unload(f->model), -EOPNOTSUPP);
	peer_absent(f->peer, MM_OP_UNLOAD, 20);
	step_with_layers(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup_model, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_pages_are_let_go),
		TEST(test_loads_that_follow),
		TEST(test_refused),
		TEST(test_held),
		TEST(test_behind_a_plan_change),
		TEST(test_connection_dies),
		TEST(test_not_asked_for),
		TEST(test_empty_plan_with_layers),
		TEST(test_out_of_time),
		cmocka_unit_test_setup_teardown(test_older_mmd, setup_older, fixture_teardown),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
