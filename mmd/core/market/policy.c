/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/policy.h"

#include "libclient/base/base.h"
#include "mmd/core/market/home.h"
#include "mmd/core/market/lend.h"
#include "mmd/core/market/naive.h"
#include "mmd/core/market/rotate.h"

static uint64_t policy_take_elastic(struct mm_core *c, uint64_t short_pages, uint32_t account,
				    bool dry_run)
{
	return mm_c_take_chunks(c, short_pages, account, true, dry_run);
}

static uint64_t policy_take_remap(struct mm_core *c, uint64_t short_pages, uint32_t account,
				  bool dry_run)
{
	struct mm_c_tenant *order[MM_CORE_TENANTS_MAX];
	uint64_t got = mm_c_take_chunks(c, short_pages, account, true, dry_run);
	uint32_t n = mm_c_lenders(c, order);

	for (uint32_t i = 0; i < n && got < short_pages; i++)
		if (mm_c_of_account(order[i], account))
			got += mm_c_take_layers(c, order[i], short_pages - got, account, dry_run);
	if (got < short_pages && account == MM_DOMAIN_NONE)
		got += mm_c_take_parts(c, short_pages - got, dry_run);
	return got;
}

static const struct mm_policy_ops policy_table[MM_POLICY_COUNT] = {
	/* Layers that the operator took by hand return under each policy. */
	[MM_POLICY_RECOMPUTE] = { .kv_static = true, .give_back = mm_c_give_back },
	[MM_POLICY_ELASTIC] = { .take = policy_take_elastic, .give_back = mm_c_give_back },
	[MM_POLICY_REMAP] = { .forecast = true,
			      .kv_swaps = true,
			      .take = policy_take_remap,
			      .overdrawn = mm_c_return_overdrawn,
			      .give_back = mm_c_give_back },
	[MM_POLICY_SWAP] = { .kv_static = true, .kv_swaps = true, .give_back = mm_c_give_back },
	[MM_POLICY_NAIVE] = { .take = mm_naive_take,
			      .give_back = mm_naive_give_back,
			      .slots = mm_naive_slots },
	[MM_POLICY_NAIVE_BOUNDED] = { .take = mm_naive_take_bounded,
				      .give_back = mm_naive_give_back,
				      .slots = mm_naive_slots },
};

const struct mm_policy_ops *mm_policy_get(enum mm_policy policy)
{
	return &policy_table[policy];
}
