/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/away.h"

#include "libclient/base/base.h"
#include "mmd/core/market/cool.h"
#include "mmd/core/market/value.h"

#define STEP_PART    8   /* of a model's layers: the least that is lent at once */
#define SURPLUS_PART 32  /* of the pool: what is free beyond returns */
#define LATE_FREE    100 /* permille of late requests that raise no weight */
#define LATE_FACTOR  4

/* The bids of those who compute, together. */
struct mm_bids {
	uint64_t weights;
	int64_t gain_permille; /* of ln(rate) for ln(KV of who lacked it of late) */
	uint64_t reserve;      /* KV of those who lack none */
	uint64_t enough;       /* KV that the others want */
	uint64_t least;        /* a chunk of each of the others */
};

static uint64_t bid_weight(const struct mm_view_tenant *t)
{
	uint64_t late = MM_MIN(t->late_permille, 1000u);

	late = late > LATE_FREE ? late - LATE_FREE : 0;
	return (uint64_t)t->weight * (1000 + LATE_FACTOR * late);
}

/* Returns @t's weight in permille of the mean weight of those who compute. */
static uint32_t relative_weight(const struct mm_draft *d, const struct mm_bids *bids,
				const struct mm_view_tenant *t)
{
	return (uint32_t)(bid_weight(t) * 1000 * d->computing / MM_MAX(bids->weights, 1u));
}

/* Returns the permille by which ln(KV) of @row makes ln(step) of all that compute longer. */
static uint64_t step_growth(const struct mm_draft_row *row, uint64_t steps_ns, uint64_t memory)
{
	const struct mm_view_tenant *t = row->t;

	if (t->kappa_permille && t->step_ns)
		return (uint64_t)((unsigned __int128)t->step_ns * mm_value_kappa(t) / steps_ns);
	return row->held * 1000 / MM_MAX(memory, 1u);
}

/* One with a queue wants more than it says: a denial takes its want back to what it holds. */
static uint64_t kv_enough(const struct mm_draft *d, const struct mm_draft_row *row)
{
	return row->t->waiting ? d->pages : row->want;
}

static void bid_add(const struct mm_draft *d, struct mm_draft_row *row, uint64_t steps_ns,
		    uint64_t memory, struct mm_bids *bids)
{
	uint64_t hungry = MM_MIN(row->t->hungry_permille, 1000u);
	int64_t gain;

	row->weight_permille = relative_weight(d, bids, row->t);
	gain = row->weight_permille;
	gain -= (int64_t)(step_growth(row, steps_ns, memory) * d->computing);
	row->gain_permille = gain;
	bids->gain_permille += gain * (int64_t)hungry / 1000;
	bids->reserve += row->held * (1000 - hungry) / 1000;
	bids->enough += kv_enough(d, row) * hungry / 1000;
	bids->least += hungry ? row->t->chunk_pages : 0;
}

static struct mm_bids bids_of(struct mm_draft *d)
{
	struct mm_bids bids = { 0 };
	uint64_t steps_ns = 0, memory = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		if (row->role != MM_ROLE_COMPUTES)
			continue;
		bids.weights += bid_weight(row->t);
		steps_ns += row->t->step_ns;
		memory += mm_draft_resident(row, 0) + row->held;
	}
	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].role == MM_ROLE_COMPUTES)
			bid_add(d, &d->row[i], steps_ns, memory, &bids);
	return bids;
}

/* ---- who does not compute ---- */

/* KV that must stay: of who computes what it wants, and an eighth for what it will want next. */
static uint64_t kv_needed(const struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t used = (uint64_t)MM_MIN(t->kv_used, t->kv_held) * t->chunk_pages;

	if (row->role == MM_ROLE_COMPUTES)
		return row->want + row->want / MM_DRAFT_AHEAD_PART;
	return t->gives ? used : row->held;
}

/*
 * Returns the pages of the model of @row with @alpha layers away, and, while the last of them
 * returns, those of the slot, which come free only afterwards: without them it would never return.
 */
static uint64_t model_needed(const struct mm_draft_row *row, uint32_t alpha)
{
	bool last_returns = row->role == MM_ROLE_COMPUTES && row->t->alpha_next && !alpha;

	return mm_draft_resident(row, alpha) + (last_returns ? row->t->slot_pages : 0);
}

