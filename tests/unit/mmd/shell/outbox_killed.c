/* SPDX-License-Identifier: Apache-2.0 */
/* An outbox whose core is killed between any two instructions, and goes on in its successor. */
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

#include "libclient/base/base.h"
#include "libclient/ipc/sock.h"
#include "libclient/support/cleanup.h"
#include "mmd/shell/outbox.h"
#include "tests/unit/mmd/shell/stepped.h"

#define CHUNKS      6 /* each is a page, a map entry and an event */
#define PUTS        (3 * CHUNKS)
#define PAGES       (2 * CHUNKS)
#define ITEMS_BYTES (64 * sizeof(struct mm_outbox_item))

/* A tenant: takes batches by their numbers, then events up to the tail that it read before. */
struct tenant {
	uint64_t seq;        /* of the last batch that it took */
	uint32_t has[PAGES]; /* pages that it has */
	uint64_t events;
};

struct place {
	struct mm_cursor head, tail;
	mm_msg_slot slots[MM_CQ_SLOTS];
	uint32_t map[MM_MAP_ENTRIES];
	struct tenant tenant;
	uint64_t tenant_runs; /* core dies, the tenant does not: it is not looked at in between */
	uint64_t puts;        /* that were done */
	uint64_t answered;    /* seq that was answered and has not been handled; 0: none */
	struct mm_outbox_kept kept;
};

struct world {
	struct place *shared, *copy;
	int sock[2], page_fd[PAGES];
	uint64_t looks, repeats;
};

static struct mm_fd_budget budget;

static void put(struct mm_outbox *box, uint64_t n)
{
	const uint32_t chunk = (uint32_t)(n / 3);
	const struct mm_msg msg = { .opcode = MM_EV_KV_GRANT, .arg = { chunk } };
	const uint64_t serial = n + 1;
	int r = 0;

	if (mm_outbox_has(box, serial))
		return;
	if (n % 3 == 0)
		r = mm_outbox_put_page(box, chunk, chunk / 4, serial);
	else if (n % 3 == 1)
		r = mm_outbox_put_map(box, chunk, chunk + 1, serial);
	else
		r = mm_outbox_put_event(box, &msg, serial);
	mm_assert(r == 0);
}

/* Takes a batch in, and answers it. False: there is none. */
static bool batch_take(struct place *p, int sock)
{
	int fds[MM_FD_BATCH_MAX];
	struct mm_fd_batch b;
	size_t n_fds = 0, len = 0;

	if (mm_sock_recv(sock, &b, sizeof(b), fds, MM_FD_BATCH_MAX, &n_fds, &len) != 0)
		return false;
	for (size_t i = 0; i < n_fds; i++) {
		close(fds[i]);
		if (b.seq > p->tenant.seq)
			p->tenant.has[b.page_id[i]] = 1;
	}
	p->tenant.seq = MM_MAX(p->tenant.seq, b.seq);
	p->answered = b.seq;
	return true;
}

/* Reads the tail, then the socket, then events up to that tail, as libclient does. */
static void tenant_run(struct place *p, int sock)
{
	uint32_t tail = p->tail.value;
	struct mm_msg msg;

	__atomic_store_n(&p->tenant_runs, 1, __ATOMIC_SEQ_CST);
	while (batch_take(p, sock))
		continue;
	while (p->head.value != tail) {
		memcpy(&msg, p->slots[p->head.value % MM_CQ_SLOTS], sizeof(msg));
		mm_assert(msg.arg[0] == p->tenant.events);
		mm_assert(p->tenant.has[msg.arg[0]]);
		mm_assert(p->map[msg.arg[0]] == msg.arg[0] + 1);
		p->tenant.events++;
		p->head.value++;
	}
	__atomic_store_n(&p->tenant_runs, 0, __ATOMIC_SEQ_CST);
}

static void answer_handle(struct mm_outbox *box, struct place *p)
{
	if (!p->answered)
		return;
	mm_assert(mm_outbox_ack(box, p->answered, 0, 0) == 0);
	p->answered = 0;
}

