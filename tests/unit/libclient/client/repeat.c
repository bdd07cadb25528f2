/* SPDX-License-Identifier: Apache-2.0 */
/* An mmd that says things twice, as one may that restarts (MM_FEAT_RESUME). */
#undef NDEBUG
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/ipc/sock.h"
#include "tests/unit/libclient/client/fixture.h"

static unsigned int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void batch_send(struct fixture *f, uint64_t seq, uint32_t page)
{
	const struct mm_fd_batch batch = { .magic = MM_ABI_MAGIC,
					   .kind = MM_FD_PAGES,
					   .seq = seq,
					   .count = 1,
					   .page_id = { page } };
	int fd = peer_export(f->peer, page % PEER_PAGES);

	peer_batch(f->peer, &batch, &fd, 1);
	close(fd);
}

static void ack_comes(struct fixture *f, uint64_t seq)
{
	struct mm_msg ack = peer_expect(f->peer, MM_OP_FDS_ACK);

	assert_int_equal(ack.arg[0], seq);
	assert_int_equal(ack.result, 0);
}

/* The second is acknowledged like the first; its fds are closed, and what it names is not taken. */
static void test_batch(void **state)
{
	struct fixture *f = *state;
	unsigned int fds;

	batch_send(f, 1, 8);
	ack_comes(f, 1);
	batch_send(f, 2, 9);
	ack_comes(f, 2);
	fds = open_fds();
	batch_send(f, 2, 9);
	ack_comes(f, 2);
	batch_send(f, 1, PEER_PAGES + 3); /* as a first one it would end the connection */
	ack_comes(f, 1);
	peer_drained(f->peer);
	assert_int_equal(open_fds(), fds);
}

/*
 * Nor are the fds of the second needed: where none is free it is acknowledged all the same, and
 * events go on. An answer that asks for it once more would find an mmd that has its answer already.
 */
static void test_batch_truncated(void **state)
{
	const struct mm_fd_batch batch = {
		.magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES, .seq = 1, .count = 1, .page_id = { 8 }
	};
	struct fixture *f = *state;
	int fd = peer_export(f->peer, 8), next = fcntl(0, F_DUPFD_CLOEXEC, 0);
	struct rlimit old, low;

	batch_send(f, 1, 8);
	ack_comes(f, 1);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	peer_batch(f->peer, &batch, &fd, 1);
	ack_comes(f, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	close(fd);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_NOP });
	peer_drained(f->peer);
}

static void welcome_again(struct fixture *f, size_t more)
{
	struct peer *p = f->peer;
	const int fds[] = { p->tenant_region.fd, p->mmd_region.fd, p->gate_region.fd };

	p->welcome.size_bytes = (uint16_t)(sizeof(p->welcome) + more);
	assert_int_equal(mm_sock_send(p->sock, &p->welcome, p->welcome.size_bytes, fds, 3), 0);
}

static void test_welcome(void **state)
{
	struct fixture *f = *state;
	unsigned int fds = open_fds();
	struct mm_client_info info = { .size = sizeof(info) };

	welcome_again(f, 0);
	welcome_again(f, sizeof(f->peer->welcome_tail));
	peer_drained(f->peer);
	assert_int_equal(open_fds(), fds);
	assert_int_equal(mm_client_info(f->client, &info), 0);
	/* That of another session is none of ours. */
	f->peer->welcome.session[3] ^= 1;
	welcome_again(f, 0);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

/* A later deadline replaces an earlier one, and the chunks are not owed twice. */
static void test_reclaim(void **state)
{
	struct fixture *f = *state;
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = PEER_PAGE_BYTES,
				   .chunks_max = 2 };
	struct mm_event event = { .size = sizeof(event) };
	struct mm_kv *kv;

	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	batch_send(f, 1, 8);
	ack_comes(f, 1);
	peer_map(f->peer, MM_MAP_KV_BASE, 8 + 1);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT });
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM, .arg = { 1, 1000, 1 } });
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM, .arg = { 1, 2000, 1 } });
	peer_drained(f->peer);
	fixture_event(f, MM_EVENT_KV_GRANTED);
	event = fixture_event(f, MM_EVENT_KV_RECLAIM);
	assert_int_equal(event.count, 1);
	assert_int_equal(event.deadline_ns, 2000);
	assert_int_equal(mm_client_next_event(f->client, &event), -EAGAIN);
	/* It may also come after the first was taken. */
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM, .arg = { 1, 3000, 1 } });
	event = fixture_event(f, MM_EVENT_KV_RECLAIM);
	assert_int_equal(event.count, 1);
	assert_int_equal(event.deadline_ns, 3000);
}

/* The same of a turn's end, while a step is open; its turn is given back once. */
static void test_turn_end(void **state)
{
	const struct mm_turn_opts opts = { .size = sizeof(opts), .mode = MM_TURN_QUANTUM };
	struct fixture *f = *state;
	struct mm_event event = { .size = sizeof(event) };

	assert_int_equal(mm_turn_join(f->client, &opts), 0);
	assert_int_equal(mm_turn_want(f->client, 0), -EAGAIN);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN, .arg = { 5, 1000 } });
	fixture_event(f, MM_EVENT_TURN_BEGIN);
	assert_int_equal(mm_step_begin(f->client), 0);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_END, .arg = { 5, 1000 } });
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_END, .arg = { 5, 2000 } });
	peer_drained(f->peer);
	event = fixture_event(f, MM_EVENT_TURN_END);
	assert_int_equal(event.deadline_ns, 2000);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_TURN_DONE).arg[0], 5);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_END, .arg = { 5, 3000 } });
	peer_absent(f->peer, MM_OP_TURN_DONE, 50);
}

/* Connections that end before a welcome are made again, and a refusal is final. */
static void test_open(void **state)
{
	(void)state;
	for (int refuse = 0; refuse < 2; refuse++) {
		struct peer *p = peer_start();
		struct mm_client_opts opts = peer_client_opts(p);
		struct mm_client *client = NULL;
		char err[320];

		p->hang_ups = 4;
		if (refuse) {
			p->welcome.result = -ECONNRESET;
			p->welcome_fds = 0;
		}
		assert_int_equal(mm_client_open(&opts, &client, err, sizeof(err)),
				 refuse ? -ECONNRESET : 0);
		if (refuse)
			assert_non_null(strstr(err, "mmd refused"));
		mm_client_close(client);
		peer_stop(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_batch, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(test_batch_truncated, fixture_setup,
						fixture_teardown),
		cmocka_unit_test_setup_teardown(test_welcome, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(test_reclaim, fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(test_turn_end, fixture_setup, fixture_teardown),
		cmocka_unit_test(test_open),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
