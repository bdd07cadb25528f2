/* SPDX-License-Identifier: Apache-2.0 */
/* Turns in the client: when a step may begin, and when the turn is given back. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"
#include "libclient/support/fault.h"

static void turn_join(struct fixture *f, enum mm_turn_mode mode)
{
	const struct mm_turn_opts opts = { .size = sizeof(opts), .mode = mode, .priority = 2 };
	struct mm_msg msg;

	assert_int_equal(mm_turn_join(f->client, &opts), 0);
	msg = peer_expect(f->peer, MM_OP_TURN_JOIN);
	assert_int_equal(msg.arg[0], mode);
	assert_int_equal(msg.arg[2], 2);
}

static void turn_begin(struct fixture *f, uint64_t serial)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN, .arg = { serial } });
	fixture_event(f, MM_EVENT_TURN_BEGIN);
}

static void turn_end(struct fixture *f, uint64_t serial, int result)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_END,
					      .result = result,
					      .arg = { serial, 77 } });
	assert_int_equal(fixture_event(f, MM_EVENT_TURN_END).deadline_ns, 77);
}

static void step_run(struct fixture *f)
{
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

static void test_who_did_not_join_never_waits(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mm_turn_want(f->client, 0), 0);
	step_run(f);
	peer_absent(f->peer, MM_OP_TURN_WANT, 20);
}

static void test_asks_once(void **state)
{
	struct fixture *f = *state;

	turn_join(f, MM_TURN_QUANTUM);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
	peer_expect(f->peer, MM_OP_TURN_WANT);
	peer_absent(f->peer, MM_OP_TURN_WANT, 20);
	turn_begin(f, 4);
	assert_int_equal(mm_turn_want(f->client, 0), 0);
	step_run(f);
	step_run(f);
}

static int call_turn_want(struct call *call)
{
	return mm_turn_want(call->f->client, call->timeout_ns);
}

static void begin_unwatched(struct fixture *f, uint64_t serial)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN, .arg = { serial } });
}

static void give_back(struct fixture *f, uint64_t serial)
{
	assert_int_equal(mm_turn_yield(f->client), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], serial);
}

/* A call that has waited gets no event, unless another call was promised one. */
static void test_waits_for_its_turn(void **state)
{
	int (*const calls[])(struct call *) = { call_turn_want, call_step_begin };
	struct fixture *f = *state;
	struct mm_event event = { .size = sizeof(event) };
	uint64_t serial = 1;

	turn_join(f, MM_TURN_QUANTUM);
	for (size_t i = 0; i < MM_ARRAY_SIZE(calls); i++) {
		for (int watched = 0; watched <= 1; watched++, serial++) {
			struct call call = { .timeout_ns = MM_TIMEOUT_NEVER };

			if (watched)
				assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
			call_start(&call, f, calls[i]);
			peer_expect(f->peer, MM_OP_TURN_WANT);
			if (watched)
				pause_ms(10); /* the thread waits, or will */
			begin_unwatched(f, serial);
			assert_int_equal(call_join(&call), 0);
			if (watched)
				fixture_event(f, MM_EVENT_TURN_BEGIN);
			assert_int_equal(mm_client_next_event(f->client, &event), -EAGAIN);
			if (calls[i] == call_step_begin)
				assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
			give_back(f, serial);
		}
	}
}

static void test_goes_back_after_the_step(void **state)
{
	struct fixture *f = *state;

	turn_join(f, MM_TURN_QUANTUM);
	mm_turn_want(f->client, 0);
	turn_begin(f, 9);
	assert_int_equal(mm_step_begin(f->client), 0);
	turn_end(f, 9, 0);
	peer_absent(f->peer, MM_OP_TURN_DONE, 20);
	assert_int_equal(mm_turn_yield(f->client), -EBUSY);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], 9);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
}

