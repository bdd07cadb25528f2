/* SPDX-License-Identifier: Apache-2.0 */
/* An index of shards is compared with the tensors of the shards. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/model/index.h"

#define NAME     "model.safetensors.index.json"
#define MAP(...) "{\"weight_map\":{" __VA_ARGS__ "}}"
#define A1       "\"a.one\":\"s-1.safetensors\""
#define A2       "\"a.two\":\"s-1.safetensors\""
#define B        "\"b\":\"s-2.safetensors\""

static struct mm_st_tensor first[] = { { .name = "a.one" }, { .name = "a.two" } };
static struct mm_st_tensor second[] = { { .name = "b" } };
static struct mm_st_tensor twice[] = { { .name = "a.two" }, { .name = "b" } };

static const char *const names[] = { "s-1.safetensors", "s-2.safetensors", "s-3.safetensors" };

static const struct mm_safetensors good[] = { { first, 2, 0 }, { second, 1, 0 } };
static const struct mm_safetensors doubled[] = { { first, 2, 0 }, { twice, 2, 0 } };
static const struct mm_safetensors more[] = { { first, 2, 0 }, { second, 1, 0 }, { NULL, 0, 0 } };

static const struct {
	const char *json;
	const struct mm_safetensors *st;
	size_t n;
	const char *needle; /* NULL: the index is right */
} cases[] = {
	{ MAP(A1 "," A2 "," B), good, 2, NULL },
	{ "{\"metadata\":{\"total_size\":7},\"x\":[],\"weight_map\":{" B "," A1 "," A2 "}}", good,
	  2, NULL },
	{ "{\"metadata\":{\"total_size\":7e9},\"weight_map\":{" B "," A1 "," A2 "}}", good, 2,
	  NULL },
	{ "{\"metadata\":{},\"weight_map\":{" B "," A1 "," A2 "}}", good, 2, NULL },
	{ "", good, 2, "not valid JSON" },
	{ "{", good, 2, "not valid JSON" },
	{ "[]", good, 2, "no weight_map" },
	{ "{}", good, 2, "no weight_map" },
	{ "{\"weight_map\":[]}", good, 2, "no weight_map" },
	{ MAP(A1 "," A1), good, 2, "duplicate" },
	{ "{\"metadata\":7,\"weight_map\":{}}", good, 2, "metadata" },
	{ "{\"metadata\":{\"total_size\":\"7\"},\"weight_map\":{}}", good, 2, "total_size" },
	{ MAP("\"a\":7"), good, 2, "not the name of a file" },
	{ MAP("\"a\":\"\""), good, 2, "not the name of a file" },
	{ MAP("\"a\":\"..\""), good, 2, "not the name of a file" },
	{ MAP("\"a\":\"../s-1.safetensors\""), good, 2, "without a path" },
	{ MAP("\"a\":\"/s-1.safetensors\""), good, 2, "without a path" },
	{ MAP("\"a\":\"s\\n\""), good, 2, "not the name of a file" },
	{ MAP(A1 "," A2 "," B), good, 1, "s-2.safetensors, which was not passed" },
	{ MAP(A1 "," A2 "," B ",\"c\":\"s-1.safetensors\""), good, 2, "has no tensor c" },
	{ MAP("\"a.one\":\"s-2.safetensors\"," A2 "," B), good, 2, "has no tensor a.one" },
	{ MAP(A1 "," B), good, 2, "tensor a.two is not in" },
	{ MAP(A1 "," A2 "," B), doubled, 2, "tensor a.two is in s-1.safetensors too" },
	{ MAP(A1 "," A2), good, 2, "s-2.safetensors: is not in" },
	{ MAP(A1 "," A2 "," B), more, 3, "s-3.safetensors: is not in" },
	{ MAP(), good, 2, "s-1.safetensors: is not in" },
};

static void test_cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		const struct mm_shards shards = { cases[i].st, names, cases[i].n };
		struct mm_why why = { "" };
		int r = mm_index_check(cases[i].json, strlen(cases[i].json), NAME, &shards, &why);

		if (r != (cases[i].needle ? -EBADMSG : 0) ||
		    !strstr(why.text, cases[i].needle ? cases[i].needle : ""))
			fail_msg("%s: %d '%s'", cases[i].json, r, why.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_cases) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
