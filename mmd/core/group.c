/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/group.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"

#define SETTLE_ROUNDS 64 /* of one call, so that other tenants get theirs, too */

#define FOREACH_RANK(g, r) for (struct mm_group_rank *r = (g)->rank; r < (g)->rank + (g)->size; r++)

static uint64_t bit_of(uint32_t chunk)
{
	return UINT64_C(1) << chunk % 64;
}

/* Returns the lowest bit that is set; MM_NO_CHUNK: none. */
static uint32_t lowest_bit(const struct mm_group *g, const uint64_t *words)
{
	for (uint32_t i = 0; i < g->words; i++)
		if (words[i])
			return i * 64 + (uint32_t)__builtin_ctzll(words[i]);
	return MM_NO_CHUNK;
}

static uint32_t bits_count(const struct mm_group *g, const uint64_t *words)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < g->words; i++)
		n += (uint32_t)__builtin_popcountll(words[i]);
	return n;
}

/* ---- events for ranks ---- */

static void rank_send(struct mm_group *g, const struct mm_group_rank *r, enum mm_ev event,
		      uint64_t arg)
{
	if (r->core)
		g->calls->send(g->context, (uint32_t)(r - g->rank),
			       &(struct mm_msg){ .opcode = (uint16_t)event, .arg = { arg } });
}

static void all_send(struct mm_group *g, enum mm_ev event, uint64_t arg)
{
	FOREACH_RANK(g, r)
		rank_send(g, r, event, arg);
}

/* ---- ranks ---- */

static void rank_clear(struct mm_group_rank *r)
{
	memset(r, 0, sizeof(*r));
	r->order = (struct mm_core_rank){ .offer = MM_NO_CHUNK, .most = UINT32_MAX };
}

void mm_group_init(struct mm_group *g, uint32_t size, const struct mm_group_calls *calls,
		   void *context)
{
	mm_assert(size >= 2 && size <= MM_GROUP_RANKS_MAX);
	g->size = size;
	g->calls = calls;
	g->context = context;
	FOREACH_RANK(g, r)
		rank_clear(r);
}

int mm_group_add(struct mm_group *g, uint32_t rank, struct mm_core *core, uint32_t tenant)
{
	int r;

	if (rank >= g->size)
		return -EINVAL;
	if (g->over || g->rank[rank].core)
		return -EEXIST;
	r = g->calls->begin(g->context, rank);
	if (r)
		return r;
	g->rank[rank].core = core;
	g->rank[rank].tenant = tenant;
	g->joined++;
	if (g->joined < g->size)
		return 0;
	g->complete = true;
	all_send(g, MM_EV_GROUP_READY, g->size);
	return 0;
}

static void rank_order(struct mm_group *g, struct mm_group_rank *r, uint64_t now_ns,
		       const struct mm_core_rank *order)
{
	r->order = *order;
	/* A denial that follows is another one, even if it has the same error. */
	if (order->wants_anew)
		r->kv.denied = 0;
	g->calls->order(g->context, (uint32_t)(r - g->rank), now_ns, order);
}

void mm_group_remove(struct mm_group *g, uint64_t now_ns, uint32_t rank)
{
	rank_clear(&g->rank[rank]);
	g->joined--;
	if (g->over || !g->complete)
		return;
	g->over = true;
	FOREACH_RANK(g, r) {
		struct mm_core_kv kv;

		rank_send(g, r, MM_EV_GROUP_LEFT, rank);
		if (r->core && mm_core_kv(r->core, r->tenant, &kv) && kv.chunks_max)
			rank_order(g, r, now_ns,
				   &(struct mm_core_rank){ .offer = MM_NO_CHUNK,
							   .most = kv.held,
							   .wanted = kv.held });
	}
}

int mm_group_on_mapped(struct mm_group *g, uint32_t rank, uint64_t chunk)
{
	struct mm_group_rank *r = &g->rank[rank];
	struct mm_core_kv kv;

	if (!mm_core_kv(r->core, r->tenant, &kv))
		return 0;
	if (chunk >= kv.chunks_max || !(kv.map[chunk / 64] & bit_of((uint32_t)chunk)))
		return MM_E_PROTOCOL;
	r->mapped[chunk / 64] |= bit_of((uint32_t)chunk);
	g->mapped_more = true;
	return 0;
}

/* ---- what the ranks hold ---- */

