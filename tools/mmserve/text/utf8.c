/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/text/utf8.h"

#include <string.h>

/*
 * Return: the bytes of the character that begins at @s, if it is whole; 0: it may become one with
 * more bytes than @n; -1: it never does.
 */
static int character_bytes(const uint8_t *s, size_t n)
{
	const uint8_t lead = s[0];
	const int bytes = lead < 0x80   ? 1
			  : lead < 0xc2 ? -1
			  : lead < 0xe0 ? 2
			  : lead < 0xf0 ? 3
					: 4;
	uint8_t least = 0x80, most = 0xbf;

	if (lead > 0xf4 || bytes < 0)
		return -1;
	/* No longer form than needed, no surrogates, nothing above U+10FFFF. */
	if (lead == 0xe0)
		least = 0xa0;
	if (lead == 0xed)
		most = 0x9f;
	if (lead == 0xf0)
		least = 0x90;
	if (lead == 0xf4)
		most = 0x8f;
	for (int i = 1; i < bytes; i++) {
		if ((size_t)i == n)
			return 0;
		if (s[i] < least || s[i] > most)
			return -1;
		least = 0x80;
		most = 0xbf;
	}
	return bytes;
}

/* Passes on what is held, as far as it is decided. Return: bytes written. */
static size_t utf8_pass(struct mm_utf8 *u, char *out)
{
	size_t written = 0;

	while (u->n) {
		const int bytes = character_bytes(u->held, u->n);
		const uint32_t taken = bytes > 0 ? (uint32_t)bytes : 1;

		if (!bytes)
			break;
		if (bytes > 0)
			memcpy(out + written, u->held, taken);
		else
			memcpy(out + written, MM_UTF8_REPLACEMENT, 3);
		written += bytes > 0 ? taken : 3;
		u->n -= taken;
		memmove(u->held, u->held + taken, u->n);
	}
	return written;
}

size_t mm_utf8_push(struct mm_utf8 *u, const char *bytes, size_t n, char *out)
{
	size_t written = 0;

	for (size_t i = 0; i < n; i++) {
		u->held[u->n++] = (uint8_t)bytes[i];
		written += utf8_pass(u, out + written);
	}
	return written;
}

size_t mm_utf8_end(struct mm_utf8 *u, char *out)
{
	size_t written = 0;

	while (u->n) {
		memcpy(out + written, MM_UTF8_REPLACEMENT, 3);
		written += 3;
		u->n--;
		memmove(u->held, u->held + 1, u->n);
		written += utf8_pass(u, out + written);
	}
	return written;
}
