/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/cool.h"

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"

#define GRID        16 /* numbers of entries that are tried at once */
#define ENOUGH_PART 8  /* of what is live: room for more until the tenant lacks KV again */
#define BEGIN_PART  8  /* of what pays: a first limit; it doubles when it is made use of */
#define USED_PART   4  /* of a limit that may be unused before it is raised */
#define STAYS_PART  8  /* of a limit: a better one nearer than this changes nothing */
#define KEEPS_NS    (5 * MM_NS_PER_S) /* from the last bid until a limit may fall */
#define USED_NS     (2 * MM_NS_PER_S) /* from when a limit was raised or used until it is not */
#define STALL_FREE  100 /* permille of waits that lower nothing, beside twice the prediction */
#define CUT_PART    8   /* by which waits lower the cap at once */
#define CUT_DWELLS  4   /* times dwell_ns between two cuts, and from a cut until it rises */
#define RISE_PART   64  /* by which the cap rises with each decision without waits */
#define MEAN_SCALE  256 /* of cold_mean, in a page */
#define MEAN_PART   64  /* by which cold_mean follows with each decision while requests wait */
#define ROOM_TAIL   3   /* blocks of a sequence that are written to, or are next, or on their way */

struct best {
	uint32_t entries;
	int64_t worth;
};

/* ---- the price ---- */

uint64_t mm_cool_load(const struct mm_view_tenant *t, uint32_t entries)
{
	unsigned __int128 ns = (unsigned __int128)t->cold_entry_ns * entries * 1000;

	ns /= MM_MAX(t->step_ns, 1u);
	return (uint64_t)MM_MIN(ns, (unsigned __int128)UINT64_C(1) << 32);
}

uint64_t mm_cool_gain_bytes(const struct mm_view_tenant *t, uint32_t entries)
{
	uint64_t block = (uint64_t)t->layers * t->cold_unit_bytes;
	uint64_t window_part = (uint64_t)t->cold_classes * t->cold_unit_bytes;

	/* The first one fills as much of its window as it frees. */
	return entries && block > window_part ? (entries - 1) * (block - window_part) : 0;
}

/* Returns the load as if the link were the tenant's alone: what others take stretches it. */
static uint64_t load_stretched(uint64_t load, uint32_t link_permille)
{
	uint64_t left = 1000 - MM_MIN(link_permille, 1000u);

	return load * 1000 / MM_MAX(left, (uint64_t)MM_VALUE_LINK_LEAST);
}

/* Returns the permille of the link's time that @load takes if steps are @slow permille longer. */
static uint32_t link_of(uint64_t load, uint32_t slow)
{
	return (uint32_t)MM_MIN(load * 1000 / (1000 + (uint64_t)slow), (uint64_t)1000);
}

int64_t mm_cool_worth(const struct mm_cool *cool, const struct mm_view_tenant *t, uint32_t entries)
{
	uint64_t load = mm_cool_load(t, entries), more = mm_cool_gain_bytes(t, entries);
	uint32_t slow = mm_value_waits(t, load_stretched(load, cool->link_permille));
	uint64_t had = MM_MAX(MM_MIN(cool->kv_bytes, cool->kv_enough), 1u);
	uint64_t has = MM_MIN(cool->kv_bytes + more, cool->kv_enough);
	int64_t gain = mm_value_ln(MM_MAX(has, had), had) * cool->gain_permille / 1000;
	uint64_t cost;

	if (slow == UINT32_MAX || slow > cool->slow_most)
		return INT64_MIN;
	cost = (uint64_t)slow * cool->rho_permille / cool->computing * cool->weight_permille / 1000;
	cost += (uint64_t)link_of(load, slow) * cool->link_slows_permille * cool->computing;
	return gain - (int64_t)MM_MIN(cost, (uint64_t)INT32_MAX);
}

/* Tries each @gap of the numbers from @low to @high, and @high. */
static void best_within(const struct mm_cool *cool, const struct mm_view_tenant *t, uint32_t low,
			uint32_t high, uint32_t gap, struct best *best)
{
	for (uint64_t e = low; e <= high; e = e < high && high - e < gap ? high : e + gap) {
		int64_t worth = mm_cool_worth(cool, t, (uint32_t)e);

		if (worth > best->worth)
			*best = (struct best){ (uint32_t)e, worth };
	}
}

