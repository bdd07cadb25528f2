/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client - libclient's part: the service thread, which maps and answers (libclient/client/plan.c,
 * mapper.c), and demands for KV (kv.c). libclient's own machine decides when steps may run
 * (libclient/protocol/steps.h).
 */
#include "tools/lab/mmsim/client.h"

#include <errno.h>
#include <string.h>

#include "libclient/base/base.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/device.h"
#include "tools/lab/mmsim/engine.h"
#include "tools/lab/mmsim/step.h"
#include "tools/lab/mmsim/suspend.h"

void ms_client_send(struct ms_tenant *t, const struct mm_msg *msg)
{
	ms_fifo_push(&t->requests, msg);
	ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_WAKE_NS, MS_REQUEST, (uint16_t)t->index, 0);
}

/* ---- gates ---- */

void ms_gate_set(struct ms_tenant *t, uint32_t layer, enum ms_gate gate)
{
	const uint64_t bit = UINT64_C(1) << layer % 64;

	t->gate[layer] = (uint8_t)gate;
	if (gate == MS_GATE_RESIDENT)
		t->gated[layer / 64] &= ~bit;
	else
		t->gated[layer / 64] |= bit;
	if ((gate == MS_GATE_RESIDENT || gate == MS_GATE_READY) && t->step.stalled &&
	    t->step.layer == layer)
		ms_step_gate(t);
}

/* ---- mapping ---- */

/* Counts a mapping of a page. Only one tenant may map it; a slot's page is mapped several times. */
static bool page_hold(struct ms_tenant *t, uint32_t page)
{
	struct ms_device *dev = t->dev;

	mm_assert(page < dev->opts.pages);
	mm_assert(!dev->holder[page] || dev->holder[page] == t->index + 1);
	dev->holder[page] = (uint16_t)(t->index + 1);
	return dev->holder_count[page]++ == 0;
}

static bool let_go(struct ms_tenant *t, uint32_t page)
{
	struct ms_device *dev = t->dev;

	mm_assert(dev->holder[page] == t->index + 1 && dev->holder_count[page]);
	if (--dev->holder_count[page])
		return false;
	dev->holder[page] = 0;
	return true;
}

static uint32_t page_drop(struct ms_tenant *t, uint32_t page)
{
	const uint32_t gone = let_go(t, page);

	t->model_pages -= gone;
	return gone;
}

static bool group_changes(const struct ms_tenant *t, uint32_t g)
{
	return memcmp(&t->c.map[t->first[g]], &t->c.view[t->first[g]],
		      (t->first[g + 1] - t->first[g]) * sizeof(uint32_t)) != 0;
}

/* Maps the entries of a group that have changed. Return: the time of the driver calls. */
static uint64_t group_map(struct ms_tenant *t, uint32_t g, uint32_t *ret_released)
{
	const struct mm_profile *p = &t->dev->profile;
	uint64_t ns = 0;

	for (uint32_t e = t->first[g]; e < t->first[g + 1]; e++) {
		const uint32_t old = t->c.map[e], new = t->c.view[e];

		if (old == new)
			continue;
		if (old != MM_NO_PAGE) {
			ns += p->unmap_ns;
			*ret_released += page_drop(t, old);
		}
		mm_assert(new != MM_NO_PAGE);
		t->model_pages += page_hold(t, new);
		ns += p->map_ns + p->set_access_ns;
		t->c.map[e] = new;
	}
	return ns;
}

/* Maps all groups in one step. libclient unmaps all of them first, as pages move between groups. */
static uint64_t map_all(struct ms_tenant *t)
{
	uint64_t ns = 0;
	uint32_t released = 0;

	for (uint32_t e = 0; e < t->entries; e++)
		if (t->c.map[e] != t->c.view[e] && t->c.map[e] != MM_NO_PAGE) {
			released += page_drop(t, t->c.map[e]);
			t->c.map[e] = MM_NO_PAGE;
			ns += t->dev->profile.unmap_ns;
		}
	for (uint32_t g = 0; g <= t->n_layers; g++) {
		uint32_t none = 0;

		ns += group_map(t, g, &none);
	}
	return ns + released * t->dev->profile.release_ns;
}

/* ---- plan changes ---- */

