/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a model needs, from its shapes: a small one computed by hand, others compared
 * with their published numbers.
 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/model/measure.h"

/*
 * A layer: 24 x 100 x 2 = 4800 B and, from 4864 on, 2000 B = 6864 B; elsewhere 400 B, 200 B, 2 x
 * 100 B.
 */
#define LAYER "\"layer_tensors\":{\"q.weight\":[24,100],\"r.weight\":[10,100],\"norm.weight\":[50]}"
#define OTHER "\"other_tensors\":{\"embed.weight\":[2,100],\"norm.weight\":[100]}"
#define SMALL "{\"name\":\"small\",\"n_layers\":2," LAYER "," OTHER "}"

static int shapes_measure(const char *text, uint32_t item_bytes, struct mm_layout *ret_layout,
			  struct mm_why *why)
{
	json_error_t where;
	json_t *json = json_loads(text, 0, &where);
	int r;

	if (!json)
		fail_msg("%s: %s", text, where.text);
	r = mm_measure_shapes(json, item_bytes, ret_layout, why);
	json_decref(json);
	return r;
}

static void test_small(void **state)
{
	struct mm_layout layout;
	struct mm_why why;

	(void)state;
	assert_int_equal(shapes_measure(SMALL, 2, &layout, &why), 0);
	assert_int_equal(layout.dir.n_groups, 3);
	assert_int_equal(layout.tensor_bytes, 2 * (4800 + 2000 + 100) + 400 + 200);
	assert_int_equal(layout.groups[1].bytes, 4864 + 2000);
	assert_int_equal(layout.groups[2].bytes, 4864 + 2000);
	/* embed 0 .. 400, the norms of two layers 512 and 768, the last norm 1024 .. 1224 */
	assert_int_equal(layout.groups[0].bytes, 1024 + 200);
	assert_int_equal(mm_measure_pages(&layout, 4096), 1 + 2 + 2);
	assert_int_equal(mm_measure_pages(&layout, 65536), 3);
	assert_int_equal(layout.dir.store_bytes, 4096 + 4096 + 8192 + 8192);
	mm_layout_done(&layout);
	assert_int_equal(shapes_measure(SMALL, 4, &layout, &why), 0);
	assert_int_equal(layout.tensor_bytes, 2 * (2 * (4800 + 2000 + 100) + 400 + 200));
	mm_layout_done(&layout);
}

static const struct {
	const char *json;
	int want;
	const char *needle;
} bad[] = {
	{ "[]", -EBADMSG, "no name" },
	{ "{}", -EBADMSG, "no name" },
	{ "{\"name\":\"\\u001b[2J\"}", -EBADMSG, "printable" },
	{ "{\"name\":\"x\",\"family\":7}", -EBADMSG, "family" },
	{ "{\"name\":\"x\",\"n_layers\":2}", -EBADMSG, "layer_tensors" },
	{ "{\"name\":\"x\"," LAYER "," OTHER "}", -EBADMSG, "n_layers" },
	{ "{\"name\":\"x\",\"n_layers\":0," LAYER "," OTHER "}", -EBADMSG, "n_layers" },
	{ "{\"name\":\"x\",\"n_layers\":1024," LAYER "," OTHER "}", -EBADMSG, "n_layers" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"q\":7}," OTHER "}", -EBADMSG, "q" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"q\":[1,2,3,4,5]}," OTHER "}",
	  -EBADMSG, "q" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"q\":[4,0]}," OTHER "}", -EBADMSG,
	  "dimension 1" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"q\":[4,1.5]}," OTHER "}", -EBADMSG,
	  "dimension 1" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"q\":[4294967296,4294967296]}," OTHER
	  "}",
	  -EBADMSG, "larger than" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"\":[4,4]},\"other_tensors\":{\"\":["
	  "1]}}",
	  -EBADMSG, "1 to 119 bytes" },
	{ "{\"name\":\"x\",\"n_layers\":1,\"layer_tensors\":{\"q\":[4]}," OTHER "}", -EBADMSG,
	  "no matrix" },
};

static void test_bad(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(bad); i++) {
		struct mm_layout layout = { 0 };
		struct mm_why why = { "" };
		int r = shapes_measure(bad[i].json, 2, &layout, &why);

		if (r != bad[i].want || !strstr(why.text, bad[i].needle) || layout.groups)
			fail_msg("%s: %d '%s'", bad[i].json, r, why.text);
	}
}

/* The models of the data folder state their numbers of parameters. */
static void test_known(void **state)
{
	const char *data = getenv("MM_TEST_DATA");
	char path[4096];
	json_t *root, *model;
	json_error_t where;
	size_t i;

	(void)state;
	if (!data) {
		print_message("MM_TEST_DATA is not set\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/models.json", data);
	root = json_load_file(path, 0, &where);
	if (!root)
		fail_msg("%s: %s", path, where.text);
	assert_true(json_array_size(json_object_get(root, "models")) > 0);
	json_array_foreach(json_object_get(root, "models"), i, model) {
		uint64_t want =
			(uint64_t)json_integer_value(json_object_get(model, "weight_bytes_fp16"));
		struct mm_layout layout;
		struct mm_why why;

		if (mm_measure_shapes(model, 2, &layout, &why) < 0)
			fail_msg("%s", why.text);
		assert_int_equal(layout.tensor_bytes, want);
		for (uint64_t page = 2 << 20; page <= 64 << 20; page *= 2) {
			uint64_t bytes = mm_measure_pages(&layout, page) * page;

			assert_true(bytes >= want);
			assert_true(bytes - want < layout.dir.n_groups * (page + 65536));
		}
		mm_layout_done(&layout);
	}
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
