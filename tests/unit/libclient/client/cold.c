/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold blocks: what is declared, the window and its answers, versions of the live entries, limits,
 * steps under a plan that streams, ends of all kinds, a peer that breaks the protocol.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/client/internal.h"
#include "libclient/protocol/cold.h"
#include "libclient/protocol/xplan.h"
#include "mm/client_cold.h"
#include "mm/client_model.h"
#include "tests/unit/libclient/client/fixture.h"

#define UNIT    4096
#define ENTRIES 32
#define SPACE   ((uint64_t)ENTRIES * UNIT * PEER_LAYERS)
#define CHUNKS  5000 /* of a page each: more than a window may have */
#define FIRST   4990 /* the first of the chunks that are granted */
#define HELD    4

static const struct mm_cold_opts good_opts = { .size = sizeof(good_opts),
					       .unit_bytes = UNIT,
					       .layers = PEER_LAYERS,
					       .entries_max = ENTRIES,
					       .floor = 3 };

static struct mm_kv *open_arena(struct fixture *f)
{
	struct mm_kv_opts opts = { .size = sizeof(opts),
				   .chunk_bytes = PEER_PAGE_BYTES,
				   .chunks_max = CHUNKS };
	struct mm_kv *kv = NULL;
	struct mm_msg want;

	assert_int_equal(mm_kv_open(f->client, &opts, &kv), 0);
	assert_int_equal(mm_kv_want_from(kv, HELD, FIRST, 0), -EAGAIN);
	want = peer_expect(f->peer, MM_OP_KV_WANT);
	assert_int_equal(want.arg[0], HELD);
	assert_int_equal(want.arg[1], FIRST);
	for (uint32_t i = 0; i < HELD; i++) {
		const uint32_t id = 8 + i;

		peer_map(f->peer, MM_MAP_KV_BASE + FIRST + i, id + 1);
		peer_pages(f->peer, &id, 1);
		peer_event(f->peer,
			   &(struct mm_msg){ .opcode = MM_EV_KV_GRANT, .arg = { FIRST + i } });
		fixture_event(f, MM_EVENT_KV_GRANTED);
	}
	return kv;
}

static struct mm_swap *open_space(struct fixture *f)
{
	struct mm_swap *swap = NULL;

	assert_int_equal(mm_swap_open(f->client, SPACE, &swap), 0);
	return swap;
}

static struct mm_cold *cold_open_default(struct fixture *f)
{
	struct mm_cold *cold = NULL;

	assert_int_equal(mm_cold_open(f->client, &good_opts, &cold), 0);
	return cold;
}

static struct mm_cold *open_all(struct fixture *f)
{
	open_arena(f);
	open_space(f);
	return cold_open_default(f);
}

static struct mm_kv *arena_of(struct fixture *f)
{
	struct mm_kv *kv;

	mm_client_lock_take(&f->client->lock);
	kv = f->client->kv;
	mm_client_lock_give(&f->client->lock);
	return kv;
}

static struct mm_cold_state state_of(struct mm_cold *cold)
{
	struct mm_cold_state state = { .size = sizeof(state) };

	assert_int_equal(mm_cold_state(cold, &state), 0);
	return state;
}

static void answer_window(struct fixture *f, int result)
{
	const struct mm_msg request = peer_expect(f->peer, MM_OP_COLD_WINDOW);

	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .result = result,
					      .user_data = request.user_data,
					      .arg = { MM_OP_COLD_WINDOW } });
}

static void limit_send(struct fixture *f, uint64_t limit, uint64_t deadline_ns)
{
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_COLD_LIMIT, .arg = { limit, deadline_ns } });
}

/* ---- the declaration ---- */

static void test_declares(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f), *other;
	const struct mm_msg request = peer_expect(f->peer, MM_OP_COLD_OPEN);
	const uint64_t args[] = { UNIT, PEER_LAYERS, ENTRIES, 3 };
	struct mm_cold_state now = { .size = 8 };

	for (size_t i = 0; i < MM_ARRAY_SIZE(args); i++)
		assert_int_equal(request.arg[i], args[i]);
	assert_int_equal(mm_cold_classes(cold), 2);
	assert_int_equal(mm_cold_open(f->client, &good_opts, &other), -EEXIST);
	assert_int_equal(mm_cold_state(cold, &now), -EINVAL);
	now = state_of(cold);
	assert_true(!now.limit && !now.window_chunks && !now.entries && !now.pending && !now.acked);
}

