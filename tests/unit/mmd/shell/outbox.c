/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/outbox.h"

#define PAGES 200

/* Both ends of one tenant's connection. */
struct rig {
	int sock[2];
	struct mm_cursor head, tail;
	mm_msg_slot slots[MM_CQ_SLOTS];
	struct mm_ring in, out;
	uint32_t map[MM_MAP_ENTRIES];
	int page_fd[PAGES];
	struct mm_fd_budget budget;
	struct mm_outbox box;
	struct mm_outbox_kept *kept;
	int fds_at_start;
};

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	rig->fds_at_start = open_fds();
	assert_int_equal(mm_sock_pair(rig->sock), 0);
	mm_ring_init(&rig->out, rig->slots, MM_CQ_SLOTS, &rig->tail, &rig->head);
	mm_ring_init(&rig->in, rig->slots, MM_CQ_SLOTS, &rig->head, &rig->tail);
	for (size_t i = 0; i < PAGES; i++)
		rig->page_fd[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	rig->budget.max = 1024;
	rig->kept = mmap(NULL, sizeof(*rig->kept), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(rig->kept != MAP_FAILED);
	mm_outbox_init(&rig->box, rig->kept, rig->sock[0], &rig->out, rig->map, rig->page_fd,
		       &rig->budget);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	mm_outbox_done(&rig->box);
	munmap(rig->kept, sizeof(*rig->kept));
	assert_int_equal(rig->budget.used, 0);
	for (size_t i = 0; i < PAGES; i++)
		mm_close_fd(&rig->page_fd[i]);
	mm_close_fd(&rig->sock[0]);
	mm_close_fd(&rig->sock[1]);
	assert_int_equal(open_fds(), rig->fds_at_start);
	free(rig);
	return 0;
}

static void put_event(struct rig *rig, uint64_t chunk)
{
	struct mm_msg msg = { .opcode = MM_EV_KV_GRANT, .arg[0] = chunk };

	assert_int_equal(mm_outbox_put_event(&rig->box, &msg, 0), 0);
}

static void put_pages(struct rig *rig, uint32_t first, uint32_t n, uint64_t epoch)
{
	for (uint32_t i = first; i < first + n; i++)
		assert_int_equal(mm_outbox_put_page(&rig->box, i, epoch, 0), 0);
}

/* Receives the batch under way. Return: the number of its fds; 0 = there is none. */
static uint32_t batch(struct rig *rig, struct mm_fd_batch *ret_batch)
{
	int fds[MM_FD_BATCH_MAX];
	size_t n_fds = 0, len = 0;
	int r = mm_sock_recv(rig->sock[1], ret_batch, sizeof(*ret_batch), fds, MM_FD_BATCH_MAX,
			     &n_fds, &len);

	if (r == -EAGAIN)
		return 0;
	assert_int_equal(r, 0);
	assert_int_equal(len, sizeof(*ret_batch));
	assert_int_equal(ret_batch->count, n_fds);
	for (size_t i = 0; i < n_fds; i++)
		close(fds[i]);
	return (uint32_t)n_fds;
}

static uint64_t event_pop(struct rig *rig)
{
	struct mm_msg msg;

	return mm_ring_pop(&rig->in, &msg) == 0 ? msg.arg[0] : 0;
}

static bool even(const void *owner, uint32_t page)
{
	return owner && page % 2 == 0;
}

/*
 * A page that was given back before its fd was sent may be another tenant's: the fd must not leave.
 */
static void test_pages_that_are_not_its_any_more(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;

	rig->box.owns_page = even;
	rig->box.owner = rig;
	put_pages(rig, 1, 3, 7);
	put_event(rig, 5);
	assert_int_equal(mm_outbox_flush(&rig->box, 1), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(b.page_id[0], 2);
	rig->box.owns_page = NULL;
	assert_int_equal(mm_outbox_ack(&rig->box, b.seq, -EMFILE, 2), 0);
	rig->box.owns_page = even;
	rig->box.owner = NULL;
	assert_int_equal(mm_outbox_flush(&rig->box, UINT64_MAX - 1), -EBADF);
	assert_int_equal(batch(rig, &b), 0);
	rig->box.owner = rig;
	assert_int_equal(mm_outbox_flush(&rig->box, UINT64_MAX - 1), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(mm_outbox_ack(&rig->box, b.seq, 0, 2), 0);
	assert_int_equal(mm_outbox_flush(&rig->box, UINT64_MAX - 1), 0);
	assert_int_equal(batch(rig, &b), 0);
	assert_int_equal(event_pop(rig), 5);
}

/*
 * Map entries and events are delivered behind the batch of their pages; items behind the next batch
 * wait until the first is acknowledged.
 */
static void test_order(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;

	put_pages(rig, 3, 2, 9);
	assert_int_equal(mm_outbox_put_map(&rig->box, 7, 4, 0), 0);
	put_event(rig, 1);
	put_pages(rig, 5, 1, 10);
	assert_int_equal(mm_outbox_put_map(&rig->box, 8, 6, 0), 0);
	put_event(rig, 2);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 2);
	assert_int_equal(b.page_id[1], 4);
	assert_int_equal(b.epoch, 9);
	assert_int_equal(b.seq, 1);
	assert_int_equal(rig->map[7], 4);
	assert_int_equal(event_pop(rig), 1);
	assert_true(rig->box.bell);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 0);
	assert_int_equal(rig->map[8], 0);
	assert_int_equal(event_pop(rig), 0);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, 0, 0), 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(rig->map[8], 6);
	assert_int_equal(event_pop(rig), 2);
}

