/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that breaks the protocol: the connection ends with -EPROTO, without other effect on the
 * engine.
 */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/ipc/sock.h"
#include "libclient/base/base.h"

static void event_send(struct fixture *f, struct mm_msg msg)
{
	peer_event(f->peer, &msg);
}

static void unknown_event(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_COUNT });
}

static void unknown_flag(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_NOP, .flags = 1 });
}

static void reserved_field(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_NOP, .reserved = 1 });
}

static void impossible_tail(struct fixture *f)
{
	__atomic_store_n(&f->peer->mmd->cq_tail.value, 70000, __ATOMIC_RELEASE);
	peer_bell(f->peer);
}

static void impossible_head(struct fixture *f)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = PEER_PAGE_BYTES,
				   .chunks_max = 1 };
	struct mm_kv *kv;

	__atomic_store_n(&f->peer->mmd->sq_head.value, 70000, __ATOMIC_RELEASE);
	assert_int_equal(mm_kv_open(f->client, &opts, &kv), -EPROTO);
}

static void long_message(struct fixture *f)
{
	char bytes[600] = { 0 };

	assert_int_equal(mm_sock_send(f->peer->sock, bytes, sizeof(bytes), NULL, 0), 0);
}

static void odd_message(struct fixture *f)
{
	assert_int_equal(mm_sock_send(f->peer->sock, "odd", 3, NULL, 0), 0);
}

static void doorbell_with_an_fd(struct fixture *f)
{
	int fd = f->peer->stop_fd;

	assert_int_equal(mm_sock_send(f->peer->sock, "x", 1, &fd, 1), 0);
}

static void pages_send(struct fixture *f, struct mm_fd_batch b, uint32_t n_fds)
{
	int fds[] = { peer_export(f->peer, 8), peer_export(f->peer, 9) };

	b.seq = 1;
	peer_batch(f->peer, &b, fds, n_fds);
	close(fds[0]);
	close(fds[1]);
}

static void batch_without_magic(struct fixture *f)
{
	pages_send(f, (struct mm_fd_batch){ .kind = MM_FD_PAGES, .count = 1 }, 1);
}

static void batch_of_no_kind(struct fixture *f)
{
	pages_send(f, (struct mm_fd_batch){ .magic = MM_ABI_MAGIC, .kind = 9, .count = 1 }, 1);
}

static void end_of_no_kind(struct fixture *f)
{
	const struct mm_end end = { .magic = MM_ABI_MAGIC, .kind = MM_END_KIND + 1 };

	assert_int_equal(mm_sock_send(f->peer->sock, &end, sizeof(end), NULL, 0), 0);
}

static void batch_that_miscounts(struct fixture *f)
{
	pages_send(f,
		   (struct mm_fd_batch){ .magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES, .count = 2 },
		   1);
}

static void batch_with_huge_count(struct fixture *f)
{
	pages_send(
		f,
		(struct mm_fd_batch){ .magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES, .count = 1000 },
		2);
}

static void page_outside_the_pool(struct fixture *f)
{
	pages_send(f,
		   (struct mm_fd_batch){ .magic = MM_ABI_MAGIC,
					 .kind = MM_FD_PAGES,
					 .count = 2,
					 .page_id = { 8, PEER_PAGES } },
		   2);
}

static void two_stores(struct fixture *f)
{
	pages_send(f,
		   (struct mm_fd_batch){ .magic = MM_ABI_MAGIC, .kind = MM_FD_STORE, .count = 2 },
		   2);
}

static struct mm_kv *arena_open(struct fixture *f)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = PEER_PAGE_BYTES,
				   .chunks_max = 2 };
	struct mm_kv *kv;

	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	return kv;
}

static void grant_without_arena(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT });
}

static void grant_out_of_range(struct fixture *f)
{
	arena_open(f);
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { 2 } });
}

static void grant_out_of_32_bits(struct fixture *f)
{
	arena_open(f);
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { UINT64_C(1) << 32 } });
}

static void grant_of_unsent_page(struct fixture *f)
{
	arena_open(f);
	peer_map(f->peer, MM_MAP_KV_BASE, 8 + 1);
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT });
}

static void grant_of_no_page_at_all(struct fixture *f)
{
	arena_open(f);
	peer_map(f->peer, MM_MAP_KV_BASE, UINT32_MAX);
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT });
}

static void grant_of_a_hole(struct fixture *f)
{
	arena_open(f);
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT });
}

static void grant_twice(struct fixture *f)
{
	const uint32_t page = 8;

	arena_open(f);
	peer_pages(f->peer, &page, 1);
	peer_map(f->peer, MM_MAP_KV_BASE, page + 1);
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT });
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_GRANT });
	fixture_event(f, MM_EVENT_KV_GRANTED);
}