/*
 * On either side of the number from which the link has no time left the value is concave. So halves
 * of octaves are tried first, then closer numbers around the best of them.
 */
uint32_t mm_cool_best(const struct mm_cool *cool, const struct mm_view_tenant *t, uint32_t most)
{
	struct best best = { 0, 0 };
	uint64_t low, high;

	for (uint64_t e = 1; e <= most; e *= 2)
		best_within(cool, t, (uint32_t)e, (uint32_t)MM_MIN(e + e / 2, (uint64_t)most),
			    (uint32_t)MM_MAX(e / 2, 1u), &best);
	low = (uint64_t)best.entries * 2 / 3;
	high = (uint64_t)best.entries * 3 / 2 + 1;
	while (best.worth > 0) {
		uint64_t gap = MM_MAX((MM_MIN(high, (uint64_t)most) - low) / GRID, UINT64_C(1));

		best_within(cool, t, (uint32_t)low, (uint32_t)MM_MIN(high, (uint64_t)most),
			    (uint32_t)gap, &best);
		if (gap == 1)
			break;
		low = best.entries > gap ? best.entries - gap : 0;
		high = best.entries + gap;
	}
	return best.worth >= MM_VALUE_HYSTERESIS ? best.entries : 0;
}

/* ---- the limits ---- */

/* Returns whether most of @limit is made use of. */
static bool is_used(const struct mm_view_tenant *t, uint32_t limit)
{
	return limit && t->cold_live >= limit - limit / USED_PART;
}

/* Returns whether the market decides about @t's cold blocks. */
static bool cool_decides(const struct mm_draft *d, const struct mm_view_tenant *t)
{
	return d->view->cold && t->cold_most && !t->cold_by_hand;
}

static uint32_t own_layers_link(const struct mm_view_tenant *t)
{
	return t->points ? mm_value_link(t, MM_MIN(t->alpha_next, t->alpha_max)) : 0;
}

static struct mm_cool cool_of(const struct mm_draft *d, const struct mm_draft_row *row,
			      uint32_t link)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t page = d->view->page_bytes;

	return (struct mm_cool){
		.computing = MM_MAX(d->computing, 1u),
		.weight_permille = row->weight_permille,
		.gain_permille = row->gain_permille,
		.kv_bytes = row->held * page,
		/* One with a queue wants more than it says. */
		.kv_enough = t->waiting ? UINT64_MAX : row->want * page,
		.rho_permille = d->computing > 1 ? MM_VALUE_STALL * d->view->rho_permille : 1000,
		.link_slows_permille = d->view->link_slows_permille,
		.link_permille = link,
		.slow_most = d->computing > 1 ? mm_value_clause(t) : MM_VALUE_SLOW_KNOWN,
	};
}

/*
 * Waits that nothing predicts mean that something in the prediction is wrong: the rate of such
 * copies, or the load of others. Then fewer blocks are right, whatever the reason is.
 */
static void cap_find(const struct mm_draft *d, const struct mm_market_memory *memory,
		     struct mm_draft_row *row, uint32_t link)
{
	const struct mm_view_tenant *t = row->t;
	uint32_t cap = memory->cold_cap[t->index], live = MM_MIN(t->cold_live, t->cold_most);
	uint64_t cut_ns = memory->cold_cut_ns[t->index];
	uint32_t layers = t->points ? mm_value_slow(t, MM_MIN(t->alpha_next, t->alpha_max)) : 0;
	uint64_t slow = mm_value_waits(t, load_stretched(mm_cool_load(t, live), link));
	bool rests = cut_ns && d->view->now_ns - cut_ns < CUT_DWELLS * d->view->dwell_ns;

	slow = MM_MAX(slow, layers);
	row->cold_cut = live && !rests && t->stall_permille > STALL_FREE + 2 * slow;
	if (row->cold_cut) {
		cap = MM_MIN(cap ? cap : UINT32_MAX, live);
		cap = MM_MAX(cap - cap / CUT_PART, 1u);
	} else if (cap && !rests) {
		cap += cap / RISE_PART + 1;
	}
	row->cold_cap = cap && cap < t->cold_most ? cap : t->cold_most;
}

