/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_placed - the place of a tensor in its file and in the store
 *
 * Concept:   A file is read in pieces that end anywhere; mm_placed_copy() copies a piece to its
 *            place, and transposes it on the way if the tensor is to be transposed, so that no
 *            second copy of a matrix is ever needed.
 * Threading: any, for pieces that do not overlap.
 */
#pragma once

#include <stdint.h>

struct mm_placed {
	uint64_t file_offset;
	uint64_t bytes;
	uint64_t store_offset;
	uint32_t file;  /* index of the file */
	uint32_t group; /* the group that store_offset is in */
	/* bytes of an element of a tensor that is to be transposed; 0: copied as it is */
	uint32_t item_bytes;
	uint64_t rows, cols; /* of the matrix in the file, if it is to be transposed */
};

/**
 * mm_placed_copy() - copy bytes @from .. @from + @bytes of a tensor to their place
 * @placed: any
 * @from:   within the tensor as it is in the file; @from + @bytes <= placed->bytes
 * @piece:  those bytes
 * @store:  the mapping
 */
void mm_placed_copy(const struct mm_placed *placed, uint64_t from, uint64_t bytes,
		    const void *piece, void *store);
