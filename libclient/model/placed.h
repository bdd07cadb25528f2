/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_placed - from where in which file a tensor comes, and where in the store it goes
 *
 * Concept: what has been read of a file comes in pieces that end anywhere; mm_placed_copy() puts a
 *          piece where it belongs, transposing on the way where that is asked for: no second copy
 *          of a matrix is ever needed.
 */
#pragma once

#include <stdint.h>

struct mm_placed {
	uint64_t file_offset;
	uint64_t bytes;
	uint64_t store_offset;
	uint32_t file;       /* index */
	uint32_t group;      /* that store_offset lies in */
	uint32_t item_bytes; /* 0 = as it is; else an element's: to be transposed */
	uint64_t rows, cols; /* of the matrix in the file, where it is transposed */
};

/**
 * mm_placed_copy() - bytes @from .. @from + @bytes of the tensor to where they belong
 * @placed: any
 * @from:   within the tensor as it lies in the file; @from + @bytes <= placed->bytes
 * @piece:  those bytes
 * @store:  the mapping
 */
void mm_placed_copy(const struct mm_placed *placed, uint64_t from, uint64_t bytes,
		    const void *piece, void *store);
