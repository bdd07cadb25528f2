/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/layers.h"

#include "libclient/base/base.h"

#define KEEP_FACTOR 4 /* weight of a layer of the set in force, in a search near the best slack */
/* a step over this: slack that is given up so that more layers stay where they are */
#define NEAR_PART    64
#define SWEEPS       8
#define ANYWHERE_MAX 96 /* up to so many layers, a layer may be exchanged for any other one */
/* layers that a search examines at most before it returns the best so far */
#define CHAIN_WORK   (UINT64_C(1) << 18)
#define IMPROVE_WORK (UINT64_C(1) << 19)
#define KEY_WORK     64 /* work for one key, besides that for its layers */
#define PLAY_STEPS   4  /* steps until they repeat, and steps to average over */
#define WINDOW_STEPS 3  /* steps of a window; the first one is not counted */

/* ---- what a set costs ---- */

void mm_layers_sum(struct mm_layers *layers)
{
	layers->begin_ns[0] = 0;
	for (uint32_t i = 0; i < layers->n; i++)
		layers->begin_ns[i + 1] = layers->begin_ns[i] + layers->c_ns[i];
}

uint64_t mm_layers_compute_ns(const struct mm_layers *layers)
{
	return layers->begin_ns[layers->n];
}

static uint64_t slots_pages(const struct mm_layers *layers, const struct mm_plan_set *set)
{
	uint64_t sum = 0;

	for (uint32_t s = 0; s < set->beta; s++)
		sum += mm_plan_slot_pages(set, s, layers->pages);
	return sum;
}

uint64_t mm_layers_away(const struct mm_layers *layers, const struct mm_plan_set *set)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < set->m; i++)
		sum += layers->pages[set->layer[i]];
	return sum - slots_pages(layers, set);
}

/*
 * Returns the computing time from the end of the i-th layer of the set to the beginning of the next
 * one.
 */
static uint64_t layers_between_ns(const struct mm_layers *layers, const struct mm_plan_set *set,
				  uint32_t i)
{
	uint64_t end = layers->begin_ns[set->layer[i] + 1];

	if (i + 1 < set->m)
		return layers->begin_ns[set->layer[i + 1]] - end;
	return mm_layers_compute_ns(layers) - end + layers->begin_ns[set->layer[0]];
}

static uint64_t uneven_one_slot_step(const struct mm_layers *layers, const struct mm_plan_set *set)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < set->m; i++) {
		uint32_t next = set->layer[i + 1 < set->m ? i + 1 : 0];
		uint64_t between = layers_between_ns(layers, set, i);

		sum += layers->c_ns[set->layer[i]] + MM_MAX(between, layers->t_ns[next]);
	}
	return sum;
}

struct uneven_played {
	uint64_t now, link_free, slot_free[2];
};

/* Simulates one step: transfers follow each other on the link, each as soon as its slot is free. */
static void uneven_play_step(const struct mm_layers *layers, const struct mm_plan_set *set,
			     struct uneven_played *p)
{
	for (uint32_t i = 0, end = 0; i < set->m; i++) {
		uint32_t slot = mm_plan_slot(set, i), l = set->layer[i];

		p->now += layers->begin_ns[l] - layers->begin_ns[end];
		p->link_free = MM_MAX(p->link_free, p->slot_free[slot]) + layers->t_ns[l];
		p->now = MM_MAX(p->now, p->link_free) + layers->c_ns[l];
		p->slot_free[slot] = p->now;
		end = l + 1;
	}
	p->now += layers->begin_ns[layers->n] - layers->begin_ns[set->layer[set->m - 1] + 1];
}

uint64_t mm_layers_step_ns(const struct mm_layers *layers, const struct mm_plan_set *set)
{
	struct uneven_played p = { 0 };
	uint64_t begun;

	if (!set->m)
		return mm_layers_compute_ns(layers);
	if (set->beta == 1)
		return uneven_one_slot_step(layers, set);
	for (uint32_t i = 0; i < PLAY_STEPS; i++)
		uneven_play_step(layers, set, &p);
	begun = p.now;
	for (uint32_t i = 0; i < PLAY_STEPS; i++)
		uneven_play_step(layers, set, &p);
	return (p.now - begun + PLAY_STEPS - 1) / PLAY_STEPS;
}

/*
 * Two slots: the transfers from the i-th to the j-th of a window have the time from the end of the
 * layer that was in the slot of the i-th layer to the beginning of the j-th layer.
 */
