/* SPDX-License-Identifier: Apache-2.0 */
/* The KV arena: grants, denials, releases, reclaims; fds that arrive truncated. */
#undef NDEBUG
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"

/* Two ranges, a chunk is two pages in each: four table entries per chunk. */
static struct mm_kv *open_arena(struct fixture *f, uint32_t chunks_max)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = 2 * PEER_PAGE_BYTES,
				   .ranges = 2,
				   .chunks_max = chunks_max,
				   .share_chunks = 1 };
	struct mm_kv *kv = NULL;
	struct mm_msg msg;

	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	msg = peer_expect(f->peer, MM_OP_KV_DECLARE);
	assert_int_equal(msg.arg[0], 2 * PEER_PAGE_BYTES);
	assert_int_equal(msg.arg[1], 2);
	assert_int_equal(msg.arg[2], chunks_max);
	assert_int_equal(msg.arg[3], 1);
	return kv;
}

static void chunk_grant(struct fixture *f, uint32_t chunk, uint32_t first_page)
{
	uint32_t ids[4];

	for (uint32_t i = 0; i < 4; i++) {
		ids[i] = first_page + i;
		peer_map(f->peer, MM_MAP_KV_BASE + chunk * 4 + i, ids[i] + 1);
	}
	peer_pages(f->peer, ids, 4);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { chunk } });
}

static void wait_for_chunks(struct mm_kv *kv, uint32_t chunks)
{
	for (uint32_t i = 0; mm_kv_usable(kv, NULL, 0) < chunks; i++) {
		assert_true(i < 60000);
		usleep(1000);
	}
}

/* Checks that no event is queued and that the fd is not readable. */
static void no_event(struct fixture *f)
{
	struct pollfd fd = { .fd = mm_client_event_fd(f->client), .events = POLLIN };
	struct mm_event event = { .size = sizeof(event) };

	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(mm_client_next_event(f->client, &event), -EAGAIN);
}

/* Sends an event of another kind, with which the next one is not merged. */
static void demand_refuse(struct fixture *f)
{
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_KV_DENIED, .result = -ENOSPC, .arg = { 1 } });
	peer_drained(f->peer);
}

/* Reclaims @chunks as an mmd that knows of @known releases; returns when the client has read it. */
static void chunks_reclaim(struct fixture *f, uint32_t chunks, uint64_t known, uint64_t deadline_ns)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM,
					      .arg = { chunks, deadline_ns, known + 1 } });
	peer_drained(f->peer);
}

static void test_grant_and_release(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 3);
	const uint64_t chunk_bytes = 2 * PEER_PAGE_BYTES;
	size_t free_before, free_after, total;
	uint64_t bitmap[2] = { 9, 9 };

	assert_int_equal(mm_kv_want(kv, 1, 0), -EAGAIN);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_WANT).arg[0], 1);
	for (uint32_t i = 0; i < 4; i++)
		peer_fill(f->peer, 8 + i, (uint8_t)(0xa0 + i));
	chunk_grant(f, 2, 8);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 1);
	assert_int_equal(mm_kv_usable(kv, bitmap, 2), 1);
	assert_int_equal(bitmap[0], 4);
	assert_int_equal(bitmap[1], 0);
	for (uint32_t i = 0; i < 4; i++) {
		CUdeviceptr va =
			mm_kv_range_va(kv, i / 2) + 2 * chunk_bytes + i % 2 * PEER_PAGE_BYTES;

		assert_int_equal(fixture_read(f, va), 0xa0 + i);
		assert_int_equal(fixture_read(f, va + PEER_PAGE_BYTES - 1), 0xa0 + i);
		fixture_write(f, va, 0x77);
		assert_int_equal(peer_byte(f->peer, 8 + i), 0x77);
	}
	assert_int_equal(mm_kv_range_va(kv, 2), 0);

	/*
	 * The memory is free once both sides have released it: no handle and no mapping of the
	 * client is left.
	 */
	for (uint32_t i = 0; i < 4; i++)
		peer_drop_page(f->peer, 8 + i);
	f->peer->gpu.cuMemGetInfo(&free_before, &total);
	assert_int_equal(mm_kv_release(kv, 1), -ENOENT);
	assert_int_equal(mm_kv_release(kv, 2), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], 2);
	assert_int_equal(mm_kv_release(kv, 2), -ENOENT);
	f->peer->gpu.cuMemGetInfo(&free_after, &total);
	assert_int_equal(free_after - free_before, 4 * PEER_PAGE_BYTES);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 0);
}

