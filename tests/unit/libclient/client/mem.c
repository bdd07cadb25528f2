/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is neither weights nor KV: its entries, its pages, refusals, and what goes wrong. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"

#define MOST (MM_MAP_ENTRIES - MM_MAP_KV_BASE)

struct alloc {
	struct call call;
	uint64_t bytes, va;
};

static int alloc_run(struct call *call)
{
	struct alloc *alloc = (struct alloc *)call;

	return mm_mem_alloc(call->f->client, alloc->bytes, 0, &alloc->va);
}

static int setup_older(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct mm_client_opts opts;
	char err[320];

	assert_non_null(f);
	f->peer = peer_start();
	f->peer->welcome.features &= ~MM_FEAT_MEM;
	opts = peer_client_opts(f->peer);
	if (mm_client_open(&opts, &f->client, err, sizeof(err)))
		fail_msg("%s", err);
	peer_await_connection(f->peer);
	assert_int_equal(f->peer->gpu.cuStreamCreate(&f->stream, CU_STREAM_NON_BLOCKING), 0);
	*state = f;
	return 0;
}

static void alloc_start(struct fixture *f, struct alloc *alloc, uint64_t bytes)
{
	*alloc = (struct alloc){ .bytes = bytes, .va = 1 };
	call_start(&alloc->call, f, alloc_run);
}

static void request_reply(struct fixture *f, const struct mm_msg *request, int result,
			  uint64_t there)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .result = result,
					      .user_data = request->user_data,
					      .arg = { request->opcode, there } });
}

/* mmd's part: pages from @first on for the entries that the client chose, which must be these. */
static void grant(struct fixture *f, uint32_t entry, uint32_t pages, uint32_t first)
{
	const struct mm_msg request = peer_expect(f->peer, MM_OP_MEM_ALLOC);
	uint32_t ids[PEER_PAGES];

	assert_int_equal(request.arg[0], entry);
	assert_int_equal(request.arg[1], pages);
	for (uint32_t i = 0; i < pages; i++) {
		ids[i] = first + i;
		peer_map(f->peer, entry + i, ids[i] + 1);
	}
	peer_pages(f->peer, ids, pages);
	request_reply(f, &request, 0, pages);
}

static uint64_t alloc_now(struct fixture *f, uint32_t pages, uint32_t entry, uint32_t first)
{
	struct alloc alloc;

	alloc_start(f, &alloc, pages * PEER_PAGE_BYTES);
	grant(f, entry, pages, first);
	if (call_join(&alloc.call))
		fail_msg("%s", alloc.call.error);
	return alloc.va;
}

static void free_now(struct fixture *f, uint64_t va, uint32_t entry, uint32_t pages)
{
	struct mm_msg msg;

	assert_int_equal(mm_mem_free(f->client, va), 0);
	msg = peer_expect(f->peer, MM_OP_MEM_FREE);
	assert_int_equal(msg.arg[0], entry);
	assert_int_equal(msg.arg[1], pages);
	for (uint32_t i = 0; i < pages; i++)
		peer_map(f->peer, entry + i, 0);
}

static void test_written_and_given_back(void **state)
{
	struct fixture *f = *state;
	size_t free_before, free_after, total;
	struct alloc alloc;

	peer_fill(f->peer, 8, 0xa0);
	peer_fill(f->peer, 9, 0xa1);
	alloc_start(f, &alloc, PEER_PAGE_BYTES + 1); /* two pages */
	grant(f, MM_MAP_ENTRIES - 2, 2, 8);
	assert_int_equal(call_join(&alloc.call), 0);
	assert_int_equal(fixture_read(f, alloc.va), 0xa0);
	assert_int_equal(fixture_read(f, alloc.va + 2 * PEER_PAGE_BYTES - 1), 0xa1);
	fixture_write(f, alloc.va + PEER_PAGE_BYTES, 0x77);
	assert_int_equal(peer_byte(f->peer, 9), 0x77);
	/* The memory is free once both sides have released it. */
	peer_drop_page(f->peer, 8);
	peer_drop_page(f->peer, 9);
	f->peer->gpu.cuMemGetInfo(&free_before, &total);
	assert_int_equal(mm_mem_free(f->client, alloc.va + PEER_PAGE_BYTES), -ENOENT);
	free_now(f, alloc.va, MM_MAP_ENTRIES - 2, 2);
	f->peer->gpu.cuMemGetInfo(&free_after, &total);
	assert_int_equal(free_after - free_before, 2 * PEER_PAGE_BYTES);
	assert_int_equal(mm_mem_free(f->client, alloc.va), -ENOENT);
}

