/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/plan/plan.h"

#include "libclient/base/base.h"

/* The type holds the product of a layer count and any 64-bit time. */
__extension__ typedef unsigned __int128 u128;

struct bits {
	uint64_t word[(MM_LAYERS_MAX + 64) / 64];
};

static bool bits_has(const struct bits *b, uint32_t i)
{
	return b->word[i / 64] >> (i % 64) & 1;
}

static void bits_set(struct bits *b, uint32_t i)
{
	b->word[i / 64] |= UINT64_C(1) << (i % 64);
}

static struct bits bits_of(const struct mm_plan_set *set)
{
	struct bits b = { { 0 } };

	for (uint32_t i = 0; i < set->m; i++)
		bits_set(&b, set->layer[i]);
	return b;
}

static void set_of(const struct bits *b, uint32_t n, struct mm_plan_set *ret_set)
{
	ret_set->m = 0;
	for (uint32_t i = 0; i < n; i++)
		if (bits_has(b, i))
			ret_set->layer[ret_set->m++] = (uint16_t)i;
}

uint32_t mm_plan_cycling(uint32_t alpha, uint32_t beta)
{
	return alpha ? alpha + beta : 0;
}

bool mm_plan_possible(uint32_t n, uint32_t alpha, uint32_t beta)
{
	uint32_t m = mm_plan_cycling(alpha, beta);

	return !m || (m >= 2 * beta && m <= n);
}

/*
 * Returns the gap from the i-th layer of the set to the next one; for a single layer, the whole
 * circle.
 */
static uint32_t gap_after(const struct mm_plan_set *set, uint32_t n, uint32_t i)
{
	if (i + 1 < set->m)
		return (uint32_t)set->layer[i + 1] - set->layer[i];
	return n - set->layer[i] + set->layer[0];
}

uint32_t mm_plan_least_gap(const struct mm_plan_set *set, uint32_t n)
{
	uint32_t least = n;

	for (uint32_t i = 0; i < set->m; i++)
		least = MM_MIN(least, gap_after(set, n, i));
	return least;
}

/* Returns the first rotation of the circle with which most of @set's layers are in @current. */
static uint32_t best_rotation(const struct bits *set, uint32_t n, const struct mm_plan_set *current)
{
	uint64_t twice[2 * MM_ARRAY_SIZE(set->word) + 1] = { 0 }; /* the circle, twice around */
	uint32_t most = 0, best = 0;

	for (uint32_t i = 0; i < 2 * current->m; i++) {
		uint32_t at = current->layer[i % current->m] + (i < current->m ? 0 : n);

		twice[at / 64] |= UINT64_C(1) << (at % 64);
	}
	for (uint32_t rotation = 0; rotation < n && current->m; rotation++) {
		const uint64_t *from = &twice[rotation / 64];
		uint32_t overlap = 0, shift = rotation % 64;

		for (uint32_t i = 0; i < mm_div_up(n, 64); i++) {
			uint64_t under =
				from[i] >> shift | (shift ? from[i + 1] << (64 - shift) : 0);

			overlap += (uint32_t)__builtin_popcountll(set->word[i] & under);
		}
		if (overlap > most) {
			most = overlap;
			best = rotation;
		}
	}
	return best;
}

void mm_plan_even(uint32_t n, uint32_t m, const struct mm_plan_set *current,
		  struct mm_plan_set *ret_set)
{
	struct bits even = { { 0 } }, chosen = { { 0 } };
	uint32_t rotation;

	for (uint32_t i = 0; i < m; i++)
		bits_set(&even, i * n / m);
	rotation = best_rotation(&even, n, current);
	for (uint32_t i = 0; i < m; i++)
		bits_set(&chosen, (i * n / m + rotation) % n);
	set_of(&chosen, n, ret_set);
}

/*
 * Returns how many layers fit into the gaps of the set if neighbours must be at least @least apart.
 */
static uint32_t gaps_capacity(const struct mm_plan_set *set, uint32_t n, uint32_t least)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < set->m; i++)
		if (gap_after(set, n, i) >= least)
			sum += gap_after(set, n, i) / least - 1;
	return sum;
}

void mm_plan_grow(uint32_t n, uint32_t m, const struct mm_plan_set *current,
		  struct mm_plan_set *ret_set)
{
	struct bits chosen = bits_of(current);
	uint32_t left = m - current->m;
	uint32_t low = 1, high = n;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (gaps_capacity(current, n, mid) >= left)
			low = mid;
		else
			high = mid - 1;
	}
	for (uint32_t i = 0; i < current->m && left; i++) {
		uint32_t g = gap_after(current, n, i);
		uint32_t add = g >= low ? MM_MIN(g / low - 1, left) : 0;

		for (uint32_t k = 1; k <= add; k++)
			bits_set(&chosen, (current->layer[i] + k * g / (add + 1)) % n);
		left -= add;
	}
	mm_assert(!left);
	set_of(&chosen, n, ret_set);
}

