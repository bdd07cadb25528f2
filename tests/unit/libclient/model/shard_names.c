/* SPDX-License-Identifier: Apache-2.0 */
/* The files that libclient opens for an index of shards. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "libclient/model/shard_names.h"
#include "libclient/base/base.h"

#define MAP(...) "{\"weight_map\":{" __VA_ARGS__ "}}"

static struct mm_shard_names names;
static char err[200];

static int index_parse(const char *json)
{
	err[0] = 0;
	return mm_shard_names_parse(json, strlen(json), &names, err, sizeof(err));
}

static void test_names(void **state)
{
	(void)state;
	assert_int_equal(index_parse(MAP("\"x\":\"b.safetensors\",\"y\":\"c.safetensors\","
					 "\"z\":\"a.safetensors\",\"u\":\"b.safetensors\"")),
			 0);
	assert_int_equal(names.n, 3);
	assert_string_equal(names.name[0], "a.safetensors");
	assert_string_equal(names.name[1], "b.safetensors");
	assert_string_equal(names.name[2], "c.safetensors");
}

static void test_bad(void **state)
{
	static const struct {
		const char *json, *needle;
	} cases[] = {
		{ "", "not valid JSON" },
		{ "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}",
		  "duplicate" },
		{ "[]", "no weight_map" },
		{ "{\"weight_map\":7}", "no weight_map" },
		{ MAP(), "names no file" },
		{ MAP("\"x\":null"), "tensor x" },
		{ MAP("\"x\":\"config.json\""), "tensor x" },
		{ MAP("\"x\":\".safetensors\""), "tensor x" },
		{ MAP("\"x\":\"../a.safetensors\""), "without a path" },
		{ MAP("\"x\":\"/dev/a.safetensors\""), "without a path" },
		{ MAP("\"x\":\"a\\u0001.safetensors\""), "tensor x" },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++)
		if (index_parse(cases[i].json) != -EBADMSG || !strstr(err, cases[i].needle))
			fail_msg("%s: '%s'", cases[i].json, err);
}

/* An index of @n tensors, each in a file of its own. */
static int parse_many(unsigned int n)
{
	static char json[65536];
	size_t at = (size_t)snprintf(json, sizeof(json), "{\"weight_map\":{");

	for (unsigned int i = 0; i < n; i++)
		at += (size_t)snprintf(json + at, sizeof(json) - at,
				       "%s\"t%u\":\"f%03u.safetensors\"", i ? "," : "", i,
				       (i * 7) % n);
	snprintf(json + at, sizeof(json) - at, "}}");
	return index_parse(json);
}

static void test_many(void **state)
{
	(void)state;
	assert_int_equal(parse_many(MM_LOAD_FILES_MAX), 0);
	assert_int_equal(names.n, MM_LOAD_FILES_MAX);
	for (size_t i = 1; i < names.n; i++)
		assert_true(strcmp(names.name[i - 1], names.name[i]) < 0);
	assert_int_equal(parse_many(MM_LOAD_FILES_MAX + 1), -E2BIG);
}

static void test_file(void **state)
{
	static const char text[] = MAP("\"x\":\"b.safetensors\"");
	int fd = memfd_create("index", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(mm_shard_names_read(fd, &names, err, sizeof(err)), 0);
	assert_int_equal(names.n, 1);
	assert_int_equal(ftruncate(fd, (16 << 20) + 1), 0);
	assert_int_equal(mm_shard_names_read(fd, &names, err, sizeof(err)), -EFBIG);
	assert_non_null(strstr(err, "16 MiB"));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