static void denial_without_reason(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_KV_DENIED, .result = -EIO });
}

static void switch_without_model(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 1 });
}

static void prepare_of_epoch_0(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_PREPARE });
}

static void ready_without_model(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_MODEL_READY });
}

static void loaded_unasked(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_MODEL_LOADED, .arg = { 5, 5, 4096 } });
}

static void test_lies(void **state)
{
#define LIE(fn)         \
	{               \
#fn, fn \
	}
	static const struct {
		const char *name;
		void (*tell)(struct fixture *);
	} cases[] = {
		LIE(unknown_event),
		LIE(unknown_flag),
		LIE(reserved_field),
		LIE(impossible_tail),
		LIE(impossible_head),
		LIE(long_message),
		LIE(odd_message),
		LIE(doorbell_with_an_fd),
		LIE(batch_without_magic),
		LIE(batch_of_no_kind),
		LIE(end_of_no_kind),
		LIE(batch_that_miscounts),
		LIE(batch_with_huge_count),
		LIE(page_outside_the_pool),
		LIE(two_stores),
		LIE(grant_without_arena),
		LIE(grant_out_of_range),
		LIE(grant_out_of_32_bits),
		LIE(grant_of_unsent_page),
		LIE(grant_of_no_page_at_all),
		LIE(grant_of_a_hole),
		LIE(grant_twice),
		LIE(denial_without_reason),
		LIE(switch_without_model),
		LIE(prepare_of_epoch_0),
		LIE(ready_without_model),
		LIE(loaded_unasked),
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct fixture *f;

		print_message("%s\n", cases[i].name);
		fixture_setup((void **)&f);
		cases[i].tell(f);
		assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
		assert_int_equal(mm_step_begin(f->client), -EPROTO);
		assert_string_not_equal(mm_client_error(f->client), "");
		fixture_teardown((void **)&f);
	}
}

/* ---- with a model, and a step open ---- */

static void switch_unprepared(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });
}

static void switch_before_parked(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	event_send(f, (struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2 });
}

static void prepare_of_the_past(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 1 });
}

static void another_model(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_MODEL_LOADED, .arg = { 5, 5, 4096 } });
}

static void ready_again(struct fixture *f)
{
	event_send(f, (struct mm_msg){ .opcode = MM_EV_MODEL_READY });
}

static void test_lies_in_a_step(void **state)
{
	static const struct {
		const char *name;
		void (*tell)(struct fixture *);
	} cases[] = {
		LIE(switch_unprepared), LIE(switch_before_parked), LIE(prepare_of_the_past),
		LIE(another_model),     LIE(ready_again),
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct fixture *f;

		print_message("%s\n", cases[i].name);
		fixture_setup_model((void **)&f);
		assert_int_equal(mm_step_begin(f->client), 0);
		cases[i].tell(f);
		assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
		assert_int_equal(mm_step_end(f->client, f->stream, NULL), -EPROTO);
		fixture_teardown((void **)&f);
	}
}

/* ---- a store that lies ---- */

static void one_group_less(struct mm_dir *dir, uint64_t *args)
{
	(void)dir;
	args[0]--;
}

static void one_page_more(struct mm_dir *dir, uint64_t *args)
{
	(void)dir;
	args[1]++;
}

static void longer_than_it_is(struct mm_dir *dir, uint64_t *args)
{
	args[2] += 4096;
	dir->store_bytes += 4096;
}

static void groups_outside(struct mm_dir *dir, uint64_t *args)
{
	(void)args;
	dir->groups_offset = UINT64_MAX - 8;
}

static void test_lying_store(void **state)
{
	static const struct {
		const char *name;
		void (*tell)(struct mm_dir *, uint64_t *);
	} cases[] = { LIE(one_group_less), LIE(one_page_more), LIE(longer_than_it_is),
		      LIE(groups_outside) };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct call load = { 0 };
		struct fixture *f;
		unsigned int files;
		uint64_t bytes, args[3] = { PEER_LAYERS + 1, PEER_LAYERS + 1 };
		struct mm_dir *dir;
		int channel, fd;

		print_message("%s\n", cases[i].name);
		fixture_setup((void **)&f);
		call_start(&load, f, call_load);
		peer_expect(f->peer, MM_OP_MODEL_OPEN);
		channel = peer_open_channel(f->peer);
		peer_take_files(channel, &files);
		peer_load_status(channel, 0, "");
		close(channel);
		fd = peer_store(&bytes);
		dir = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		args[2] = bytes;
		cases[i].tell(dir, args);
		munmap(dir, bytes);
		peer_send_store(f->peer, args, fd);
		assert_int_equal(call_join(&load), -EPROTO);
		fixture_teardown((void **)&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_lies_in_a_step),
		cmocka_unit_test(test_lying_store),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