/* An event must not pass a batch that could not be sent or is sent again. */
static void test_nothing_passes_a_batch_that_comes_again(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;
	uint64_t now = 1;

	put_pages(rig, 0, 3, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
	assert_int_equal(batch(rig, &b), 3);
	assert_int_equal(mm_outbox_ack(&rig->box, b.seq, -EMFILE, now), 0);
	assert_int_equal(mm_outbox_put_map(&rig->box, 7, 4, 0), 0);
	put_event(rig, 1);
	assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
	assert_int_equal(rig->map[7], 0);
	assert_int_equal(event_pop(rig), 0);
	now = rig->box.retry_ns;
	assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
	assert_int_equal(batch(rig, &b), 3);
	assert_int_equal(rig->map[7], 4);
	assert_int_equal(event_pop(rig), 1);
}

/*
 * A batch ends at 64 fds or at another epoch; only one is under way. Pages of chunks that are
 * granted one by one share a batch, and each event comes behind the batch of its page.
 */
static void test_batches(void **state)
{
	static const struct {
		uint32_t count;
		uint64_t epoch;
		uint32_t events;
	} want[] = { { 64, 1, 64 }, { 6, 1, 6 }, { 9, 2, 9 } };
	struct rig *rig = *state;
	struct mm_fd_batch b;
	uint32_t chunk = 0;

	for (uint32_t i = 0; i < 79; i++) {
		assert_int_equal(mm_outbox_put_map(&rig->box, i, i + 1, 0), 0);
		put_pages(rig, i, 1, i < 70 ? 1 : 2);
		put_event(rig, i + 1);
	}
	for (size_t i = 0; i < MM_ARRAY_SIZE(want); i++) {
		assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
		assert_int_equal(batch(rig, &b), want[i].count);
		assert_int_equal(b.epoch, want[i].epoch);
		assert_int_equal(b.page_id[0], chunk);
		assert_int_equal(batch(rig, &b), 0);
		assert_int_equal(rig->budget.used, want[i].count);
		for (uint32_t n = 0; n < want[i].events; n++)
			assert_int_equal(event_pop(rig), ++chunk);
		assert_int_equal(event_pop(rig), 0);
		assert_int_equal(mm_outbox_ack(&rig->box, i + 1, 0, 0), 0);
	}
	assert_int_equal(rig->budget.used, 0);
}

static void test_again(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;
	uint64_t now = 1;

	put_pages(rig, 0, 3, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
	assert_int_equal(batch(rig, &b), 3);
	assert_int_equal(mm_outbox_ack(&rig->box, b.seq, -EMFILE, now), 0);
	assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
	assert_int_equal(batch(rig, &b), 0); /* it is not sent again at once */
	now = rig->box.retry_ns;
	assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
	assert_int_equal(batch(rig, &b), 3);
	assert_int_equal(b.seq, 2);
	for (int i = 1; i < MM_OUTBOX_RESENDS; i++) {
		assert_int_equal(mm_outbox_ack(&rig->box, b.seq, -EMFILE, now), 0);
		now = rig->box.retry_ns;
		assert_int_equal(mm_outbox_flush(&rig->box, now), 0);
		assert_int_equal(batch(rig, &b), 3);
	}
	assert_int_equal(mm_outbox_ack(&rig->box, b.seq, -EMFILE, now), MM_E_PROTOCOL);
}

static void test_bad_acks(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;

	assert_int_equal(mm_outbox_ack(&rig->box, 0, 0, 0), MM_E_PROTOCOL);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, 0, 0), MM_E_PROTOCOL);
	put_pages(rig, 0, 1, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(mm_outbox_ack(&rig->box, 2, 0, 0), MM_E_PROTOCOL);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, -EIO, 0), MM_E_PROTOCOL);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, 0, 0), 0);
	/* A batch may be answered again, without effect, and one that was not sent may not. */
	assert_int_equal(mm_outbox_ack(&rig->box, 1, 0, 0), 0);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, -EMFILE, 0), 0);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, -EIO, 0), MM_E_PROTOCOL);
	assert_int_equal(mm_outbox_ack(&rig->box, 2, 0, 0), MM_E_PROTOCOL);
	assert_int_equal(mm_outbox_ack(&rig->box, 0, 0, 0), MM_E_PROTOCOL);
	put_pages(rig, 1, 1, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(b.seq, 2);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, 0, 0), 0);
	assert_int_equal(rig->kept->batch_state, MM_BATCH_UNACKED);
	assert_int_equal(mm_outbox_ack(&rig->box, 2, 0, 0), 0);
	assert_int_equal(rig->kept->batch_state, MM_BATCH_NONE);
}

