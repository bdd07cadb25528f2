/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "libclient/base/base.h"
#include "libclient/base/dtype.h"
#include "libclient/support/cleanup.h"
#include "libclient/model/safetensors.h"

#define T(dtype, shape, begin, end) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

/* Each case has one thing wrong; @needle is what the sentence must name. Data: 24 bytes. */
static const struct {
	const char *what;
	const char *json;
	int want;
	const char *needle;
} cases[] = {
	{ "one tensor", "{\"a\":" T("F32", "[2,3]", 0, 24) "}", 0, NULL },
	{ "padding", "{\"a\":" T("F32", "[2,3]", 0, 24) "}    ", 0, NULL },
	{ "two out of order",
	  "{\"b\":" T("F16", "[4]", 16, 24) ",\"a\":" T("BF16", "[2,2,2]", 0, 16) "}", 0, NULL },
	{ "metadata", "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" T("F32", "[6]", 0, 24) "}", 0,
	  NULL },
	{ "scalar", "{\"s\":" T("F32", "[]", 0, 4) ",\"a\":" T("F32", "[5]", 4, 24) "}", 0, NULL },
	{ "empty tensor", "{\"e\":" T("F32", "[0,7]", 24, 24) ",\"a\":" T("F32", "[6]", 0, 24) "}",
	  0, NULL },
	{ "empty header", "", -EBADMSG, "{" },
	{ "array", "[1]", -EBADMSG, "object" },
	{ "leading space", " {}", -EBADMSG, "begin" },
	{ "broken JSON", "{\"a\":", -EBADMSG, "JSON" },
	{ "garbage behind", "{}x", -EBADMSG, "JSON" },
	{ "duplicate", "{\"a\":" T("F32", "[6]", 0, 24) ",\"a\":" T("F32", "[6]", 0, 24) "}",
	  -EBADMSG, "duplicate" },
	{ "nothing named", "{}", -EBADMSG, "24 bytes" },
	{ "metadata is no object", "{\"__metadata__\":3,\"a\":" T("F32", "[6]", 0, 24) "}",
	  -EBADMSG, "__metadata__" },
	{ "metadata holds a number",
	  "{\"__metadata__\":{\"k\":3},\"a\":" T("F32", "[6]", 0, 24) "}", -EBADMSG, "k" },
	{ "entry is no object", "{\"a\":7}", -EBADMSG, "tensor a" },
	{ "empty name", "{\"\":" T("F32", "[6]", 0, 24) "}", -EBADMSG, "empty name" },
	{ "no dtype", "{\"a\":{\"shape\":[6],\"data_offsets\":[0,24]}}", -EBADMSG, "dtype" },
	{ "dtype is a number", "{\"a\":{\"dtype\":1,\"shape\":[6],\"data_offsets\":[0,24]}}",
	  -EBADMSG, "dtype" },
	{ "unknown dtype", "{\"a\":" T("I65", "[3]", 0, 24) "}", -ENOTSUP, "I65" },
	{ "half a byte too many", "{\"a\":" T("F4", "[7,7]", 0, 24) "}", -EBADMSG,
	  "elements of 4 bits" },
	{ "no shape", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,24]}}", -EBADMSG, "shape" },
	{ "shape is a string", "{\"a\":" T("F32", "\"6\"", 0, 24) "}", -EBADMSG, "shape" },
	{ "negative dimension", "{\"a\":" T("F32", "[-6]", 0, 24) "}", -EBADMSG, "shape[0]" },
	{ "float dimension", "{\"a\":" T("F32", "[1,6.0]", 0, 24) "}", -EBADMSG, "shape[1]" },
	{ "dimension over 63 bits", "{\"a\":" T("F32", "[9223372036854775808]", 0, 24) "}",
	  -EBADMSG, "JSON" },
	{ "shape overflows", "{\"a\":" T("F32", "[4294967296,4294967296]", 0, 24) "}", -EBADMSG,
	  "overflow" },
	{ "item size overflows", "{\"a\":" T("F32", "[4611686018427387904]", 0, 24) "}", -EBADMSG,
	  "overflow" },
	{ "rank 5", "{\"a\":" T("F32", "[1,1,1,1,6]", 0, 24) "}", -ENOTSUP, "rank 5" },
	{ "no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[6]}}", -EBADMSG, "data_offsets" },
	{ "one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24]}}", -EBADMSG,
	  "data_offsets" },
	{ "three offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24,24]}}",
	  -EBADMSG, "data_offsets" },
	{ "negative offset", "{\"a\":" T("F32", "[6]", -4, 20) "}", -EBADMSG, "data_offsets" },
	{ "float offset", "{\"a\":" T("F32", "[6]", 0, 24.0) "}", -EBADMSG, "data_offsets" },
	{ "reversed", "{\"a\":" T("F32", "[6]", 24, 0) "}", -EBADMSG, "reversed" },
	{ "out of bounds", "{\"a\":" T("F32", "[7]", 0, 28) "}", -EBADMSG, "ends at byte 28" },
	{ "far out of bounds",
	  "{\"a\":" T("F32", "[1]", 9223372036854775800, 9223372036854775804) "}", -EBADMSG,
	  "ends at byte" },
	{ "too few bytes", "{\"a\":" T("F32", "[7]", 0, 24) "}", -EBADMSG, "28 bytes" },
	{ "too many bytes", "{\"a\":" T("F32", "[5]", 0, 24) "}", -EBADMSG, "20 bytes" },
	{ "overlap", "{\"a\":" T("F32", "[4]", 0, 16) ",\"b\":" T("F32", "[3]", 12, 24) "}",
	  -EBADMSG, "overlaps" },
	{ "same bytes twice", "{\"a\":" T("F32", "[6]", 0, 24) ",\"b\":" T("F32", "[6]", 0, 24) "}",
	  -EBADMSG, "overlaps" },
	{ "hole in front", "{\"a\":" T("F32", "[5]", 4, 24) "}", -EBADMSG, "hole of 4" },
	{ "hole between", "{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[3]", 12, 24) "}",
	  -EBADMSG, "hole of 4" },
	{ "hole at the end", "{\"a\":" T("F32", "[5]", 0, 20) "}", -EBADMSG, "4 bytes after" },
	{ "name of 120 bytes",
	  "{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":" T("F32", "[6]", 0,
									      24) "}",
	  -ENOTSUP, "120 bytes" },
	{ "control characters are not echoed", "{\"a\\n\\u001bb\":7}", -EBADMSG, "tensor a??b" },
	{ "NUL in a name", "{\"a\\u0000b\":7}", -EBADMSG, "JSON" },
};

