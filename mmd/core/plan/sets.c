/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/sets.h"

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/plan/change.h"

#define WEIGHT_ONE (UINT32_C(1) << MM_C_WEIGHT_BITS)
#define ALIKE_PART 64 /* a weight over this: a smaller difference does not count */
#define NEAR_PART  16 /* a time over this: a smaller change does not make sets stale */
/* a step over this: for a smaller gain, layers stay where they are */
#define GAIN_PART 64
/* its product with layers and weight fits into 64 bits */
#define STREAMED_NS_MAX (64 * MM_NS_PER_S)
/* computing time of a mean layer; its product with layers is below MM_LAYER_NS_MAX */
#define C_NS_MAX (UINT64_C(1) << 30)

/* ---- weights ---- */

static uint32_t layer_weight(uint64_t part, uint64_t whole)
{
	while (part > UINT64_MAX >> MM_C_WEIGHT_BITS) {
		part >>= 1;
		whole >>= 1;
	}
	part = (part << MM_C_WEIGHT_BITS) / MM_MAX(whole, 1);
	return (uint32_t)MM_MAX(MM_MIN(part, MM_LAYERS_MAX * WEIGHT_ONE), 1);
}

/* Computing times count only if the tenant states them for all layers. */
static bool compute_is_stated(const struct mm_c_tenant *t)
{
	for (uint32_t l = 0; l < t->n_layers; l++)
		if (!t->load.last.compute[l])
			return false;
	return true;
}

static bool weights_are_alike(const uint32_t *weights, uint32_t n)
{
	uint32_t least = UINT32_MAX, most = 0;

	for (uint32_t l = 0; l < n; l++) {
		least = MM_MIN(least, weights[l]);
		most = MM_MAX(most, weights[l]);
	}
	return most - least <= most / ALIKE_PART;
}

static bool layers_have_same_pages(const struct mm_c_tenant *t)
{
	for (uint32_t l = 1; l < t->n_layers; l++)
		if (t->layer_pages[l] != t->layer_pages[0])
			return false;
	return true;
}

/* True if plan.h could have chosen the set in force; a set of layers.h may have more layers. */
static bool plan_is_regular(const struct mm_c_tenant *t)
{
	return !mm_c_is_changing(t) && t->plan.m == mm_plan_cycling(t->plan.alpha, t->plan.beta);
}

void mm_c_sets_claim(struct mm_c_tenant *t)
{
	bool stated = compute_is_stated(t);
	uint64_t sum = 0;

	for (uint32_t l = 0; l < t->n_layers; l++)
		sum += stated ? t->load.last.compute[l] : t->group[1 + l].bytes;
	for (uint32_t l = 0; l < t->n_layers; l++) {
		uint64_t part = stated ? t->load.last.compute[l] : t->group[1 + l].bytes;

		t->sets->c_weight[l] = layer_weight(part, sum / t->n_layers);
		t->sets->t_weight[l] = layer_weight(t->group[1 + l].bytes, t->layer_bytes_max);
	}
	t->sets->uneven = !layers_have_same_pages(t) ||
			  !weights_are_alike(t->sets->c_weight, t->n_layers) ||
			  !weights_are_alike(t->sets->t_weight, t->n_layers) ||
			  (t->sets->uneven && !plan_is_regular(t));
	t->sets->valid = false;
	t->sets->claims++;
}

/* Every layer that cycles is streamed once per step. */
uint64_t mm_c_sets_largest_ns(const struct mm_c_tenant *t, uint64_t mean_ns)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < t->change->set.m; i++)
		sum += t->sets->t_weight[t->change->set.layer[i]];
	if (!t->sets->uneven || !sum || mean_ns > STREAMED_NS_MAX)
		return mean_ns;
	return ((mean_ns * t->change->set.m) << MM_C_WEIGHT_BITS) / sum;
}

/* ---- how many ---- */

static uint64_t layers_pages(const struct mm_c_tenant *t)
{
	return t->entries - t->group[0].pages;
}

uint64_t mm_c_away_pages(const struct mm_c_tenant *t, uint32_t alpha)
{
	return layers_pages(t) * alpha / t->n_layers;
}

uint64_t mm_c_layer_pages(const struct mm_c_tenant *t)
{
	uint64_t pages = t->entries - t->group[0].pages;

	return MM_MAX(pages / t->n_layers, 1);
}

