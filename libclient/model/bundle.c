/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/model/bundle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/dtype.h"
#include "libclient/support/fault.h"
#include "libclient/model/names.h"

static int source_compare_key(const void *key, const void *element)
{
	return strcmp(key, ((const struct mm_bundle_source *)element)->tensor->name);
}

void mm_bundle_shape(const struct mm_load_pack *rule, const struct mm_st_tensor *tensor,
		     uint64_t ret_shape[4])
{
	memcpy(ret_shape, tensor->shape, sizeof(tensor->shape));
	if (rule->flags & MM_PACK_TRANSPOSE) {
		ret_shape[0] = tensor->shape[1];
		ret_shape[1] = tensor->shape[0];
	}
}

static int bundle_check_layer(const struct mm_load_pack *rule, const char *name, uint32_t layer,
			      struct mm_why *why)
{
	uint32_t have = mm_name_layer(name, NULL);

	if (have == layer)
		return 0;
	if (mm_pack_has_wildcard(rule))
		return mm_refuse(why, -EINVAL, "pack %s: in %s the * is not the number of a layer",
				 mm_pack_label(rule), name);
	return mm_refuse(why, -EINVAL, "pack %s: %s is of another layer than %s",
			 mm_pack_label(rule), name, rule->member[0]);
}

/* Checks that @member may be in a bundle beside @first, the first member. */
static int bundle_check_member(const struct mm_load_pack *rule,
			       const struct mm_bundle_source *first,
			       const struct mm_bundle_source *member, struct mm_why *why)
{
	const struct mm_st_tensor *a = first->tensor, *b = member->tensor;
	const char *label = mm_pack_label(rule);
	uint64_t shape_a[4], shape_b[4];

	if (member->bundle != MM_NO_BUNDLE)
		return mm_refuse(why, -EINVAL, "pack %s: tensor %s is in a pack already", label,
				 b->name);
	if (b->rank < 1 || b->bytes == 0)
		return mm_refuse(why, -EINVAL, "pack %s: tensor %s has no rows", label, b->name);
	if ((rule->flags & MM_PACK_TRANSPOSE) && b->rank != 2)
		return mm_refuse(why, -EINVAL,
				 "pack %s: tensor %s has rank %u, only matrices (rank 2) can be "
				 "transposed",
				 label, b->name, b->rank);
	if ((rule->flags & MM_PACK_TRANSPOSE) && mm_dtype_bits(b->dtype) < 8)
		return mm_refuse(why, -EINVAL,
				 "pack %s: tensor %s has elements of %u bits, which cannot be "
				 "transposed",
				 label, b->name, mm_dtype_bits(b->dtype));
	if (a->dtype != b->dtype)
		return mm_refuse(why, -EINVAL, "pack %s: tensors %s and %s differ in dtype", label,
				 a->name, b->name);
	mm_bundle_shape(rule, a, shape_a);
	mm_bundle_shape(rule, b, shape_b);
	if (a->rank != b->rank || memcmp(&shape_a[1], &shape_b[1], 3 * sizeof(shape_a[0])) != 0)
		return mm_refuse(why, -EINVAL,
				 "pack %s: tensors %s and %s differ in rank or inner dimensions",
				 label, a->name, b->name);
	return 0;
}

