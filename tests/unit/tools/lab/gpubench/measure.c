/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of measurements, with statements whose sides only advance a clock of the test. */
#undef NDEBUG
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "tools/lab/gpubench/gpubench.h"
#include "tools/lab/gpubench/groups.h"
#include "tools/lab/gpubench/measure.h"

#define ROUNDS 4

enum { SUBJECT, REFERENCE };

/* The sides do as this says; the state that the driver makes only counts. */
static struct {
	double clock_s;
	int fail_at[2];      /* a side fails with this, in the case below */
	uint32_t fail_case;  /* index of a case; UINT32_MAX: each */
	bool wrong;          /* the subject's result */
	uint32_t cases;      /* in the sweep */
	uint32_t empty_case; /* does not exist */
	uint32_t checks, opened, closed, prepared, finished;
	char order[64];
} fake;

struct counted {
	struct mm_gpu_bench *bench;
	uint32_t at;
};

static int counted_open(void *state, struct mm_gpu_bench *bench)
{
	struct counted *s = state;

	s->bench = bench;
	fake.opened++;
	return 0;
}

static void counted_close(void *state)
{
	(void)state;
	fake.closed++;
}

static void counted_sweep(const void *state, uint32_t *ret_sizes)
{
	(void)state;
	ret_sizes[0] = fake.cases;
	ret_sizes[1] = 2;
}

static int counted_prepare(void *state, const uint32_t *at)
{
	struct counted *s = state;

	fake.prepared++;
	s->at = 10 * at[0] + at[1];
	return s->at == fake.empty_case ? MM_E_EMPTY : 0;
}

static void counted_finish(void *state)
{
	(void)state;
	fake.finished++;
}

static const struct mm_gpu_param counted_params[] = {
	MM_GPU_PARAM("at", struct counted, at),
	{ 0 },
};

/* The subject takes twice as long as its reference. */
static int clock_advance(void *state, uint32_t which, double *value)
{
	struct counted *s = state;
	const double since_s = fake.clock_s;

	strncat(fake.order, which == SUBJECT ? "s" : "r",
		sizeof(fake.order) - strlen(fake.order) - 1);
	if (fake.fail_at[which] && (fake.fail_case == UINT32_MAX || fake.fail_case == s->at))
		return mm_gpu_fail(s->bench, fake.fail_at[which], "cuFake: no luck");
	fake.clock_s += which == SUBJECT ? 4 : 2;
	value[which] = fake.clock_s - since_s;
	return 0;
}

static int result_check(void *state, uint32_t which)
{
	struct counted *s = state;

	assert_int_equal(which, SUBJECT);
	fake.checks++;
	return fake.wrong ? mm_gpu_fail(s->bench, -EBADMSG, "a wrong result: 4 is 5") : 0;
}

static double counted_work(const void *state)
{
	(void)state;
	return 12;
}

static double counted_reference_work(const void *state)
{
	(void)state;
	return 8;
}

static const struct mm_gpu_side counted_sides[] = {
	{ "the subject", SUBJECT, .run = clock_advance, .check = result_check },
	{ "the reference", REFERENCE, .run = clock_advance },
};

static const struct mm_gpu_row counted_rows[] = {
	{ "time", .unit = MM_GPU_SECONDS, .figure = SUBJECT, .reference = REFERENCE,
	  .reference_name = "half of it", .goal = { MM_GOAL_AT_MOST, 3 } },
	{ "rate", .unit = MM_GPU_BYTES_PER_S, .figure = SUBJECT, .work = counted_work,
	  .reference = REFERENCE, .reference_work = counted_reference_work,
	  .reference_name = "other bytes" },
	{ "absent", .unit = MM_GPU_SECONDS, .figure = 7 },
};

static const struct mm_gpu_measurement counted_plain = {
	.name = "counted",
	MM_GPU_STATEMENT(counted_sides, counted_rows),
	.warm_up = 1,
	.finish = counted_finish,
};

static const struct mm_gpu_measurement counted_swept = {
	.name = "counted",
	MM_GPU_STATEMENT(counted_sides, counted_rows),
	.sweep = counted_sweep,
	.prepare = counted_prepare,
	.finish = counted_finish,
	.params = counted_params,
};

static const struct mm_gpu_measurement counted_alternating = {
	.name = "counted",
	MM_GPU_STATEMENT(counted_sides, counted_rows),
	.alternates = true,
};