static void test_want_waits(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 3);
	struct call want = { .kv = kv, .chunks = 2, .timeout_ns = MM_TIMEOUT_NEVER };

	call_start(&want, f, call_want);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_WANT).arg[0], 2);
	chunk_grant(f, 0, 8);
	chunk_grant(f, 1, 12);
	assert_int_equal(call_join(&want), 0);
	no_event(f); /* the call has returned that they were granted */
	assert_int_equal(mm_kv_want(kv, 1, 0), 0);
	assert_int_equal(mm_kv_want(kv, 3, MM_NS_PER_MS), -ETIMEDOUT);
	assert_int_equal(mm_kv_want(kv, 4, 0), -EINVAL);

	/* The demand for the third would be granted again: it is lowered before the release. */
	while (peer_expect(f->peer, MM_OP_KV_WANT).arg[0] != 3)
		;
	assert_int_equal(mm_kv_release(kv, 0), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_WANT).arg[0], 2);
	peer_expect(f->peer, MM_OP_KV_RELEASE);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 1);
}

static void test_denied(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 3);
	struct call want = { .kv = kv, .chunks = 2, .timeout_ns = MM_TIMEOUT_NEVER };

	call_start(&want, f, call_want);
	peer_expect(f->peer, MM_OP_KV_WANT);
	peer_event(
		f->peer,
		&(struct mm_msg){ .opcode = MM_EV_KV_DENIED, .result = -EDQUOT, .arg = { 2, 0 } });
	assert_int_equal(call_join(&want), -EDQUOT);
	no_event(f);
	/* A call that did not wait is followed by the event. */
	assert_int_equal(mm_kv_want(kv, 2, 0), -EAGAIN);
	peer_expect(f->peer, MM_OP_KV_WANT);
	peer_event(
		f->peer,
		&(struct mm_msg){ .opcode = MM_EV_KV_DENIED, .result = -EDQUOT, .arg = { 2, 0 } });
	assert_int_equal(fixture_event(f, MM_EVENT_KV_DENIED).error, -EDQUOT);
}

/*
 * Events from before the wait are reported as always, as are those during it if the call returns
 * another outcome.
 */
static void test_events_beside_a_wait(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 5);
	struct call want = { .kv = kv, .chunks = 2, .timeout_ns = MM_TIMEOUT_NEVER };

	assert_int_equal(mm_kv_want(kv, 1, 0), -EAGAIN);
	chunk_grant(f, 0, 0);
	wait_for_chunks(kv, 1);
	chunks_reclaim(f, 1, 0, 7);
	call_start(&want, f, call_want);
	while (peer_expect(f->peer, MM_OP_KV_WANT).arg[0] != 2)
		;
	chunk_grant(f, 1, 4);
	assert_int_equal(call_join(&want), 0);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 1);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_RECLAIM).count, 1);
	no_event(f);

	want.chunks = 5;
	call_start(&want, f, call_want);
	while (peer_expect(f->peer, MM_OP_KV_WANT).arg[0] != 5)
		;
	chunk_grant(f, 2, 8);
	peer_event(
		f->peer,
		&(struct mm_msg){ .opcode = MM_EV_KV_DENIED, .result = -ENOSPC, .arg = { 5, 3 } });
	assert_int_equal(call_join(&want), -ENOSPC);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 1);
	no_event(f);
}

static void test_never_waits_in_a_step(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 3);
	struct call want = { .kv = kv, .chunks = 2, .timeout_ns = MM_TIMEOUT_NEVER };

	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_kv_want(kv, 1, MM_TIMEOUT_NEVER), -EAGAIN);
	/* The rule holds for any thread: the step is this thread's, the demand another's. */
	call_start(&want, f, call_want);
	assert_int_equal(call_join(&want), -EAGAIN);
	/* Chunks that are granted meanwhile are mapped at once. */
	chunk_grant(f, 0, 8);
	fixture_event(f, MM_EVENT_KV_GRANTED);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 1);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* Chunks 0 to 4 of five. */
static struct mm_kv *full_arena(struct fixture *f)
{
	struct mm_kv *kv = open_arena(f, 5);