/* Returns the largest alpha with @beta slots: all layers cycle. */
static uint32_t alpha_most(const struct mm_c_tenant *t, uint32_t beta)
{
	struct mm_plan_set all = { .m = t->n_layers, .beta = beta };
	uint64_t away;
	uint32_t alpha = t->n_layers - 1;

	if (t->n_layers < 2 * beta)
		return 0;
	for (uint32_t l = 0; l < t->n_layers; l++)
		all.layer[l] = (uint16_t)l;
	away = layers_pages(t) - mm_c_slots_pages(t, &all);
	while (alpha && mm_c_away_pages(t, alpha) > away)
		alpha--;
	return alpha;
}

void mm_c_sets_init(struct mm_c_tenant *t)
{
	mm_c_sets_claim(t);
	t->sets->alpha_max = alpha_most(t, 1);
	t->sets->alpha_max_two = alpha_most(t, 2);
}

bool mm_c_alpha_possible(const struct mm_c_tenant *t, uint32_t alpha, uint32_t beta)
{
	if (beta == 2)
		return !alpha || (alpha >= 2 && alpha <= t->sets->alpha_max_two);
	return alpha <= t->sets->alpha_max;
}

uint64_t mm_c_slots_pages(const struct mm_c_tenant *t, const struct mm_plan_set *set)
{
	uint64_t sum = 0;

	for (uint32_t s = 0; s < set->beta; s++)
		sum += mm_plan_slot_pages(set, s, t->layer_pages);
	return sum;
}

uint64_t mm_c_blank_pages(const struct mm_c_tenant *t, const struct mm_plan_set *next)
{
	uint64_t want = mm_c_slots_pages(t, next);
	uint64_t have = mm_c_slots_pages(t, &t->change->set) +
			mm_plan_pages_only_in(next, &t->change->set, t->layer_pages);

	return want > have ? want - have : 0;
}

/* ---- what they cost ---- */

/* Until both times are known, a step is taken as computation only, which makes the gaps even. */
static void layers_of(const struct mm_c_tenant *t, uint64_t t_c_ns, uint64_t t_t_ns,
		      struct mm_layers *ret_layers)
{
	bool known = t_c_ns && t_t_ns;

	t_c_ns = known ? MM_MIN(t_c_ns, C_NS_MAX) : C_NS_MAX;
	t_t_ns = known ? MM_MIN(t_t_ns, MM_LAYER_NS_MAX) : 0;
	ret_layers->n = t->n_layers;
	ret_layers->pages = t->layer_pages;
	for (uint32_t l = 0; l < t->n_layers; l++) {
		ret_layers->c_ns[l] = t_c_ns * t->sets->c_weight[l] >> MM_C_WEIGHT_BITS;
		ret_layers->t_ns[l] = t_t_ns * t->sets->t_weight[l] >> MM_C_WEIGHT_BITS;
	}
	mm_layers_sum(ret_layers);
}

static void layers_now(const struct mm_core *c, const struct mm_c_tenant *t,
		       struct mm_layers *ret_layers)
{
	layers_of(t, t->load.t_c_ns, mm_c_transfer_ns(c, t), ret_layers);
}

static bool times_are_measured(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->load.t_c_ns && mm_c_transfer_ns(c, t);
}

uint64_t mm_c_set_step_at(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			  uint64_t t_c_ns, uint64_t t_t_ns)
{
	struct mm_layers layers;

	if (!t->sets->uneven)
		return mm_plan_set_step_ns(set, t->n_layers, t_c_ns, t_t_ns);
	layers_of(t, t_c_ns, t_t_ns, &layers);
	return mm_layers_step_ns(&layers, set);
}

uint64_t mm_c_set_stream_ns(const struct mm_c_tenant *t, const struct mm_plan_set *set,
			    uint64_t t_t_ns)
{
	uint64_t sum = 0;

	t_t_ns = MM_MIN(t_t_ns, MM_LAYER_NS_MAX);
	if (!t->sets->uneven)
		return set->m * t_t_ns;
	for (uint32_t i = 0; i < set->m; i++)
		sum += t_t_ns * t->sets->t_weight[set->layer[i]] >> MM_C_WEIGHT_BITS;
	return sum;
}

