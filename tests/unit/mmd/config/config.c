/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "libclient/support/size.h"
#include "mmd/config/config.h"
#include "mmd/common/host.h"

#define WORDS_MAX 14

static const struct {
	const char *text;
	uint64_t bytes;
	int want;
} sizes[] = {
	{ "0", 0, 0 },
	{ "65536", 65536, 0 },
	{ "512M", UINT64_C(512) << 20, 0 },
	{ "2G", UINT64_C(2) << 30, 0 },
	{ "1K", 1024, 0 },
	{ "3T", UINT64_C(3) << 40, 0 },
	{ "", 0, -EINVAL },
	{ "G", 0, -EINVAL },
	{ "-1", 0, -EINVAL },
	{ " 1", 0, -EINVAL },
	{ "1g", 0, -EINVAL },
	{ "1GB", 0, -EINVAL },
	{ "1.5G", 0, -EINVAL },
	{ "0x10", 0, -EINVAL },
	{ "18446744073709551616", 0, -ERANGE },
	{ "18446744073709551615T", 0, -ERANGE },
};

static void test_sizes(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(sizes); i++) {
		uint64_t bytes = 7;

		assert_int_equal(mm_size_parse(sizes[i].text, &bytes), sizes[i].want);
		assert_int_equal(bytes, sizes[i].want ? 7 : sizes[i].bytes);
	}
}

/* Writes @config only on success, as a daemon starts only then. */
static int parse_words(int argc, char **argv, struct mm_config *config, char *error)
{
	struct mm_config read = { 0 };
	int r = mm_config_read(argc, argv, &read, error);

	if (r == MM_OPT_RUN)
		*config = read;
	return r;
}

static int parse(const char *const *words, struct mm_config *config, char *error)
{
	char *argv[WORDS_MAX + 2] = { (char *)(uintptr_t) "mmd" };
	int argc = 1;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	return parse_words(argc, argv, config, error);
}

static const struct {
	const char *words[WORDS_MAX];
	const char *names; /* a word that the sentence must contain */
} refused[] = {
	{ { "--frobnicate", "1" }, "--frobnicate" },
	{ { "--frobnicate=1" }, "--frobnicate" },
	{ { "extra" }, "extra" },
	{ { "--pool" }, "--pool" },
	{ { "--pol", "8M" }, "did you mean --pool?" },
	{ { "--policy", "remaq" }, "did you mean remap?" },
	{ { "--ask-timeout", "8" }, "--ask-timeout is now --reclaim-timeout" },
	{ { "--headroom", "1025T" }, "--headroom" },
	{ { "--headroom", "by" }, "auto" },
	{ { "--controller", "dwel-ms=5" }, "did you mean dwell-ms?" },
	{ { "--accounts", "[{\"nam\":\"x\"}]" }, "did you mean name?" },
	{ { "--pool", "many" }, "many" },
	{ { "--pool", "0" }, "--pool" },
	{ { "--page", "3" }, "--page" },
	{ { "--policy", "greedy" }, "greedy" },
	{ { "--log-level", "loud" }, "loud" },
	{ { "--passed-fds", "take" }, "take" },
	{ { "--sandbox", "none" }, "none" },
	{ { "--idle-timeout", "-1" }, "--idle-timeout" },
	{ { "--swap-max", "much" }, "--swap-max" },
	{ { "--controller", "" }, "--controller" },
	{ { "--controller", "turn-cost=0" }, "--controller: turn-cost" },
	{ { "--controller", "turn-cost=500,frobnicate=1" }, "frobnicate" },
	{ { "--device", "x" }, "--device" },
	{ { "--device", "0,1,0" }, "twice" },
	{ { "--device", "0,,1" }, "--device" },
	{ { "--store-dir", "/s", "--stage", "4K" }, "--stage" },
	{ { "--stage", "64M" }, "--store-dir" },
	{ { "--store-dir", "/s", "--stage", "900G" }, "64 chunks" },
	{ { "--store-dir", "/s", "--stage", "16G", "--chunk", "4G" }, "--chunk" },
	{ { "--device", "," }, "--device" },
	{ { "--device", "0,1,2,3,4,5,6,7,8" }, "--device" },
	{ { "--device", "0,1", "--pool", "1G,2G,3G" }, "--pool" },
	{ { "--pool", "1G,2G" }, "--pool" },
	{ { "--device=0,1", "--page", "4096,3" }, "--page" },
	{ { "--device=0,1", "--headroom", "1G," }, "--headroom" },
	{ { "--driver", "" }, "--driver" },
	{ { "--numa-node", "1023" }, "--numa-node" },
	{ { "--numa-node", "1024" }, "--numa-node" },
	{ { "--hugepages", "4M" }, "4M" },
	{ { "--dir", "/a/directory/whose/name/is/longer/than/the/path/of/a/socket/may/be/as/the/"
		     "kernel/says" },
	  "--dir" },
	{ { "--config", "/nonexistent/mmd.conf" }, "/nonexistent/mmd.conf: No such file" },
	{ { "--config", "/dev/null" }, "/dev/null: is not a regular file" },
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(refused); i++) {
		char error[MM_CONFIG_ERROR_BYTES] = "";
		struct mm_config config = { .device.n = 77 };

		assert_int_equal(parse(refused[i].words, &config, error), -EINVAL);
		assert_non_null(strstr(error, refused[i].names));
		assert_null(strchr(error, '\n'));
		assert_int_equal(config.device.n, 77);
	}
}

