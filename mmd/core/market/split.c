/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/split.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/market/value.h"

#define SLACK_PART  8    /* of what it uses that a tenant with work may hold empty */
#define RECALL_PART 32   /* of KV in use beyond shares: the most that is asked back at once */
#define OWN_PART    2    /* of its share that stays with who lacks layers */
#define LEVEL_SCALE 1024 /* of a level of KV for each unit of weight */
#define PART_SCALE  (UINT64_C(1) << 20)

static uint64_t share_pages(const struct mm_draft_row *row)
{
	return (uint64_t)row->t->kv_share * row->t->chunk_pages;
}

static uint64_t chunks_down(const struct mm_draft_row *row, uint64_t pages)
{
	uint32_t per = row->t->chunk_pages;

	return per ? pages / per * per : 0;
}

/* Takes up to @pages from @row, which keeps @least; returns what was taken, in whole chunks. */
static uint64_t keep_less(struct mm_draft_row *row, uint64_t least, uint64_t pages)
{
	uint32_t per = row->t->chunk_pages;
	uint64_t over = row->keep > least ? row->keep - least : 0, take;

	if (!per || !row->t->gives)
		return 0;
	take = MM_MIN(mm_div_up(MM_MIN(over, pages), per), over / per) * per;
	row->keep -= take;
	return take;
}

/* Takes what is still needed of @ret_needed from @row, which keeps @least. */
static void take_needed(struct mm_draft_row *row, uint64_t least, uint64_t *ret_needed)
{
	uint64_t taken = keep_less(row, least, *ret_needed);

	*ret_needed -= MM_MIN(taken, *ret_needed);
}

/* ---- what is taken ---- */

static uint64_t models_sum(const struct mm_draft *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++)
		sum += mm_draft_resident(&d->row[i], d->row[i].alpha);
	return sum;
}

/* Returns the pages by which wants of who computes are more than there is. */
static uint64_t kv_lacking(const struct mm_draft *d, uint64_t budget)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++)
		sum += d->row[i].role == MM_ROLE_COMPUTES ? d->row[i].want : d->row[i].keep;
	return sum > budget ? sum - budget : 0;
}

/* Chunks in use, of a tenant with work a few more; all if requests wait, which soon fill them. */
static uint64_t not_empty(const struct mm_draft_row *row)
{
	uint64_t used = MM_MIN(row->t->kv_used, row->t->kv_held);

	if (row->role == MM_ROLE_COMPUTES && (row->t->waiting || row->want > row->held))
		return row->held;
	/* The share of what it wants is not taken. */
	if (row->role == MM_ROLE_COMPUTES)
		used = MM_MAX(used,
			      MM_MIN(MM_MIN(row->t->kv_wanted, row->t->kv_share), row->t->kv_held));
	if (row->works)
		used = MM_MIN(used + used / SLACK_PART + 1, (uint64_t)row->t->kv_held);
	return used * row->t->chunk_pages;
}

/* The one that was active last is needed again last, and those who compute give last. */
static bool later_active(const struct mm_draft_row *a, const struct mm_draft_row *b)
{
	return a->t->active_ns > b->t->active_ns;
}

static uint64_t empties_take(struct mm_draft *d, uint64_t lacking)
{
	for (uint32_t k = 0; k < MM_ROLES && lacking; k++) {
		mm_draft_order(d, MM_ROLES - 1 - k, later_active);
		for (uint32_t i = 0; i < d->orders && lacking; i++) {
			struct mm_draft_row *row = &d->row[d->order[i]];

			take_needed(row, not_empty(row), &lacking);
		}
	}
	return lacking;
}

static bool farther_in_line(const struct mm_draft_row *a, const struct mm_draft_row *b)
{
	if (a->t->place != b->t->place)
		return a->t->place > b->t->place;
	return later_active(a, b);
}

/* KV of who waits for its turn goes to the host, or, without room there, down to its share. */
static uint64_t waiting_take(struct mm_draft *d, enum mm_role role, uint64_t lacking)
{
	mm_draft_order(d, role, farther_in_line);
	for (uint32_t i = 0; i < d->orders && lacking; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];
		take_needed(row, row->t->swap_bytes ? 0 : share_pages(row), &lacking);
	}
	return lacking;
}

/* Returns what is lacking of shares of who computes. */
static uint64_t shares_lacking(const struct mm_draft *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		if (row->role == MM_ROLE_COMPUTES)
			sum += row->part > row->held ? row->part - row->held : 0;
	}
	return sum;
}

/*
 * Returns the pages that the return of layers without which @row hardly computes needs; with the
 * last one, those of the slot besides, which come free only afterwards.
 */
