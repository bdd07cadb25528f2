/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype - types of elements: their names in safetensors files, and their sizes
 *
 * Concept:   mmd stores, moves and transposes tensors and computes with none, so that any type of a
 *            known size is served; whether an engine can compute with it is the engine's matter.
 *            Names and sizes are those of the safetensors format (its README, "Format").
 * Threading: any.
 */
#pragma once

#include <stdint.h>

#include "mm/types.h"

/* Returns the type of that name; 0: there is none. */
uint32_t mm_dtype_find(const char *name);
/* Returns the name; NULL: the type is not known. */
const char *mm_dtype_name(uint32_t dtype);
/* Returns the bits of an element; 0: the type is not known. Elements may be less than a byte. */
uint32_t mm_dtype_bits(uint32_t dtype);
/* Returns the bytes that an element is aligned to: at least 1, also if the type is not known. */
uint32_t mm_dtype_alignment(uint32_t dtype);
