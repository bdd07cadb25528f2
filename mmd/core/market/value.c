/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/value.h"

#include "libclient/base/base.h"

#define LN2_BILLIONTHS INT64_C(693147181)
#define LN_BITS        24   /* of the fraction of a binary logarithm */
#define LOAD_EIGHTH    125u /* permille of the mean step between two numbers of load_slow[] */

/* Returns @x with its highest bit in bit 63; @ret_shift: by how many bits it went up. */
static uint64_t mantissa_of(uint64_t x, uint32_t *ret_shift)
{
	*ret_shift = (uint32_t)__builtin_clzll(x);
	return x << *ret_shift;
}

int64_t mm_value_ln(uint64_t num, uint64_t den)
{
	uint32_t shift_num, shift_den;
	uint64_t m_num = mantissa_of(MM_MAX(num, 1u), &shift_num);
	uint64_t m_den = mantissa_of(MM_MAX(den, 1u), &shift_den);
	uint64_t x = (uint64_t)(((unsigned __int128)m_num << 62) / m_den);
	int64_t log2 = (int64_t)shift_den - (int64_t)shift_num;

	if (x >> 62 == 0) {
		x <<= 1;
		log2--;
	}
	/* Squaring a number of [1, 2) doubles its logarithm, whose next bit is the carry. */
	for (uint32_t i = 0; i < LN_BITS; i++) {
		x = (uint64_t)((unsigned __int128)x * x >> 62);
		log2 = log2 * 2 + (int64_t)(x >> 63);
		x >>= x >> 63;
	}
	return log2 * LN2_BILLIONTHS / (INT64_C(1000) << LN_BITS);
}

/* Returns the first point at or after @alpha, or t->points. */
static uint32_t point_from(const struct mm_view_tenant *t, uint32_t alpha)
{
	uint32_t i = 0, n = MM_MIN(t->points, (uint32_t)MM_VIEW_POINTS);

	while (i < n && t->point[i].alpha < alpha)
		i++;
	return i < n ? i : t->points;
}

/* Returns the number between @from and @to that is @part of @whole of the way. */
static uint32_t value_between(uint32_t from, uint32_t to, uint32_t part, uint32_t whole)
{
	int64_t way = (int64_t)to - (int64_t)from;

	return (uint32_t)((int64_t)from + way * part / whole);
}

uint32_t mm_value_slow(const struct mm_view_tenant *t, uint32_t alpha)
{
	uint32_t i = point_from(t, alpha);
	const struct mm_view_point *p = &t->point[i];

	if (!alpha)
		return 0;
	if (i >= t->points || !i || p->slow_permille == UINT32_MAX ||
	    p[-1].slow_permille == UINT32_MAX)
		return UINT32_MAX;
	return value_between(p[-1].slow_permille, p->slow_permille, alpha - p[-1].alpha,
			     p->alpha - p[-1].alpha);
}

uint32_t mm_value_link(const struct mm_view_tenant *t, uint32_t alpha)
{
	uint32_t i = point_from(t, alpha);
	const struct mm_view_point *p = &t->point[i];

	if (!alpha)
		return 0;
	if (i >= t->points || !i)
		return 1000;
	return value_between(p[-1].link_permille, p->link_permille, alpha - p[-1].alpha,
			     p->alpha - p[-1].alpha);
}

uint32_t mm_value_waits(const struct mm_view_tenant *t, uint64_t load)
{
	uint64_t i = load / LOAD_EIGHTH, part = load % LOAD_EIGHTH, from, to;
	const uint64_t last = MM_VIEW_LOADS - 1;

	if (!load)
		return 0;
	if (t->load_slow[last] == UINT32_MAX || !t->load_slow[last])
		return UINT32_MAX;
	/* All steps are shorter than the transfers of the last two, so the rest is a line. */
	if (i >= last) {
		from = t->load_slow[last];
		to = from + (from - MM_MIN(t->load_slow[last - 1], from));
		part = load - last * LOAD_EIGHTH;
	} else {
		from = i ? t->load_slow[i] : 0;
		to = t->load_slow[i + 1];
	}
	from += (MM_MAX(to, from) - from) * MM_MIN(part, UINT64_C(1) << 24) / LOAD_EIGHTH;
	return (uint32_t)MM_MIN(from, (uint64_t)MM_VALUE_SLOW_KNOWN);
}

