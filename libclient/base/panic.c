/* SPDX-License-Identifier: Apache-2.0 */
/*
 * panic - the end of a process that found its own state impossible; out of line, so that base.h
 * needs no stdio
 */
#include <stdio.h>
#include <stdlib.h>

#include "libclient/base/base.h"

_Noreturn void mm_panic(const char *expr, const char *file, int line)
{
	fprintf(stderr, "panic: %s:%d: %s\n", file, line, expr);
	abort();
}
