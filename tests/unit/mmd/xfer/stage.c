/* SPDX-License-Identifier: Apache-2.0 */
/* Stores on disk, staged through a bounded ring; on a software GPU in this process. */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/support/clock.h"
#include "mmd/xfer/ahead.h"
#include "tests/unit/mmd/xfer/core.h"

#define CHUNK     (GRANULE / 4)
#define POOL      16
#define BUFFERS   3
#define TRANSFERS 8

struct bench {
	struct mm_xdev dev;
	struct mm_xpool pool;
	struct mm_xstage stage;
	struct mm_xstores stores;
	struct mm_xstore *memory, *disk;
	struct mm_xlink link;
	struct mm_xflow flow[2];
	struct mm_xtransfer transfer[2][TRANSFERS];
	int result[2][TRANSFERS];
	uint32_t order[2 * TRANSFERS]; /* flow * TRANSFERS + index, as they landed */
	uint32_t landed;
};

static const uint32_t pages[POOL] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
static struct bench bench;

static void transfer_landed(struct mm_xtransfer *transfer, int result)
{
	size_t i = (size_t)(transfer - &bench.transfer[0][0]);

	bench.result[i / TRANSFERS][i % TRANSFERS] = result;
	bench.order[bench.landed++] = (uint32_t)i;
}

static void open_device(void)
{
	int fds[POOL];
	char err[200];

	if (mm_xdev_open(&bench.dev, "software", 0, "", false, err, sizeof(err)) < 0)
		fail_msg("%s", err);
	assert_int_equal(mm_xpool_init(&bench.pool, &bench.dev, GRANULE, POOL), 0);
	assert_int_equal(mm_xpool_create(&bench.pool, pages, POOL, fds), 0);
	for (size_t i = 0; i < POOL; i++)
		close(fds[i]);
}

static int setup(void **state)
{
	struct core *core;

	assert_int_equal(core_setup(state), 0);
	core = *state;
	core_make_store(core, POOL * GRANULE);
	memset(&bench, 0, sizeof(bench));
	bench.dev = MM_XDEV_NULL;
	open_device();
	assert_int_equal(mm_xstage_init(&bench.stage, &bench.dev,
					BUFFERS * mm_xstage_buffer_bytes(CHUNK), CHUNK, -1),
			 0);
	assert_int_equal(bench.stage.n, BUFFERS);
	bench.stores.dev = &bench.dev;
	bench.stores.stage = &bench.stage;
	assert_int_equal(mm_xstores_add(&bench.stores, 1, POOL * GRANULE, dup(core->store.fd)), 0);
	bench.memory = bench.stores.first;
	assert_int_equal(mm_xstores_add_disk(&bench.stores, 2, POOL * GRANULE,
					     core_make_file(core->store.base, POOL * GRANULE)),
			 0);
	bench.disk = bench.stores.first;
	assert_int_equal(mm_xlink_init(&bench.link, &bench.pool, &bench.stores, CHUNK), 0);
	for (size_t f = 0; f < 2; f++)
		mm_xlink_join(&bench.link, &bench.flow[f], 1);
	return 0;
}

static uint32_t free_buffers(void)
{
	const struct mm_xbuf *buf;
	uint32_t n = 0;

	TAILQ_FOREACH(buf, &bench.stage.free, entry)
	n++;
	return n;
}

/* After any test the ring is whole again. */
static void ring_settle(void)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (free_buffers() < BUFFERS || mm_xlink_busy(&bench.link)) {
		assert_true(mm_now_ns() < until_ns);
		(void)mm_xlink_run(&bench.link);
	}
	assert_int_equal(bench.stage.reading, 0);
}

static int teardown(void **state)
{
	ring_settle();
	for (size_t f = 0; f < 2; f++)
		mm_xlink_leave(&bench.link, &bench.flow[f]);
	mm_xlink_done(&bench.link);
	mm_xstores_done(&bench.stores);
	mm_xstage_done(&bench.stage);
	mm_xpool_done(&bench.pool);
	mm_xdev_close(&bench.dev);
	return core_teardown(state);
}