static uint64_t model_pages(const struct mm_view_tenant *t)
{
	return (uint64_t)t->layers * t->layer_pages + t->fixed_pages;
}

uint32_t mm_value_kappa(const struct mm_view_tenant *t)
{
	uint64_t kv = (uint64_t)t->kv_held * t->chunk_pages, all = kv + model_pages(t);
	uint32_t part = all ? (uint32_t)(kv * 1000 / all) : 0;

	/* Measurements tremble: prompts are computed while the KV grows. */
	if (t->kappa_permille)
		part = MM_MAX(MM_MIN(t->kappa_permille, 2 * part), part / 2);
	return MM_MIN(part, 1000u);
}

/*
 * Beside what is free, steps may be longer by what KV beyond its share gains: more requests a step,
 * less what they make the step longer by themselves.
 */
uint32_t mm_value_clause(const struct mm_view_tenant *t)
{
	uint64_t share = MM_MAX(t->kv_share, 1u), over = 0;

	if (t->kv_held > share)
		over = (t->kv_held - share) * (1000 - mm_value_kappa(t)) / share;
	return (uint32_t)MM_MIN(over + MM_VALUE_FREE_SLOW, (uint64_t)MM_VALUE_SLOW_KNOWN);
}

/*
 * The points are those of a link that nobody else uses. What is left of it is what there is: steps
 * that need more of it become longer until they do not.
 */
struct mm_view_point mm_value_cost(const struct mm_value *v, const struct mm_view_tenant *t,
				   uint32_t alpha)
{
	struct mm_view_point p = { alpha, mm_value_slow(t, alpha), mm_value_link(t, alpha) };
	uint32_t left =
		MM_MAX(1000 - MM_MIN(v->link_permille, 1000u), (uint32_t)MM_VALUE_LINK_LEAST);
	uint64_t step, load;

	/* Transfers of layers and of cold blocks are in the order in which they are needed. */
	if (v->cold_load && p.slow_permille != UINT32_MAX) {
		load = v->cold_load + p.link_permille * ((uint64_t)p.slow_permille + 1000) / 1000;
		p.slow_permille = MM_MAX(p.slow_permille, mm_value_waits(t, load * 1000 / left));
		load = load * 1000 / (1000 + (uint64_t)p.slow_permille);
		p.link_permille = (uint32_t)MM_MIN(load, (uint64_t)left);
		return p;
	}
	if (p.link_permille <= left || p.slow_permille == UINT32_MAX)
		return p;
	step = ((uint64_t)p.slow_permille + 1000) * p.link_permille / left;
	p.slow_permille = (uint32_t)MM_MIN(step - 1000, (uint64_t)MM_VALUE_SLOW_KNOWN);
	p.link_permille = left;
	return p;
}

int64_t mm_value_at(const struct mm_value *v, const struct mm_view_tenant *t, uint32_t alpha)
{
	uint64_t had = MM_MAX(MM_MIN(v->kv_pages, v->kv_enough), 1u);
	uint64_t has = MM_MIN(v->kv_pages + (uint64_t)alpha * t->layer_pages, v->kv_enough);
	int64_t gain = mm_value_ln(MM_MAX(has, had), had) * v->gain_permille / 1000;
	struct mm_view_point cost = mm_value_cost(v, t, alpha);
	uint64_t slow = cost.slow_permille, link = cost.link_permille;

	slow = slow * v->rho_permille / v->computing * v->weight_permille / 1000;
	return gain - (int64_t)slow - (int64_t)(link * v->link_slows_permille * v->computing);
}

