/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_why - why a load was refused: one sentence for the tenant and the log
 *
 * Concept:   The sentence names file, object and reason. Strings from files are made printable.
 * Ownership: a plain value.
 * Threading: none shared.
 */
#pragma once

#include "libclient/base/base.h"

struct mm_why {
	char text[224]; /* as long as in struct mm_load_status and struct mm_lmsg */
};

/* Writes the sentence and returns @code, so that a check is one statement. */
int mm_refuse(struct mm_why *why, int code, const char *format, ...) MM_PRINTF(3, 4);
