/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer ends, or a call of it fails, at each point of a scenario once: a plan with a slot and cold
 * blocks begins, layers are read, a block is cooled, the plan changes with its window and without.
 * Between any two words of gates and cursors there is such a point. Another xfer goes on from what
 * is in shared memory, and each layer finds its own weights and rows.
 */
#undef NDEBUG
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "mmd/common/log.h"
#include "mmd/xfer/xfer.h"
#include "tests/fault/points.h"
#include "tests/unit/mmd/xfer/rig.h"

#define LAYERS     6
#define UNIT_BYTES 4096
#define ENTRIES    7
#define POINTS_MAX 2000
#define HOT_PAGE   8

struct story {
	struct rig r;
	uint64_t served; /* epoch of the plan that xfer has taken over; 0: none */
	bool fired;
};

/* ---- xfer ---- */

static void points_arm(int number)
{
	(void)number;
	point_arm();
}

/* The points of its start are another test's: they count from a signal on. */
static void be_xfer(int argc, char **argv)
{
	const struct sigaction action = { .sa_handler = points_arm, .sa_flags = SA_RESTART };

	if (argc != 3 || strcmp(argv[1], "--xfer") != 0)
		return;
	mm_log_init("xfer", MM_LOG_ERROR);
	(void)sigaction(SIGUSR1, &action, NULL);
	point_exit(mm_xfer_main(atoi(argv[2])));
}

