/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/shell/check.h"

#define GROWN 16

struct grown {
	struct mm_hello hello;
	uint8_t tail[GROWN];
};

static struct grown hello_good(void)
{
	return (struct grown){ .hello = { .magic = MM_ABI_MAGIC,
					  .abi_major = MM_ABI_MAJOR,
					  .size_bytes = sizeof(struct mm_hello),
					  .features = ~UINT64_C(0),
					  .features_required = MM_FEAT_REMAP,
					  .name = "engine" } };
}

static int hello_check(const struct grown *g, size_t n)
{
	char reason[MM_REASON_BYTES] = "";
	struct mm_hello hello = { 0 };
	int r = mm_hello_check(g, n, &hello, reason);

	assert_int_equal(r == 0, reason[0] == 0);
	assert_int_equal(r == 0, hello.magic == MM_ABI_MAGIC);
	return r;
}

static void test_good(void **state)
{
	struct grown g = hello_good();

	(void)state;
	assert_int_equal(hello_check(&g, sizeof(g.hello)), 0);
	g.hello.size_bytes = sizeof(g);
	assert_int_equal(hello_check(&g, sizeof(g)), 0);
}

static void set_magic(struct grown *g)
{
	g->hello.magic ^= 1;
}

static void set_major_up(struct grown *g)
{
	g->hello.abi_major++;
}

static void set_major_zero(struct grown *g)
{
	g->hello.abi_major = 0;
}

static void set_size(struct grown *g)
{
	g->hello.size_bytes = sizeof(struct mm_hello) - 1;
}

static void set_required(struct grown *g)
{
	g->hello.features_required = UINT64_C(1) << 40;
}

static void set_reserved(struct grown *g)
{
	g->hello.reserved[6] = 1;
}

static void set_name_empty(struct grown *g)
{
	memset(g->hello.name, 0, MM_NAME_BYTES);
}

static void set_name_full(struct grown *g)
{
	memset(g->hello.name, 'x', MM_NAME_BYTES);
}

static void set_name_escape(struct grown *g)
{
	strcpy(g->hello.name, "\x1b[2J");
}

static void set_name_quote(struct grown *g)
{
	strcpy(g->hello.name, "a\"b");
}

static void set_name_behind(struct grown *g)
{
	g->hello.name[MM_NAME_BYTES - 1] = 'x';
}

static const struct {
	void (*set)(struct grown *g);
	int want;
} refused[] = {
	{ set_magic, -EPROTO },      { set_major_up, -EPROTO },    { set_major_zero, -EPROTO },
	{ set_size, -EINVAL },       { set_required, -ENOTSUP },   { set_reserved, -EINVAL },
	{ set_name_empty, -EINVAL }, { set_name_full, -EINVAL },   { set_name_escape, -EINVAL },
	{ set_name_quote, -EINVAL }, { set_name_behind, -EINVAL },
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(refused); i++) {
		struct grown g = hello_good();

		refused[i].set(&g);
		assert_int_equal(hello_check(&g, sizeof(g.hello)), refused[i].want);
	}
}

static void test_length(void **state)
{
	struct grown g = hello_good();

	(void)state;
	assert_int_equal(hello_check(&g, 0), -EPROTO);
	assert_int_equal(hello_check(&g, sizeof(g.hello) - 1), -EPROTO);
	assert_int_equal(hello_check(&g, sizeof(g.hello) + 1), -EINVAL);
	g.hello.size_bytes = sizeof(g);
	g.tail[GROWN - 1] = 1;
	assert_int_equal(hello_check(&g, sizeof(g)), -EINVAL);
}

static const struct {
	struct mm_msg msg;
	bool good;
} requests[] = {
	{ { .opcode = MM_OP_NOP }, true },
	{ { .opcode = MM_OP_KV_DECLARE, .arg = { 1, 2, 3, 4 } }, true },
	{ { .opcode = MM_OP_KV_WANT, .arg = { 1, 2 } }, true },
	{ { .opcode = MM_OP_COLD_OPEN, .arg = { 1, 2, 3, 4 } }, true },
	{ { .opcode = MM_OP_COLD_WINDOW, .arg = { 1, 2 } }, true },
	{ { .opcode = MM_OP_FDS_ACK, .arg = { 1 }, .result = -EMFILE }, true },
	{ { .opcode = MM_OP_PARKED, .epoch = 5 }, true },
	{ { .opcode = MM_OP_COMMITTED, .epoch = 5, .result = -ENOMEM }, true },
	{ { .opcode = MM_OP_BYE, .user_data = UINT64_MAX }, true },
	{ { .opcode = MM_OP_COUNT }, false },
	{ { .opcode = UINT16_MAX }, false },
	{ { .opcode = MM_OP_KV_WANT, .flags = 1 }, false },
	{ { .opcode = MM_OP_KV_WANT, .reserved = 1 }, false },
	{ { .opcode = MM_OP_KV_WANT, .result = 1 }, false },
	{ { .opcode = MM_OP_KV_WANT, .epoch = 1 }, false },
	{ { .opcode = MM_OP_KV_WANT, .arg = { 1, 1, 1 } }, false },
	{ { .opcode = MM_OP_COLD_WINDOW, .arg = { 1, 1, 1 } }, false },
	{ { .opcode = MM_OP_BYE, .arg = { 0, 0, 0, 1 } }, false },
};

static void test_requests(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(requests); i++)
		assert_int_equal(mm_request_check(&requests[i].msg) == NULL, requests[i].good);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_length),
		cmocka_unit_test(test_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
