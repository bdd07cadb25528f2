/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables as they are written: a mark, the bytes in all, the checksum of what follows, the
 * number of structs; then each struct behind those that it uses: name, bytes, number of fields; and
 * each field: name, kind, flags, offset, bytes, elements, index of its struct.
 */
#include "mmd/fields/layout.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/fields/format.h"

#define LAYOUT_MARK       UINT64_C(0x31307479616c6d6d) /* "mmlayt01" */
#define LAYOUT_HEAD_WORDS 4
#define SPARSE_BYTES      65536 /* in a larger array parts that are 0 are passed over */

uint64_t mm_layout_number(const void *layout, size_t bytes)
{
	return mm_rows_checksum(layout, bytes);
}

/* ---- writing ---- */

struct layout_writer {
	uint8_t *to;
	size_t room, n;
	bool full;
	uint32_t types;
	const struct mm_fields *type[MM_LAYOUT_TYPES];
};

static void layout_put(struct layout_writer *w, const void *from, size_t bytes)
{
	if (bytes > w->room - w->n) {
		w->full = true;
		return;
	}
	memcpy(w->to + w->n, from, bytes);
	w->n += bytes;
}

static void layout_put_number(struct layout_writer *w, uint32_t value)
{
	layout_put(w, &value, sizeof(value));
}

static void layout_put_name(struct layout_writer *w, const char *name)
{
	const size_t bytes = strlen(name);

	mm_assert(bytes && bytes <= MM_ROWS_NAME_MAX);
	layout_put_number(w, (uint32_t)bytes);
	layout_put(w, name, bytes);
}

static uint32_t layout_type(const struct layout_writer *w, const struct mm_fields *fields)
{
	uint32_t i = 0;

	while (i < w->types && w->type[i] != fields)
		i++;
	return i;
}

static void layout_put_field(struct layout_writer *w, const struct mm_field *f)
{
	layout_put_name(w, f->name);
	layout_put_number(w, f->kind);
	layout_put_number(w, f->optional ? MM_ROWS_OPTIONAL : 0);
	layout_put_number(w, f->offset);
	layout_put_number(w, f->bytes);
	layout_put_number(w, f->count);
	layout_put_number(w, f->kind == MM_KIND_STRUCT ? layout_type(w, f->of) : 0);
}

static void layout_put_type(struct layout_writer *w, const struct mm_fields *fields)
{
	uint32_t n = 0;

	if (layout_type(w, fields) < w->types)
		return;
	for (uint32_t i = 0; i < fields->n; i++) {
		if (fields->field[i].kind == MM_KIND_STRUCT)
			layout_put_type(w, fields->field[i].of);
		n += fields->field[i].kind != MM_KIND_NOT_SAVED;
	}
	mm_assert(w->types < MM_LAYOUT_TYPES);
	layout_put_name(w, fields->name);
	layout_put_number(w, fields->bytes);
	layout_put_number(w, n);
	for (uint32_t i = 0; i < fields->n; i++)
		if (fields->field[i].kind != MM_KIND_NOT_SAVED)
			layout_put_field(w, &fields->field[i]);
	w->type[w->types++] = fields;
}

size_t mm_layout_write(const struct mm_fields *const *roots, uint32_t n_roots, void *to,
		       size_t room)
{
	uint64_t head[LAYOUT_HEAD_WORDS] = { LAYOUT_MARK };
	struct layout_writer w = { .to = to, .room = room };

	layout_put(&w, head, sizeof(head));
	for (uint32_t i = 0; i < n_roots; i++)
		layout_put_type(&w, roots[i]);
	if (w.full)
		return 0;
	head[1] = w.n;
	head[2] = mm_rows_checksum(w.to + sizeof(head), w.n - sizeof(head));
	head[3] = w.types;
	memcpy(w.to, head, sizeof(head));
	return w.n;
}

/* ---- sentences ---- */

struct layout_name {
	const char *text;
	uint32_t bytes;
};

