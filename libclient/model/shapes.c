/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/shapes.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "libclient/base/base.h"

#define OPT(l, h, n)                                                                    \
	{                                                                               \
		.family = MM_FAMILY_OPT, .layers = (l), .hidden = (h), .heads = (n),    \
		.kv_heads = (n), .head_dim = 128, .ffn = 4 * (h), .vocab = 50272,       \
		.max_position = 2048, .tied = true, .embed_dim = (h), .norm_eps = 1e-5, \
		.rope = { .theta = 10000 },                                             \
	}
#define ROPE_MODEL(f, l, h, n, kv, ff, v, max, base, eps)                                    \
	{                                                                                    \
		.family = (f), .layers = (l), .hidden = (h), .heads = (n), .kv_heads = (kv), \
		.head_dim = 128, .ffn = (ff), .vocab = (v), .max_position = (max),           \
		.embed_dim = (h), .norm_eps = (eps), .rope = { .theta = (base) },            \
	}

#define TIED_MODEL(f, l, h, n, kv, ff, v, max, base, eps)                                        \
	{                                                                                        \
		.family = (f), .layers = (l), .hidden = (h), .heads = (n), .kv_heads = (kv),     \
		.head_dim = 128, .ffn = (ff), .vocab = (v), .max_position = (max), .tied = true, \
		.embed_dim = (h), .norm_eps = (eps), .rope = { .theta = (base) },                \
	}

/* The sizes are from the publishers' config.json. */
/* clang-format off */
#define SHAPES(X)                                                                                \
	X("OPT-6.7B", OPT(32, 4096, 32))                                                         \
	X("OPT-13B", OPT(40, 5120, 40))                                                          \
	X("OPT-30B", OPT(48, 7168, 56))                                                          \
	X("Llama-2-13B",                                                                         \
	  ROPE_MODEL(MM_FAMILY_LLAMA, 40, 5120, 40, 40, 13824, 32000, 4096, 1e4, 1e-5))          \
	X("Llama-3-8B",                                                                          \
	  ROPE_MODEL(MM_FAMILY_LLAMA, 32, 4096, 32, 8, 14336, 128256, 8192, 5e5, 1e-5))          \
	X("Qwen2.5-3B",                                                                          \
	  TIED_MODEL(MM_FAMILY_QWEN2, 36, 2048, 16, 2, 11008, 151936, 32768, 1e6, 1e-6))         \
	X("Qwen2.5-14B",                                                                         \
	  ROPE_MODEL(MM_FAMILY_QWEN2, 48, 5120, 40, 8, 13824, 152064, 131072, 1e6, 1e-5))        \
	X("Qwen2.5-72B",                                                                         \
	  ROPE_MODEL(MM_FAMILY_QWEN2, 80, 8192, 64, 8, 29568, 152064, 131072, 1e6, 1e-5))
#define SHAPE(name, arch)        { name, arch },
#define SHAPE_CHOICE(name, arch) { name, 0, NULL },
/* clang-format on */

static const struct mm_shape known_shapes[] = { SHAPES(SHAPE) };
const struct mm_opt_choice mm_shape_choices[] = { SHAPES(SHAPE_CHOICE){ NULL, 0, NULL } };

const struct mm_shape *mm_shape_at(size_t index)
{
	return index < MM_ARRAY_SIZE(known_shapes) ? &known_shapes[index] : NULL;
}

const struct mm_shape *mm_shape_find(const char *name)
{
	for (size_t i = 0; i < MM_ARRAY_SIZE(known_shapes); i++) {
		if (!strcasecmp(known_shapes[i].name, name))
			return &known_shapes[i];
	}
	return NULL;
}

int mm_shape_parse(const struct mm_opt *opt, char *text, void *into, char *why)
{
	uint64_t unused;

	if (!mm_shape_find(text))
		return mm_opt_choice(opt, text, strlen(text), &unused, why);
	memcpy((char *)into + opt->at, &text, sizeof(text));
	return 0;
}

void mm_shape_names(char *text, size_t bytes)
{
	size_t at = 0;

	*text = '\0';
	for (size_t i = 0; i < MM_ARRAY_SIZE(known_shapes) && at < bytes; i++)
		at += (size_t)snprintf(text + at, bytes - at, i ? ", %s" : "%s",
				       known_shapes[i].name);
}

/* Elements of one weight; a vector's rows are 0. */
static uint64_t weight_elements(const struct mm_arch *arch, enum mm_weight w)
{
	uint32_t rows, columns;

	mm_arch_size(arch, w, &rows, &columns);
	return (uint64_t)MM_MAX(rows, 1u) * columns;
}

static bool weight_is_matrix(const struct mm_arch *arch, enum mm_weight w)
{
	uint32_t rows, columns;

	mm_arch_size(arch, w, &rows, &columns);
	return rows != 0;
}

uint64_t mm_arch_layer_bytes(const struct mm_arch *arch, uint32_t element_bytes)
{
	uint64_t sum = 0;

	for (enum mm_weight w = MM_W_LAYER_FIRST; w <= MM_W_LAYER_LAST; w++) {
		if (mm_arch_has(arch, w) && weight_is_matrix(arch, w))
			sum += weight_elements(arch, w);
	}
	return sum * element_bytes;
}

uint64_t mm_arch_weight_bytes(const struct mm_arch *arch, uint32_t element_bytes)
{
	uint64_t sum = 0;

	for (enum mm_weight w = 0; w < MM_W_COUNT; w++) {
		if (mm_arch_has(arch, w))
			sum += weight_elements(arch, w) *
			       (mm_weight_per_layer(w) ? arch->layers : 1);
	}
	return sum * element_bytes;
}

uint64_t mm_arch_resident_bytes(const struct mm_arch *arch, uint32_t element_bytes)
{
	return mm_arch_weight_bytes(arch, element_bytes) -
	       arch->layers * mm_arch_layer_bytes(arch, element_bytes);
}

uint64_t mm_arch_kv_token_bytes(const struct mm_arch *arch, uint32_t element_bytes)
{
	return UINT64_C(2) * arch->layers * arch->kv_heads * arch->head_dim * element_bytes;
}
