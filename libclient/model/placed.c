/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/placed.h"

#include <string.h>

#include "libclient/base/base.h"

/* elements: the cache lines of a tile, on either side, stay in the first-level cache */
#define TILE 32

struct move {
	const struct mm_placed *placed;
	uint64_t from;     /* position of piece within the tensor */
	const char *piece; /* the bytes that were read */
	char *to;          /* the tensor in the store */
};

static uint64_t transposed_at(const struct mm_placed *p, uint64_t row, uint64_t col)
{
	return (col * p->rows + row) * p->item_bytes;
}

/*
 * Copies bytes that are not a whole element: files need not be aligned, so a piece may end in the
 * middle of one.
 */
static void piece_move_bytes(const struct move *m, uint64_t begin, uint64_t end)
{
	const struct mm_placed *p = m->placed;

	for (uint64_t at = begin; at < end; at++) {
		uint64_t item = at / p->item_bytes;

		m->to[transposed_at(p, item / p->cols, item % p->cols) + at % p->item_bytes] =
			m->piece[at - m->from];
	}
}

/* Copies an element: of known sizes that is one load and one store. */
static void item_copy(char *to, const char *from, uint32_t bytes)
{
	switch (bytes) {
	case 1:
		*to = *from;
		return;
	case 2:
		memcpy(to, from, 2);
		return;
	case 4:
		memcpy(to, from, 4);
		return;
	default:
		memcpy(to, from, bytes);
	}
}

/* Copies rows [r0, r1) of columns [c0, c1). */
static void piece_move_tile(const struct move *m, uint64_t r0, uint64_t r1, uint64_t c0,
			    uint64_t c1)
{
	const struct mm_placed *p = m->placed;

	for (uint64_t c = c0; c < c1; c++) {
		char *to = m->to + transposed_at(p, r0, c);

		for (uint64_t r = r0; r < r1; r++, to += p->item_bytes) {
			const char *from = m->piece + ((r * p->cols + c) * p->item_bytes - m->from);

			item_copy(to, from, p->item_bytes);
		}
	}
}

static void piece_move_rows(const struct move *m, uint64_t r0, uint64_t r1, uint64_t c0,
			    uint64_t c1)
{
	for (uint64_t r = r0; r < r1; r += TILE)
		for (uint64_t c = c0; c < c1; c += TILE)
			piece_move_tile(m, r, MM_MIN(r + TILE, r1), c, MM_MIN(c + TILE, c1));
}

/* Copies elements [first, end): the rest of a row, whole rows, the beginning of a row. */
static void piece_move_items(const struct move *m, uint64_t first, uint64_t end)
{
	uint64_t cols = m->placed->cols;
	uint64_t row = first / cols, last = end / cols;

	if (row == last) {
		piece_move_rows(m, row, row + 1, first % cols, end % cols);
		return;
	}
	if (first % cols) {
		piece_move_rows(m, row, row + 1, first % cols, cols);
		row++;
	}
	piece_move_rows(m, row, last, 0, cols);
	piece_move_rows(m, last, last + 1, 0, end % cols);
}

void mm_placed_copy(const struct mm_placed *placed, uint64_t from, uint64_t bytes,
		    const void *piece, void *store)
{
	struct move m = { placed, from, piece, (char *)store + placed->store_offset };
	uint64_t end = from + bytes, item = placed->item_bytes, first, last;

	if (!item) {
		memcpy(m.to + from, piece, bytes);
		return;
	}
	first = mm_div_up(from, item);
	last = end / item;
	if (first >= last) {
		piece_move_bytes(&m, from, end);
		return;
	}
	piece_move_bytes(&m, from, first * item);
	piece_move_items(&m, first, last);
	piece_move_bytes(&m, last * item, end);
}
