/* SPDX-License-Identifier: Apache-2.0 */
/* Times of steps by a device's clock that yields only differences, as floats. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "libclient/support/clock.h"
#include "libclient/base/base.h"
#include "tools/mmserve/engine/stamps.h"

/* ---- a device whose clock we set ---- */

static double device_ns;        /* the device's time now */
static double recorded_ns[3];   /* when each event was recorded */
static uint32_t created, alive; /* numbers of events */
static CUresult broken;         /* result of comparing events */

static double *fake_event_at(CUevent event)
{
	return &recorded_ns[(uintptr_t)event - 1];
}

static CUresult event_create(CUevent *event, unsigned int flags)
{
	assert_int_equal(flags & CU_EVENT_DISABLE_TIMING, 0);
	assert_true(created < MM_ARRAY_SIZE(recorded_ns));
	alive++;
	*event = (CUevent)(uintptr_t)++created;
	return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
	assert_non_null(event);
	alive--;
	return CUDA_SUCCESS;
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
	(void)stream;
	*fake_event_at(event) = device_ns;
	return CUDA_SUCCESS;
}

static CUresult event_synchronize(CUevent event)
{
	assert_true(*fake_event_at(event) >= 0);
	return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent start, CUevent end)
{
	*ms = (float)((*fake_event_at(end) - *fake_event_at(start)) / 1e6);
	return broken;
}

static const struct mm_gpu_api device = {
	.cuEventCreate = event_create,
	.cuEventDestroy = event_destroy,
	.cuEventRecord = fake_event_record,
	.cuEventSynchronize = event_synchronize,
	.cuEventElapsedTime = event_elapsed,
};

static void stamps_open(struct mm_stamps *s, bool by_device, double scale)
{
	created = 0;
	device_ns = 5e9;
	broken = CUDA_SUCCESS;
	assert_int_equal(mm_stamps_init(s, &device, by_device, scale), 0);
	assert_int_equal(created, by_device ? 3 : 0);
}

static void stamps_step(struct mm_stamps *s, double gap_ns, double step_ns, double *begin_s,
			double *end_s)
{
	device_ns += gap_ns;
	assert_int_equal(mm_stamps_begin(s, NULL), 0);
	device_ns += step_ns / 2;
	assert_int_equal(mm_stamps_end(s, NULL), 0); /* the first try was void */
	device_ns += step_ns / 2;
	assert_int_equal(mm_stamps_end(s, NULL), 0);
	assert_int_equal(mm_stamps_read(s, begin_s, end_s), 0);
}

/* Ten days of steps of 20 ms and pauses: times at the end are as exact as at the beginning. */
static void test_stays_exact(void **state)
{
	double begin_s, end_s, first_s, truth_s;
	struct mm_stamps s = { 0 };

	(void)state;
	stamps_open(&s, true, 1);
	assert_int_equal(mm_stamps_start(&s, NULL, mm_now_ns()), 0);
	stamps_step(&s, 0, 20e6, &begin_s, &first_s);
	truth_s = device_ns / 1e9;
	assert_true(fabs(first_s - begin_s - 0.02) < 1e-9);
	for (uint32_t i = 0; i < 100000; i++) {
		const double gap_ns = i % 10 ? 30e3 : 90e9;

		stamps_step(&s, gap_ns, 20e6 + i, &begin_s, &end_s);
		assert_true(fabs(end_s - begin_s - (0.02 + i * 1e-9)) < 3e-9);
	}
	truth_s = device_ns / 1e9 - truth_s;
	assert_true(truth_s > 864000);
	assert_true(fabs(end_s - first_s - truth_s) < 1e-3);
	mm_stamps_done(&s);
	assert_int_equal(alive, 0);
}

/* Time 0 is the host's start_ns, even if that is in the future. */
static void test_lies_beside_the_host(void **state)
{
	double begin_s, end_s;
	struct mm_stamps s = { 0 };
	uint64_t before_ns, after_ns;

	(void)state;
	stamps_open(&s, true, 4);
	before_ns = mm_now_ns();
	assert_int_equal(mm_stamps_start(&s, NULL, before_ns + 8 * MM_NS_PER_S), 0);
	after_ns = mm_now_ns();
	stamps_step(&s, 0, 1e9, &begin_s, &end_s);
	assert_true(begin_s >= -2);
	assert_true(begin_s <= -2 + mm_stamps_seconds(&s, after_ns - before_ns));
	assert_true(fabs(end_s - begin_s - 1) < 1e-6);
	assert_true(fabs(mm_stamps_at(&s, s.start_ns + 6 * MM_NS_PER_S) - 1.5) < 1e-9);
	assert_int_equal(mm_stamps_host_ns(&s, 100), 400);
	assert_int_equal(mm_stamps_host_ns(&s, UINT64_MAX / 2), UINT64_C(1) << 62);
	broken = CUDA_ERROR_NOT_READY;
	assert_int_equal(mm_stamps_read(&s, &begin_s, &end_s), CUDA_ERROR_NOT_READY);
	mm_stamps_done(&s);
}

static void test_by_the_host(void **state)
{
	double begin_s, end_s, again_s, before_s;
	struct mm_stamps s = { 0 };

	(void)state;
	stamps_open(&s, false, 1000);
	assert_int_equal(mm_stamps_start(&s, NULL, mm_now_ns()), 0);
	before_s = mm_stamps_at(&s, mm_now_ns());
	assert_int_equal(mm_stamps_begin(&s, NULL), 0);
	assert_int_equal(mm_stamps_end(&s, NULL), 0);
	assert_int_equal(mm_stamps_read(&s, &begin_s, &end_s), 0);
	assert_true(before_s <= begin_s && begin_s <= end_s);
	assert_true(end_s <= mm_stamps_at(&s, mm_now_ns()));
	assert_int_equal(mm_stamps_read(&s, &begin_s, &again_s), 0);
	assert_true(end_s <= again_s);
	mm_stamps_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stays_exact),
		cmocka_unit_test(test_lies_beside_the_host),
		cmocka_unit_test(test_by_the_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