static void transfer_start(size_t flow, size_t i, struct mm_xstore *store, uint64_t offset,
			   uint64_t bytes, const uint32_t *page)
{
	bench.transfer[flow][i] = (struct mm_xtransfer){ .store = store,
							 .store_offset = offset,
							 .bytes = bytes,
							 .page = page,
							 .landed = transfer_landed };
	bench.result[flow][i] = 1;
	mm_xlink_start(&bench.link, &bench.flow[flow], &bench.transfer[flow][i]);
}

static void run_until(uint32_t n)
{
	uint64_t until_ns = mm_deadline_ns(WAIT_S * MM_NS_PER_S);

	while (bench.landed < n) {
		assert_true(mm_now_ns() < until_ns);
		(void)mm_xlink_run(&bench.link);
	}
	assert_int_equal(bench.landed, n);
}

/* Checks that device bytes from @page on are the store's from @offset on. */
static void check_bytes(const struct core *core, uint32_t page, uint64_t offset, uint64_t bytes)
{
	char *got = malloc(bytes);

	assert_non_null(got);
	assert_int_equal(bench.dev.gpu.cuMemcpyDtoH(got, mm_xpool_va(&bench.pool, page), bytes),
			 CUDA_SUCCESS);
	assert_memory_equal(got, (const char *)core->store.base + offset, bytes);
	free(got);
}

static const struct {
	uint64_t offset, bytes;
} ranges[] = {
	{ 0, POOL *GRANULE },                  /* all of it, many times the ring */
	{ 4096, CHUNK },                       /* one buffer */
	{ 512, 1 },                            /* the least */
	{ 4095, 3 },                           /* across blocks */
	{ 12345, 5 * CHUNK + 777 },            /* nothing aligned */
	{ POOL * GRANULE - 100, 100 },         /* the end */
	{ 3 * GRANULE - 64, 3 * GRANULE + 64 } /* pages end within buffers */
};

static void test_bytes(void **state)
{
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(ranges); i++) {
		transfer_start(0, 0, bench.disk, ranges[i].offset, ranges[i].bytes, pages);
		run_until(i + 1);
		assert_int_equal(bench.result[0][0], 0);
		check_bytes(*state, 0, ranges[i].offset, ranges[i].bytes);
		if (i + 1 == TRANSFERS)
			break;
	}
}

/* Both flows want more buffers than there are; each gets its share. */
static void test_exhaustion(void **state)
{
	for (size_t i = 0; i < TRANSFERS; i++) {
		transfer_start(0, i, bench.disk, 0, 2 * GRANULE, pages);
		transfer_start(1, i, bench.disk, 8 * GRANULE, 2 * GRANULE, pages + 8);
	}
	run_until(2 * TRANSFERS);
	check_bytes(*state, 0, 0, 2 * GRANULE);
	check_bytes(*state, 8, 8 * GRANULE, 2 * GRANULE);
	for (size_t i = 0; i < TRANSFERS; i++)
		assert_true(bench.result[0][i] == 0 && bench.result[1][i] == 0);
	/*
	 * Round robin: neither flow is a ring's worth ahead of the other, so both end at the end.
	 */
	assert_int_not_equal(bench.order[2 * TRANSFERS - 1] / TRANSFERS,
			     bench.order[2 * TRANSFERS - 2] / TRANSFERS);
	ring_settle();
}

/*
 * Within a flow reads are requested in order: the first transfer has all buffers that it can use.
 */
static void test_order(void **state)
{
	(void)state;
	transfer_start(0, 0, bench.disk, 0, 8 * CHUNK, pages);
	transfer_start(0, 1, bench.disk, GRANULE, 8 * CHUNK, pages + 4);
	mm_xlink_read_ahead(&bench.link);
	assert_int_equal(bench.transfer[0][0].staged_bytes, BUFFERS * CHUNK);
	assert_int_equal(bench.transfer[0][1].staged_bytes, 0);
	assert_int_equal(free_buffers(), 0);
	run_until(2);
	assert_int_equal(bench.order[0], 0);
}

