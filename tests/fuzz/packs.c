/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes packing lists of a small model: with an accepted list no two tensors overlap. */
#include <stdlib.h>
#include <string.h>

#include "libclient/support/cleanup.h"
#include "libclient/model/layout.h"
#include "tests/fuzz/input.h"

#define M(n, d, r, a, b, at)                                                                       \
	{                                                                                          \
		.name = n, .dtype = MM_DTYPE_##d, .rank = r, .shape = { a, b }, .file_offset = at, \
		.bytes = (a) * (r > 1 ? (b) : 1) * (MM_DTYPE_##d == MM_DTYPE_F32 ? 4 : 2)          \
	}

static struct mm_st_tensor tensors[] = {
	M("e", F32, 2, 3, 5, 0),
	M("layers.0.b", F16, 1, 7, 0, 60),
	M("layers.0.k", F16, 2, 3, 5, 74),
	M("layers.0.q", F16, 2, 9, 5, 104),
	M("layers.0.z", F16, 2, 0, 5, 194),
	M("layers.1.b", F16, 1, 7, 0, 194),
	M("layers.1.k", F16, 2, 3, 5, 208),
	M("layers.1.q", F16, 2, 9, 5, 238),
	M("layers.1.w", F32, 2, 9, 5, 328),
	M("n", F16, 1, 7, 0, 508),
};

/*
 * Input: one rule per line: the flags as a letter, then names separated by blanks, the pack's
 *        first;
 * "-" is the empty name.
 */
static void read_rule(char *line, struct mm_load_pack *ret_rule)
{
	char *save = NULL, *word = strtok_r(line, " ", &save);

	*ret_rule = (struct mm_load_pack){ 0 };
	if (!word)
		return;
	ret_rule->flags = (uint32_t)(unsigned char)word[0] - 'a';
	word = strtok_r(NULL, " ", &save);
	if (word && strcmp(word, "-") != 0)
		memcpy(ret_rule->name, word, strnlen(word, sizeof(ret_rule->name)));
	while ((word = strtok_r(NULL, " ", &save)) && ret_rule->n_members < MM_PACK_MEMBERS_MAX) {
		char *member = ret_rule->member[ret_rule->n_members++];

		memcpy(member, word, strnlen(word, MM_TENSOR_NAME_BYTES));
	}
}

static const struct mm_dir_tensor *entry_of(const struct mm_layout *layout, const char *name)
{
	for (uint32_t i = 0; i < layout->dir.n_tensors; i++)
		if (strcmp(layout->tensors[i].name, name) == 0)
			return &layout->tensors[i];
	return NULL;
}

static void check_layout(const struct mm_layout *layout)
{
	mm_assert(layout->n_placed == MM_ARRAY_SIZE(tensors));
	for (uint32_t i = 1; i < layout->dir.n_tensors; i++)
		mm_assert(strcmp(layout->tensors[i - 1].name, layout->tensors[i].name) < 0);
	for (size_t i = 0; i < MM_ARRAY_SIZE(tensors); i++) {
		const struct mm_dir_tensor *a = entry_of(layout, tensors[i].name);

		mm_assert(a && a->bytes == tensors[i].bytes && !(a->flags & MM_TENSOR_PACK));
		mm_assert(a->offset + a->bytes <= layout->groups[a->group].bytes);
		mm_assert(a->offset % (a->flags & MM_TENSOR_MEMBER ? 2 : MM_TENSOR_ALIGN) == 0);
		for (size_t j = 0; j < i; j++) {
			const struct mm_dir_tensor *b = entry_of(layout, tensors[j].name);

			mm_assert(a->group != b->group || !a->bytes || !b->bytes ||
				  a->offset + a->bytes <= b->offset ||
				  b->offset + b->bytes <= a->offset);
		}
	}
	for (size_t i = 0; i < layout->n_placed; i++)
		mm_assert(layout->placed[i].store_offset + layout->placed[i].bytes <=
			  layout->dir.store_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
	static struct mm_packs packs;
	const struct mm_safetensors st = { tensors, MM_ARRAY_SIZE(tensors), 0 };
	const char *name = "model.safetensors";
	const struct mm_model_parts parts = { &st, &name, 1, 2, &packs };
	mm_cleanup(mm_free_ptr) char *text = malloc(size_bytes + 1);
	struct mm_layout layout = { 0 };
	struct mm_why why = { "" };
	struct mm_load_pack rule;
	char *save = NULL;
	int r = 0;

	mm_assert(text != NULL);
	if (size_bytes)
		memcpy(text, data, size_bytes);
	text[size_bytes] = 0;
	packs.count = 0;
	for (char *line = strtok_r(text, "\n", &save); r == 0 && line;
	     line = strtok_r(NULL, "\n", &save)) {
		read_rule(line, &rule);
		r = mm_packs_add(&packs, &rule, &why);
	}
	mm_packs_sort(&packs);
	if (r == 0)
		r = mm_layout_make(&parts, &layout, &why);
	if (r == 0)
		check_layout(&layout);
	else
		mm_assert(why.text[0] && !layout.tensors);
	mm_layout_done(&layout);
	return 0;
}
