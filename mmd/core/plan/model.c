/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/model.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/emit.h"
#include "mmd/core/plan/plans.h"

void mm_c_model_refuse(struct mm_core *c, struct mm_c_tenant *t, int error, enum mm_refusal why)
{
	t->model = MM_C_MODEL_NONE;
	mm_c_demand_changed(c);
	t->entries = t->n_layers = 0;
	mm_c_event_send(c, t,
			&(struct mm_msg){ .opcode = MM_EV_MODEL_READY,
					  .result = error,
					  .arg = { (uint64_t)why } });
	if (t->has_store)
		mm_c_emit(c, MM_ACT_MODEL_DROP, t);
	t->has_store = false;
}

/* Lays the groups out in the map table. Returns false if they need more entries than it has. */
static bool model_lay_out(struct mm_core *c, struct mm_c_tenant *t,
			  const struct mm_core_group *groups, uint32_t n_groups)
{
	uint64_t entries = 0;
	uint32_t least = UINT32_MAX, most = 0;

	t->layer_bytes_max = 0;
	for (uint32_t g = 0; g < n_groups; g++) {
		uint64_t pages = mm_div_up(groups[g].bytes, c->opts.page_bytes);

		if (pages > MM_MAP_KV_BASE - entries)
			return false;
		t->group[g] = (struct mm_c_group){ .store_offset = groups[g].store_offset,
						   .bytes = groups[g].bytes,
						   .entry = (uint32_t)entries,
						   .pages = (uint32_t)pages };
		entries += pages;
		if (!g)
			continue;
		t->layer_pages[g - 1] = (uint32_t)pages;
		least = MM_MIN(least, (uint32_t)pages);
		most = MM_MAX(most, (uint32_t)pages);
		t->layer_bytes_max = MM_MAX(t->layer_bytes_max, groups[g].bytes);
	}
	t->entries = (uint32_t)entries;
	memset(t->own, 0xff, MM_MIN(t->entries, c->entries_max) * sizeof(*t->own));
	t->n_layers = n_groups - 1;
	t->sets->alpha_max = t->sets->alpha_max_two = 0;
	if (t->n_layers >= 2 && least && most <= MM_SLOT_PAGES_MAX && (t->features & MM_FEAT_REMAP))
		mm_c_sets_init(t);
	return true;
}

enum mm_refusal mm_c_model_fits(const struct mm_core *c, const struct mm_c_tenant *t,
				uint64_t pages, uint64_t *ret_max_pages)
{
	*ret_max_pages = MM_MIN(c->ledger.pages, MM_MAP_KV_BASE);
	if (pages > *ret_max_pages)
		return MM_REFUSED_DEVICE;
	*ret_max_pages = c->account[t->account].quota.max_pages;
	return pages > *ret_max_pages ? MM_REFUSED_QUOTA : MM_REFUSED_NO;
}

static enum mm_refusal model_admit(struct mm_core *c, struct mm_c_tenant *t,
				   const struct mm_core_group *groups, uint32_t n_groups)
{
	uint64_t max_pages;

	if (!n_groups || n_groups > MM_LAYERS_MAX + 1)
		return MM_REFUSED_LOAD;
	if (!model_lay_out(c, t, groups, n_groups))
		return MM_REFUSED_DEVICE;
	return mm_c_model_fits(c, t, t->entries, &max_pages);
}

static int refusal_errno(enum mm_refusal why)
{
	if (why == MM_REFUSED_LOAD)
		return -EINVAL;
	return why == MM_REFUSED_QUOTA ? -EDQUOT : -ENOSPC;
}

void mm_c_model_offer(struct mm_core *c, struct mm_c_tenant *t, uint64_t store,
		      const struct mm_core_group *groups, uint32_t n_groups)
{
	enum mm_refusal why;

	t->plan.store = store;
	t->has_store = true;
	why = model_admit(c, t, groups, n_groups);
	if (why != MM_REFUSED_NO) {
		mm_c_model_refuse(c, t, refusal_errno(why), why);
		return;
	}
	t->model = MM_C_MODEL_WAITING;
	t->model_since_ns = c->now_ns;
	t->plan.n_layers = t->n_layers;
}