static void test_entries_are_given_again(void **state)
{
	struct fixture *f = *state;
	uint64_t a = alloc_now(f, 2, MM_MAP_ENTRIES - 2, 0);
	uint64_t b = alloc_now(f, 3, MM_MAP_ENTRIES - 5, 2);
	uint64_t c = alloc_now(f, 1, MM_MAP_ENTRIES - 6, 5);

	free_now(f, b, MM_MAP_ENTRIES - 5, 3);
	assert_int_not_equal(alloc_now(f, 4, MM_MAP_ENTRIES - 10, 6), b); /* does not fit */
	alloc_now(f, 2, MM_MAP_ENTRIES - 4, 2);
	free_now(f, a, MM_MAP_ENTRIES - 2, 2);
	free_now(f, c, MM_MAP_ENTRIES - 6, 1);
	alloc_now(f, 1, MM_MAP_ENTRIES - 1, 0);
	alloc_now(f, 1, MM_MAP_ENTRIES - 2, 1);
	alloc_now(f, 1, MM_MAP_ENTRIES - 5, 4);
	/* The rest is unmapped when the client is closed. */
}

static void test_refusals_have_a_sentence(void **state)
{
	struct fixture *f = *state;
	struct alloc alloc;
	struct mm_msg request;

	alloc_start(f, &alloc, 4 * PEER_PAGE_BYTES);
	request = peer_expect(f->peer, MM_OP_MEM_ALLOC);
	request_reply(f, &request, -EDQUOT, 3);
	assert_int_equal(call_join(&alloc.call), -EDQUOT);
	assert_string_equal(alloc.call.error, "256.0 KiB of memory: this tenant's share of the "
					      "pool leaves 192.0 KiB");
	assert_int_equal(alloc.va, 1);
	alloc_start(f, &alloc, 4 * PEER_PAGE_BYTES);
	request = peer_expect(f->peer, MM_OP_MEM_ALLOC);
	assert_int_equal(request.arg[0], MM_MAP_ENTRIES - 4);
	request_reply(f, &request, -ENOSPC, 0);
	assert_int_equal(call_join(&alloc.call), -ENOSPC);
	assert_string_equal(alloc.call.error,
			    "256.0 KiB of memory: mmd has 0 B free, and takes none from others "
			    "for it");
	alloc_now(f, 4, MM_MAP_ENTRIES - 4, 0);
}

static void test_the_table_is_shared_with_the_arena(void **state)
{
	struct fixture *f = *state;
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = PEER_PAGE_BYTES,
				   .chunks_max = MOST - 2 };
	struct mm_kv *kv = NULL;
	uint64_t va;

	alloc_now(f, 3, MM_MAP_ENTRIES - 3, 0);
	assert_int_equal(mm_kv_open(f->client, &opts, &kv), -E2BIG);
	assert_string_equal(mm_client_error(f->client),
			    "opts: 32766 pages in all, and memory of mm_mem_alloc() leaves 32765");
	opts.chunks_max = MOST - 5;
	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	assert_int_equal(mm_mem_alloc(f->client, 3 * PEER_PAGE_BYTES, 0, &va), -E2BIG);
	alloc_now(f, 2, MM_MAP_ENTRIES - 5, 4);
	assert_int_equal(mm_mem_alloc(f->client, 1, 0, &va), -E2BIG);
}