/* Adds @bytes of text; what is not printable is shown as a dot. */
static void layout_say(struct mm_layout *l, const char *text, size_t bytes)
{
	size_t n = strlen(l->why);

	for (size_t i = 0; i < bytes && text[i] && n + 1 < sizeof(l->why); i++)
		l->why[n++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '.';
	l->why[n] = '\0';
}

static int layout_damaged(struct mm_layout *l, const char *what)
{
	l->why[0] = '\0';
	layout_say(l, "damaged: ", SIZE_MAX);
	layout_say(l, what, SIZE_MAX);
	return -EBADMSG;
}

static int layout_refuse(struct mm_layout *l, const struct layout_name *field,
			 const struct layout_name *type, const char *what)
{
	l->why[0] = '\0';
	layout_say(l, "field ", SIZE_MAX);
	layout_say(l, field->text, field->bytes);
	layout_say(l, " of ", SIZE_MAX);
	layout_say(l, type->text, type->bytes);
	layout_say(l, what, SIZE_MAX);
	return -EPROTO;
}

/* ---- reading ---- */

static bool layout_number_take(struct mm_layout *l, uint32_t *ret)
{
	if (sizeof(*ret) > l->bytes - l->at)
		return false;
	memcpy(ret, l->from + l->at, sizeof(*ret));
	l->at += sizeof(*ret);
	return true;
}

static bool layout_name_take(struct mm_layout *l, struct layout_name *ret)
{
	if (!layout_number_take(l, &ret->bytes) || !ret->bytes || ret->bytes > MM_ROWS_NAME_MAX ||
	    ret->bytes > l->bytes - l->at)
		return false;
	ret->text = (const char *)l->from + l->at;
	l->at += ret->bytes;
	return true;
}

static bool layout_name_is(const struct layout_name *name, const char *text)
{
	return strlen(text) == name->bytes && memcmp(text, name->text, name->bytes) == 0;
}

static const struct mm_fields *layout_find(const struct mm_fields *fields,
					   const struct layout_name *name)
{
	const struct mm_fields *found = NULL;

	if (layout_name_is(name, fields->name))
		return fields;
	for (uint32_t i = 0; i < fields->n && !found; i++)
		if (fields->field[i].kind == MM_KIND_STRUCT)
			found = layout_find(fields->field[i].of, name);
	return found;
}

static const struct mm_field *layout_find_field(const struct mm_fields *fields,
						const struct layout_name *name)
{
	for (uint32_t i = 0; fields && i < fields->n; i++)
		if (fields->field[i].kind != MM_KIND_NOT_SAVED &&
		    layout_name_is(name, fields->field[i].name))
			return &fields->field[i];
	return NULL;
}

/* Whether the field can be there at all, and lies within its struct. */
static bool field_is_possible(const struct mm_layout *l, const struct mm_layout_field *f,
			      uint32_t type_bytes)
{
	if ((uint32_t)f->kind >= MM_KIND_SAVED_END || !f->count || !f->bytes)
		return false;
	if ((uint64_t)f->offset + (uint64_t)f->bytes * f->count > type_bytes)
		return false;
	if (f->kind == MM_KIND_STRUCT)
		return f->type < l->types && l->type[f->type].bytes == f->bytes;
	return f->bytes == 1 ||
	       (f->kind != MM_KIND_BOOL && (f->bytes == 2 || f->bytes == 4 || f->bytes == 8));
}

/* Return: what keeps the field from being copied, as the rest of a sentence; NULL: nothing. */
static const char *field_unfit(const struct mm_layout *l, const struct mm_layout_field *f)
{
	const struct mm_field *here = f->here;

	if (f->kind == MM_KIND_STRUCT || here->kind == MM_KIND_STRUCT) {
		if (f->kind != here->kind || l->type[f->type].here != here->of)
			return " is of another kind here";
	} else {
		if ((f->kind == MM_KIND_INT) != (here->kind == MM_KIND_INT))
			return " is of another kind here";
		if (f->bytes > here->bytes || (here->kind == MM_KIND_BOOL && f->kind != here->kind))
			return " is narrower here";
	}
	return f->count > here->count ? " has fewer elements here" : NULL;
}

static int layout_field_take(struct mm_layout *l, struct mm_layout_type *type,
			     const struct layout_name *type_name)
{
	struct mm_layout_field *f = &l->field[l->fields];
	struct layout_name name;
	uint32_t kind, flags;
	const char *unfit;

	if (l->fields == MM_LAYOUT_FIELDS)
		return layout_damaged(l, "too many fields");
	if (!layout_name_take(l, &name) || !layout_number_take(l, &kind) ||
	    !layout_number_take(l, &flags) || !layout_number_take(l, &f->offset) ||
	    !layout_number_take(l, &f->bytes) || !layout_number_take(l, &f->count) ||
	    !layout_number_take(l, &f->type))
		return layout_damaged(l, "a table is cut off");
	f->kind = (enum mm_field_kind)kind;
	if (!field_is_possible(l, f, type->bytes))
		return layout_damaged(l, "a field is impossible");
	f->here = layout_find_field(type->here, &name);
	if (!f->here && type->here && !(flags & MM_ROWS_OPTIONAL))
		return layout_refuse(l, &name, type_name, " is not known here");
	unfit = f->here ? field_unfit(l, f) : NULL;
	if (unfit)
		return layout_refuse(l, &name, type_name, unfit);
	l->fields++;
	type->fields++;
	return 0;
}

/* Each field that must not be missing is there, and none is there twice. */
static int layout_type_lacks(struct mm_layout *l, const struct mm_layout_type *type)
{
	for (uint32_t i = 0; i < type->here->n; i++) {
		const struct mm_field *here = &type->here->field[i];
		const struct layout_name field = { here->name, UINT32_MAX };
		const struct layout_name of = { type->here->name, UINT32_MAX };
		uint32_t n = 0;

		for (uint32_t k = 0; k < type->fields; k++)
			n += l->field[type->first_field + k].here == here;
		if (n > 1)
			return layout_damaged(l, "a field is there twice");
		if (!n && !here->optional && here->kind != MM_KIND_NOT_SAVED)
			return layout_refuse(l, &field, &of, " is not there");
	}
	return 0;
}

static int layout_type_take(struct mm_layout *l, const struct mm_fields *const *roots,
			    uint32_t n_roots)
{
	struct mm_layout_type *type = &l->type[l->types];
	struct layout_name name;
	uint32_t bytes, n;
	int r = 0;

	if (!layout_name_take(l, &name) || !layout_number_take(l, &bytes) ||
	    !layout_number_take(l, &n) || !bytes)
		return layout_damaged(l, "a table is cut off");
	*type = (struct mm_layout_type){ .bytes = bytes, .first_field = l->fields };
	for (uint32_t i = 0; i < n_roots && !type->here; i++)
		type->here = layout_find(roots[i], &name);
	for (uint32_t i = 0; i < l->types && type->here; i++)
		if (l->type[i].here == type->here)
			return layout_damaged(l, "a table is there twice");
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = layout_field_take(l, type, &name);
	if (r == 0 && type->here)
		r = layout_type_lacks(l, type);
	l->types++;
	return r;
}

int mm_layout_open(struct mm_layout *l, const void *from, size_t bytes,
		   const struct mm_fields *const *roots, uint32_t n_roots)
{
	uint64_t head[LAYOUT_HEAD_WORDS];
	int r = 0;

	*l = (struct mm_layout){ .from = from, .bytes = bytes, .at = sizeof(head) };
	if (bytes < sizeof(head))
		return layout_damaged(l, "it is cut off");
	memcpy(head, from, sizeof(head));
	if (head[0] != LAYOUT_MARK || head[1] != bytes || head[3] > MM_LAYOUT_TYPES)
		return layout_damaged(l, "its head");
	if (head[2] != mm_rows_checksum(l->from + sizeof(head), bytes - sizeof(head)))
		return layout_damaged(l, "its checksum");
	while (r == 0 && l->types < head[3])
		r = layout_type_take(l, roots, n_roots);
	if (r == 0 && l->at != bytes)
		return layout_damaged(l, "something follows it");
	for (uint32_t i = 0; i < n_roots && r == 0; i++)
		if (!mm_layout_bytes(l, roots[i]))
			return layout_damaged(l, "it lacks a struct");
	return r;
}

static const struct mm_layout_type *layout_type_of(const struct mm_layout *l,
						   const struct mm_fields *fields)
{
	for (uint32_t i = 0; i < l->types; i++)
		if (l->type[i].here == fields)
			return &l->type[i];
	return NULL;
}

uint32_t mm_layout_bytes(const struct mm_layout *l, const struct mm_fields *fields)
{
	const struct mm_layout_type *type = layout_type_of(l, fields);

	return type ? type->bytes : 0;
}

/* ---- copying ---- */

static int number_copy(struct mm_layout *l, const struct mm_layout_field *f, const uint8_t *from,
		       uint8_t *to)
{
	const struct mm_field *here = f->here;
	uint64_t value = 0;

	memcpy(&value, from, f->bytes);
	if (f->kind == MM_KIND_INT)
		value = (uint64_t)((int64_t)(value << (64 - 8 * f->bytes)) >> (64 - 8 * f->bytes));
	if ((here->end && value >= here->end) || (here->kind == MM_KIND_BOOL && value > 1)) {
		layout_damaged(l, "no such value of ");
		layout_say(l, here->name, SIZE_MAX);
		return -EBADMSG;
	}
	memcpy(to, &value, here->bytes);
	return 0;
}

static void initial_set(const struct mm_fields *here, const struct mm_layout *l,
			const struct mm_layout_type *type, uint8_t *to)
{
	for (uint32_t i = 0; i < here->n; i++) {
		const struct mm_field *f = &here->field[i];
		bool known = !f->initial;

		for (uint32_t k = 0; k < type->fields && !known; k++)
			known = l->field[type->first_field + k].here == f;
		for (uint32_t k = 0; k < f->count && !known; k++)
			memcpy(to + f->offset + (size_t)k * f->bytes, &f->initial, f->bytes);
	}
}

static int struct_copy(struct mm_layout *l, const struct mm_layout_type *type,
		       const struct mm_layout_memory *m, uint64_t at, uint8_t *to);

/* No table uses a later one (field_is_possible()), so the depth is bounded. */
static int field_copy(struct mm_layout *l, const struct mm_layout_field *f,
		      const struct mm_layout_memory *m, uint64_t at, uint8_t *to)
{
	const bool sparse = m->next && (uint64_t)f->bytes * f->count > SPARSE_BYTES;
	const struct mm_field *here = f->here;
	int r = 0;

	if (!sparse && f->kind < MM_KIND_BOOL && f->kind == here->kind && f->bytes == here->bytes &&
	    !here->end) {
		memcpy(to, m->base + at, (size_t)f->bytes * f->count);
		return 0;
	}
	for (uint32_t i = 0; i < f->count && r == 0; i++) {
		uint64_t from = at + (uint64_t)i * f->bytes;
		uint64_t next = sparse ? m->next(m->context, from) : from;

		if (next - at >= (uint64_t)f->bytes * f->count)
			break;
		i = (uint32_t)((next - at) / f->bytes);
		from = at + (uint64_t)i * f->bytes;
		if (f->kind == MM_KIND_STRUCT)
			r = struct_copy(l, &l->type[f->type], m, from,
					to + (size_t)i * here->bytes);
		else
			r = number_copy(l, f, m->base + from, to + (size_t)i * here->bytes);
	}
	return r;
}

static int struct_copy(struct mm_layout *l, const struct mm_layout_type *type,
		       const struct mm_layout_memory *m, uint64_t at, uint8_t *to)
{
	int r = 0;

	initial_set(type->here, l, type, to);
	for (uint32_t i = 0; i < type->fields && r == 0; i++) {
		const struct mm_layout_field *f = &l->field[type->first_field + i];

		if (f->here)
			r = field_copy(l, f, m, at + f->offset, to + f->here->offset);
	}
	return r;
}

int mm_layout_copy(struct mm_layout *l, const struct mm_fields *fields,
		   const struct mm_layout_memory *memory, uint64_t at, void *to)
{
	const struct mm_layout_type *type = layout_type_of(l, fields);

	if (!type || at > memory->bytes || type->bytes > memory->bytes - at)
		return layout_damaged(l, "it is cut off");
	return struct_copy(l, type, memory, at, to);
}
