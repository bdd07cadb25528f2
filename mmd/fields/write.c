/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes rows. All numbers are as this machine has them. The head has 5 words: the mark, the bytes
 * in all, the checksum of what follows, the number of tables, and 0.
 */
#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/fields/format.h"
#include "mmd/fields/rows.h"

uint64_t mm_rows_checksum(const uint8_t *from, size_t bytes)
{
	uint64_t sum[4] = { 1, 2, 3, 4 };
	size_t i = 0;

	/* Four sums side by side, since each multiplication waits for the one before. */
	for (; i + 32 <= bytes; i += 32) {
		uint64_t word[4];

		memcpy(word, from + i, 32);
		for (uint32_t k = 0; k < 4; k++)
			sum[k] = (sum[k] ^ word[k]) * MM_ROWS_PRIME;
	}
	for (; i < bytes; i++)
		sum[0] = (sum[0] ^ from[i]) * MM_ROWS_PRIME;
	for (uint32_t k = 1; k < 4; k++)
		sum[0] = ((sum[0] << 13 | sum[0] >> 51) ^ sum[k]) * MM_ROWS_PRIME;
	return sum[0] ^ sum[0] >> 29;
}

static void bytes_put(struct mm_rows_writer *w, const void *from, size_t bytes)
{
	if (bytes > w->room - w->n) {
		w->full = true;
		return;
	}
	memcpy(w->to + w->n, from, bytes);
	w->n += bytes;
}

static void number_put(struct mm_rows_writer *w, uint32_t value)
{
	bytes_put(w, &value, sizeof(value));
}

/* ---- tables ---- */

static uint32_t type_find(const struct mm_rows_writer *w, const struct mm_fields *fields)
{
	uint32_t i = 0;

	while (i < w->types && w->type[i].fields != fields)
		i++;
	return i;
}

static void type_op_add(struct mm_rows_writer *w, const struct mm_field *f)
{
	const bool plain = f->kind != MM_KIND_STRUCT && !f->used && !f->trimmed;
	const uint32_t bytes = f->bytes * f->count;
	struct mm_rows_type *type = &w->type[w->types];
	struct mm_rows_op *last = type->ops ? &w->op[w->ops - 1] : NULL;

	if (plain && last && !last->field && last->offset + last->bytes == f->offset) {
		last->bytes += bytes;
		return;
	}
	mm_assert(w->ops < MM_ROWS_FIELDS);
	w->op[w->ops++] = (struct mm_rows_op){ .offset = f->offset,
					       .bytes = bytes,
					       .field = plain ? NULL : f };
	type->ops++;
}

/* Adds a table behind those that it uses, so that no table uses a later one. */
static void type_add(struct mm_rows_writer *w, const struct mm_fields *fields)
{
	if (type_find(w, fields) < w->types)
		return;
	for (uint32_t i = 0; i < fields->n; i++)
		if (fields->field[i].kind == MM_KIND_STRUCT)
			type_add(w, fields->field[i].of);
	mm_assert(w->types < MM_ROWS_TYPES);
	w->type[w->types] = (struct mm_rows_type){ .fields = fields, .first_op = w->ops };
	for (uint32_t i = 0; i < fields->n; i++)
		if (fields->field[i].kind != MM_KIND_NOT_SAVED)
			type_op_add(w, &fields->field[i]);
	w->types++;
}

static void name_put(struct mm_rows_writer *w, const char *name)
{
	const size_t bytes = strlen(name);

	mm_assert(bytes && bytes <= MM_ROWS_NAME_MAX);
	number_put(w, (uint32_t)bytes);
	bytes_put(w, name, bytes);
}

static void table_put(struct mm_rows_writer *w, const struct mm_fields *fields)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fields->n; i++)
		n += fields->field[i].kind != MM_KIND_NOT_SAVED;
	name_put(w, fields->name);
	number_put(w, n);
	for (uint32_t i = 0; i < fields->n; i++) {
		const struct mm_field *f = &fields->field[i];
		const bool counted = f->used || f->trimmed;

		if (f->kind == MM_KIND_NOT_SAVED)
			continue;
		name_put(w, f->name);
		number_put(w, f->kind);
		number_put(w,
			   (f->optional ? MM_ROWS_OPTIONAL : 0) | (counted ? MM_ROWS_COUNTED : 0));
		number_put(w, f->kind == MM_KIND_STRUCT ? type_find(w, f->of) : f->bytes);
		number_put(w, f->count);
	}
}

