/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number - whole numbers as people write them in files and settings: digits, and nothing else
 *
 * Concept:   strtoul() takes white space, signs and what is too large as well, which every caller
 *            had to refuse by hand. Limits are the caller's, whose sentence names them.
 * Threading: any thread; errno may change.
 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/**
 * mm_number_begin() - parse the digits with which a text begins
 * @text:       decimal
 * @ret_number: written only on success
 * @ret_end:    the first character behind the digits; written only on success
 *
 * Return: 0; -EINVAL it does not begin with a digit; -ERANGE more than 64 bits.
 */
static inline int mm_number_begin(const char *text, uint64_t *ret_number, const char **ret_end)
{
	uint64_t number;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	*ret_number = number;
	*ret_end = end;
	return 0;
}

/* The same for a whole text; -EINVAL also where more follows. */
static inline int mm_number_parse(const char *text, uint64_t *ret_number)
{
	const char *end = text;
	uint64_t number = 0;
	int r = mm_number_begin(text, &number, &end);

	if (r)
		return r;
	if (*end)
		return -EINVAL;
	*ret_number = number;
	return 0;
}
