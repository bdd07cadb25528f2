/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation itself: what kernels may do works in any order, what they must not do is told. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/emulate/emulate.h"
#include "tests/unit/kernels/cuda/kernels_of_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t orders[] = { MM_EMULATE_FORWARD, MM_EMULATE_REVERSE, 12345, 99 };

#define RUNS(kernel)                                             \
	void mm_##kernel(struct mm_test_args a);                 \
	static void run_##kernel(const void *args)               \
	{                                                        \
		mm_##kernel(*(const struct mm_test_args *)args); \
	}
RUNS(test_reverse)
RUNS(test_warp_swap)
RUNS(test_lanes)
RUNS(test_places)
RUNS(test_dynamic)
RUNS(test_wrong)

static uint64_t va_of(const void *p)
{
	return (uintptr_t)p;
}

static void test_launch(void (*run)(const void *args), const struct mm_host_launch *shape,
			const uint32_t *in, uint32_t *out, enum test_what what)
{
	const struct mm_test_args a = { va_of(in), va_of(out), what, 0 };

	mm_emulate_launch("test", shape, run, &a);
}

static const struct mm_host_launch one_block = { { 1, 1, 1 }, { TEST_THREADS, 1, 1 }, 0 };
static const struct mm_host_launch blocks = { { 5, 1, 1 }, { TEST_THREADS, 1, 1 }, 0 };

static void fill_in(uint32_t *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		in[i] = (uint32_t)(i * 2654435761u) >> 8;
}

/* Return: how many of the results are wrong. */
static uint32_t reverse_run(enum test_what what)
{
	static uint32_t in[5 * TEST_THREADS], out[5 * TEST_THREADS];
	uint32_t wrong = 0;

	fill_in(in, MM_ARRAY_SIZE(in));
	memset(out, 0, sizeof(out));
	test_launch(run_test_reverse, &blocks, in, out, what);
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(out); i++) {
		const uint32_t from =
			i / TEST_THREADS * TEST_THREADS + TEST_THREADS - 1 - i % TEST_THREADS;

		wrong += out[i] != 3 * in[from] + 3;
	}
	return wrong;
}

static void test_barrier(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(orders); i++) {
		mm_emulate_order(orders[i]);
		assert_int_equal(reverse_run(TEST_RIGHT), 0);
	}
}

/* Under TSan the races themselves would be reported. */
#if !defined(__SANITIZE_THREAD__)
static void test_missing_barriers(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(orders); i++) {
		mm_emulate_order(orders[i]);
		assert_true(reverse_run(TEST_NO_FIRST_BARRIER) > 0);
	}
	/*
	 * Where whoever passes the barrier runs on first, it overwrites what others have yet to
	 * read.
	 */
	mm_emulate_order(MM_EMULATE_REVERSE);
	assert_true(reverse_run(TEST_NO_SECOND_BARRIER) > 0);
}

static void test_missing_warp_barrier(void **state)
{
	uint32_t in[TEST_THREADS], out[TEST_THREADS], wrong = 0;

	(void)state;
	fill_in(in, TEST_THREADS);
	mm_emulate_order(MM_EMULATE_FORWARD);
	test_launch(run_test_warp_swap, &one_block, in, out, TEST_NO_FIRST_BARRIER);
	for (uint32_t i = 0; i < TEST_THREADS; i++)
		wrong += out[i] != in[i ^ 1];
	assert_true(wrong >= TEST_THREADS / 2);
}
#endif

static void test_warp_barrier(void **state)
{
	uint32_t in[TEST_THREADS], out[TEST_THREADS];

	(void)state;
	fill_in(in, TEST_THREADS);
	for (size_t k = 0; k < MM_ARRAY_SIZE(orders); k++) {
		mm_emulate_order(orders[k]);
		test_launch(run_test_warp_swap, &one_block, in, out, TEST_RIGHT);
		for (uint32_t i = 0; i < TEST_THREADS; i++)
			assert_int_equal(out[i], in[i ^ 1]);
	}
}

static void check_lanes(const uint32_t *in, const uint32_t *got, uint32_t i)
{
	const uint32_t lane = i % 32, warp = i - lane;
	uint32_t votes = 0;

	for (uint32_t k = 0; k < 32; k++)
		votes |= (in[warp + k] & 1) << k;
	assert_int_equal(got[0], in[warp + 5]);
	assert_int_equal(got[1 * TEST_THREADS], in[warp + lane / 8 * 8 + (lane + 3) % 8]);
	assert_int_equal(got[2 * TEST_THREADS], lane < 3 ? in[i] : in[i - 3]);
	assert_int_equal(got[3 * TEST_THREADS], lane % 16 > 12 ? in[i] : in[i + 3]);
	assert_int_equal(got[4 * TEST_THREADS], in[i ^ 9]);
	assert_int_equal(got[5 * TEST_THREADS], votes);
	assert_int_equal(got[6 * TEST_THREADS], in[i ^ 1] & 0x7fffffff);
	assert_int_equal(got[7 * TEST_THREADS], __float_as_uint((float)in[i ^ 2]));
	assert_int_equal(got[8 * TEST_THREADS], 1);
	assert_int_equal(got[9 * TEST_THREADS], lane < 16 ? in[i ^ 1] : in[i ^ 2]);
}

static void test_lanes(void **state)
{
	static uint32_t in[TEST_THREADS], out[10 * TEST_THREADS];

	(void)state;
	fill_in(in, TEST_THREADS);
	for (size_t k = 0; k < MM_ARRAY_SIZE(orders); k++) {
		mm_emulate_order(orders[k]);
		memset(out, 0, sizeof(out));
		test_launch(run_test_lanes, &one_block, in, out, TEST_RIGHT);
		for (uint32_t i = 0; i < TEST_THREADS; i++)
			check_lanes(in, out + i, i);
	}
}