static bool xfer_has_ended(const struct core *core)
{
	siginfo_t info = { .si_pid = 0 };

	assert_int_equal(waitid(P_PID, (id_t)core->pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == core->pid;
}

static void xfer_follow(struct story *s)
{
	s->fired = true;
	s->r.core->died = false;
	rig_restart(&s->r);
	if (s->served)
		assert_int_equal(rig_job(&s->r, MM_XOP_ACTIVATE, s->served), 0);
}

/* A job that failed once must not fail a second time. */
static void job_insist(struct story *s, const struct mm_msg *job)
{
	int r = core_await(s->r.core, core_push(s->r.core, *job));

	if (r == 0)
		return;
	if (s->r.core->died)
		xfer_follow(s);
	s->fired = true;
	assert_int_equal(core_await(s->r.core, core_push(s->r.core, *job)), 0);
}

/* ---- the tenant ---- */

static void layer_wait(struct story *s, uint32_t layer)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (!(rig_gate(&s->r, layer) & MM_GATE_PASS)) {
		if (xfer_has_ended(s->r.core))
			xfer_follow(s);
		if (mm_now_ns() > until_ns)
			fail_msg("epoch %lu: layer %u: gate %lx", s->r.epoch, layer,
				 (unsigned long)rig_gate(&s->r, layer));
		usleep(50);
	}
}

static void weights_compare(const struct rig *r, uint32_t layer)
{
	const uint32_t *pages = shape_pages(&r->now, layer);

	assert_true(!pages || core_pages_hold(r->core, pages, layer * STRIDE, LAYER_BYTES));
}

static void step_run(struct story *s)
{
	struct rig *r = &s->r;
	const uint64_t version = rig_acked(r);
	bool used[ENTRIES];

	for (uint32_t e = 0; e < ENTRIES; e++)
		used[e] = r->now.window && r->entry[e].live && r->entry[e].version <= version;
	for (uint32_t l = 0; l < LAYERS; l++) {
		layer_wait(s, l);
		weights_compare(r, l);
		for (uint32_t e = 0; e < ENTRIES; e++)
			if (used[e] && !rig_row_is(r, &r->now, e, l))
				fail_msg("epoch %lu: layer %u: entry %u", r->epoch, l, e);
		__atomic_store_n(&rig_gates(r)->gate[l].low, (uint32_t)MM_GATE_DONE,
				 __ATOMIC_RELEASE);
	}
}

/* A block goes out to the place of @entry while layers are streamed in; then it is live. */
static void entry_cool(struct story *s, uint32_t entry)
{
	const uint64_t bytes = LAYERS * UNIT_BYTES;
	const unsigned char *slot = (unsigned char *)s->r.space.base + entry * bytes;

	core_fill(s->r.core, HOT_PAGE, 0x5a);
	job_insist(s, &(struct mm_msg){
			      .opcode = MM_XOP_SWAP_OUT,
			      .arg = { TENANT, HOT_PAGE * GRANULE + 64, entry * bytes, bytes } });
	for (uint64_t i = 0; i < bytes; i++)
		assert_int_equal(slot[i], 0x5a);
	rig_set_entry(&s->r, entry);
}

static void plan_change(struct story *s, const struct shape *next)
{
	struct rig *r = &s->r;

	rig_write_plan(r, next, ++r->epoch);
	r->now = *next;
	/* While it is under way, a new xfer is asked for it once more, not for the one before. */
	s->served = 0;
	job_insist(s, &(struct mm_msg){
			      .opcode = MM_XOP_REPLAN, .epoch = r->epoch, .arg = { TENANT } });
	s->served = r->epoch;
}

static void story_run(struct story *s)
{
	struct shape plan = { .n_slots = 1,
			      .n = { 3 },
			      .layer = { { 1, 4, 5 } },
			      .pages = { slot_pages[0][0] },
			      .window = window_pages[0],
			      .window_pages = 2 };

	plan_change(s, &plan);
	step_run(s);
	entry_cool(s, 5);
	step_run(s);
	/* The slot moves; the window stays, then moves, then goes. */
	plan.pages[0] = slot_pages[0][1];
	plan_change(s, &plan);
	step_run(s);
	plan.window = window_pages[1];
	plan_change(s, &plan);
	step_run(s);
	plan.window = NULL;
	plan_change(s, &plan);
	for (uint32_t l = 0; l < LAYERS; l++)
		if (l != 1 && l != 4 && l != 5)
			rig_put_gate(&s->r, l, MM_GATE_RESIDENT);
	step_run(s);
	job_insist(s, &(struct mm_msg){
			      .opcode = MM_XOP_QUIESCE, .epoch = s->r.epoch, .arg = { TENANT } });
	s->served = 0;
	job_insist(s, &(struct mm_msg){ .opcode = MM_XOP_DETACH, .arg = { TENANT } });
}

/* Return: whether the point was reached. */
static bool point_run(uint64_t nth)
{
	static struct story s;
	void *state = NULL;
	int status;

	point_choose(nth);
	assert_int_equal(core_setup(&state), 0);
	s = (struct story){ .served = 0 };
	rig_prepare(&s.r, state, LAYERS, UNIT_BYTES, ENTRIES);
	rig_set_entry(&s.r, 1);
	rig_set_entry(&s.r, 2);
	s.r.core->may_die = true;
	/* Behind it, xfer has taken all that was sent. */
	assert_int_equal(rig_job(&s.r, MM_XOP_NOP, 0), 0);
	assert_int_equal(kill(s.r.core->pid, SIGUSR1), 0);
	story_run(&s);
	assert_true(rig_cursors(&s.r)->cold_rows > 0);
	status = core_end(s.r.core);
	if (status & ~POINT_FIRED)
		fail_msg("point %lu: xfer ended with status %d", nth, status);
	rig_done(&s.r);
	assert_int_equal(core_teardown(&state), 0);
	return s.fired || (status & POINT_FIRED);
}

/* Every seventh of them, unless there is time. */
static void test_every_point(void **state)
{
	const uint64_t step = getenv("MM_TEST_LONG") ? 1 : 7;
	uint64_t n = 1 + (uint64_t)getpid() % step;

	(void)state;
	while (n < POINTS_MAX && point_run(n))
		n += step;
	print_message("%lu points, one of %lu tried\n", n - 1, step);
	assert_in_range(n, 100, POINTS_MAX - 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_point) };

	be_xfer(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
