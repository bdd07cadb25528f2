/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lab/mmsim/sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/lab/mmsim/check.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/device.h"
#include "tools/lab/mmsim/engine.h"
#include "tools/lab/mmsim/explain.h"
#include "tools/lab/mmsim/link.h"
#include "tools/lab/mmsim/model.h"
#include "tools/lab/mmsim/shell.h"
#include "tools/lab/mmsim/step.h"
#include "tools/lab/mmsim/suspend.h"
#include "tools/lab/mmsim/xfer.h"

#define START_MAX_NS (300 * MM_NS_PER_S)   /* limit of virtual time until all models are loaded */
#define END_MAX_NS   (10000 * MM_NS_PER_S) /* limit, plus END_FACTOR times the time of arrivals */
#define END_FACTOR   100
#define TICKS_MAX    1000 /* ticks at one time; with more of them mmd's loop would spin */
#define ACCOUNT      1000 /* one account for all tenants, as under mmbench */

void ms_fail(struct ms_sim *sim, const char *format, ...)
{
	va_list args;
	int n;

	if (sim->failed)
		return;
	sim->failed = true;
	n = snprintf(sim->err, sizeof(sim->err),
		     "at %.9f s: ", (double)(int64_t)(sim->now_ns - sim->start_ns) / 1e9);
	va_start(args, format);
	vsnprintf(sim->err + n, sizeof(sim->err) - (size_t)n, format, args);
	va_end(args);
}

struct ms_tenant *ms_tenant_of(struct ms_device *dev, uint32_t id)
{
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++) {
		struct ms_tenant *t = &dev->sim->tenants[i];

		if (t->dev == dev && t->id == id)
			return t;
	}
	return NULL;
}

/* ---- making ---- */

static int sim_tenant_init(struct ms_tenant *t, const struct mm_wl_tenant *of)
{
	const struct mm_step_opts cost = { .weight_element_bytes = MM_WL_ELEMENT_BYTES,
					   .kv_element_bytes = MM_WL_ELEMENT_BYTES };
	const struct mm_wl_opts *wl = t->sim->opts.wl;
	const uint64_t page = t->dev->opts.page_bytes;
	int r;

	t->name = of->shape->name;
	t->arch = &of->shape->arch;
	mm_step_model_init(&t->cost, &t->dev->profile, t->arch, &cost);
	ms_model_layout(t, page);
	r = mm_kv_arena_init(&t->kv, MM_KV_BLOCK_MAJOR, t->arch->layers,
			     (uint64_t)wl->block_tokens * t->arch->kv_heads * t->arch->head_dim *
				     MM_WL_ELEMENT_BYTES,
			     page);
	if (r)
		return r;
	if (ms_is_fixed(t))
		mm_kv_arena_fix(&t->kv, page, t->sizes->kv_share_bytes);
	t->chunk_pages = (uint32_t)(mm_kv_arena_chunk_total(&t->kv) / page);
	mm_steps_init(&t->c.steps, true);
	t->outbox.item_bytes = sizeof(struct ms_item);
	t->requests.item_bytes = sizeof(struct mm_msg);
	t->c.inbox.item_bytes = t->c.arrived.item_bytes = sizeof(struct ms_item);
	t->c.events.item_bytes = sizeof(struct mm_event);
	t->c.view = calloc(t->entries, sizeof(*t->c.view));
	t->c.map = calloc(t->entries, sizeof(*t->c.map));
	if (!t->c.view || !t->c.map)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->entries; i++)
		t->c.view[i] = t->c.map[i] = MM_NO_PAGE;
	return ms_engine_init(t);
}

static void tenant_done(struct ms_tenant *t)
{
	ms_engine_done(t);
	mm_kv_arena_done(&t->kv);
	free(t->c.view);
	free(t->c.map);
	ms_fifo_done(&t->outbox);
	ms_fifo_done(&t->requests);
	ms_fifo_done(&t->c.inbox);
	ms_fifo_done(&t->c.arrived);
	ms_fifo_done(&t->c.events);
}