static int64_t uneven_two_slot_slack(const struct mm_layers *layers, const struct mm_plan_set *set)
{
	int64_t sent = 0, earliest = INT64_MIN, least = INT64_MAX, freed[2] = { 0 };

	for (uint32_t step = 0; step < WINDOW_STEPS; step++) {
		int64_t begun = (int64_t)(step * mm_layers_compute_ns(layers));

		for (uint32_t i = 0; i < set->m; i++) {
			uint32_t slot = mm_plan_slot(set, i), l = set->layer[i];

			if (step)
				earliest = MM_MAX(earliest, freed[slot] - sent);
			sent += (int64_t)layers->t_ns[l];
			if (step)
				least = MM_MIN(least, begun + (int64_t)layers->begin_ns[l] - sent -
							      earliest);
			freed[slot] = begun + (int64_t)layers->begin_ns[l + 1];
		}
	}
	return least;
}

int64_t mm_layers_slack_ns(const struct mm_layers *layers, const struct mm_plan_set *set)
{
	int64_t least = INT64_MAX;

	if (set->m && set->beta == 2)
		return uneven_two_slot_slack(layers, set);
	for (uint32_t i = 0; i < set->m; i++) {
		uint32_t next = set->layer[i + 1 < set->m ? i + 1 : 0];

		least = MM_MIN(least, (int64_t)layers_between_ns(layers, set, i) -
					      (int64_t)layers->t_ns[next]);
	}
	return least;
}

/* ---- a chain around the circle ---- */

struct layer_search {
	const struct mm_layers *layers;
	uint32_t n, beta;
	/* a transfer begins when the layer before it is done; false: when that layer begins */
	bool apart;
	uint64_t away;
	/* work that is left; it is bounded because layers are claims of a tenant */
	uint64_t *work;
	bool may[MM_LAYERS_MAX + 1], must[MM_LAYERS_MAX + 1], current[MM_LAYERS_MAX + 1];
	uint32_t first_must; /* n: no layer must be in */
	/* begin of each layer of two steps, and the end */
	int64_t begin[2 * MM_LAYERS_MAX + 3];
	uint32_t largest; /* most pages that a layer of the chain may have */
	uint32_t keep;    /* weight of layers of the current set */
	/* the last layer that may precede it in the chain; < 0: a layer of the step before */
	int32_t reach[MM_LAYERS_MAX + 1];
	/* the most pages of a chain that ends at one of the layers up to this one */
	int64_t most[MM_LAYERS_MAX + 1];
	/* pages of a chain that ends at this layer; < 0: there is none */
	int64_t value[MM_LAYERS_MAX + 1];
	uint16_t last[MM_LAYERS_MAX + 1]; /* the layer at which the chain of most[] ends */
	uint16_t before[MM_LAYERS_MAX + 1];
};

static void search_spend(const struct layer_search *s, uint64_t work)
{
	*s->work -= MM_MIN(*s->work, work);
}

/* Returns when a transfer that follows the one of layer @at may begin, according to the chain. */
static int64_t link_open_from(const struct layer_search *s, uint32_t at)
{
	return s->begin[s->apart ? at + 1 : at];
}

/*
 * Returns the last layer that leaves @slack to the transfer of @l, which is in the second of two
 * steps.
 */
static int32_t layer_reach(const struct layer_search *s, uint32_t l, int64_t slack)
{
	int64_t until = s->begin[s->n + l] - (int64_t)s->layers->t_ns[l] - slack;
	/* how many layers before @l are early enough: from low to high */
	uint32_t low = 0, high = s->n + l;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (link_open_from(s, mid - 1) <= until)
			low = mid;
		else
			high = mid - 1;
	}
	return (int32_t)low - 1 - (int32_t)s->n;
}

static bool layer_is_allowed(const struct layer_search *s, uint32_t l)
{
	return s->may[l] && s->layers->pages[l] <= s->largest;
}

static int64_t layer_value(const struct layer_search *s, uint32_t l)
{
	return (int64_t)s->layers->pages[l] * (s->current[l] ? s->keep : 1);
}