void mm_rows_begin(struct mm_rows_writer *w, void *to, size_t room,
		   const struct mm_fields *const *roots, uint32_t n_roots)
{
	static const uint64_t head[MM_ROWS_HEAD_WORDS];

	w->to = to;
	w->room = room;
	w->n = w->types = w->ops = 0;
	w->full = false;
	for (uint32_t i = 0; i < n_roots; i++)
		type_add(w, roots[i]);
	bytes_put(w, head, sizeof(head));
	for (uint32_t i = 0; i < w->types; i++)
		table_put(w, w->type[i].fields);
}

/* ---- rows ---- */

static bool bytes_are_zero(const uint8_t *from, uint32_t bytes)
{
	for (; bytes >= 8; from += 8, bytes -= 8) {
		uint64_t word;

		memcpy(&word, from, 8);
		if (word)
			return false;
	}
	while (bytes)
		if (from[--bytes])
			return false;
	return true;
}

static uint32_t field_elements(const struct mm_field *f, const uint8_t *whole)
{
	const uint8_t *at = whole + f->offset;
	uint32_t n = f->count;

	if (f->used)
		return MM_MIN(f->used(whole), f->count);
	while (f->trimmed && n && bytes_are_zero(at + (size_t)(n - 1) * f->bytes, f->bytes))
		n--;
	return n;
}

static void structs_put(struct mm_rows_writer *w, const struct mm_rows_type *type,
			const uint8_t *from, uint32_t count);

static void field_put(struct mm_rows_writer *w, const struct mm_field *f, const uint8_t *whole)
{
	const uint8_t *at = whole + f->offset;
	const uint32_t n = field_elements(f, whole);

	if (f->used || f->trimmed)
		number_put(w, n);
	if (f->kind == MM_KIND_STRUCT)
		structs_put(w, &w->type[type_find(w, f->of)], at, n);
	else
		bytes_put(w, at, (size_t)n * f->bytes);
}

static void structs_put(struct mm_rows_writer *w, const struct mm_rows_type *type,
			const uint8_t *from, uint32_t count)
{
	const struct mm_rows_op *first = &w->op[type->first_op];
	const uint32_t stride = type->fields->bytes;

	if (type->ops == 1 && !first->field && first->bytes == stride) {
		bytes_put(w, from, (size_t)count * stride);
		return;
	}
	for (; count; count--, from += stride)
		for (const struct mm_rows_op *op = first; op < first + type->ops; op++) {
			if (op->field)
				field_put(w, op->field, from);
			else
				bytes_put(w, from + op->offset, op->bytes);
		}
}

void mm_rows_put(struct mm_rows_writer *w, const struct mm_fields *fields, uint32_t index,
		 const void *from, uint32_t count)
{
	const uint32_t type = type_find(w, fields);
	const size_t at = w->n;
	uint32_t bytes;

	mm_assert(type < w->types);
	number_put(w, type);
	number_put(w, index);
	number_put(w, count);
	number_put(w, 0);
	structs_put(w, &w->type[type], from, count);
	if (w->full)
		return;
	bytes = (uint32_t)(w->n - at - MM_ROWS_ROW_BYTES);
	memcpy(w->to + at + MM_ROWS_ROW_BYTES - sizeof(bytes), &bytes, sizeof(bytes));
}

int mm_rows_end(struct mm_rows_writer *w, size_t *ret_bytes)
{
	uint64_t head[MM_ROWS_HEAD_WORDS] = { MM_ROWS_MARK };

	number_put(w, MM_ROWS_LAST);
	if (w->full)
		return -ENOSPC;
	head[1] = w->n;
	head[2] = mm_rows_checksum(w->to + sizeof(head), w->n - sizeof(head));
	head[3] = w->types;
	memcpy(w->to, head, sizeof(head));
	*ret_bytes = w->n;
	return 0;
}