/* Performs what the machine of steps decided; from PARKED until COMMITTED no step may begin. */
void ms_client_out(struct ms_tenant *t, const struct mm_steps_out *out)
{
	struct mm_msg words[MM_STEPS_MESSAGES_MAX];
	const uint32_t n = mm_steps_messages(out, words);
	struct ms_client *c = &t->c;

	for (uint32_t i = 0; i < n; i++)
		ms_client_send(t, &words[i]);
	if (out->parked_epoch)
		c->parked_ns = t->sim->now_ns;
	if (out->entered && c->parked_ns)
		c->held_ns += t->sim->now_ns - c->parked_ns;
	if (out->entered) {
		c->parked_ns = 0;
		t->s.alpha_max = MM_MAX(t->s.alpha_max, c->steps.plan.away);
	}
	if (out->wake)
		ms_step_abandon(t);
	if (out->wake && c->wants_begin)
		ms_step_begin(t);
}

static void plan_prepared(struct ms_tenant *t, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	if (mm_steps_on_prepare(&t->c.steps, msg->epoch, &out))
		ms_fail(t->sim, "tenant %s: mmd prepares a plan that is not new", t->name);
	ms_client_out(t, &out);
}

static bool is_partial(const struct mm_msg *msg)
{
	return msg->arg[2] & MM_SWITCH_PARTIAL;
}

/* Completes a change when all is mapped. COMMITTED is sent before a step may begin. */
static void client_plan_switched(struct ms_tenant *t, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_COMMITTED, .epoch = msg->epoch });
	if (t->c.model_ready) {
		t->s.plan_changes++;
		ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_PLAN_CHANGED,
						       .count = (uint32_t)msg->arg[0] });
	}
	mm_steps_mapped(&t->c.steps, 0, &out);
	ms_client_out(t, &out);
}

static void service_for(struct ms_tenant *t, uint64_t ns)
{
	ms_heap_push(&t->sim->heap, ms_driver_call(t->dev, ns), MS_SERVICE, (uint16_t)t->index, 0);
}

/*
 * Maps the next group that has changed, in order of execution, while steps go on. Return: true: all
 * are mapped.
 */
static bool map_next(struct ms_tenant *t)
{
	const uint64_t epoch = t->c.at.msg.epoch;
	uint32_t g = t->c.mapping, released = 0;
	uint64_t ns;

	if (g && g - 1 < t->n_layers && t->c.mapping_partly)
		ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_MAPPED,
						    .epoch = epoch,
						    .arg = { g - 1 } });
	while (g <= t->n_layers && !group_changes(t, g))
		g++;
	if (g > t->n_layers)
		return true;
	ns = group_map(t, g, &released);
	t->c.mapping = g + 1;
	t->c.mapping_partly = true;
	service_for(t, ns + released * t->dev->profile.release_ns);
	return false;
}

/* ---- KV ---- */

bool ms_kv_has(const struct ms_tenant *t, uint32_t chunk)
{
	return t->c.usable[chunk / 64] >> chunk % 64 & 1;
}

static uint64_t chunk_map(struct ms_tenant *t, uint32_t chunk)
{
	const struct mm_profile *p = &t->dev->profile;
	const uint32_t *pages = &t->c.kv_view[chunk * t->chunk_pages];

	mm_assert(chunk < t->chunks_max && !ms_kv_has(t, chunk));
	for (uint32_t i = 0; i < t->chunk_pages; i++)
		mm_assert(page_hold(t, pages[i]));
	t->kv_pages += t->chunk_pages;
	return t->chunk_pages * (p->map_ns + p->set_access_ns);
}

static void chunk_granted(struct ms_tenant *t, uint32_t chunk)
{
	t->c.usable[chunk / 64] |= UINT64_C(1) << chunk % 64;
	t->c.n_usable++;
	ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_KV_GRANTED, .count = 1 });
}

/* Chunks of a window are granted before others. */
static void want_send(struct ms_tenant *t, uint32_t chunks)
{
	ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_KV_WANT,
					    .arg = { chunks, ms_cold_first(t) } });
}

int ms_kv_want(struct ms_tenant *t, uint32_t chunks_hot)
{
	const uint32_t chunks = chunks_hot + ms_cold_wants(t);
	struct ms_client *c = &t->c;
	const bool is_met = c->n_usable >= chunks, has_to_send = !is_met || c->wanted > chunks;

	t->e.cold.chunks_hot = chunks_hot;
	t->e.cold.chunks_asked = chunks;
	c->wanted = chunks;
	if (has_to_send)
		want_send(t, chunks);
	return is_met ? 0 : -EAGAIN;
}