static void test_refuses(void **state)
{
	struct fixture *f = *state;
	static const struct {
		struct mm_cold_opts opts;
		int want;
	} cases[] = {
#define OPTS(unit, layers, entries, floor, reserved) \
	{ sizeof(struct mm_cold_opts), unit, layers, entries, floor, reserved }
		{ OPTS(0, PEER_LAYERS, 4, 0, 0), -EINVAL },
		{ OPTS(UNIT + 32, PEER_LAYERS, 4, 0, 0), -EINVAL },
		{ OPTS(UNIT, PEER_LAYERS - 1, 4, 0, 0), -EINVAL },
		{ OPTS(UNIT, 0, 4, 0, 0), -EINVAL },
		{ OPTS(UNIT, PEER_LAYERS, 0, 0, 0), -EINVAL },
		{ OPTS(UNIT, PEER_LAYERS, MM_COLD_MAX + 1, 0, 0), -EINVAL },
		{ OPTS(UNIT, PEER_LAYERS, 4, 5, 0), -EINVAL },
		{ OPTS(UNIT, PEER_LAYERS, 4, 0, 1), -EINVAL },
		{ OPTS(UNIT, PEER_LAYERS, ENTRIES + 1, 0, 0), -E2BIG },
		{ OPTS(UINT64_C(1) << 62, PEER_LAYERS, 4, 0, 0), -E2BIG },
		{ { .size = 8 }, -EINVAL },
	};
	struct mm_cold *cold = NULL;

	assert_int_equal(mm_cold_open(f->client, &good_opts, &cold), -EINVAL); /* no arena */
	open_arena(f);
	assert_int_equal(mm_cold_open(f->client, &good_opts, &cold), -EINVAL); /* no space */
	open_space(f);
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		assert_int_equal(mm_cold_open(f->client, &cases[i].opts, &cold), cases[i].want);
	peer_absent(f->peer, MM_OP_COLD_OPEN, 20);
	assert_non_null(cold_open_default(f)); /* none of the refusals has left anything */
}

static void without_model(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold;

	open_arena(f);
	open_space(f);
	assert_int_equal(mm_cold_open(f->client, &good_opts, &cold), -EINVAL);
	assert_non_null(mm_client_error(f->client));
}

/* An answer with other classes would have both sides read different bytes. */
static void test_classes_that_differ(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = NULL;

	open_arena(f);
	open_space(f);
	f->peer->cold_classes = 4;
	assert_int_equal(mm_cold_open(f->client, &good_opts, &cold), -EPROTO);
	assert_null(cold);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

static void test_an_older_mmd(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold;
	struct mm_kv *kv = open_arena(f);

	open_space(f);
	f->client->welcome.features &= ~MM_FEAT_COLD;
	assert_int_equal(mm_cold_open(f->client, &good_opts, &cold), -EOPNOTSUPP);
	assert_int_equal(mm_kv_want_from(kv, HELD + 1, 1, 0), -EOPNOTSUPP);
	assert_int_equal(mm_kv_want_from(kv, HELD + 1, 0, 0), -EAGAIN);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_WANT).arg[1], 0);
	limit_send(f, 1, 0);
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

