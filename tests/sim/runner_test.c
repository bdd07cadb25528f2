/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which a seed can die is seen: the test runner must not be the one thing that cannot
 * fail.
 */
#undef NDEBUG
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tests/sim/runner.h"

#define FIRST 100
#define SEEDS 40

struct scene {
	void (*end)(void);
	uint64_t bad[3]; /* seeds that fail; 0: none */
	_Atomic uint32_t *ran;
};

static void end_by_panic(void)
{
	abort();
}

static void end_by_segv(void)
{
	raise(SIGSEGV);
}

static void end_by_kill(void)
{
	raise(SIGKILL);
}

static void end_hanging(void)
{
	for (volatile uint32_t i = 0;; i++)
		;
}

/* Ends the process like a sanitizer. */
static void end_by_exit(void)
{
	_exit(66);
}

/* A library ends the process as if all were well. */
static void end_by_exit_0(void)
{
	_exit(0);
}

static void seed_test(void *context, uint32_t job, uint64_t seed)
{
	const struct scene *s = context;

	(void)job;
	s->ran[seed - FIRST]++;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(s->bad); i++) {
		if (s->bad[i] != seed)
			continue;
		signal(SIGSEGV, SIG_DFL);
		signal(SIGABRT, SIG_DFL);
		s->end();
	}
}

static void *shared_alloc(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static bool run_seeds(struct scene *s, uint32_t jobs, uint32_t failures_max,
		      struct runner_result *ret)
{
	const struct runner_opts opts = {
		.first = FIRST,
		.seeds = SEEDS,
		.jobs = jobs,
		.failures_max = failures_max,
		.hangs_s = s->end == end_hanging ? 1 : 60,
		.again = "again",
	};

	memset((void *)s->ran, 0, SEEDS * sizeof(*s->ran));
	return runner_run(&opts, seed_test, s, ret);
}

static bool has_failed(const struct runner_result *result, uint64_t seed)
{
	for (uint32_t i = 0; i < result->n_failed; i++)
		if (result->failed[i] == seed)
			return true;
	return false;
}

/*
 * Fails a seed in the middle, the first one and the last one: each is reported, and every seed runs
 * once.
 */
static void expect_seen(void (*end)(void), uint32_t jobs)
{
	uint32_t n_bad = end == end_hanging ? 1 : 3; /* each takes a second of computing */
	struct scene s = { .end = end,
			   .bad = { FIRST + 21, n_bad > 1 ? FIRST : 0,
				    n_bad > 1 ? FIRST + SEEDS - 1 : 0 },
			   .ran = shared_alloc(SEEDS * sizeof(*s.ran)) };
	struct runner_result result;

	assert_true(run_seeds(&s, jobs, 10, &result));
	assert_int_equal(result.n_failed, n_bad);
	for (uint32_t i = 0; i < n_bad; i++)
		assert_true(has_failed(&result, s.bad[i]));
	assert_int_equal(result.done, SEEDS - n_bad);
	for (uint32_t i = 0; i < SEEDS; i++)
		assert_int_equal(s.ran[i], 1);
	munmap((void *)s.ran, SEEDS * sizeof(*s.ran));
}

static void every_death_is_seen(void **state)
{
	static void (*const ends[])(void) = { end_by_panic, end_by_segv, end_by_kill,
					      end_hanging,  end_by_exit, end_by_exit_0 };

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(ends); i++)
		for (uint32_t jobs = 1; jobs <= 2; jobs++)
			expect_seen(ends[i], jobs);
}

static void enough_failures_end_it(void **state)
{
	struct scene s = { .end = end_by_panic,
			   .bad = { FIRST + 3, FIRST + 4, FIRST + 30 },
			   .ran = shared_alloc(SEEDS * sizeof(*s.ran)) };
	struct runner_result result;

	(void)state;
	assert_true(run_seeds(&s, 1, 2, &result));
	assert_int_equal(result.n_failed, 2);
	assert_int_equal(result.done, 3);
	munmap((void *)s.ran, SEEDS * sizeof(*s.ran));
}

static void at_exit(void)
{
	_exit(23);
}

static void fail_at_exit(void)
{
	atexit(at_exit);
}

/* A sanitizer that finds something at exit fails the run: no seed caused it. */
static void what_is_found_at_exit_is_seen(void **state)
{
	struct scene s = { .end = fail_at_exit,
			   .bad = { FIRST + 3 },
			   .ran = shared_alloc(SEEDS * sizeof(*s.ran)) };
	struct runner_result result;

	(void)state;
	for (uint32_t jobs = 1; jobs <= 2; jobs++)
		assert_false(run_seeds(&s, jobs, 10, &result));
	munmap((void *)s.ran, SEEDS * sizeof(*s.ran));
}

/* A process that starts slowly, or ends before its starter goes on, is counted all the same. */
static void no_seed_is_lost(void **state)
{
	struct scene s = { .end = end_by_panic, .ran = shared_alloc(SEEDS * sizeof(*s.ran)) };
	struct runner_result result;

	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		assert_true(run_seeds(&s, 1 + i % 3, 1, &result));
		assert_int_equal(result.n_failed, 0);
		assert_int_equal(result.done, SEEDS);
	}
	munmap((void *)s.ran, SEEDS * sizeof(*s.ran));
}

/* The process that starts this one may have ignored its children, and that is inherited. */
static void children_that_were_ignored_are_seen(void **state)
{
	(void)state;
	signal(SIGCHLD, SIG_IGN);
	expect_seen(end_by_panic, 2);
	assert_true(signal(SIGCHLD, SIG_DFL) == SIG_IGN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_death_is_seen),
		cmocka_unit_test(enough_failures_end_it),
		cmocka_unit_test(what_is_found_at_exit_is_seen),
		cmocka_unit_test(no_seed_is_lost),
		cmocka_unit_test(children_that_were_ignored_are_seen),
	};

	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
	return cmocka_run_group_tests(tests, NULL, NULL);
}
