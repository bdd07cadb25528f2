/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a client: refusals, other versions, daemons whose welcome is malformed. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "libclient/base/base.h"
#include "tests/unit/libclient/client/peer.h"

static void is_refused(struct peer *p)
{
	p->welcome.result = -EDQUOT;
	snprintf(p->welcome.reason, sizeof(p->welcome.reason), "too many \x01 connections");
	p->welcome_fds = 0;
}

static void is_other_abi(struct peer *p)
{
	p->welcome.abi_major = 9;
	p->welcome_bytes = 100; /* whatever version 9 looks like */
}

static void is_not_mmd(struct peer *p)
{
	p->welcome.magic ^= 1;
}

static void is_short(struct peer *p)
{
	p->welcome_bytes -= 8;
}

static void lacks_an_fd(struct peer *p)
{
	p->welcome_fds = 2;
}

static void has_empty_pages(struct peer *p)
{
	p->welcome.page_bytes = 0;
}

static void has_odd_pages(struct peer *p)
{
	p->welcome.page_bytes = 5000;
}

static void has_no_pool(struct peer *p)
{
	p->welcome.pool_pages = 0;
}

static void has_a_huge_pool(struct peer *p)
{
	p->welcome.pool_pages = UINT64_MAX;
}

static void is_longer_than_it_says(struct peer *p)
{
	p->welcome_bytes += sizeof(p->welcome_tail);
}

static void has_no_policy(struct peer *p)
{
	p->welcome.policy[0] = 0;
}

static void has_an_endless_policy(struct peer *p)
{
	memset(p->welcome.policy, 'x', sizeof(p->welcome.policy));
}

static void has_an_unprintable_driver(struct peer *p)
{
	strcpy(p->welcome.driver, "cu\x1b[2J");
}

static void can_shrink_its_region(struct peer *p)
{
	p->welcome_unsealed = true;
}

static void has_another_device(struct peer *p)
{
	p->welcome.device_uuid[3] ^= 1;
}

static void says_nothing(struct peer *p)
{
	p->welcome_silent = true;
}

static void test_refusals(void **state)
{
	static const struct {
		const char *name;
		void (*prepare)(struct peer *);
		int want;
		const char *text;
	} cases[] = {
		{ "refused", is_refused, -EDQUOT, "too many ? connections" },
		{ "other ABI", is_other_abi, -EPROTO, "ABI version 9" },
		{ "not mmd", is_not_mmd, -EPROTO, "not mmd" },
		{ "short", is_short, -EPROTO, "bytes long" },
		{ "two fds", lacks_an_fd, -EPROTO, "malformed" },
		{ "no page size", has_empty_pages, -EPROTO, "malformed" },
		{ "odd page size", has_odd_pages, -EPROTO, "malformed" },
		{ "empty pool", has_no_pool, -EPROTO, "malformed" },
		{ "huge pool", has_a_huge_pool, -EPROTO, "malformed" },
		{ "longer than it says", is_longer_than_it_says, -EPROTO, "bytes long" },
		{ "no policy", has_no_policy, -EPROTO, "malformed" },
		{ "endless policy", has_an_endless_policy, -EPROTO, "malformed" },
		{ "unprintable driver", has_an_unprintable_driver, -EPROTO, "malformed" },
		{ "unsealed region", can_shrink_its_region, -EPROTO, "cannot map" },
		{ "another device", has_another_device, -ENODEV, "not the one that mmd owns" },
		{ "silence", says_nothing, -ETIMEDOUT, "did not answer" },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct peer *p = peer_start();
		struct mm_client_opts opts = peer_client_opts(p);
		struct mm_client *client = NULL;
		char err[320] = "";

		print_message("%s\n", cases[i].name);
		if (cases[i].want == -ETIMEDOUT)
			opts.timeout_ns = MM_NS_PER_S / 2;
		cases[i].prepare(p);
		assert_int_equal(mm_client_open(&opts, &client, err, sizeof(err)), cases[i].want);
		assert_null(client);
		if (!strstr(err, cases[i].text))
			fail_msg("'%s' does not say '%s'", err, cases[i].text);
		peer_stop(p);
	}
}

static void test_nobody_there(void **state)
{
	struct mm_client_opts opts = { .size = sizeof(opts), .socket_path = "/nonexistent/sock" };
	struct mm_client *client = NULL;
	char err[320];

	(void)state;
	assert_int_equal(mm_client_open(&opts, &client, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "/nonexistent/sock"));
	setenv(MM_SOCKET_ENV, "/nonexistent/by-environment", 1);
	assert_int_equal(mm_client_open(NULL, &client, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "by-environment"));
	unsetenv(MM_SOCKET_ENV);
}

static void test_opts(void **state)
{
	struct {
		struct mm_client_opts opts;
		char later[16];
	} newer = { .opts = { .size = sizeof(newer) } };
	struct mm_client *client = NULL;

	(void)state;
	newer.opts.socket_path = "/nonexistent/sock";
	assert_int_equal(mm_client_open(&newer.opts, &client, NULL, 0), -ENOENT);
	newer.later[3] = 1; /* an option that this version does not know */
	assert_int_equal(mm_client_open(&newer.opts, &client, NULL, 0), -EINVAL);
	newer.opts.size = 8;
	assert_int_equal(mm_client_open(&newer.opts, &client, NULL, 0), -EINVAL);
}

static void test_version(void **state)
{
	(void)state;
	assert_int_equal(mm_client_abi(), MM_CLIENT_ABI);
	assert_int_equal(mm_client_abi() >> 16, MM_CLIENT_ABI_MAJOR);
	assert_string_equal(mm_client_version(), MM_VERSION);
}