	for (uint32_t i = 0; i < 5; i++)
		chunk_grant(f, i, 4 * i);
	wait_for_chunks(kv, 5);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 5);
	return kv;
}

/* Several at once: all or, if one cannot be, none; a demand above them is lowered once. */
static void test_release_many(void **state)
{
	static const struct {
		uint32_t chunks[3];
		const char *error;
	} bad[] = {
		{ { 0, 3, 0 }, "chunk 0 is not usable, or named twice" },
		{ { 4, 5, 1 }, "chunk 5 is not usable, or named twice" },
		{ { UINT32_MAX, 1, 2 }, "chunk 4294967295 is not usable, or named twice" },
	};
	struct fixture *f = *state;
	struct mm_kv *kv = full_arena(f);
	uint64_t bitmap = 0;

	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++) {
		assert_int_equal(mm_kv_release_many(kv, bad[i].chunks, 3), -ENOENT);
		assert_string_equal(mm_client_error(f->client), bad[i].error);
		assert_int_equal(mm_kv_usable(kv, &bitmap, 1), 5);
		assert_int_equal(bitmap, 0x1f);
	}
	assert_int_equal(mm_kv_release_many(kv, NULL, 0), 0);
	chunks_reclaim(f, 4, 0, 12345);
	assert_int_equal(mm_kv_release_many(kv, (const uint32_t[]){ 4, 0, 2 }, 3), 0);
	assert_int_equal(mm_kv_usable(kv, &bitmap, 1), 2);
	assert_int_equal(bitmap, 1 << 1 | 1 << 3);
	assert_int_equal(mm_kv_owed(kv, NULL), 1);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], 4);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], 2);
}

static void test_reclaim(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = full_arena(f);
	struct mm_event event = { .size = sizeof(event) };
	uint64_t deadline_ns = 9;

	assert_int_equal(mm_kv_owed(kv, &deadline_ns), 0);
	assert_int_equal(deadline_ns, 0);
	chunks_reclaim(f, 2, 0, 12345);
	assert_int_equal(mm_kv_owed(kv, &deadline_ns), 2);
	assert_int_equal(deadline_ns, 12345);
	event = fixture_event(f, MM_EVENT_KV_RECLAIM);
	assert_int_equal(event.count, 2);
	assert_int_equal(event.deadline_ns, 12345);
	no_event(f);
	assert_int_equal(mm_kv_owed(kv, NULL), 2); /* reported, and not released yet */
	mm_kv_release(kv, 4);
	assert_int_equal(mm_kv_owed(kv, NULL), 1);
	/* The number is never above the chunks that are usable. */
	chunks_reclaim(f, 9, 1, 5);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_RECLAIM).count, 4);
	/* If mmd does not send the number that it knows, it counts as knowing all releases. */
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_RECLAIM, .arg = { 3, 5 } });
	assert_int_equal(fixture_event(f, MM_EVENT_KV_RECLAIM).count, 3);
}

/* An engine that reads events after 3 s of reclaims every 200 ms releases what it owes once. */
static void test_looks_late(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = full_arena(f);
	uint32_t given = 0, chunk = 5;
	struct mm_event event = { .size = sizeof(event) };

	for (uint64_t i = 1; i <= 15; i++) {
		chunks_reclaim(f, 2, 0, 200 * i);
		if (i == 7)
			demand_refuse(f);
	}
	while (!mm_client_next_event(f->client, &event)) {
		if (event.kind != MM_EVENT_KV_RECLAIM)
			continue;
		assert_int_equal(event.deadline_ns, 3000);
		for (uint32_t i = 0; i < event.count; i++, given++)
			assert_int_equal(mm_kv_release(kv, --chunk), 0);
	}
	assert_int_equal(given, 2);
	assert_int_equal(mm_kv_owed(kv, NULL), 0);
	/* mmd sent these before it had seen any of the releases, or one. */
	chunks_reclaim(f, 2, 0, 3200);
	no_event(f);
	chunks_reclaim(f, 1, 1, 3400);
	no_event(f);
	/*
	 * mmd has seen these and reclaims more; one of them is released before the event is read.
	 */
	chunks_reclaim(f, 2, 2, 3600);
	assert_int_equal(mm_kv_release(kv, --chunk), 0);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_RECLAIM).count, 1);
	/* mmd reclaims fewer. */
	chunks_reclaim(f, 2, 3, 3800);
	chunks_reclaim(f, 1, 3, 4000);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_RECLAIM).count, 1);
	chunks_reclaim(f, 2, 3, 4200);
	chunks_reclaim(f, 0, 3, 0);
	no_event(f);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 2);
}