/* Each turn allows one step at least; between steps it is given back at once. */
static void test_unused_and_between_steps(void **state)
{
	struct fixture *f = *state;

	turn_join(f, MM_TURN_QUANTUM);
	turn_begin(f, 1);
	turn_end(f, 1, 0);
	peer_absent(f->peer, MM_OP_TURN_DONE, 20);
	step_run(f);
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], 1);
	turn_begin(f, 2);
	step_run(f);
	turn_end(f, 2, 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], 2);
}

static void test_taken_away(void **state)
{
	struct fixture *f = *state;

	turn_join(f, MM_TURN_DRAIN);
	turn_begin(f, 1);
	assert_int_equal(mm_step_begin(f->client), 0);
	turn_end(f, 1, -ETIMEDOUT);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_absent(f->peer, MM_OP_TURN_DONE, 20);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
}

static void test_no_work_no_turn(void **state)
{
	struct fixture *f = *state;

	turn_join(f, MM_TURN_DRAIN);
	turn_begin(f, 3);
	mm_client_hint(f->client,
		       &(struct mm_load_hint){ .size = sizeof(struct mm_load_hint), .running = 1 });
	peer_absent(f->peer, MM_OP_TURN_DONE, 20);
	mm_client_hint(f->client, &(struct mm_load_hint){ .size = sizeof(struct mm_load_hint) });
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], 3);
	turn_begin(f, 4);
	assert_int_equal(mm_turn_yield(f->client), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], 4);
	assert_int_equal(mm_turn_yield(f->client), 0);
	peer_absent(f->peer, MM_OP_TURN_DONE, 20);
}

static void test_leaving(void **state)
{
	struct fixture *f = *state;
	const struct mm_turn_opts bad[] = {
		{ .size = 3 },
		{ .size = sizeof(*bad), .mode = MM_TURN_MODES },
		{ .size = sizeof(*bad), .priority = MM_TURN_PRIORITY_MAX + 1 },
	};

	turn_join(f, MM_TURN_QUANTUM);
	turn_join(f, MM_TURN_NONE);
	step_run(f);
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++)
		assert_int_equal(mm_turn_join(f->client, &bad[i]), -EINVAL);
	assert_int_equal(mm_turn_join(f->client, NULL), -EINVAL);
}

/*
 * mmd drops the request when the tenant leaves: it is sent again, or the step would wait for ever.
 */
static void test_comes_back_and_asks_again(void **state)
{
	struct fixture *f = *state;

	turn_join(f, MM_TURN_QUANTUM);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
	peer_expect(f->peer, MM_OP_TURN_WANT);
	turn_join(f, MM_TURN_NONE);
	turn_join(f, MM_TURN_QUANTUM);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
	peer_expect(f->peer, MM_OP_TURN_WANT);
}

#define MODEL(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup_model, fixture_teardown)

#ifdef MM_FAULT_INJECTION
/*
 * A turn of which mmd does not hear that it is given back would be waited for by both. (Where the
 * service thread still looks at its socket, it is that which fails, and the client ends, too.)
 */
static void test_lost_message(void **state)
{
	struct fixture *f = *state;
	int r;

	turn_join(f, MM_TURN_DRAIN);
	turn_begin(f, 1);
	peer_absent(f->peer, MM_OP_TURN_DONE, 20);
	mm_fault_arm(1);
	mm_turn_yield(f->client);
	assert_true(mm_fault_fired());
	r = mm_turn_want(f->client, 60 * MM_NS_PER_S);
	assert_true(r < 0 && r != -ETIMEDOUT);
	assert_true(*mm_client_error(f->client));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		MODEL(test_who_did_not_join_never_waits),
		MODEL(test_asks_once),
		MODEL(test_waits_for_its_turn),
		MODEL(test_goes_back_after_the_step),
		MODEL(test_unused_and_between_steps),
		MODEL(test_taken_away),
		MODEL(test_no_work_no_turn),
#ifdef MM_FAULT_INJECTION
		MODEL(test_lost_message),
#endif
		MODEL(test_leaving),
		MODEL(test_comes_back_and_asks_again),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