/*
 * Beginning with the layer at index @first, takes each next layer that is at least @least away from
 * the one before. Returns false if this finds fewer than @m layers, or the last one is too near to
 * the first one.
 */
static bool layers_pick(const struct mm_plan_set *set, uint32_t n, uint32_t m, uint32_t first,
			uint32_t least, struct bits *ret_bits)
{
	uint32_t last = 0, taken = 1;

	*ret_bits = (struct bits){ { 0 } };
	bits_set(ret_bits, set->layer[first]);
	for (uint32_t k = 1; k < set->m && taken < m; k++) {
		uint32_t layer = set->layer[(first + k) % set->m];
		uint32_t at = (layer + n - set->layer[first]) % n;

		if (at - last < least)
			continue;
		bits_set(ret_bits, layer);
		last = at;
		taken++;
	}
	return taken == m && n - last >= least;
}

static bool layers_pick_any(const struct mm_plan_set *set, uint32_t n, uint32_t m, uint32_t least,
			    struct bits *ret_bits)
{
	for (uint32_t first = 0; first < set->m; first++)
		if (layers_pick(set, n, m, first, least, ret_bits))
			return true;
	return false;
}

void mm_plan_shrink(uint32_t n, uint32_t m, const struct mm_plan_set *current,
		    struct mm_plan_set *ret_set)
{
	struct bits chosen = { { 0 } };
	uint32_t low = 1, high = n / m;

	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;

		if (layers_pick_any(current, n, m, mid, &chosen))
			low = mid;
		else
			high = mid - 1;
	}
	mm_assert(layers_pick_any(current, n, m, low, &chosen));
	set_of(&chosen, n, ret_set);
}

uint64_t mm_plan_pages_only_in(const struct mm_plan_set *a, const struct mm_plan_set *b,
			       const uint32_t *layer_pages)
{
	struct bits other = bits_of(b);
	uint64_t sum = 0;

	for (uint32_t i = 0; i < a->m; i++)
		if (!bits_has(&other, a->layer[i]))
			sum += layer_pages[a->layer[i]];
	return sum;
}

uint64_t mm_plan_pages(const struct mm_plan_set *set, const uint32_t *layer_pages)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < set->m; i++)
		sum += layer_pages[set->layer[i]];
	return sum;
}

/* The slot of each layer that cycles, plus one; 0: it does not cycle. */
struct slots {
	uint8_t of[MM_LAYERS_MAX + 1];
};

static uint32_t slots_unchanged(const struct mm_plan_set *set, const struct slots *old)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < set->m; i++)
		n += old->of[set->layer[i]] == mm_plan_slot(set, i) + 1;
	return n;
}

/* Both choices cost the same otherwise, but a layer that changes its slot has to be mapped anew. */
void mm_plan_choose_first_slot(const struct mm_plan_set *current, struct mm_plan_set *set)
{
	struct slots old = { { 0 } };
	uint32_t stayed;

	for (uint32_t i = 0; i < current->m; i++)
		old.of[current->layer[i]] = (uint8_t)(mm_plan_slot(current, i) + 1);
	set->first_slot = 0;
	stayed = slots_unchanged(set, &old);
	set->first_slot = 1;
	if (set->beta < 2 || slots_unchanged(set, &old) <= stayed)
		set->first_slot = 0;
}

uint64_t mm_plan_choose(uint32_t n, uint32_t m, uint32_t beta, const struct mm_plan_set *current,
			const uint32_t *layer_pages, uint64_t budget_pages,
			struct mm_plan_set *ret_set)
{
	if (m == current->m) {
		*ret_set = *current;
	} else if (!m) {
		ret_set->m = 0;
	} else if (m < current->m) {
		mm_plan_shrink(n, m, current, ret_set);
	} else {
		mm_plan_even(n, m, current, ret_set);
		if (mm_plan_pages_only_in(current, ret_set, layer_pages) > budget_pages)
			mm_plan_grow(n, m, current, ret_set);
	}
	ret_set->beta = m ? beta : 0;
	mm_plan_choose_first_slot(current, ret_set);
	return mm_plan_pages_only_in(current, ret_set, layer_pages);
}