/* For an engine that never reads events their memory does not grow; counts are added up. */
static void test_many_events(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 3);
	uint32_t granted = 0, others = 0;
	struct mm_event event = { .size = sizeof(event) };

	for (int i = 0; i < 200; i++) {
		chunk_grant(f, 0, 0);
		wait_for_chunks(kv, 1);
		chunks_reclaim(f, 1, (uint64_t)i, 5);
		demand_refuse(f);
		assert_int_equal(mm_kv_release(kv, 0), 0);
	}
	while (!mm_client_next_event(f->client, &event)) {
		granted += event.kind == MM_EVENT_KV_GRANTED ? event.count : 0;
		others += event.kind != MM_EVENT_KV_GRANTED;
	}
	assert_int_equal(granted, 200);
	assert_in_range(others, 1, 64);
}

static void test_opts(void **state)
{
	static const struct {
		const char *name;
		struct mm_kv_opts opts;
		int want;
	} cases[] = {
		{ "no size", { .chunk_bytes = PEER_PAGE_BYTES, .chunks_max = 1 }, -EINVAL },
		{ "misaligned",
		  { .size = sizeof(struct mm_kv_opts), .chunk_bytes = 100, .chunks_max = 1 },
		  -EINVAL },
		{ "no bytes", { .size = sizeof(struct mm_kv_opts), .chunks_max = 1 }, -EINVAL },
		{ "no chunks",
		  { .size = sizeof(struct mm_kv_opts), .chunk_bytes = PEER_PAGE_BYTES },
		  -EINVAL },
		{ "one entry too many",
		  { .size = sizeof(struct mm_kv_opts),
		    .chunk_bytes = PEER_PAGE_BYTES,
		    .chunks_max = MM_MAP_ENTRIES - MM_MAP_KV_BASE + 1 },
		  -E2BIG },
		{ "entries wrap",
		  { .size = sizeof(struct mm_kv_opts),
		    .chunk_bytes = PEER_PAGE_BYTES << 40,
		    .ranges = 1 << 24,
		    .chunks_max = 1 },
		  -E2BIG },
	};
	struct fixture *f = *state;
	struct mm_kv *kv;

	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		print_message("%s\n", cases[i].name);
		assert_int_equal(mm_kv_open(f->client, &cases[i].opts, &kv), cases[i].want);
		assert_string_not_equal(mm_client_error(f->client), "");
	}
	open_arena(f, 3);
	assert_int_equal(mm_kv_open(f->client,
				    &(struct mm_kv_opts){ .size = sizeof(struct mm_kv_opts),
							  .chunk_bytes = PEER_PAGE_BYTES,
							  .chunks_max = 1 },
				    &kv),
			 -EEXIST);
}

static int call_open_arena(struct call *call)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = PEER_PAGE_BYTES,
				   .chunks_max = 1 };

	return mm_kv_open(call->f->client, &opts, &call->kv);
}

static void test_refused_arena(void **state)
{
	struct fixture *f = *state;
	struct call open = { 0 };
	struct mm_msg msg;

	__atomic_store_n(&f->peer->manual, true, __ATOMIC_RELEASE);
	call_start(&open, f, call_open_arena);
	msg = peer_expect(f->peer, MM_OP_KV_DECLARE);
	/* A reply for which no call waits, then the refusal. */
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY, .user_data = 99 });
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .user_data = msg.user_data,
					      .result = -E2BIG });
	assert_int_equal(call_join(&open), -E2BIG);
	assert_non_null(strstr(open.error, "refused the arena"));
	__atomic_store_n(&f->peer->manual, false, __ATOMIC_RELEASE);
	open_arena(f, 3);
}