/* Takes @chunk back from each rank that holds it, since no engine will release it. */
static void chunk_drop(struct mm_group *g, uint32_t chunk)
{
	g->given[chunk / 64] &= ~bit_of(chunk);
	FOREACH_RANK(g, r) {
		if (!(r->held[chunk / 64] & ~r->drops[chunk / 64] & bit_of(chunk)))
			continue;
		r->drops[chunk / 64] |= bit_of(chunk);
		rank_send(g, r, MM_EV_GROUP_DROP, chunk);
	}
}

/* Takes what the ranks hold now in word @i. Returns the chunks that somebody has released. */
static uint64_t word_read(struct mm_group *g, uint32_t i)
{
	uint64_t released = 0, gained = 0, held = 0;

	FOREACH_RANK(g, r) {
		const uint64_t now = r->kv.map[i];

		released |= r->held[i] & ~now;
		gained |= now & ~r->held[i];
		held |= now;
		r->held[i] = now;
		r->mapped[i] &= now;
		r->drops[i] &= now;
	}
	g->given[i] = (g->given[i] | gained) & ~released;
	g->usable[i] &= held;
	return released;
}

/* Chunks that all ranks have mapped since become usable. */
static void word_make_usable(struct mm_group *g, uint32_t i)
{
	uint64_t all = g->given[i] & ~g->usable[i];

	FOREACH_RANK(g, r)
		all &= r->mapped[i] & ~r->drops[i];
	g->usable[i] |= all;
	for (; all; all &= all - 1)
		all_send(g, MM_EV_GROUP_USABLE, i * 64 + (uint32_t)__builtin_ctzll(all));
}

/* Reads all arenas. A demand that was above what is left when chunks are released ends there. */
static void chunks_read(struct mm_group *g)
{
	const uint32_t before = bits_count(g, g->given);
	uint32_t gone = 0;

	for (uint32_t i = 0; i < g->words; i++) {
		const uint64_t given = g->given[i], released = word_read(g, i);

		gone += (uint32_t)__builtin_popcountll(given & released);
		for (uint64_t left = released & ~g->usable[i]; left; left &= left - 1)
			chunk_drop(g, i * 64 + (uint32_t)__builtin_ctzll(left));
		word_make_usable(g, i);
	}
	if (gone)
		g->wanted = MM_MIN(g->wanted, before - gone);
}

/* ---- orders ---- */

/* Takes over the demands that ranks have set since. Returns whether there are any. */
static bool demands_read(struct mm_group *g, const uint32_t *seen)
{
	uint32_t wanted = 0;
	bool any = false;

	FOREACH_RANK(g, r) {
		if (r->kv.demands == seen[r - g->rank])
			continue;
		any = true;
		wanted = MM_MAX(wanted, r->kv.wanted);
	}
	if (any)
		g->wanted = MM_MIN(wanted, g->chunks_max);
	return any;
}

/*
 * Sets which chunk each rank may be granted next. A chunk that some rank lacks comes first; only
 * when there is none is a new one offered, to all.
 */
static void offers_order(const struct mm_group *g, struct mm_core_rank *order)
{
	uint64_t lacks[MM_GROUP_WORDS], new_ones[MM_GROUP_WORDS];
	bool all_have_all = true;
	uint32_t next;

	memset(new_ones, 0, sizeof(new_ones));
	for (uint32_t k = 0; k < g->size; k++) {
		for (uint32_t i = 0; i < g->words; i++) {
			lacks[i] = g->given[i] & ~g->rank[k].held[i];
			new_ones[i] |= g->given[i] | g->rank[k].held[i];
		}
		order[k].offer = lowest_bit(g, lacks);
		all_have_all = all_have_all && order[k].offer == MM_NO_CHUNK;
	}
	if (!all_have_all)
		return;
	for (uint32_t i = 0; i < g->words; i++)
		new_ones[i] = ~new_ones[i];
	next = lowest_bit(g, new_ones);
	for (uint32_t k = 0; k < g->size; k++)
		order[k].offer = next < g->chunks_max ? next : MM_NO_CHUNK;
}