uint32_t mm_plan_slot_pages(const struct mm_plan_set *set, uint32_t slot,
			    const uint32_t *layer_pages)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < set->m; i++)
		if (mm_plan_slot(set, i) == slot)
			most = MM_MAX(most, layer_pages[set->layer[i]]);
	return most;
}

static uint64_t ns_saturate(u128 value)
{
	return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

static u128 even_one_slot_step(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			       uint64_t t_t_ns)
{
	u128 sum = set->m ? 0 : (u128)n * t_c_ns;

	for (uint32_t i = 0; i < set->m; i++) {
		u128 between = (u128)(gap_after(set, n, i) - 1) * t_c_ns;

		sum += t_c_ns + MM_MAX(between, (u128)t_t_ns);
	}
	return sum;
}

/* Times of a simulated step, at the end of a layer that cycles. */
struct even_played {
	uint64_t now, link_free, slot_free[2];
};

/* Simulates one step: transfers follow each other on the link, each as soon as its slot is free. */
static void even_play_step(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			   uint64_t t_t_ns, struct even_played *p)
{
	p->now += set->layer[0] * t_c_ns;
	for (uint32_t i = 0; i < set->m; i++) {
		uint32_t slot = mm_plan_slot(set, i);
		uint32_t end = i + 1 < set->m ? set->layer[i + 1] : n;

		p->link_free = MM_MAX(p->link_free, p->slot_free[slot]) + t_t_ns;
		p->now = MM_MAX(p->now, p->link_free) + t_c_ns;
		p->slot_free[slot] = p->now;
		p->now += (end - set->layer[i] - 1) * t_c_ns;
	}
}

/* steps until they repeat, and steps to average over: with odd m every second step differs */
#define PLAY_STEPS 4
/* bits of a time: 2 * PLAY_STEPS steps of MM_LAYERS_MAX layers and transfers fit into 64 bits */
#define PLAY_BITS 48
static_assert(UINT64_C(4) * PLAY_STEPS * (MM_LAYERS_MAX + 1) <= UINT64_C(1) << (64 - PLAY_BITS),
	      "no time that is played wraps");

/* True if @b is @a at a later time: from here on each step is like the last one. */
static bool play_repeats(const struct even_played *a, const struct even_played *b)
{
	return b->now - b->link_free == a->now - a->link_free &&
	       b->now - b->slot_free[0] == a->now - a->slot_free[0] &&
	       b->now - b->slot_free[1] == a->now - a->slot_free[1];
}

/* Simulates in 64 bits, because this runs often; times that are too long lose their low bits. */
static u128 even_two_slot_step(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			       uint64_t t_t_ns)
{
	const uint32_t shift = (t_c_ns | t_t_ns) >> PLAY_BITS ? 64 - PLAY_BITS : 0;
	struct even_played p = { 0 }, last;
	uint64_t begun = 0;

	for (uint32_t i = 0; i < 2 * PLAY_STEPS; i++) {
		last = p;
		even_play_step(set, n, t_c_ns >> shift, t_t_ns >> shift, &p);
		if (play_repeats(&last, &p))
			return (u128)(p.now - last.now) << shift;
		if (i + 1 == PLAY_STEPS)
			begun = p.now;
	}
	return (u128)((p.now - begun + PLAY_STEPS - 1) / PLAY_STEPS) << shift;
}

uint64_t mm_plan_set_step_ns(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns,
			     uint64_t t_t_ns)
{
	if (set->beta == 2)
		return ns_saturate(even_two_slot_step(set, n, t_c_ns, t_t_ns));
	return ns_saturate(even_one_slot_step(set, n, t_c_ns, t_t_ns));
}

bool mm_plan_hidden(const struct mm_plan_set *set, uint32_t n, uint64_t t_c_ns, uint64_t t_t_ns)
{
	return mm_plan_set_step_ns(set, n, t_c_ns, t_t_ns) <= ns_saturate((u128)n * t_c_ns);
}

uint32_t mm_plan_beta(const struct mm_plan_set *one, const struct mm_plan_set *two, uint32_t n,
		      uint64_t t_c_ns, uint64_t t_t_ns)
{
	uint64_t one_ns = mm_plan_set_step_ns(one, n, t_c_ns, t_t_ns);
	uint64_t two_ns = mm_plan_set_step_ns(two, n, t_c_ns, t_t_ns);

	if (t_c_ns && t_t_ns && one_ns != two_ns)
		return one_ns < two_ns ? 1 : 2;
	return (uint64_t)one->m * (one->m + 1) < n ? 1 : 2;
}
