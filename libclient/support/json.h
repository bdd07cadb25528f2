/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json - reading, making and printing JSON, over jansson
 *
 * Concept:   Three ways to read a member, by who wrote it. Answers of our own programs are read by
 *            mm_json_u64() and its like, which take what is missing as 0, "" or false. A value that
 *            anybody may have written is checked by mm_json_is_whole(), and the caller has its own
 *            sentence. A file for people is read by a struct mm_json_reader, which says in one
 *            sentence which member must be what, and keeps the first failure, so that a caller
 *            reads all members and looks once.
 * Ownership: as jansson has it; functions that take a value over do so also when they fail.
 * Threading: any; a value is used by one thread at a time.
 * Limits:    jansson refuses what is nested more than 2048 deep. Numbers above INT64_MAX do not
 *            exist in it: they are put as INT64_MAX.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/base/base.h"

/* For mm_cleanup(): gives a reference back, and leaves NULL. */
static inline void mm_json_done(json_t **json)
{
	json_decref(*json);
	*json = NULL;
}

/* Takes the reference out of a variable that mm_json_done() cleans up. */
static inline json_t *mm_json_take(json_t **json)
{
	json_t *taken = *json;

	*json = NULL;
	return taken;
}

/* ---- members of what our own programs wrote ---- */

/* A number above 0; 0: the member is missing or is none. */
uint64_t mm_json_u64(const json_t *object, const char *key);
/* A number; 0: the member is missing or is none. */
double mm_json_real(const json_t *object, const char *key);
/* A string; "": the member is missing or is none. It lives as long as @object. */
const char *mm_json_text(const json_t *object, const char *key);
/* Whether the member is there and true. */
bool mm_json_flag(const json_t *object, const char *key);

/* ---- values that anybody may have written ---- */

/* Whether the member is there and not null. */
bool mm_json_has(const json_t *object, const char *key);

/**
 * mm_json_is_whole() - whether a value is a whole number within limits
 * @value:     may be NULL, which is none
 * @min, @max: the limits, both allowed
 * @ret_value: written only if it is; may be NULL
 */
bool mm_json_is_whole(const json_t *value, uint64_t min, uint64_t max, uint64_t *ret_value);

/* ---- files for people ---- */

/* The caller's; error is 0, or negative errno of the first failure, whose sentence @err has. */
struct mm_json_reader {
	const char *path; /* begins each sentence */
	char *err;
	size_t err_bytes;
	int error;
};

/* Notes a failure, unless one is noted already. Return: the error that is noted. */
int mm_json_fail(struct mm_json_reader *reader, int error, const char *format, ...) MM_PRINTF(3, 4);

/*
 * A whole number of @min..@max. Return: the number; @min: failed. With _or a member that is missing
 * or null stands for @fallback, and is no failure.
 */
uint64_t mm_json_read_whole(struct mm_json_reader *reader, const json_t *object, const char *key,
			    uint64_t min, uint64_t max);
uint64_t mm_json_read_whole_or(struct mm_json_reader *reader, const json_t *object, const char *key,
			       uint64_t min, uint64_t max, uint64_t fallback);
/* true or false, or @fallback, also after a failure. */
bool mm_json_read_flag(struct mm_json_reader *reader, const json_t *object, const char *key);
bool mm_json_read_flag_or(struct mm_json_reader *reader, const json_t *object, const char *key,
			  bool fallback);

/**
 * mm_json_parse() - parse a text of which nothing is known
 * @bytes:    of @text, which need not be terminated
 * @ret_root: an object or an array without duplicate keys; written only on success
 * @err:      gets "not valid JSON in line N: ..." or "out of memory"
 *
 * Return: 0; -EBADMSG; -ENOMEM.
 */
int mm_json_parse(const char *text, size_t bytes, json_t **ret_root, char *err, size_t err_bytes);

/**
 * mm_json_read_file() - parse a file
 * @reader:   has the path; gets "PATH: ..." why it cannot be read, or "PATH: line N: ..."
 * @ret_root: as of mm_json_parse()
 *
 * Return: 0 or reader->error.
 */
int mm_json_read_file(struct mm_json_reader *reader, json_t **ret_root);

/* ---- making ---- */

/*
 * Makes a string. Where the text is not UTF-8, because it was cut within a character or somebody
 * named a process so, each byte outside ASCII becomes '?'. Return: NULL: no memory, or no @text.
 */
json_t *mm_json_string(const char *text);

/* Sets a member. @value is taken over; NULL fails. Return: 0; -ENOMEM. So do the next five. */
int mm_json_put(json_t *object, const char *key, json_t *value);

/*
 * Return: whether one of these has failed, in this thread, since it was last asked. So whoever
 * makes an object of many members need not look at each.
 */
bool mm_json_has_lost(void);
int mm_json_put_u64(json_t *object, const char *key, uint64_t value);
int mm_json_put_real(json_t *object, const char *key, double value);
int mm_json_put_text(json_t *object, const char *key, const char *text);
int mm_json_put_flag(json_t *object, const char *key, bool value);
/* Sets a number, or null if it is not @known. */
int mm_json_put_known(json_t *object, const char *key, bool known, uint64_t value);

/**
 * mm_json_print() - write a value and the end of its line to stdout, and flush it
 * @json:  NULL: its making failed for lack of memory
 * @flags: jansson's, such as JSON_COMPACT
 *
 * Return: 0; -ENOMEM; another negative errno: stdout takes no more.
 */
int mm_json_print(const json_t *json, size_t flags);