/* Extends the chains that begin at @first by layer @l. A chain must not omit @last_must. */
static void chains_extend(struct layer_search *s, uint32_t l, uint32_t first, uint32_t last_must)
{
	int32_t from = MM_MIN(s->reach[l], (int32_t)l - 1);
	bool start = l == first;

	s->value[l] = -1;
	if (start) {
		s->value[l] = layer_value(s, l);
	} else if (layer_is_allowed(s, l) && from >= (int32_t)last_must && s->most[from] >= 0) {
		s->value[l] = s->most[from] + layer_value(s, l);
		s->before[l] = s->last[from];
	}
	if (start || s->must[l] || s->value[l] > s->most[l - 1]) {
		s->most[l] = s->value[l];
		s->last[l] = (uint16_t)l;
	} else {
		s->most[l] = s->most[l - 1];
		s->last[l] = s->last[l - 1];
	}
}

/* Returns the most pages of a chain whose first layer is @first; -1: there is none. */
static int64_t chains_from(struct layer_search *s, uint32_t first, uint32_t *ret_last)
{
	int32_t close = MM_MIN(s->reach[first] + (int32_t)s->n, (int32_t)s->n - 1);
	/* the last layer so far that each chain must contain: later ones may not skip it */
	uint32_t last_must = first;

	if (close <= (int32_t)first)
		return -1;
	search_spend(s, s->n - first);
	for (uint32_t l = first; l < s->n; l++) {
		chains_extend(s, l, first, last_must);
		if (s->must[l])
			last_must = l;
	}
	if (close < (int32_t)last_must)
		return -1;
	*ret_last = s->last[close];
	return s->most[close];
}

static uint64_t chain_take(const struct layer_search *s, uint32_t first, uint32_t last,
			   struct mm_plan_set *ret_set)
{
	uint64_t pages = s->layers->pages[first];
	uint32_t m = 1;

	for (uint32_t l = last; l != first; l = s->before[l]) {
		pages += s->layers->pages[l];
		m++;
	}
	ret_set->m = m;
	ret_set->beta = s->beta;
	ret_set->first_slot = 0;
	for (uint32_t l = last; l != first; l = s->before[l])
		ret_set->layer[--m] = (uint16_t)l;
	ret_set->layer[0] = (uint16_t)first;
	return pages;
}

/*
 * Finds a set whose transfers all have @slack and that frees enough, assuming slots of s->largest
 * pages. If s->keep > 1, it is the set that keeps most layers of the current one.
 */
static bool chain_find(struct layer_search *s, int64_t slack, struct mm_plan_set *ret_set)
{
	uint64_t need = s->away + (uint64_t)s->beta * s->largest;
	uint32_t end = MM_MIN(s->first_must, s->n - 1);
	struct mm_plan_set set;
	int64_t best = -1;

	for (uint32_t l = 0; l < s->n; l++)
		s->reach[l] = layer_reach(s, l, slack);
	for (uint32_t first = 0; first <= end; first++) {
		uint32_t last = first;
		int64_t worth = layer_is_allowed(s, first) ? chains_from(s, first, &last) : -1;

		if (worth <= best || (s->keep == 1 && worth < (int64_t)need) ||
		    chain_take(s, first, last, &set) < need)
			continue;
		*ret_set = set;
		best = worth;
		if (s->keep == 1)
			break;
	}
	return best >= 0;
}

/* Finds the largest slack >= @least with which there is a chain. Returns false if there is none. */
static bool chain_find_best(struct layer_search *s, int64_t least, int64_t *ret_slack,
			    struct mm_plan_set *ret_set)
{
	int64_t step = s->begin[s->n], low = least, high = step + 1;
	int64_t unit = MM_MAX(step / MM_SLACK_STEPS, 1);

	if (!chain_find(s, least, ret_set))
		return false;
	while (high - low > unit && *s->work) {
		int64_t mid = low + (high - low) / 2;

		if (chain_find(s, mid, ret_set))
			low = mid;
		else
			high = mid;
	}
	*ret_slack = low;
	return true;
}

/*
 * Returns the most pages below @limit of a layer that may be in; 0: a layer that must be in has
 * more.
 */
static uint32_t next_largest(const struct layer_search *s, uint32_t limit)
{
	uint32_t most = 0;

	for (uint32_t l = 0; l < s->n; l++) {
		if (s->must[l] && s->layers->pages[l] >= limit)
			return 0;
		if (s->may[l] && s->layers->pages[l] < limit)
			most = MM_MAX(most, s->layers->pages[l]);
	}
	return most;
}

/*
 * Finds the best chain over all bounds of a layer's pages: a slot for a very large layer can cost
 * what it saves.
 */
