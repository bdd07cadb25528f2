/* SPDX-License-Identifier: Apache-2.0 */
/*
 * panic - ends a process whose own state is impossible; not inline, so that base.h needs no stdio
 */
#include <stdio.h>
#include <stdlib.h>

#include "libclient/base/base.h"

_Noreturn void mm_panic(const char *expr, const char *file, int line)
{
	fprintf(stderr, "panic: %s:%d: %s\n", file, line, expr);
	abort();
}
