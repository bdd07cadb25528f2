/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between pages and a tenant's swap space, by a real xfer that is killed and restarted. */
#undef NDEBUG
#include <errno.h>
#include <string.h>

#include "tests/unit/mmd/xfer/core.h"

#define SPACE (4 * GRANULE + 4096)

static struct mm_region space;

static void send_space(struct core *core)
{
	const struct mm_xmsg msg = {
		.magic = MM_PROTO_MAGIC, .kind = MM_X_SWAP, .count = 1, .id = TENANT, .bytes = SPACE
	};

	core_send(core, &msg, &space.fd, 1);
}

static int setup(void **state)
{
	struct core *core;

	core_setup(state);
	core = *state;
	core_start(core);
	assert_int_equal(core->hello.result, 0);
	assert_int_equal(core_do(core, MM_XOP_CREATE, 0, 0, core->setup.pages, 0, 0), 0);
	assert_int_equal(mm_region_create(SPACE, MM_REGION_SHARED, "swap", &space), 0);
	core_send_tenant(core);
	send_space(core);
	return 0;
}

static int teardown(void **state)
{
	mm_region_done(&space);
	return core_teardown(state);
}

static int swap_run(struct core *core, enum mm_xop op, uint64_t pool, uint64_t at, uint64_t bytes)
{
	return core_do(core, op, 0, TENANT | UINT64_C(5) << 32, pool, at, bytes);
}

static void test_out_and_in(void **state)
{
	struct core *core = *state;
	const unsigned char *host = space.base;

	core_fill(core, 3, 0x33);
	core_fill(core, 4, 0x44);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_OUT, 3 * GRANULE, GRANULE, GRANULE), 0);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_OUT, 4 * GRANULE + 1000, 7, 500), 0);
	for (uint64_t i = 0; i < 2 * GRANULE; i++)
		assert_int_equal(host[i], i >= GRANULE ? 0x33 : i >= 7 && i < 507 ? 0x44 : 0);
	core_assert_bytes(core, 3, 0, GRANULE, 0x33);

	core_fill(core, 3, 0);
	core_fill(core, 5, 0x55);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_IN, 3 * GRANULE, GRANULE, GRANULE), 0);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_IN, 5 * GRANULE + 60000, 0, 10), 0);
	core_assert_bytes(core, 3, 0, GRANULE, 0x33);
	core_assert_bytes(core, 5, 0, 60000, 0x55);
	core_assert_bytes(core, 5, 60000, 60007, 0);
	core_assert_bytes(core, 5, 60007, 60010, 0x44);
	core_assert_bytes(core, 5, 60010, GRANULE, 0x55);
}

static void test_refuses(void **state)
{
	struct core *core = *state;
	const struct {
		uint64_t pool, at, bytes;
	} bad[] = {
		{ 32 * GRANULE, 0, 1 }, { 31 * GRANULE, 0, GRANULE + 1 },
		{ GRANULE - 1, 0, 2 },  { 0, SPACE, 1 },
		{ 0, SPACE - 1, 2 },    { 0, UINT64_MAX, 2 },
		{ UINT64_MAX, 0, 1 },   { 0, 0, 0 },
	};

	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++) {
		print_message("case %zu\n", i);
		assert_int_equal(
			swap_run(core, MM_XOP_SWAP_IN, bad[i].pool, bad[i].at, bad[i].bytes),
			-EINVAL);
	}
	assert_int_equal(core_do(core, MM_XOP_SWAP_OUT, 0, TENANT + 1, 0, 0, 1), -ENOENT);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_OUT, 0, SPACE - 1, 1), 0);
}

/* DETACH drops the space; a later tenant with that id has its own. */
static void test_goes_with_its_tenant(void **state)
{
	struct core *core = *state;

	assert_int_equal(swap_run(core, MM_XOP_SWAP_OUT, 0, 0, GRANULE), 0);
	assert_int_equal(core_do(core, MM_XOP_DETACH, 0, TENANT, 0, 0, 0), 0);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_OUT, 0, 0, GRANULE), -ENOENT);
	core_send_tenant(core);
	send_space(core);
	assert_int_equal(swap_run(core, MM_XOP_SWAP_OUT, 0, 0, GRANULE), 0);
	assert_int_equal(core_end(core), 0);
}

/* A core that was started anew may send the space again, while copies are under way. */
static void test_twice(void **state)
{
	struct core *core = *state;
	uint64_t job[8];

	core_fill(core, 3, 0x33);
	for (uint64_t i = 0; i < 4; i++)
		job[i] = core_push(core, (struct mm_msg){ .opcode = MM_XOP_SWAP_OUT,
							  .arg = { TENANT, 3 * GRANULE, i * GRANULE,
								   GRANULE } });
	send_space(core);
	/* The two directions keep no order between them. */
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(core_await(core, job[i]), 0);
	for (uint64_t i = 4; i < 8; i++)
		job[i] = core_push(core, (struct mm_msg){ .opcode = MM_XOP_SWAP_IN,
							  .arg = { TENANT, (6 + i) * GRANULE,
								   (i - 4) * GRANULE, GRANULE } });
	send_space(core);
	for (size_t i = 4; i < MM_ARRAY_SIZE(job); i++)
		assert_int_equal(core_await(core, job[i]), 0);
	for (uint32_t i = 4; i < 8; i++)
		core_assert_bytes(core, 6 + i, 0, GRANULE, 0x33);
	assert_int_equal(core_end(core), 0);
}

/* After a kill with many copies under way, all of them are issued again to the next xfer. */
static void test_killed_in_the_middle(void **state)
{
	struct core *core = *state;
	uint64_t job[4];

	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t page = 0; page < 4; page++)
			core_fill(core, 10 + page, (unsigned char)(round * 16 + page + 1));
		for (uint32_t i = 0; i < 64; i++)
			core_push(core, (struct mm_msg){ .opcode = MM_XOP_SWAP_OUT,
							 .arg = { TENANT, (10 + i % 4) * GRANULE,
								  i % 4 * GRANULE, GRANULE } });
		core_restart(core);
		send_space(core);
		for (uint32_t i = 0; i < 4; i++)
			job[i] = core_push(core,
					   (struct mm_msg){ .opcode = MM_XOP_SWAP_OUT,
							    .arg = { TENANT, (10 + i) * GRANULE,
								     i * GRANULE, GRANULE } });
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(core_await(core, job[i]), 0);
		for (uint32_t i = 0; i < 4 * GRANULE; i += 499)
			assert_int_equal(((unsigned char *)space.base)[i],
					 round * 16 + i / GRANULE + 1);
	}
}

int main(int argc, char **argv)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_out_and_in),           T(test_refuses),
		T(test_goes_with_its_tenant), T(test_twice),
		T(test_killed_in_the_middle),
	};

	core_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
