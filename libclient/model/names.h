/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names - what the name of a tensor says about its place in the model
 *
 * Concept: of the first component `layers.<l>.` or `h.<l>.`, l is the layer; whatever has none
 *          belongs to no layer. That covers model.layers.<l>. (Llama, Qwen),
 *          model.decoder.layers.<l>. (OPT) and transformer.h.<l>. (GPT-2); l is plain decimal, so
 *          that no layer has two names.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_NO_LAYER UINT32_MAX

/*
 * The layer of a tensor, or MM_NO_LAYER. @ret_stack_len (may be NULL): of the name before the
 * number.
 */
uint32_t mm_name_layer(const char *name, size_t *ret_stack_len);