/* The flow that was served least gets the first buffers. */
static void test_urgency(void **state)
{
	(void)state;
	bench.flow[0].served_bytes[MM_XLANE_IN] = 10 * CHUNK;
	transfer_start(0, 0, bench.disk, 0, 8 * CHUNK, pages);
	transfer_start(1, 0, bench.disk, 0, 8 * CHUNK, pages + 8);
	bench.flow[1].served_bytes[MM_XLANE_IN] = 0;
	mm_xlink_read_ahead(&bench.link);
	assert_int_equal(bench.transfer[0][0].staged_bytes, 0);
	assert_int_equal(bench.transfer[1][0].staged_bytes, BUFFERS * CHUNK);
	run_until(2);
}

/* A transfer from memory does not wait for the disk, even behind one from disk in the same flow. */
static void test_memory_goes_on(void **state)
{
	transfer_start(0, 0, bench.disk, 0, CHUNK, pages);
	transfer_start(0, 1, bench.memory, 5 * GRANULE, 3 * GRANULE, pages + 4);
	/* Nothing was read yet: the ring has not run. */
	assert_false(mm_xtransfer_ready(&bench.transfer[0][0]));
	assert_true(mm_xtransfer_ready(&bench.transfer[0][1]));
	run_until(2);
	check_bytes(*state, 4, 5 * GRANULE, 3 * GRANULE);
	check_bytes(*state, 0, 0, CHUNK);
}

/* A transfer that is cancelled during its reads frees its buffers when the disk has answered. */
static void test_cancel(void **state)
{
	transfer_start(0, 0, bench.disk, 0, POOL * GRANULE, pages);
	mm_xlink_read_ahead(&bench.link);
	assert_true(mm_xstage_reads(&bench.stage, bench.disk));
	mm_xlink_cancel(&bench.link, &bench.transfer[0][0]);
	assert_int_equal(bench.result[0][0], -ECANCELED);
	assert_int_equal(bench.landed, 1);
	ring_settle();
	assert_false(mm_xstage_reads(&bench.stage, bench.disk));
	transfer_start(0, 1, bench.disk, GRANULE, GRANULE, pages);
	run_until(2);
	check_bytes(*state, 0, GRANULE, GRANULE);
}

/* A disk that fails or holds less than was promised ends that transfer; others go on. */
static void test_failures(void **state)
{
	struct core *core = *state;
	int pipe_fds[2];

	assert_int_equal(mm_xstores_add_disk(&bench.stores, 3, 2 * CHUNK,
					     core_make_file(core->store.base, 2 * CHUNK)),
			 0);
	bench.stores.first->bytes = POOL * GRANULE; /* more than the file has */
	transfer_start(0, 0, bench.stores.first, 0, 8 * CHUNK, pages);
	transfer_start(1, 0, bench.disk, 0, 8 * CHUNK, pages + 8);
	run_until(2);
	assert_int_equal(bench.result[0][0], MM_XLINK_UNREADABLE);
	assert_int_equal(bench.result[1][0], 0);
	check_bytes(core, 8, 0, 8 * CHUNK);
	ring_settle();
	/* Every such read fails on this descriptor. */
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	mm_xreads_release_file(&bench.stage.reads, &bench.stores.first->disk);
	close(bench.stores.first->disk.fd);
	bench.stores.first->disk = mm_xreads_file(&bench.stage.reads, pipe_fds[1]);
	transfer_start(0, 1, bench.stores.first, 0, CHUNK, pages);
	transfer_start(0, 2, bench.disk, GRANULE, CHUNK, pages);
	run_until(4);
	assert_int_equal(bench.result[0][1], MM_XLINK_UNREADABLE);
	assert_int_equal(bench.result[0][2], 0);
	close(pipe_fds[0]);
}

