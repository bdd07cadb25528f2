/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names - the layer of a tensor, from its name
 *
 * Concept:   The first component `layers.<l>.` or `h.<l>.` gives the layer l; a tensor without one
 *            belongs to no layer. That covers model.layers.<l>. (Llama, Qwen),
 *            model.decoder.layers.<l>. (OPT) and transformer.h.<l>. (GPT-2); l is plain decimal, so
 *            that no layer has two names.
 * Threading: any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_NO_LAYER UINT32_MAX

/*
 * The layer of a tensor, or MM_NO_LAYER. @ret_stack_len (may be NULL): length of the name before
 * the number.
 */
uint32_t mm_name_layer(const char *name, size_t *ret_stack_len);
