/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept_layout - the book of a build whose structs are laid out differently
 *
 * Concept:   Each book has the tables of its structs (described.h, mmd/fields/layout.h), and a
 *            number made of them. A core that finds the number of its own build maps the book as it
 *            is. Another one makes a book of its own: it copies the structs field by field, by
 *            their names, and takes the images of the cores as they are, for these are made of
 *            names anyway. Journals are not copied: a core that gives way leaves them empty
 *            (MM_BOOK_LEFT), and a book that was not left so is refused.
 * Trust:     The old book was written by another build, so that it is read within bounds, and
 *            numbers that choose something are checked.
 * Threading: core's thread, or that of preflight.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mmd/shell/kept.h"

/* Writes the tables of this build to @to, which has MM_LAYOUT_BYTES. Return: their bytes. */
size_t mm_kept_schema(void *to);
/* The number of this build: that of a book that has the same can be used as it is. */
uint64_t mm_kept_layout(void);

/**
 * mm_kept_try() - find out whether a book of those tables can be copied
 * @schema:       tables of any build
 * @schema_bytes: of them
 * @front:        a copy of the front of its book
 * @front_bytes:  of it
 * @why:          written on failure: a sentence
 * @why_bytes:    of @why
 *
 * Return: 0; negative errno.
 */
int mm_kept_try(const void *schema, size_t schema_bytes, const void *front, size_t front_bytes,
		char *why, size_t why_bytes);

/**
 * mm_kept_convert() - make a book of what a core of another build has left
 * @fd:         of its book; stays the caller's
 * @n_pools:    as it was
 * @n_sessions: as it was
 * @ret_kept:   written only on success; undo with mm_kept_done(). It is MM_BOOK_FRESH
 * @why:        written on failure: a sentence
 * @why_bytes:  of @why
 *
 * Return: 0; negative errno.
 */
int mm_kept_convert(int fd, uint32_t n_pools, uint32_t n_sessions, struct mm_kept *ret_kept,
		    char *why, size_t why_bytes);