uint64_t mm_c_set_step_ns(const struct mm_core *c, const struct mm_c_tenant *t,
			  const struct mm_plan_set *set)
{
	struct mm_layers layers;

	if (!t->sets->uneven)
		return mm_plan_set_step_ns(set, t->n_layers, t->load.t_c_ns,
					   mm_c_transfer_ns(c, t));
	layers_now(c, t, &layers);
	return mm_layers_step_ns(&layers, set);
}

bool mm_c_set_hidden(const struct mm_core *c, const struct mm_c_tenant *t,
		     const struct mm_plan_set *set)
{
	struct mm_layers layers;

	if (!t->sets->uneven)
		return mm_plan_hidden(set, t->n_layers, t->load.t_c_ns, mm_c_transfer_ns(c, t));
	layers_now(c, t, &layers);
	return times_are_measured(c, t) && mm_layers_slack_ns(&layers, set) >= 0;
}

/* ---- which ---- */

static bool times_are_near(uint64_t a, uint64_t b)
{
	uint64_t most = MM_MAX(a, b);

	return most - MM_MIN(a, b) <= most / NEAR_PART && !a == !b;
}

/*
 * Sets of layers that are alike do not depend on times. Other sets are chosen anew when the times
 * have changed, but not as often as a tenant can change them: choosing takes long.
 */
static bool sets_are_stale(const struct mm_core *c, const struct mm_c_tenant *t)
{
	uint64_t t_c_ns = t->load.t_c_ns, t_t_ns = mm_c_transfer_ns(c, t);
	const struct mm_c_sets *sets = t->sets;

	if (!sets->valid || sets->epoch != t->plan.epoch)
		return true;
	if (!t->sets->uneven ||
	    (times_are_near(sets->t_c_ns, t_c_ns) && times_are_near(sets->t_t_ns, t_t_ns)))
		return false;
	return !sets->t_c_ns || !sets->t_t_ns ||
	       c->now_ns - sets->times_ns >= mm_c_time(c, MM_CLAIM_NS);
}

static void sets_refresh(const struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_c_sets *sets = t->sets;

	if (!sets_are_stale(c, t))
		return;
	for (uint32_t i = 0; i < MM_C_SETS; i++)
		sets->chosen[i].beta = 0;
	sets->valid = true;
	sets->epoch = t->plan.epoch;
	sets->t_c_ns = t->load.t_c_ns;
	sets->t_t_ns = mm_c_transfer_ns(c, t);
	sets->times_ns = c->now_ns;
}

static void uneven_choose(const struct mm_c_tenant *t, uint32_t alpha, uint32_t beta, bool nested,
			  struct mm_plan_set *ret_set)
{
	uint64_t away = mm_c_away_pages(t, alpha);
	struct mm_plan_set current = t->change->set;
	enum mm_layers_how how = MM_LAYERS_ANY;
	struct mm_layers layers;

	layers_of(t, t->sets->t_c_ns, t->sets->t_t_ns, &layers);
	current.beta = beta;
	if (nested && current.m) {
		how = MM_LAYERS_GROW;
		if (current.m >= 2 * beta && mm_layers_away(&layers, &current) >= away)
			how = MM_LAYERS_SHRINK;
	}
	if (mm_layers_choose(&layers, away, beta, &t->change->set, how, ret_set))
		return;
	/* All layers cycle: the caller has checked that this frees enough. */
	ret_set->m = t->n_layers;
	ret_set->beta = beta;
	for (uint32_t l = 0; l < t->n_layers; l++)
		ret_set->layer[l] = (uint16_t)l;
}

static void set_choose(const struct mm_c_tenant *t, struct mm_c_chosen *chosen)
{
	struct mm_plan_set *set = &chosen->set;

	if (!t->sets->uneven) {
		chosen->copies = mm_plan_choose(
			t->n_layers, mm_plan_cycling(chosen->alpha, chosen->beta), chosen->beta,
			&t->change->set, t->layer_pages, chosen->nested ? 0 : UINT64_MAX, set);
		return;
	}
	if (!chosen->alpha)
		set->m = set->beta = 0;
	else if (chosen->alpha == t->plan.alpha && chosen->beta == t->plan.beta)
		*set = t->change->set;
	else
		uneven_choose(t, chosen->alpha, chosen->beta, chosen->nested, set);
	mm_plan_choose_first_slot(&t->change->set, set);
	chosen->copies = mm_plan_pages_only_in(&t->change->set, set, t->layer_pages);
}

