/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/market/mode.h"

#include "libclient/base/base.h"
#include "mmd/core/market/away.h"
#include "mmd/core/market/rotate.h"
#include "mmd/core/market/value.h"

#define DWELL_NS     MM_NS_PER_S
#define DWELL_OVER   1500 /* permille of demand over supply for turns after DWELL_NS */
#define GOALS_NS     (10 * MM_NS_PER_S) /* the least between two changes where there are goals */
#define GOALS_PART   10                 /* of a goal, by which the other mode must meet it */
#define TURN_MOST_NS (20 * MM_NS_PER_S)

/*
 * Memory that all who have work want beside their models; a model that is idle may come back any
 * time.
 */
static uint64_t demand_of(const struct mm_draft *d)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];

		sum += row->works ? row->want : (mm_draft_resident(row, 0) + row->held) / 2;
	}
	return sum;
}

/*
 * Returns what the models of those who have work would leave of the pool if all of them computed
 * side by side, with layers away as far as it pays.
 */
static uint64_t supply_of(struct mm_draft *d, const struct mm_market_memory *memory)
{
	uint64_t models = 0;

	mm_draft_roles(d, true, MM_NO_TENANT);
	mm_away_decide(d, memory);
	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].role == MM_ROLE_COMPUTES)
			models += mm_draft_resident(&d->row[i], d->row[i].alpha);
	return d->pages > models ? d->pages - models : 0;
}

/* ---- goals ---- */

/* Time between two tokens of @row side by side: beside others its steps are measured so already. */
static uint64_t beside_tpot_ns(const struct mm_draft_row *row, uint64_t steps_ns, bool beside)
{
	uint64_t slow = mm_value_slow(row->t, row->alpha);
	uint64_t step_ns = beside ? row->t->step_ns : steps_ns;

	return step_ns + step_ns / 1000 * MM_MIN(slow, 10000u);
}

/* The mode that is not in force must meet a goal by a margin: it is not measured but expected. */
static bool goal_missed(uint64_t ns, uint64_t goal_ns, bool in_force)
{
	return goal_ns && ns > (in_force ? goal_ns : goal_ns - goal_ns / GOALS_PART);
}

/* Goals for a first token make turns shorter, down to half of what a rotation pays for. */
static uint64_t turn_expected_ns(const struct mm_draft *d, const struct mm_view_tenant *t)
{
	uint64_t home = MM_MIN(t->home_mean_ns, (uint64_t)TURN_MOST_NS);
	uint64_t turn = home * 1000 / MM_MAX(d->view->turn_cost_permille, 1u);

	return MM_MAX(t->quantum_ns, MM_MIN(turn, (uint64_t)TURN_MOST_NS) / 2);
}

/* Returns the weights of who misses its goals: @ret_turns in turns, @ret_beside side by side. */
static void goals_missed(const struct mm_draft *d, bool beside, uint64_t *ret_beside,
			 uint64_t *ret_turns)
{
	uint64_t steps_ns = 0, turn_ns = 0;

	*ret_beside = *ret_turns = 0;
	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].works) {
			steps_ns += d->row[i].t->step_ns;
			turn_ns += turn_expected_ns(d, d->row[i].t);
		}
	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_draft_row *row = &d->row[i];
		const struct mm_view_tenant *t = row->t;
		uint64_t own_ns = turn_expected_ns(d, t);

		if (!row->works)
			continue;
		if (goal_missed(beside_tpot_ns(row, steps_ns, beside), t->goal_tpot_ns, beside))
			*ret_beside += t->weight;
		if (goal_missed(turn_ns - own_ns, t->goal_ttft_ns, !beside))
			*ret_turns += t->weight;
	}
}

/* ---- the mode ---- */

static bool wants_turns(const struct mm_draft *d, bool beside, struct mm_targets *targets)
{
	goals_missed(d, beside, &targets->missed_beside, &targets->missed_turns);
	if (targets->missed_beside != targets->missed_turns)
		return targets->missed_turns < targets->missed_beside;
	if (beside)
		return targets->demand * 1000 > targets->supply * MM_MODE_TURNS_FROM;
	return targets->demand * 1000 >= targets->supply * MM_MODE_BESIDE_BELOW;
}

static bool goals_count(const struct mm_draft *d)
{
	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].works && (d->row[i].t->goal_tpot_ns || d->row[i].t->goal_ttft_ns))
			return true;
	return false;
}

/*
 * Returns for how long all must speak for the other mode. Turns cost rotations, and all wait for
 * theirs: the less the demand is over the supply, the more likely it soon is not, without them.
 */
static uint64_t dwell_ns(const struct mm_targets *targets, bool beside)
{
	uint64_t over = targets->demand > targets->supply ? targets->demand - targets->supply : 0;
	uint64_t permille = over * 1000 / MM_MAX(targets->supply, 1u);

	if (beside || targets->missed_beside != targets->missed_turns || permille >= DWELL_OVER)
		return DWELL_NS;
	return DWELL_NS * DWELL_OVER / MM_MAX(permille, 1u);
}

/*
 * The other mode is entered when all has spoken for it for a while. Steps are not the same in both
 * modes, so that each may seem to miss the goals that the other would meet: where there are goals,
 * a mode stays for longer.
 */
