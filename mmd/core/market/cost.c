/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/cost.h"

#include "libclient/base/base.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"

uint32_t mm_c_slow_permille(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns)
{
	const struct mm_c_steps *s = &t->load.steps;
	unsigned __int128 longer = 0, sum = 0;

	if (!set->m)
		return 0;
	for (uint32_t i = 0; i < MM_STEP_SIZES; i++) {
		uint64_t step_ns, t_c_ns = s->ns[i] / t->n_layers;

		if (!s->weight[i])
			continue;
		step_ns = mm_c_set_step_at(t, set, t_c_ns, t_t_ns);
		sum += s->weight[i];
		if (step_ns > t_c_ns * t->n_layers)
			longer += (unsigned __int128)(step_ns - t_c_ns * t->n_layers) *
				  s->weight[i] * 1000 / MM_MAX(s->ns[i], 1);
	}
	if (!sum || !t_t_ns || t->load.steps_seen < MM_STEPS_LEAST)
		return UINT32_MAX;
	return (uint32_t)MM_MIN(longer / sum, UINT32_MAX - 1);
}

uint32_t mm_c_load_permille(const struct mm_c_tenant *t, uint64_t load_ns)
{
	const struct mm_c_steps *s = &t->load.steps;
	unsigned __int128 longer = 0;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < MM_STEP_SIZES; i++) {
		sum += s->weight[i];
		if (s->weight[i] && load_ns > s->ns[i])
			longer += (unsigned __int128)(load_ns - s->ns[i]) * s->weight[i] * 1000 /
				  MM_MAX(s->ns[i], 1);
	}
	if (!sum || t->load.steps_seen < MM_STEPS_LEAST)
		return UINT32_MAX;
	return (uint32_t)MM_MIN(longer / sum, UINT32_MAX - 1);
}

/* Returns whether @t is the only tenant that was active of late. */
static bool active_alone(const struct mm_core *c, const struct mm_c_tenant *t)
{
	MM_FOREACH_TENANT(c, other)
		if (other != t && c->now_ns - other->load.active_ns < c->opts.idle_ns)
			return false;
	return true;
}

/*
 * Beside cold blocks of the tenant's own its layers' transfers wait for those, and are never seen
 * alone. What others take has its part in what was seen, and stays.
 */
uint64_t mm_c_alone_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t ns = t->load.alone_ns ? t->load.alone_ns : mm_c_transfer_ns(c, t), copies_ns;

	if (c->opts.cold != MM_SWITCH_ON || !t->cold.live || !active_alone(c, t))
		return ns;
	copies_ns = mm_c_copies_ns(c, t);
	return copies_ns ? MM_MIN(ns, copies_ns) : ns;
}

uint64_t mm_c_set_link_permille(const struct mm_core *c, const struct mm_c_tenant *t,
				const struct mm_plan_set *set, uint32_t slow)
{
	uint64_t step_ns = mm_c_steps_mean_ns(&t->load.steps);
	uint64_t stream_ns = mm_c_set_stream_ns(t, set, mm_c_alone_ns(c, t));

	step_ns += step_ns / 1000 * slow;
	return step_ns ? MM_MIN(MM_MIN(stream_ns, UINT64_MAX / 1000) * 1000 / step_ns, 1000u)
		       : 1000;
}
