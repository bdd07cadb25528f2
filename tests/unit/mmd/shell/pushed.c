/* SPDX-License-Identifier: Apache-2.0 */
/* Which jobs an xfer has, also when core dies while it pushes one or handles a completion. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "mmd/shell/pushed.h"
#include "tests/unit/mmd/shell/stepped.h"

#define JOBS 12

/* Memory that is shared with xfer, and memory that outlives core. */
struct place {
	struct mm_xq_region ours, theirs;
	struct mm_pushed_kept kept;
	uint64_t journaled; /* the last job whose completion the core has; jobs end in order */
};

struct world {
	struct place *shared, *copy;
	uint64_t looks;
};

static struct mm_msg job_message(uint64_t id)
{
	return (struct mm_msg){ .opcode = id % 3 ? MM_XOP_SCRUB : MM_XOP_CREATE,
				.user_data = id,
				.arg = { 10 * id, 2 } };
}

/* Plays xfer: completes the next job. */
static void xfer_complete(struct place *place, struct mm_ring *jobs, struct mm_ring *done)
{
	struct mm_msg msg;

	(void)place;
	mm_assert(mm_ring_pop(jobs, &msg) == 0);
	mm_assert(mm_ring_push(done, &msg) == 0);
}

static void test_completion(struct place *place, struct mm_pushed *pushed)
{
	struct mm_pushed_job *job;
	struct mm_msg msg;

	mm_assert(mm_ring_peek(&pushed->done, &msg) == 0);
	job = mm_pushed_find(pushed, msg.user_data);
	mm_assert(job);
	/* The journal has the position of the completion: a successor's cursor is behind it. */
	__atomic_store_n(&place->journaled, msg.user_data, __ATOMIC_RELEASE);
	mm_ring_drop(&pushed->done);
	mm_pushed_end(pushed, job);
}

static void script(void *arg)
{
	struct world *world = arg;
	struct place *place = world->shared;
	struct mm_ring jobs, done;
	struct mm_pushed pushed;

	mm_pushed_start(&pushed, &place->kept, &place->ours, &place->theirs);
	mm_ring_init(&jobs, place->ours.slot, MM_XQ_SLOTS, &place->theirs.head, &place->ours.tail);
	mm_ring_init(&done, place->theirs.slot, MM_XQ_SLOTS, &place->theirs.tail,
		     &place->ours.head);
	for (uint64_t id = 1; id <= JOBS; id++) {
		const struct mm_msg msg = job_message(id);

		mm_assert(mm_pushed_push(&pushed, &msg) == 0);
		if (id > 3) {
			xfer_complete(place, &jobs, &done);
			test_completion(place, &pushed);
		}
	}
}

static bool job_is_not_over(const void *owner, const struct mm_pushed_job *job)
{
	const struct place *place = owner;

	return job->id > place->journaled;
}

/* Recovers a copy: each job that is in the ring is in the table or over, and no other is. */
static void copy_check(void *arg)
{
	struct world *world = arg;
	struct place *place = world->copy;
	struct mm_pushed pushed;
	struct mm_msg msg;

	memcpy(place, world->shared, sizeof(*place));
	if (place->kept.head < place->journaled)
		place->kept.head = (uint32_t)place->journaled;
	mm_pushed_adopt(&pushed, &place->kept, &place->ours, &place->theirs);
	mm_pushed_retain(&pushed, job_is_not_over, place);
	assert_int_equal(place->ours.tail.value, pushed.jobs.mine);
	assert_int_equal(pushed.running, pushed.jobs.mine - place->journaled);
	for (uint64_t id = 1; id <= JOBS; id++) {
		const struct mm_pushed_job *job = mm_pushed_find(&pushed, id);
		bool has = id <= pushed.jobs.mine && id > place->journaled;

		assert_int_equal(job != NULL, has);
		if (!has)
			continue;
		memcpy(&msg, place->ours.slot[id - 1], sizeof(msg));
		assert_int_equal(msg.user_data, id);
		assert_int_equal(job->opcode, msg.opcode);
		assert_int_equal(mm_pushed_creates(&pushed, 10 * (uint32_t)id + 1), id % 3 == 0);
	}
	world->looks++;
}

static void test_killed_at_any_instruction(void **state)
{
	struct world world = { .shared = stepped_memory(sizeof(struct place)),
			       .copy = malloc(sizeof(struct place)) };
	uint64_t steps;

	(void)state;
	assert_non_null(world.copy);
	steps = stepped_run(script, copy_check, &world, stepped_every(17));
	print_message("%lu instructions, %lu looks\n", (unsigned long)steps,
		      (unsigned long)world.looks);
	assert_int_equal(world.shared->kept.tail, JOBS);
	munmap(world.shared, sizeof(struct place));
	free(world.copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_at_any_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
