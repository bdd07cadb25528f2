/* SPDX-License-Identifier: Apache-2.0 */
/* A ring that was restricted reads, and does nothing else. */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mmd/common/uring.h"

struct bench {
	struct io_uring ring;
	int file;
	char bytes[16];
};

static void bench_open(struct bench *b, bool fixed_files)
{
	if (io_uring_queue_init(4, &b->ring, IORING_SETUP_R_DISABLED) < 0)
		skip(); /* containers forbid it, or the kernel is old */
	if (fixed_files)
		assert_int_equal(io_uring_register_files_sparse(&b->ring, 2), 0);
	assert_int_equal(mm_uring_restrict(b->ring.ring_fd, fixed_files), 0);
	b->file = memfd_create("uring", MFD_CLOEXEC);
	assert_int_equal(write(b->file, "0123456789", 10), 10);
}

static void bench_close(struct bench *b)
{
	close(b->file);
	io_uring_queue_exit(&b->ring);
}

static int entry_run(struct bench *b)
{
	struct io_uring_cqe *cqe;
	int result;

	assert_int_equal(io_uring_submit_and_wait(&b->ring, 1), 1);
	assert_int_equal(io_uring_peek_cqe(&b->ring, &cqe), 0);
	result = cqe->res;
	io_uring_cqe_seen(&b->ring, cqe);
	return result;
}

static struct io_uring_sqe *entry_next(struct bench *b)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&b->ring);

	assert_non_null(sqe);
	return sqe;
}

static void test_reads_only(void **state)
{
	struct iovec iov;
	struct bench b;

	(void)state;
	bench_open(&b, false);
	io_uring_prep_read(entry_next(&b), b.file, b.bytes, 4, 3);
	assert_int_equal(entry_run(&b), 4);
	assert_memory_equal(b.bytes, "3456", 4);
	io_uring_prep_write(entry_next(&b), b.file, "x", 1, 0);
	assert_int_equal(entry_run(&b), -EACCES);
	io_uring_prep_openat(entry_next(&b), AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
	assert_int_equal(entry_run(&b), -EACCES);
	io_uring_prep_nop(entry_next(&b));
	assert_int_equal(entry_run(&b), -EACCES);
	iov = (struct iovec){ b.bytes, sizeof(b.bytes) };
	assert_int_equal(io_uring_register_buffers(&b.ring, &iov, 1), -EACCES);
	bench_close(&b);
}

static void test_fixed_files(void **state)
{
	struct io_uring_sqe *sqe;
	struct bench b;

	(void)state;
	bench_open(&b, true);
	assert_int_equal(io_uring_register_files_update(&b.ring, 1, &b.file, 1), 1);
	sqe = entry_next(&b);
	io_uring_prep_read(sqe, 1, b.bytes, 2, 8);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	assert_int_equal(entry_run(&b), 2);
	assert_memory_equal(b.bytes, "89", 2);
	sqe = entry_next(&b);
	io_uring_prep_write(sqe, 1, "x", 1, 0);
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	assert_int_equal(entry_run(&b), -EACCES);
	assert_int_equal(io_uring_unregister_files(&b.ring), -EACCES);
	bench_close(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_only),
		cmocka_unit_test(test_fixed_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