/* Returns the link's time that layers which are away take. */
static uint32_t layers_link(const struct mm_draft *d)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].role == MM_ROLE_COMPUTES)
			sum += own_layers_link(d->row[i].t);
	return MM_MIN(sum, 1000u);
}

/* Returns what is live, and a part more. */
static uint32_t live_and_more(const struct mm_view_tenant *t)
{
	uint32_t live = MM_MIN(t->cold_live, t->cold_most);

	return live ? MM_MIN(live + live / ENOUGH_PART + 1, t->cold_most) : 0;
}

/*
 * A prompt's own blocks must all be on the device when it is computed, so the window may be what
 * the next one lacks.
 */
static bool row_is_blocked(const struct mm_draft *d, const struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;

	return t->waiting && d->view->now_ns > t->stepped_ns &&
	       d->view->now_ns - t->stepped_ns >= d->view->dwell_ns;
}

/*
 * A tenant that lacked nothing for a while keeps what is live, and a part more: its limit falls
 * when much of it is free. Until then it stays: the limit may be why it lacks nothing.
 */
static void row_keeps(const struct mm_draft *d, const struct mm_market_memory *memory,
		      struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint32_t least = live_and_more(t);
	uint64_t bid_ns = memory->cold_bid_ns[t->index];

	row->cold = MM_MIN(t->cold_limit, t->cold_most);
	row->cold_why = MM_COOL_ENOUGH;
	if (t->hungry_permille >= MM_COOL_HUNGRY || row->cold / 2 < least ||
	    (bid_ns && d->view->now_ns - bid_ns < KEEPS_NS))
		return;
	row->cold = least;
}

/*
 * Returns whether more KV would be of use to @row now, as it was of late. Beside others a lack that
 * ends soon is met by layers, which come and go with it, and which serve whoever lacks memory.
 */
static bool row_lacks(const struct mm_draft *d, const struct mm_draft_row *row)
{
	return row->t->hungry_permille >= (d->computing > 1 ? MM_COOL_STARVES : MM_COOL_HUNGRY) &&
	       (row->t->waiting || row->want > row->held);
}

/*
 * A limit has a window, whose memory is the tenant's own KV, and another one a change of its plan.
 * So it grows from @now to @best as it is made use of, and does not fall while KV is lacked.
 */
static uint32_t limit_next(const struct mm_view_tenant *t, uint32_t now, uint32_t best)
{
	uint32_t least = best - best / BEGIN_PART * (BEGIN_PART - 1);

	if (best <= now + now / STAYS_PART)
		return now;
	if (!is_used(t, now))
		return MM_MAX(now, least);
	return (uint32_t)MM_MIN((uint64_t)best, MM_MAX(UINT64_C(2) * now, (uint64_t)least));
}

static void row_bids(const struct mm_draft *d, struct mm_draft_row *row, uint32_t link)
{
	const struct mm_view_tenant *t = row->t;
	uint32_t most = row->cold_cap, now = MM_MIN(t->cold_limit, most);
	struct mm_cool cool = cool_of(d, row, link);

	row->cold_pays = mm_cool_best(&cool, t, most);
	row->cold = limit_next(t, now, row->cold_pays);
	row->cold_why = MM_COOL_WORTH;
	if (row->cold < row->cold_pays - row->cold_pays / STAYS_PART)
		row->cold_why = MM_COOL_UNUSED;
	else if (row->cold >= most)
		row->cold_why = most < t->cold_most ? MM_COOL_WAITED : MM_COOL_MOST;
	row->cold_link = link_of(mm_cool_load(t, row->cold_pays), 0);
}