/* A demand above what is held is lowered before a release, and keeps which chunks come first. */
static void test_a_release_keeps_what_comes_first(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f);
	struct mm_msg want;

	assert_int_equal(mm_kv_want_from(kv, HELD + 2, FIRST - 1, 0), -EAGAIN);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_WANT).arg[1], FIRST - 1);
	assert_int_equal(mm_kv_release(kv, FIRST), 0);
	want = peer_expect(f->peer, MM_OP_KV_WANT);
	assert_true(want.arg[0] == HELD && want.arg[1] == FIRST - 1);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_RELEASE).arg[0], FIRST);
	/* Chunks that mm_kv_want() requests may come from everywhere. */
	assert_int_equal(mm_kv_want(kv, HELD + 1, 0), -EAGAIN);
	assert_int_equal(peer_expect(f->peer, MM_OP_KV_WANT).arg[1], 0);
	assert_int_equal(mm_kv_release(kv, FIRST + 1), 0);
	want = peer_expect(f->peer, MM_OP_KV_WANT);
	assert_true(want.arg[0] == HELD - 1 && want.arg[1] == 0);
}

/* ---- the window ---- */

static void test_window(void **state)
{
	struct fixture *f = *state;
	struct mm_kv *kv = open_arena(f);
	struct mm_swap *swap = open_space(f);
	struct mm_cold *cold = cold_open_default(f);
	const struct mm_swap_piece piece = { (uint64_t)FIRST * PEER_PAGE_BYTES, 0, 1, 0 };
	struct mm_msg request;

	assert_int_equal(mm_cold_window(cold, FIRST, 2), 0);
	assert_int_equal(state_of(cold).pending, 1);
	assert_int_equal(mm_cold_window(cold, FIRST, 1), -EBUSY);
	assert_int_equal(mm_kv_release(kv, FIRST + 1), -EBUSY);
	assert_int_equal(mm_swap_in(swap, &piece, 1, 0), -EBUSY);
	request = peer_expect(f->peer, MM_OP_COLD_WINDOW);
	assert_true(request.arg[0] == FIRST && request.arg[1] == 2);
	/* A reply to something else is not taken for it. */
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_REPLY, .user_data = request.user_data + 77 });
	peer_drained(f->peer);
	assert_int_equal(state_of(cold).pending, 1);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_REPLY, .user_data = request.user_data });
	assert_int_equal(fixture_event(f, MM_EVENT_COLD).count, 1);
	/* 32 units: (32 - 4) / 2 + 1. */
	assert_int_equal(state_of(cold).entries, 15);
	assert_true(state_of(cold).window_first == FIRST && state_of(cold).window_chunks == 2);
	assert_int_equal(mm_kv_release(kv, FIRST), -EBUSY);

	/* On the way to another one both are kept; refused, the one of before is in force. */
	assert_int_equal(mm_cold_window(cold, FIRST + 2, 1), 0);
	assert_int_equal(mm_kv_release(kv, FIRST), -EBUSY);
	assert_int_equal(mm_kv_release(kv, FIRST + 2), -EBUSY);
	answer_window(f, -ENOENT);
	assert_int_equal(fixture_event(f, MM_EVENT_COLD).error, -ENOENT);
	assert_true(state_of(cold).error == -ENOENT && state_of(cold).window_chunks == 2);
	assert_int_equal(mm_kv_release(kv, FIRST + 2), 0);
	assert_int_equal(mm_kv_release(kv, FIRST), -EBUSY);
	assert_int_equal(mm_cold_window(cold, 7, 0), 0);
	answer_window(f, 0);
	assert_int_equal(fixture_event(f, MM_EVENT_COLD).error, 0);
	assert_true(!state_of(cold).error && !state_of(cold).window_chunks);
	assert_int_equal(mm_swap_in(swap, &piece, 1, 0), 0);
	assert_int_equal(mm_cold_window(cold, FIRST, 1), -EBUSY); /* it is being swapped */
	assert_int_equal(mm_kv_release(kv, FIRST + 1), 0);
}