static void test_accepted(void **state)
{
	const char *const words[] = { "--dir=/tmp/x", "--pool",   "2G", "--page=64K", "--policy",
				      "elastic",      "--device", "3",  NULL };
	struct mm_config config;
	char error[MM_CONFIG_ERROR_BYTES] = "";

	(void)state;
	assert_int_equal(parse(words, &config, error), MM_OPT_RUN);
	assert_string_equal(config.dir, "/tmp/x");
	assert_int_equal(mm_config_at(&config.pool_bytes, 0), UINT64_C(2) << 30);
	assert_int_equal(mm_config_at(&config.page_bytes, 0), 65536);
	assert_int_equal(config.policy, MM_POLICY_ELASTIC);
	assert_int_equal(mm_config_devices(&config), 1);
	assert_int_equal(mm_config_at(&config.device, 0), 3);
	assert_int_equal(config.role, 0);
	assert_int_equal(parse((const char *[]){ "--help", NULL }, &config, error), MM_OPT_HELP);
	assert_int_equal(parse((const char *[]){ "--version", NULL }, &config, error),
			 MM_OPT_VERSION);
}

/* The largest size is a size, and not "by device". */
static void test_headroom(void **state)
{
	static const struct {
		const char *text;
		uint64_t first, second;
	} cases[] = {
		{ "auto", MM_HEADROOM_BY_DEVICE, MM_HEADROOM_BY_DEVICE },
		{ "1024T", UINT64_C(1) << 50, UINT64_C(1) << 50 },
		{ "1G,auto", UINT64_C(1) << 30, MM_HEADROOM_BY_DEVICE },
	};
	char *argv[MM_CONFIG_ARGS_MAX], error[MM_CONFIG_ERROR_BYTES] = "";

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const char *const words[] = { "--device=0,1", "--headroom", cases[i].text, NULL };
		struct mm_config config = { 0 }, again = { 0 };
		int argc = 0;

		assert_int_equal(parse(words, &config, error), MM_OPT_RUN);
		assert_int_equal(mm_config_args(&config, MM_ROLE_CORE, argv), 0);
		while (argv[argc])
			argc++;
		assert_int_equal(parse_words(argc, argv, &again, error), MM_OPT_RUN);
		assert_true(mm_config_at(&again.headroom_bytes, 0) == cases[i].first);
		assert_true(mm_config_at(&again.headroom_bytes, 1) == cases[i].second);
		mm_config_args_free(argv);
	}
}