/* Sets what @row would have if no other cold blocks were on the link. */
static void row_begin(const struct mm_draft *d, const struct mm_market_memory *memory,
		      struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint32_t link = MM_COOL_LINK_LEFT + layers_link(d);

	row->cold = MM_MIN(t->cold_limit, t->cold_most);
	row->cold_why = t->cold_by_hand ? MM_COOL_BY_HAND : MM_COOL_OFF;
	if (!cool_decides(d, t)) {
		row->cold = t->cold_by_hand ? row->cold : MM_MIN(t->cold_floor, t->cold_most);
		return;
	}
	row_keeps(d, memory, row);
	if (row->role != MM_ROLE_COMPUTES) {
		row->cold_why = MM_COOL_RESTS;
		return;
	}
	cap_find(d, memory, row, link);
	if (row_is_blocked(d, row)) {
		row->cold = live_and_more(t);
		row->cold_why = MM_COOL_BLOCKED;
		return;
	}
	if (!t->cold_entry_ns || mm_value_waits(t, 1) == UINT32_MAX) {
		row->cold_why = MM_COOL_UNKNOWN;
	} else if (d->is_short && row_lacks(d, row)) {
		row->cold_bids = true;
		row_bids(d, row, link);
	}
	row->cold = MM_MIN(row->cold, row->cold_cap);
	row->cold_pays = MM_MAX(row->cold_pays, row->cold);
}

/* ---- the link's time ---- */

static bool bids_for_less(const struct mm_draft_row *a, const struct mm_draft_row *b)
{
	if (a->cold_link != b->cold_link)
		return a->cold_link < b->cold_link;
	return a->t->step_ns != b->t->step_ns ? a->t->step_ns < b->t->step_ns
					      : a->t->active_ns > b->t->active_ns;
}

/*
 * Divides the link's time that layers leave among those who bid: equal parts, and what those that
 * want less than theirs leave is divided among the others.
 */
static void link_divide(struct mm_draft *d)
{
	uint32_t taken = MM_MIN(MM_COOL_LINK_LEFT + layers_link(d), 1000u), n = 0;

	for (uint32_t i = 0; i < d->n; i++)
		n += d->row[i].cold_bids;
	if (n < 2)
		return;
	mm_draft_order(d, MM_ROLE_COMPUTES, bids_for_less);
	for (uint32_t i = 0; i < d->orders; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];
		uint32_t part;

		if (!row->cold_bids)
			continue;
		part = (1000 - taken) / n--;
		if (row->cold_link > part)
			row_bids(d, row, 1000 - part);
		taken = MM_MIN(taken + MM_MIN(row->cold_link, part), 1000u);
	}
}

/*
 * Layers are chosen beside them. A limit that was raised, or made use of, lately counts as what it
 * is to become: else layers would have the link before blocks can become cold. Later what is live
 * counts, since there may be nothing to cool.
 */
static void row_count(struct mm_draft *d, const struct mm_market_memory *memory,
		      struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t used_ns = memory->cold_used_ns[t->index];
	uint32_t live = MM_MIN(t->cold_live, t->cold_most), slow;

	/* Time in which nothing was lacked does not count. */
	row->cold_used = !row->cold_bids || row->cold > t->cold_limit || is_used(t, t->cold_limit);
	row->cold_room = row->cold_why == MM_COOL_ENOUGH;
	if (row->cold_bids &&
	    (row->cold_used || (used_ns && d->view->now_ns - used_ns < USED_NS))) {
		row->cold_room = !is_used(t, row->cold) || row->cold_why == MM_COOL_UNUSED;
		live = MM_MAX(live, row->cold_pays);
	}
	row->cold_load = (uint32_t)mm_cool_load(t, live);
	slow = mm_value_waits(t, row->cold_load);
	row->cold_link = link_of(row->cold_load, slow == UINT32_MAX ? 0 : slow);
	d->cold_pages += mm_cool_gain_bytes(t, live) / MM_MAX(d->view->page_bytes, 1u);
}

/* ---- room beside them ---- */

static uint64_t mean_now(const struct mm_view_tenant *t, uint64_t before)
{
	uint64_t queued = (uint64_t)MM_MIN(t->kv_queued, t->kv_limit) * t->chunk_pages;
	unsigned __int128 sum = (unsigned __int128)queued * MEAN_SCALE;
	uint64_t mean = t->waiting ? (uint64_t)(sum / t->waiting) : 0;

	if (!mean || !before)
		return MM_MAX(mean, before);
	return before - before / MEAN_PART + mean / MEAN_PART;
}

