/* SPDX-License-Identifier: Apache-2.0 */
/*
 * described - whether tables name all bytes of their structs
 *
 * Concept:    A list X(symbol, type) of all tables of a program gives a row for each, with a
 *             function that clears the padding of the struct, which the compiler knows. The rest
 *             must be of one field each. Whoever adds a table adds it to the list.
 * Limits:     needs __builtin_clear_padding(), without which there is no MM_KNOWS_PADDING.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mmd/fields/fields.h"

#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define MM_KNOWS_PADDING 1
#endif
#endif

struct mm_described {
	const struct mm_fields *fields;
	void (*padding_clear)(void *at);
	size_t bytes;
};

#define MM_DESCRIBED_CLEAR(symbol, type)             \
	static void symbol##_padding_clear(void *at) \
	{                                            \
		__builtin_clear_padding((type *)at); \
	}
#define MM_DESCRIBED_ROW(symbol, type) { &symbol, symbol##_padding_clear, sizeof(type) },

/* Fails the test unless each byte of the struct that is no padding belongs to one field. */
void mm_described_check(const struct mm_described *row);

/* Fails the test unless @fields and all tables that it uses are among the rows. */
void mm_described_complete(const struct mm_described *row, size_t n,
			   const struct mm_fields *fields);
