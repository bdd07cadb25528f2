/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explained - explanations as JSON has them, in lines for people
 *
 * Concept:   Explanations are lists of whole sentences under the key "sentences". Each begins a
 *            line of its own, and is wrapped.
 * Threading: one thread.
 */
#pragma once

#include <jansson.h>

/* Prints the sentences of @of, which may have none, to stdout. */
void mm_explained_print(const json_t *of);
