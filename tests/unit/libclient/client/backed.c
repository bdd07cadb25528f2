/* SPDX-License-Identifier: Apache-2.0 */
/* An arena whose addresses can always be touched, and one whose ranges lie at one stride. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"

#define RANGES      2
#define CHUNKS      3
#define CHUNK_PAGES 2
#define CHUNK_BYTES (CHUNK_PAGES * PEER_PAGE_BYTES)
#define FILLER      20 /* the page that the peer gives for it */

struct open_call {
	struct call call;
	uint32_t flags;
};

static int open_run(struct call *call)
{
	const struct open_call *open = (const struct open_call *)call;
	const struct mm_kv_opts opts = { .size = sizeof(opts),
					 .chunk_bytes = CHUNK_BYTES,
					 .ranges = RANGES,
					 .chunks_max = CHUNKS,
					 .flags = open->flags };

	return mm_kv_open(call->f->client, &opts, &call->kv);
}

/* Answers the request for the filler's page with @result. */
static void filler_give(struct fixture *f, int result)
{
	const uint32_t page = FILLER;
	const struct mm_msg request = peer_expect(f->peer, MM_OP_MEM_ALLOC);

	assert_int_equal(request.arg[1], 1);
	if (!result) {
		peer_map(f->peer, (uint32_t)request.arg[0], FILLER + 1);
		peer_pages(f->peer, &page, 1);
	}
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .result = result,
					      .user_data = request.user_data,
					      .arg = { request.opcode, !result } });
}

static struct mm_kv *arena_open(struct fixture *f, uint32_t flags)
{
	struct open_call open = { .flags = flags };

	call_start(&open.call, f, open_run);
	if (flags & MM_KV_BACKED)
		filler_give(f, 0);
	peer_expect(f->peer, MM_OP_KV_DECLARE);
	if (call_join(&open.call))
		fail_msg("%s", open.call.error);
	return open.call.kv;
}

static CUdeviceptr chunk_va(const struct mm_kv *kv, uint32_t range, uint32_t chunk)
{
	return mm_kv_range_va(kv, range) + chunk * CHUNK_BYTES;
}

static void chunk_grant(struct fixture *f, uint32_t chunk, uint32_t first_page)
{
	uint32_t ids[RANGES * CHUNK_PAGES];

	for (uint32_t i = 0; i < MM_ARRAY_SIZE(ids); i++) {
		ids[i] = first_page + i;
		peer_fill(f->peer, ids[i], (uint8_t)(0xa0 + i));
		peer_map(f->peer, MM_MAP_KV_BASE + chunk * RANGES * CHUNK_PAGES + i, ids[i] + 1);
	}
	peer_pages(f->peer, ids, MM_ARRAY_SIZE(ids));
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { chunk } });
}

/* Both pages of @chunk in both ranges hold @byte: they are the filler. */
static void chunk_is_filler(struct fixture *f, const struct mm_kv *kv, uint32_t chunk, uint8_t byte)
{
	for (uint32_t i = 0; i < RANGES * CHUNK_PAGES; i++)
		assert_int_equal(fixture_read(f, chunk_va(kv, i / CHUNK_PAGES, chunk) +
							 i % CHUNK_PAGES * PEER_PAGE_BYTES + 7),
				 byte);
}

static void chunk_is_granted(struct fixture *f, const struct mm_kv *kv, uint32_t chunk)
{
	for (uint32_t i = 0; i < RANGES * CHUNK_PAGES; i++)
		assert_int_equal(fixture_read(f, chunk_va(kv, i / CHUNK_PAGES, chunk) +
							 i % CHUNK_PAGES * PEER_PAGE_BYTES + 7),
				 0xa0 + i);
}

static void grant_and_wait(struct fixture *f, struct mm_kv *kv, uint32_t chunk, uint32_t first_page)
{
	const uint64_t generation = mm_kv_generation(kv);
	const uint32_t usable = mm_kv_usable(kv, NULL, 0);

	assert_int_equal(mm_kv_want(kv, usable + 1, 0), -EAGAIN);
	peer_expect(f->peer, MM_OP_KV_WANT);
	chunk_grant(f, chunk, first_page);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 1);
	assert_int_not_equal(mm_kv_generation(kv), generation);
}

