/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/pack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WILDCARD '*'

const char *mm_pack_label(const struct mm_load_pack *rule)
{
	return rule->name[0] ? rule->name : rule->member[0];
}

bool mm_pack_has_wildcard(const struct mm_load_pack *rule)
{
	return strchr(rule->member[0], WILDCARD) != NULL;
}

/*
 * True for printable ASCII with only zeros behind its end: otherwise equal lists could have
 * different hashes.
 */
static bool name_is_clean(const char name[MM_TENSOR_NAME_BYTES])
{
	size_t len = strnlen(name, MM_TENSOR_NAME_BYTES);

	if (len == MM_TENSOR_NAME_BYTES)
		return false;
	for (size_t i = 0; i < len; i++)
		if (name[i] < 0x20 || name[i] > 0x7e)
			return false;
	for (size_t i = len; i < MM_TENSOR_NAME_BYTES; i++)
		if (name[i])
			return false;
	return true;
}

static int rule_check_strings(const struct mm_load_pack *rule, size_t number, struct mm_why *why)
{
	if (!name_is_clean(rule->name))
		return mm_refuse(why, -EINVAL, "packing rule %zu: its name is not a string",
				 number);
	for (uint32_t m = 0; m < MM_PACK_MEMBERS_MAX; m++)
		if (!name_is_clean(rule->member[m]) ||
		    (m < rule->n_members) != !!rule->member[m][0])
			return mm_refuse(why, -EINVAL,
					 "packing rule %zu: member %u is not a string, or there "
					 "are not as many as it says",
					 number, m);
	return 0;
}

static int rule_check_wildcard(const char *name, bool want, const struct mm_load_pack *rule,
			       struct mm_why *why)
{
	const char *first = strchr(name, WILDCARD);

	if (first && strchr(first + 1, WILDCARD))
		return mm_refuse(why, -EINVAL, "pack %s: %s has more than one *",
				 mm_pack_label(rule), name);
	if (!!first != want)
		return mm_refuse(why, -EINVAL, "pack %s: %s, but not %s, has a * for the layer",
				 mm_pack_label(rule), want ? rule->member[0] : name,
				 want ? name : rule->member[0]);
	return 0;
}

static int rule_check_names(const struct mm_load_pack *rule, struct mm_why *why)
{
	bool has_wildcard = mm_pack_has_wildcard(rule);
	int r = rule->name[0] ? rule_check_wildcard(rule->name, has_wildcard, rule, why) : 0;

	for (uint32_t m = 0; r == 0 && m < rule->n_members; m++)
		r = rule_check_wildcard(rule->member[m], has_wildcard, rule, why);
	return r;
}

int mm_packs_add(struct mm_packs *packs, const struct mm_load_pack *rule, struct mm_why *why)
{
	int r;

	if (packs->count == MM_LOAD_PACKS_MAX)
		return mm_refuse(why, -E2BIG, "more than %d packing rules", MM_LOAD_PACKS_MAX);
	if (rule->flags & ~MM_PACK_KNOWN)
		return mm_refuse(why, -EINVAL, "packing rule %zu: unknown flags %#x", packs->count,
				 rule->flags & ~MM_PACK_KNOWN);
	if (rule->n_members < 1 || rule->n_members > MM_PACK_MEMBERS_MAX)
		return mm_refuse(why, -EINVAL, "packing rule %zu: %u members, 1 to %d can be",
				 packs->count, rule->n_members, MM_PACK_MEMBERS_MAX);
	r = rule_check_strings(rule, packs->count, why);
	if (r == 0)
		r = rule_check_names(rule, why);
	if (r < 0)
		return r;
	packs->rule[packs->count++] = *rule;
	return 0;
}

static int rule_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct mm_load_pack));
}

void mm_packs_sort(struct mm_packs *packs)
{
	qsort(packs->rule, packs->count, sizeof(packs->rule[0]), rule_compare);
}

void mm_packs_hash(const struct mm_packs *packs, struct mm_sha256 *sha)
{
	const uint64_t count = packs->count;

	mm_sha256_update(sha, &count, sizeof(count));
	mm_sha256_update(sha, packs->rule, packs->count * sizeof(packs->rule[0]));
}

bool mm_pack_expand(const char *pattern, uint32_t layer, char ret_name[MM_TENSOR_NAME_BYTES])
{
	const char *wildcard = strchr(pattern, WILDCARD);
	int len;

	if (wildcard)
		len = snprintf(ret_name, MM_TENSOR_NAME_BYTES, "%.*s%u%s",
			       (int)(wildcard - pattern), pattern, layer, wildcard + 1);
	else
		len = snprintf(ret_name, MM_TENSOR_NAME_BYTES, "%s", pattern);
	return len < MM_TENSOR_NAME_BYTES;
}
