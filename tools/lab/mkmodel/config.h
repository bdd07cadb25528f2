/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - a model's sizes, and its config.json
 *
 * Concept:   Sizes are checked against the family of the model before anything is written.
 * Ownership: the caller owns the JSON object.
 * Threading: any; there is no shared state.
 */
#pragma once

#include "tools/lab/mkmodel/hf.h"

/* Limits of sizes. */
#define MK_WIDTH_MAX  (1 << 20) /* hidden, embedding, heads */
#define MK_FFN_MAX    (1 << 22)
#define MK_LAYERS_MAX 4096
#define MK_ROWS_MAX   (1 << 24) /* vocabulary, positions */

/**
 * mk_arch_check() - refuse sizes that no model of the family can have
 * @arch: all fields are set
 * @err:  gets the sentence, MK_ERROR_BYTES
 *
 * Return: 0; -EINVAL.
 */
int mk_arch_check(const struct mm_arch *arch, char *err);

/* Makes the contents of config.json; @dtype becomes its torch_dtype. NULL: no memory. */
struct json_t *mk_config_json(const struct mm_arch *arch, enum mm_dtype dtype);

/* Returns the name of a type: "F32" and so on; with @torch, as torch spells it: "float32". */
const char *mk_dtype_name(enum mm_dtype dtype, bool torch);