static void test_windows_that_cannot_be(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	static const struct {
		uint32_t first, chunks;
		int want;
	} cases[] = {
		{ FIRST - 1, 2, -ENOENT },
		{ FIRST + 3, 2, -ENOENT },
		{ CHUNKS, 1, -EINVAL },
		{ CHUNKS - 1, 2, -EINVAL },
		{ UINT32_MAX, 1, -EINVAL },
		{ 1, UINT32_MAX, -EINVAL },
		{ 0, CHUNKS, -E2BIG },
		{ 0, MM_SLOT_PAGES_MAX + 1, -E2BIG },
		{ 0, MM_SLOT_PAGES_MAX, -ENOENT },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		assert_int_equal(mm_cold_window(cold, cases[i].first, cases[i].chunks),
				 cases[i].want);
	peer_absent(f->peer, MM_OP_COLD_WINDOW, 20);
}

static void test_a_window_without_room(void **state)
{
	struct fixture *f = *state;
	struct mm_cold_opts opts = good_opts;
	struct mm_cold *cold;

	open_arena(f);
	open_space(f);
	opts.unit_bytes = PEER_PAGE_BYTES / PEER_LAYERS + MM_COLD_UNIT_BYTES;
	opts.entries_max = opts.floor = 1;
	assert_int_equal(mm_cold_open(f->client, &opts, &cold), 0);
	assert_int_equal(mm_cold_window(cold, FIRST, 1), -EINVAL);
	assert_int_equal(mm_cold_window(cold, FIRST, 2), 0);
	answer_window(f, 0);
	fixture_event(f, MM_EVENT_COLD);
	assert_int_equal(state_of(cold).entries, 1); /* there is room for more than entries_max */
}

/* ---- entries, limits ---- */

static void test_versions(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	struct mm_gate_region *gates = f->peer->gates;
	const uint64_t begin = mm_cold_commit(cold);

	assert_int_equal(mm_cold_commit(cold), begin);
	assert_int_equal(mm_cold_set(cold, ENTRIES, true), -EINVAL);
	assert_int_equal(mm_cold_set(cold, UINT32_MAX, true), -EINVAL);
	assert_int_equal(mm_cold_set(cold, 3, false), 0); /* it was not live */
	assert_int_equal(mm_cold_commit(cold), begin);
	assert_int_equal(mm_cold_set(cold, 3, true), 0);
	assert_int_equal(mm_cold_set(cold, ENTRIES - 1, true), 0);
	assert_int_equal(shared(&gates->cold.version), begin);
	assert_int_equal(mm_cold_commit(cold), begin + 1);
	assert_int_equal(shared(&gates->cold.version), begin + 1);
	assert_int_equal(shared(&gates->cold.live[0]), UINT64_C(1) << 3 | UINT64_C(1) << 31);
	assert_int_equal(mm_cold_set(cold, 3, false), 0);
	assert_int_equal(mm_cold_commit(cold), begin + 2);
	assert_int_equal(shared(&gates->cold.live[0]), UINT64_C(1) << 31);

	__atomic_store_n(&gates->cold_acked, begin + 1, __ATOMIC_RELEASE);
	assert_int_equal(state_of(cold).acked, begin + 1);
	/* Nobody has seen what was not committed, whatever stands there. */
	__atomic_store_n(&gates->cold_acked, UINT64_MAX, __ATOMIC_RELEASE);
	assert_int_equal(state_of(cold).acked, begin + 2);
}

static void test_limits(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	struct mm_event event;

	limit_send(f, 3, 0);
	assert_int_equal(fixture_event(f, MM_EVENT_COLD).count, 0);
	assert_int_equal(state_of(cold).limit, 3);
	limit_send(f, UINT64_MAX, 77);
	assert_int_equal(fixture_event(f, MM_EVENT_COLD).deadline_ns, 77);
	assert_int_equal(state_of(cold).limit, ENTRIES);
	assert_int_equal(state_of(cold).deadline_ns, 77);
	/* A refusal that was not taken yet is not lost to a limit. */
	assert_int_equal(mm_cold_window(cold, FIRST, 1), 0);
	answer_window(f, -E2BIG);
	limit_send(f, 5, 99);
	peer_drained(f->peer);
	event = fixture_event(f, MM_EVENT_COLD);
	assert_true(event.error == -E2BIG && event.count == 1 && event.deadline_ns == 99);
	assert_int_equal(state_of(cold).limit, 5);
}

/* ---- steps ---- */

static void stream_cold(struct fixture *f, uint64_t epoch)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = epoch });
	peer_expect(f->peer, MM_OP_PARKED);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_READY);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
					      .epoch = epoch,
					      .arg = { 0, PEER_LAYERS, MM_SWITCH_COLD } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	fixture_event(f, MM_EVENT_PLAN_CHANGED);
}

