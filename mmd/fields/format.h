/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format - the numbers that the writer and the reader of rows share
 *
 * Concept:    Only the two of them include this.
 * Threading:  any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_ROWS_MARK       UINT64_C(0x313073776f726d6d) /* "mmrows01" */
#define MM_ROWS_HEAD_WORDS 5
#define MM_ROWS_ROW_BYTES  16         /* before a row: its table, index, count, and bytes */
#define MM_ROWS_LAST       UINT32_MAX /* in the place of a table: no row follows */
#define MM_ROWS_NAME_MAX   64
#define MM_ROWS_OPTIONAL   1u
#define MM_ROWS_COUNTED    2u
#define MM_ROWS_PRIME      UINT64_C(0x9e3779b97f4a7c15)

/* Returns the checksum of @bytes. */
uint64_t mm_rows_checksum(const uint8_t *from, size_t bytes);
