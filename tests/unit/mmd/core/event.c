/* SPDX-License-Identifier: Apache-2.0 */
/* Events packed and read back: each kind, cut short, with words that no event has. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "mmd/core/event.h"

static struct mm_tenant_stats stats;
static struct mm_swap_piece pieces[MM_SWAP_PIECES];
static struct mm_core_group groups[MM_LAYERS_MAX + 1];

static int setup(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (uint32_t i = 0; i < MM_SWAP_PIECES; i++)
		pieces[i] = (struct mm_swap_piece){ .arena_offset = mm_random_next(&seed),
						    .swap_offset = mm_random_next(&seed),
						    .bytes = i,
						    .range = i % 2 };
	for (uint32_t i = 0; i <= MM_LAYERS_MAX; i++)
		groups[i] =
			(struct mm_core_group){ .store_offset = mm_random_next(&seed), .bytes = i };
	stats = (struct mm_tenant_stats){ .step_seq = 1,
					  .steps = 2,
					  .samples = 3,
					  .step_ns = 4,
					  .stall_ns = 5,
					  .stall_total_ns = 6,
					  .kv_chunks_used = 7,
					  .waiting = 8,
					  .running = 9,
					  .kv_chunks_queued = 10,
					  .requests_done = 11,
					  .requests_late = 12 };
	for (uint32_t i = 0; i < 37; i++)
		stats.compute[i] = (uint16_t)(i + 1);
	return 0;
}

static const struct mm_core_opts tuned = { .account_max_pages = 4,
					   .on_timeout = MM_ON_TIMEOUT_QUARANTINE,
					   .turn_quantum_max_ns = 5,
					   .turn_priority_max = 6,
					   .reversion = MM_SWITCH_OFF,
					   .sharing = MM_SHARING_TURNS,
					   .turn_cost_permille = 7,
					   .idle_ns = 8 * MM_NS_PER_MS,
					   .dwell_ns = 9 * MM_NS_PER_MS,
					   .change_ns = 10 * MM_NS_PER_MS,
					   .reclaim_ns = 11 * MM_NS_PER_MS,
					   .link_slows_permille = 12,
					   .rho_permille = 13,
					   .reclaim_timeout_ns = 14,
					   .stop_ns = 15,
					   .kill_window_ns = 16,
					   .kill_max = 17,
					   .cold = MM_SWITCH_ON,
					   .cold_max_permille = 18 };

static struct mm_event event_of(enum mm_event_kind kind)
{
	struct mm_event e;

	memset(&e, 0, sizeof(e));
	e.kind = kind;
	e.now_ns = 12345;
	e.tenant = 0x30007;
	if (kind == MM_EVENT_XFER_UP || kind == MM_EVENT_SWAP_OPEN || kind == MM_EVENT_STREAMED)
		e.xfer_epoch = UINT64_MAX - 1;
	else if (kind == MM_EVENT_JOB_DONE)
		e.job.id = 77, e.job.result = -EIO;
	else if (kind == MM_EVENT_JOIN)
		e.join = (struct mm_core_join){ .account = 1,
						.features = 2,
						.account_max_pages = 3 };
	else if (kind == MM_EVENT_STOPPED_CHECKED)
		e.stopped = true;
	else if (kind == MM_EVENT_PAGE_UNHELD)
		e.page = 1;
	else if (kind == MM_EVENT_STATS)
		e.stats = &stats;
	else if (kind == MM_EVENT_REQUEST || kind == MM_EVENT_SWAP)
		e.msg = (struct mm_msg){ .opcode = MM_OP_SWAP, .arg = { 1, 5, 1, 9 } };
	else if (kind == MM_EVENT_RANK_ORDER)
		e.rank = (struct mm_core_rank){ .offer = MM_NO_CHUNK,
						.most = 4,
						.wanted = 5,
						.wants_anew = true,
						.deny = -ENOSPC,
						.reclaim = 2,
						.reclaim_until_ns = 8 };
	else if (kind == MM_EVENT_PLAN_SET)
		e.plan.alpha = -1, e.plan.slots = 2;
	else if (kind == MM_EVENT_STEER)
		e.steer.how = MM_STEER_UNPIN, e.steer.until_ns = UINT64_MAX;
	else if (kind == MM_EVENT_TUNE)
		e.tune = tuned;
	else if (kind == MM_EVENT_COLD_SET)
		e.cold_limit = -1;
	else if (kind == MM_EVENT_COLD_LIVE)
		e.cold_live = MM_COLD_MAX + 1;
	if (kind == MM_EVENT_SWAP)
		e.pieces = pieces;
	if (kind == MM_EVENT_MODEL)
		e.groups = groups, e.model.n_groups = 7, e.model.store = 3, e.model.store_bytes = 4;
	if (kind == MM_EVENT_ACCOUNT_ADD || kind == MM_EVENT_QUOTA_SET) {
		e.quota.account = 1, e.quota.domain = 2, e.quota.revision = 3;
		e.quota.quota = (struct mm_core_quota){ .min_pages = 4,
							.max_pages = 5,
							.weight = 6,
							.priority = 7,
							.on_timeout = MM_ON_TIMEOUT_QUARANTINE,
							.turn_quantum_max_ns = 8,
							.turn_priority_max = 9,
							.goal_ttft_ns = 10,
							.goal_tpot_ns = 11 };
	}
	return e;
}

/* Packs @e into memory of exactly its size, so that a sanitizer sees each byte beyond it. */
static void *event_packed(const struct mm_event *e, size_t *ret_bytes)
{
	void *to;

	*ret_bytes = mm_event_bytes(e);
	to = malloc(*ret_bytes);
	assert_non_null(to);
	assert_int_equal(*ret_bytes % MM_EVENT_ALIGN, 0);
	assert_true(*ret_bytes <= MM_EVENT_BYTES_MAX);
	memset(to, 0xa5, *ret_bytes);
	assert_int_equal(mm_event_pack(e, to), *ret_bytes);
	return to;
}

