/* SPDX-License-Identifier: Apache-2.0 */
#undef NDEBUG
#include "tests/unit/mmd/fields/described.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/*
 * GCC does not clear padding behind an array, nor behind the first 16 KiB of a struct. There a gap
 * may be one that an alignment makes. @of: by byte, 1 + the index of its field.
 */
static bool is_gap(const struct mm_described *d, const uint8_t *of, uint32_t at)
{
	const struct mm_field *before;
	uint32_t begin = at, end = at;

	while (begin && !of[begin - 1])
		begin--;
	while (end < d->bytes && !of[end])
		end++;
	if (!begin || end % 4 || end - begin >= 8)
		return false;
	before = &d->fields->field[of[begin - 1] - 1];
	return d->bytes > 16384 || before->count > 1 || before->kind == MM_KIND_STRUCT;
}

void mm_described_check(const struct mm_described *d)
{
	uint8_t *bytes = malloc(d->bytes), *of = calloc(1, d->bytes);

	assert_non_null(bytes);
	assert_non_null(of);
	memset(bytes, 0xff, d->bytes);
	d->padding_clear(bytes);
	assert_int_equal(d->fields->bytes, d->bytes);
	for (uint32_t i = 0; i < d->fields->n; i++) {
		const struct mm_field *f = &d->fields->field[i];

		assert_true(f->kind != MM_KIND_STRUCT || f->of->bytes == f->bytes);
		for (uint32_t k = 0; k < f->bytes * f->count; k++) {
			if (of[f->offset + k])
				fail_msg("%s: byte %u is of two fields", d->fields->name,
					 f->offset + k);
			of[f->offset + k] = (uint8_t)(i + 1);
		}
	}
	for (uint32_t i = 0; i < d->bytes; i++)
		if (bytes[i] && !of[i] && !is_gap(d, of, i))
			fail_msg("%s: byte %u is of no field", d->fields->name, i);
	free(bytes);
	free(of);
}

void mm_described_complete(const struct mm_described *row, size_t n, const struct mm_fields *fields)
{
	size_t i = 0;

	while (i < n && row[i].fields != fields)
		i++;
	if (i == n && strncmp(fields->name, "struct mm_", 10) == 0)
		fail_msg("%s is in no list", fields->name);
	for (uint32_t k = 0; k < fields->n; k++)
		if (fields->field[k].kind == MM_KIND_STRUCT)
			mm_described_complete(row, n, fields->field[k].of);
}
