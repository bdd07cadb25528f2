/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces - SentencePiece's library as functions of C
 *
 * Concept:    the library has an interface for C++ only; pieces.cc is the one file that sees it. A
 *             build without the library has no such file.
 * Ownership:  mm_pieces_open() and mm_pieces_close().
 * Threading:  as vocab.h.
 * Trust:      the file may hold anything; the library checks it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mm_pieces; /* opaque */

enum mm_piece_kind { MM_PIECE_TEXT, MM_PIECE_CONTROL, MM_PIECE_BYTE, MM_PIECE_UNKNOWN };

/* Reads a tokenizer.model. Return: 0; -EBADMSG, with a sentence in @err; -ENOMEM. */
int mm_pieces_open(const char *path, struct mm_pieces **ret_pieces, char *err, size_t err_bytes);
void mm_pieces_close(struct mm_pieces *p);

uint32_t mm_pieces_count(const struct mm_pieces *p);
/* The id of the BOS; -1: there is none. */
int mm_pieces_bos(const struct mm_pieces *p);

/* Makes ids of a text, malloc'ed. Return: 0; -EINVAL; -ENOMEM. */
int mm_pieces_encode(const struct mm_pieces *p, const char *text, size_t bytes, uint32_t **ret_ids,
		     size_t *ret_n);

/* The text of a piece below the count, with U+2581 for blanks; it lives as long as @p. */
const char *mm_pieces_text(const struct mm_pieces *p, uint32_t id, size_t *ret_bytes,
			   enum mm_piece_kind *ret_kind);

#ifdef __cplusplus
}
#endif