/* With no layer away the plan has all of them cycle: a step has to pass at every gate. */
static void test_steps(void **state)
{
	struct fixture *f = *state;
	struct mm_client_info info = { .size = sizeof(info) };
	struct mm_step_info step = { .size = sizeof(step) };

	open_all(f);
	stream_cold(f, 2);
	assert_int_equal(mm_client_info(f->client, &info), 0);
	assert_int_equal(info.layers_remapped, 0);
	assert_int_equal(info.layers_cycling, PEER_LAYERS);
	assert_int_equal(mm_step_begin(f->client), 0);
	for (uint32_t i = 0; i < PEER_LAYERS; i++) {
		assert_int_equal(mm_layer_begin(f->model, i, f->stream), 0);
		assert_int_equal(mm_layer_home(f->model, i), 0);
		assert_int_equal(mm_layer_end(f->model, i, f->stream), 0);
	}
	assert_int_equal(mm_step_end(f->client, f->stream, &step), 0);
	assert_int_equal(step.gated, PEER_LAYERS);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		assert_int_equal(shared(&f->peer->gates->gate[i].word), MM_GATE_DONE);
	peer_absent(f->peer, MM_OP_RESYNC, 20);

	/* One that ends early leaves gates that nobody passed. */
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_READY);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(mm_layer_end(f->model, 0, f->stream), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_RESYNC).epoch, 2);
}

/* Without the flag the layers are at home again, and no step breaks off. */
static void test_steps_after_it(void **state)
{
	struct fixture *f = *state;

	open_all(f);
	stream_cold(f, 2);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 3 });
	peer_expect(f->peer, MM_OP_PARKED);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_RESIDENT);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 3 });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	fixture_event(f, MM_EVENT_PLAN_CHANGED);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(mm_layer_home(f->model, 0), 1);
	assert_int_equal(mm_layer_end(f->model, 0, f->stream), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	peer_absent(f->peer, MM_OP_RESYNC, 20);
}

/* A limit may count from a change of the plan on, so what was planned before it is not begun. */
static void test_a_stale_plan(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	const struct mm_turn_opts turn = { .size = sizeof(turn), .mode = MM_TURN_QUANTUM };
	struct call call = { .timeout_ns = MM_TIMEOUT_NEVER };

	limit_send(f, 8, 0);
	peer_drained(f->peer);
	limit_send(f, 7, 99);
	peer_drained(f->peer);
	assert_int_equal(mm_step_begin(f->client), 0); /* no window: it reads no entry */
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(mm_cold_window(cold, FIRST, 2), 0);
	answer_window(f, 0);
	peer_drained(f->peer);
	assert_int_equal(mm_step_begin(f->client), -ESTALE);
	assert_int_equal(mm_step_begin(f->client), -ESTALE);
	assert_int_equal(state_of(cold).limit, 7);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	/* The least one may have counted, whatever came behind it. */
	limit_send(f, 3, 100);
	limit_send(f, 5, 101);
	limit_send(f, 9, 0);
	peer_drained(f->peer);
	assert_int_equal(mm_step_begin(f->client), -ESTALE);
	assert_true(state_of(cold).limit == 3);
	assert_true(state_of(cold).limit == 9 && !state_of(cold).deadline_ns);
	/* One that the market lowers has no deadline, and never counts. */
	limit_send(f, 2, 0);
	peer_drained(f->peer);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	/* A step that waits was planned before the limit, though another thread has read it. */
	assert_int_equal(mm_turn_join(f->client, &turn), 0);
	peer_expect(f->peer, MM_OP_TURN_JOIN);
	call_start(&call, f, call_step_begin);
	peer_expect(f->peer, MM_OP_TURN_WANT);
	limit_send(f, 1, 102);
	peer_drained(f->peer);
	assert_true(state_of(cold).limit == 1 && state_of(cold).deadline_ns == 102);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_TURN_BEGIN, .arg = { 1 } });
	assert_int_equal(call_join(&call), -ESTALE);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
}

