/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shapes - published models that are built in, and the sizes of a model in bytes
 *
 * Concept:    A benchmark needs a model's sizes, not its weights. Bytes are those of the layout
 *             that load makes (libclient/model/layout.h): matrices of a layer together, everything
 *             else in one resident group that never cycles.
 * Ownership:  static data.
 * Threading:  any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "libclient/model/arch.h"
#include "libclient/support/options.h"

struct mm_shape {
	const char *name;
	struct mm_arch arch;
};

/* The model at @index; NULL behind the last. */
const struct mm_shape *mm_shape_at(size_t index);
/* The model of that name, in any case of letters; NULL: not built in. */
const struct mm_shape *mm_shape_find(const char *name);
/* The names, as choices of an option, and its parser: into a const char *. */
extern const struct mm_opt_choice mm_shape_choices[];
mm_opt_parse_fn mm_shape_parse;
/* All names with commas between them, for a message; cut to @bytes. */
void mm_shape_names(char *text, size_t bytes);
#define MM_SHAPE_NAMES_BYTES 256

/* @element_bytes: bytes of an element of a weight, 2 for fp16. */
/* matrices of one layer */
uint64_t mm_arch_layer_bytes(const struct mm_arch *arch, uint32_t element_bytes);
/* everything else */
uint64_t mm_arch_resident_bytes(const struct mm_arch *arch, uint32_t element_bytes);
/* all weights */
uint64_t mm_arch_weight_bytes(const struct mm_arch *arch, uint32_t element_bytes);
/* Bytes of the keys and values of one token in all layers. */
uint64_t mm_arch_kv_token_bytes(const struct mm_arch *arch, uint32_t element_bytes);