/* Returns whether the clause allows @alpha layers away, if @part of it is added. */
static bool clause_allows(const struct mm_value *v, const struct mm_view_tenant *t, uint32_t alpha,
			  uint32_t part)
{
	uint32_t slow = mm_value_cost(v, t, alpha).slow_permille;

	return slow != UINT32_MAX &&
	       slow <= (uint64_t)v->slow_most + (part ? v->slow_most / part : 0);
}

/* Returns the largest number of layers up to which the clause allows each. */
static uint32_t largest_allowed(const struct mm_value *v, const struct mm_view_tenant *t)
{
	uint32_t n = MM_MIN(t->points, (uint32_t)MM_VIEW_POINTS), i = 0, alpha;

	while (i + 1 < n && clause_allows(v, t, t->point[i + 1].alpha, 0))
		i++;
	alpha = n ? t->point[i].alpha : 0;
	while (i + 1 < n && alpha + 1 < t->point[i + 1].alpha && clause_allows(v, t, alpha + 1, 0))
		alpha++;
	return alpha;
}

static void choice_try(const struct mm_value *v, const struct mm_view_tenant *t, uint32_t alpha,
		       struct mm_value_choice *best)
{
	int64_t worth = mm_value_at(v, t, alpha);

	/* The fewest layers of equals, which come first. */
	if (worth > best->worth || (worth == best->worth && alpha < best->alpha)) {
		best->worth = worth;
		best->alpha = alpha;
	}
}

/* The costs between two points are a line, and the gain is concave: its neighbours are enough. */
static struct mm_value_choice choose_within(const struct mm_value *v,
					    const struct mm_view_tenant *t, uint32_t least,
					    uint32_t most)
{
	struct mm_value_choice best = { .alpha = least, .worth = mm_value_at(v, t, least) };
	uint32_t from = least, to = most;

	choice_try(v, t, most, &best);
	for (uint32_t i = 0; i < t->points; i++)
		if (t->point[i].alpha > least && t->point[i].alpha < most)
			choice_try(v, t, t->point[i].alpha, &best);
	for (uint32_t i = 0; i < t->points; i++) {
		uint32_t alpha = t->point[i].alpha;

		if (alpha < best.alpha && alpha > from)
			from = alpha;
		if (alpha > best.alpha && alpha < to)
			to = alpha;
	}
	for (uint32_t alpha = from; alpha <= to; alpha++)
		choice_try(v, t, alpha, &best);
	return best;
}

/*
 * Layers that are away already are allowed a quarter more, so that a cost that trembles moves
 * none.
 */
static bool may_stay(const struct mm_value *v, const struct mm_view_tenant *t, uint32_t now)
{
	return now >= v->alpha_least && now <= v->alpha_most &&
	       clause_allows(v, t, now, MM_VALUE_STAY_PART);
}

struct mm_value_choice mm_value_choose(const struct mm_value *v, const struct mm_view_tenant *t,
				       uint32_t now)
{
	uint32_t allowed = largest_allowed(v, t), most = MM_MIN(allowed, v->alpha_most);
	uint32_t least = MM_MIN(v->alpha_least, most);
	struct mm_value_choice best = choose_within(v, t, least, most);

	if (best.alpha != now && may_stay(v, t, now)) {
		int64_t worth = mm_value_at(v, t, now);

		best.stays = best.worth - worth < MM_VALUE_HYSTERESIS;
		best.alpha = best.stays ? now : best.alpha;
		best.worth = best.stays ? worth : best.worth;
	}
	best.clause = best.alpha >= allowed && best.alpha < v->alpha_most;
	best.unknown = best.clause && mm_value_slow(t, allowed + 1) == UINT32_MAX;
	best.worth_more = best.worth;
	if (best.alpha < t->alpha_max && mm_value_slow(t, best.alpha + 1) != UINT32_MAX)
		best.worth_more = mm_value_at(v, t, best.alpha + 1);
	return best;
}