/* A change in part: steps begin while it is mapped, and count all layers from then on. */
static void test_in_part(void **state)
{
	struct fixture *f = *state;

	open_all(f);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	peer_expect(f->peer, MM_OP_PARKED);
	for (uint32_t i = 0; i < PEER_LAYERS; i++)
		peer_gate(f->peer, i, MM_GATE_READY);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
					      .epoch = 2,
					      .arg = { 0, PEER_LAYERS,
						       MM_SWITCH_COLD | MM_SWITCH_PARTIAL } });
	assert_int_equal(peer_expect(f->peer, MM_OP_COMMITTED).result, 0);
	fixture_event(f, MM_EVENT_PLAN_CHANGED);
	assert_int_equal(mm_step_begin(f->client), 0);
	assert_int_equal(mm_layer_begin(f->model, 0, f->stream), 0);
	assert_int_equal(mm_layer_end(f->model, 0, f->stream), 0);
	assert_int_equal(mm_step_end(f->client, f->stream, NULL), 0);
	assert_int_equal(peer_expect(f->peer, MM_OP_RESYNC).epoch, 2);
}

static void switch_is_refused(struct fixture *f, uint64_t m, uint64_t flags)
{
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	peer_expect(f->peer, MM_OP_PARKED);
	peer_event(f->peer,
		   &(struct mm_msg){ .opcode = MM_EV_SWITCH, .epoch = 2, .arg = { 0, m, flags } });
	assert_int_equal(fixture_event(f, MM_EVENT_DISCONNECTED).error, -EPROTO);
}

static void test_fewer_layers_than_there_are(void **state)
{
	open_all(*state);
	switch_is_refused(*state, PEER_LAYERS - 1, MM_SWITCH_COLD);
}

static void test_nothing_declared(void **state)
{
	switch_is_refused(*state, PEER_LAYERS, MM_SWITCH_COLD);
}

static void test_flags_that_do_not_fit(void **state)
{
	open_all(*state);
	switch_is_refused(*state, 0, MM_SWITCH_COLD | MM_SWITCH_EMPTY);
}

static void test_a_flag_that_there_is_not(void **state)
{
	open_all(*state);
	switch_is_refused(*state, PEER_LAYERS, MM_SWITCH_COLD << 1);
}

/* ---- ends ---- */

static int call_unload(struct call *call)
{
	return mm_model_unload(call->f->model);
}

/* It goes with the model; the next one begins with no live entry, and with later versions. */
static void test_unload(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	struct mm_kv *kv = arena_of(f);
	struct call call = { 0 };
	struct mm_msg request;
	uint64_t version;

	assert_int_equal(mm_cold_set(cold, 1, true), 0);
	version = mm_cold_commit(cold);
	assert_int_equal(mm_cold_window(cold, FIRST, 1), 0);
	answer_window(f, 0);
	fixture_event(f, MM_EVENT_COLD);
	call_start(&call, f, call_unload);
	request = peer_expect(f->peer, MM_OP_UNLOAD);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_PREPARE, .epoch = 2 });
	peer_expect(f->peer, MM_OP_PARKED);
	for (uint32_t entry = 0; entry <= PEER_LAYERS; entry++)
		peer_map(f->peer, entry, 0);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_SWITCH,
					      .epoch = 2,
					      .arg = { 0, 0, MM_SWITCH_EMPTY } });
	peer_expect(f->peer, MM_OP_COMMITTED);
	limit_send(f, 2, 0);
	peer_event(f->peer, &(struct mm_msg){ .opcode = MM_EV_REPLY,
					      .user_data = request.user_data,
					      .arg = { MM_OP_UNLOAD } });
	assert_int_equal(call_join(&call), 0);
	assert_int_equal(mm_kv_release(kv, FIRST), 0);
	limit_send(f, 9, 0); /* of the declaration that is gone */
	peer_drained(f->peer);
	f->model = NULL;
	fixture_load(f);
	cold = cold_open_default(f);
	assert_true(mm_cold_commit(cold) > version);
	assert_int_equal(shared(&f->peer->gates->cold.live[0]), 0);
	assert_int_equal(state_of(cold).limit, 0);
}