/* A denial of one rank is one of all; the others can use one chunk more than it holds. */
static void denials_order(const struct mm_group *g, struct mm_core_rank *order)
{
	for (uint32_t k = 0; k < g->size; k++) {
		const struct mm_core_kv *denied = &g->rank[k].kv;

		if (!denied->denied || denied->wanted <= denied->held || order[k].wants_anew)
			continue;
		for (uint32_t m = 0; m < g->size; m++) {
			const struct mm_core_kv *kv = &g->rank[m].kv;

			if (m == k)
				continue;
			order[m].most = MM_MIN(order[m].most, denied->held + 1);
			if (!kv->denied && !order[m].wants_anew)
				order[m].deny = denied->denied;
		}
	}
}

/* Chunks that a core has reclaimed from its rank since are reclaimed from all. */
static void reclaims_order(const struct mm_group *g, const uint32_t *seen,
			   struct mm_core_rank *order)
{
	for (uint32_t k = 0; k < g->size; k++) {
		const struct mm_core_kv *from = &g->rank[k].kv;
		const uint32_t left = from->held - MM_MIN(from->reclaim, from->held);

		if (from->reclaims == seen[k])
			continue;
		for (uint32_t m = 0; m < g->size; m++) {
			const struct mm_core_kv *kv = &g->rank[m].kv;

			if (m == k || kv->held <= left || kv->held - left <= kv->reclaim)
				continue;
			order[m].reclaim = MM_MAX(order[m].reclaim, kv->held - left);
			order[m].reclaim_until_ns = from->reclaim_until_ns;
		}
	}
}

/* Takes back chunks that not all ranks hold from a rank that must release some. */
static void chunks_drop_for_reclaims(struct mm_group *g)
{
	FOREACH_RANK(g, r) {
		uint32_t n = r->kv.reclaim;

		for (uint32_t i = 0; i < g->words && n; i++) {
			uint64_t all = UINT64_MAX, left;

			FOREACH_RANK(g, other)
				all &= other->held[i];
			left = r->held[i] & ~all & ~g->usable[i] & ~r->drops[i];
			for (; left && n; left &= left - 1, n--)
				chunk_drop(g, i * 64 + (uint32_t)__builtin_ctzll(left));
		}
	}
}

/* A core lowers the demand with each chunk that its rank releases, also late. */
static bool rank_needs_order(const struct mm_group_rank *r, const struct mm_core_rank *order)
{
	return r->order.offer != order->offer || r->order.most != order->most ||
	       r->kv.wanted != order->wanted || order->deny || order->reclaim || order->wants_anew;
}

/* Gives the orders that differ from the last ones. Returns whether there are any. */
static bool orders_give(struct mm_group *g, uint64_t now_ns, const struct mm_core_rank *order)
{
	bool any = false;

	for (uint32_t k = 0; k < g->size; k++) {
		struct mm_group_rank *r = &g->rank[k];

		if (!rank_needs_order(r, &order[k]))
			continue;
		any = true;
		rank_order(g, r, now_ns, &order[k]);
	}
	return any;
}

static bool arenas_differ(const struct mm_core_kv *a, const struct mm_core_kv *b)
{
	return a->held != b->held || a->wanted != b->wanted || a->releases != b->releases ||
	       a->demands != b->demands || a->reclaims != b->reclaims || a->reclaim != b->reclaim ||
	       a->denied != b->denied || a->chunks_max != b->chunks_max;
}

/* All have declared their arenas: from now on chunks are granted. A policy may demand some. */
static void arenas_begin(struct mm_group *g)
{
	uint32_t most = 0;

	g->chunks_max = UINT32_MAX;
	FOREACH_RANK(g, r) {
		g->chunks_max = MM_MIN(g->chunks_max, r->kv.chunks_max);
		most = MM_MAX(most, r->kv.chunks_max);
		g->wanted = MM_MAX(g->wanted, r->kv.wanted);
	}
	g->wanted = MM_MIN(g->wanted, g->chunks_max);
	g->words = (uint32_t)mm_div_up(most, 64);
}

/* Reads the arenas. False: not all ranks are there with theirs, or nothing has changed. */
static bool arenas_read(struct mm_group *g, uint32_t *ret_demands, uint32_t *ret_reclaims)
{
	bool any = g->mapped_more, all = true;

	FOREACH_RANK(g, r) {
		struct mm_core_kv now;

		all = all && mm_core_kv(r->core, r->tenant, &now) && now.chunks_max;
		if (!all)
			return false;
		ret_demands[r - g->rank] = r->kv.demands;
		ret_reclaims[r - g->rank] = r->kv.reclaims;
		any = any || arenas_differ(&r->kv, &now);
	}
	if (!any)
		return false;
	g->settling = true;
	FOREACH_RANK(g, r)
		mm_core_kv(r->core, r->tenant, &r->kv);
	g->mapped_more = false;
	if (!g->chunks_max)
		arenas_begin(g);
	return true;
}

