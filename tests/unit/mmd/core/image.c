/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of a core: every byte of its structs is described, what is loaded is what was saved, and
 * what is damaged is refused.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/random.h"
#include "mmd/core/book/book.h"
#include "mmd/core/book/described.h"
#include "mmd/core/book/quota.h"
#include "mmd/core/image.h"
#include "mmd/core/market/described.h"
#include "mmd/core/market/market.h"
#include "mmd/core/out/described.h"
#include "mmd/core/plan/described.h"
#include "mmd/core/plan/plans.h"
#include "mmd/fields/format.h"
#include "mmd/fields/rows.h"
#include "tests/unit/mmd/core/story.h"
#include "tests/unit/mmd/fields/described.h"

#ifdef __SANITIZE_ADDRESS__
#define DAMAGES 200
#else
#define DAMAGES 1500
#endif

static uint8_t *image, *second;
static size_t room, images_checked;

/* ---- all bytes are described ---- */

#ifdef MM_KNOWS_PADDING
#define STRUCTS(X)                                          \
	X(mm_msg_fields, struct mm_msg)                     \
	X(mm_job_fields, struct mm_job)                     \
	X(mm_jobs_fields, struct mm_jobs)                   \
	X(mm_core_quota_fields, struct mm_core_quota)       \
	X(mm_account_turn_fields, struct mm_account_turn)   \
	X(mm_account_fields, struct mm_account)             \
	X(mm_page_fields, struct mm_page)                   \
	X(mm_page_list_fields, struct mm_page_list)         \
	X(mm_ledger_fields, struct mm_ledger)               \
	X(mm_c_mins_fields, struct mm_c_mins)               \
	X(mm_core_opts_fields, struct mm_core_opts)         \
	X(mm_core_stats_fields, struct mm_core_stats)       \
	X(mm_c_copies_fields, struct mm_c_copies)           \
	X(mm_core_fields, struct mm_core)                   \
	X(mm_tenant_stats_fields, struct mm_tenant_stats)   \
	X(mm_slope_fields, struct mm_slope)                 \
	X(mm_c_steps_fields, struct mm_c_steps)             \
	X(mm_c_load_fields, struct mm_c_load)               \
	X(mm_c_kv_fields, struct mm_c_kv)                   \
	X(mm_c_mem_fields, struct mm_c_mem)                 \
	X(mm_core_slot_fields, struct mm_core_slot)         \
	X(mm_core_plan_fields, struct mm_core_plan)         \
	X(mm_c_hold_fields, struct mm_c_hold)               \
	X(mm_c_unload_fields, struct mm_c_unload)           \
	X(mm_c_group_fields, struct mm_c_group)             \
	X(mm_c_tenant_fields, struct mm_c_tenant)           \
	X(mm_core_times_fields, struct mm_core_times)       \
	X(mm_core_tally_fields, struct mm_core_tally)       \
	X(mm_wait_fields, struct mm_wait)                   \
	X(mm_c_tally_fields, struct mm_c_tally)             \
	X(mm_plan_set_fields, struct mm_plan_set)           \
	X(mm_c_preload_fields, struct mm_c_preload)         \
	X(mm_change_fields, struct mm_change)               \
	X(mm_c_chosen_fields, struct mm_c_chosen)           \
	X(mm_c_sets_fields, struct mm_c_sets)               \
	X(mm_c_swap_list_fields, struct mm_c_swap_list)     \
	X(mm_c_swap_fields, struct mm_c_swap)               \
	X(mm_swap_piece_fields, struct mm_swap_piece)       \
	X(mm_plans_fields, struct mm_plans)                 \
	X(mm_demand_fields, struct mm_demand)               \
	X(mm_c_earmark_fields, struct mm_c_earmark)         \
	X(mm_view_point_fields, struct mm_view_point)       \
	X(mm_c_points_fields, struct mm_c_points)           \
	X(mm_c_lends_fields, struct mm_c_lends)             \
	X(mm_c_turn_fields, struct mm_c_turn)               \
	X(mm_c_turns_fields, struct mm_c_turns)             \
	X(mm_c_expected_fields, struct mm_c_expected)       \
	X(mm_c_sums_fields, struct mm_c_sums)               \
	X(mm_c_part_fields, struct mm_c_part)               \
	X(mm_view_tenant_fields, struct mm_view_tenant)     \
	X(mm_view_account_fields, struct mm_view_account)   \
	X(mm_view_fields, struct mm_view)                   \
	X(mm_value_fields, struct mm_value)                 \
	X(mm_target_fields, struct mm_target)               \
	X(mm_targets_fields, struct mm_targets)             \
	X(mm_market_memory_fields, struct mm_market_memory) \
	X(mm_market_fields, struct mm_market)               \
	X(mm_queue_fields, struct mm_queue)

