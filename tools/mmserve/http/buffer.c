/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/http/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mm_buffer_done(struct mm_buffer *b)
{
	free(b->text);
	*b = (struct mm_buffer){ 0 };
}

/* Makes room for @bytes more and a NUL. */
static bool buffer_grow(struct mm_buffer *b, size_t bytes)
{
	size_t room = MM_MAX(b->room, 256);
	char *text;

	if (b->failed || bytes >= SIZE_MAX / 4 - b->n) {
		b->failed = true;
		return false;
	}
	while (room <= b->n + bytes)
		room *= 2;
	if (room == b->room)
		return true;
	text = realloc(b->text, room);
	b->failed = !text;
	if (!text)
		return false;
	b->text = text;
	b->room = room;
	return true;
}

void mm_buffer_put(struct mm_buffer *b, const char *text, size_t bytes)
{
	if (!buffer_grow(b, bytes))
		return;
	memcpy(b->text + b->n, text, bytes);
	b->n += bytes;
	b->text[b->n] = '\0';
}

void mm_buffer_puts(struct mm_buffer *b, const char *text)
{
	mm_buffer_put(b, text, strlen(text));
}

void mm_buffer_printf(struct mm_buffer *b, const char *format, ...)
{
	char text[512];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	mm_assert(n >= 0 && (size_t)n < sizeof(text));
	mm_buffer_put(b, text, (size_t)n);
}

void mm_buffer_string(struct mm_buffer *b, const char *text, size_t bytes)
{
	size_t from = 0;

	mm_buffer_put(b, "\"", 1);
	for (size_t i = 0; i < bytes; i++) {
		const unsigned char c = (unsigned char)text[i];

		if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
			continue;
		mm_buffer_put(b, text + from, i - from);
		from = i + 1;
		if (c == '"' || c == '\\')
			mm_buffer_printf(b, "\\%c", c);
		else if (c == '\n')
			mm_buffer_puts(b, "\\n");
		else
			mm_buffer_printf(b, "\\u%04x", c);
	}
	mm_buffer_put(b, text + from, bytes - from);
	mm_buffer_put(b, "\"", 1);
}

void mm_buffer_drop(struct mm_buffer *b, size_t bytes)
{
	mm_assert(bytes <= b->n);
	b->n -= bytes;
	memmove(b->text, b->text + bytes, b->n);
	if (b->text)
		b->text[b->n] = '\0';
}
