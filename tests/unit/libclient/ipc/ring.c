/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "libclient/ipc/ring.h"
#include "libclient/base/base.h"

#define SLOTS 8

struct pair {
	struct mm_cursor tail;
	struct mm_cursor head;
	mm_msg_slot slots[SLOTS];
	struct mm_ring producer;
	struct mm_ring consumer;
};

static struct pair *pair_create(uint32_t start)
{
	struct pair *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	mm_ring_init(&p->producer, p->slots, SLOTS, &p->tail, &p->head);
	mm_ring_init(&p->consumer, p->slots, SLOTS, &p->head, &p->tail);
	p->producer.mine = p->consumer.mine = start;
	p->tail.value = p->head.value = start;
	return p;
}

static void test_order_and_bounds(void **state)
{
	/* With the second start the cursors wrap in the middle of a full ring. */
	static const uint32_t starts[] = { 0, UINT32_MAX - 3, 5 };

	(void)state;
	for (size_t s = 0; s < MM_ARRAY_SIZE(starts); s++) {
		struct pair *p = pair_create(starts[s]);
		struct mm_msg msg = { 0 };

		assert_int_equal(mm_ring_pop(&p->consumer, &msg), MM_E_EMPTY);
		for (uint64_t i = 0; i < SLOTS; i++) {
			msg = (struct mm_msg){ .opcode = 1, .user_data = i, .arg = { ~i } };
			assert_int_equal(mm_ring_push(&p->producer, &msg), 0);
		}
		assert_int_equal(mm_ring_push(&p->producer, &msg), MM_E_FULL);
		assert_int_equal(mm_ring_ready(&p->consumer), SLOTS);
		for (uint64_t i = 0; i < SLOTS; i++) {
			assert_int_equal(mm_ring_pop(&p->consumer, &msg), 0);
			assert_int_equal(msg.user_data, i);
			assert_true(msg.arg[0] == ~i);
			assert_int_equal(msg.opcode, 1);
		}
		assert_int_equal(mm_ring_ready(&p->consumer), 0);
		free(p);
	}
}

static void test_hostile_cursor(void **state)
{
	static const struct {
		const char *name;
		uint32_t mine, peer;
		int push, pop;
	} cases[] = {
		{ "peer far ahead of the tail", 0, 1000, MM_E_PROTOCOL, MM_E_PROTOCOL },
		{ "consumer ahead by one", 0, 1, MM_E_PROTOCOL, 0 },
		{ "producer more than full", 0, SLOTS + 1, MM_E_PROTOCOL, MM_E_PROTOCOL },
		{ "producer runs backwards", 4, 3, 0, MM_E_PROTOCOL },
		{ "exactly full", SLOTS, 0, MM_E_FULL, MM_E_PROTOCOL },
	};
	struct mm_msg msg = { 0 };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct pair *p = pair_create(cases[i].mine);

		print_message("%s\n", cases[i].name);
		p->head.value = cases[i].peer;
		assert_int_equal(mm_ring_push(&p->producer, &msg), cases[i].push);
		p->tail.value = cases[i].peer;
		assert_true(mm_ring_ready(&p->consumer) <= SLOTS);
		assert_int_equal(mm_ring_pop(&p->consumer, &msg), cases[i].pop);
		free(p);
	}
}

/* The published cursor is only a copy: a peer that overwrites it changes nothing. */
static void test_scribbled_mirror(void **state)
{
	struct pair *p = pair_create(0);
	struct mm_msg msg = { .user_data = 7 };

	(void)state;
	p->tail.value = 12345;
	assert_int_equal(mm_ring_push(&p->producer, &msg), 0);
	assert_int_equal(p->tail.value, 1);
	assert_int_equal(mm_ring_pop(&p->consumer, &msg), 0);
	assert_int_equal(msg.user_data, 7);
	free(p);
}

/*
 * Number of messages to send. Where other processes use the processors, each full or empty ring
 * costs a switch, which takes as long as the others may compute.
 */
static uint64_t rounds_wanted(void)
{
	const char *is_long = getenv("MM_TEST_LONG");

	return is_long && *is_long ? 1000000 : 20000;
}

static void *ring_produce(void *arg)
{
	const uint64_t n = rounds_wanted();
	struct pair *p = arg;

	for (uint64_t i = 0; i < n;) {
		struct mm_msg msg = { .user_data = i, .arg = { i * 3, i * 5, i * 7, ~i } };

		if (mm_ring_push(&p->producer, &msg) == 0)
			i++;
		else
			sched_yield(); /* both ends may share a processor */
	}
	return NULL;
}

static void test_two_threads(void **state)
{
	struct pair *p = pair_create(UINT32_MAX - 1000);
	const uint64_t n = rounds_wanted();
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, ring_produce, p), 0);
	for (uint64_t i = 0; i < n;) {
		struct mm_msg msg;
		int r = mm_ring_pop(&p->consumer, &msg);

		if (r == MM_E_EMPTY) {
			sched_yield();
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(msg.user_data, i);
		assert_true(msg.arg[0] == i * 3 && msg.arg[1] == i * 5);
		assert_true(msg.arg[2] == i * 7 && msg.arg[3] == ~i);
		i++;
	}
	pthread_join(thread, NULL);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_and_bounds),
		cmocka_unit_test(test_hostile_cursor),
		cmocka_unit_test(test_scribbled_mirror),
		cmocka_unit_test(test_two_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
