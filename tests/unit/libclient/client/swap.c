/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The swap space: lists and their outcomes, lists that the library refuses, a peer that breaks the
 * protocol.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/libclient/client/fixture.h"
#include "libclient/base/base.h"

#define CHUNK (2 * PEER_PAGE_BYTES)
#define SPACE (8 * PEER_PAGE_BYTES)

/* Two ranges of two pages a chunk; chunk 1 of 3 is granted. */
static struct mm_kv *open_arena(struct fixture *f)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = CHUNK,
				   .ranges = 2,
				   .chunks_max = 3,
				   .share_chunks = 1 };
	const uint32_t ids[] = { 8, 9, 10, 11 };
	struct mm_kv *kv = NULL;

	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	assert_int_equal(mm_kv_want(kv, 1, 0), -EAGAIN);
	for (uint32_t i = 0; i < 4; i++)
		peer_map(f->peer, MM_MAP_KV_BASE + 4 + i, ids[i] + 1);
	peer_pages(f->peer, ids, 4);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { 1 } });
	fixture_event(f, MM_EVENT_KV_GRANTED);
	return kv;
}

static struct mm_swap *open_space(struct fixture *f)
{
	struct mm_swap *swap = NULL;

	assert_int_equal(mm_swap_open(f->client, SPACE, &swap), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_SWAP_OPEN).arg[0], SPACE);
	return swap;
}

static void swapped_send(struct fixture *f, const struct mm_msg *request, int result)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWAPPED,
					      .result = result,
					      .user_data = request->user_data,
					      .arg = { request->arg[0] } });
}

static void test_lists(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f);
	struct mm_swap *swap = open_space(f);
	const struct mm_swap_piece pieces[] = { { CHUNK + 5, 0, 100, 0 },
						{ 2 * CHUNK - 1, SPACE - 1, 1, 1 } };
	struct mm_swap_done done = { .size = sizeof(done) };
	struct mm_msg out, in;

	assert_int_equal(mm_swap_next(swap, &done), -EAGAIN);
	assert_int_equal(mm_swap_out(swap, pieces, 2, 71), 0);
	out = peer_expect(f->peer, MM_OP_SWAP);
	assert_int_equal(out.arg[1], 2);
	assert_int_equal(out.arg[2], 0);
	assert_memory_equal(f->peer->tenant->swap[out.arg[0]], pieces, sizeof(pieces));
	assert_int_equal(mm_swap_in(swap, pieces, 1, 72), 0);
	in = peer_expect(f->peer, MM_OP_SWAP);
	assert_int_equal(in.arg[2], 1);
	assert_int_not_equal(in.arg[0], out.arg[0]);

	/* While one of them is in progress, the chunk cannot be released. */
	assert_int_equal(mm_kv_release(kv, 1), -EBUSY);
	swapped_send(f, &in, 0);
	assert_int_equal(fixture_event(f, MM_EVENT_SWAPPED).count, 1);
	assert_int_equal(mm_kv_release(kv, 1), -EBUSY);
	swapped_send(f, &out, -EIO);
	fixture_event(f, MM_EVENT_SWAPPED);
	done.size--; /* refused, and the outcome stays */
	assert_int_equal(mm_swap_next(swap, &done), -EINVAL);
	done.size++;
	assert_int_equal(mm_swap_next(swap, &done), 0);
	assert_int_equal(done.user_data, 72);
	assert_int_equal(done.error, 0);
	assert_int_equal(mm_swap_next(swap, &done), 0);
	assert_int_equal(done.user_data, 71);
	assert_int_equal(done.error, -EIO);
	assert_int_equal(mm_swap_next(swap, &done), -EAGAIN);
	assert_int_equal(mm_kv_release(kv, 1), 0);
	assert_int_equal(mm_swap_out(swap, pieces, 2, 0), -ENOENT);
}

static void test_refuses(void **state)
{
	struct fixture *f = *state;
	struct mm_swap *swap = NULL, *other;
	const struct {
		struct mm_swap_piece piece;
		int want;
	} cases[] = {
		{ { CHUNK, 0, 1, 2 }, -ERANGE },          { { CHUNK, 0, 0, 0 }, -ERANGE },
		{ { 3 * CHUNK, 0, 1, 0 }, -ERANGE },      { { 3 * CHUNK - 1, 0, 2, 0 }, -ERANGE },
		{ { UINT64_MAX, 0, 2, 0 }, -ERANGE },     { { CHUNK, SPACE, 1, 0 }, -ERANGE },
		{ { CHUNK, UINT64_MAX, 2, 0 }, -ERANGE }, { { CHUNK - 1, 0, 2, 0 }, -ENOENT },
		{ { 2 * CHUNK - 1, 0, 2, 0 }, -ENOENT },
	};

	assert_int_equal(mm_swap_open(f->client, SPACE, &swap), -EINVAL);
	open_arena(f);
	assert_int_equal(mm_swap_open(f->client, 0, &swap), -EINVAL);
	swap = open_space(f);
	assert_int_equal(mm_swap_open(f->client, SPACE, &other), -EEXIST);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		assert_int_equal(mm_swap_out(swap, &cases[i].piece, 1, 0), cases[i].want);
	assert_int_equal(mm_swap_out(swap, &cases[0].piece, 0, 0), -EINVAL);
	assert_int_equal(mm_swap_out(swap, &cases[0].piece, MM_SWAP_PIECES + 1, 0), -EINVAL);
	peer_absent(f->peer, MM_OP_SWAP, 50);
}

static void test_as_many_as_there_are_lots(void **state)
{
	struct fixture *f = *state;
	const struct mm_swap_piece piece = { CHUNK, 0, 1, 0 };
	struct mm_swap_done done = { .size = sizeof(done) };
	struct mm_swap *swap;
	struct mm_msg first;

	open_arena(f);
	swap = open_space(f);
	for (uint32_t i = 0; i < MM_SWAP_LOTS; i++)
		assert_int_equal(mm_swap_out(swap, &piece, 1, i), 0);
	assert_int_equal(mm_swap_out(swap, &piece, 1, 99), -EAGAIN);
	first = peer_expect(f->peer, MM_OP_SWAP);
	swapped_send(f, &first, 0);
	fixture_event(f, MM_EVENT_SWAPPED);
	assert_int_equal(mm_swap_out(swap, &piece, 1, 99), -EAGAIN); /* not taken yet */
	assert_int_equal(mm_swap_next(swap, &done), 0);
	assert_int_equal(done.user_data, 0);
	assert_int_equal(mm_swap_out(swap, &piece, 1, 99), 0);
}

static void test_a_lie_ends_it(void **state)
{
	struct fixture *f = *state;
	const struct mm_swap_piece piece = { CHUNK, 0, 1, 0 };
	struct mm_swap_done done = { .size = sizeof(done) };
	struct mm_swap *swap;

	open_arena(f);
	swap = open_space(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWAPPED, .arg = { 3 } });
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
	assert_int_equal(mm_swap_out(swap, &piece, 1, 0), -EPROTO);
	assert_int_equal(mm_swap_next(swap, &done), -EPROTO);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_lists),
		T(test_refuses),
		T(test_as_many_as_there_are_lots),
		T(test_a_lie_ends_it),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