/* Runs a measurement. @ret_rows: an array of what it reported. */
static int group_run(struct mm_gpu_bench *bench, const struct mm_gpu_measurement *what,
		     json_t **ret_rows)
{
	const struct mm_gpu_measurement *const list[] = { what, NULL };
	const struct mm_gpu_group group = { .name = "fakes",
					    .state_bytes = sizeof(struct counted),
					    .open = counted_open,
					    .close = counted_close,
					    .measurements = list };
	char line[4096];
	FILE *file;
	int r;

	bench->part = group.name;
	bench->sizes.repeat = ROUNDS;
	bench->out = memfd_create("rows", MFD_CLOEXEC);
	assert_true(bench->out >= 0);
	r = mm_gpu_measure(bench, &group);
	assert_int_equal(lseek(bench->out, 0, SEEK_SET), 0);
	file = fdopen(bench->out, "re");
	assert_non_null(file);
	*ret_rows = json_array();
	while (fgets(line, sizeof(line), file))
		json_array_append_new(*ret_rows, json_loads(line, 0, NULL));
	fclose(file);
	return r;
}

static double row_number(const json_t *rows, size_t at, const char *object, const char *key)
{
	const json_t *row = json_array_get(rows, at);
	const json_t *value = json_object_get(object ? json_object_get(row, object) : row, key);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static const char *row_text(const json_t *rows, size_t at, const char *key)
{
	return json_string_value(json_object_get(json_array_get(rows, at), key));
}

static int fake_reset(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.fail_case = UINT32_MAX;
	fake.empty_case = UINT32_MAX;
	return 0;
}

/* ---- what is measured ---- */

static void test_twice_the_reference(void **state)
{
	struct mm_gpu_bench bench = { 0 };
	json_t *rows;

	(void)state;
	assert_int_equal(group_run(&bench, &counted_plain, &rows), 0);
	assert_int_equal(json_array_size(rows), 2);
	assert_string_equal(row_text(rows, 0, "part"), "fakes");
	assert_string_equal(row_text(rows, 0, "name"), "time");
	assert_string_equal(row_text(rows, 0, "unit"), "s");
	assert_string_equal(row_text(rows, 0, "reference_name"), "half of it");
	assert_true(row_number(rows, 0, "figure", "median") == 4);
	assert_true(row_number(rows, 0, "reference", "median") == 2);
	assert_true(row_number(rows, 0, NULL, "ratio") == 2);
	assert_true(row_number(rows, 0, "figure", "n") == ROUNDS);
	assert_true(row_number(rows, 0, "goal", "at_most") == 3);
	assert_true(json_is_true(json_object_get(json_array_get(rows, 0), "reached")));
	/* 12 bytes in 4 s, against 8 bytes in 2 s */
	assert_string_equal(row_text(rows, 1, "unit"), "bytes_per_s");
	assert_true(row_number(rows, 1, "figure", "median") == 3);
	assert_true(row_number(rows, 1, "reference", "median") == 4);
	assert_true(row_number(rows, 1, NULL, "ratio") == 0.75);
	assert_null(json_object_get(json_array_get(rows, 1), "goal"));
	json_decref(rows);
	assert_true(fake.opened == 1 && fake.closed == 1 && fake.finished == 1);
}

/* Sides run in turn, and the round that does not count comes first. */
static void test_order(void **state)
{
	struct mm_gpu_bench bench = { 0 };
	json_t *rows;

	(void)state;
	assert_int_equal(group_run(&bench, &counted_plain, &rows), 0);
	json_decref(rows);
	assert_string_equal(fake.order, "srsrsrsrsr");
	fake.order[0] = '\0';
	assert_int_equal(group_run(&bench, &counted_alternating, &rows), 0);
	json_decref(rows);
	assert_string_equal(fake.order, "srrssrrs");
}

static void test_sweep(void **state)
{
	static const int want[] = { 0, 10, 11, 20, 21 };
	struct mm_gpu_bench bench = { 0 };
	json_t *rows;

	(void)state;
	fake.cases = 3;
	fake.empty_case = 1;
	assert_int_equal(group_run(&bench, &counted_swept, &rows), 0);
	assert_int_equal(json_array_size(rows), 2 * MM_ARRAY_SIZE(want));
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++)
		assert_int_equal((int)row_number(rows, 2 * i, "params", "at"), want[i]);
	json_decref(rows);
	/* A case that does not exist is finished like any other. */
	assert_true(fake.prepared == 6 && fake.finished == 6);
}

/* ---- what goes wrong ---- */