/* Each thread of each block runs once, whatever the shape and the order. */
static void test_places(void **state)
{
	static const struct mm_host_launch shapes[] = {
		{ { 1, 1, 1 }, { 1, 1, 1 }, 0 },  { { 7, 1, 1 }, { 33, 1, 1 }, 0 },
		{ { 3, 4, 2 }, { 4, 3, 5 }, 0 },  { { 1, 12, 1 }, { 1, 1, 64 }, 0 },
		{ { 2, 1, 6 }, { 32, 2, 1 }, 0 },
	};
	static uint32_t out[2 + 2000];

	(void)state;
	for (size_t s = 0; s < MM_ARRAY_SIZE(shapes); s++) {
		for (size_t k = 0; k < MM_ARRAY_SIZE(orders); k++) {
			const uint32_t *g = shapes[s].grid, *b = shapes[s].block;
			const uint32_t n = g[0] * g[1] * g[2] * b[0] * b[1] * b[2];

			mm_emulate_order(orders[k]);
			memset(out, 0, sizeof(out));
			test_launch(run_test_places, &shapes[s], NULL, out, TEST_RIGHT);
			assert_int_equal(out[0], n);
			assert_int_equal(out[1], n - 1);
			for (uint32_t i = 0; i < n; i++)
				assert_int_equal(out[2 + i], i);
		}
	}
}

static void test_shared_is_poisoned(void **state)
{
	static const struct mm_host_launch shape = { { 3, 1, 1 },
						     { TEST_THREADS, 1, 1 },
						     TEST_THREADS * 4 };
	uint32_t out[TEST_THREADS];

	(void)state;
	mm_emulate_order(MM_EMULATE_REVERSE); /* the thread that writes is the last */
	test_launch(run_test_dynamic, &shape, NULL, out, TEST_RIGHT);
	for (uint32_t i = 0; i < TEST_THREADS; i++)
		assert_int_equal(out[i], 0xffffffff); /* in the last block, too */
}

static void *run_many(void *arg)
{
	static const struct mm_host_launch shape = { { 3, 1, 1 }, { TEST_THREADS, 1, 1 }, 0 };
	uint32_t in[3 * TEST_THREADS], out[3 * TEST_THREADS];

	(void)arg;
	fill_in(in, MM_ARRAY_SIZE(in));
	for (int i = 0; i < 5; i++) {
		test_launch(run_test_reverse, &shape, in, out, TEST_RIGHT);
		if (out[0] != 3 * in[TEST_THREADS - 1] + 3)
			return "wrong";
	}
	return NULL;
}

static void test_launches_side_by_side(void **state)
{
	pthread_t threads[3];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_many, NULL), 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(threads); i++) {
		void *wrong;

		assert_int_equal(pthread_join(threads[i], &wrong), 0);
		assert_null(wrong);
	}
}

/* ---- what ends the process ---- */

/* Return: the child's status; what it wrote to stderr is in @text. */
static int in_child(void (*run)(const void *args), const struct mm_host_launch *shape,
		    enum test_what what, char text[1024])
{
	uint32_t out[TEST_THREADS];
	size_t used = 0;
	int ends[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL); /* cmocka's handlers would go on with the tests */
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		test_launch(run, shape, NULL, out, what);
		_exit(0);
	}
	close(ends[1]);
	while (used < 1023 && (n = read(ends[0], text + used, 1023 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void test_wrong(void **state)
{
	static const struct {
		enum test_what what;
		uint32_t threads;
		const char *says;
	} cases[] = {
		{ TEST_ENDED, 96, "thread 9: ends while 9 threads wait at the barrier of line" },
		{ TEST_TWO_BARRIERS, 96, "thread 9: waits at the barrier of line" },
		{ TEST_LANE_ENDED, 96, "thread 9: ends while lane 0 waits for it at line" },
		{ TEST_NOT_IN_MASK, 96, "thread 0: is not in the mask fffffffe" },
		{ TEST_OUTSIDE_OF_MASK, 32, "lane 0 reads from lane 20, which is not in the mask" },
		{ TEST_NO_SUCH_LANE, 16, "for lane 16, which there is not" },
		{ TEST_FOR_EVER, 32, "for ever" },
	};
	char text[1024];

	(void)state;
	mm_emulate_order(MM_EMULATE_FORWARD);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const struct mm_host_launch shape = { { 1, 1, 1 }, { cases[i].threads, 1, 1 }, 0 };
		const int status = in_child(run_test_wrong, &shape, cases[i].what, text);

		if (!strstr(text, cases[i].says))
			fail_msg("not \"%s\" but: %s", cases[i].says, text);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

/*
 * The page behind dynamic shared memory cannot be touched; a sanitizer may tell it in its own way.
 */
static void test_beyond_shared(void **state)
{
	static const struct mm_host_launch shape = { { 1, 1, 1 },
						     { TEST_THREADS, 1, 1 },
						     TEST_THREADS * 4 };
	char text[1024];

	(void)state;
	assert_true(in_child(run_test_dynamic, &shape, TEST_RIGHT, text) == 0);
	assert_true(in_child(run_test_dynamic, &shape, TEST_BEYOND, text) != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_barrier),
#if !defined(__SANITIZE_THREAD__)
		cmocka_unit_test(test_missing_barriers),
		cmocka_unit_test(test_missing_warp_barrier),
#endif
		cmocka_unit_test(test_warp_barrier),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_shared_is_poisoned),
		cmocka_unit_test(test_launches_side_by_side),
		cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_beyond_shared),
	};

	return cmocka_run_group_tests_name("emulate", tests, NULL, NULL);
}
