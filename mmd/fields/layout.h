/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_layout - how another build lays its structs out in memory that both share
 *
 * Concept:    A build writes the tables of its structs (fields.h), each field with its place,
 *             beside the memory that has them. Another build compares them with its own: if the
 *             number of both is the same it may use the memory as it is, else it copies field by
 *             field, each to the place that the name has here. Fields may move, become wider, get
 *             more elements, and be added if they are MM_OPTIONAL() or MM_ADDED() here; they may be
 *             missing here if they are optional there. All else is refused, by the name of the
 *             field.
 * Ownership:  the caller owns the memory and the struct.
 * Trust:      The reader takes any bytes: what is said of a field is within its struct before it
 *             counts, and numbers fit into the fields that they are copied to. What they mean the
 *             caller checks.
 * Threading:  any; no allocation.
 * Limits:     MM_LAYOUT_TYPES structs of MM_LAYOUT_FIELDS fields in all.
 */
#pragma once

#include "mmd/fields/fields.h"

#define MM_LAYOUT_BYTES  32768 /* room that suffices for one */
#define MM_LAYOUT_TYPES  64
#define MM_LAYOUT_FIELDS 512
#define MM_LAYOUT_WHY    160 /* bytes of a sentence */

struct mm_layout_field {
	const struct mm_field *here; /* NULL: a field that is not known here */
	enum mm_field_kind kind;
	uint32_t offset, bytes, count, type;
};

struct mm_layout_type {
	const struct mm_fields *here; /* NULL: a struct that is not known here */
	uint32_t bytes, first_field, fields;
};

struct mm_layout {
	const uint8_t *from;
	size_t bytes, at;
	uint32_t types, fields;
	struct mm_layout_type type[MM_LAYOUT_TYPES];
	struct mm_layout_field field[MM_LAYOUT_FIELDS];
	char why[MM_LAYOUT_WHY]; /* what is wrong, after a call that failed */
};

/* Memory that has structs of another build. */
struct mm_layout_memory {
	const uint8_t *base;
	size_t bytes;
	/* Returns where the next bytes other than 0 may be, from @at on; NULL: anywhere. */
	uint64_t (*next)(void *context, uint64_t at);
	void *context;
};

/* Writes the tables of @roots, and all that they use. Return: their bytes; 0: no room for them. */
size_t mm_layout_write(const struct mm_fields *const *roots, uint32_t n_roots, void *to,
		       size_t room);

/* Returns a number that is another one when the bytes are. */
uint64_t mm_layout_number(const void *layout, size_t bytes);

/*
 * Reads what another build has written, and compares it with @roots. Return: 0: what it is about
 * can be copied; -EBADMSG: damaged; -EPROTO: it cannot, for the reason in @layout->why.
 */
int mm_layout_open(struct mm_layout *layout, const void *from, size_t bytes,
		   const struct mm_fields *const *roots, uint32_t n_roots);

/* The size that a struct has there; 0: there is none. */
uint32_t mm_layout_bytes(const struct mm_layout *layout, const struct mm_fields *fields);

/**
 * mm_layout_copy() - copy a struct of another build
 * @layout: open
 * @fields: one of the roots
 * @memory: has the struct
 * @at:     where it is in @memory
 * @to:     the struct here, all 0
 *
 * Return: 0; -EBADMSG: it is not within the memory, or has a number that is impossible here.
 */
int mm_layout_copy(struct mm_layout *layout, const struct mm_fields *fields,
		   const struct mm_layout_memory *memory, uint64_t at, void *to);