static uint64_t layers_lacking(const struct mm_draft_row *row)
{
	uint32_t now = row->t->alpha_next, slow;

	if (row->role != MM_ROLE_COMPUTES || row->alpha >= now)
		return 0;
	slow = mm_value_slow(row->t, now);
	if (slow < MM_VALUE_SEVERE || slow <= mm_value_clause(row->t))
		return 0;
	return (uint64_t)(now - row->alpha) * row->t->layer_pages +
	       (row->alpha ? 0 : row->t->slot_pages);
}

/* Returns the pages of the whole chunks nearest to @part of what @row has beyond its share. */
static uint64_t surplus_part(const struct mm_draft_row *row, uint64_t part)
{
	uint64_t per = row->t->chunk_pages, pages = (row->low * part + PART_SCALE / 2) / PART_SCALE;

	return per ? MM_MIN((pages + per / 2) / per, row->low / per) * per : 0;
}

static uint64_t surplus_sum(const struct mm_draft *d, uint64_t part)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++)
		sum += surplus_part(&d->row[i], part);
	return sum;
}

/* Returns the least part of what is beyond shares that makes @pages, if there is one. */
static uint64_t surplus_find(const struct mm_draft *d, uint64_t pages)
{
	uint64_t low = 0, high = PART_SCALE;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;

		if (surplus_sum(d, mid) >= pages)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

/*
 * Takes @pages of KV beyond shares, in use or not, in proportion to what is beyond, but no more
 * than one of @parts of that. Rounded up, each took a chunk at least: one with large chunks gave
 * many times its part at each decision. Returns the pages that KV beyond shares cannot give.
 */
static uint64_t surplus_take(struct mm_draft *d, uint64_t pages, uint64_t parts)
{
	uint64_t over = 0, all = pages, part;

	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		row->low = row->t->gives && row->keep > share_pages(row)
				   ? row->keep - share_pages(row)
				   : 0;
		over += row->low;
	}
	pages = MM_MIN(pages, mm_div_up(over, parts));
	part = over ? surplus_find(d, pages) : 0;
	for (uint32_t i = 0; i < d->n && over; i++)
		d->row[i].keep -= surplus_part(&d->row[i], part);
	return all > over ? all - over : 0;
}

static uint64_t kept_sum(const struct mm_draft *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++)
		sum += d->row[i].keep;
	return sum;
}

/* Takes @pages of KV of those who lack layers, each for its own, down to a part of its share. */
static void own_take(struct mm_draft *d, uint64_t layers, uint64_t pages)
{
	for (uint32_t i = 0; i < d->n && layers; i++) {
		struct mm_draft_row *row = &d->row[i];
		uint64_t own = layers_lacking(row) * pages / layers;

		keep_less(row, share_pages(row) / OWN_PART, own);
	}
}

/*
 * KV returns for shares, and for layers: the budget is what layers leave that are home. In turns
 * the pages of those layers are asked for besides, so that what is left of the turn has them early.
 */
static void entitled_take(struct mm_draft *d, uint64_t budget)
{
	uint64_t needed = kept_sum(d) + shares_lacking(d), most = shares_lacking(d), layers = 0;

	for (uint32_t i = 0; i < d->n; i++)
		layers += layers_lacking(&d->row[i]);
	needed += d->beside ? 0 : layers;
	most += layers;
	if (needed <= budget || !most)
		return;
	/* A few at a time, so that requests end rather than leave. */
	needed = surplus_take(d, MM_MIN(needed - budget, most),
			      d->beside && !layers ? RECALL_PART : 1);
	own_take(d, layers, MM_MIN(needed, layers));
}

static void take_for_wants(struct mm_draft *d, uint64_t budget)
{
	uint64_t lacking = kv_lacking(d, budget);

	if (lacking)
		lacking = empties_take(d, lacking);
	if (lacking && !d->beside) {
		lacking = waiting_take(d, MM_ROLE_IDLE, lacking);
		lacking = waiting_take(d, MM_ROLE_WAITS, lacking);
	}
	if (lacking)
		entitled_take(d, budget);
}

static void account_role_take(struct mm_draft *d, enum mm_role role, bool shares, uint64_t *owes)
{
	mm_draft_order(d, role, later_active);
	for (uint32_t i = 0; i < d->orders; i++) {
		struct mm_draft_row *row = &d->row[d->order[i]];

		take_needed(row, shares ? 0 : share_pages(row), &owes[row->t->account]);
	}
}

