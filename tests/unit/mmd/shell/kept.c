/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mmd/shell/kept.h"

static int kept_dup(const struct mm_kept *kept)
{
	int fd = fcntl(kept->fd, F_DUPFD_CLOEXEC, 0);

	assert_true(fd >= 0);
	return fd;
}

static void test_a_successor_sees_what_was_written(void **state)
{
	struct mm_kept first, second;
	int fd;

	(void)state;
	assert_int_equal(mm_kept_create(2, 7, &first), 0);
	first.front->session[3].conn = 77;
	memset(mm_kept_journal(&first, 1), 1, MM_KEPT_JOURNAL_BYTES);
	*(char *)mm_kept_image(&first, 1, 1) = 2;
	mm_kept_outbox(&first, 6)->item[MM_OUTBOX_RING - 1].serial = 3;
	mm_kept_publish(&first.front->head.state, MM_BOOK_RUNNING);
	fd = kept_dup(&first);
	mm_kept_done(&first);
	assert_int_equal(mm_kept_open(fd, 2, 7, &second), 0);
	assert_int_equal(second.front->session[3].conn, 77);
	assert_int_equal(((char *)mm_kept_journal(&second, 1))[MM_KEPT_JOURNAL_BYTES - 1], 1);
	assert_int_equal(*(char *)mm_kept_image(&second, 1, 0), 0);
	assert_int_equal(*(char *)mm_kept_image(&second, 1, 1), 2);
	assert_int_equal(mm_kept_outbox(&second, 6)->item[MM_OUTBOX_RING - 1].serial, 3);
	mm_kept_done(&second);
}

static void test_what_is_no_book_is_refused(void **state)
{
	struct mm_kept kept, other;
	struct mm_book_head *head;

	(void)state;
	assert_int_equal(mm_kept_create(1, 3, &kept), 0);
	head = &kept.front->head;
	assert_int_equal(mm_kept_open(kept_dup(&kept), 1, 3, &other), -EBADMSG); /* not complete */
	head->state = MM_BOOK_RUNNING;
	assert_int_equal(mm_kept_open(kept_dup(&kept), 2, 3, &other), -EBADMSG);
	assert_int_equal(mm_kept_open(kept_dup(&kept), 1, 4, &other), -EBADMSG);
	head->format++;
	assert_int_equal(mm_kept_open(kept_dup(&kept), 1, 3, &other), -EBADMSG);
	head->format--;
	assert_int_equal(mm_kept_open(open("/dev/null", O_RDWR | O_CLOEXEC), 1, 3, &other),
			 -EBADMSG);
	assert_int_equal(mm_kept_open(kept_dup(&kept), 1, 3, &other), 0);
	mm_kept_done(&other);
	mm_kept_done(&kept);
}

static uint64_t blocks(const struct mm_kept *kept)
{
	struct stat st;

	assert_int_equal(fstat(kept->fd, &st), 0);
	return (uint64_t)st.st_blocks;
}

static void test_memory_is_given_back(void **state)
{
	struct mm_outbox_kept *box;
	struct mm_kept kept;
	uint64_t empty;

	(void)state;
	assert_int_equal(mm_kept_create(1, 3, &kept), 0);
	empty = blocks(&kept);
	assert_true(empty * 512 < 65536);
	box = mm_kept_outbox(&kept, 2);
	memset(box->event, 5, sizeof(box->event));
	assert_true(blocks(&kept) * 512 >= sizeof(box->event));
	mm_kept_release(box->event, sizeof(box->event));
	assert_true(blocks(&kept) * 512 < 65536 + empty * 512);
	assert_int_equal(box->event[1717].opcode, 0);
	mm_kept_done(&kept);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_successor_sees_what_was_written),
		cmocka_unit_test(test_what_is_no_book_is_refused),
		cmocka_unit_test(test_memory_is_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