/* Makes one device for all tenants, or, under MIG, a device with a part of it for each tenant. */
static int devices_init(struct ms_sim *sim)
{
	const struct ms_opts *o = &sim->opts;
	const bool mig = o->wl->sharing == MM_WL_MIG;
	int r = 0;

	sim->n_devices = mig ? o->sizes->tenants : 1;
	sim->devices = calloc(sim->n_devices, sizeof(*sim->devices));
	if (!sim->devices)
		return -ENOMEM;
	for (uint32_t i = 0; i < sim->n_devices && !r; i++) {
		const struct mm_wl_tenant_sizes *s = &o->sizes->tenant[i];
		struct ms_device *dev = &sim->devices[i];
		uint64_t bytes = mig ? s->weight_pages * o->sizes->page_bytes + s->kv_share_bytes
				     : o->sizes->pool_bytes;

		dev->profile = o->profile;
		if (mig)
			mm_profile_share(&dev->profile, s->fraction);
		dev->opts = o->core;
		dev->opts.page_bytes = o->sizes->page_bytes;
		dev->opts.pages = (uint32_t)(bytes / o->sizes->page_bytes);
		dev->opts.policy = o->policy->policy;
		dev->opts.slots = o->wl->slots;
		dev->opts.swap_max_bytes = UINT64_MAX / 4;
		/* No limit, so that the quanta of the case apply. */
		dev->opts.turn_quantum_max_ns = MM_TURN_QUANTUM_LIMIT_NS;
		r = ms_device_init(dev, sim, i);
	}
	return r;
}

static int tenants_init(struct ms_sim *sim)
{
	const struct ms_opts *o = &sim->opts;
	int r = 0;

	sim->tenants = calloc(o->sizes->tenants, sizeof(*sim->tenants));
	if (!sim->tenants)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->sizes->tenants && !r; i++) {
		struct ms_tenant *t = &sim->tenants[i];

		sim->n_tenants++;
		t->sim = sim;
		t->index = i;
		t->dev = &sim->devices[sim->n_devices > 1 ? i : 0];
		t->sizes = &o->sizes->tenant[i];
		t->stream = &o->c->stream[i];
		r = sim_tenant_init(t, &o->wl->tenant[i]);
	}
	return r;
}

struct ms_sim *ms_sim_destroy(struct ms_sim *sim)
{
	if (!sim)
		return NULL;
	for (uint32_t i = 0; i < sim->n_tenants; i++)
		tenant_done(&sim->tenants[i]);
	for (uint32_t i = 0; sim->devices && i < sim->n_devices; i++)
		ms_device_done(&sim->devices[i]);
	free(sim->tenants);
	free(sim->devices);
	ms_heap_done(&sim->heap);
	free(sim);
	return NULL;
}

/* ---- beginning ---- */

static void sim_tenant_join(struct ms_tenant *t)
{
	const struct mm_core_join join = { .account = ACCOUNT, .features = MM_FEAT_KNOWN };
	struct mm_core *core = t->dev->core;

	if (mm_core_on_join(core, t->sim->now_ns, &join, &t->id)) {
		ms_fail(t->sim, "tenant %s: mmd does not let it join", t->name);
		return;
	}
	ms_shell_settle(t->dev);
	mm_core_on_model(core, t->sim->now_ns, t->id, t->index + 1, ms_model_bytes(t), t->group,
			 t->n_layers + 1);
	ms_shell_settle(t->dev);
}

static void sim_begin(struct ms_sim *sim)
{
	for (uint32_t i = 0; i < sim->n_devices; i++) {
		struct ms_device *dev = &sim->devices[i];

		mm_core_on_xfer_up(dev->core, sim->now_ns, 1);
		ms_shell_settle(dev);
		ms_heap_push(&sim->heap, sim->now_ns + MS_SAMPLE_NS, MS_SAMPLE, (uint16_t)i, 0);
	}
}

/* Are all pools made? Until then mmd accepts no tenants. */
static bool pools_stand(const struct ms_sim *sim)
{
	struct mm_core_stats s;

	for (uint32_t i = 0; i < sim->n_devices; i++) {
		mm_core_stats(sim->devices[i].core, &s);
		if (s.pages[MM_PAGE_FREE] != sim->devices[i].opts.pages)
			return false;
	}
	return true;
}

static void join_all(struct ms_sim *sim)
{
	sim->joined = pools_stand(sim);
	sim->joined_ns = sim->now_ns;
	for (uint32_t i = 0; sim->joined && i < sim->n_tenants && !sim->failed; i++)
		sim_tenant_join(&sim->tenants[i]);
}

static void tenant_declare_demand(struct ms_tenant *t)
{
	const struct mm_wl_opts *wl = t->sim->opts.wl;

	t->c.kv_declared = true;
	ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_KV_DECLARE,
					    .arg = { t->kv.chunk_bytes, t->kv.ranges, t->chunks_max,
						     t->chunks_share } });
	if (wl->sharing != MM_WL_TEMPORAL)
		return;
	ms_turn_join(t, wl->turns == MM_WL_DRAIN ? MM_TURN_DRAIN : MM_TURN_QUANTUM,
		     wl->quantum_ms * MM_NS_PER_MS);
}

/*
 * Sets the plan of the command line for a tenant. Return: true: it is in force, or none was given.
 */
