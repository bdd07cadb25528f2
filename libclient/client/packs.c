/* SPDX-License-Identifier: Apache-2.0 */
/* Copies packing rules from the options of mm_model_load() into messages for load. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/client/internal.h"
#include "libclient/support/cleanup.h"
#include "libclient/support/fault.h"

/* Refuses only names that a message cannot hold; load checks rules against the model. */
static int pack_put_name(struct mm_client *c, size_t number, const char *name, char *ret_name)
{
	size_t len = name ? strlen(name) : 0;

	if (!len)
		return mm_fail(c, -EINVAL, "packing rule %zu: a member without a name", number);
	if (len >= MM_TENSOR_NAME_BYTES)
		return mm_fail(c, -EINVAL, "packing rule %zu: name %.40s... is too long", number,
			       name);
	memcpy(ret_name, name, len);
	return 0;
}

static int pack_put_rule(struct mm_client *c, size_t number, const struct mm_pack *pack,
			 struct mm_load_pack *ret_rule)
{
	int r = 0;

	*ret_rule = (struct mm_load_pack){ .magic = MM_ABI_MAGIC,
					   .kind = MM_LOAD_PACK,
					   .flags = pack->flags,
					   .n_members = pack->n_members };
	if (pack->n_members < 1 || pack->n_members > MM_PACK_MEMBERS_MAX)
		return mm_fail(c, -EINVAL, "packing rule %zu: %u members, 1 to %d can be", number,
			       pack->n_members, MM_PACK_MEMBERS_MAX);
	if (pack->name)
		r = pack_put_name(c, number, pack->name, ret_rule->name);
	for (uint32_t m = 0; !r && m < pack->n_members; m++)
		r = pack_put_name(c, number, pack->members[m], ret_rule->member[m]);
	return r;
}

static int pack_opts_check(struct mm_client *c, const struct mm_model_opts *opts)
{
	const unsigned char *bytes = (const unsigned char *)opts;

	if (opts->size < sizeof(*opts))
		return mm_fail(c, -EINVAL, "opts: size is not what this version knows");
	for (size_t i = sizeof(*opts); i < opts->size; i++)
		if (bytes[i])
			return mm_fail(c, -EINVAL, "opts: a field that this version lacks is set");
	if (opts->n_packs > MM_LOAD_PACKS_MAX)
		return mm_fail(c, -E2BIG, "%zu packing rules, at most %d can be", opts->n_packs,
			       MM_LOAD_PACKS_MAX);
	return 0;
}

int mm_packs_copy(struct mm_client *client, const struct mm_model_opts *opts,
		  struct mm_load_pack **ret_rules, size_t *ret_count)
{
	mm_cleanup(mm_free_ptr) struct mm_load_pack *rules = NULL;
	int r = opts ? pack_opts_check(client, opts) : 0;

	*ret_rules = NULL;
	*ret_count = 0;
	if (r || !opts || !opts->n_packs)
		return r;
	if (!mm_fault("packs.copy"))
		rules = calloc(opts->n_packs, sizeof(*rules));
	if (!rules)
		return mm_fail(client, -ENOMEM, "out of memory");
	for (size_t i = 0; i < opts->n_packs && !r; i++)
		r = pack_put_rule(client, i, &opts->packs[i], &rules[i]);
	if (r)
		return r;
	*ret_rules = rules;
	*ret_count = opts->n_packs;
	rules = NULL;
	return 0;
}
