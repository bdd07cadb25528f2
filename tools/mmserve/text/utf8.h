/* SPDX-License-Identifier: Apache-2.0 */
/*
 * utf8 - makes whole characters of bytes that come in pieces
 *
 * Concept:    the bytes of a character may be spread over several tokens. What is passed on is
 *             always valid UTF-8 that ends with a whole character; what may still become one is
 *             held back, four bytes at most. A byte that belongs to no character becomes U+FFFD.
 * Pure:       no allocation, no system call.
 * Ownership:  a plain value; zeroed holds nothing.
 * Threading:  none; the caller's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mm_utf8 {
	uint8_t held[4];
	uint32_t n;
};

#define MM_UTF8_REPLACEMENT "\xef\xbf\xbd"

/* Return: the most bytes that mm_utf8_push() writes for @bytes. */
static inline size_t mm_utf8_room(size_t bytes)
{
	return 3 * (bytes + 4);
}

/**
 * mm_utf8_push() - add bytes
 * @u:     any
 * @bytes: any
 * @n:     their number
 * @out:   mm_utf8_room() of @n
 *
 * Return: how many bytes were written.
 */
size_t mm_utf8_push(struct mm_utf8 *u, const char *bytes, size_t n, char *out);

/* Ends the text: what is held becomes U+FFFD. @out has room for 12 bytes. Return: bytes written. */
size_t mm_utf8_end(struct mm_utf8 *u, char *out);
