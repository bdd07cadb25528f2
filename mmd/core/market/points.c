/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/points.h"

#include "libclient/base/base.h"
#include "mmd/core/market/cost.h"
#include "mmd/core/market/lends.h"
#include "mmd/core/market/market.h"
#include "mmd/core/market/policy.h"
#include "mmd/core/plan/change.h"
#include "mmd/core/plan/sets.h"

#define NEIGHBOURS  2  /* numbers of layers on either side of the present one */
#define NEAR_PART   16 /* a time over this: a smaller change does not count */
#define UNEVEN_WORK 8  /* of MM_POINTS_WORK, for a set of layers that are not alike */

static bool points_near(uint64_t a, uint64_t b)
{
	uint64_t most = MM_MAX(a, b);

	return most - MM_MIN(a, b) <= most / NEAR_PART && !a == !b;
}

static bool points_known(const struct mm_c_tenant *t, uint64_t transfer_ns)
{
	return transfer_ns && t->load.steps_seen >= MM_STEPS_LEAST;
}

static bool points_stale(const struct mm_c_tenant *t, uint64_t transfer_ns)
{
	const struct mm_c_points *p = &t->lends->points;

	return !p->n || p->epoch != t->plan.epoch || p->claims != t->sets->claims ||
	       p->alpha != t->plan.alpha || !points_near(p->transfer_ns, transfer_ns) ||
	       !points_near(p->step_ns, mm_c_steps_mean_ns(&t->load.steps));
}

/* Lists the numbers of layers, ascending: 0, the present one and its neighbours, and others. */
static uint32_t points_list(const struct mm_c_tenant *t, struct mm_view_point *ret_point)
{
	uint32_t most = t->sets->alpha_max, now = MM_MIN(t->plan.alpha, most), n = 0;
	uint32_t low = now > NEIGHBOURS ? now - NEIGHBOURS : 0;
	uint32_t spread = MM_VIEW_POINTS - 2 * NEIGHBOURS - 2, next = 0;

	for (uint32_t alpha = 0; alpha <= most; alpha++) {
		bool near = alpha >= low && alpha <= now + NEIGHBOURS;
		bool even = (uint64_t)next * most / spread <= alpha;

		while ((uint64_t)next * most / spread <= alpha)
			next++;
		if (near || even || alpha == most)
			ret_point[n++] = (struct mm_view_point){ .alpha = alpha };
		mm_assert(n <= MM_VIEW_POINTS);
	}
	return n;
}

/*
 * More layers are taken when pages are short, so that set is chosen with no pages for a preload;
 * layers return when there are pages, so the set for fewer is chosen with any number.
 */
static void point_compute(const struct mm_core *c, struct mm_c_tenant *t, uint64_t transfer_ns,
			  struct mm_view_point *p)
{
	struct mm_plan_set set = t->change->set;

	p->slow_permille = p->link_permille = 0;
	if (!p->alpha)
		return;
	if (p->alpha != t->plan.alpha)
		mm_c_change_set(c, t, p->alpha, mm_c_policy_slots(c, t, p->alpha),
				p->alpha < t->plan.alpha ? UINT64_MAX : 0, &set);
	p->slow_permille = mm_c_slow_permille(t, &set, transfer_ns);
	if (p->slow_permille != UINT32_MAX)
		p->link_permille = (uint32_t)mm_c_set_link_permille(c, t, &set, p->slow_permille);
}

/* Computes further points of @t within @work. Returns the work that is left. */
static uint32_t points_compute(struct mm_core *c, struct mm_c_tenant *t, uint32_t work)
{
	struct mm_c_points *p = &t->lends->points;
	uint64_t transfer_ns = mm_c_alone_ns(c, t);
	uint32_t each = t->sets->uneven ? UNEVEN_WORK : 1;

	if (!p->next_n) {
		if (!points_stale(t, transfer_ns))
			return work;
		p->next_n = points_list(t, p->next);
		p->next_at = 0;
		/* A change meanwhile makes them stale as soon as they are complete. */
		p->epoch = t->plan.epoch;
		p->claims = t->sets->claims;
		p->alpha = t->plan.alpha;
		p->transfer_ns = transfer_ns;
		p->step_ns = mm_c_steps_mean_ns(&t->load.steps);
	}
	for (; p->next_at < p->next_n && work >= each; p->next_at++, work -= each)
		point_compute(c, t, transfer_ns, &p->next[p->next_at]);
	if (p->next_at < p->next_n)
		return 0;
	p->n = p->next_n;
	p->next_n = 0;
	for (uint32_t i = 0; i < p->n; i++)
		p->point[i] = p->next[i];
	return work;
}

/* Until its steps are known, each number of layers counts as one of unknown cost. */
static void points_unknown(struct mm_c_tenant *t)
{
	struct mm_c_points *p = &t->lends->points;

	p->n = points_list(t, p->point);
	p->next_n = 0;
	p->epoch = UINT64_MAX;
	for (uint32_t i = 1; i < p->n; i++)
		p->point[i].slow_permille = UINT32_MAX;
}

void mm_c_points_update(struct mm_core *c)
{
	uint32_t end = c->tenants_end, work = MM_POINTS_WORK, first = c->market->points_next;

	for (uint32_t i = 0; i < end && work; i++) {
		uint32_t index = (first + i) % end;
		struct mm_c_tenant *t = &c->tenant[index];

		if (t->life != MM_LIFE_LIVE || t->model != MM_C_MODEL_READY || !t->sets->alpha_max)
			continue;
		if (!points_known(t, mm_c_alone_ns(c, t))) {
			points_unknown(t);
			continue;
		}
		work = points_compute(c, t, work);
		c->market->points_next = t->lends->points.next_n ? index : index + 1;
	}
}
