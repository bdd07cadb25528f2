/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/decide.h"

#include "libclient/base/base.h"
#include "mmd/core/market/away.h"
#include "mmd/core/market/cool.h"
#include "mmd/core/market/draft.h"
#include "mmd/core/market/mode.h"
#include "mmd/core/market/split.h"

#define LOOK_NS      (50 * MM_NS_PER_MS)
#define PERMILLE_ONE 1000 /* millionths */

static enum mm_target_first first_of(const struct mm_draft *d, const struct mm_draft_row *row)
{
	if (row->role == MM_ROLE_WAITS)
		return MM_FIRST_NEXT;
	if (row->role == MM_ROLE_IDLE)
		return MM_FIRST_IDLE;
	if (!d->beside && row->t->turn != MM_VIEW_NO_TURNS)
		return MM_FIRST_HOLDER;
	return row->held < row->part || (row->alpha < row->t->alpha && row->why == MM_WHY_CLAUSE)
		       ? MM_FIRST_ENTITLED
		       : MM_FIRST_COMPUTES;
}

static int32_t worth_permille(int64_t worth)
{
	return (int32_t)MM_MAX(MM_MIN(worth / PERMILLE_ONE, INT32_MAX), INT32_MIN);
}

static struct mm_target target_make(const struct mm_draft *d, const struct mm_draft_row *row)
{
	uint32_t per = MM_MAX(row->t->chunk_pages, 1u);

	return (struct mm_target){
		.alpha = row->alpha,
		.kv_most = (uint32_t)MM_MIN(row->level / per, (uint64_t)row->t->kv_limit),
		.kv_keep = row->keep < row->held ? (uint32_t)(row->keep / per) : UINT32_MAX,
		.first = first_of(d, row),
		.why = row->why,
		.cold = row->cold,
		.cold_why = row->cold_why,
		.worth = worth_permille(row->worth),
		.worth_more = worth_permille(row->worth_more),
		.valued = row->valued,
		.value = row->value,
	};
}

void mm_market_decide(const struct mm_view *view, struct mm_market_memory *memory,
		      struct mm_targets *targets)
{
	struct mm_draft d;
	bool away = false;

	mm_draft_begin(&d, view);
	mm_mode_choose(&d, memory, targets);
	mm_away_decide(&d, memory);
	mm_split_decide(&d);
	for (uint32_t i = 0; i < d.n; i++) {
		const struct mm_draft_row *row = &d.row[i];

		targets->tenant[row->t->index] = target_make(&d, row);
		if (row->alpha > row->t->alpha_next)
			memory->taken_ns[row->t->index] = view->now_ns;
		away = away || row->alpha;
	}
	mm_cool_note(&d, memory);
	targets->decided_ns = view->now_ns;
	targets->beside = memory->beside;
	targets->turn_ns = mm_mode_turn_ns(&d);
	targets->again_ns = d.working || away ? view->now_ns + LOOK_NS : UINT64_MAX;
}
