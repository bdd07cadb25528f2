/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_rows - structs in memory that another process or another build can read
 *
 * Concept:    Begins with the tables of all structs that occur (fields.h), then has rows: a number
 *             of structs of one table, with an index that the caller gives a meaning. Fields are
 *             packed one after the other, without padding and without pointers, so equal structs
 *             make equal bytes. The reader finds fields by their names.
 * Ownership:  the caller owns the memory, the writer, and the reader.
 * Threading:  any; no allocation.
 * Trust:      The reader takes any bytes. A checksum detects bytes that were changed by accident;
 *             what was changed on purpose is still read within bounds, with numbers that fit into
 *             their fields, and the caller checks what they mean.
 * Limits:     MM_ROWS_TYPES structs of MM_ROWS_FIELDS fields in all.
 */
#pragma once

#include "mmd/fields/fields.h"

#define MM_ROWS_TYPES  64
#define MM_ROWS_FIELDS 1024
#define MM_ROWS_WHY    160 /* bytes of a sentence */

/* A run of fields that lie side by side, or a field that needs a look at it. */
struct mm_rows_op {
	uint32_t offset, bytes;
	const struct mm_field *field; /* NULL: a run */
};

struct mm_rows_type {
	const struct mm_fields *fields;
	uint32_t first_op, ops;
};

struct mm_rows_writer {
	uint8_t *to;
	size_t room, n;
	bool full;
	uint32_t types, ops;
	struct mm_rows_type type[MM_ROWS_TYPES];
	struct mm_rows_op op[MM_ROWS_FIELDS];
};

/* Begins to write into @room bytes at @to. @roots: the tables of all rows; each occurs once. */
void mm_rows_begin(struct mm_rows_writer *w, void *to, size_t room,
		   const struct mm_fields *const *roots, uint32_t n_roots);
/* Writes a row: @count structs of @fields that lie behind each other at @from. */
void mm_rows_put(struct mm_rows_writer *w, const struct mm_fields *fields, uint32_t index,
		 const void *from, uint32_t count);
/* Completes it. Return: 0; -ENOSPC: there was not enough room. */
int mm_rows_end(struct mm_rows_writer *w, size_t *ret_bytes);

struct mm_rows_known {
	const struct mm_fields *fields; /* NULL: a struct that is not known here */
	const char *name;               /* of @name_bytes, in the memory that is read */
	uint32_t name_bytes, first_field, fields_n;
	bool required; /* has a field that no reader may ignore */
};

struct mm_rows_seen {
	const struct mm_field *field; /* NULL: a field that is not known here */
	enum mm_field_kind kind;
	bool counted;
	uint32_t bytes, count, type;
};

struct mm_rows_reader {
	const uint8_t *from;
	size_t bytes, at;
	uint32_t types, fields;
	struct mm_rows_known type[MM_ROWS_TYPES];
	struct mm_rows_seen field[MM_ROWS_FIELDS];
	char why[MM_ROWS_WHY]; /* what is wrong, after a call that failed */
};

struct mm_row {
	const struct mm_fields *fields; /* NULL: not known here, and may be ignored */
	uint32_t index, count;
	size_t at, end; /* in the memory that is read */
	uint32_t type;
};

/*
 * Begins to read. Return: 0; -EBADMSG: damaged; -EPROTO: of another version, and cannot be read
 * here.
 */
int mm_rows_open(struct mm_rows_reader *r, const void *from, size_t bytes,
		 const struct mm_fields *const *roots, uint32_t n_roots);
/* Gets the next row. Return: 0; MM_E_EMPTY: there is none; -EBADMSG. */
int mm_rows_next(struct mm_rows_reader *r, struct mm_row *ret_row);
/*
 * Reads a row's structs to @to, which has room for @most. Fields that the row lacks, and elements
 * of arrays that are not in use, stay as they are. Return: 0; -EBADMSG; -EPROTO.
 */
int mm_rows_get(struct mm_rows_reader *r, const struct mm_row *row, void *to, uint32_t most);
/* Writes a sentence of these parts to @r->why; a part may be NULL. */
void mm_rows_why(struct mm_rows_reader *r, const char *first, const char *second,
		 const char *third);
