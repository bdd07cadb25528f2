/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rows: takes the tables that were written, and finds each field here by its name. */
#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/fields/format.h"
#include "mmd/fields/rows.h"

/* ---- sentences ---- */

/* Adds @bytes of text; what is not printable is shown as a dot. */
static void why_add(struct mm_rows_reader *r, const char *text, size_t bytes)
{
	size_t n = strlen(r->why);

	for (size_t i = 0; i < bytes && text[i] && n + 1 < sizeof(r->why); i++)
		r->why[n++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '.';
	r->why[n] = '\0';
}

void mm_rows_why(struct mm_rows_reader *r, const char *first, const char *second, const char *third)
{
	r->why[0] = '\0';
	why_add(r, first ? first : "", SIZE_MAX);
	why_add(r, second ? second : "", SIZE_MAX);
	why_add(r, third ? third : "", SIZE_MAX);
}

static int read_damaged(struct mm_rows_reader *r, const char *what)
{
	mm_rows_why(r, "damaged: ", what, NULL);
	return -EBADMSG;
}

/* ---- numbers ---- */

static const uint8_t *bytes_take(struct mm_rows_reader *r, size_t bytes)
{
	const uint8_t *at = r->from + r->at;

	if (bytes > r->bytes - r->at)
		return NULL;
	r->at += bytes;
	return at;
}

static bool number_take(struct mm_rows_reader *r, uint32_t *ret)
{
	const uint8_t *at = bytes_take(r, sizeof(*ret));

	if (at)
		memcpy(ret, at, sizeof(*ret));
	return at;
}

/* ---- tables ---- */

struct name {
	const char *text;
	uint32_t bytes;
};

static bool name_take(struct mm_rows_reader *r, struct name *ret)
{
	if (!number_take(r, &ret->bytes) || !ret->bytes || ret->bytes > MM_ROWS_NAME_MAX)
		return false;
	ret->text = (const char *)bytes_take(r, ret->bytes);
	return ret->text;
}

static bool name_is(const struct name *name, const char *text)
{
	return strlen(text) == name->bytes && memcmp(text, name->text, name->bytes) == 0;
}

/* Finds the table of this name among @fields and the tables that it uses. */
static const struct mm_fields *fields_find(const struct mm_fields *fields, const struct name *name)
{
	const struct mm_fields *found = NULL;

	if (name_is(name, fields->name))
		return fields;
	for (uint32_t i = 0; i < fields->n && !found; i++)
		if (fields->field[i].kind == MM_KIND_STRUCT)
			found = fields_find(fields->field[i].of, name);
	return found;
}

static const struct mm_field *table_field_find(const struct mm_fields *fields,
					       const struct name *name)
{
	for (uint32_t i = 0; fields && i < fields->n; i++)
		if (fields->field[i].kind != MM_KIND_NOT_SAVED &&
		    name_is(name, fields->field[i].name))
			return &fields->field[i];
	return NULL;
}

static int table_field_refuse(struct mm_rows_reader *r, const struct mm_rows_known *type,
			      const struct name *name, const char *what)
{
	mm_rows_why(r, what, NULL, NULL);
	why_add(r, name->text, name->bytes);
	why_add(r, " of ", SIZE_MAX);
	why_add(r, type->name, type->name_bytes);
	return -EPROTO;
}

static bool seen_is_sane(const struct mm_rows_seen *f, uint32_t types)
{
	if ((uint32_t)f->kind >= MM_KIND_SAVED_END || !f->count)
		return false;
	if (f->kind == MM_KIND_STRUCT)
		return f->type < types;
	return f->bytes == 1 ||
	       (f->kind != MM_KIND_BOOL && (f->bytes == 2 || f->bytes == 4 || f->bytes == 8));
}

/* Numbers may become wider or narrower, and false and true numbers; structs stay what they are. */
static bool seen_suits(const struct mm_rows_reader *r, const struct mm_rows_seen *f)
{
	const struct mm_field *here = f->field;

	if (f->kind == MM_KIND_STRUCT || here->kind == MM_KIND_STRUCT)
		return f->kind == here->kind && r->type[f->type].fields == here->of;
	return (f->kind == MM_KIND_INT) == (here->kind == MM_KIND_INT);
}

static int field_take(struct mm_rows_reader *r, struct mm_rows_known *type)
{
	struct mm_rows_seen *f = &r->field[r->fields];
	uint32_t kind, flags, of;
	struct name name;

	if (r->fields == MM_ROWS_FIELDS)
		return read_damaged(r, "too many fields");
	if (!name_take(r, &name) || !number_take(r, &kind) || !number_take(r, &flags) ||
	    !number_take(r, &of) || !number_take(r, &f->count))
		return read_damaged(r, "a table is cut off");
	f->kind = (enum mm_field_kind)kind;
	f->counted = flags & MM_ROWS_COUNTED;
	f->bytes = f->type = of;
	if (!seen_is_sane(f, (uint32_t)(type - r->type)))
		return read_damaged(r, "a field is impossible");
	f->field = table_field_find(type->fields, &name);
	type->required |= !(flags & MM_ROWS_OPTIONAL);
	if (!f->field && type->fields && !(flags & MM_ROWS_OPTIONAL))
		return table_field_refuse(r, type, &name, "not known here: field ");
	if (f->field && !seen_suits(r, f))
		return table_field_refuse(r, type, &name, "of another kind here: field ");
	r->fields++;
	type->fields_n++;
	return 0;
}

/* Each field that must not be missing is there, once. */
static int type_lacks(struct mm_rows_reader *r, const struct mm_rows_known *type)
{
	for (uint32_t i = 0; type->fields && i < type->fields->n; i++) {
		const struct mm_field *here = &type->fields->field[i];
		uint32_t n = 0;

		for (uint32_t k = 0; k < type->fields_n; k++)
			n += r->field[type->first_field + k].field == here;
		if (n > 1)
			return read_damaged(r, "a field is there twice");
		if (n || here->optional || here->kind == MM_KIND_NOT_SAVED)
			continue;
		mm_rows_why(r, "it lacks a field: ", here->name, " of ");
		why_add(r, type->name, type->name_bytes);
		return -EPROTO;
	}
	return 0;
}

static int type_take(struct mm_rows_reader *r, const struct mm_fields *const *roots,
		     uint32_t n_roots)
{
	struct mm_rows_known *type = &r->type[r->types];
	struct name name;
	uint32_t n;
	int e = 0;

	if (!name_take(r, &name) || !number_take(r, &n) || !n)
		return read_damaged(r, "a table is cut off");
	*type = (struct mm_rows_known){ .name = name.text,
					.name_bytes = name.bytes,
					.first_field = r->fields };
	for (uint32_t i = 0; i < n_roots && !type->fields; i++)
		type->fields = fields_find(roots[i], &name);
	for (uint32_t i = 0; i < r->types && type->fields; i++)
		if (r->type[i].fields == type->fields)
			return read_damaged(r, "a table is there twice");
	for (uint32_t i = 0; i < n && !e; i++)
		e = field_take(r, type);
	if (!e)
		e = type_lacks(r, type);
	r->types++;
	return e;
}

int mm_rows_open(struct mm_rows_reader *r, const void *from, size_t bytes,
		 const struct mm_fields *const *roots, uint32_t n_roots)
{
	uint64_t head[MM_ROWS_HEAD_WORDS];
	int e = 0;

	r->from = from;
	r->bytes = bytes;
	r->at = sizeof(head);
	r->types = r->fields = 0;
	r->why[0] = '\0';
	if (bytes < sizeof(head))
		return read_damaged(r, "it is cut off");
	memcpy(head, from, sizeof(head));
	if (head[0] != MM_ROWS_MARK) {
		mm_rows_why(r, "of another format", NULL, NULL);
		return -EPROTO;
	}
	if (head[1] != bytes || head[3] > MM_ROWS_TYPES || head[4])
		return read_damaged(r, "its head");
	if (head[2] != mm_rows_checksum(r->from + sizeof(head), bytes - sizeof(head)))
		return read_damaged(r, "its checksum");
	while (!e && r->types < head[3])
		e = type_take(r, roots, n_roots);
	return e;
}

/* ---- rows ---- */

int mm_rows_next(struct mm_rows_reader *r, struct mm_row *ret_row)
{
	uint32_t type, index, count, bytes;

	if (!number_take(r, &type))
		return read_damaged(r, "it is cut off");
	if (type == MM_ROWS_LAST)
		return r->at == r->bytes ? MM_E_EMPTY : read_damaged(r, "something follows it");
	if (type >= r->types || !number_take(r, &index) || !number_take(r, &count) ||
	    !number_take(r, &bytes) || bytes > r->bytes - r->at)
		return read_damaged(r, "a row");
	if (!r->type[type].fields && r->type[type].required) {
		mm_rows_why(r, "not known here: ", NULL, NULL);
		why_add(r, r->type[type].name, r->type[type].name_bytes);
		return -EPROTO;
	}
	*ret_row = (struct mm_row){ .fields = r->type[type].fields,
				    .index = index,
				    .count = count,
				    .at = r->at,
				    .end = r->at + bytes,
				    .type = type };
	r->at += bytes;
	return 0;
}

/* Where in a row the reader is. */
struct cursor {
	struct mm_rows_reader *r;
	size_t at, end;
};

static const uint8_t *cursor_take(struct cursor *c, size_t bytes)
{
	const uint8_t *at = c->r->from + c->at;

	if (bytes > c->end - c->at)
		return NULL;
	c->at += bytes;
	return at;
}

static int number_refuse(struct cursor *c, const struct mm_field *here)
{
	mm_rows_why(c->r, "damaged: no such value of ", here->name, NULL);
	return -EBADMSG;
}

/* Reads @n numbers of @f to @to; NULL: the field is not known here. */
static int numbers_get(struct cursor *c, const struct mm_rows_seen *f, uint8_t *to, uint32_t n)
{
	const struct mm_field *here = f->field;
	const uint8_t *from = cursor_take(c, (size_t)n * f->bytes);

	if (!from)
		return read_damaged(c->r, "a row is cut off");
	for (uint32_t i = 0; here && i < n; i++, from += f->bytes, to += here->bytes) {
		uint64_t value = 0, back;

		memcpy(&value, from, f->bytes);
		if (f->kind == MM_KIND_INT)
			value = (uint64_t)((int64_t)(value << (64 - 8 * f->bytes)) >>
					   (64 - 8 * f->bytes));
		back = value << (64 - 8 * here->bytes);
		back = here->kind == MM_KIND_INT
			       ? (uint64_t)((int64_t)back >> (64 - 8 * here->bytes))
			       : back >> (64 - 8 * here->bytes);
		if (back != value || (here->end && value >= here->end) ||
		    (here->kind == MM_KIND_BOOL && value > 1))
			return number_refuse(c, here);
		memcpy(to, &value, here->bytes);
	}
	return 0;
}

/* No table uses a later one (seen_is_sane()), so the depth is bounded. */
static int struct_get(struct cursor *c, uint32_t type, uint8_t *to)
{
	const struct mm_rows_known *known = &c->r->type[type];
	int e = 0;

	for (uint32_t i = 0; i < known->fields_n && !e; i++) {
		const struct mm_rows_seen *f = &c->r->field[known->first_field + i];
		uint8_t *at = to && f->field ? to + f->field->offset : NULL;
		const uint8_t *counted;
		uint32_t n = f->count;

		if (f->counted) {
			counted = cursor_take(c, sizeof(n));
			if (!counted)
				return read_damaged(c->r, "a row is cut off");
			memcpy(&n, counted, sizeof(n));
		}
		if (n > f->count)
			return read_damaged(c->r, "more elements than there are");
		if (f->field && n > f->field->count) {
			mm_rows_why(c->r, "more than there is room for here: ", f->field->name,
				    NULL);
			return -EPROTO;
		}
		if (f->kind != MM_KIND_STRUCT)
			e = numbers_get(c, f, at, n);
		for (uint32_t k = 0; f->kind == MM_KIND_STRUCT && k < n && !e; k++)
			e = struct_get(c, f->type, at ? at + (size_t)k * f->field->bytes : NULL);
	}
	return e;
}

int mm_rows_get(struct mm_rows_reader *r, const struct mm_row *row, void *to, uint32_t most)
{
	struct cursor c = { .r = r, .at = row->at, .end = row->end };
	int e = 0;

	mm_assert(row->fields);
	if (row->count > most) {
		mm_rows_why(r, "more than there is room for here: ", row->fields->name, NULL);
		return -EPROTO;
	}
	for (uint32_t i = 0; i < row->count && !e; i++)
		e = struct_get(&c, row->type, (uint8_t *)to + (size_t)i * row->fields->bytes);
	if (!e && c.at != c.end)
		return read_damaged(r, "a row is too long");
	return e;
}