/* One value is for all devices, several are one for each; an xfer gets its own device only. */
static void test_devices(void **state)
{
	const char *const words[] = { "--device", "4,2", "--pool=3G", "--page", "64K,2M", NULL };
	char *argv[MM_CONFIG_ARGS_MAX], error[MM_CONFIG_ERROR_BYTES] = "";
	struct mm_config config = { 0 }, one = { 0 }, again = { 0 };
	int argc = 0;

	(void)state;
	assert_int_equal(parse(words, &config, error), MM_OPT_RUN);
	assert_int_equal(mm_config_devices(&config), 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(mm_config_at(&config.device, i), i ? 2 : 4);
		assert_int_equal(mm_config_at(&config.page_bytes, i), i ? 2 << 20 : 65536);
		assert_int_equal(mm_config_at(&config.pool_bytes, i), UINT64_C(3) << 30);
		assert_true(mm_config_at(&config.headroom_bytes, i) == MM_HEADROOM_BY_DEVICE);
	}
	mm_config_one(&config, 1, &one);
	assert_int_equal(mm_config_args(&one, MM_ROLE_XFER, argv), 0);
	while (argv[argc])
		argc++;
	assert_int_equal(parse_words(argc, argv, &again, error), MM_OPT_RUN);
	assert_int_equal(mm_config_devices(&again), 1);
	assert_int_equal(mm_config_at(&again.device, 0), 2);
	assert_int_equal(mm_config_at(&again.page_bytes, 0), 2 << 20);
	mm_config_args_free(argv);
}

/* The flags that keeper passes to another role parse to the same settings. */
static void test_handed_on(void **state)
{
	const char *const words[] = {
		"--dir",    "/tmp/x",      "--pool=3G",      "--slots",
		"2",        "--chunk=1M",  "--controller",   "turn-cost=300,reversion=off",
		"--driver", "/lib/x y.so", "--hugepages=2M", NULL
	};
	char *argv[MM_CONFIG_ARGS_MAX], error[MM_CONFIG_ERROR_BYTES] = "";
	struct mm_config config = { 0 }, again = { 0 };
	int argc = 0;

	(void)state;
	assert_int_equal(parse(words, &config, error), MM_OPT_RUN);
	assert_int_equal(mm_config_args(&config, MM_ROLE_XFER, argv), 0);
	while (argv[argc])
		argc++;
	assert_int_equal(parse_words(argc, argv, &again, error), MM_OPT_RUN);
	assert_int_equal(again.role, MM_ROLE_XFER);
	again.role = 0;
	assert_string_equal(again.driver, "/lib/x y.so");
	assert_int_equal(mm_config_at(&again.pool_bytes, 0), UINT64_C(3) << 30);
	assert_int_equal(again.slots, 2);
	assert_string_equal(again.controller, "turn-cost=300,reversion=off");
	assert_int_equal(again.chunk_bytes, 1 << 20);
	assert_int_equal(mm_config_at(&again.page_bytes, 0), 0);
	assert_int_equal(again.hugepages, MM_HUGE_2M);
	assert_true(again.numa_node == MM_NUMA_BY_DEVICE);
	mm_config_args_free(argv);
}

