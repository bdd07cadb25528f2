/* SPDX-License-Identifier: Apache-2.0 */
/* The book of another build: all bytes are described, and a book that was left is copied whole. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "mmd/fields/layout.h"
#include "mmd/journal/journal.h"
#include "mmd/shell/described.h"
#include "mmd/shell/kept_layout.h"
#include "tests/unit/mmd/fields/described.h"

#ifdef MM_KNOWS_PADDING
#define STRUCTS(X)                                        \
	X(mm_book_parts_fields, struct mm_book_parts)     \
	X(mm_book_head_fields, struct mm_book_head)       \
	X(mm_image_kept_fields, struct mm_image_kept)     \
	X(mm_pool_kept_fields, struct mm_pool_kept)       \
	X(mm_kept_xfacts_fields, struct mm_xfacts)        \
	X(mm_device_fields, struct mm_device)             \
	X(mm_told_kept_fields, struct mm_told_kept)       \
	X(mm_pushed_job_fields, struct mm_pushed_job)     \
	X(mm_pushed_kept_fields, struct mm_pushed_kept)   \
	X(mm_worker_kept_fields, struct mm_worker_kept)   \
	X(mm_store_kept_fields, struct mm_store_kept)     \
	X(mm_store_key_fields, struct mm_store_key)       \
	X(mm_keys_kept_fields, struct mm_keys_kept)       \
	X(mm_stores_kept_fields, struct mm_stores_kept)   \
	X(mm_model_kept_fields, struct mm_model_kept)     \
	X(mm_session_kept_fields, struct mm_session_kept) \
	X(mm_kept_kv_fields, struct mm_core_kv)           \
	X(mm_kept_order_fields, struct mm_core_rank)      \
	X(mm_group_rank_fields, struct mm_group_rank)     \
	X(mm_group_fields, struct mm_group)               \
	X(mm_group_kept_fields, struct mm_group_kept)     \
	X(mm_outbox_item_fields, struct mm_outbox_item)   \
	X(mm_kept_batch_fields, struct mm_fd_batch)       \
	X(mm_kept_msg_fields, struct mm_msg)              \
	X(mm_outbox_kept_fields, struct mm_outbox_kept)   \
	X(mm_kept_front_fields, struct mm_kept_front)

STRUCTS(MM_DESCRIBED_CLEAR)
static const struct mm_described described[] = { STRUCTS(MM_DESCRIBED_ROW) };

static void test_each_byte_is_described(void **state)
{
	const size_t n = sizeof(described) / sizeof(described[0]);

	(void)state;
	for (size_t i = 0; i < n; i++)
		mm_described_check(&described[i]);
	mm_described_complete(described, n, &mm_kept_front_fields);
	mm_described_complete(described, n, &mm_outbox_kept_fields);
}
#endif

/* Makes a book with something in it everywhere. */
static struct mm_kept book_make(void)
{
	struct mm_journal journal;
	struct mm_outbox_kept *box;
	struct mm_kept kept;

	assert_int_equal(mm_kept_create(2, 7, &kept), 0);
	kept.front->head.generation = 9;
	kept.front->pool[1].image_valid = 2;
	kept.front->pool[1].image[1].bytes = 5;
	memcpy(mm_kept_image(&kept, 1, 1), "image", 5);
	mm_journal_create(mm_kept_journal(&kept, 1), MM_KEPT_JOURNAL_BYTES, &journal);
	kept.front->session[3].conn = 77;
	kept.front->stores.keys.key[MM_KEYS_MAX - 1].account = 78;
	kept.front->group[5].group.rank[1].held[0] = 79;
	box = mm_kept_outbox(&kept, 6);
	box->item[MM_OUTBOX_RING - 1].serial = 80;
	box->event[3].arg[2] = 81;
	kept.front->head.state = MM_BOOK_LEFT;
	return kept;
}

static uint64_t book_blocks(const struct mm_kept *kept)
{
	struct stat st;

	assert_int_equal(fstat(kept->fd, &st), 0);
	return (uint64_t)st.st_blocks;
}

static void test_a_book_is_copied(void **state)
{
	struct mm_kept old = book_make(), new;
	char why[256] = "";

	(void)state;
	old.front->head.parts.layout++; /* so that it is of another build */
	assert_int_equal(mm_kept_convert(old.fd, 2, 7, &new, why, sizeof(why)), 0);
	assert_int_equal(new.front->head.state, MM_BOOK_FRESH);
	assert_int_equal(new.front->head.generation, 9);
	assert_int_equal(new.front->head.parts.layout, mm_kept_layout());
	assert_int_equal(new.front->session[3].conn, 77);
	assert_int_equal(new.front->stores.keys.key[MM_KEYS_MAX - 1].account, 78);
	assert_int_equal(new.front->group[5].group.rank[1].held[0], 79);
	assert_int_equal(mm_kept_outbox(&new, 6)->item[MM_OUTBOX_RING - 1].serial, 80);
	assert_int_equal(mm_kept_outbox(&new, 6)->event[3].arg[2], 81);
	assert_memory_equal(mm_kept_image(&new, 1, 1), "image", 5);
	assert_true(book_blocks(&new) <= 2 * book_blocks(&old));
	mm_kept_done(&new);
	mm_kept_done(&old);
}

static void test_what_cannot_be_copied_is_refused(void **state)
{
	struct mm_kept old = book_make(), new;
	struct mm_book_parts *parts = &old.front->head.parts;
	const struct mm_book_parts good = *parts;
	char why[256] = "";

	(void)state;
	old.front->head.state = MM_BOOK_RUNNING;
	assert_int_equal(mm_kept_convert(old.fd, 2, 7, &new, why, sizeof(why)), -EBADMSG);
	assert_string_equal(why, "its book: its core did not give way");
	old.front->head.state = MM_BOOK_LEFT;
	for (uint64_t *at = &parts->schema_at; at <= &parts->outbox_bytes; at++) {
		*at = old.front->head.bytes + 1;
		assert_true(mm_kept_convert(old.fd, 2, 7, &new, why, sizeof(why)) < 0);
		*at = UINT64_MAX - 4095;
		assert_true(mm_kept_convert(old.fd, 2, 7, &new, why, sizeof(why)) < 0);
		*parts = good;
	}
	old.front->session[4].state = MM_SESSION_CLOSED + 1;
	assert_int_equal(mm_kept_convert(old.fd, 2, 7, &new, why, sizeof(why)), -EBADMSG);
	assert_string_equal(why, "its book: damaged: no such value of state");
	old.front->session[4].state = 0;
	old.front->pool[1].image[1].bytes = MM_KEPT_IMAGE_BYTES + 1;
	assert_int_equal(mm_kept_convert(old.fd, 2, 7, &new, why, sizeof(why)), -E2BIG);
	mm_kept_done(&old);
}

/* A build in which it would be something else does not take it as it is. */
static void test_a_book_of_another_layout_is_not_opened(void **state)
{
	struct mm_kept old = book_make(), new;
	int fd = fcntl(old.fd, F_DUPFD_CLOEXEC, 0);

	(void)state;
	old.front->head.parts.layout++;
	assert_int_equal(mm_kept_open(fd, 2, 7, &new), -ESTALE);
	mm_kept_done(&old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef MM_KNOWS_PADDING
		cmocka_unit_test(test_each_byte_is_described),
#endif
		cmocka_unit_test(test_a_book_is_copied),
		cmocka_unit_test(test_what_cannot_be_copied_is_refused),
		cmocka_unit_test(test_a_book_of_another_layout_is_not_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