static void test_headers(void **state)
{
	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(cases); i++) {
		struct mm_safetensors st = { 0 };
		size_t bytes = strlen(cases[i].json);
		char err[200] = "";
		int r = mm_safetensors_parse(cases[i].json, bytes, 8 + bytes, 8 + bytes + 24, &st,
					     err, sizeof(err));

		if (r != cases[i].want)
			fail_msg("%s: %d, want %d (%s)", cases[i].what, r, cases[i].want, err);
		if (cases[i].needle && !strstr(err, cases[i].needle))
			fail_msg("%s: '%s' does not say '%s'", cases[i].what, err, cases[i].needle);
		mm_safetensors_done(&st);
	}
}

static void test_fields(void **state)
{
	static const char json[] =
		"{\"b\":" T("F16", "[4]", 16, 24) ",\"a\":" T("BF16", "[2,2,2]", 0, 16) "}";
	struct mm_safetensors st;

	(void)state;
	assert_int_equal(mm_safetensors_parse(json, sizeof(json) - 1, 1000, 1024, &st, NULL, 0), 0);
	assert_int_equal(st.n_tensors, 2);
	assert_string_equal(st.tensors[0].name, "a");
	assert_int_equal(st.tensors[0].dtype, MM_DTYPE_BF16);
	assert_int_equal(st.tensors[0].rank, 3);
	assert_int_equal(st.tensors[0].shape[2], 2);
	assert_int_equal(st.tensors[0].file_offset, 1000);
	assert_int_equal(st.tensors[0].bytes, 16);
	assert_string_equal(st.tensors[1].name, "b");
	assert_int_equal(st.tensors[1].file_offset, 1016);
	assert_int_equal(st.tensors[1].shape[0], 4);
	mm_safetensors_done(&st);
}

