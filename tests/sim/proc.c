/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world.h"
#include "tests/sim/mortal.h"

#include <errno.h>
#include <string.h>

#include "mmd/core/knobs.h"

/* ---- the shell's side of a connection ---- */

struct w_proc *w_proc_of(struct world *w, uint32_t tenant)
{
	W_FOREACH(w, p)
		if (p->used && p->tenant == tenant)
			return p;
	return NULL;
}

/* An fd is sent to a process: its page must not hold anything that this domain may not see. */
static void check_fd(struct world *w, struct w_proc *p, uint32_t page)
{
	struct w_page *pg = &w->page[page];
	uint32_t owner;

	mm_core_page(w->core, page, &owner);
	mm_assert(owner == p->tenant);
	mm_assert(pg->exists && !(pg->domains & ~(1u << w->domain[p->account])));
	/*
	 * A hostile process can write to a page that it did not unmap, also when it owns the page
	 * again.
	 */
	mm_assert(p->hostile || pg->bytes.kind == W_ZERO ||
		  (pg->bytes.kind == W_LAYER && pg->bytes.owner == p->store));
	mm_assert(p->hostile || !(pg->holders & w_bit_of(w, p)));
	pg->domains |= 1u << w->domain[p->account];
	pg->holders |= w_bit_of(w, p);
}

/* True if @layer is the first one of a slot of the plan. */
static bool begins_slot(const struct mm_core_plan *plan, uint32_t layer)
{
	for (uint32_t s = 0; s < plan->beta; s++)
		if (plan->slot[s].layer[0] == layer)
			return true;
	return false;
}

/*
 * The pages of a resident layer hold its bytes; so do those of a slot whose first layer is marked
 * as being in it. Without a plan the model goes, and nothing is in the table.
 */
static void check_switch(struct world *w, struct w_proc *p)
{
	const struct mm_core_plan *plan = mm_core_plan(w->core, p->tenant);
	uint32_t table[W_ENTRIES];

	memcpy(table, p->view, sizeof(table));
	for (uint32_t i = p->head; i < p->tail; i++)
		if (p->inbox[i % W_INBOX].kind == W_ITEM_MAP &&
		    p->inbox[i % W_INBOX].entry < MM_MAP_KV_BASE)
			table[p->inbox[i % W_INBOX].entry] = p->inbox[i % W_INBOX].page;
	for (uint32_t e = 0; !plan && e < p->entries; e++)
		mm_assert(table[e] == MM_NO_PAGE);
	for (uint32_t g = 0; plan && g < p->n_groups; g++) {
		bool first = g && begins_slot(plan, g - 1);

		for (uint32_t e = p->entry[g]; e < p->entry[g + 1]; e++) {
			mm_assert(table[e] != MM_NO_PAGE);
			mm_assert(w->page[table[e]].holders & w_bit_of(w, p));
			if (!g || p->gate[g - 1] & MM_GATE_RESIDENT)
				mm_assert(p->hostile || w_bytes_are(w, table[e], p, e));
			else if (first && p->gate[g - 1] & MM_GATE_READY)
				mm_assert(p->hostile || w_bytes_are(w, table[e], p, e));
		}
	}
}

/*
 * Plans change no more often than the limit, whatever the reason. The world sees the PREPARE of a
 * change, not its begin: the first change in an interval may have begun before it, so one more than
 * the core may begin is allowed.
 */
static void assert_change_may(const struct world *w, struct w_proc *p)
{
	uint64_t each_ns = w->opts.change_ns ? w->opts.change_ns : MM_CHANGE_NS;

	each_ns *= MM_MAX(w->opts.time_scale, 1);
	p->changes_ns = MM_MAX(p->changes_ns, w->now_ns) + each_ns;
	mm_assert(p->changes_ns - w->now_ns <= (MM_CHANGES_AT_ONCE + 1) * each_ns);
}

/* There is no descriptor to send: the tenant, which had the page when it was lost, is ended. */
static void page_refuse(struct world *w, struct w_proc *p)
{
	p->refused = true;
	mm_assert(w->kicks < MM_ARRAY_SIZE(w->kick));
	w->kick[w->kicks++] = p->tenant;
}