static void test_hello_and_info(void **state)
{
	struct peer *p = peer_start();
	struct mm_client_opts opts = peer_client_opts(p);
	struct mm_client *client = NULL;
	struct mm_client_info info = { .size = sizeof(info) };

	(void)state;
	opts.flags = MM_CLIENT_NO_REMAP;
	opts.name = "it's \"a\" long name that goes on and on";
	p->welcome.features = MM_FEAT_RECLAIM;
	assert_int_equal(mm_client_open(&opts, &client, NULL, 0), 0);
	peer_await_connection(p);
	assert_int_equal(p->hello.magic, MM_ABI_MAGIC);
	assert_int_equal(p->hello.size_bytes, sizeof(struct mm_hello));
	assert_true(p->hello.features ==
		    (MM_FEAT_RECLAIM | MM_FEAT_REASON | MM_FEAT_KV_FIXED | MM_FEAT_KV_SWAP |
		     MM_FEAT_RESUME | MM_FEAT_DEMAND | MM_FEAT_MEM | MM_FEAT_HOLD | MM_FEAT_GROUP |
		     MM_FEAT_KEY | MM_FEAT_UNLOAD | MM_FEAT_LEAVE));
	assert_string_equal(p->hello.name, "it_s__a__long_name_that_goes_on");
	assert_int_equal(mm_client_info(client, &info), 0);
	assert_int_equal(info.tenant_id, 7);
	assert_int_equal(info.pool_pages, PEER_PAGES);
	assert_string_equal(mm_client_error(client), "");
	mm_client_close(client);
	peer_expect(p, MM_OP_BYE);
	peer_stop(p);
}

/* Names, features and lengths that this library does not know are no reason to refuse. */
static void test_later_daemon(void **state)
{
	struct peer *p = peer_start();
	struct mm_client_opts opts = peer_client_opts(p);
	struct mm_client *client = NULL;
	struct mm_client_info info = { .size = sizeof(info) };

	(void)state;
	strcpy(p->welcome.policy, "clairvoyant");
	strcpy(p->welcome.driver, "hip"); /* the default driver is opened, and the UUID decides */
	p->welcome.features |= UINT64_C(1) << 40;
	p->welcome.reserved[57] = 1;
	memset(p->welcome_tail, 0xff, sizeof(p->welcome_tail));
	p->welcome_bytes += sizeof(p->welcome_tail);
	p->welcome.size_bytes = (uint16_t)p->welcome_bytes;
	assert_int_equal(mm_client_open(&opts, &client, NULL, 0), 0);
	assert_int_equal(mm_client_info(client, &info), 0);
	assert_string_equal(info.policy, "clairvoyant");
	assert_string_equal(info.driver, "hip");
	assert_true(info.features == MM_FEAT_KNOWN);
	mm_client_close(client);
	peer_expect(p, MM_OP_BYE);
	peer_stop(p);
}

/* Regions may be longer than this library knows, not shorter than it needs. */
static void test_region_sizes(void **state)
{
	static const size_t least[3] = { MM_TENANT_REGION_BYTES_MIN, MM_MMD_REGION_BYTES_MIN,
					 MM_GATE_REGION_BYTES_MIN };

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		const size_t known[3] = { sizeof(struct mm_tenant_region),
					  sizeof(struct mm_mmd_region),
					  sizeof(struct mm_gate_region) };
		size_t bytes[3] = { known[0], known[1], known[2] };
		struct peer *p = peer_start();
		struct mm_client_opts opts = peer_client_opts(p);
		struct mm_client *client = NULL;
		char err[320] = "";

		bytes[i / 2] = i % 2 ? least[i / 2] - 1 : known[i / 2] + 3 * MM_ABI_PAGE_BYTES;
		peer_regions(p, bytes);
		assert_int_equal(mm_client_open(&opts, &client, err, sizeof(err)),
				 i % 2 ? -EPROTO : 0);
		assert_int_equal(i % 2, strstr(err, "cannot map") != NULL);
		if (client) {
			mm_client_close(client);
			peer_expect(p, MM_OP_BYE);
		}
		peer_stop(p);
	}
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i])
			return false;
	return true;
}

/*
 * Without a driver no device can be named: if mmd has several, the first hello only asks for the
 * driver.
 */
static void test_device_is_named(void **state)
{
	for (int given = 0; given < 2; given++) {
		struct peer *p = peer_start();
		struct mm_client_opts opts = peer_client_opts(p);
		struct mm_client *client = NULL;

		(void)state;
		p->several = !given;
		opts.gpu = given ? &p->gpu : NULL;
		assert_int_equal(mm_client_open(&opts, &client, NULL, 0), 0);
		peer_await_connection(p);
		assert_true(is_zero(p->hello_first.device_uuid, sizeof(p->hello.device_uuid)));
		assert_memory_equal(p->hello.device_uuid, p->welcome.device_uuid,
				    sizeof(p->hello.device_uuid));
		mm_client_close(client);
		peer_expect(p, MM_OP_BYE);
		peer_stop(p);
	}
}

/* The ordinal is that of the process; one that its driver does not have is not sent to mmd. */
static void test_no_such_ordinal(void **state)
{
	struct peer *p = peer_start();
	struct mm_client_opts opts = peer_client_opts(p);
	struct mm_client *client = NULL;
	char err[320] = "";

	(void)state;
	opts.gpu = &p->gpu;
	opts.device = 5;
	assert_int_equal(mm_client_open(&opts, &client, err, sizeof(err)), -ENODEV);
	assert_non_null(strstr(err, "no such device"));
	peer_stop(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_nobody_there),
		cmocka_unit_test(test_opts),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_hello_and_info),
		cmocka_unit_test(test_later_daemon),
		cmocka_unit_test(test_region_sizes),
		cmocka_unit_test(test_device_is_named),
		cmocka_unit_test(test_no_such_ordinal),
	};

	peer_environment();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
