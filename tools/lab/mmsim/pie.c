/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/pie.h"

#include "libclient/base/base.h"
#include "libclient/protocol/cold.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/shell.h"

#define LEAST_AWAY   3u   /* of two layers that are away both are under way: nothing is gained */
#define IDLE_STEPS   8u   /* in a row with time left on the link before one more layer goes */
#define WAIT_STEPS   2u   /* in a row that waited before one comes back */
#define WAIT_PART    100u /* of a step: shorter waits do not count */
#define RECORD_STEPS 32u  /* that a setting's throughput is taken over */
#define LEFT_STEPS   512u /* from when a setting was left until it is tried again */

bool ms_pie_is_on(const struct ms_tenant *t)
{
	return t->sim->opts.policy->pie;
}

/* (K(m) - B) n / (n - classes), with K(m) - B = B (m - 2) / (n - m + 2). */
static uint32_t entries_of(const struct ms_tenant *t, uint32_t m)
{
	const uint64_t n = t->n_layers, share = t->sizes->kv_share_bytes / t->kv.block_bytes;
	const uint64_t classes = mm_cold_layer_classes(t->n_layers);

	if (m < LEAST_AWAY)
		return 0;
	/* The window of more would be most of what is on the device. */
	return (uint32_t)MM_MIN(share * (m - 2) * n / ((n - m + 2) * (n - classes)),
				share * n / (2 * classes));
}

uint32_t ms_pie_entries(const struct ms_tenant *t)
{
	return entries_of(t, t->n_layers - 1);
}

static void pie_set(struct ms_tenant *t, uint32_t m)
{
	struct ms_pie *pie = &t->pie;
	const uint32_t entries = MM_MIN(entries_of(t, m), t->e.cold.entries_max);
	uint32_t most;

	pie->before = pie->m;
	pie->rate_before = pie->rate;
	pie->m = m;
	pie->m_max = MM_MAX(pie->m_max, m);
	pie->steps = pie->idle = pie->waits = 0;
	pie->rate = 0;
	pie->tokens = t->s.tokens;
	pie->since_ns = t->sim->now_ns;
	if (mm_core_cold_set(t->dev->core, t->sim->now_ns, t->id, (int32_t)entries, &most))
		ms_fail(t->sim, "tenant %s: mmd refuses %u cold blocks", t->name, entries);
	ms_shell_settle(t->dev);
}

static uint32_t one_more(const struct ms_tenant *t)
{
	return MM_MIN(MM_MAX(t->pie.m + 1, LEAST_AWAY), t->n_layers - 1);
}

static uint32_t one_less(const struct ms_tenant *t)
{
	return t->pie.m > LEAST_AWAY ? t->pie.m - 1 : 0;
}

static void step_note(struct ms_tenant *t)
{
	struct ms_pie *pie = &t->pie;
	const uint64_t step_ns = t->sim->now_ns - t->e.step_ns;
	const uint64_t busy_ns = t->dev->link.lane[MS_LANE_IN].busy_ns - pie->busy_ns;
	const uint64_t idle_ns = step_ns - MM_MIN(busy_ns, step_ns);

	pie->busy_ns += busy_ns;
	pie->idle = idle_ns * (pie->m + 1) >= step_ns ? pie->idle + 1 : 0;
	pie->waits = t->step.stall_ns * WAIT_PART > step_ns ? pie->waits + 1 : 0;
	pie->left -= pie->left ? 1 : 0;
	if (++pie->steps == RECORD_STEPS)
		pie->rate = (double)(t->s.tokens - pie->tokens) /
			    (double)MM_MAX(t->sim->now_ns - pie->since_ns, 1u);
}

void ms_pie_stepped(struct ms_tenant *t)
{
	const uint32_t fixed = t->sim->opts.pie_layers;
	struct ms_pie *pie = &t->pie;

	if (!ms_pie_is_on(t) || !t->e.cold.open)
		return;
	step_note(t);
	if (!ms_cold_is_in_force(t)) {
		pie->steps = pie->idle = pie->waits = 0;
		pie->tokens = t->s.tokens;
		pie->since_ns = t->sim->now_ns;
		return;
	}
	if (fixed) {
		if (pie->m != fixed)
			pie_set(t, fixed);
		return;
	}
	if (pie->waits >= WAIT_STEPS && pie->m) {
		pie->left = LEFT_STEPS;
		pie_set(t, one_less(t));
	} else if (pie->steps == RECORD_STEPS && pie->m > pie->before &&
		   pie->rate < pie->rate_before) {
		pie->left = LEFT_STEPS;
		pie_set(t, pie->before);
	} else if (t->e.sched.n_waiting && pie->idle >= IDLE_STEPS && !pie->left &&
		   pie->m < t->n_layers - 1) {
		pie_set(t, one_more(t));
	}
}