/* Puts what is left, and serves the tenant until it has all. */
static void rest_do(struct mm_outbox *box, struct place *p, int sock)
{
	answer_handle(box, p);
	for (uint64_t i = p->puts; i < PUTS; i++) {
		put(box, i);
		p->puts = i + 1;
		if (i % 4 == 3) {
			mm_assert(mm_outbox_flush(box, 0) == 0);
			tenant_run(p, sock);
			answer_handle(box, p);
		}
	}
	for (int i = 0; i < 2 * CHUNKS && p->tenant.events < CHUNKS; i++) {
		mm_assert(mm_outbox_flush(box, 0) == 0);
		tenant_run(p, sock);
		answer_handle(box, p);
	}
}

static void script(void *arg)
{
	struct world *w = arg;
	struct place *p = w->shared;
	struct mm_outbox box;
	struct mm_ring ring;

	budget = (struct mm_fd_budget){ .max = 1024 };
	mm_ring_init(&ring, p->slots, MM_CQ_SLOTS, &p->tail, &p->head);
	mm_outbox_init(&box, &p->kept, w->sock[0], &ring, p->map, w->page_fd, &budget);
	rest_do(&box, p, w->sock[1]);
}

static void place_copy(struct world *w)
{
	const size_t items = offsetof(struct place, kept) + offsetof(struct mm_outbox_kept, item);
	const size_t events = offsetof(struct place, kept) + offsetof(struct mm_outbox_kept, event);

	memcpy(w->copy, w->shared, items + ITEMS_BYTES);
	memcpy((char *)w->copy + events, (char *)w->shared + events, 64 * sizeof(struct mm_msg));
}

/* Sends the batch that the tenant has not received, if there is one, to its copy. */
static void batch_copy(struct world *w, int to)
{
	struct mm_fd_batch b;
	size_t len;

	/* Its fds make mm_sock_peek() say so; the message is there all the same. */
	if (mm_sock_peek(w->sock[1], &b, sizeof(b), &len) != -EPERM)
		return;
	mm_assert(mm_sock_send(to, &b, sizeof(b), w->page_fd, b.count) == 0);
}

static void copy_check(void *arg)
{
	struct world *w = arg;
	struct place *p = w->copy;
	struct mm_outbox box;
	struct mm_ring ring;
	int sock[2];

	if (w->shared->tenant_runs)
		return;
	place_copy(w);
	assert_int_equal(mm_sock_pair(sock), 0);
	batch_copy(w, sock[0]);
	budget = (struct mm_fd_budget){ .max = 1024 };
	mm_ring_init(&ring, p->slots, MM_CQ_SLOTS, &p->tail, &p->head);
	mm_outbox_resume(&box, &p->kept, sock[0], &ring, p->map, w->page_fd, &budget);
	w->repeats += box.maybe_sent;
	/* The tenant sleeps, and there may be events in its ring of which it knows nothing. */
	assert_true(box.bell);
	rest_do(&box, p, sock[1]);
	assert_int_equal(p->tenant.events, CHUNKS);
	assert_int_equal(p->tail.value, CHUNKS);
	/* An answer to a batch that was sent again may be there yet. */
	while (batch_take(p, sock[1]))
		continue;
	answer_handle(&box, p);
	assert_int_equal(budget.used, 0);
	mm_close_fd(&sock[0]);
	mm_close_fd(&sock[1]);
	w->looks++;
}

static void test_killed_at_any_instruction(void **state)
{
	struct world w = { .shared = stepped_memory(sizeof(struct place)),
			   .copy = stepped_memory(sizeof(struct place)) };
	uint64_t steps;

	(void)state;
	assert_int_equal(mm_sock_pair(w.sock), 0);
	for (size_t i = 0; i < PAGES; i++)
		w.page_fd[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
	steps = stepped_run(script, copy_check, &w, stepped_every(7));
	print_message("%lu instructions, %lu looks, %lu with a batch that may have been sent\n",
		      (unsigned long)steps, (unsigned long)w.looks, (unsigned long)w.repeats);
	assert_int_equal(w.shared->tenant.events, CHUNKS);
	assert_true(w.repeats > 0);
	for (size_t i = 0; i < PAGES; i++)
		close(w.page_fd[i]);
	close(w.sock[0]);
	close(w.sock[1]);
	munmap(w.shared, sizeof(struct place));
	munmap(w.copy, sizeof(struct place));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_at_any_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
