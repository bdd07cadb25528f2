/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/support/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libclient/support/cleanup.h"

/* ---- members of what our own programs wrote ---- */

uint64_t mm_json_u64(const json_t *object, const char *key)
{
	const json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

double mm_json_real(const json_t *object, const char *key)
{
	return json_number_value(json_object_get(object, key));
}

const char *mm_json_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

bool mm_json_flag(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

/* ---- values that anybody may have written ---- */

bool mm_json_has(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return value && !json_is_null(value);
}

bool mm_json_is_whole(const json_t *value, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	const json_int_t number = json_integer_value(value);

	if (!json_is_integer(value) || number < 0 || (uint64_t)number < min ||
	    (uint64_t)number > max)
		return false;
	if (ret_value)
		*ret_value = (uint64_t)number;
	return true;
}

/* ---- files for people ---- */

int mm_json_fail(struct mm_json_reader *reader, int error, const char *format, ...)
{
	va_list args;
	int n;

	if (reader->error)
		return reader->error;
	reader->error = error;
	n = snprintf(reader->err, reader->err_bytes, "%.4000s: ", reader->path);
	if (n < 0 || (size_t)n >= reader->err_bytes)
		return error;
	va_start(args, format);
	vsnprintf(reader->err + n, reader->err_bytes - (size_t)n, format, args);
	va_end(args);
	return error;
}

/* Returns the member; NULL, which is a failure: it is missing. */
static const json_t *member_read(struct mm_json_reader *reader, const json_t *object,
				 const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!value)
		mm_json_fail(reader, -EBADMSG, "%s is missing", key);
	return value;
}

uint64_t mm_json_read_whole(struct mm_json_reader *reader, const json_t *object, const char *key,
			    uint64_t min, uint64_t max)
{
	const json_t *value = member_read(reader, object, key);
	uint64_t number = min;

	if (value && !mm_json_is_whole(value, min, max, &number))
		mm_json_fail(reader, -EBADMSG, "%s must be a whole number from %llu to %llu", key,
			     (unsigned long long)min, (unsigned long long)max);
	return number;
}

uint64_t mm_json_read_whole_or(struct mm_json_reader *reader, const json_t *object, const char *key,
			       uint64_t min, uint64_t max, uint64_t fallback)
{
	return mm_json_has(object, key) ? mm_json_read_whole(reader, object, key, min, max)
					: fallback;
}

bool mm_json_read_flag(struct mm_json_reader *reader, const json_t *object, const char *key)
{
	const json_t *value = member_read(reader, object, key);

	if (value && !json_is_boolean(value))
		mm_json_fail(reader, -EBADMSG, "%s must be true or false", key);
	return json_is_true(value);
}

bool mm_json_read_flag_or(struct mm_json_reader *reader, const json_t *object, const char *key,
			  bool fallback)
{
	return mm_json_has(object, key) ? mm_json_read_flag(reader, object, key) : fallback;
}

int mm_json_parse(const char *text, size_t bytes, json_t **ret_root, char *err, size_t err_bytes)
{
	json_error_t where;
	json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);

	if (root) {
		*ret_root = root;
		return 0;
	}
	if (json_error_code(&where) == json_error_out_of_memory) {
		snprintf(err, err_bytes, "out of memory");
		return -ENOMEM;
	}
	snprintf(err, err_bytes, "not valid JSON in line %d: %s", where.line, where.text);
	return -EBADMSG;
}

int mm_json_read_file(struct mm_json_reader *reader, json_t **ret_root)
{
	mm_cleanup(mm_close_file) FILE *file = fopen(reader->path, "rbe");
	json_error_t where;
	json_t *root;
	int error;

	if (!file)
		return mm_json_fail(reader, -errno, "%s", strerror(errno));
	errno = 0;
	root = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
	error = ferror(file) && errno ? errno : 0;
	if (root) {
		*ret_root = root;
		return 0;
	}
	if (error)
		return mm_json_fail(reader, -error, "%s", strerror(error));
	if (json_error_code(&where) == json_error_out_of_memory)
		return mm_json_fail(reader, -ENOMEM, "out of memory");
	return mm_json_fail(reader, -EBADMSG, "line %d: %s", where.line, where.text);
}

/* ---- making ---- */

json_t *mm_json_string(const char *text)
{
	mm_cleanup(mm_free_ptr) char *ascii = NULL;
	json_t *whole = json_string(text);

	if (whole || !text)
		return whole;
	ascii = strdup(text);
	for (char *c = ascii; c && *c; c++) {
		if (*c & 0x80)
			*c = '?';
	}
	return json_string(ascii);
}

static _Thread_local bool json_lost;

bool mm_json_has_lost(void)
{
	bool lost = json_lost;

	json_lost = false;
	return lost;
}

int mm_json_put(json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) == 0)
		return 0;
	json_lost = true;
	return -ENOMEM;
}

int mm_json_put_u64(json_t *object, const char *key, uint64_t value)
{
	return mm_json_put(object, key, json_integer((json_int_t)MM_MIN(value, INT64_MAX)));
}

int mm_json_put_real(json_t *object, const char *key, double value)
{
	return mm_json_put(object, key, json_real(value));
}

int mm_json_put_text(json_t *object, const char *key, const char *text)
{
	return mm_json_put(object, key, mm_json_string(text));
}

int mm_json_put_flag(json_t *object, const char *key, bool value)
{
	return mm_json_put(object, key, json_boolean(value));
}

int mm_json_put_known(json_t *object, const char *key, bool known, uint64_t value)
{
	return known ? mm_json_put_u64(object, key, value) : mm_json_put(object, key, json_null());
}

int mm_json_print(const json_t *json, size_t flags)
{
	if (!json)
		return -ENOMEM;
	errno = 0;
	if (json_dumpf(json, stdout, flags) == 0 && putchar('\n') != EOF && fflush(stdout) == 0)
		return 0;
	/* jansson fails without a word also for lack of memory. */
	return ferror(stdout) && errno ? -errno : -ENOMEM;
}
