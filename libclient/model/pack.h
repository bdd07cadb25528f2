/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_packs - the tenant's packing list: which tensors are adjacent, which transposed
 *
 * Concept:   Rules with a wildcard for the layer come from the tenant (abi.h, struct mm_load_pack).
 *            Each message is checked by itself as it comes; mm_bundles applies the rules to a
 *            model. The list is part of the model's identity, its order is not.
 * Ownership: plain values.
 * Threading: none shared.
 * Limits:    MM_LOAD_PACKS_MAX rules of MM_PACK_MEMBERS_MAX members.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "libclient/model/sha256.h"
#include "libclient/model/why.h"

struct mm_packs {
	struct mm_load_pack rule[MM_LOAD_PACKS_MAX];
	size_t count;
};

/* Adds one rule; -E2BIG too many; -EINVAL malformed or there already. */
int mm_packs_add(struct mm_packs *packs, const struct mm_load_pack *rule, struct mm_why *why);

/* Sorts the rules, so that their order does not depend on how they came. */
void mm_packs_sort(struct mm_packs *packs);

void mm_packs_hash(const struct mm_packs *packs, struct mm_sha256 *sha);

/* True if @rule, which was checked, is for every layer. */
bool mm_pack_has_wildcard(const struct mm_load_pack *rule);

/* The name of a rule in refusals: its own, or that of its first member. */
const char *mm_pack_label(const struct mm_load_pack *rule);

/* Writes @pattern with @layer in place of its wildcard; false: too long for a tensor's name. */
bool mm_pack_expand(const char *pattern, uint32_t layer, char ret_name[MM_TENSOR_NAME_BYTES]);