static bool sizes_find_best(struct layer_search *s, int64_t *ret_slack, struct mm_plan_set *ret_set)
{
	int64_t unit = MM_MAX(s->begin[s->n] / MM_SLACK_STEPS, 1), least = 0;
	uint32_t best = 0;

	for (uint32_t l = 0; l < s->n; l++)
		least = MM_MIN(least, -(int64_t)s->layers->t_ns[l]);
	for (s->largest = next_largest(s, UINT32_MAX); s->largest && *s->work;
	     s->largest = next_largest(s, s->largest)) {
		if (chain_find_best(s, best ? *ret_slack + unit : least, ret_slack, ret_set))
			best = s->largest;
	}
	s->largest = best;
	return best != 0;
}

/* Replaces @set by one of nearly the same slack that preloads fewer pages, if there is one. */
static void keep_most_layers(struct layer_search *s, int64_t slack,
			     const struct mm_plan_set *current, struct mm_plan_set *set)
{
	int64_t near = slack - s->begin[s->n] / NEAR_PART;
	struct mm_plan_set other;

	if (slack >= 0)
		near = MM_MAX(near, 0);
	s->keep = KEEP_FACTOR;
	if (chain_find(s, near, &other) &&
	    mm_plan_pages_only_in(current, &other, s->layers->pages) <
		    mm_plan_pages_only_in(current, set, s->layers->pages))
		*set = other;
}

/* ---- layer by layer ---- */

struct set_key {
	uint64_t step_ns;
	int64_t slack_ns;
};

static struct set_key set_key_of(const struct layer_search *s, const struct mm_plan_set *set)
{
	int64_t slack = mm_layers_slack_ns(s->layers, set);

	search_spend(s, KEY_WORK + (uint64_t)set->m *
					   (s->beta == 2 ? WINDOW_STEPS + 2 * PLAY_STEPS : 2));
	return (struct set_key){ slack < 0 ? mm_layers_step_ns(s->layers, set)
					   : mm_layers_compute_ns(s->layers),
				 slack };
}

static bool key_is_better(struct set_key a, struct set_key b)
{
	return a.step_ns != b.step_ns ? a.step_ns < b.step_ns : a.slack_ns > b.slack_ns;
}

static bool set_has(const struct mm_plan_set *set, uint32_t l)
{
	for (uint32_t i = 0; i < set->m; i++)
		if (set->layer[i] == l)
			return true;
	return false;
}

static void set_without(const struct mm_plan_set *set, uint32_t i, struct mm_plan_set *ret_set)
{
	*ret_set = *set;
	ret_set->m--;
	for (; i < ret_set->m; i++)
		ret_set->layer[i] = ret_set->layer[i + 1];
}

static void set_with(const struct mm_plan_set *set, uint32_t l, struct mm_plan_set *ret_set)
{
	uint32_t i = set->m;

	*ret_set = *set;
	for (ret_set->m++; i && set->layer[i - 1] > l; i--)
		ret_set->layer[i] = set->layer[i - 1];
	ret_set->layer[i] = (uint16_t)l;
}

/*
 * Removes a layer that need not cycle: the largest one, preferably one that does not cycle yet.
 * Returns false if there is none.
 */
static bool set_drop_one(const struct layer_search *s, struct mm_plan_set *set)
{
	struct set_key now = set_key_of(s, set);
	struct mm_plan_set less, best;
	uint64_t most = 0;

	if (set->m <= 2 * s->beta)
		return false;
	for (uint32_t i = 0; i < set->m; i++) {
		uint32_t l = set->layer[i];
		uint64_t gain = (uint64_t)s->layers->pages[l] * (s->current[l] ? 1 : KEEP_FACTOR);

		if (s->must[l] || gain <= most)
			continue;
		set_without(set, i, &less);
		if (mm_layers_away(s->layers, &less) < s->away ||
		    key_is_better(now, set_key_of(s, &less)))
			continue;
		best = less;
		most = gain;
	}
	if (most)
		*set = best;
	return most != 0;
}

static bool set_add_one(const struct layer_search *s, struct mm_plan_set *set)
{
	struct set_key most = { UINT64_MAX, INT64_MIN };
	struct mm_plan_set more, best;

	for (uint32_t l = 0; l < s->n; l++) {
		if (!s->may[l] || set_has(set, l))
			continue;
		set_with(set, l, &more);
		if (key_is_better(set_key_of(s, &more), most)) {
			most = set_key_of(s, &more);
			best = more;
		}
	}
	if (most.step_ns != UINT64_MAX)
		*set = best;
	return most.step_ns != UINT64_MAX;
}