/* Compares by packing again, and what lists and statistics point to. */
static void events_are_equal(const struct mm_event *a, const struct mm_event *b)
{
	size_t a_bytes, b_bytes;
	void *pa = event_packed(a, &a_bytes), *pb = event_packed(b, &b_bytes);

	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->tenant, b->tenant);
	assert_int_equal(a->now_ns, b->now_ns);
	assert_int_equal(a_bytes, b_bytes);
	assert_memory_equal(pa, pb, a_bytes);
	if (a->kind == MM_EVENT_STATS)
		assert_memory_equal(a->stats, b->stats, sizeof(*a->stats));
	free(pa);
	free(pb);
}

static void test_each_kind(void **state)
{
	struct mm_tenant_stats room;

	(void)state;
	for (uint32_t kind = 1; kind < MM_EVENT_KINDS; kind++) {
		struct mm_event e = event_of(kind), back;
		size_t bytes;
		char *packed = event_packed(&e, &bytes);

		assert_int_equal(mm_event_unpack(packed, bytes, &room, &back), 0);
		events_are_equal(&e, &back);
		assert_string_not_equal(mm_event_name(kind), "?");
		for (size_t cut = 0; cut < bytes; cut++) {
			char *less = malloc(cut + 1);

			assert_non_null(less);
			memcpy(less, packed, cut);
			/* A build before the last two knobs ended there. */
			assert_int_equal(mm_event_unpack(less, cut, &room, &back),
					 kind == MM_EVENT_TUNE && cut == bytes - 16 ? 0 : -EBADMSG);
			free(less);
		}
		packed = realloc(packed, bytes + 8);
		assert_non_null(packed);
		memset(packed + bytes, 0, 8);
		assert_int_equal(mm_event_unpack(packed, bytes + 8, &room, &back), -EBADMSG);
		free(packed);
	}
	assert_string_equal(mm_event_name(MM_EVENT_KINDS), "?");
}

static void test_the_longest(void **state)
{
	struct mm_event e = event_of(MM_EVENT_MODEL), back;
	struct mm_tenant_stats room;
	size_t bytes;
	void *packed;

	(void)state;
	e.model.n_groups = MM_LAYERS_MAX + 1;
	packed = event_packed(&e, &bytes);
	assert_int_equal(mm_event_unpack(packed, bytes, &room, &back), 0);
	assert_int_equal(back.model.n_groups, MM_LAYERS_MAX + 1);
	assert_memory_equal(back.groups, groups, sizeof(groups));
	free(packed);
	e = event_of(MM_EVENT_SWAP);
	e.msg.arg[1] = MM_SWAP_PIECES;
	packed = event_packed(&e, &bytes);
	assert_int_equal(mm_event_unpack(packed, bytes, &room, &back), 0);
	assert_memory_equal(back.pieces, pieces, sizeof(pieces));
	free(packed);
	memset(stats.compute, 0xff, sizeof(stats.compute));
	e = event_of(MM_EVENT_STATS);
	packed = event_packed(&e, &bytes);
	assert_int_equal(mm_event_unpack(packed, bytes, &room, &back), 0);
	events_are_equal(&e, &back);
	free(packed);
}