static void test_skipped(void **state)
{
	struct mm_gpu_bench bench = { 0 };
	json_t *rows;

	(void)state;
	fake.cases = 1;
	fake.fail_at[SUBJECT] = -EOPNOTSUPP;
	fake.fail_case = 0;
	assert_int_equal(group_run(&bench, &counted_swept, &rows), 0);
	assert_int_equal(json_array_size(rows), 2);
	assert_int_equal((int)row_number(rows, 0, "params", "at"), 1);
	json_decref(rows);
	/* With no case left, the group is skipped, and the reason is that of the last case. */
	fake.fail_case = UINT32_MAX;
	assert_int_equal(group_run(&bench, &counted_swept, &rows), -EOPNOTSUPP);
	assert_int_equal(json_array_size(rows), 0);
	assert_string_equal(bench.err, "counted at=1: the subject: cuFake: no luck");
	json_decref(rows);
}

static void test_failures(void **state)
{
	static const char *const names[] = { "the subject", "the reference" };
	struct mm_gpu_bench bench = { 0 };
	char want[128];
	json_t *rows;

	(void)state;
	for (int side = SUBJECT; side <= REFERENCE; side++) {
		fake_reset(NULL);
		fake.cases = 3;
		fake.fail_at[side] = -EIO;
		fake.fail_case = 10;
		assert_int_equal(group_run(&bench, &counted_swept, &rows), -EIO);
		/* The two cases before stay, and nothing is measured after. */
		assert_int_equal(json_array_size(rows), 4);
		json_decref(rows);
		assert_true(fake.prepared == 3 && fake.finished == 3 && fake.closed == 1);
		snprintf(want, sizeof(want), "counted at=10: %s: cuFake: no luck", names[side]);
		assert_string_equal(bench.err, want);
	}
}

/* A wrong result is found in the first run, and none is looked for where nothing is computed. */
static void test_wrong_result(void **state)
{
	struct mm_gpu_bench bench = { 0 };
	json_t *rows;

	(void)state;
	assert_int_equal(group_run(&bench, &counted_plain, &rows), 0);
	json_decref(rows);
	assert_int_equal(fake.checks, 1);
	fake.wrong = true;
	assert_int_equal(group_run(&bench, &counted_plain, &rows), -EBADMSG);
	assert_int_equal(json_array_size(rows), 0);
	json_decref(rows);
	assert_string_equal(bench.err, "counted: the subject: a wrong result: 4 is 5");
	bench.timed = true;
	assert_int_equal(group_run(&bench, &counted_plain, &rows), 0);
	json_decref(rows);
	assert_int_equal(fake.checks, 2);
}

/* ---- the statements that there are ---- */

static void row_check(const struct mm_gpu_row *row)
{
	const bool is_time = row->unit == MM_GPU_SECONDS;

	assert_non_null(row->name);
	assert_non_null(row->what);
	assert_true(row->unit < MM_GPU_UNITS);
	assert_true(row->figure < MM_GPU_VALUES_MAX && row->reference < MM_GPU_VALUES_MAX);
	assert_true(is_time == !row->work);
	assert_true(row->work || !row->reference_work);
	if (!row->reference_name)
		assert_true(!row->reference && row->goal.kind == MM_GOAL_NONE);
	else
		assert_true(row->reference != row->figure);
	/* Less is better with times, so a goal bounds them from above. */
	if (row->goal.kind != MM_GOAL_NONE)
		assert_true((row->goal.kind == MM_GOAL_AT_MOST) == is_time);
}

static void measurement_check(const struct mm_gpu_measurement *what)
{
	assert_true(what->name && what->n_sides);
	for (uint32_t i = 0; i < what->n_sides; i++)
		assert_true(what->sides[i].name && what->sides[i].run);
	for (uint32_t i = 0; i < what->n_rows; i++) {
		row_check(&what->rows[i]);
		for (uint32_t k = 0; k < i; k++)
			assert_string_not_equal(what->rows[i].name, what->rows[k].name);
	}
}

static void test_statements(void **state)
{
	uint32_t n = 0;

	(void)state;
	for (; mm_gpu_groups[n]; n++) {
		const struct mm_gpu_group *group = mm_gpu_groups[n];

		assert_true(group->name && group->what && group->open && group->close);
		for (uint32_t i = 0; group->measurements[i]; i++)
			measurement_check(group->measurements[i]);
	}
	assert_true(n > 0 && n <= MM_GPU_PARTS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_twice_the_reference, fake_reset),
		cmocka_unit_test_setup(test_order, fake_reset),
		cmocka_unit_test_setup(test_sweep, fake_reset),
		cmocka_unit_test_setup(test_skipped, fake_reset),
		cmocka_unit_test_setup(test_failures, fake_reset),
		cmocka_unit_test_setup(test_wrong_result, fake_reset),
		cmocka_unit_test(test_statements),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
