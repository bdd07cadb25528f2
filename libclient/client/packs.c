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

static int pack_opts_read(struct mm_client *c, const struct mm_model_opts *opts,
			  struct mm_model_opts *ret_opts)
{
	*ret_opts = (struct mm_model_opts){ 0 };
	if (!opts)
		return 0;
	if (mm_sized_read(opts, MM_V1_MODEL_OPTS, ret_opts, sizeof(*ret_opts)))
		return mm_fail(c, -EINVAL, "opts: " MM_SIZE_TEXT);
	if (ret_opts->reserved)
		return mm_fail(c, -EINVAL, "opts: a reserved field is set");
	if (ret_opts->n_packs > MM_LOAD_PACKS_MAX)
		return mm_fail(c, -E2BIG, "%zu packing rules, at most %d can be", ret_opts->n_packs,
			       MM_LOAD_PACKS_MAX);
	if (ret_opts->n_packs && !ret_opts->packs)
		return mm_fail(c, -EINVAL, "opts: n_packs without packs");
	if (ret_opts->n_packs &&
	    (ret_opts->pack_size < MM_V1_PACK || ret_opts->pack_size > MM_SIZED_MAX))
		return mm_fail(c, -EINVAL, "opts: pack_size is not the sizeof of a packing rule");
	return 0;
}

/* Rules lie one pack_size behind the other, in the length of the caller's version. */
static int pack_read(struct mm_client *c, const struct mm_model_opts *opts, size_t i,
		     struct mm_load_pack *ret_rule)
{
	const char *theirs = (const char *)opts->packs + i * opts->pack_size;
	struct mm_pack pack;

	if (mm_sized_copy_in(theirs, opts->pack_size, &pack, sizeof(pack)))
		return mm_fail(c, -EINVAL,
			       "packing rule %zu: a field is set that this library does "
			       "not know",
			       i);
	return pack_put_rule(c, i, &pack, ret_rule);
}

int mm_packs_copy(struct mm_client *client, const struct mm_model_opts *opts,
		  struct mm_load_pack **ret_rules, size_t *ret_count,
		  struct mm_model_opts *ret_opts)
{
	mm_cleanup(mm_free_ptr) struct mm_load_pack *rules = NULL;
	struct mm_model_opts copy;
	int r = pack_opts_read(client, opts, &copy);

	*ret_rules = NULL;
	*ret_count = 0;
	*ret_opts = copy;
	if (r || !copy.n_packs)
		return r;
	if (!mm_fault("packs.copy"))
		rules = calloc(copy.n_packs, sizeof(*rules));
	if (!rules)
		return mm_fail(client, -ENOMEM, "out of memory");
	for (size_t i = 0; i < copy.n_packs && !r; i++)
		r = pack_read(client, &copy, i, &rules[i]);
	if (r)
		return r;
	*ret_rules = rules;
	*ret_count = copy.n_packs;
	rules = NULL;
	return 0;
}