/* Returns whether orders were given, which may have changed something again. */
static bool group_settle_once(struct mm_group *g, uint64_t now_ns)
{
	uint32_t demands[MM_GROUP_RANKS_MAX], reclaims[MM_GROUP_RANKS_MAX];
	struct mm_core_rank order[MM_GROUP_RANKS_MAX];
	bool anew;

	bool any;

	if (!arenas_read(g, demands, reclaims))
		return false;
	chunks_read(g);
	anew = demands_read(g, demands);
	chunks_drop_for_reclaims(g);
	for (uint32_t k = 0; k < g->size; k++)
		order[k] = (struct mm_core_rank){
			.offer = MM_NO_CHUNK,
			.most = UINT32_MAX,
			.wanted = g->wanted,
			.wants_anew = anew && g->rank[k].kv.demands == demands[k],
		};
	offers_order(g, order);
	denials_order(g, order);
	reclaims_order(g, reclaims, order);
	any = orders_give(g, now_ns, order);
	g->settling = false;
	return any;
}

bool mm_group_settle(struct mm_group *g, uint64_t now_ns)
{
	if (!g->complete || g->over)
		return false;
	for (uint32_t i = 0; i < SETTLE_ROUNDS; i++)
		if (!group_settle_once(g, now_ns))
			return false;
	return true;
}

/* ---- going on in another process ---- */

/* Reads word @i of all arenas. False: a rank has none. */
static bool word_resume(struct mm_group *g, uint32_t i)
{
	uint64_t any = 0, all = UINT64_MAX, drops = 0;

	FOREACH_RANK(g, r) {
		struct mm_core_kv kv;

		if (!mm_core_kv(r->core, r->tenant, &kv) || !kv.chunks_max)
			return false;
		r->held[i] = kv.map[i];
		r->mapped[i] &= kv.map[i];
		r->drops[i] &= kv.map[i];
		any |= kv.map[i];
		all &= kv.map[i];
		drops |= r->drops[i];
	}
	g->usable[i] &= any;
	/* A chunk that was usable and that a rank lacks was released there. */
	g->given[i] = ((g->given[i] & ~(g->usable[i] & ~all)) | (any & ~g->usable[i])) & ~drops;
	for (; drops; drops &= drops - 1) {
		const uint32_t chunk = i * 64 + (uint32_t)__builtin_ctzll(drops);

		FOREACH_RANK(g, r)
			r->drops[i] &= ~bit_of(chunk);
		chunk_drop(g, chunk);
	}
	for (all &= g->usable[i]; all; all &= all - 1)
		all_send(g, MM_EV_GROUP_USABLE, i * 64 + (uint32_t)__builtin_ctzll(all));
	return true;
}

/*
 * If it was being settled, demands and reclaims may have been read and not used: they count as new.
 */
static void figures_resume(struct mm_group *g)
{
	uint32_t wanted = 0;

	FOREACH_RANK(g, r) {
		struct mm_core_kv kv;

		if (!mm_core_kv(r->core, r->tenant, &kv))
			continue;
		wanted = MM_MAX(wanted, kv.wanted);
		if (g->settling)
			r->kv.reclaims = kv.reclaims - 1;
		r->order = (struct mm_core_rank){ .offer = MM_NO_CHUNK, .most = UINT32_MAX };
	}
	if (g->settling && g->chunks_max)
		g->wanted = MM_MIN(wanted, g->chunks_max);
	g->settling = false;
}

void mm_group_resume(struct mm_group *g, const struct mm_group_calls *calls, void *context)
{
	g->calls = calls;
	g->context = context;
	g->joined = 0;
	FOREACH_RANK(g, r) {
		if (r->core)
			g->joined++;
		else
			rank_clear(r);
	}
	/* The last rank was being added. */
	if (g->joined < g->size && !g->over)
		g->complete = false;
	if (!g->complete || g->over)
		return;
	all_send(g, MM_EV_GROUP_READY, g->size);
	for (uint32_t i = 0; i < g->words; i++)
		if (!word_resume(g, i))
			return;
	figures_resume(g);
	g->mapped_more = true;
}