static void test_backed(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = arena_open(f, MM_KV_BACKED);
	const uint64_t generation = mm_kv_generation(kv);

	fixture_write(f, chunk_va(kv, 1, 2) + 7, 0x55);
	assert_int_equal(peer_byte(f->peer, FILLER), 0); /* only byte 7 */
	for (uint32_t c = 0; c < CHUNKS; c++)
		chunk_is_filler(f, kv, c, 0x55);
	assert_int_equal(mm_kv_generation(kv), generation);

	grant_and_wait(f, kv, 1, 8);
	chunk_is_granted(f, kv, 1);
	chunk_is_filler(f, kv, 0, 0x55);
	chunk_is_filler(f, kv, 2, 0x55);
	fixture_write(f, chunk_va(kv, 0, 0) + 7, 0x66);
	chunk_is_granted(f, kv, 1);

	assert_int_equal(mm_kv_release(kv, 1), 0);
	peer_expect(f->peer, MM_OP_KV_RELEASE);
	chunk_is_filler(f, kv, 1, 0x66);
	assert_int_equal(mm_kv_usable(kv, NULL, 0), 0);
	/* The same chunk again, and one that goes with the client. */
	grant_and_wait(f, kv, 1, 12);
	chunk_is_granted(f, kv, 1);
}

static void test_memory_is_free_again(void **state)
{
	struct fixture *f = *state;
	size_t free_before, free_after, total;
	struct mm_kv *kv = arena_open(f, MM_KV_BACKED);

	grant_and_wait(f, kv, 0, 8);
	for (uint32_t i = 0; i < RANGES * CHUNK_PAGES; i++)
		peer_drop_page(f->peer, 8 + i);
	f->peer->gpu.cuMemGetInfo(&free_before, &total);
	assert_int_equal(mm_kv_release(kv, 0), 0);
	f->peer->gpu.cuMemGetInfo(&free_after, &total);
	assert_int_equal(free_after - free_before, RANGES * CHUNK_PAGES * PEER_PAGE_BYTES);
}

/* Without the filler's page there is no arena, and another one can be opened. */
static void test_refused(void **state)
{
	struct open_call open = { .flags = MM_KV_BACKED };
	struct fixture *f = *state;

	call_start(&open.call, f, open_run);
	filler_give(f, -ENOSPC);
	assert_int_equal(call_join(&open.call), -ENOSPC);
	assert_string_not_equal(open.call.error, "");
	arena_open(f, 0);
}

/* A second arena does not touch the first one. */
static void test_second_arena(void **state)
{
	struct open_call open = { .flags = MM_KV_BACKED };
	struct fixture *f = *state;
	struct mm_kv *kv = arena_open(f, 0);

	grant_and_wait(f, kv, 1, 8);
	call_start(&open.call, f, open_run);
	filler_give(f, 0);
	assert_int_equal(call_join(&open.call), -EEXIST);
	assert_int_equal(peer_expect(f->peer, MM_OP_MEM_FREE).arg[1], 1);
	chunk_is_granted(f, kv, 1);
}

static struct {
	CUresult(CUDAAPI *real)(CUdeviceptr va, size_t bytes, size_t offset,
				CUmemGenericAllocationHandle handle, unsigned long long flags);
	_Atomic int left; /* calls until one fails; 0: none does */
} map_calls;