/* Returns the pages that lack, with all layers of who computes at home; less than 0: a surplus. */
static int64_t pages_lacking(const struct mm_draft *d, bool home)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		bool lends = row->t->lends && home && row->role == MM_ROLE_COMPUTES;

		sum += model_needed(row, lends ? 0 : row->alpha) + kv_needed(row);
	}
	return (int64_t)sum - (int64_t)d->pages;
}

/* The lower priority lends first, then who was active last: it is needed again last. */
static bool idle_before(const struct mm_draft_row *a, const struct mm_draft_row *b)
{
	if (a->t->priority != b->t->priority)
		return a->t->priority < b->t->priority;
	return a->t->active_ns > b->t->active_ns;
}

static bool farther_turn(const struct mm_draft_row *a, const struct mm_draft_row *b)
{
	if (a->t->place != b->t->place)
		return a->t->place > b->t->place;
	return a->t->active_ns > b->t->active_ns;
}

/* Raises what @row lends by @lacking pages; returns the pages that are still lacking. */
static int64_t row_lend(struct mm_draft_row *row, int64_t lacking, uint32_t most)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t more;

	if (lacking <= 0 || most <= row->alpha || !t->layer_pages)
		return lacking;
	more = MM_MAX(mm_div_up((uint64_t)lacking, t->layer_pages), t->layers / STEP_PART);
	more = MM_MIN(more, most - row->alpha);
	row->alpha += (uint32_t)more;
	return lacking - (int64_t)(more * t->layer_pages);
}

static int64_t idle_lend(struct mm_draft *d, int64_t lacking)
{
	mm_draft_order(d, MM_ROLE_IDLE, idle_before);
	for (uint32_t i = 0; i < d->orders; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];

		row->why = MM_WHY_IDLE;
		lacking = row_lend(row, lacking, mm_draft_lends(row));
	}
	return lacking;
}

static int64_t waiting_lend(struct mm_draft *d, int64_t lacking)
{
	mm_draft_order(d, MM_ROLE_WAITS, farther_turn);
	for (uint32_t i = 0; i < d->orders; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];

		row->why = MM_WHY_OFF_TURN;
		lacking = row_lend(row, lacking, mm_draft_lends(row));
	}
	return lacking;
}

/* ---- what nobody needs returns ---- */

static bool taken_recently(const struct mm_draft *d, const struct mm_market_memory *memory,
			   const struct mm_draft_row *row)
{
	uint64_t taken_ns = memory->taken_ns[row->t->index];

	return taken_ns && d->view->now_ns - taken_ns < d->view->dwell_ns;
}

/* Gives back up to @surplus pages; returns what is left. With the last layer two come home. */
static int64_t row_return(struct mm_draft_row *row, int64_t surplus)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t all = (uint64_t)row->alpha * t->layer_pages + t->slot_pages, back;

	if (surplus <= 0 || !row->alpha || !t->lends || !t->layer_pages)
		return surplus;
	back = (uint64_t)surplus >= all ? row->alpha : (uint64_t)surplus / t->layer_pages;
	back = back < row->alpha || (uint64_t)surplus >= all ? back : row->alpha - 1;
	row->alpha -= (uint32_t)back;
	return surplus - (int64_t)(back * t->layer_pages);
}

static void next_return(struct mm_draft *d, const struct mm_market_memory *memory, int64_t *surplus)
{
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		if (row->role != MM_ROLE_WAITS || row->t->place || taken_recently(d, memory, row))
			continue;
		/* Half of what is away at a time: each change of a plan costs. */
		if (*surplus < (int64_t)((uint64_t)row->alpha * row->t->layer_pages / 2))
			continue;
		*surplus = row_return(row, *surplus);
		row->why = MM_WHY_NEXT;
	}
}

/* Returns the pages of the layers without which steps of @row take more than twice as long. */
static uint64_t severe_pages(const struct mm_draft_row *row)
{
	uint32_t alpha = row->alpha;

	while (mm_value_slow(row->t, alpha) >= MM_VALUE_SEVERE)
		alpha--;
	return (uint64_t)(row->alpha - alpha) * row->t->layer_pages +
	       (alpha ? 0 : row->t->slot_pages);
}