/* Exchanges the i-th layer for another one if that makes the set better. */
static bool set_move_one(const struct layer_search *s, struct mm_plan_set *set, uint32_t i,
			 struct set_key *key)
{
	uint32_t begin = 0, end = s->n, l;
	struct mm_plan_set rest, other, best;
	bool moved = false;

	if (s->must[set->layer[i]])
		return false;
	if (s->n > ANYWHERE_MAX) {
		begin = i ? set->layer[i - 1] + 1U : 0;
		end = i + 1 < set->m ? set->layer[i + 1] : s->n;
	}
	set_without(set, i, &rest);
	for (l = begin; l < end; l++) {
		struct set_key k;

		if (!s->may[l] || set_has(set, l))
			continue;
		set_with(&rest, l, &other);
		if (mm_layers_away(s->layers, &other) < s->away)
			continue;
		k = set_key_of(s, &other);
		if (!key_is_better(k, *key))
			continue;
		best = other;
		*key = k;
		moved = true;
	}
	if (moved)
		*set = best;
	return moved;
}

static void set_improve(const struct layer_search *s, struct mm_plan_set *set)
{
	struct set_key key = set_key_of(s, set);
	bool moved = true;

	for (uint32_t sweep = 0; moved && sweep < SWEEPS; sweep++) {
		moved = false;
		for (uint32_t i = 0; i < set->m && *s->work; i++)
			moved |= set_move_one(s, set, i, &key);
	}
}

/* ---- all together ---- */

static void search_init(struct layer_search *s, const struct mm_layers *layers, uint64_t away,
			uint32_t beta, const struct mm_plan_set *current, enum mm_layers_how how)
{
	*s = (struct layer_search){
		.layers = layers, .n = layers->n, .beta = beta, .away = away, .keep = 1
	};
	s->first_must = how == MM_LAYERS_GROW ? current->layer[0] : s->n;
	for (uint32_t i = 0; i < current->m; i++)
		s->current[current->layer[i]] = true;
	for (uint32_t l = 0; l < s->n; l++) {
		s->may[l] = how != MM_LAYERS_SHRINK || s->current[l];
		s->must[l] = how == MM_LAYERS_GROW && s->current[l];
	}
	for (uint32_t i = 0; i < 2 * s->n; i++)
		s->begin[i + 1] = s->begin[i] + (int64_t)layers->c_ns[i % s->n];
}

/*
 * Makes a set of all layers that may be in, for slots of different sizes: a chain assumes equal
 * ones.
 */
static bool set_of_all_allowed(const struct layer_search *s, struct mm_plan_set *ret_set)
{
	*ret_set = (struct mm_plan_set){ .beta = s->beta };
	for (uint32_t l = 0; l < s->n; l++)
		if (s->may[l])
			ret_set->layer[ret_set->m++] = (uint16_t)l;
	return ret_set->m >= 2 * s->beta && mm_layers_away(s->layers, ret_set) >= s->away;
}

/* Finds a chain and improves it layer by layer. */
static bool search_attempt(struct layer_search *s, const struct mm_plan_set *current, bool any,
			   struct mm_plan_set *ret_set)
{
	int64_t slack = 0;

	*s->work = CHAIN_WORK;
	if (sizes_find_best(s, &slack, ret_set)) {
		if (any && current->m)
			keep_most_layers(s, slack, current, ret_set);
	} else if (!set_of_all_allowed(s, ret_set)) {
		return false;
	}
	s->keep = 1;
	*s->work = IMPROVE_WORK;
	while (ret_set->m < 2 * s->beta)
		if (!set_add_one(s, ret_set))
			return false;
	while (*s->work && set_drop_one(s, ret_set))
		;
	if (s->beta == 2 || slack < 0)
		set_improve(s, ret_set);
	return true;
}

bool mm_layers_choose(const struct mm_layers *layers, uint64_t away_pages, uint32_t beta,
		      const struct mm_plan_set *current, enum mm_layers_how how,
		      struct mm_plan_set *ret_set)
{
	struct mm_plan_set set;
	uint64_t work = 0;
	struct layer_search s;

	search_init(&s, layers, away_pages, beta, current, how);
	s.work = &work;
	s.apart = true;
	if (!search_attempt(&s, current, how == MM_LAYERS_ANY, ret_set))
		return false;
	if (beta == 1)
		return true;
	s.apart = false;
	if (search_attempt(&s, current, how == MM_LAYERS_ANY, &set) &&
	    key_is_better(set_key_of(&s, &set), set_key_of(&s, ret_set)))
		*ret_set = set;
	return true;
}
