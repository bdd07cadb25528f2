/* SPDX-License-Identifier: Apache-2.0 */
/* Getters against each type of value, sentences of files, printing to a full device. */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/support/json.h"

#define OBJECT                                                                           \
	"{\"zero\":0,\"whole\":7,\"below\":-7,\"real\":1.5,\"text\":\"x\",\"yes\":true," \
	"\"no\":false,\"null\":null,\"list\":[1],\"most\":9223372036854775807}"

static json_t *object_make(void)
{
	json_t *object = json_loads(OBJECT, 0, NULL);

	assert_non_null(object);
	return object;
}

static void test_own_answers(void **state)
{
	static const char *const others[] = {
		"below", "real", "text", "yes", "null", "list", "none"
	};
	mm_cleanup(mm_json_done) json_t *o = object_make();

	(void)state;
	assert_int_equal(mm_json_u64(o, "whole"), 7);
	assert_true(mm_json_u64(o, "most") == INT64_MAX);
	for (size_t i = 0; i < MM_ARRAY_SIZE(others); i++)
		assert_int_equal(mm_json_u64(o, others[i]), 0);
	assert_true(mm_json_real(o, "real") > 1.49 && mm_json_real(o, "real") < 1.51);
	assert_true(mm_json_real(o, "whole") > 6.9);
	assert_true(mm_json_real(o, "text") == 0 && mm_json_real(o, "none") == 0);
	assert_string_equal(mm_json_text(o, "text"), "x");
	assert_string_equal(mm_json_text(o, "whole"), "");
	assert_string_equal(mm_json_text(NULL, "text"), "");
	assert_true(mm_json_flag(o, "yes"));
	assert_false(mm_json_flag(o, "no") || mm_json_flag(o, "whole") || mm_json_flag(o, "none"));
}

static const struct {
	const char *key;
	uint64_t min, max;
	bool want;
} wholes[] = {
	{ "whole", 0, UINT64_MAX, true },
	{ "whole", 7, 7, true },
	{ "whole", 8, 9, false },
	{ "whole", 0, 6, false },
	{ "zero", 0, 0, true },
	{ "zero", 1, 5, false },
	{ "most", 0, INT64_MAX, true },
	{ "most", 0, INT64_MAX - 1, false },
	{ "below", 0, UINT64_MAX, false },
	{ "real", 0, 9, false },
	{ "text", 0, 9, false },
	{ "yes", 0, 9, false },
	{ "null", 0, 9, false },
	{ "list", 0, 9, false },
	{ "none", 0, 9, false },
};

static void test_is_whole(void **state)
{
	mm_cleanup(mm_json_done) json_t *o = object_make();

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(wholes); i++) {
		const json_t *value = json_object_get(o, wholes[i].key);
		uint64_t number = 12345;

		assert_int_equal(mm_json_is_whole(value, wholes[i].min, wholes[i].max, &number),
				 wholes[i].want);
		assert_int_equal(mm_json_is_whole(value, wholes[i].min, wholes[i].max, NULL),
				 wholes[i].want);
		assert_true(wholes[i].want ? number == mm_json_u64(o, wholes[i].key)
					   : number == 12345);
	}
	assert_true(mm_json_has(o, "no") && mm_json_has(o, "zero"));
	assert_false(mm_json_has(o, "null") || mm_json_has(o, "none") || mm_json_has(NULL, "no"));
}

static void test_sentences(void **state)
{
	mm_cleanup(mm_json_done) json_t *o = object_make();
	char err[64] = "";
	struct mm_json_reader reader = { "f.json", err, sizeof(err), 0 };

	(void)state;
	assert_int_equal(mm_json_read_whole(&reader, o, "whole", 1, 9), 7);
	assert_int_equal(mm_json_read_whole_or(&reader, o, "none", 1, 9, 4), 4);
	assert_int_equal(mm_json_read_whole_or(&reader, o, "null", 1, 9, 4), 4);
	assert_true(mm_json_read_flag(&reader, o, "yes"));
	assert_true(mm_json_read_flag_or(&reader, o, "null", true));
	assert_false(mm_json_read_flag_or(&reader, o, "no", true));
	assert_int_equal(reader.error, 0);
	assert_int_equal(mm_json_read_whole(&reader, o, "none", 3, 9), 3);
	assert_string_equal(err, "f.json: none is missing");
	assert_int_equal(reader.error, -EBADMSG);
	/* The first failure stays. */
	assert_int_equal(mm_json_fail(&reader, -ENOTSUP, "later"), -EBADMSG);
	assert_string_equal(err, "f.json: none is missing");
	reader.error = 0;
	assert_int_equal(mm_json_read_whole_or(&reader, o, "text", 3, 9, 5), 3);
	assert_string_equal(err, "f.json: text must be a whole number from 3 to 9");
	reader.error = 0;
	assert_false(mm_json_read_flag(&reader, o, "whole"));
	assert_string_equal(err, "f.json: whole must be true or false");
	reader = (struct mm_json_reader){ "f.json", err, 12, 0 };
	assert_int_equal(mm_json_fail(&reader, -EIO, "%s", "cut"), -EIO);
	assert_string_equal(err, "f.json: cut");
	reader = (struct mm_json_reader){ "f.json", err, 4, 0 };
	assert_int_equal(mm_json_fail(&reader, -EIO, "%s", "cut"), -EIO);
	assert_string_equal(err, "f.j");
}