/* An account that must give does so with its tenants' KV beyond shares first, then with any. */
static void accounts_take(struct mm_draft *d)
{
	uint64_t owes[MM_CORE_ACCOUNTS_MAX];

	for (uint32_t i = 0; i < d->view->n_accounts; i++)
		owes[i] = d->view->account[i].owes;
	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		uint64_t given = row->held - row->keep, *o = &owes[row->t->account];

		if (row->alpha > row->t->alpha)
			given += (uint64_t)(row->alpha - row->t->alpha) * row->t->layer_pages;
		*o -= MM_MIN(*o, given);
	}
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t k = 0; k < MM_ROLES; k++)
			account_role_take(d, MM_ROLES - 1 - k, pass, owes);
}

/* ---- what is given ---- */

/* Returns what a tenant cannot go below, whoever needs memory: layers and KV that stay. */
static uint64_t least_of(const struct mm_draft_row *row)
{
	uint32_t most = row->t->lends ? mm_draft_lends(row) : row->alpha;
	uint64_t kv = row->held;

	if (row->t->gives)
		kv = row->t->swap_bytes ? 0 : MM_MIN(row->held, share_pages(row));
	return mm_draft_resident(row, MM_MAX(most, row->alpha)) + kv;
}

/*
 * A tenant that waits holds no more than fits beside its own layers at its turn. Pages that it was
 * granted beyond would be reclaimed for its own layers, and, with no turn in between, granted to it
 * again.
 */
static void waiting_bound(struct mm_draft *d)
{
	uint64_t least = 0;

	for (uint32_t i = 0; i < d->n; i++)
		least += least_of(&d->row[i]);
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];
		uint64_t others = least - least_of(row), own;

		own = mm_draft_resident(row, row->t->lends ? 0 : row->alpha) + row->t->slot_pages;
		row->bound = d->pages > others + own ? d->pages - others - own : 0;
		row->level = row->keep;
		if (row->role == MM_ROLE_WAITS)
			row->level = MM_MIN(row->keep, row->bound);
	}
}

static uint64_t clamp_level(const struct mm_draft_row *row, uint64_t height)
{
	uint64_t at = (uint64_t)((unsigned __int128)height * row->t->weight / LEVEL_SCALE);

	return MM_MAX(row->low, MM_MIN(row->high, at));
}

static uint64_t levels_sum(const struct mm_draft *d, enum mm_role role, uint64_t height)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].role == role)
			sum += clamp_level(&d->row[i], height);
	return sum;
}

/*
 * Raises levels of @role from low towards high, the lowest by weight first, while they are no more
 * than @pages together. Returns whether all are at their high.
 */
static bool levels_fill(struct mm_draft *d, enum mm_role role, uint64_t pages)
{
	uint64_t low = 0, high = (d->pages + 1) * LEVEL_SCALE;
	bool all = levels_sum(d, role, high) <= pages;

	while (!all && low < high) {
		uint64_t mid = low + (high - low + 1) / 2;

		if (levels_sum(d, role, mid) <= pages)
			low = mid;
		else
			high = mid - 1;
	}
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		if (row->role == role)
			row->level = clamp_level(row, all ? high : low);
	}
	return all;
}

/* Chunks that are reclaimed from a tenant are not granted to it at once. */
static uint64_t high_of(const struct mm_draft_row *row, uint32_t stage)
{
	uint64_t limit = (uint64_t)row->t->kv_limit * row->t->chunk_pages;

	if (row->keep < row->held)
		return row->keep;
	if (stage == 0)
		return MM_MAX(row->part, row->keep);
	return stage == 1 ? row->want : MM_MAX(limit, row->want);
}

/*
 * Returns the pages that @pages leave beyond what those who compute have and want next; none while
 * one of them is asked for KV.
 */
static uint64_t spare_pages(const struct mm_draft *d, uint64_t pages)
{
	uint64_t needed = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		if (row->role != MM_ROLE_COMPUTES)
			continue;
		if (row->keep < row->held)
			return 0;
		needed += MM_MAX(row->level, row->want) + row->want / MM_DRAFT_AHEAD_PART;
	}
	return pages > needed ? pages - needed : 0;
}

/*
 * While memory rotates, those that wait for it run steps with what they have: what the one whose
 * memory it is does not need is theirs until it does. Where layers are lacking so that a request
 * would hold its KV many times as long, there is none. Returns the pages that they get of @pages.
 */