void w_deliver(struct world *w, const struct mm_action *a)
{
	struct w_proc *p = w_proc_of(w, a->tenant);
	struct w_item *item;

	mm_assert(p);
	if (a->kind == MM_ACT_EVENT && a->msg.opcode == MM_EV_PREPARE)
		assert_change_may(w, p);
	if (!p->connected || p->refused)
		return;
	if (a->kind == MM_ACT_FDS && w->page[a->page].unheld) {
		page_refuse(w, p);
		return;
	}
	if (a->kind == MM_ACT_FDS)
		check_fd(w, p, a->page);
	if (a->kind == MM_ACT_EVENT && a->msg.opcode == MM_EV_SWITCH)
		check_switch(w, p);
	mm_assert(p->tail - p->head < W_INBOX);
	item = &p->inbox[p->tail++ % W_INBOX];
	item->kind = a->kind == MM_ACT_FDS   ? W_ITEM_FDS
		     : a->kind == MM_ACT_MAP ? W_ITEM_MAP
					     : W_ITEM_EVENT;
	item->entry = a->entry;
	item->page = a->page;
	item->msg = a->msg;
}

/* ---- life ---- */

struct w_proc *w_join(struct world *w, uint32_t account, uint64_t features)
{
	struct mm_core_join join = { .account = 1000 + account,
				     .features = features,
				     .account_max_pages = w->account_max[account] };
	struct w_proc *p = w->proc;
	struct mm_event_result joined;

	while (p < w->proc + W_PROCS && (p->alive || p->used))
		p++;
	if (p == w->proc + W_PROCS)
		return NULL;
	joined = w_event(w, (struct mm_event){ .kind = MM_EVENT_JOIN, .join = join });
	if (joined.r)
		return NULL;
	memset(p, 0, offsetof(struct w_proc, inbox));
	memset(p->view, 0xff, sizeof(p->view));
	memset(p->map, 0xff, sizeof(p->map));
	memset(p->kv_view, 0xff, sizeof(p->kv_view));
	memset(p->mem_view, 0xff, sizeof(p->mem_view));
	p->used = p->alive = p->connected = true;
	p->tenant = joined.tenant;
	p->account = account;
	mm_steps_init(&p->machine, features & MM_FEAT_PARTIAL);
	w_drain(w);
	return p;
}

void w_disconnect(struct world *w, struct w_proc *p)
{
	if (!p->connected)
		return;
	p->connected = false;
	p->turn = 0;
	p->head = p->tail;
	memset(p->held_up, 0, sizeof(p->held_up));
	w_event_note(w, W_EVENT_DISCONNECT, p->tenant, NULL, 0);
	w_event(w, (struct mm_event){ .kind = MM_EVENT_DISCONNECT, .tenant = p->tenant });
	w_drain(w);
}

void w_kill(struct world *w, struct w_proc *p)
{
	if (!p->alive)
		return;
	p->alive = p->connected = false;
	p->turn = 0;
	p->head = p->tail;
	memset(p->held_up, 0, sizeof(p->held_up));
	for (uint32_t i = 0; i < w->opts.pages; i++) {
		if (p->forks && w->page[i].holders & w_bit_of(w, p))
			w->page[i].leak_until_ns = w->now_ns + 5 * MM_NS_PER_S;
		w->page[i].holders &= ~w_bit_of(w, p);
	}
	w_event_note(w, W_EVENT_DEAD, p->tenant, NULL, 0);
	w_event(w, (struct mm_event){ .kind = MM_EVENT_DEAD, .tenant = p->tenant });
	w_drain(w);
}

int w_send(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	int r;

	if (!p->connected)
		return 0; /* it was killed or kicked during what it did */
	w_event_note(w, W_EVENT_REQUEST, p->tenant, msg, 0);
	w_turns_note_request(p, msg);
	r = w_event(w,
		    (struct mm_event){ .kind = MM_EVENT_REQUEST, .tenant = p->tenant, .msg = *msg })
		    .r;
	w_drain(w);
	if (r)
		w_disconnect(w, p);
	mm_assert(!r || p->hostile);
	return r;
}

/* ---- messages of the machine ---- */

static bool messages_are_held_up(const struct w_messages *messages)
{
	return messages->next < messages->n;
}

static void message_send(struct world *w, struct w_proc *p, const struct w_messages *messages,
			 uint32_t i)
{
	for (uint32_t t = 0; t < W_THREADS; t++) {
		const struct w_messages *late = &p->held_up[t];

		if (messages_are_held_up(late) && late->decided < messages->decided)
			w->overtook[messages->msg[i].opcode][late->msg[late->next].opcode]++;
	}
	w_send(w, p, &messages->msg[i]);
}

/*
 * libclient sends after it has released its lock: a thread may be held up there while others go on.
 */