static const struct {
	const char *name, *text, *want;
} texts[] = {
	{ "empty", "", "not valid JSON in line 1: " },
	{ "no end", "{\n\"a\":1", "not valid JSON in line 2: " },
	{ "a key twice", "{\"a\":1,\"a\":2}", "not valid JSON in line 1: duplicate" },
	{ "more behind", "{} {}", "not valid JSON in line 1: end of file expected" },
	{ "a number", "1", "not valid JSON in line 1: " },
	{ "not UTF-8", "{\"a\":\"\xff\"}", "not valid JSON in line 1: " },
};

static void test_parse(void **state)
{
	mm_cleanup(mm_json_done) json_t *root = NULL;
	char err[128];

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(texts); i++) {
		print_message("%s\n", texts[i].name);
		assert_int_equal(mm_json_parse(texts[i].text, strlen(texts[i].text), &root, err,
					       sizeof(err)),
				 -EBADMSG);
		assert_null(root);
		assert_memory_equal(err, texts[i].want, strlen(texts[i].want));
	}
	assert_int_equal(mm_json_parse("[1]x", 3, &root, err, sizeof(err)), 0);
	assert_int_equal(json_array_size(root), 1);
}

static void test_read_file(void **state)
{
	mm_cleanup(mm_json_done) json_t *root = NULL;
	char path[64], err[256];
	struct mm_json_reader reader = { path, err, sizeof(err), 0 };
	FILE *file;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/mm-test-json.%d", (int)getpid());
	assert_int_equal(mm_json_read_file(&reader, &root), -ENOENT);
	assert_non_null(strstr(err, ": No such file or directory"));
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs("{\"a\":\n\n[1,]}\n", file) >= 0);
	assert_int_equal(fclose(file), 0);
	reader.error = 0;
	assert_int_equal(mm_json_read_file(&reader, &root), -EBADMSG);
	assert_memory_equal(err, path, strlen(path));
	assert_non_null(strstr(err, ": line 3: "));
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs("{\"a\":1}", file) >= 0);
	assert_int_equal(fclose(file), 0);
	reader.error = 0;
	assert_int_equal(mm_json_read_file(&reader, &root), 0);
	assert_int_equal(mm_json_u64(root, "a"), 1);
	assert_int_equal(unlink(path), 0);
	/* A folder can be opened, but not read. */
	snprintf(path, sizeof(path), "/tmp");
	assert_int_equal(mm_json_read_file(&reader, &root), -EISDIR);
	assert_string_equal(err, "/tmp: Is a directory");
}

static void test_make(void **state)
{
	mm_cleanup(mm_json_done) json_t *o = json_object();
	char *text;

	(void)state;
	assert_int_equal(mm_json_put_u64(o, "most", UINT64_MAX), 0);
	assert_int_equal(mm_json_put_real(o, "real", 0.5), 0);
	assert_int_equal(mm_json_put_text(o, "text", "\xc3\xa4"), 0);
	assert_int_equal(mm_json_put_text(o, "cut", "a\xc3"), 0);
	assert_int_equal(mm_json_put_flag(o, "flag", true), 0);
	assert_int_equal(mm_json_put_known(o, "known", true, 3), 0);
	assert_int_equal(mm_json_put_known(o, "unknown", false, 3), 0);
	assert_int_equal(mm_json_put(o, "nothing", NULL), -ENOMEM);
	assert_int_equal(mm_json_put_text(o, "nothing", NULL), -ENOMEM);
	assert_int_equal(mm_json_put_u64(NULL, "lost", 1), -ENOMEM);
	text = json_dumps(o, JSON_COMPACT);
	assert_string_equal(text,
			    "{\"most\":9223372036854775807,\"real\":0.5,\"text\":\"\xc3\xa4\","
			    "\"cut\":\"a?\",\"flag\":true,\"known\":3,\"unknown\":null}");
	free(text);
}

static void test_print_to_full_device(void **state)
{
	mm_cleanup(mm_json_done) json_t *o = object_make();
	const int out = dup(STDOUT_FILENO);

	(void)state;
	assert_true(out >= 0);
	assert_int_equal(mm_json_print(NULL, 0), -ENOMEM);
	fflush(stdout);
	assert_non_null(freopen("/dev/full", "we", stdout));
	assert_int_equal(mm_json_print(o, JSON_COMPACT), -ENOSPC);
	clearerr(stdout);
	assert_non_null(freopen("/dev/null", "we", stdout));
	assert_int_equal(mm_json_print(o, JSON_COMPACT), 0);
	assert_int_equal(dup2(out, STDOUT_FILENO), STDOUT_FILENO);
	close(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_answers),
		cmocka_unit_test(test_is_whole),
		cmocka_unit_test(test_sentences),
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_read_file),
		cmocka_unit_test(test_make),
		cmocka_unit_test(test_print_to_full_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