/* Engines bring weights of any type: quantised ones, their scales, indexes. */
static void test_every_dtype(void **state)
{
	static const struct {
		const char *name;
		uint32_t dtype, elements; /* of 24 bytes */
	} types[] = {
		{ "F64", MM_DTYPE_F64, 3 },          { "F32", MM_DTYPE_F32, 6 },
		{ "F16", MM_DTYPE_F16, 12 },         { "BF16", MM_DTYPE_BF16, 12 },
		{ "F8_E4M3", MM_DTYPE_F8_E4M3, 24 }, { "F8_E5M2", MM_DTYPE_F8_E5M2, 24 },
		{ "F8_E8M0", MM_DTYPE_F8_E8M0, 24 }, { "F6_E2M3", MM_DTYPE_F6_E2M3, 32 },
		{ "F6_E3M2", MM_DTYPE_F6_E3M2, 32 }, { "F4", MM_DTYPE_F4, 48 },
		{ "I8", MM_DTYPE_I8, 24 },           { "U8", MM_DTYPE_U8, 24 },
		{ "I16", MM_DTYPE_I16, 12 },         { "U16", MM_DTYPE_U16, 12 },
		{ "I32", MM_DTYPE_I32, 6 },          { "U32", MM_DTYPE_U32, 6 },
		{ "I64", MM_DTYPE_I64, 3 },          { "U64", MM_DTYPE_U64, 3 },
		{ "BOOL", MM_DTYPE_BOOL, 24 },       { "C64", MM_DTYPE_C64, 3 },
	};

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(types); i++) {
		struct mm_safetensors st = { 0 };
		char json[128], err[200] = "";

		snprintf(json, sizeof(json),
			 "{\"a\":{\"dtype\":\"%s\",\"shape\":[%u],\"data_offsets\":[0,24]}}",
			 types[i].name, types[i].elements);
		if (mm_safetensors_parse(json, strlen(json), 100, 124, &st, err, sizeof(err)))
			fail_msg("%s: %s", types[i].name, err);
		assert_int_equal(st.tensors[0].dtype, types[i].dtype);
		assert_int_equal(st.tensors[0].bytes, 24);
		assert_string_equal(mm_dtype_name(types[i].dtype), types[i].name);
		mm_safetensors_done(&st);
	}
	assert_int_equal(mm_dtype_bits(0), 0);
	assert_int_equal(mm_dtype_bits(MM_DTYPE_C64 + 1), 0);
	assert_int_equal(mm_dtype_find("F8"), 0);
}

/* Files with a wrong length field, or that end too early. */
static const struct {
	const char *what;
	uint64_t header_bytes; /* length that the file states; 0: the true one */
	size_t file_bytes;     /* bytes that the file is cut to; 0: whole */
	int want;
	const char *needle;
} files[] = {
	{ "whole", 0, 0, 0, NULL },
	{ "empty", 0, SIZE_MAX, -EBADMSG, "0 bytes" },
	{ "7 bytes", 0, 7, -EBADMSG, "7 bytes" },
	{ "length only", 0, 8, -EBADMSG, "truncated" },
	{ "cut in the header", 0, 20, -EBADMSG, "truncated" },
	{ "cut in the data", 0, 80, -EBADMSG, "ends at byte" },
	{ "header longer than the file", 5000, 0, -EBADMSG, "truncated" },
	{ "header over 100 MB", 100000001, 0, -EBADMSG, "at most" },
	{ "header of 2^64 - 1", UINT64_MAX, 0, -EBADMSG, "at most" },
	{ "header too short", 10, 0, -EBADMSG, "JSON" },
};

static void test_files(void **state)
{
	static const char json[] = "{\"a\":" T("F32", "[6]", 0, 24) "}";

	(void)state;
	for (size_t i = 0; i < MM_ARRAY_SIZE(files); i++) {
		uint64_t header = files[i].header_bytes ? files[i].header_bytes : sizeof(json) - 1;
		size_t cut = files[i].file_bytes ? files[i].file_bytes : 8 + sizeof(json) - 1 + 24;
		mm_cleanup(mm_close_fd) int fd = memfd_create("st", MFD_CLOEXEC);
		struct mm_safetensors st = { 0 };
		char err[200] = "";
		int r;

		assert_true(fd >= 0);
		assert_int_equal(pwrite(fd, &header, 8, 0), 8);
		assert_int_equal(pwrite(fd, json, sizeof(json) - 1, 8), sizeof(json) - 1);
		assert_int_equal(ftruncate(fd, cut == SIZE_MAX ? 0 : (off_t)cut), 0);
		r = mm_safetensors_read(fd, &st, err, sizeof(err));
		if (r != files[i].want)
			fail_msg("%s: %d, want %d (%s)", files[i].what, r, files[i].want, err);
		if (files[i].needle && !strstr(err, files[i].needle))
			fail_msg("%s: '%s' does not say '%s'", files[i].what, err, files[i].needle);
		mm_safetensors_done(&st);
	}
}

static void test_too_many_tensors(void **state)
{
	size_t bytes = 0, room = (size_t)(MM_TENSORS_MAX + 2) * 80;
	char *json = malloc(room);
	struct mm_safetensors st = { 0 };
	char err[200];

	(void)state;
	assert_non_null(json);
	json[bytes++] = '{';
	for (int i = 0; i <= MM_TENSORS_MAX; i++)
		bytes += (size_t)snprintf(
			json + bytes, room - bytes,
			"%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
			i ? "," : "", i);
	json[bytes++] = '}';
	assert_int_equal(mm_safetensors_parse(json, bytes, bytes, bytes, &st, err, sizeof(err)),
			 -ENOTSUP);
	assert_non_null(strstr(err, "65537 tensors"));
	free(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers),          cmocka_unit_test(test_fields),
		cmocka_unit_test(test_every_dtype),      cmocka_unit_test(test_files),
		cmocka_unit_test(test_too_many_tensors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