static bool tenant_has_plan(struct ms_tenant *t)
{
	const struct ms_opts *o = &t->sim->opts;
	const struct mm_core_plan *plan = mm_core_plan(t->dev->core, t->id);
	const struct ms_plan *wanted;
	uint32_t most;

	if (!o->plans)
		return true;
	wanted = &o->plans[t->index];
	if (plan->alpha_by_hand < 0 &&
	    mm_core_plan_set(t->dev->core, t->sim->now_ns, t->id, (int32_t)wanted->alpha,
			     wanted->slots, &most))
		ms_fail(t->sim, "tenant %s: of its %u layers, at most %u can be away", t->name,
			t->n_layers, most);
	ms_shell_settle(t->dev);
	return plan->alpha == wanted->alpha &&
	       mm_core_plan_phase(t->dev->core, t->id) == MM_PLAN_STEADY && !t->c.busy;
}

/*
 * Prepares a tenant for the arrival of requests. Return: true: its model is loaded, its plan is in
 * force, and it has its KV share if that is fixed.
 */
static bool tenant_is_ready(struct ms_tenant *t)
{
	if (!t->c.model_ready)
		return false;
	if (!t->c.kv_declared)
		tenant_declare_demand(t);
	if (!t->c.kv_open)
		return false;
	if (t->e.swaps && !t->e.swap_open && ms_suspend_open(t))
		ms_fail(t->sim, "tenant %s: no swap space", t->name);
	ms_cold_poll(t);
	return tenant_has_plan(t) && ms_cold_is_ready(t) &&
	       (!t->e.fixed || t->c.n_usable == t->chunks_share);
}

static void requests_start(struct ms_sim *sim)
{
	bool all = true;

	for (uint32_t i = 0; i < sim->n_tenants; i++)
		all &= tenant_is_ready(&sim->tenants[i]);
	if (sim->now_ns - sim->joined_ns > START_MAX_NS)
		ms_fail(sim, "models and KV shares do not get their memory");
	if (!all || sim->failed)
		return;
	sim->started = true;
	sim->start_ns = sim->now_ns;
	for (uint32_t i = 0; i < sim->n_tenants; i++) {
		mm_kvman_granted(&sim->tenants[i].e.kvman, sim->now_ns);
		ms_engine_wake(&sim->tenants[i], sim->now_ns);
	}
}

/* ---- events ---- */

static void step_trace(const struct ms_tenant *t, const struct mm_core_stats *s)
{
	const struct ms_opts *o = &t->sim->opts;

	fprintf(o->trace, "%s,%u,%.6f,%u,%s,%llu,%llu,%u,%u,%u,%u,%u,%u,%llu,%llu,%llu,%d\n",
		o->policy->name, o->c->window, (double)(t->sim->now_ns - t->sim->start_ns) / 1e9,
		t->index, t->name, (unsigned long long)s->pages[MM_PAGE_FREE],
		(unsigned long long)t->model_pages, t->c.steps.plan.away, t->c.steps.plan.cycling,
		t->c.n_usable, t->e.sched.kv.used_blocks, t->e.sched.n_running,
		t->e.sched.n_waiting, (unsigned long long)t->e.sched.preemptions,
		(unsigned long long)t->s.steps, (unsigned long long)t->x.bytes_streamed,
		t->c.steps.turn.serial != 0);
}

static void trace_all(struct ms_device *dev)
{
	struct mm_core_stats s;

	mm_core_stats(dev->core, &s);
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++)
		if (dev->sim->tenants[i].dev == dev)
			step_trace(&dev->sim->tenants[i], &s);
}

static void device_integrate(struct ms_device *dev)
{
	if (dev->sim->opts.trace && dev->sim->started)
		trace_all(dev);
	for (uint32_t i = 0; i < dev->sim->n_tenants; i++) {
		struct ms_tenant *t = &dev->sim->tenants[i];

		if (t->dev != dev || !dev->sim->started)
			continue;
		t->s.alpha_sum += t->c.steps.plan.away;
		t->s.chunks_sum += t->c.n_usable;
		t->s.blocks_sum += t->e.sched.kv.used_blocks;
		t->s.cold_sum += t->e.cold.n_live;
		t->s.samples++;
		if (dev->sim->opts.check == 1)
			ms_check_blocks(t);
	}
}

static void event_dispatch(struct ms_sim *sim, const struct ms_event *e)
{
	struct ms_tenant *t = &sim->tenants[e->who];
	struct ms_device *dev = &sim->devices[e->who];
	struct mm_msg job;

	switch ((enum ms_event_kind)e->kind) {
	case MS_REQUEST:
		ms_shell_request(t);
		break;
	case MS_ACK:
		ms_shell_ack(t);
		break;
	case MS_DELIVER:
		ms_client_deliver(t);
		break;
	case MS_SERVICE:
		ms_client_service(t);
		break;
	case MS_JOB:
		job = *(const struct mm_msg *)ms_fifo_at(&dev->jobs, 0);
		ms_fifo_drop(&dev->jobs);
		ms_xfer_job(dev, &job);
		break;
	case MS_JOB_DONE:
		ms_shell_job_done(dev);
		break;
	case MS_LOOK:
		ms_xfer_look(t);
		break;
	case MS_LANDED:
		ms_xfer_landed(t, e->arg);
		break;
	case MS_ENGINE:
		ms_engine_run(t);
		break;
	case MS_STEP_BEGIN:
		ms_step_begin(t);
		break;
	case MS_STEP_END:
		ms_step_end(t);
		break;
	case MS_SAMPLE:
		ms_shell_sample(dev);
		device_integrate(dev);
		break;
	}
}