static void test_refused(void **state)
{
	struct core *core = *state;
	struct mm_xstage none = { 0 };
	int fd = core_make_file(core->store.base, GRANULE), memfd;

	assert_int_equal(mm_xstores_add_disk(&bench.stores, 9, GRANULE + 4096, fd), -EPROTO);
	fd = core_make_file(core->store.base, GRANULE);
	assert_int_equal(mm_xstores_add_disk(&bench.stores, 2, GRANULE, fd), -EEXIST);
	memfd = memfd_create("writable", MFD_CLOEXEC);
	assert_int_equal(ftruncate(memfd, GRANULE), 0);
	assert_int_equal(mm_xstores_add_disk(&bench.stores, 9, GRANULE, memfd), -EPROTO);
	bench.stores.stage = &none;
	fd = core_make_file(core->store.base, GRANULE);
	assert_int_equal(mm_xstores_add_disk(&bench.stores, 9, GRANULE, fd), -ENOTSUP);
	bench.stores.stage = &bench.stage;
	/* One buffer is not a ring. */
	assert_int_equal(
		mm_xstage_init(&none, &bench.dev, mm_xstage_buffer_bytes(CHUNK), CHUNK, -1),
		-EINVAL);
}

static const struct {
	const char *what;
	uint64_t skew, bytes, done;
	int result, want;
	uint64_t want_done;
} outcomes[] = {
	{ "all", 0, 8192, 0, 8192, 0, 0 },
	{ "more than wanted", 100, 5000, 0, 8192, 0, 0 },
	{ "just enough", 100, 5000, 0, 5100, 0, 0 },
	{ "one byte short", 100, 5000, 0, 5099, -EAGAIN, 4096 },
	{ "a block", 0, 8192, 0, 4096, -EAGAIN, 4096 },
	{ "less than a block", 0, 8192, 0, 100, -EAGAIN, 0 },
	{ "the rest", 0, 8192, 4096, 4096, 0, 4096 },
	{ "nothing: the end", 0, 8192, 4096, 0, -EIO, 4096 },
	{ "interrupted", 0, 8192, 0, -EINTR, -EAGAIN, 0 },
	{ "no O_DIRECT", 0, 8192, 0, -EINVAL, -EINVAL, 0 },
	{ "broken", 0, 8192, 0, -EIO, -EIO, 0 },
};

static void test_outcomes(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(outcomes); i++) {
		struct mm_xbuf buf = { .skew = outcomes[i].skew,
				       .bytes = outcomes[i].bytes,
				       .done = outcomes[i].done };
		int r = mm_xbuf_on_read(&buf, outcomes[i].result);

		if (r != outcomes[i].want || (r == -EAGAIN && buf.done != outcomes[i].want_done))
			fail_msg("%s: %d, done %lu", outcomes[i].what, r, buf.done);
	}
}

/* A disk that always returns a few bytes is given up after a number of reads. */
static void test_endless(void **state)
{
	struct mm_xbuf buf = { .bytes = 8192 };
	int r = -EAGAIN, rounds = 0;

	(void)state;
	while (r == -EAGAIN && rounds++ < 100000)
		r = mm_xbuf_on_read(&buf, rounds % 2 ? 1 : -EINTR);
	assert_int_equal(r, -EIO);
}

static void stage_forbid_uring(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(io_uring_setup), 0);
	if (seccomp_load(filter) != 0)
		abort();
	seccomp_release(filter);
}

static void test_by_helper(void **state)
{
	(void)state;
	assert_int_equal(bench.stage.reads.way, MM_XREADS_THREAD);
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define TESTS                                                                                      \
	T(test_bytes), T(test_exhaustion), T(test_order), T(test_urgency), T(test_memory_goes_on), \
		T(test_cancel), T(test_failures), T(test_refused)
	const struct CMUnitTest tests[] = { TESTS, cmocka_unit_test(test_outcomes),
					    cmocka_unit_test(test_endless) };
	const struct CMUnitTest by_helper[] = { T(test_by_helper), TESTS };
	int failed;

	core_main(argc, argv);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	/* Runs all tests again without io_uring. */
	stage_forbid_uring();
	return failed + cmocka_run_group_tests(by_helper, NULL, NULL);
}