static const struct {
	const char *text;
	const char *names; /* NULL = accepted */
} files[] = {
	{ "{\"pool\": \"2G\", \"page\": 65536, \"dir\": \"/tmp/y\"}", NULL },
	{ "{\"devices\": [{\"device\": 0}], \"pool\": \"2G\", \"page\": 65536}", NULL },
	{ "{\"devices\": 3}", "devices" },
	{ "{\"devices\": []}", "devices" },
	{ "{\"devices\": [{\"pool\": \"1G\"}]}", "'device'" },
	{ "{\"devices\": [{\"device\": 0}, 7]}", "number 2" },
	{ "{\"devices\": [{\"device\": 0, \"policy\": \"remap\"}]}", "policy" },
	{ "{\"devices\": [{\"device\": 0, \"pool\": \"1G,2G\"}]}", "one value" },
	{ "{\"devices\": [{\"device\": \"0,1\"}]}", "one value" },
	{ "{\"pool\": \"1G,2G\", \"devices\": [{\"device\": 0}, {\"device\": 1}]}", "pool" },
	{ "{\"frobnicate\": 1}", "frobnicate" },
	{ "{\"pol\": 1}", "did you mean pool?" },
	{ "{\"polcy\": \"remap\"}", "did you mean policy?" },
	{ "{\"policy\": \"remaq\"}", "did you mean remap?" },
	{ "{\"ask-timeout\": 5}", "'ask-timeout' is now 'reclaim-timeout'" },
	{ "{\"device\": [0], \"page\": 65536}", NULL },
	{ "{\"policy\": [\"remap\"]}", "policy" },
	{ "{\"config\": \"/x\"}", "config" },
	{ "{\"role\": \"core\"}", "role" },
	{ "{", ":2: " },
	{ "[]", "object" },
	{ "{\"policy\": 7}", "policy" },
	{ "{\"controller\": \"dwell-ms=50\", \"page\": 65536}", NULL },
	{ "{\"controller\": \"dwell-ms=x\"}", "dwell-ms" },
	{ "{\"controller\": {\"dwell-ms\": 50}, \"page\": \"64K\"}", NULL },
	{ "{\"controller\": {\"dwell-ms\": []}}", "dwell-ms" },
	{ "{\"controller\": {\"dwell-ms=5,mode\": \"auto\"}}", "no knob" },
	{ "{\"policy\": \"greedy\"}", "greedy" },
	{ "{\"pool\": -1}", "pool" },
	{ "{\"pool\": true}", "pool" },
	{ "{\"pool\": \"1G\", \"pool\": \"2G\"}", "duplicate" },
};

/* A section has its own device's values; others are those of the whole file. */
static void test_sections(void **state)
{
	static const char text[] =
		"{\"devices\": [{\"device\": 1, \"pool\": \"2G\"}, {\"device\": 0}],"
		" \"page\": \"64K\"}";
	char path[] = "/tmp/mmd-config-XXXXXX", error[MM_CONFIG_ERROR_BYTES] = "";
	char *argv[MM_CONFIG_ARGS_MAX];
	struct mm_config config = { 0 }, again = { 0 };
	int argc = 0, fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
	assert_int_equal(parse((const char *[]){ "--config", path, NULL }, &config, error),
			 MM_OPT_RUN);
	/* The settings of the sections are passed on as well. */
	assert_int_equal(mm_config_args(&config, MM_ROLE_CORE, argv), 0);
	while (argv[argc])
		argc++;
	assert_int_equal(parse_words(argc, argv, &again, error), MM_OPT_RUN);
	assert_int_equal(mm_config_devices(&again), 2);
	assert_int_equal(mm_config_at(&again.device, 0), 1);
	assert_int_equal(mm_config_at(&again.device, 1), 0);
	assert_int_equal(mm_config_at(&again.pool_bytes, 0), UINT64_C(2) << 30);
	assert_int_equal(mm_config_at(&again.pool_bytes, 1), 0);
	assert_int_equal(mm_config_at(&again.page_bytes, 1), 65536);
	assert_true(mm_config_at(&again.headroom_bytes, 1) == MM_HEADROOM_BY_DEVICE);
	mm_config_args_free(argv);
	close(fd);
	unlink(path);
}

static void test_files(void **state)
{
	char path[] = "/tmp/mmd-config-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(files); i++) {
		const char *const words[] = { "--pool", "1G", "--config", path, NULL };
		char error[MM_CONFIG_ERROR_BYTES] = "";
		struct mm_config config = { 0 };
		size_t n = strlen(files[i].text);
		int r;

		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, files[i].text, n, 0), n);
		r = parse(words, &config, error);
		if (!files[i].names) {
			assert_int_equal(r, MM_OPT_RUN);
			assert_int_equal(mm_config_at(&config.pool_bytes, 0),
					 UINT64_C(1) << 30); /* the flag takes precedence */
			assert_int_equal(mm_config_at(&config.page_bytes, 0), 65536);
			continue;
		}
		assert_int_equal(r, -EINVAL);
		assert_non_null(strstr(error, files[i].names));
		assert_non_null(strstr(error, path));
	}
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_accepted), cmocka_unit_test(test_handed_on),
		cmocka_unit_test(test_files),    cmocka_unit_test(test_devices),
		cmocka_unit_test(test_sections), cmocka_unit_test(test_headroom),
	};

	setenv("XDG_RUNTIME_DIR", "/tmp", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
