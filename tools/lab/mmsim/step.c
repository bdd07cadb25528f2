/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step - a step on the device: its layers, and the gates of those that cycle
 * (libclient/client/step.c, Documentation/protocol.md).
 */
#include "tools/lab/mmsim/step.h"

#include "libclient/base/base.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/device.h"
#include "tools/lab/mmsim/engine.h"

/* Returns the first layer from @layer on that is not resident; n_layers if there is none. */
static uint32_t next_gated(const struct ms_tenant *t, uint32_t layer)
{
	uint32_t word = layer / 64;
	uint64_t bits;

	if (layer >= t->n_layers)
		return t->n_layers;
	bits = t->gated[word] & ~UINT64_C(0) << layer % 64;
	while (!bits && ++word * 64 < t->n_layers)
		bits = t->gated[word];
	return bits ? word * 64 + (uint32_t)__builtin_ctzll(bits) : t->n_layers;
}

/*
 * Plans the next part of a step. It ends behind the next cycling layer if that is READY, else
 * before the gate of that layer; without such a layer it ends with the model.
 */
static void part_plan(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;
	const uint32_t gated = MM_MIN(next_gated(t, s->layer), s->until);

	s->cycles = gated < s->until && t->gate[gated] == MS_GATE_READY;
	s->end = gated + s->cycles;
	s->last = s->end == s->until && !s->cycles;
}

static void part_start(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;
	double work;

	part_plan(t);
	if (s->cycles && t->e.cold.entries_max)
		ms_cold_check_layer(t, s->end - 1);
	work = (double)s->before_ns + (double)(s->end - s->layer) * (double)s->cost.layer;
	s->before_ns = 0;
	if (s->last && s->breaks) {
		work = MM_MAX(work, 1);
	} else if (s->last) {
		work += (double)s->cost.after;
	} else if (work <= 0) {
		s->stalled = true;
		s->stalled_since_ns = t->sim->now_ns;
		return;
	}
	ms_compute_start(t, work);
}

void ms_step_gate(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;

	s->stalled = false;
	s->stall_ns += t->sim->now_ns - s->stalled_since_ns;
	part_start(t);
}

void ms_step_part_done(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;
	const uint64_t now = t->sim->now_ns;

	s->layer = s->end;
	if (s->cycles) {
		ms_gate_set(t, s->end - 1, MS_GATE_DONE);
		ms_heap_push(&t->sim->heap, now + MS_LOOK_NS, MS_LOOK, (uint16_t)t->index, 0);
	}
	if (s->last)
		ms_heap_push(&t->sim->heap, now + MS_SYNC_NS, MS_STEP_END, (uint16_t)t->index, 0);
	else
		part_start(t);
}

static uint32_t rng_draw(struct ms_step *s, uint32_t n)
{
	s->rng ^= s->rng << 13;
	s->rng ^= s->rng >> 7;
	s->rng ^= s->rng << 17;
	return (uint32_t)((s->rng >> 16) % n);
}

/* Decides whether the step breaks off, and before which layer, as if the engine had failed. */
static void break_plan(struct ms_tenant *t)
{
	const struct ms_opts *o = &t->sim->opts;
	struct ms_step *s = &t->step;

	s->until = t->n_layers;
	if (!o->broken_permille)
		return;
	if (!s->rng)
		s->rng = (o->wl->seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + t->index;
	s->breaks = rng_draw(s, 1000) < o->broken_permille;
	if (s->breaks)
		s->until = rng_draw(s, t->n_layers);
}

/* Waits while a plan changes, and for the turn if the tenant has returned it meanwhile. */
void ms_step_begin(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;

	ms_turn_want(t);
	t->c.wants_begin = mm_steps_may_begin(&t->c.steps, false) != MM_STEPS_MAY;
	if (t->c.wants_begin)
		return;
	mm_assert(!t->c.steps.open);
	mm_steps_begin(&t->c.steps);
	t->c.step_seq++;
	s->begins++;
	s->begin_ns = t->sim->now_ns;
	s->stall_ns = 0;
	s->layer = 0;
	s->last = s->stalled = false;
	break_plan(t);
	part_start(t);
}

/* A step can be abandoned only outside the window of a change, because its gates are aborted. */
void ms_step_abandon(struct ms_tenant *t)
{
	struct mm_steps_out out = { 0 };

	if (!t->step.abandons || mm_steps_in_window(&t->c.steps))
		return;
	t->step.abandons = t->step.breaks = false;
	t->step.layer = t->n_layers;
	t->c.step_seq++;
	mm_steps_end(&t->c.steps, t->c.steps.plan.cycling, &out);
	ms_client_out(t, &out);
	ms_engine_again(t);
}

static void step_account(struct ms_tenant *t)
{
	struct mm_tenant_stats *stats = &t->c.stats;
	struct ms_step *s = &t->step;

	stats->steps++;
	stats->samples++;
	stats->step_ns = t->sim->now_ns - s->begin_ns;
	stats->stall_ns = s->stall_ns;
	stats->stall_total_ns += s->stall_ns;
	t->s.steps++;
	t->s.step_ns += stats->step_ns;
	t->s.stall_ns += s->stall_ns;
}

void ms_step_end(struct ms_tenant *t)
{
	struct mm_steps_out out = { 0 };

	t->step.abandons = t->step.breaks;
	if (t->step.breaks) {
		ms_step_abandon(t);
		return;
	}
	t->c.step_seq++;
	step_account(t);
	mm_steps_end(&t->c.steps, false, &out);
	ms_client_out(t, &out);
	ms_engine_stepped(t);
}