static bool messages_hold_up(struct world *w, struct w_proc *p, const struct w_messages *messages)
{
	struct w_messages *spare = p->held_up;

	if (!messages->n || w_below(w, 1000) >= w->late_permille)
		return false;
	while (spare < p->held_up + W_THREADS && messages_are_held_up(spare))
		spare++;
	if (spare == p->held_up + W_THREADS)
		return false;
	*spare = *messages;
	w->held_up++;
	return true;
}

static void messages_send(struct world *w, struct w_proc *p, const struct mm_steps_out *out,
			  bool service)
{
	struct w_messages messages = { .service = service, .decided = ++w->decided };

	/* A process that gives its turn back, or parks, runs no step. */
	mm_assert(p->hostile || !p->machine.open || (!out->turn_done && !out->parked_epoch));
	messages.n = mm_steps_messages(out, messages.msg);
	if (w->late_permille && messages_hold_up(w, p, &messages))
		return;
	for (uint32_t i = 0; i < messages.n; i++)
		message_send(w, p, &messages, i);
}

bool w_proc_send_late(struct world *w, struct w_proc *p)
{
	struct w_messages *late = NULL, messages;
	uint32_t n = 0;

	for (uint32_t i = 0; i < W_THREADS && !p->frozen; i++)
		if (messages_are_held_up(&p->held_up[i]) && !w_below(w, ++n))
			late = &p->held_up[i];
	if (!late)
		return false;
	late->next++;
	messages = *late; /* the core may end the connection at that message */
	message_send(w, p, &messages, messages.next - 1);
	return true;
}

static bool service_is_held_up(const struct w_proc *p)
{
	for (uint32_t i = 0; i < W_THREADS; i++)
		if (messages_are_held_up(&p->held_up[i]) && p->held_up[i].service)
			return true;
	return false;
}

/* ---- model ---- */

void w_model(struct world *w, struct w_proc *p, uint64_t store, uint32_t layers,
	     uint32_t layer_pages, uint32_t resident_pages)
{
	uint32_t pages[W_GROUPS];

	mm_assert(layers < W_GROUPS);
	pages[0] = resident_pages;
	for (uint32_t i = 1; i <= layers; i++)
		pages[i] = layer_pages;
	w_model_of(w, p, store, pages, layers);
}

void w_model_of(struct world *w, struct w_proc *p, uint64_t store, const uint32_t *pages,
		uint32_t layers)
{
	uint32_t entry = 0;

	mm_assert(layers < W_GROUPS);
	p->store = store;
	p->n_groups = layers + 1;
	for (uint32_t g = 0; g < p->n_groups; g++) {
		p->entry[g] = entry;
		p->group[g].store_offset = entry * w->opts.page_bytes;
		p->group[g].bytes = pages[g] ? pages[g] * w->opts.page_bytes - 100 : 0;
		entry += pages[g];
	}
	p->entry[p->n_groups] = p->entries = entry;
	mm_assert(entry <= W_ENTRIES);
	p->model_asked = true;
	w_event(w, (struct mm_event){ .kind = MM_EVENT_MODEL,
				      .tenant = p->tenant,
				      .model = { store, entry * w->opts.page_bytes, p->n_groups },
				      .groups = p->group });
	w_drain(w);
}

/* ---- its end ---- */

static void cross_send(struct world *w, struct w_proc *p, enum mm_op op, uint64_t epoch,
		       uint64_t arg)
{
	w->crossed++;
	w_send(w, p, &(struct mm_msg){ .opcode = (uint16_t)op, .epoch = epoch, .arg = { arg } });
}

/*
 * Returns the epoch of a PREPARE that it has not answered, whether read or not; 0: there is none.
 */
static uint64_t prepare_unanswered(const struct w_proc *p)
{
	for (uint32_t i = p->head; i != p->tail; i++) {
		const struct w_item *item = &p->inbox[i % W_INBOX];

		if (item->kind == W_ITEM_EVENT && item->msg.opcode == MM_EV_PREPARE)
			return item->msg.epoch;
	}
	return p->machine.state == MM_STEPS_DRAIN ? p->machine.next.epoch : 0;
}

/* Messages that its other threads send at the moment of its BYE arrive after it. */
static void messages_crossing(struct world *w, struct w_proc *p)
{
	while (w_proc_send_late(w, p))
		w->crossed++;
	if (prepare_unanswered(p))
		cross_send(w, p, MM_OP_PARKED, prepare_unanswered(p), 0);
	if (p->mapping) {
		cross_send(w, p, MM_OP_MAPPED, p->mapping, p->n_groups - 1);
		cross_send(w, p, MM_OP_COMMITTED, p->mapping, 0);
	}
	if (p->model_ready)
		cross_send(w, p, MM_OP_RESYNC, 0, 0);
	if (p->kv_declared)
		cross_send(w, p, MM_OP_KV_WANT, 0, p->chunks_max);
	cross_send(w, p, MM_OP_TURN_WANT, 0, 0);
}