static CUresult CUDAAPI failing_map(CUdeviceptr va, size_t bytes, size_t offset,
				    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	if (map_calls.left && --map_calls.left == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return map_calls.real(va, bytes, offset, handle, flags);
}

static void map_fail(struct fixture *f, int call)
{
	struct mm_gpu_api *table = (struct mm_gpu_api *)mm_client_gpu(f->client);

	if (table->cuMemMap != failing_map) {
		map_calls.real = table->cuMemMap;
		table->cuMemMap = failing_map;
	}
	map_calls.left = call;
}

/* The device does not map the filler: the chunk is given back, the next change fills the hole. */
static void test_filler_is_not_mapped(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = arena_open(f, MM_KV_BACKED);

	fixture_write(f, chunk_va(kv, 0, 0) + 7, 0x55);
	for (int n = 1; n <= RANGES * CHUNK_PAGES; n++) {
		grant_and_wait(f, kv, 1, 8);
		map_fail(f, n);
		assert_int_equal(mm_kv_release(kv, 1), 0);
		peer_expect(f->peer, MM_OP_KV_RELEASE);
		assert_int_equal(map_calls.left, 0);
		grant_and_wait(f, kv, 2, 12);
		for (uint32_t c = 0; c < 2; c++)
			chunk_is_filler(f, kv, c, 0x55);
		chunk_is_granted(f, kv, 2);
		assert_int_equal(mm_kv_release(kv, 2), 0);
		peer_expect(f->peer, MM_OP_KV_RELEASE);
	}
}

/* The device does not map what was granted: it is given back, and the filler is there again. */
static void test_grant_is_not_mapped(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = arena_open(f, MM_KV_BACKED);

	fixture_write(f, chunk_va(kv, 0, 0) + 7, 0x55);
	for (int n = 1; n <= RANGES * CHUNK_PAGES; n++) {
		map_fail(f, n);
		chunk_grant(f, 1, 8);
		assert_int_equal(fixture_event(f, MM_EVENT_KV_DENIED).error, -ENOSPC);
		assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], 1);
		assert_int_equal(mm_kv_usable(kv, NULL, 0), 0);
		for (uint32_t c = 0; c < CHUNKS; c++)
			chunk_is_filler(f, kv, c, 0x55);
	}
}

/* The device does not map the first of two chunks that are waited for: the wait ends for both. */
static void test_grant_is_not_mapped_in_a_wait(void **state)
{
	struct fixture *f = *state;
	struct call want = { .kv = arena_open(f, MM_KV_BACKED),
			     .chunks = 2,
			     .timeout_ns = MM_TIMEOUT_NEVER };

	map_fail(f, 1);
	call_start(&want, f, call_want);
	peer_expect(f->peer, MM_OP_KV_WANT);
	chunk_grant(f, 1, 8);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], 1);
	chunk_grant(f, 2, 12);
	assert_int_equal(call_join(&want), -ENOSPC);
	assert_int_equal(fixture_event(f, MM_EVENT_KV_GRANTED).count, 1);
	chunk_is_granted(f, want.kv, 2);
}

static void test_contiguous(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = arena_open(f, MM_KV_CONTIGUOUS);
	CUmemGenericAllocationHandle handle;

	assert_int_equal(mm_kv_range_va(kv, 1) - mm_kv_range_va(kv, 0), CHUNKS * CHUNK_BYTES);
	assert_int_equal(mm_kv_range_va(kv, 2), 0);
	grant_and_wait(f, kv, 2, 8);
	chunk_is_granted(f, kv, 2);
	/* Its neighbour in the other range is a hole. */
	assert_int_not_equal(f->peer->gpu.cuMemRetainAllocationHandle(
				     &handle, (void *)(uintptr_t)chunk_va(kv, 1, 0)),
			     0);
}

static void test_contiguous_and_backed(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = arena_open(f, MM_KV_CONTIGUOUS | MM_KV_BACKED);

	fixture_write(f, chunk_va(kv, 1, 2) + 7, 0x55);
	grant_and_wait(f, kv, 0, 8);
	chunk_is_granted(f, kv, 0);
	chunk_is_filler(f, kv, 1, 0x55);
	chunk_is_filler(f, kv, 2, 0x55);
}

static void test_unknown_flag(void **state)
{
	struct open_call open = { .flags = 4 };
	struct fixture *f = *state;

	call_start(&open.call, f, open_run);
	assert_int_equal(call_join(&open.call), -EINVAL);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_backed),
		TEST(test_memory_is_free_again),
		TEST(test_refused),
		TEST(test_second_arena),
		TEST(test_filler_is_not_mapped),
		TEST(test_grant_is_not_mapped),
		TEST(test_grant_is_not_mapped_in_a_wait),
		TEST(test_contiguous),
		TEST(test_contiguous_and_backed),
		TEST(test_unknown_flag),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
