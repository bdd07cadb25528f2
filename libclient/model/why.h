/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_why - why a load ends: a negative errno and one sentence for the tenant and the log
 *
 * Concept: the sentence names file, what and where. Strings from files are made printable.
 */
#pragma once

#include "libclient/base/base.h"

struct mm_why {
	char text[224]; /* as struct mm_load_status and struct mm_lmsg have room */
};

/* Writes the sentence and returns @code, so that a check is one statement. */
int mm_refuse(struct mm_why *why, int code, const char *format, ...) MM_PRINTF(3, 4);
