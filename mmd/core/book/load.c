/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/load.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"
#include "mmd/core/knobs.h"

#define STALL_MAX    10000u /* permille: larger stalls count as this */
#define STALL_NS_MAX (UINT64_C(1) << 40)
/* rises by one part in so many, with each report that is not the least */
#define ALONE_RISES   128
#define LONGEST_FADES 64 /* decays by one part in so many, with each step that is measured */
#define SMALLEST_BITS 17 /* log2 of the shortest time that has a class of its own, in ns */
#define NEW_WEIGHT    (1u << 16)
#define FADES         64 /* decays by one part in so many, with each step that is measured */
#define STEP_NS_MAX   (UINT64_C(1) << 36)

/* ---- steps ---- */

static uint32_t step_size_of(uint64_t ns)
{
	uint32_t bits = 63u - (uint32_t)__builtin_clzll(ns | 1);

	if (bits < SMALLEST_BITS)
		return 0;
	return MM_MIN(2 * (bits - SMALLEST_BITS) + (uint32_t)(ns >> (bits - 1) & 1),
		      MM_STEP_SIZES - 1);
}

static void steps_add(struct mm_c_steps *s, uint64_t ns)
{
	uint32_t size = step_size_of(ns);

	ns = MM_MIN(ns, STEP_NS_MAX);
	for (uint32_t i = 0; i < MM_STEP_SIZES; i++)
		s->weight[i] -= (s->weight[i] + FADES - 1) / FADES;
	s->ns[size] = s->weight[size] ? s->ns[size] - s->ns[size] / 8 + ns / 8 : ns;
	s->weight[size] += NEW_WEIGHT;
}

uint64_t mm_c_steps_mean_ns(const struct mm_c_steps *s)
{
	unsigned __int128 sum = 0;
	uint64_t weight = 0;

	for (uint32_t i = 0; i < MM_STEP_SIZES; i++) {
		sum += (unsigned __int128)s->weight[i] * s->ns[i];
		weight += s->weight[i];
	}
	return weight ? (uint64_t)(sum / weight) : 0;
}

static uint64_t load_smooth(uint64_t old, uint64_t sample)
{
	return old ? old - old / 4 + sample / 4 : sample;
}

static void computing_note(struct mm_c_tenant *t, uint64_t step_ns, uint64_t stall_ns,
			   uint64_t kv_used)
{
	uint64_t longest = t->load.longest_ns - t->load.longest_ns / LONGEST_FADES;

	t->load.t_c_ns = load_smooth(t->load.t_c_ns, step_ns / t->n_layers);
	t->load.longest_ns = MM_MAX(longest, step_ns);
	steps_add(&t->load.steps, step_ns);
	t->load.steps_seen++;
	if (kv_used)
		mm_slope_add(&t->load.slope, kv_used, step_ns);
	t->load.stall_permille -= t->load.stall_permille / 8;
	t->load.stall_permille += MM_MIN(stall_ns / MM_MAX(step_ns / 1000, 1), STALL_MAX) / 8;
}

/* Bounds the claims of MM_FEAT_DEMAND; of a tenant without it they are 0. */
static void demand_bound(const struct mm_c_tenant *t, struct mm_tenant_stats *s)
{
	const bool said = t->features & MM_FEAT_DEMAND;

	s->kv_chunks_queued = said ? MM_MIN(s->kv_chunks_queued, t->kv.chunks_max) : 0;
	s->requests_done = said ? s->requests_done : 0;
	s->requests_late = MM_MIN(s->requests_late, s->requests_done);
}

void mm_c_load_report(struct mm_core *c, struct mm_c_tenant *t, const struct mm_tenant_stats *stats)
{
	bool claims, stepped;
	uint64_t stall_ns;

	mm_c_tally_report(c, t, stats);
	stepped =
		stats->step_seq & 1 || (t->load.known && stats->step_seq != t->load.last.step_seq);
	if (stepped)
		t->load.stepped_ns = c->now_ns;
	/*
	 * A tenant that has had work for long and takes no step does not need its layers, even if
	 * its statistics claim that it is active.
	 */
	claims = (stats->running || stats->waiting) &&
		 c->now_ns - t->load.stepped_ns < MM_SILENT_IDLES * c->opts.idle_ns;
	if (stepped || claims)
		t->load.active_ns = c->now_ns;
	/*
	 * Steps are measured by the clock of the host, stalls by that of the device, which may be
	 * slower.
	 */
	stall_ns = mm_c_time(c, MM_MIN(stats->stall_ns, STALL_NS_MAX));
	if (t->n_layers && stats->samples != t->load.last.samples && stats->step_ns > stall_ns)
		computing_note(t, stats->step_ns - stall_ns, stall_ns,
			       MM_MIN(stats->kv_chunks_used, t->kv.held));
	t->load.claimed |=
		memcmp(t->load.last.compute, stats->compute, sizeof(stats->compute)) != 0;
	t->load.last = *stats;
	demand_bound(t, &t->load.last);
	t->load.known = true;
}

bool mm_c_load_claim(struct mm_core *c, struct mm_c_tenant *t)
{
	if (!t->load.claimed ||
	    (t->load.claimed_ns && c->now_ns - t->load.claimed_ns < mm_c_time(c, MM_CLAIM_NS)))
		return false;
	t->load.claimed = false;
	t->load.claimed_ns = MM_MAX(c->now_ns, 1);
	return true;
}

void mm_c_load_forget(struct mm_c_tenant *t)
{
	t->load.t_c_ns = t->load.t_t_ns = t->load.alone_ns = 0;
	t->load.stall_permille = t->load.longest_ns = 0;
	t->load.steps = (struct mm_c_steps){ 0 };
	t->load.steps_seen = 0;
	t->load.slope = (struct mm_slope){ 0 };
	t->load.claimed = false;
}

/* ---- transfers ---- */

void mm_c_load_streamed(struct mm_c_tenant *t, uint64_t layer_ns)
{
	t->load.t_t_ns = load_smooth(t->load.t_t_ns, layer_ns);
	t->load.alone_ns += t->load.alone_ns / ALONE_RISES;
	if (!t->load.alone_ns || layer_ns < t->load.alone_ns)
		t->load.alone_ns = layer_ns;
}

/*
 * Measures from the end of the copy before, if that is later than the issue: until then this copy
 * was in the queue.
 */
void mm_c_load_copied(struct mm_core *c, uint64_t issued_ns, uint64_t bytes)
{
	struct mm_c_copies *copies = &c->copies;
	uint64_t ns = c->now_ns - MM_MAX(issued_ns, MM_MIN(copies->done_ns, c->now_ns));
	uint64_t per_mib;

	copies->done_ns = c->now_ns;
	if (!bytes || ns > UINT64_MAX >> 21)
		return;
	per_mib = (ns << 20) / bytes;
	copies->ns_per_mib = copies->ns_per_mib ? (copies->ns_per_mib * 7 + per_mib) / 8 : per_mib;
}

uint64_t mm_c_copies_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	if (c->copies.ns_per_mib && t->layer_bytes_max > UINT64_MAX / c->copies.ns_per_mib)
		return UINT64_MAX;
	return (c->copies.ns_per_mib * t->layer_bytes_max) >> 20;
}

uint64_t mm_c_transfer_ns(const struct mm_core *c, const struct mm_c_tenant *t)
{
	return t->load.t_t_ns ? t->load.t_t_ns : mm_c_copies_ns(c, t);
}