/* A word that is beyond its field is refused. */
static void test_words_beyond_their_field(void **state)
{
	static const struct {
		enum mm_event_kind kind;
		uint32_t word;
		uint64_t value;
	} cases[] = {
		{ MM_EVENT_TICK, 0, MM_EVENT_NONE },
		{ MM_EVENT_TICK, 0, MM_EVENT_KINDS },
		{ MM_EVENT_TICK, 0, MM_EVENT_TICK | UINT64_C(1) << 32 },
		{ MM_EVENT_DEAD, 1, UINT64_C(1) << 32 },
		{ MM_EVENT_JOB_DONE, 4, UINT64_C(1) << 32 },
		{ MM_EVENT_STOPPED_CHECKED, 3, 2 },
		{ MM_EVENT_STATS, 15, 2 },
		{ MM_EVENT_STATS, 15, MM_COMPUTE_WEIGHTS / 4 + 1 },
		{ MM_EVENT_SWAP, 3 + 4, MM_SWAP_PIECES + 1 },
		{ MM_EVENT_SWAP, 3 + 4, UINT64_MAX / 2 },
		{ MM_EVENT_MODEL, 5, 8 },
		{ MM_EVENT_MODEL, 5, MM_LAYERS_MAX + 2 },
		{ MM_EVENT_RANK_ORDER, 6, 2 },
		{ MM_EVENT_QUOTA_SET, 10, MM_ON_TIMEOUTS },
		{ MM_EVENT_STEER, 3, MM_STEERS },
		{ MM_EVENT_TUNE, 4, MM_ON_TIMEOUTS },
		{ MM_EVENT_TUNE, 19, UINT64_C(1) << 32 },
		{ MM_EVENT_TUNE, 20, UINT64_C(1) << 32 },
		{ MM_EVENT_TUNE, 21, UINT64_C(1) << 32 },
		{ MM_EVENT_COLD_SET, 3, UINT64_C(1) << 32 },
		{ MM_EVENT_COLD_LIVE, 3, UINT64_C(1) << 32 },
	};

	(void)state;
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_event e = event_of(cases[i].kind), back;
		struct mm_tenant_stats room;
		size_t bytes;
		uint64_t *packed = event_packed(&e, &bytes);

		assert_true(cases[i].word < bytes / 8);
		packed[cases[i].word] = cases[i].value;
		assert_int_equal(mm_event_unpack(packed, bytes, &room, &back), -EBADMSG);
		free(packed);
	}
}

/* Bytes at random: refused, or an event that is packed to the same bytes. */
static void test_any_bytes(void **state)
{
	uint64_t words[64], seed = 99;
	struct mm_tenant_stats room;

	(void)state;
	for (uint32_t round = 0; round < 20000; round++) {
		size_t n = mm_random_next(&seed) % MM_ARRAY_SIZE(words), bytes;
		struct mm_event e;
		uint64_t *again;

		for (size_t i = 0; i < n; i++)
			words[i] = mm_random_next(&seed) >> mm_random_next(&seed) % 64;
		if (mm_event_unpack(words, n * 8, &room, &e) != 0)
			continue;
		again = event_packed(&e, &bytes);
		assert_int_equal(bytes, n * 8);
		if (e.kind != MM_EVENT_STATS)
			assert_memory_equal(again, words, bytes);
		free(again);
	}
}

/* The call of each kind arrives: an empty core answers as its functions do. */
static void test_calls(void **state)
{
	const struct mm_core_opts opts = { .pages = 8, .page_bytes = 1 << 21 };
	struct mm_event_result result;
	struct mm_core *core;
	struct mm_core_tenant tenant;
	struct mm_action action;

	(void)state;
	assert_int_equal(mm_core_create(&opts, &core), 0);
	for (uint32_t kind = 1; kind < MM_EVENT_KINDS; kind++) {
		struct mm_event e = event_of(kind);

		mm_core_event(core, &e, &result);
		while (mm_core_next(core, &action))
			;
		if (kind == MM_EVENT_JOIN)
			assert_true(mm_core_tenant(core, result.tenant, &tenant));
		else if (kind == MM_EVENT_JOB_DONE)
			assert_int_equal(result.r, MM_E_PROTOCOL);
		else if (kind == MM_EVENT_SWAP_OPEN || kind == MM_EVENT_RANK_BEGIN)
			assert_int_equal(result.r, -EINVAL);
		else if (kind == MM_EVENT_PLAN_SET || kind == MM_EVENT_ACCOUNT_ADD ||
			 kind == MM_EVENT_STEER || kind == MM_EVENT_COLD_SET)
			assert_int_equal(result.r, MM_E_STALE);
		else if (kind == MM_EVENT_QUOTA_SET)
			assert_int_equal(result.r, MM_QUOTA_STALE);
		else
			assert_int_equal(result.r, 0);
	}
	mm_core_check(core);
	mm_core_destroy(core);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_kind),
		cmocka_unit_test(test_the_longest),
		cmocka_unit_test(test_words_beyond_their_field),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_calls),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
