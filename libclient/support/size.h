/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size - numbers of bytes, as people write and read them
 *
 * Concept:   Written as "65536", "512M" or "2G": digits and at most one of K M G T, powers of 1024;
 *            the same in every program's options, in the configuration and in the environment of
 *            the software GPU. Printed as "1.5 GiB".
 * Threading: any thread; parsing sets errno.
 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/support/number.h"

/**
 * mm_size_parse() - parse "512M", "2G", "65536"
 * @text:      digits and at most one of K M G T
 * @ret_bytes: written only on success; may be 0
 *
 * Return: 0; -EINVAL not of that form; -ERANGE more than 64 bits.
 */
static inline int mm_size_parse(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "KMGT";
	unsigned int shift = 0;
	const char *unit, *end;
	uint64_t value;
	int r = mm_number_begin(text, &value, &end);

	if (r)
		return r;
	if (*end) {
		unit = strchr(units, *end);
		if (!unit || end[1])
			return -EINVAL;
		shift = 10 * (unsigned int)(unit - units + 1);
	}
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = value << shift;
	return 0;
}

#define MM_SIZE_TEXT_BYTES 24

/* Writes "512 B" or "1.5 GiB" to @text and returns it. */
static inline const char *mm_size_print(uint64_t bytes, char text[MM_SIZE_TEXT_BYTES])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	size_t unit = 0;

	for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(text, MM_SIZE_TEXT_BYTES, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}
