/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that wait for an mmd that is slow, stopped for a while, or stopped for good. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "libclient/support/clock.h"
#include "mm/client_group.h"
#include "tests/unit/libclient/client/peer.h"

/* Long enough that silence is noticed: a ring after one second, and two more without a beat. */
#define TIMEOUT_NS (4 * MM_NS_PER_S)

struct asked {
	struct peer *peer;
	struct mm_client *client;
};

static struct asked asked_begin(bool beats)
{
	struct asked a = { .peer = peer_start() };
	struct mm_client_opts opts = peer_client_opts(a.peer);

	opts.timeout_ns = TIMEOUT_NS;
	a.peer->mmd->state.beat_ns = 5;
	__atomic_store_n(&a.peer->beats, beats, __ATOMIC_RELEASE);
	__atomic_store_n(&a.peer->manual, true, __ATOMIC_RELEASE);
	assert_int_equal(mm_client_open(&opts, &a.client, NULL, 0), 0);
	return a;
}

static void asked_end(struct asked *a)
{
	__atomic_store_n(&a->peer->manual, false, __ATOMIC_RELEASE);
	mm_client_close(a->client);
	peer_stop(a->peer);
}

static int join_turns(struct asked *a)
{
	const struct mm_turn_opts opts = { .size = sizeof(opts), .mode = MM_TURN_QUANTUM };

	return mm_turn_join(a->client, &opts);
}

/* An mmd that beats and does not answer has the client's timeout, and no more. */
static void test_slow(void **state)
{
	struct asked a = asked_begin(true);

	(void)state;
	assert_int_equal(join_turns(&a), -ETIMEDOUT);
	assert_null(strstr(mm_client_error(a.client), "restarting"));
	asked_end(&a);
}

/* One that is silent for good has as much again, and the sentence says so. */
static void test_silent(void **state)
{
	struct asked a = asked_begin(false);
	uint64_t begin_ns = mm_now_ns();

	(void)state;
	assert_int_equal(join_turns(&a), -ETIMEDOUT);
	assert_true(mm_now_ns() - begin_ns > TIMEOUT_NS + TIMEOUT_NS / 2);
	assert_non_null(strstr(mm_client_error(a.client), "is restarting"));
	asked_end(&a);
}

static void *answer_late(void *arg)
{
	/* Between the first timeout and the end of the second, and far from that. */
	const struct timespec late = mm_timespec(TIMEOUT_NS + TIMEOUT_NS / 8);
	struct asked *a = arg;
	struct mm_msg msg = peer_expect(a->peer, MM_OP_TURN_JOIN);

	nanosleep(&late, NULL);
	__atomic_store_n(&a->peer->beats, true, __ATOMIC_RELEASE);
	peer_event(a->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .user_data = msg.user_data,
					      .arg = { MM_OP_TURN_JOIN } });
	return NULL;
}

/* One that is silent for longer than the timeout, and then goes on, is waited for. */
static void test_stopped_for_a_while(void **state)
{
	struct asked a = asked_begin(false);
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, answer_late, &a), 0);
	assert_int_equal(join_turns(&a), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	asked_end(&a);
}

/* Whether it is a rank cannot be known then, so the client ends: it is not to be asked again. */
static void test_unknown_rank(void **state)
{
	struct asked a = asked_begin(true);

	(void)state;
	assert_int_equal(mm_group_join(a.client, "ranks", 0, 2, 0), -ETIMEDOUT);
	assert_int_equal(mm_group_join(a.client, "ranks", 0, 2, 0), -ECONNRESET);
	asked_end(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_stopped_for_a_while),
		cmocka_unit_test(test_unknown_rank),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