STRUCTS(MM_DESCRIBED_CLEAR)
static const struct mm_described described[] = { STRUCTS(MM_DESCRIBED_ROW) };

static void test_each_byte_is_described(void **state)
{
	const struct mm_fields *fields;

	(void)state;
	for (uint32_t i = 0; i < sizeof(described) / sizeof(described[0]); i++)
		mm_described_check(&described[i]);
	for (uint32_t i = 0; (fields = mm_core_image_fields(i)); i++)
		mm_described_complete(described, sizeof(described) / sizeof(described[0]), fields);
}
#endif

/* ---- what is loaded is what was saved ---- */

static size_t image_save(const struct mm_core *core, uint8_t *to)
{
	size_t bytes;

	assert_true(mm_core_image_room(core) <= room);
	memset(to, 0xa5, 4096);
	assert_int_equal(mm_core_image_save(core, to, mm_core_image_room(core), &bytes), 0);
	return bytes;
}

static struct mm_core *image_load(size_t bytes)
{
	struct mm_core *copy;
	char err[200] = "";

	if (mm_core_image_load(&w->opts, image, bytes, &copy, err, sizeof(err)) != 0)
		fail_msg("not loaded: %s", err);
	return copy;
}

/* Before each event the core is as good as its copy, which is saved as the same bytes. */
static void image_check(struct world *at, enum w_event event, uint32_t tenant,
			const struct mm_msg *msg, int result)
{
	struct mm_core *copy;
	size_t bytes;

	(void)tenant;
	(void)msg;
	(void)result;
	if (event == W_EVENT_XFER_DOWN)
		return;
	bytes = image_save(at->core, image);
	copy = image_load(bytes);
	assert_int_equal(image_save(copy, second), bytes);
	assert_memory_equal(image, second, bytes);
	mm_core_destroy(copy);
	images_checked++;
}

/* Tenants that cycle, hold turns and chunks, swap, and wait for pages; xfer dies. */
static void much_happens(void)
{
	struct w_proc *a = tenant_with(0, 8, 2), *b = tenant_with(1, 6, 3);
	const struct mm_swap_piece pieces[] = { { .bytes = 4096 },
						{ .swap_offset = 4096, .bytes = 64 } };

	w_kv_declare(w, a, 1, 1, 16, 4);
	w_kv_declare(w, b, 2, 1, 8, 2);
	w_kv_want(w, a, 6);
	w_kv_want(w, b, 8);
	w_run(w);
	story_steps(a, 3);
	story_plan_by_hand(b, 3);
	w_run(w);
	story_steps(b, 3);
	w_turn_join(w, a, MM_TURN_DRAIN, 0, 0);
	w_turn_join(w, b, MM_TURN_QUANTUM, 0, 1);
	w_swap_open(w, a, 1 << 20);
	w_swap(w, a, false, pieces, 2);
	w_tick(w, 5 * MM_NS_PER_MS);
	w_xfer_kill(w, true);
	w_mem_alloc(w, b, 2);
	w_join(w, 2, MM_FEAT_KNOWN);
	w_tick(w, 5 * MM_NS_PER_MS);
	w_xfer_up(w);
	story_plan_by_hand(b, 0);
	w_xfer_work(w, 1, 0);
	w_kv_want(w, a, 16);
}