static void test_one_request_at_a_time(void **state)
{
	struct fixture *f = *state;
	struct alloc first, second;
	struct mm_msg request;

	alloc_start(f, &first, PEER_PAGE_BYTES);
	request = peer_expect(f->peer, MM_OP_MEM_ALLOC);
	alloc_start(f, &second, 2 * PEER_PAGE_BYTES);
	peer_absent(f->peer, MM_OP_MEM_ALLOC, 30);
	request_reply(f, &request, -ENOSPC, 0);
	assert_int_equal(call_join(&first.call), -ENOSPC);
	grant(f, MM_MAP_ENTRIES - 2, 2, 0);
	assert_int_equal(call_join(&second.call), 0);
}

/* Pages that never came cannot be mapped: they are given back, and nothing is left. */
static void test_not_mapped(void **state)
{
	struct fixture *f = *state;
	struct alloc alloc;
	struct mm_msg request;

	alloc_start(f, &alloc, PEER_PAGE_BYTES);
	request = peer_expect(f->peer, MM_OP_MEM_ALLOC);
	peer_map(f->peer, MM_MAP_ENTRIES - 1, 7);
	request_reply(f, &request, 0, 1);
	assert_int_equal(call_join(&alloc.call), -EPROTO);
	assert_int_equal(peer_expect(f->peer, MM_OP_MEM_FREE).arg[0], MM_MAP_ENTRIES - 1);
	peer_map(f->peer, MM_MAP_ENTRIES - 1, 0);
	alloc_now(f, 1, MM_MAP_ENTRIES - 1, 3);
}

static void test_bad_arguments(void **state)
{
	struct fixture *f = *state;
	uint64_t va = 1;

	assert_int_equal(mm_mem_alloc(f->client, 0, 0, &va), -EINVAL);
	assert_int_equal(mm_mem_alloc(f->client, 1, 1, &va), -EINVAL);
	assert_int_equal(mm_mem_alloc(f->client, UINT64_MAX, 0, &va), -E2BIG);
	assert_int_equal(mm_mem_alloc(f->client, (MOST + 1) * PEER_PAGE_BYTES, 0, &va), -E2BIG);
	assert_int_equal(mm_mem_free(f->client, 0), -ENOENT);
	assert_int_equal(va, 1);
	peer_absent(f->peer, MM_OP_MEM_ALLOC, 1);
}

static void test_the_connection_ends(void **state)
{
	struct fixture *f = *state;
	uint64_t va = alloc_now(f, 1, MM_MAP_ENTRIES - 1, 0);
	struct alloc alloc;

	alloc_start(f, &alloc, PEER_PAGE_BYTES);
	peer_expect(f->peer, MM_OP_MEM_ALLOC);
	peer_disconnect(f->peer);
	assert_int_equal(call_join(&alloc.call), -ECONNRESET);
	assert_int_equal(mm_mem_free(f->client, va), -ECONNRESET);
}

/* An mmd that did not answer the feature would end the connection. */
static void test_an_older_mmd(void **state)
{
	struct fixture *f = *state;
	uint64_t va;

	assert_int_equal(mm_mem_alloc(f->client, 1, 0, &va), -EOPNOTSUPP);
	peer_absent(f->peer, MM_OP_MEM_ALLOC, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_written_and_given_back),
		TEST(test_entries_are_given_again),
		TEST(test_refusals_have_a_sentence),
		TEST(test_the_table_is_shared_with_the_arena),
		TEST(test_one_request_at_a_time),
		TEST(test_not_mapped),
		TEST(test_bad_arguments),
		TEST(test_the_connection_ends),
		cmocka_unit_test_setup_teardown(test_an_older_mmd, setup_older, fixture_teardown),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