/* Finds the members; *ret_found is how many of them there are. */
static int bundle_find_members(const struct mm_load_pack *rule, uint32_t layer,
			       struct mm_bundle_source *sources, size_t n_sources,
			       uint32_t ret_member[], uint32_t *ret_found, struct mm_why *why)
{
	uint32_t missing = MM_PACK_MEMBERS_MAX, found = 0;
	char name[MM_TENSOR_NAME_BYTES];

	for (uint32_t m = 0; m < rule->n_members; m++) {
		const struct mm_bundle_source *source = NULL;

		if (mm_pack_expand(rule->member[m], layer, name))
			source = bsearch(name, sources, n_sources, sizeof(*sources),
					 source_compare_key);
		if (source) {
			ret_member[m] = (uint32_t)(source - sources);
			found++;
		} else if (missing == MM_PACK_MEMBERS_MAX) {
			missing = m;
		}
	}
	*ret_found = found;
	if (found == rule->n_members || (!found && (rule->flags & MM_PACK_OPTIONAL)))
		return 0;
	if (mm_pack_has_wildcard(rule))
		return mm_refuse(why, -EINVAL, "pack %s: layer %u has no tensor %s",
				 mm_pack_label(rule), layer, rule->member[missing]);
	return mm_refuse(why, -EINVAL, "pack %s: the model has no tensor %s", mm_pack_label(rule),
			 rule->member[missing]);
}

static int bundle_set_name(struct mm_bundle *bundle, uint32_t layer, uint32_t members_layer,
			   struct mm_why *why)
{
	const struct mm_load_pack *rule = bundle->rule;

	if (!rule->name[0])
		return 0;
	if (!mm_pack_expand(rule->name, layer, bundle->name))
		return mm_refuse(why, -EINVAL, "pack %s: the name is too long", rule->name);
	return bundle_check_layer(rule, bundle->name, members_layer, why);
}

/* Applies the rule to one layer, or as it is. 1: the model has none of its tensors. */
static int bundle_make(struct mm_bundle *bundle, uint32_t layer, uint32_t index,
		       struct mm_bundle_source *sources, size_t n_sources, struct mm_why *why)
{
	const struct mm_load_pack *rule = bundle->rule;
	uint32_t found = 0, members_layer;
	int r;

	r = bundle_find_members(rule, layer, sources, n_sources, bundle->member, &found, why);
	if (r < 0 || !found)
		return r < 0 ? r : 1;
	members_layer = mm_pack_has_wildcard(rule)
				? layer
				: mm_name_layer(sources[bundle->member[0]].tensor->name, NULL);
	r = bundle_set_name(bundle, layer, members_layer, why);
	for (uint32_t m = 0; r == 0 && m < rule->n_members; m++) {
		struct mm_bundle_source *source = &sources[bundle->member[m]];
		uint64_t shape[4];

		r = bundle_check_layer(rule, source->tensor->name, members_layer, why);
		if (r == 0)
			r = bundle_check_member(rule, &sources[bundle->member[0]], source, why);
		if (r < 0)
			return r;
		source->bundle = index;
		/* No sum can wrap: tensors are not empty and are in files of at most 16 TiB. */
		mm_bundle_shape(rule, source->tensor, shape);
		bundle->rows += shape[0];
		bundle->bytes += source->tensor->bytes;
	}
	return r;
}

int mm_bundles_make(const struct mm_packs *packs, uint32_t layers, struct mm_bundle_source *sources,
		    size_t n_sources, struct mm_bundles *ret_bundles, struct mm_why *why)
{
	mm_cleanup(mm_bundles_done) struct mm_bundles all = { 0 };

	all.bundle = calloc(packs->count * layers + 1, sizeof(*all.bundle));
	if (!all.bundle || mm_fault("load.bundles"))
		return mm_refuse(why, -ENOMEM, "no memory for the packing list");
	for (size_t i = 0; i < packs->count; i++) {
		uint32_t times = mm_pack_has_wildcard(&packs->rule[i]) ? layers : 1;

		for (uint32_t l = 0; l < times; l++) {
			struct mm_bundle *bundle = &all.bundle[all.count];
			int r;

			bundle->rule = &packs->rule[i];
			r = bundle_make(bundle, l, all.count, sources, n_sources, why);
			if (r < 0)
				return r;
			all.count += r == 0;
			all.named += r == 0 && bundle->name[0];
		}
	}
	*ret_bundles = all;
	all = (struct mm_bundles){ 0 };
	return 0;
}

void mm_bundles_done(struct mm_bundles *bundles)
{
	free(bundles->bundle);
	*bundles = (struct mm_bundles){ 0 };
}