void ms_kv_release(struct ms_tenant *t, uint32_t chunk)
{
	const struct mm_profile *p = &t->dev->profile;
	struct ms_client *c = &t->c;
	const uint32_t wanted = c->wanted > c->n_usable ? c->n_usable : 0;

	mm_assert(ms_kv_has(t, chunk));
	c->usable[chunk / 64] &= ~(UINT64_C(1) << chunk % 64);
	c->n_usable--;
	c->released++;
	c->wanted = MM_MIN(c->wanted, c->n_usable);
	for (uint32_t i = 0; i < t->chunk_pages; i++)
		mm_assert(let_go(t, c->kv_view[chunk * t->chunk_pages + i]));
	t->kv_pages -= t->chunk_pages;
	t->e.calls_end_ns = ms_driver_call(t->dev, t->chunk_pages * (p->unmap_ns + p->release_ns));
	if (wanted)
		want_send(t, wanted);
	ms_client_send(t, &(struct mm_msg){ .opcode = MM_OP_KV_RELEASE, .arg = { chunk } });
}

uint32_t ms_kv_owed(const struct ms_tenant *t)
{
	const struct ms_client *c = &t->c;
	const uint64_t since = c->released - c->ask.known;

	const uint32_t asked = c->ask.chunks - (uint32_t)MM_MIN(since, c->ask.chunks);

	return MM_MIN(MM_MAX(asked, ms_cold_lacks(t)), c->n_usable - ms_cold_held(t));
}

/* ---- turns ---- */

void ms_turn_join(struct ms_tenant *t, enum mm_turn_mode mode, uint64_t quantum_ns)
{
	struct mm_steps_out out = { 0 };

	ms_client_send(t,
		       &(struct mm_msg){ .opcode = MM_OP_TURN_JOIN, .arg = { mode, quantum_ns } });
	mm_steps_join_turns(&t->c.steps, mode, &out);
	ms_client_out(t, &out);
}

bool ms_turn_want(struct ms_tenant *t)
{
	struct mm_steps_out out = { 0 };

	if (!mm_steps_lacks_turn(&t->c.steps))
		return true;
	if (!t->c.steps.turn.requested)
		mm_steps_request_turn(&t->c.steps, &out);
	ms_client_out(t, &out);
	return false;
}

void ms_turn_yield(struct ms_tenant *t)
{
	struct mm_steps_out out = { 0 };

	mm_steps_yield_turn(&t->c.steps, &out);
	ms_client_out(t, &out);
}

static void turn_begins(struct ms_tenant *t, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	mm_steps_on_turn_begin(&t->c.steps, msg->arg[0], &out);
	ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_TURN_BEGIN });
	ms_client_out(t, &out);
}

static void turn_ends(struct ms_tenant *t, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	if (!mm_steps_on_turn_end(&t->c.steps, msg->arg[0], msg->result != 0, &out))
		return;
	ms_client_out(t, &out);
	ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_TURN_END,
					       .error = msg->result,
					       .deadline_ns = msg->arg[1] });
}

void ms_client_hint(struct ms_tenant *t, const struct mm_kvman_load *load)
{
	t->c.stats.kv_chunks_used = load->chunks_used + t->e.cold.window;
	t->c.stats.waiting = load->waiting;
	t->c.stats.running = load->running;
	t->c.stats.kv_chunks_queued = load->chunks_queued;
	/* Without work the tenant yields its turn. */
	if (!load->running && !load->waiting)
		ms_turn_yield(t);
}

/* ---- the service thread ---- */

static void chunks_reclaim(struct ms_tenant *t, const struct mm_msg *msg)
{
	mm_assert(msg->arg[2] && msg->arg[2] - 1 <= t->c.released);
	t->c.ask.chunks = (uint32_t)msg->arg[0];
	t->c.ask.deadline_ns = msg->arg[1];
	t->c.ask.known = msg->arg[2] - 1;
	if (ms_kv_owed(t))
		ms_engine_event(t, &(struct mm_event){ .kind = MM_EVENT_KV_RECLAIM });
}

static void client_model_ready(struct ms_tenant *t, const struct mm_msg *msg)
{
	if (msg->result)
		ms_fail(t->sim, "tenant %s: mmd refuses its model (%d)", t->name, msg->result);
	t->c.model_ready = true;
}