void w_bye(struct world *w, struct w_proc *p)
{
	for (uint32_t i = 0; i < w->opts.pages && !p->hostile; i++)
		w->page[i].holders &= ~w_bit_of(w, p);
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_BYE });
	messages_crossing(w, p);
	w_disconnect(w, p);
}

/* ---- turns ---- */

void w_turn_join(struct world *w, struct w_proc *p, enum mm_turn_mode mode, uint64_t quantum_ns,
		 uint32_t priority)
{
	struct mm_steps_out out = { 0 };

	mm_steps_join_turns(&p->machine, mode, &out);
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_TURN_JOIN,
				 .arg = { mode, quantum_ns, priority } });
}

void w_turn_want(struct world *w, struct w_proc *p)
{
	struct mm_steps_out out = { 0 };

	mm_steps_request_turn(&p->machine, &out);
	messages_send(w, p, &out, false);
}

void w_turn_done(struct world *w, struct w_proc *p)
{
	struct mm_steps_out out = { 0 };

	mm_assert(mm_steps_yield_turn(&p->machine, &out) == 0);
	messages_send(w, p, &out, false);
}

static void turn_begins(struct w_proc *p, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	mm_assert(p->hostile ||
		  (p->machine.turn.mode != MM_TURN_NONE && p->machine.turn.requested));
	mm_steps_on_turn_begin(&p->machine, msg->arg[0], &out);
}

static void turn_ends(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	mm_steps_on_turn_end(&p->machine, msg->arg[0], msg->result != 0, &out);
	messages_send(w, p, &out, true);
}

/* ---- steps ---- */

void w_resync(struct world *w, struct w_proc *p)
{
	struct mm_steps_out out = { 0 };

	if (!p->machine.open)
		mm_steps_begin(&p->machine);
	mm_steps_end(&p->machine, true, &out);
	messages_send(w, p, &out, false);
}

/* A layer must run on its own bytes, and not while it is being mapped elsewhere. */
static void verify_group(const struct world *w, const struct w_proc *p, uint32_t g)
{
	for (uint32_t e = p->entry[g]; e < p->entry[g + 1]; e++) {
		mm_assert(p->hostile || w_bytes_are(w, p->map[e], p, e));
		mm_assert(p->hostile || !p->mapping || p->map[e] == p->view[e]);
	}
}

/* Returns false if it may not begin a step now. */
static bool step_begin(struct world *w, struct w_proc *p)
{
	const enum mm_steps_may may = mm_steps_may_begin(&p->machine, false);

	w->held_by_mapping += may == MM_STEPS_MUST_WAIT && p->mapping_full;
	if (may == MM_STEPS_MUST_REQUEST_TURN)
		w_turn_want(w, p);
	if (may != MM_STEPS_MAY)
		return false;
	w_cold_step_begin(w, p);
	mm_steps_begin(&p->machine);
	p->layer = 0;
	return true;
}

/* A process that has no more work may give its turn back. */
static void step_end(struct world *w, struct w_proc *p)
{
	struct mm_steps_out out = { 0 };

	w_kv_verify(w, p);
	w_mem_verify(w, p);
	w_cold_step_end(w, p);
	p->steps++;
	w->steps++;
	mm_steps_end(&p->machine, false, &out);
	if (p->machine.turn.serial && p->machine.turn.mode == MM_TURN_DRAIN && !w_below(w, 8))
		mm_steps_yield_turn(&p->machine, &out);
	messages_send(w, p, &out, false);
}

bool w_proc_step(struct world *w, struct w_proc *p)
{
	if (!p->model_ready || !p->connected || p->frozen)
		return false;
	if (!p->machine.open)
		return step_begin(w, p);
	if (p->layer + 1 < p->n_groups) {
		if (!(p->gate[p->layer] & MM_GATE_PASS))
			return false;
		verify_group(w, p, 0);
		verify_group(w, p, 1 + p->layer);
		w_cold_layer_run(w, p, p->layer);
		p->gate[p->layer] = (p->gate[p->layer] & ~UINT64_C(0xffffffff)) | MM_GATE_DONE;
		p->layer++;
		return true;
	}
	step_end(w, p);
	return true;
}