static void world_begin(void)
{
	struct mm_core_opts opts = { .pages = 64,
				     .page_bytes = 4096,
				     .policy = MM_POLICY_REMAP,
				     .swap_max_bytes = 1 << 24,
				     .tenants_max = 8,
				     .accounts_max = 24 };

	w_init(w, &opts, 1);
	room = mm_core_image_room(w->core);
	image = malloc(room);
	second = malloc(room);
	assert_non_null(image);
	assert_non_null(second);
	w->watch = image_check;
	w_xfer_up(w);
	w_run(w);
}

static int world_end(void **state)
{
	free(image);
	free(second);
	return story_teardown(state);
}

static void test_saved_and_loaded(void **state)
{
	(void)state;
	world_begin();
	much_happens();
	pass_ms(500);
	w_run(w);
	assert_true(images_checked > 100);
}

/* ---- what is not as it should be ---- */

static void image_seal(size_t bytes)
{
	uint64_t sum =
		mm_rows_checksum(image + MM_ROWS_HEAD_WORDS * 8, bytes - MM_ROWS_HEAD_WORDS * 8);

	memcpy(image + 16, &sum, sizeof(sum));
}

static int image_try(const struct mm_core_opts *opts, size_t bytes)
{
	struct mm_core *copy;
	char err[200] = "";
	int r = mm_core_image_load(opts, image, bytes, &copy, err, sizeof(err));

	if (r)
		assert_int_not_equal(err[0], '\0');
	else
		mm_core_destroy(copy);
	return r;
}

static void test_refused(void **state)
{
	struct mm_core_opts opts;
	size_t bytes;

	(void)state;
	world_begin();
	much_happens();
	bytes = image_save(w->core, image);
	assert_int_equal(image_try(&w->opts, bytes), 0);
	for (size_t cut = 0; cut < bytes; cut += 1 + cut / 50)
		assert_int_equal(image_try(&w->opts, cut), -EBADMSG);
	image[bytes / 2] ^= 1;
	assert_int_equal(image_try(&w->opts, bytes), -EBADMSG);
	image[bytes / 2] ^= 1;
	image[0] ^= 1;
	assert_int_equal(image_try(&w->opts, bytes), -EPROTO);
	image[0] ^= 1;
	opts = w->opts;
	opts.pages++;
	assert_int_equal(image_try(&opts, bytes), -EINVAL);
	opts = w->opts;
	opts.tag++;
	assert_int_equal(image_try(&opts, bytes), -EINVAL);
	opts = w->opts;
	opts.pages = 0;
	assert_int_equal(image_try(&opts, bytes), -EINVAL);
	assert_int_equal(mm_core_image_save(w->core, second, bytes - 1, &bytes), -ENOSPC);
}

/* Damage that the checksum does not show: it is refused or harmless, and never a crash. */
static void test_damaged(void **state)
{
	static const uint64_t values[] = { 0,          1,          0xff,
					   0xffff,     UINT32_MAX, UINT32_MAX - 1,
					   UINT64_MAX, 0x80000000 };
	uint64_t seed = 5, value;
	size_t bytes, at, n;
	uint32_t refused = 0;

	(void)state;
	world_begin();
	much_happens();
	bytes = image_save(w->core, image);
	memcpy(second, image, bytes);
	for (uint32_t i = 0; i < DAMAGES; i++) {
		at = MM_ROWS_HEAD_WORDS * 8 +
		     mm_random_next(&seed) % (bytes - MM_ROWS_HEAD_WORDS * 8);
		n = MM_MIN(UINT64_C(1) << mm_random_next(&seed) % 4, bytes - at);
		value = values[mm_random_next(&seed) % MM_ARRAY_SIZE(values)];
		if (mm_random_next(&seed) % 2)
			value = mm_random_next(&seed);
		memcpy(image + at, &value, n);
		image_seal(bytes);
		refused += image_try(&w->opts, bytes) != 0;
		memcpy(image + at, second + at, n);
	}
	assert_true(refused > DAMAGES / 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef MM_KNOWS_PADDING
		cmocka_unit_test(test_each_byte_is_described),
#endif
		cmocka_unit_test_teardown(test_saved_and_loaded, world_end),
		cmocka_unit_test_teardown(test_refused, world_end),
		cmocka_unit_test_teardown(test_damaged, world_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
