/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_packs - the tenant's packing list: which tensors lie adjacent, which transposed
 *
 * Concept:   Rules with a wildcard for the layer come from the tenant (abi.h, struct mm_load_pack).
 *            Each message is checked by itself as it comes; what rules mean for a model is the
 *            layout's business. The list is part of the model's identity, its order is not.
 * Ownership: plain values.
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

/* Takes one rule; -E2BIG too many; -EINVAL malformed or there already. */
int mm_packs_add(struct mm_packs *packs, const struct mm_load_pack *rule, struct mm_why *why);

/* Brings the rules into an order that does not depend on how they came. */
void mm_packs_sort(struct mm_packs *packs);

void mm_packs_hash(const struct mm_packs *packs, struct mm_sha256 *sha);

/* Does the rule hold for every layer? Of a checked rule. */
bool mm_pack_is_wild(const struct mm_load_pack *rule);

/* What a refusal calls the rule: its name, or that of its first member. */
const char *mm_pack_label(const struct mm_load_pack *rule);

/* Writes @pattern with @layer for its wildcard; false: too long to be a tensor's name. */
bool mm_pack_expand(const char *pattern, uint32_t layer, char ret_name[MM_TENSOR_NAME_BYTES]);