/* The process maps the pages of the table now, and holds no others any more. */
static void map_done(struct world *w, struct w_proc *p, uint64_t epoch)
{
	memcpy(p->map, p->view, sizeof(p->map));
	for (uint32_t i = 0; i < p->entries && !p->hostile; i++)
		if (p->map_old[i] != MM_NO_PAGE)
			w->page[p->map_old[i]].holders &= ~w_bit_of(w, p);
	for (uint32_t i = 0; i < p->entries; i++)
		if (p->map[i] != MM_NO_PAGE)
			w->page[p->map[i]].holders |= w_bit_of(w, p);
	w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_COMMITTED, .epoch = epoch });
}

bool w_proc_map(struct world *w, struct w_proc *p)
{
	struct mm_steps_out out = { 0 };
	uint64_t epoch = p->mapping;
	uint32_t end;

	if (!epoch || p->frozen || !p->connected)
		return false;
	end = p->mapped_groups + 1 + w_below(w, 4);
	if (end >= p->n_groups) {
		p->mapping = 0;
		mm_steps_mapped(&p->machine, 0, &out);
		map_done(w, p, epoch);
		return true;
	}
	for (uint32_t e = p->entry[p->mapped_groups]; e < p->entry[end]; e++)
		p->map[e] = p->view[e];
	p->mapped_groups = end;
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_MAPPED, .epoch = epoch, .arg = { end - 1 } });
	return true;
}

void w_proc_map_fail(struct world *w, struct w_proc *p)
{
	const uint64_t epoch = p->mapping;
	struct mm_steps_out out = { 0 };

	p->mapping = 0;
	mm_steps_mapped(&p->machine, -ENOMEM, &out);
	w_send(w, p,
	       &(struct mm_msg){ .opcode = MM_OP_COMMITTED, .epoch = epoch, .result = -ENOMEM });
}

static void map_full(struct world *w, struct w_proc *p, uint64_t epoch)
{
	struct mm_steps_out out = { 0 };

	p->mapping_full = 0;
	map_done(w, p, epoch);
	mm_steps_mapped(&p->machine, 0, &out);
}

static void plan_map(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	const bool partial = msg->arg[2] & MM_SWITCH_PARTIAL;
	const struct mm_steps_plan plan = { msg->epoch, (uint32_t)msg->arg[0],
					    (uint32_t)msg->arg[1] };
	struct mm_steps_out out = { 0 };

	mm_assert(mm_steps_on_switch(&p->machine, &plan, partial) == 0);
	memcpy(p->map_old, p->map, sizeof(p->map_old));
	p->mapped_groups = 0;
	if (partial) {
		p->mapping = msg->epoch;
		mm_assert(mm_steps_open_window(&p->machine, &out));
	} else if (w->late_permille && !p->hostile && w_below(w, 2)) {
		p->mapping_full = msg->epoch;
	} else {
		map_full(w, p, msg->epoch);
	}
}

/*
 * A hostile process may have sent PARKED without being parked: it takes the plan all the same, and
 * its steps go on.
 */
static void plan_switched(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	const uint32_t open = p->machine.open;

	/* The first plan of a model follows what the model before has left of the epochs. */
	bool first = p->unloads ? !p->machine.plan.epoch : msg->epoch == 1;

	mm_assert(p->hostile || !p->mapping);
	mm_assert(p->hostile || first || msg->epoch == p->machine.plan.epoch + 1);
	mm_assert(p->hostile || first || p->machine.state == MM_STEPS_PARKED);
	mm_assert(p->hostile || p->unloading || msg->arg[2] != MM_SWITCH_EMPTY);
	if (p->hostile) {
		p->machine.state = MM_STEPS_PARKED;
		p->machine.next.epoch = msg->epoch;
		p->machine.open = 0;
		p->machine.broken = false;
	}
	plan_map(w, p, msg);
	p->machine.open = open;
}

static void plan_prepared(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	struct mm_steps_out out = { 0 };

	mm_assert(p->hostile ||
		  (p->machine.state == MM_STEPS_RUN && msg->epoch == p->machine.plan.epoch + 1));
	mm_assert(mm_steps_on_prepare(&p->machine, msg->epoch, &out) == 0);
	messages_send(w, p, &out, true);
}

/* ---- events ---- */