/*
 * While memory rotates, those that wait run steps with what they have, so layers return to each of
 * them whose steps are not severely longer then: to who lent last first.
 */
static void waiting_return(struct mm_draft *d, const struct mm_market_memory *memory,
			   int64_t *surplus)
{
	mm_draft_order(d, MM_ROLE_WAITS, farther_turn);
	for (uint32_t i = d->orders; i--;) {
		struct mm_draft_row *row = &d->row[d->order[i]];

		if (!taken_recently(d, memory, row) && *surplus >= (int64_t)severe_pages(row))
			*surplus = row_return(row, *surplus);
	}
}

static void idle_return(struct mm_draft *d, const struct mm_market_memory *memory, int64_t surplus)
{
	int64_t kept = (int64_t)(d->pages / SURPLUS_PART);

	mm_draft_order(d, MM_ROLE_IDLE, idle_before);
	for (uint32_t i = d->orders; i-- && surplus > kept;) {
		struct mm_draft_row *row = &d->row[d->order[i]];

		if (!taken_recently(d, memory, row))
			surplus = row_return(row, surplus);
	}
}

/* ---- who computes ---- */

/* The longest steps hide most, so theirs are the cheapest layers. */
static bool cheaper_layers(const struct mm_draft_row *a, const struct mm_draft_row *b)
{
	return a->t->step_ns > b->t->step_ns;
}

/* Returns the pages that those who lack KV can have together. */
static int64_t hungry_pages(const struct mm_draft *d, const struct mm_bids *bids)
{
	uint64_t sum = bids->reserve;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		sum += mm_draft_resident(row, row->alpha);
		sum += row->role == MM_ROLE_COMPUTES ? 0 : kv_needed(row);
	}
	return (int64_t)(d->pages + d->cold_pages) - (int64_t)sum;
}

static struct mm_value value_of(const struct mm_draft *d, const struct mm_bids *bids,
				const struct mm_draft_row *row, int64_t pages, uint32_t link)
{
	pages -= (int64_t)((uint64_t)row->alpha * row->t->layer_pages);
	return (struct mm_value){
		.computing = d->computing,
		.weight_permille = relative_weight(d, bids, row->t),
		.gain_permille = bids->gain_permille,
		.kv_pages = (uint64_t)MM_MAX(pages, (int64_t)MM_MAX(bids->least, 1u)),
		.kv_enough = bids->enough + d->cold_pages,
		/* While one stalls the others compute; who computes alone has nobody for that. */
		.rho_permille = d->computing > 1 ? MM_VALUE_STALL * d->view->rho_permille : 1000,
		.link_slows_permille = d->view->link_slows_permille,
		.link_permille = link,
		.cold_load = row->cold_load,
		.slow_most = d->computing > 1 ? mm_value_clause(row->t) : MM_VALUE_SLOW_KNOWN,
		.alpha_least = row->alpha_least,
		.alpha_most = mm_draft_lends(row),
	};
}

static enum mm_target_why choice_why(const struct mm_draft *d, const struct mm_draft_row *row,
				     const struct mm_value_choice *choice)
{
	if (row->alpha_least && choice->alpha == row->alpha_least)
		return MM_WHY_MODEL_WAITS;
	if (choice->stays)
		return MM_WHY_HYSTERESIS;
	if (choice->unknown)
		return MM_WHY_UNKNOWN;
	if (choice->clause)
		return MM_WHY_CLAUSE;
	if (choice->alpha && choice->alpha == mm_draft_lends(row))
		return MM_WHY_CAP;
	return d->beside ? MM_WHY_WORTH : MM_WHY_HOLDER;
}

/* A model or plan that waits bids without limit: who computes lends for it within the clause. */
static void lend_for_big(struct mm_draft *d)
{
	int64_t short_pages = -(int64_t)d->pages;

	if (!d->view->big_pages)
		return;
	for (uint32_t i = 0; i < d->n; i++)
		short_pages += (int64_t)(mm_draft_resident(&d->row[i], d->row[i].alpha) +
					 MM_MIN(d->row[i].held, kv_needed(&d->row[i])));
	short_pages = MM_MIN(short_pages, (int64_t)d->view->big_pages);
	for (uint32_t i = 0; i < d->orders && short_pages > 0; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];
		uint32_t most = mm_draft_lends(row), now = row->alpha;

		short_pages = row_lend(row, short_pages, most);
		row->alpha_least = row->alpha > now ? row->alpha : 0;
		row->alpha = now;
	}
}

