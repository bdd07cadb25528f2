/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input - provides a fuzz target's bytes as a file, for parsers that take an fd or a path
 *
 * Concept:   one memfd per process, which is rewritten for every input. Its path is
 *            /proc/self/fd/N, and each open of that path starts at the beginning.
 * Ownership: the memfd lives as long as the process; callers borrow it.
 * Threading: one thread.
 */
#pragma once

#undef NDEBUG
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libclient/base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

#define INPUT_PATH_BYTES  32
#define INPUT_PATCHES_MAX 64

/* Return: a borrowed fd. @file_bytes is at least @size_bytes; bytes beyond these read as zeros. */
static inline int input_file(const uint8_t *data, size_t size_bytes, size_t file_bytes)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz-input", MFD_CLOEXEC);
	mm_assert(fd >= 0 && ftruncate(fd, 0) == 0 && ftruncate(fd, (off_t)file_bytes) == 0);
	mm_assert(pwrite(fd, data, size_bytes, 0) == (ssize_t)size_bytes);
	return fd;
}

static inline void input_path(const uint8_t *data, size_t size_bytes, char *ret_path)
{
	snprintf(ret_path, INPUT_PATH_BYTES, "/proc/self/fd/%d",
		 input_file(data, size_bytes, size_bytes));
}

/* Returns the value of a digit; -1: it is none. */
static inline int input_digit(uint8_t c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * The bytes that an input is about. One that begins with "hex " has them as digits, so that it can
 * be read and compared in corpus/; whatever else is between digits only separates them. @digits has
 * room for as many bytes as the input has.
 */
static inline const uint8_t *input_bytes(const uint8_t *data, size_t *size_bytes, uint8_t *digits)
{
	size_t bytes = 0;

	if (*size_bytes < 4 || memcmp(data, "hex ", 4) != 0)
		return data;
	for (size_t i = 4; i + 1 < *size_bytes; i++) {
		if (input_digit(data[i]) < 0 || input_digit(data[i + 1]) < 0)
			continue;
		digits[bytes++] = (uint8_t)(input_digit(data[i]) << 4 | input_digit(data[i + 1]));
		i++;
	}
	*size_bytes = bytes;
	return digits;
}

/*
 * Changes @good_bytes by the lines of an input: "OFFSET NUMBER", in hexadecimal, puts 1 to 8 bytes,
 * as many as the number has digits for.
 */
static inline void input_patch(const uint8_t *data, size_t size_bytes, uint8_t *good,
			       size_t good_bytes)
{
	char text[4096], *at = text;

	size_bytes = MM_MIN(size_bytes, sizeof(text) - 1);
	memcpy(text, data, size_bytes);
	text[size_bytes] = '\0';
	for (int i = 0; i < INPUT_PATCHES_MAX && *at; i++) {
		const uint64_t offset = strtoull(at, &at, 16) % good_bytes;
		const char *digits = at + strspn(at, " ");
		const uint64_t value = strtoull(digits, &at, 16);
		const size_t bytes = MM_MIN(MM_MAX((size_t)(at - digits + 1) / 2, 1), 8);

		memcpy(good + offset, &value, MM_MIN(bytes, good_bytes - offset));
		at += strcspn(at, "\n");
		at += *at == '\n';
	}
}