static void proc_on_reclaim(struct w_proc *p, const struct mm_msg *msg)
{
	const uint64_t next = p->releases + 1;

	mm_assert(p->hostile || (msg->arg[2] && msg->arg[2] <= next));
	p->reclaim = (uint32_t)(msg->arg[0] - MM_MIN(msg->arg[0], next - msg->arg[2]));
}

static void proc_on_event(struct world *w, struct w_proc *p, const struct mm_msg *msg)
{
	switch (msg->opcode) {
	case MM_EV_PREPARE:
		plan_prepared(w, p, msg);
		break;
	case MM_EV_SWITCH:
		plan_switched(w, p, msg);
		break;
	case MM_EV_SWAPPED:
		w_swapped(w, p, msg);
		break;
	case MM_EV_MODEL_READY:
		p->model_ready = !msg->result;
		p->model_asked = !msg->result;
		p->model_result = msg->result;
		break;
	case MM_EV_KV_GRANT:
		w_kv_granted(w, p, (uint32_t)msg->arg[0]);
		break;
	case MM_EV_KV_DENIED:
		p->denials++;
		p->denied = msg->result;
		break;
	case MM_EV_TURN_BEGIN:
		turn_begins(p, msg);
		break;
	case MM_EV_TURN_END:
		turn_ends(w, p, msg);
		break;
	case MM_EV_COLD_LIMIT:
		w_cold_limited(p, msg);
		break;
	case MM_EV_KV_RECLAIM:
		proc_on_reclaim(p, msg);
		break;
	case MM_EV_REPLY:
		if (msg->arg[0] == MM_OP_MEM_ALLOC)
			w_mem_replied(w, p, msg);
		if (msg->arg[0] == MM_OP_COLD_OPEN || msg->arg[0] == MM_OP_COLD_WINDOW)
			w_cold_replied(p, msg);
		if (msg->arg[0] == MM_OP_UNLOAD)
			w_unloaded(w, p, msg);
		if (msg->arg[0] == MM_OP_HOLD) {
			p->hold_result = msg->result;
			p->hold_answers++;
		}
		break;
	default:
		break;
	}
}

bool w_proc_event(struct world *w, struct w_proc *p)
{
	struct w_item item;

	if (service_is_held_up(p))
		return false;
	if (w_proc_map(w, p))
		return true;
	if (p->frozen || !p->connected)
		return false;
	if (p->mapping_full) {
		map_full(w, p, p->mapping_full);
		return true;
	}
	if (p->head == p->tail)
		return false;
	item = p->inbox[p->head++ % W_INBOX];
	if (item.kind == W_ITEM_EVENT)
		proc_on_event(w, p, &item.msg);
	else if (item.kind == W_ITEM_MAP && item.entry >= MM_MAP_ENTRIES - W_MEM)
		p->mem_view[item.entry - (MM_MAP_ENTRIES - W_MEM)] = item.page;
	else if (item.kind == W_ITEM_MAP && item.entry >= MM_MAP_KV_BASE + W_KV)
		mm_assert(p->hostile);
	else if (item.kind == W_ITEM_MAP && item.entry >= MM_MAP_KV_BASE)
		p->kv_view[item.entry - MM_MAP_KV_BASE] = item.page;
	else if (item.kind == W_ITEM_MAP)
		p->view[item.entry] = item.page;
	return true;
}

/* Counts how often it works again after idleness: its layers may be lent, and return, each time. */
static void wake_note(const struct world *w, struct w_proc *p)
{
	uint64_t idle_ns = w->opts.idle_ns * MM_MAX(w->opts.time_scale, 1);
	uint64_t reported = 2 * p->steps + p->machine.open;

	if (reported == p->reported && !p->machine.open)
		return;
	p->wakes += w->now_ns - p->stepped_ns >= idle_ns;
	p->reported = reported;
	p->stepped_ns = w->now_ns;
}

void w_stats(struct world *w, struct w_proc *p, uint32_t running)
{
	struct mm_tenant_stats s = { .step_seq = 2 * p->steps + p->machine.open,
				     .steps = p->steps,
				     .samples = p->steps,
				     .step_ns = 100000 * p->n_groups,
				     .kv_chunks_used = p->used_chunks,
				     .running = running };

	bool states = p->states_compute && (!p->hostile || w_below(w, 3));

	for (uint32_t i = 0; states && i + 1 < p->n_groups; i++)
		s.compute[i] = (uint16_t)(i % 3 ? 1 + w_below(w, 2) : 40000);
	wake_note(w, p);
	w_event(w, (struct mm_event){ .kind = MM_EVENT_STATS, .tenant = p->tenant, .stats = &s });
	w_drain(w);
}
