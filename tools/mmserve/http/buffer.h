/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffer - a text that grows, and JSON written into it by hand
 *
 * Concept:    answers are written token by token, for which a tree of JSON would cost more than the
 *             token. A failed allocation is remembered, and what is added later is dropped, so that
 *             a caller writes all and looks once.
 * Ownership:  mm_buffer_done() frees; zeroed is empty.
 * Threading:  none; the caller's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "libclient/base/base.h"

struct mm_buffer {
	char *text; /* NUL-terminated, unless it is NULL */
	size_t n, room;
	bool failed;
};

void mm_buffer_done(struct mm_buffer *b);

void mm_buffer_put(struct mm_buffer *b, const char *text, size_t bytes);
void mm_buffer_puts(struct mm_buffer *b, const char *text);
void mm_buffer_printf(struct mm_buffer *b, const char *format, ...) MM_PRINTF(2, 3);

/* Adds a JSON string, with its quotation marks. @text is UTF-8. */
void mm_buffer_string(struct mm_buffer *b, const char *text, size_t bytes);

/* Drops the first @bytes. */
void mm_buffer_drop(struct mm_buffer *b, size_t bytes);
