/* SPDX-License-Identifier: Apache-2.0 */
#include "mmd/core/book/tally.h"

#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/book/book.h"

#define STEP_NS_LEAST  1000u       /* no step is shorter */
#define SAMPLE_LATE_NS MM_NS_PER_S /* by so much a step may have begun before the last sample */

const uint64_t mm_c_tally_bounds_ns[MM_TALLY_BOUNDS] = {
	100 * MM_NS_PER_US, 500 * MM_NS_PER_US, MM_NS_PER_MS,       2 * MM_NS_PER_MS,
	5 * MM_NS_PER_MS,   10 * MM_NS_PER_MS,  20 * MM_NS_PER_MS,  50 * MM_NS_PER_MS,
	100 * MM_NS_PER_MS, 200 * MM_NS_PER_MS, 500 * MM_NS_PER_MS, MM_NS_PER_S,
	2 * MM_NS_PER_S,    5 * MM_NS_PER_S,    10 * MM_NS_PER_S,   30 * MM_NS_PER_S,
};

static void times_add(struct mm_core_times *times, uint64_t ns)
{
	uint32_t i = 0;

	while (i < MM_TALLY_BOUNDS && ns > mm_c_tally_bounds_ns[i])
		i++;
	times->count[i]++;
	times->sum_ns += ns;
}

#define tally_time(c, t, times, ns)                                       \
	do {                                                              \
		times_add(&(t)->tally.happened.times, (ns));              \
		times_add(&(c)->account[(t)->account].tally.times, (ns)); \
		times_add(&(c)->tally.times, (ns));                       \
	} while (0)

/* ---- waits for chunks ---- */

static void waits_drop_first(struct mm_c_tally *y, uint32_t chunks)
{
	y->wait[0].chunks -= chunks;
	if (y->wait[0].chunks)
		return;
	y->waits--;
	memmove(&y->wait[0], &y->wait[1], y->waits * sizeof(y->wait[0]));
}

/* Takes back what was demanded last. */
static void waits_drop_last(struct mm_c_tally *y, uint32_t chunks)
{
	while (chunks && y->waits) {
		struct mm_wait *last = &y->wait[y->waits - 1];
		const uint32_t n = MM_MIN(chunks, last->chunks);

		last->chunks -= n;
		chunks -= n;
		y->waits -= !last->chunks;
	}
}

void mm_c_tally_waits(const struct mm_core *c, struct mm_c_tenant *t, uint32_t chunks)
{
	struct mm_c_tally *y = &t->tally;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < y->waits; i++)
		sum += y->wait[i].chunks;
	if (chunks <= sum) {
		waits_drop_last(y, sum - chunks);
		return;
	}
	if (y->waits == MM_WAITS_MAX)
		y->wait[MM_WAITS_MAX - 1].chunks += chunks - sum;
	else
		y->wait[y->waits++] = (struct mm_wait){ chunks - sum, c->now_ns };
}

void mm_c_tally_granted(struct mm_core *c, struct mm_c_tenant *t)
{
	struct mm_c_tally *y = &t->tally;
	const uint64_t since_ns = y->waits ? y->wait[0].since_ns : c->now_ns;

	mm_c_tally_add(c, t, grants, 1);
	tally_time(c, t, grant, c->now_ns - MM_MIN(since_ns, c->now_ns));
	if (y->waits)
		waits_drop_first(y, 1);
}

/* ---- claims ---- */

static uint64_t claim_rise(uint64_t claim, uint64_t last, uint64_t most)
{
	return claim > last ? MM_MIN(claim - last, most) : 0;
}

/* A stall is measured by the clock of the device, a step by that of the host. */
static void sample_report(struct mm_core *c, struct mm_c_tenant *t,
			  const struct mm_tenant_stats *stats)
{
	struct mm_c_tally *y = &t->tally;
	const uint64_t most = c->now_ns - y->sampled_ns + SAMPLE_LATE_NS;
	const uint64_t step_ns = MM_MIN(stats->step_ns, most);

	tally_time(c, t, step, step_ns);
	tally_time(c, t, stall, MM_MIN(mm_c_time(c, MM_MIN(stats->stall_ns, most)), step_ns));
	y->sampled_ns = c->now_ns;
}

void mm_c_tally_report(struct mm_core *c, struct mm_c_tenant *t,
		       const struct mm_tenant_stats *stats)
{
	const struct mm_tenant_stats *last = &t->load.last;
	struct mm_c_tally *y = &t->tally;
	const uint64_t passed_ns = c->now_ns - MM_MIN(y->reported_ns, c->now_ns);
	uint64_t stall_ns;

	if (t->load.known && y->reported_ns) {
		stall_ns = claim_rise(stats->stall_total_ns, last->stall_total_ns, passed_ns);
		mm_c_tally_add(c, t, steps,
			       claim_rise(stats->steps, last->steps, passed_ns / STEP_NS_LEAST));
		mm_c_tally_add(c, t, stall_ns, MM_MIN(mm_c_time(c, stall_ns), passed_ns));
		if (stats->samples != last->samples)
			sample_report(c, t, stats);
	} else {
		y->sampled_ns = c->now_ns;
	}
	y->reported_ns = MM_MAX(c->now_ns, 1);
}