static void test_fork(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	struct mm_cold_state now = { .size = sizeof(now) };
	struct mm_kv *kv = arena_of(f);
	struct mm_cold *other;
	int status = 1;
	pid_t child = fork();

	if (child == 0) {
		int bad = mm_cold_set(cold, 0, true) != -ECHILD;

		bad |= mm_cold_commit(cold) != 0;
		bad |= mm_cold_state(cold, &now) != -ECHILD;
		bad |= mm_cold_window(cold, FIRST, 1) != -ECHILD;
		bad |= mm_cold_open(f->client, &good_opts, &other) != -ECHILD;
		bad |= mm_kv_want_from(kv, 9, 0, 0) != -ECHILD;
		_exit(bad);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(shared(&f->peer->gates->cold.live[0]), 0);
	assert_int_equal(mm_cold_set(cold, 0, true), 0);
}

static void test_the_end_of_the_connection(void **state)
{
	struct fixture *f = *state;
	struct mm_cold *cold = open_all(f);
	struct mm_cold_state now = { .size = sizeof(now) };

	assert_int_equal(mm_cold_window(cold, FIRST, 1), 0);
	peer_expect(f->peer, MM_OP_COLD_WINDOW);
	peer_disconnect(f->peer);
	fixture_event(f, MM_EVENT_DISCONNECTED);
	assert_int_equal(mm_cold_state(cold, &now), -ECONNRESET);
	assert_int_equal(mm_cold_set(cold, 0, true), -ECONNRESET);
	assert_int_equal(mm_cold_window(cold, 0, 0), -ECONNRESET);
	assert_true(mm_cold_commit(cold) > 0);
}

/* ---- the arithmetic ---- */

static void test_arithmetic(void **state)
{
	static const uint32_t classes[][2] = { { 4, 2 },  { 5, 2 },  { 6, 3 },  { 7, 2 },
					       { 8, 4 },  { 9, 3 },  { 12, 4 }, { 15, 3 },
					       { 32, 4 }, { 33, 3 }, { 40, 4 }, { 61, 2 } };

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(classes); i++)
		assert_int_equal(mm_cold_layer_classes(classes[i][0]), classes[i][1]);
	/* One more entry needs a window of exactly one more step, and not a byte less. */
	for (uint32_t layers = 4; layers < 50; layers++) {
		const uint32_t n = mm_cold_layer_classes(layers);

		for (uint32_t entries = 1; entries < 300; entries += 7) {
			const uint64_t bytes = mm_cold_window_bytes(n, layers, UNIT, entries);

			assert_int_equal(mm_cold_window_entries(n, layers, UNIT, bytes), entries);
			assert_int_equal(mm_cold_window_entries(n, layers, UNIT, bytes - 1),
					 entries - 1);
		}
	}
	assert_int_equal(mm_cold_window_entries(2, 4, UNIT, UINT64_MAX), MM_COLD_MAX);
	assert_int_equal(mm_cold_window_entries(2, 4, UINT64_MAX, UINT64_MAX), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup_model, fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_declares),
		T(test_refuses),
		cmocka_unit_test_setup_teardown(without_model, fixture_setup, fixture_teardown),
		T(test_classes_that_differ),
		T(test_an_older_mmd),
		T(test_a_release_keeps_what_comes_first),
		T(test_window),
		T(test_windows_that_cannot_be),
		T(test_a_window_without_room),
		T(test_versions),
		T(test_limits),
		T(test_a_stale_plan),
		T(test_steps),
		T(test_steps_after_it),
		T(test_in_part),
		T(test_fewer_layers_than_there_are),
		T(test_nothing_declared),
		T(test_flags_that_do_not_fit),
		T(test_a_flag_that_there_is_not),
		T(test_unload),
		T(test_fork),
		T(test_the_end_of_the_connection),
		cmocka_unit_test(test_arithmetic),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