/* Applies an event of mmd, when the driver calls that it needs are done. */
static void event_apply(struct ms_tenant *t, const struct mm_msg *msg)
{
	switch (msg->opcode) {
	case MM_EV_REPLY:
		t->c.kv_open |= msg->arg[0] == MM_OP_KV_DECLARE && !msg->result;
		if (msg->arg[0] == MM_OP_COLD_OPEN || msg->arg[0] == MM_OP_COLD_WINDOW)
			ms_cold_replied(t, msg);
		/* A window while chunks are reclaimed is asked for again after the next step. */
		if (msg->result && !(msg->arg[0] == MM_OP_COLD_WINDOW && msg->result == -EBUSY))
			ms_fail(t->sim, "tenant %s: mmd refuses request %u (%d)", t->name,
				(uint32_t)msg->arg[0], msg->result);
		break;
	case MM_EV_MODEL_READY:
		client_model_ready(t, msg);
		break;
	case MM_EV_PREPARE:
		plan_prepared(t, msg);
		break;
	case MM_EV_SWITCH:
		client_plan_switched(t, msg);
		break;
	case MM_EV_KV_GRANT:
		chunk_granted(t, (uint32_t)msg->arg[0]);
		break;
	case MM_EV_KV_DENIED:
		ms_engine_event(
			t, &(struct mm_event){ .kind = MM_EVENT_KV_DENIED, .error = msg->result });
		break;
	case MM_EV_KV_RECLAIM:
		chunks_reclaim(t, msg);
		break;
	case MM_EV_SWAPPED:
		if (!ms_cold_landed(t, (uint32_t)msg->arg[0]))
			ms_suspend_landed(t, (uint32_t)msg->arg[0]);
		break;
	case MM_EV_COLD_LIMIT:
		ms_cold_limited(t, msg);
		break;
	case MM_EV_TURN_BEGIN:
		turn_begins(t, msg);
		break;
	case MM_EV_TURN_END:
		turn_ends(t, msg);
		break;
	default:
		break;
	}
}

/* Begins to map a new plan. Return: false: there was nothing to map, and the event is handled. */
static bool switch_begin(struct ms_tenant *t, const struct mm_msg *msg)
{
	const struct mm_steps_plan plan = { msg->epoch, (uint32_t)msg->arg[0],
					    (uint32_t)msg->arg[1] };
	struct mm_steps_out out = { 0 };

	if (mm_steps_on_switch(&t->c.steps, &plan, is_partial(msg)))
		ms_fail(t->sim, "tenant %s: mmd switches plans out of order", t->name);
	if (!is_partial(msg)) {
		service_for(t, map_all(t));
		return true;
	}
	t->c.mapping = 0;
	t->c.mapping_partly = false;
	mm_steps_open_window(&t->c.steps, &out);
	ms_client_out(t, &out);
	if (!map_next(t))
		return true;
	event_apply(t, msg);
	return false;
}

/* Begins to handle an item. Return: false: it took no time, and is handled. */
static bool service_begin(struct ms_tenant *t)
{
	const struct ms_item *at = &t->c.at;
	const struct mm_msg *msg = &at->msg;

	if (at->kind == MM_ACT_FDS) {
		service_for(t, at->page * t->dev->profile.import_ns);
		return true;
	}
	if (msg->opcode == MM_EV_KV_GRANT) {
		service_for(t, chunk_map(t, (uint32_t)msg->arg[0]));
		return true;
	}
	if (msg->opcode == MM_EV_SWITCH)
		return switch_begin(t, msg);
	event_apply(t, msg);
	return false;
}

static void service_next(struct ms_tenant *t)
{
	struct ms_item *item;

	while (!t->c.busy && (item = ms_fifo_at(&t->c.arrived, 0))) {
		t->c.at = *item;
		ms_fifo_drop(&t->c.arrived);
		t->c.busy = service_begin(t);
	}
}

void ms_client_deliver(struct ms_tenant *t)
{
	ms_fifo_push(&t->c.arrived, ms_fifo_at(&t->c.inbox, 0));
	ms_fifo_drop(&t->c.inbox);
	service_next(t);
}

void ms_client_service(struct ms_tenant *t)
{
	const struct ms_item at = t->c.at;

	if (at.kind == MM_ACT_EVENT && at.msg.opcode == MM_EV_SWITCH && t->c.mapping_partly &&
	    !map_next(t))
		return;
	t->c.mapping_partly = t->c.busy = false;
	if (at.kind == MM_ACT_FDS)
		ms_heap_push(&t->sim->heap, t->sim->now_ns + MS_WAKE_NS, MS_ACK, (uint16_t)t->index,
			     0);
	else
		event_apply(t, &at.msg);
	service_next(t);
}