enum event_source { HEAP, LINK, COMPUTE, TICK };

struct next_event {
	uint64_t at_ns;
	enum event_source source;
	struct ms_device *dev;
};

static void next_earlier(struct next_event *next, uint64_t at_ns, enum event_source source,
			 struct ms_device *dev)
{
	if (at_ns < next->at_ns)
		*next = (struct next_event){ at_ns, source, dev };
}

static struct next_event next_of(struct ms_sim *sim)
{
	struct next_event next = { ms_heap_next(&sim->heap), HEAP, NULL };

	for (uint32_t i = 0; i < sim->n_devices; i++) {
		struct ms_device *dev = &sim->devices[i];

		next_earlier(&next, dev->link.next_ns, LINK, dev);
		next_earlier(&next, dev->compute.next_ns, COMPUTE, dev);
		next_earlier(&next, MM_MAX(dev->deadline_ns, sim->now_ns), TICK, dev);
	}
	return next;
}

static void device_tick(struct ms_sim *sim, struct ms_device *dev)
{
	sim->ticks_here = sim->ticked_ns == sim->now_ns ? sim->ticks_here + 1 : 0;
	sim->ticked_ns = sim->now_ns;
	if (sim->ticks_here > TICKS_MAX)
		ms_fail(sim, "mmd's core asks to be looked at again and again");
	ms_shell_tick(dev);
}

/* Explains the moments before the next event: until then all is as it is now. */
static void moments_explain(struct ms_sim *sim, uint64_t before_ns)
{
	while (!sim->failed && ms_explain_due(sim) < before_ns)
		if (ms_explain_now(sim))
			ms_fail(sim, "out of memory for an explanation");
}

static void sim_advance(struct ms_sim *sim)
{
	const struct next_event next = next_of(sim);
	struct ms_event e;

	if (next.at_ns == UINT64_MAX) {
		ms_fail(sim, "nothing will ever happen any more");
		return;
	}
	mm_assert(next.at_ns >= sim->now_ns);
	moments_explain(sim, next.at_ns);
	sim->now_ns = next.at_ns;
	sim->events++;
	switch (next.source) {
	case LINK:
		ms_link_run(next.dev);
		break;
	case COMPUTE:
		ms_compute_run(next.dev);
		break;
	case TICK:
		device_tick(sim, next.dev);
		break;
	case HEAP:
		e = ms_heap_pop(&sim->heap);
		event_dispatch(sim, &e);
		break;
	}
}

static bool sim_has_finished(const struct ms_sim *sim)
{
	for (uint32_t i = 0; i < sim->n_tenants; i++)
		if (!ms_engine_all_done(&sim->tenants[i]))
			return false;
	return true;
}

static void sim_play(struct ms_sim *sim)
{
	uint64_t end;

	sim_begin(sim);
	while (!sim->failed && !sim->started) {
		sim_advance(sim);
		if (sim->joined)
			requests_start(sim);
		else
			join_all(sim);
	}
	end = sim->now_ns + END_MAX_NS + END_FACTOR * (uint64_t)(sim->opts.wl->seconds * 1e9);
	while (!sim->failed && !sim_has_finished(sim)) {
		sim_advance(sim);
		if (sim->now_ns > end)
			ms_fail(sim, "it does not come to an end");
	}
	sim->end_ns = sim->now_ns;
}

int ms_sim_run(const struct ms_opts *opts, struct ms_sim **ret_sim, char *err)
{
	struct ms_sim *sim = calloc(1, sizeof(*sim));
	int r;

	snprintf(err, MS_ERROR_BYTES, "out of memory");
	if (!sim)
		return -ENOMEM;
	sim->opts = *opts;
	sim->now_ns = MM_NS_PER_S;
	r = devices_init(sim);
	if (!r)
		r = tenants_init(sim);
	if (!r)
		sim_play(sim);
	if (!r && sim->failed)
		r = -EIO;
	if (sim->failed)
		snprintf(err, MS_ERROR_BYTES, "%s", sim->err);
	if (r)
		ms_sim_destroy(sim);
	else
		*ret_sim = sim;
	return r;
}