/* Returns the pages of @t's KV that no cold blocks can replace: window, tails, and a prompt. */
static uint64_t room_needed(const struct mm_view_tenant *t, uint32_t entries, uint64_t mean,
			    uint64_t page)
{
	unsigned __int128 block = (unsigned __int128)t->layers * t->cold_unit_bytes;
	unsigned __int128 bytes = block * t->running * ROOM_TAIL;

	bytes += mm_cold_window_bytes(t->cold_classes, t->layers, t->cold_unit_bytes, entries);
	bytes /= MM_MAX(page, UINT64_C(1));
	/* Some prompts are longer than their mean. */
	return (uint64_t)MM_MIN(bytes, (unsigned __int128)UINT32_MAX) +
	       (mean + mean / 2) / MEAN_SCALE;
}

/*
 * Without room on the device for a prompt, and for what sequences write to, nothing more can begin,
 * however many blocks become cold. So layers that hide behind the computation are away for it. They
 * stay as long as KV is lacked: the room that they make is why there is enough.
 */
static void row_room(const struct mm_draft *d, const struct mm_market_memory *memory,
		     struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t bid_ns = memory->cold_bid_ns[t->index], need, home;
	uint32_t alpha = 0, now = MM_MIN(t->alpha_next, (uint32_t)MM_COOL_BESIDE);

	row->cold_mean = mean_now(t, row->cold_mean);
	if (d->working > 1 || !t->lends || !t->layer_pages || !row->cold)
		return;
	need = room_needed(t, row->cold, row->cold_mean, d->view->page_bytes);
	home = row->held - MM_MIN(row->held, (uint64_t)t->alpha_next * t->layer_pages);
	if (row->cold_bids && need > home)
		alpha = (uint32_t)MM_MIN(mm_div_up(need - home, t->layer_pages),
					 UINT64_C(1) * MM_COOL_BESIDE);
	if (row->cold_bids || (bid_ns && d->view->now_ns - bid_ns < KEEPS_NS))
		alpha = MM_MAX(alpha, now);
	while (alpha && mm_value_slow(t, alpha) > MM_VALUE_FREE_SLOW)
		alpha--;
	row->cold_alpha = alpha;
}

void mm_cool_decide(struct mm_draft *d, const struct mm_market_memory *memory)
{
	d->cold_pages = 0;
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		row->cold = row->cold_pays = row->cold_load = row->cold_link = 0;
		row->cold_alpha = 0;
		row->cold_mean = memory->cold_mean[row->t->index];
		row->cold_cap = row->t->cold_most;
		row->cold_why = MM_COOL_NONE;
		row->cold_bids = row->cold_cut = row->cold_used = row->cold_room = false;
		if (row->t->cold_most)
			row_begin(d, memory, row);
	}
	link_divide(d);
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		if (!row->t->cold_most)
			continue;
		if (row->role == MM_ROLE_COMPUTES)
			row_count(d, memory, row);
		if (row->role == MM_ROLE_COMPUTES && cool_decides(d, row->t))
			row_room(d, memory, row);
		if (row->cold <= row->t->cold_floor && !row->t->cold_by_hand) {
			row->cold = MM_MIN(row->t->cold_floor, row->t->cold_most);
			row->cold_why = row->cold ? MM_COOL_FLOOR : row->cold_why;
		}
	}
}

void mm_cool_note(const struct mm_draft *d, struct mm_market_memory *memory)
{
	uint64_t now_ns = MM_MAX(d->view->now_ns, 1u);

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		uint32_t index = row->t->index;

		if (!row->t->cold_most)
			continue;
		memory->cold_mean[index] = row->cold_mean;
		memory->cold_cap[index] = row->cold_cap < row->t->cold_most ? row->cold_cap : 0;
		if (row->cold_cut)
			memory->cold_cut_ns[index] = now_ns;
		if (row->cold_bids)
			memory->cold_bid_ns[index] = now_ns;
		if (row->cold_used)
			memory->cold_used_ns[index] = now_ns;
	}
}