static uint64_t levels_lend(struct mm_draft *d, uint64_t pages)
{
	uint64_t had = 0, has = 0, spare = spare_pages(d, pages);

	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		if (row->role != MM_ROLE_WAITS)
			continue;
		row->low = row->high = row->level;
		if (mm_value_slow(row->t, row->alpha) < MM_VALUE_SEVERE)
			row->high = MM_MAX(MM_MIN(high_of(row, 1), row->bound), row->low);
		had += row->low;
	}
	levels_fill(d, MM_ROLE_WAITS, had + spare);
	for (uint32_t i = 0; i < d->n; i++)
		has += d->row[i].role == MM_ROLE_WAITS ? d->row[i].level : 0;
	return has - had;
}

static void levels_give(struct mm_draft *d, uint64_t budget)
{
	uint64_t others = 0, pages;
	bool more = true;

	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];

		others += row->role == MM_ROLE_COMPUTES ? 0 : row->keep;
		row->level = row->role == MM_ROLE_COMPUTES ? row->keep : row->level;
	}
	pages = budget > others ? budget - others : 0;
	for (uint32_t stage = 0; stage < 3 && more; stage++) {
		if (stage == 2 && d->rotates)
			pages -= levels_lend(d, pages);
		for (uint32_t i = 0; i < d->n; i++) {
			d->row[i].low = d->row[i].level;
			d->row[i].high = MM_MAX(high_of(&d->row[i], stage), d->row[i].low);
		}
		more = levels_fill(d, MM_ROLE_COMPUTES, pages);
	}
}

/* Returns what @row would get beyond what it keeps, if it waits as @waits says. */
static uint64_t more_of(const struct mm_draft_row *row, bool waits)
{
	if ((row->role == MM_ROLE_WAITS) != waits || row->level <= row->keep)
		return 0;
	return row->level - row->keep;
}

static void accounts_cut(struct mm_draft *d, bool waits)
{
	uint64_t sum[MM_CORE_ACCOUNTS_MAX] = { 0 }, more[MM_CORE_ACCOUNTS_MAX] = { 0 };

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		sum[row->t->account] +=
			mm_draft_resident(row, row->alpha) + MM_MAX(row->level, row->keep);
		more[row->t->account] += more_of(row, waits);
	}
	for (uint32_t i = 0; i < d->n; i++) {
		struct mm_draft_row *row = &d->row[i];
		uint64_t most = d->view->account[row->t->account].max_pages;
		uint64_t all = more[row->t->account], beyond = sum[row->t->account];
		uint64_t cut = more_of(row, waits);

		beyond = beyond > most ? MM_MIN(beyond - most, all) : 0;
		if (beyond)
			row->level -= (uint64_t)(((unsigned __int128)cut * beyond + all - 1) / all);
	}
}

/*
 * Cuts what the tenants of an account have not got yet to what its max leaves, first what is lent
 * to those that wait.
 */
static void accounts_bound(struct mm_draft *d)
{
	accounts_cut(d, true);
	accounts_cut(d, false);
}

/*
 * Shares that tenants of an account at its max lack can only come from its other tenants: from what
 * these have beyond theirs, side by side a little at a time.
 */
static void accounts_take_for_shares(struct mm_draft *d)
{
	uint64_t need[MM_CORE_ACCOUNTS_MAX] = { 0 }, have[MM_CORE_ACCOUNTS_MAX] = { 0 };
	uint64_t over[MM_CORE_ACCOUNTS_MAX] = { 0 };

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		uint32_t a = row->t->account;

		have[a] += mm_draft_resident(row, row->alpha) + row->keep;
		over[a] += row->keep > share_pages(row) ? row->keep - share_pages(row) : 0;
		if (row->role == MM_ROLE_COMPUTES && row->part > row->held)
			need[a] += row->part - row->held;
	}
	for (uint32_t i = 0; i < d->view->n_accounts; i++) {
		uint64_t most = d->view->account[i].max_pages;
		uint64_t beyond = have[i] + need[i] > most ? have[i] + need[i] - most : 0;

		need[i] = MM_MIN(need[i], beyond);
		if (d->beside)
			need[i] = MM_MIN(need[i], mm_div_up(over[i], RECALL_PART));
	}
	for (uint32_t k = 0; k < MM_ROLES; k++)
		account_role_take(d, MM_ROLES - 1 - k, false, need);
}

void mm_split_decide(struct mm_draft *d)
{
	uint64_t models = models_sum(d), budget = d->pages > models ? d->pages - models : 0;

	take_for_wants(d, budget);
	accounts_take(d);
	accounts_take_for_shares(d);
	waiting_bound(d);
	levels_give(d, budget);
	accounts_bound(d);
	for (uint32_t i = 0; i < d->n; i++)
		d->row[i].level = chunks_down(&d->row[i], d->row[i].level);
}
