/* SPDX-License-Identifier: Apache-2.0 */
/* A step on the device: its layers, and the gates of those that cycle (libclient/step.c, protocol.md). */
#include "mm/base.h"
#include "tools/mmsim/costs.h"
#include "tools/mmsim/sim.h"

/* The first layer from @layer on that does not stay; the model's end if there is none. */
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

/* Up to the end of the next layer that cycles, if it is there; else up to its gate. */
static void part_plan(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;
	const uint32_t gated = next_gated(t, s->layer);

	s->cycles = gated < t->n_layers && t->gate[gated] == MS_GATE_READY;
	s->end = gated + s->cycles;
}

static void part_start(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;
	double work;

	part_plan(t);
	work = (double)s->before_ns + (double)(s->end - s->layer) * (double)s->cost.layer;
	s->before_ns = 0;
	if (s->end == t->n_layers && !s->cycles) {
		work += (double)s->cost.after;
		s->after_done = true;
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
	if (s->after_done)
		ms_heap_push(&t->sim->heap, now + MS_SYNC_NS, MS_STEP_END, (uint16_t)t->index, 0);
	else
		part_start(t);
}

/* The engine's thread: waits while a plan changes, and for a turn that went back since the step was planned. */
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
	s->begin_ns = t->sim->now_ns;
	s->stall_ns = 0;
	s->layer = 0;
	s->after_done = s->stalled = false;
	part_start(t);
}

void ms_step_end(struct ms_tenant *t)
{
	struct ms_step *s = &t->step;
	struct mm_tenant_stats *stats = &t->c.stats;
	struct mm_steps_out out = { 0 };

	t->c.step_seq++;
	stats->steps++;
	stats->samples++;
	stats->step_ns = t->sim->now_ns - s->begin_ns;
	stats->stall_ns = s->stall_ns;
	stats->stall_total_ns += s->stall_ns;
	t->s.steps++;
	t->s.step_ns += stats->step_ns;
	t->s.stall_ns += s->stall_ns;
	mm_steps_end(&t->c.steps, false, &out);
	ms_client_out(t, &out);
	ms_engine_stepped(t);
}
