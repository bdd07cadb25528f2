/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/why.h"

#include <stdarg.h>
#include <stdio.h>

int mm_refuse(struct mm_why *why, int code, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->text, sizeof(why->text), format, args);
	va_end(args);
	for (char *c = why->text; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	return code;
}
