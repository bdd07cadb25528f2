/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_fields - the fields of a struct, by name
 *
 * Concept:    A constant table beside the struct names each field with its place, kind and count
 *             of elements. rows.h writes structs by it, and reads them again in another process or
 *             another build, where the same name may have another place. A field that is not saved
 *             is named as well, so that a test can say whether a table has all bytes of its struct
 *             (tests/unit/mmd/core/image.c).
 * Change:     A field is known by its name and the struct by its own: who renames one makes another
 *             of it. A field that a later version adds is MM_OPTIONAL() if builds without it may
 *             ignore it, and if it may be what a new object has where an image lacks it. Any other
 *             is refused, by the reader that does not know it and by the reader that lacks it.
 *             Numbers of enumerations stand in images: new ones come at the end.
 * Ownership:  constant data.
 * Threading:  any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mm_field_kind {
	MM_KIND_UINT,
	MM_KIND_INT,
	MM_KIND_BOOL,
	MM_KIND_STRUCT,
	MM_KIND_SAVED_END,
	/* Pointers, scratch space, and what is saved otherwise. */
	MM_KIND_NOT_SAVED = MM_KIND_SAVED_END
};

struct mm_field {
	const char *name;
	enum mm_field_kind kind;
	bool optional;
	bool trimmed;               /* elements at the end that are all 0 are not saved */
	uint32_t offset;            /* in the struct */
	uint32_t bytes;             /* of an element */
	uint32_t count;             /* elements */
	uint64_t end;               /* unsigned: values are below it; 0: any */
	uint64_t initial;           /* what it has where a struct of another build lacks it */
	const struct mm_fields *of; /* MM_KIND_STRUCT */
	/* Returns how many elements of @whole, the struct, are in use; NULL: all. */
	uint32_t (*used)(const void *whole);
};

struct mm_fields {
	const char *name; /* of the struct */
	uint32_t bytes, n;
	const struct mm_field *field;
};

#define MM_FIELD_OF(type, member) (((type *)NULL)->member)
/* The kind of a number; an enumeration without negative values is an unsigned int. */
#define MM_FIELD_KIND(x)                  \
	_Generic((x), bool                \
		 : MM_KIND_BOOL, int8_t   \
		 : MM_KIND_INT, int16_t   \
		 : MM_KIND_INT, int32_t   \
		 : MM_KIND_INT, int64_t   \
		 : MM_KIND_INT, uint8_t   \
		 : MM_KIND_UINT, uint16_t \
		 : MM_KIND_UINT, uint32_t \
		 : MM_KIND_UINT, uint64_t \
		 : MM_KIND_UINT)

/* One element; MM_ENUM(): of which @values_end is the first that does not exist. */
#define MM_ENUM(type, member, values_end)                                                     \
	{                                                                                     \
		.name = #member, .kind = MM_FIELD_KIND(MM_FIELD_OF(type, member)),            \
		.offset = offsetof(type, member), .bytes = sizeof(MM_FIELD_OF(type, member)), \
		.count = 1, .end = (values_end)                                               \
	}
#define MM_ONE(type, member) MM_ENUM(type, member, 0)
#define MM_OPTIONAL(type, member)                                                  \
	{                                                                          \
		.name = #member, .kind = MM_FIELD_KIND(MM_FIELD_OF(type, member)), \
		.optional = true, .offset = offsetof(type, member),                \
		.bytes = sizeof(MM_FIELD_OF(type, member)), .count = 1             \
	}
/* An enumeration of which a struct that lacks it has 0. */
#define MM_OPTIONAL_ENUM(type, member, values_end)                                          \
	{                                                                                   \
		.name = #member, .kind = MM_FIELD_KIND(MM_FIELD_OF(type, member)),          \
		.optional = true, .offset = offsetof(type, member),                         \
		.bytes = sizeof(MM_FIELD_OF(type, member)), .count = 1, .end = (values_end) \
	}
/* As MM_OPTIONAL(), of which a struct that lacks it has @value (layout.h). */
#define MM_ADDED(type, member, value)                                                      \
	{                                                                                  \
		.name = #member, .kind = MM_FIELD_KIND(MM_FIELD_OF(type, member)),         \
		.optional = true, .offset = offsetof(type, member),                        \
		.bytes = sizeof(MM_FIELD_OF(type, member)), .count = 1, .initial = (value) \
	}
/* Text, or another array of bytes. */
#define MM_BYTES(type, member)                                                           \
	{                                                                                \
		.name = #member, .kind = MM_KIND_UINT, .offset = offsetof(type, member), \
		.bytes = 1, .count = sizeof(MM_FIELD_OF(type, member))                   \
	}
/* An array of numbers: all of it; the part in use; without zeros at its end. */
#define MM_ARRAY_AS(type, member, ...)                                                             \
	{                                                                                          \
		.name = #member, .kind = MM_FIELD_KIND(MM_FIELD_OF(type, member)[0]),              \
		.offset = offsetof(type, member), .bytes = sizeof(MM_FIELD_OF(type, member)[0]),   \
		.count = sizeof(MM_FIELD_OF(type, member)) / sizeof(MM_FIELD_OF(type, member)[0]), \
		__VA_ARGS__                                                                        \
	}
#define MM_ARRAY(type, member)             MM_ARRAY_AS(type, member, .used = NULL)
#define MM_ARRAY_USED(type, member, count) MM_ARRAY_AS(type, member, .used = (count))
#define MM_ARRAY_TRIMMED(type, member)     MM_ARRAY_AS(type, member, .trimmed = true)
/* Describes a member that is a struct, or an array of them, by the fields of that struct. */
#define MM_STRUCT(type, member, fields)                                                    \
	{                                                                                  \
		.name = #member, .kind = MM_KIND_STRUCT, .offset = offsetof(type, member), \
		.bytes = sizeof(MM_FIELD_OF(type, member)), .count = 1, .of = &(fields)    \
	}
#define MM_STRUCTS_AS(type, member, fields, ...)                                                   \
	{                                                                                          \
		.name = #member, .kind = MM_KIND_STRUCT, .offset = offsetof(type, member),         \
		.bytes = sizeof(MM_FIELD_OF(type, member)[0]),                                     \
		.count = sizeof(MM_FIELD_OF(type, member)) / sizeof(MM_FIELD_OF(type, member)[0]), \
		.of = &(fields), __VA_ARGS__                                                       \
	}
#define MM_STRUCTS(type, member, fields) MM_STRUCTS_AS(type, member, fields, .used = NULL)
#define MM_STRUCTS_USED(type, member, fields, count) \
	MM_STRUCTS_AS(type, member, fields, .used = (count))
#define MM_STRUCTS_TRIMMED(type, member, fields) \
	MM_STRUCTS_AS(type, member, fields, .trimmed = true)
#define MM_NOT_SAVED(type, member)                                                            \
	{                                                                                     \
		.name = #member, .kind = MM_KIND_NOT_SAVED, .offset = offsetof(type, member), \
		.bytes = sizeof(MM_FIELD_OF(type, member)), .count = 1                        \
	}

/* Defines the table of a struct; what follows @type are its fields. */
#define MM_FIELDS_DEFINE(symbol, type, ...)                                                      \
	static const struct mm_field symbol##_list[] = { __VA_ARGS__ };                          \
	const struct mm_fields symbol = { .name = #type,                                         \
					  .bytes = sizeof(type),                                 \
					  .n = sizeof(symbol##_list) / sizeof(symbol##_list[0]), \
					  .field = symbol##_list }