/* The event is in the ring already; its pages arrive when the batch is sent again. */
static void test_truncated_batch(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f, 3);
	struct mm_fd_batch batch = { .magic = MM_ABI_MAGIC, .kind = MM_FD_PAGES, .count = 4 };
	int fds[4], next = fcntl(0, F_DUPFD_CLOEXEC, 0);
	struct rlimit old, low;
	struct mm_msg ack;

	for (uint32_t i = 0; i < 4; i++) {
		batch.page_id[i] = 8 + i;
		fds[i] = peer_export(f->peer, 8 + i);
		peer_map(f->peer, MM_MAP_KV_BASE + i, 8 + i + 1);
	}
	batch.seq = f->peer->seq = 1;
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = (rlim_t)next + 2, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	peer_batch(f->peer, &batch, fds, 4);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT });
	ack = peer_expect(f->peer, MM_OP_FDS_ACK);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(ack.result, -EMFILE);
	assert_int_equal(ack.arg[0], 1);

	batch.seq = 2;
	peer_batch(f->peer, &batch, fds, 4);
	ack = peer_expect(f->peer, MM_OP_FDS_ACK);
	assert_int_equal(ack.result, 0);
	assert_int_equal(ack.arg[0], 2);
	fixture_event(f, MM_EVENT_KV_GRANTED);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 1);
	for (int i = 0; i < 4; i++)
		close(fds[i]);
}

/* The first call blocks until the test releases it. */
static struct {
	CUresult(CUDAAPI *real)(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
				size_t count);
	_Atomic uint32_t calls;
	_Atomic bool go;
} access_set;

static CUresult CUDAAPI slow_set_access(CUdeviceptr va, size_t bytes, const CUmemAccessDesc *desc,
					size_t count)
{
	if (access_set.calls++ == 0)
		while (!access_set.go)
			usleep(1000);
	return access_set.real(va, bytes, desc, count);
}

static void wait_for_calls(uint32_t calls)
{
	for (uint32_t i = 0; access_set.calls < calls; i++) {
		assert_true(i < 60000);
		usleep(1000);
	}
}

/*
 * Access is set once for neighbours whose grants arrive together, and once more for a chunk apart.
 */
static void test_neighbours_are_mapped_together(void **state)
{
	static const uint32_t late[] = { 1, 2, 3, 5 };
	const struct mm_kv_opts opts = { .size = sizeof(opts),
					 .chunk_bytes = PEER_PAGE_BYTES,
					 .ranges = 1,
					 .chunks_max = 6,
					 .share_chunks = 1 };
	const uint32_t ids[] = { 8, 9, 10, 11, 12, 13 };
	struct fixture *f = *state;
	struct mm_gpu_api *table = (struct mm_gpu_api *)mm_client_gpu(f->client);
	struct mm_kv *kv = NULL;
	uint32_t granted = 0;

	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	peer_expect(f->peer, MM_OP_KV_DECLARE);
	access_set.real = table->cuMemSetAccess;
	access_set.calls = 0;
	access_set.go = false;
	table->cuMemSetAccess = slow_set_access;
	assert_int_equal(mm_kv_want(kv, 5, 0), -EAGAIN);
	for (uint32_t i = 0; i < 6; i++) {
		peer_fill(f->peer, ids[i], (uint8_t)(0xb0 + i));
		peer_map(f->peer, MM_MAP_KV_BASE + i, ids[i] + 1);
	}
	peer_pages(f->peer, ids, 6);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT });
	wait_for_calls(1);
	for (size_t i = 0; i < MM_ARRAY_SIZE(late); i++)
		peer_event(f->peer,
			   &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { late[i] } });
	access_set.go = true;
	wait_for_chunks(kv, 5);
	assert_int_equal(access_set.calls, 3);
	for (uint32_t i = 0; i < 6; i++)
		if (i != 4)
			assert_int_equal(
				fixture_read(f, mm_kv_range_va(kv, 0) + i * PEER_PAGE_BYTES),
				0xb0 + i);
	while (granted < 5)
		granted += fixture_event(f, MM_EVENT_KV_GRANTED).count;
	assert_int_equal(granted, 5);
	assert_int_equal(mm_kv_release(kv, 2), 0);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 4);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_grant_and_release),
		TEST(test_want_waits),
		TEST(test_denied),
		TEST(test_events_beside_a_wait),
		TEST(test_never_waits_in_a_step),
		TEST(test_release_many),
		TEST(test_reclaim),
		TEST(test_looks_late),
		TEST(test_many_events),
		TEST(test_opts),
		TEST(test_refused_arena),
		TEST(test_truncated_batch),
		TEST(test_neighbours_are_mapped_together),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