static void mode_change(const struct mm_draft *d, struct mm_market_memory *memory,
			const struct mm_targets *targets, bool beside)
{
	const struct mm_view *view = d->view;
	uint64_t since_ns = view->now_ns - memory->mode_changed_ns;

	if (beside == memory->beside) {
		memory->mode_since_ns = 0;
		return;
	}
	if (!memory->mode_since_ns)
		memory->mode_since_ns = MM_MAX(view->now_ns, 1u);
	if (view->now_ns - memory->mode_since_ns < dwell_ns(targets, beside))
		return;
	if (memory->mode_changed_ns && d->joined > 1 && goals_count(d) && since_ns < GOALS_NS)
		return;
	memory->beside = beside;
	memory->mode_changed_ns = MM_MAX(view->now_ns, 1u);
	memory->mode_since_ns = 0;
}

/* ---- whose turn memory is for ---- */

/*
 * Returns who has the turn, or has the next one if nobody does; MM_NO_TENANT: nobody. When turns
 * close, it is not who ends its last step side by side last: that one waits as the others do.
 */
static uint32_t turn_now(const struct mm_draft *d)
{
	uint32_t next = MM_NO_TENANT;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_view_tenant *t = d->row[i].t;

		if (t->turn == MM_VIEW_HOLDS && !t->turn_ends)
			return t->index;
		if (t->turn == MM_VIEW_WAITS && !t->place)
			next = t->index;
	}
	return next;
}

/*
 * Returns whether turns close, and several still end their last steps side by side. That is over in
 * a step, and says nothing of whose turn it will be: memory stays as it is.
 */
static bool turns_closing(const struct mm_draft *d)
{
	uint32_t holders = 0;

	for (uint32_t i = 0; i < d->n; i++)
		holders += d->row[i].t->turn == MM_VIEW_HOLDS;
	return holders > 1;
}

void mm_mode_choose(struct mm_draft *d, struct mm_market_memory *memory, struct mm_targets *targets)
{
	const struct mm_view *view = d->view;
	bool may_turns = view->may_turns && view->joined, beside;

	memory->beside = memory->chosen ? memory->beside : view->may_beside;
	memory->chosen = true;
	targets->missed_beside = targets->missed_turns = 0;
	mm_rotate_works(d, memory);
	targets->demand = demand_of(d);
	targets->supply = supply_of(d, memory);
	if (!view->may_beside || !may_turns) {
		memory->beside = !may_turns;
		memory->mode_since_ns = 0;
	} else if (d->joined < 2) {
		mode_change(d, memory, targets, true);
	} else {
		mode_change(d, memory, targets, !wants_turns(d, memory->beside, targets));
	}
	beside = memory->beside || turns_closing(d);
	targets->turn_of = beside ? MM_NO_TENANT : turn_now(d);
	targets->memory_of = mm_rotate_choose(d, memory, targets);
	d->rotates = targets->memory_of != MM_NO_TENANT;
	mm_draft_roles(d, beside && !d->rotates,
		       d->rotates ? targets->memory_of : targets->turn_of);
}

/* ---- the length of a turn ---- */

/* Time that bringing the memory home takes; before any was measured, what its layers take. */
static uint64_t home_ns(const struct mm_view_tenant *t)
{
	return t->home_mean_ns ? t->home_mean_ns : t->alpha * t->transfer_ns;
}

/* Time that KV of the holder takes to come back from the host, if others' went there for it. */
static uint64_t suspended_ns(const struct mm_draft *d, const struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t lacks = 0;

	if (!t->swap_bytes || !t->layer_pages)
		return 0;
	for (uint32_t i = 0; i < d->n; i++)
		if (d->row[i].role == MM_ROLE_WAITS)
			lacks = MM_MAX(lacks,
				       d->row[i].want - MM_MIN(d->row[i].level, d->row[i].want));
	return MM_MIN(lacks, row->level) * (t->transfer_ns / t->layer_pages);
}

static uint64_t turn_length(const struct mm_draft *d, const struct mm_draft_row *row)
{
	const struct mm_view_tenant *t = row->t;
	uint64_t cost = MM_MAX(d->view->turn_cost_permille, 1u), most = TURN_MOST_NS;
	uint64_t turn = MM_MIN(home_ns(t) + suspended_ns(d, row), most) * 1000 / cost;

	for (uint32_t i = 0; i < d->n; i++) {
		const struct mm_view_tenant *u = d->row[i].t;

		if (d->row[i].role == MM_ROLE_WAITS && u->goal_ttft_ns)
			most = MM_MIN(most, u->goal_ttft_ns / d->waiting);
	}
	/* A goal does not make turns shorter than a rotation pays for. */
	most = MM_MAX(most, MM_MIN(turn / 2, (uint64_t)TURN_MOST_NS));
	return MM_MIN(MM_MAX(turn, t->quantum_ns), most);
}

uint64_t mm_mode_turn_ns(const struct mm_draft *d)
{
	for (uint32_t i = 0; i < d->n && !d->beside; i++)
		if (d->row[i].t->turn == MM_VIEW_HOLDS)
			return turn_length(d, &d->row[i]);
	return 0;
}