/*
 * Other outboxes use up the budget of fds in flight; this one waits, and sends once there is room.
 */
static void test_budget(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;

	rig->budget.used = 1024 - 2 * MM_OUTBOX_SHARES;
	put_pages(rig, 0, 5, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 2);
	assert_int_equal(mm_outbox_ack(&rig->box, 1, 0, 0), 0);
	rig->budget.used = 1024;
	assert_int_equal(mm_outbox_flush(&rig->box, 5), 0);
	assert_int_equal(batch(rig, &b), 0);
	assert_true(rig->box.retry_ns != UINT64_MAX);
	rig->budget.used = 0;
	assert_int_equal(mm_outbox_flush(&rig->box, 5), 0);
	assert_int_equal(batch(rig, &b), 3);
}

/* When as many tenants as there may be acknowledge no batch, the next one still gets its own. */
static void test_hoarders(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;
	uint32_t hoarded = 0;

	for (int i = 0; i < 64; i++)
		hoarded += (uint32_t)mm_div_up(rig->budget.max - hoarded, MM_OUTBOX_SHARES);
	rig->budget.used = hoarded;
	put_pages(rig, 0, 5, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_true(batch(rig, &b) >= 1);
	rig->budget.used -= hoarded;
}

/*
 * A single fd is acknowledged like a batch and closed then; one that is left is closed by
 * mm_outbox_done().
 */
static void test_single_fd(void **state)
{
	struct rig *rig = *state;
	struct mm_fd_batch b;

	for (int i = 0; i < 2; i++)
		assert_int_equal(mm_outbox_put_fd(&rig->box, i ? MM_FD_GROUP : MM_FD_STORE,
						  open("/dev/null", O_RDONLY | O_CLOEXEC), 0),
				 0);
	put_event(rig, 1);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(b.kind, MM_FD_STORE);
	assert_int_equal(event_pop(rig), 0);
	assert_int_equal(mm_outbox_ack(&rig->box, b.seq, 0, 0), 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_int_equal(batch(rig, &b), 1);
	assert_int_equal(event_pop(rig), 1);
}

static void test_full_ring(void **state)
{
	struct rig *rig = *state;

	for (uint64_t i = 1; i <= MM_CQ_SLOTS + 1; i++)
		put_event(rig, i);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), 0);
	assert_true(rig->box.retry_ns != UINT64_MAX);
	for (uint64_t i = 1; i <= MM_CQ_SLOTS; i++)
		assert_int_equal(event_pop(rig), i);
	assert_int_equal(event_pop(rig), 0);
	assert_int_equal(mm_outbox_flush(&rig->box, rig->box.retry_ns), 0);
	assert_int_equal(event_pop(rig), MM_CQ_SLOTS + 1);
}

static void test_impossible_cursor(void **state)
{
	struct rig *rig = *state;

	rig->head.value = 5;
	put_event(rig, 1);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), MM_E_PROTOCOL);
}

static void test_missing_fd(void **state)
{
	struct rig *rig = *state;

	mm_close_fd(&rig->page_fd[1]);
	put_pages(rig, 0, 2, 0);
	assert_int_equal(mm_outbox_flush(&rig->box, 0), -EBADF);
}

#define RIGGED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pages_that_are_not_its_any_more, setup,
						teardown),
		RIGGED(test_order),
		RIGGED(test_nothing_passes_a_batch_that_comes_again),
		RIGGED(test_batches),
		RIGGED(test_again),
		RIGGED(test_bad_acks),
		RIGGED(test_budget),
		RIGGED(test_hoarders),
		RIGGED(test_single_fd),
		RIGGED(test_full_ring),
		RIGGED(test_impossible_cursor),
		RIGGED(test_missing_fd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