static void row_choose(struct mm_draft *d, const struct mm_market_memory *memory,
		       const struct mm_bids *bids, struct mm_draft_row *row, bool cold_first,
		       int64_t *pages, uint32_t *link)
{
	struct mm_value v = value_of(d, bids, row, *pages, *link);
	struct mm_value_choice choice = mm_value_choose(&v, row->t, row->alpha);
	bool recent = d->computing > 1 && taken_recently(d, memory, row);

	/* Layers that nobody lacks KV for return as far as there is room. */
	if (bids->gain_permille <= 0 && !row->alpha_least)
		choice = (struct mm_value_choice){ .alpha = 0 };
	row->why = choice_why(d, row, &choice);
	if (recent && choice.alpha < row->alpha &&
	    mm_value_cost(&v, row->t, row->alpha).slow_permille <= v.slow_most) {
		choice.alpha = row->alpha;
		row->why = MM_WHY_DWELL;
	}
	if (cold_first && choice.alpha > MM_MAX(row->alpha, row->alpha_least)) {
		choice.alpha = MM_MAX(row->alpha, row->alpha_least);
		row->why = MM_WHY_COLD;
	}
	if (choice.alpha < MM_MIN(row->cold_alpha, mm_draft_lends(row))) {
		choice.alpha = MM_MIN(row->cold_alpha, mm_draft_lends(row));
		row->why = MM_WHY_WORTH;
	}
	*pages += ((int64_t)choice.alpha - (int64_t)row->alpha) * (int64_t)row->t->layer_pages;
	row->alpha = choice.alpha;
	*link += mm_value_cost(&v, row->t, row->alpha).link_permille;
	row->worth = choice.worth;
	row->worth_more = choice.worth_more;
	row->valued = true;
	row->value = v;
}

/*
 * Returns whether blocks of each that lacks KV can become cold, which costs less than layers. They
 * are its own KV only, and need time: where several compute, layers do not wait for them.
 */
static bool cold_suffices(const struct mm_draft *d)
{
	bool any = false;

	if (d->computing > 1)
		return false;
	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		if (row->role != MM_ROLE_COMPUTES || !row->t->hungry_permille)
			continue;
		if (!row->cold_room)
			return false;
		any = true;
	}
	return any;
}

static void computing_lend(struct mm_draft *d, const struct mm_market_memory *memory,
			   const struct mm_bids *bids)
{
	const bool cold_first = cold_suffices(d);
	int64_t pages = hungry_pages(d, bids);
	uint32_t link = 0;

	for (uint32_t i = 0; i < d->n; i++)
		link += d->row[i].role == MM_ROLE_COMPUTES ? d->row[i].cold_link : 0;
	mm_draft_order(d, MM_ROLE_COMPUTES, cheaper_layers);
	lend_for_big(d);
	for (uint32_t i = 0; i < d->orders; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];

		if (!row->t->lends) {
			row->why = row->t->layers ? MM_WHY_BY_HAND : MM_WHY_STAYS;
			continue;
		}
		link -= row->cold_link;
		row_choose(d, memory, bids, row, cold_first, &pages, &link);
	}
}

void mm_away_decide(struct mm_draft *d, const struct mm_market_memory *memory)
{
	struct mm_bids bids = bids_of(d);
	int64_t lacking = pages_lacking(d, true), surplus;

	lacking = idle_lend(d, lacking);
	lacking = waiting_lend(d, lacking);
	/* A denial takes the want of one with a queue back to what it holds. */
	d->is_short =
		lacking > 0 || d->view->free + d->view->coming < d->view->pages / SURPLUS_PART;
	mm_cool_decide(d, memory);
	computing_lend(d, memory, &bids);
	surplus = -pages_lacking(d, false);
	if (d->rotates)
		waiting_return(d, memory, &surplus);
	else if (!d->beside)
		next_return(d, memory, &surplus);
	idle_return(d, memory, surplus);
}