static const struct mm_c_chosen *set_cached(const struct mm_core *c, struct mm_c_tenant *t,
					    uint32_t alpha, uint32_t beta, bool nested)
{
	struct mm_c_sets *sets = t->sets;
	struct mm_c_chosen *entry;

	sets_refresh(c, t);
	for (uint32_t i = 0; i < MM_C_SETS; i++) {
		entry = &sets->chosen[i];
		if (entry->beta == beta && entry->alpha == alpha && entry->nested == nested)
			return entry;
	}
	entry = &sets->chosen[sets->next++ % MM_C_SETS];
	entry->alpha = alpha;
	entry->beta = beta;
	entry->nested = nested;
	set_choose(t, entry);
	return entry;
}

/*
 * Layers that cycle stay where they are, unless a set for which others are copied within the budget
 * makes a shorter step.
 */
static uint64_t set_choose_within(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha,
				  uint32_t beta, uint64_t budget, struct mm_plan_set *ret_set)
{
	const struct mm_c_chosen *entry = set_cached(c, t, alpha, beta, true);
	uint64_t copies = entry->copies, step_ns;

	*ret_set = entry->set;
	if (alpha <= t->plan.alpha || !budget || !t->change->set.m ||
	    (times_are_measured(c, t) && mm_c_set_hidden(c, t, ret_set)))
		return copies + mm_c_blank_pages(t, ret_set);
	step_ns = mm_c_set_step_ns(c, t, ret_set);
	entry = set_cached(c, t, alpha, beta, false);
	if (entry->copies <= budget &&
	    (!times_are_measured(c, t) ||
	     mm_c_set_step_ns(c, t, &entry->set) < step_ns - step_ns / GAIN_PART)) {
		*ret_set = entry->set;
		copies = entry->copies;
	}
	return copies + mm_c_blank_pages(t, ret_set);
}

/* Returns the number of slots if it is determined, else 0. */
static uint32_t slots_wanted(const struct mm_core *c, const struct mm_c_tenant *t, uint32_t alpha,
			     uint32_t slots)
{
	if (!mm_c_alpha_possible(t, alpha, 2))
		return 1;
	if (t->plan.slots_by_hand)
		return t->plan.slots_by_hand;
	if (c->opts.slots)
		return c->opts.slots;
	if (slots)
		return slots;
	return t->plan.m && alpha == t->plan.alpha ? t->plan.beta : 0;
}

/* Chooses the set with the shorter step, then the one with more slack. */
static uint32_t slots_choose(const struct mm_core *c, const struct mm_c_tenant *t,
			     const struct mm_plan_set *one, const struct mm_plan_set *two)
{
	uint64_t one_ns, two_ns;
	struct mm_layers layers;

	if (!t->sets->uneven || !times_are_measured(c, t))
		return mm_plan_beta(one, two, t->n_layers, t->load.t_c_ns, mm_c_transfer_ns(c, t));
	layers_now(c, t, &layers);
	one_ns = mm_layers_step_ns(&layers, one);
	two_ns = mm_layers_step_ns(&layers, two);
	if (one_ns != two_ns)
		return one_ns < two_ns ? 1 : 2;
	return mm_layers_slack_ns(&layers, one) >= mm_layers_slack_ns(&layers, two) ? 1 : 2;
}

uint64_t mm_c_change_set(const struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha,
			 uint32_t slots, uint64_t budget_pages, struct mm_plan_set *ret_set)
{
	uint32_t beta = slots_wanted(c, t, alpha, slots);
	struct mm_plan_set two;
	uint64_t need, need_two;

	if (beta)
		return set_choose_within(c, t, alpha, beta, budget_pages, ret_set);
	need = set_choose_within(c, t, alpha, 1, budget_pages, ret_set);
	need_two = set_choose_within(c, t, alpha, 2, budget_pages, &two);
	beta = slots_choose(c, t, ret_set, &two);
	/* A set that fits into the budget is preferred to a slightly faster one. */
	if ((beta == 1 && need <= budget_pages) || need_two > budget_pages)
		return need;
	*ret_set = two;
	return need_two;
}
