/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/common/words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int mm_words_refuse(const char *command, const char *format, ...)
{
	va_list args;

	fputs("mmbench: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; see mmbench %s --help\n", command);
	return -EINVAL;
}

int mm_words_number(const char *command, const char *name, const char *text, uint64_t least,
		    uint64_t most, uint64_t *ret_number)
{
	unsigned long long number;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text < '0' || *text > '9')
		return mm_words_refuse(command, "--%s '%s' is not a whole number", name, text);
	if (number < least || number > most)
		return mm_words_refuse(command, "--%s %s is not in %" PRIu64 "..%" PRIu64, name,
				       text, least, most);
	*ret_number = number;
	return 0;
}

int mm_words_u32(const char *command, const char *name, const char *text, uint32_t least,
		 uint32_t most, uint32_t *ret_number)
{
	uint64_t number;
	int r = mm_words_number(command, name, text, least, most, &number);

	if (!r)
		*ret_number = (uint32_t)number;
	return r;
}
