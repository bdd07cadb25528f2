/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/forecast.h"

#include "libclient/base/base.h"
#include "mmd/core/market/market.h"

#define SAMPLE_NS  (50 * MM_NS_PER_MS)
#define FADES      4 /* a slope fades to 3/4 with each sample that has none as steep */
#define AHEAD_PART 8 /* part of the pool that is taken ahead at most */

static uint64_t demand_pages(const struct mm_core *c)
{
	uint64_t sum = 0;

	MM_FOREACH_TENANT(c, t)
		if (t->life == MM_LIFE_LIVE && t->kv.declared)
			sum += (uint64_t)MM_MAX(t->demand->wanted, t->kv.held) * t->kv.chunk_pages;
	return sum;
}

static void forecast_sample(struct mm_core *c)
{
	struct mm_c_forecast *f = &c->market->forecast;
	uint64_t pages = demand_pages(c), ms = (c->now_ns - f->at_ns) / MM_NS_PER_MS;
	uint64_t slope = pages > f->pages ? (pages - f->pages) * 1000 / ms : 0;

	f->slope = MM_MAX(slope, f->slope - mm_div_up(f->slope, FADES));
	f->pages = pages;
	f->at_ns = c->now_ns;
}

uint64_t mm_c_forecast_pages(struct mm_core *c)
{
	struct mm_c_forecast *f = &c->market->forecast;
	uint64_t ahead;

	if (c->opts.forecast != MM_SWITCH_ON)
		return 0;
	if (c->now_ns - f->at_ns >= mm_c_time(c, SAMPLE_NS))
		forecast_sample(c);
	ahead = f->slope * (c->opts.ahead_ns / MM_NS_PER_MS) / 1000;
	return MM_MIN(ahead, c->ledger.pages / AHEAD_PART);
}
