/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/history.h"
#include "tests/sim/mortal.h"

#include <errno.h>
#include <string.h>

#include "mmd/core/knobs.h"

#define STORES     4
#define KV_ENTRIES 128 /* most entries of an arena */

#define LATE_PERMILLE 500 /* how often a thread is held up, in histories of kind H_LATE */
/* Added to the seeds of a kind, so that no other history has the same. */
static const uint64_t seeds_from[H_HISTORIES] = {
	[H_LATE] = UINT64_C(1) << 40, [H_MODES] = UINT64_C(1) << 41,  [H_STILL] = UINT64_C(1) << 42,
	[H_MEM] = UINT64_C(1) << 43,  [H_UNLOAD] = UINT64_C(1) << 44, [H_STEER] = UINT64_C(1) << 45,
	[H_COOL] = UINT64_C(1) << 46,
};

#define H_NAME(name, text, of) text,
const char *const h_kind_name[H_COUNT] = { H_KINDS(H_NAME) };
#undef H_NAME

#define H_OF(name, text, of) of,
static const uint32_t demanded_of[H_COUNT] = { H_KINDS(H_OF) };
#undef H_OF

bool h_demanded(enum h_history history, enum h_kind kind)
{
	return demanded_of[kind] >> history & 1;
}

/* State of the history that runs. */
static enum h_history run_kind;
static struct h_counts *run_counts;
static uint32_t run_late_permille;
static struct w_odds run_odds; /* of each history */
static struct cover run_cover;

void h_count(enum h_kind kind, uint64_t n)
{
	run_counts->kind[kind] += n;
}

/* Relative frequencies of the sorts of events. */
struct mix {
	uint32_t ordinary, engine, spawn, by_hand, fault, hostile;
};

/* ---- the random world ---- */

static struct mm_core_quota quota_any(struct world *w)
{
	struct mm_core_quota q = { .weight = 50u << w_below(w, 3) };

	if (!w_below(w, 2))
		q.max_pages = w->opts.pages / 2 + w_below(w, w->opts.pages / 2);
	if (!w_below(w, 2))
		q.min_pages = w_below(w, w->opts.pages / 2);
	if (!w_below(w, 3))
		q.priority = w_below(w, 3);
	if (!w_below(w, 2))
		q.turn_quantum_max_ns = (1 + w_below(w, 40)) * MM_NS_PER_MS;
	if (!w_below(w, 2))
		q.turn_priority_max = w_below(w, MM_TURN_PRIORITY_MAX + 1);
	return q;
}

/* The operator names some accounts; some of them share a domain. */
static void accounts_make(struct world *w)
{
	w->quotas = w_below(w, 2);
	for (uint32_t i = 0; w->quotas && i < W_ACCOUNTS; i++) {
		struct mm_core_quota q = quota_any(w);
		bool joins = i && w->named[i - 1] && !w_below(w, 3);

		if (!w_below(w, 3) || mm_core_quota_check(w->core, 1000 + i, &q))
			continue;
		w_account_add(w, i, joins ? i - 1 : i, &q);
		h_count(H_DOMAINS, joins);
		h_count(H_MINS, q.min_pages != 0);
		w->named[i] = true;
	}
}

/* Sets each knob of the controller to a random value now and then. */
static void knobs_set_random(struct world *w, struct mm_core_opts *opts)
{
	const struct mm_knob *k;

	for (uint32_t i = 0; (k = mm_knob_at(i)); i++) {
		uint64_t n = 0, most = k->unit == MM_NS_PER_MS ? 50 : MM_MIN(k->max, 1000);

		if (w_below(w, 4))
			continue;
		while (k->names && k->names[n])
			n++;
		if (k->offset == offsetof(struct mm_core_opts, time_scale))
			most = 3; /* the waits of the world grow with it */
		if (n)
			mm_knob_set(k, w_below(w, (uint32_t)n) + 1, opts);
		else
			mm_knob_set(k, k->min + w_below(w, (uint32_t)(most - k->min + 1)), opts);
	}
}

struct mm_core_opts h_opts(struct world *w)
{
	struct mm_core_opts opts = {
		.page_bytes = 4096,
		.idle_ns = 5 * MM_NS_PER_MS,
		.dwell_ns = 20 * MM_NS_PER_MS,
		.change_ns = MM_NS_PER_MS / 10,
		.reclaim_ns = 20 * MM_NS_PER_MS,
		.revoke_ns = 200 * MM_NS_PER_MS,
		.reclaim_timeout_ns = 100 * MM_NS_PER_MS,
		.stop_ns = 400 * MM_NS_PER_MS,
		.kill_window_ns = MM_NS_PER_S,
	};

	opts.pages = 40 + w_below(w, 120);
	opts.policy =
		w_below(w, 10) < 6 ? MM_POLICY_REMAP : (enum mm_policy)w_below(w, MM_POLICY_COUNT);
	opts.jobs_max = 1 + w_below(w, 40);
	opts.tenants_max = W_PROCS + w_below(w, 8);
	opts.accounts_max = 16 + W_ACCOUNTS + w_below(w, 8);
	opts.tag = (uint8_t)w_below(w, MM_TAGS_MAX);
	opts.slots = w_below(w, MM_SLOTS_MAX + 1);
	opts.swap_max_bytes = w_below(w, 4) ? 40 * opts.page_bytes : 0;
	opts.full_drain = !w_below(w, 6);
	opts.kill_max = 1 + w_below(w, 8);
	opts.turn_priority_max = w_below(w, 2) ? w_below(w, MM_TURN_PRIORITY_MAX + 1) : 0;
	opts.turn_quantum_max_ns = w_below(w, 2) ? MM_TURN_QUANTUM_LIMIT_NS : 0;
	opts.on_timeout = w_below(w, 3) ? MM_ON_TIMEOUT_KILL : MM_ON_TIMEOUT_QUARANTINE;
	knobs_set_random(w, &opts);
	return opts;
}

/*
 * Draws how often each sort of event happens: the mix differs between histories, or rare events
 * would never meet.
 */
static struct mix mix_any(struct world *w)
{
	static const uint32_t times[] = { 0, 1, 1, 1, 1, 2, 4 };
	struct mix mix = { 60, 28, 2, 4, 3, 3 };
	uint32_t *part = &mix.engine;

	for (; part <= &mix.hostile; part++)
		*part *= times[w_below(w, MM_ARRAY_SIZE(times))];
	mix.engine = MM_MAX(mix.engine, 10);
	mix.spawn = MM_MAX(mix.spawn, 1);
	return mix;
}

void h_let_die(const struct w_odds *odds)
{
	run_odds = *odds;
}

void h_begin(struct world *w, const struct mm_core_opts *opts, uint64_t seed)
{
	w_init(w, opts, seed);
	if (run_odds.event || run_odds.action)
		w_mortal_begin(w, &run_odds, seed);
	w->late_permille = run_late_permille;
	cover_watch(&run_cover, w, &run_counts->cover);
	run_counts->policy[opts->policy]++;
	if (run_kind == H_ACTS)
		w_cuts_begin(w, seed, UINT64_C(4) << seed / 2 % 6);
	if (run_kind == H_COOL)
		w_cuts_begin(w, seed, UINT64_C(16) << seed % 8);
}

static void world_make(struct world *w, uint64_t seed)
{
	struct mm_core_opts opts;

	w->rng = seed * 77 + 5;
	opts = h_opts(w);
	if (run_kind == H_MODES)
		opts.sharing = MM_SHARING_AUTO;
	h_begin(w, &opts, seed);
	accounts_make(w);
	for (uint32_t i = 0; i < W_ACCOUNTS; i++)
		if (!w->named[i] && !w_below(w, 3))
			w->account_max[i] = opts.pages / 2 + w_below(w, opts.pages / 2);
	w_xfer_up(w);
}

static struct w_proc *proc_random(struct world *w)
{
	return &w->proc[w_below(w, W_PROCS)];
}

/* Draws are made one after the other: of arguments the order would be the compiler's. */
static void turn_join_random(struct world *w, struct w_proc *p)
{
	uint32_t priority = w_below(w, MM_TURN_PRIORITY_MAX + 1);
	uint64_t quantum_ns = w_below(w, 30) * MM_NS_PER_MS;

	w_turn_join(w, p, (enum mm_turn_mode)w_below(w, MM_TURN_MODES), quantum_ns, priority);
}

static void proc_spawn(struct world *w)
{
	uint64_t features =
		w_below(w, 8) ? MM_FEAT_KNOWN & ~(w_below(w, 4) ? 0 : MM_FEAT_PARTIAL) : 0;
	struct w_proc *p = w_join(w, w_below(w, 1 + w_below(w, W_ACCOUNTS)), features);

	if (!p)
		return;
	p->hostile = !w_below(w, 6);
	p->forks = !w_below(w, 6);
	h_count(H_JOINS, 1);
	h_count(H_HOSTILE, p->hostile);
	h_count(H_FORKS, p->forks);
	if (!w_below(w, 3) || (run_kind == H_MODES && w_below(w, 2)))
		turn_join_random(w, p);
}

static void hostile_write(struct world *w, struct w_proc *p)
{
	uint32_t page = w_below(w, w->opts.pages), owner = MM_NO_PAGE;

	mm_core_page(w->core, page, &owner);
	if (owner == p->tenant && p->used && w->page[page].holders >> (p - w->proc) & 1)
		w->page[page].bytes = (struct w_bytes){ .kind = W_GARBAGE };
	if (p->n_groups > 1) {
		uint32_t bit = w_below(w, 34);

		p->gate[w_below(w, p->n_groups - 1)] ^= UINT64_C(1) << bit;
	}
}

/* In other kinds of histories an UNLOAD is a request that the core does not know. */
static uint16_t hostile_opcode(struct world *w)
{
	uint32_t op;

	if (run_kind == H_UNLOAD)
		return (uint16_t)w_below(w, MM_OP_COUNT + 1);
	op = w_below(w, MM_OP_UNLOAD + 1);
	return (uint16_t)(op == MM_OP_UNLOAD ? MM_OP_COUNT : op);
}

static void hostile_send(struct world *w, struct w_proc *p)
{
	struct mm_msg msg = { .opcode = hostile_opcode(w) };

	if (!w_below(w, 10)) {
		uint8_t bits = (uint8_t)w_random(w);

		((uint8_t *)&msg)[w_below(w, sizeof(msg))] ^= bits;
	}
	h_count(H_HOSTILE_MESSAGES, 1);
	if (w_below(w, 3))
		msg.opcode = w_below(w, 2) ? MM_OP_PARKED : MM_OP_COMMITTED;
	if (msg.opcode == MM_OP_PARKED || msg.opcode == MM_OP_COMMITTED)
		msg.epoch = p->machine.plan.epoch + w_below(w, 2);
	if (msg.opcode == MM_OP_COMMITTED && w_below(w, 2))
		msg.result = -ENOMEM;
	if (msg.opcode == MM_OP_KV_WANT || msg.opcode == MM_OP_KV_RELEASE)
		msg.arg[0] = w_below(w, p->chunks_max + 2);
	w_send(w, p, &msg);
}

/* Sends lists that name anything; the core must refuse all that are not valid. */
static void hostile_swap(struct world *w, struct w_proc *p)
{
	struct mm_swap_piece pieces[4];
	struct mm_msg msg = { .opcode = MM_OP_SWAP };
	uint64_t lot = w_below(w, MM_SWAP_LOTS + 1);

	msg.arg[0] = lot;
	msg.arg[1] = w_below(w, 5);
	msg.arg[2] = w_below(w, 3);
	for (uint32_t i = 0; i < 4; i++) {
		uint64_t number[3];

		for (uint32_t k = 0; k < MM_ARRAY_SIZE(number); k++) {
			number[k] = w_random(w);
			number[k] >>= w_below(w, 64);
		}
		pieces[i] = (struct mm_swap_piece){ number[0], number[1], (uint32_t)number[2],
						    w_below(w, 4) };
		if (w_below(w, 2))
			w_swap_piece(w, p, &pieces[i]);
	}
	msg.user_data = 77;
	if (lot < MM_SWAP_LOTS && !p->lot[lot])
		p->lot[lot] = true;
	if (w_event(w, (struct mm_event){ .kind = MM_EVENT_SWAP,
					  .tenant = p->tenant,
					  .msg = msg,
					  .pieces = pieces })
		    .r)
		w_disconnect(w, p);
	w_drain(w);
}

static void proc_swap(struct world *w, struct w_proc *p)
{
	struct mm_swap_piece pieces[20];
	uint32_t n = 0, most = 1 + w_below(w, MM_ARRAY_SIZE(pieces));

	if (!p->kv_declared)
		return;
	if (!p->swap_bytes)
		w_swap_open(w, p, (1 + w_below(w, 20)) * w->opts.page_bytes);
	while (n < most && w_swap_piece(w, p, &pieces[n]))
		n++;
	if (n)
		w_swap(w, p, w_below(w, 2), pieces, n);
}

static void hostile_act(struct world *w, struct w_proc *p)
{
	hostile_write(w, p);
	if (p->connected && p->swap_bytes && !w_below(w, 6))
		hostile_swap(w, p);
	if (p->connected && !w_below(w, 6))
		hostile_send(w, p);
}

/* Offers a model whose layers have random sizes, or all the same. */
static void model_any(struct world *w, struct w_proc *p)
{
	uint32_t layers = 1 + w_below(w, 12), pages[W_GROUPS], most = 1 + w_below(w, 3);
	bool equal = w_below(w, 3);

	p->states_compute = !w_below(w, 4);
	pages[0] = w_below(w, 4);
	for (uint32_t i = 1; i <= layers; i++)
		pages[i] = equal ? most : 1 + w_below(w, 7);
	w_model_of(w, p, 1 + w_below(w, STORES), pages, layers);
}

static void proc_set_up(struct world *w, struct w_proc *p)
{
	uint32_t pages, ranges, most;

	if (!p->model_asked && p->connected) {
		model_any(w, p);
		return;
	}
	if (p->kv_declared)
		return;
	pages = 1 + w_below(w, 3);
	ranges = 1 + w_below(w, 2);
	most = 1 + w_below(w, KV_ENTRIES / (pages * ranges));
	w_kv_declare(w, p, pages, ranges, most, 1 + w_below(w, MM_MIN(most, 4)));
}

static void proc_demand(struct world *w, struct w_proc *p)
{
	uint32_t chunks = w_below(w, MM_MIN(p->chunks_max, p->held + 10) + 1);

	h_count(H_DEMANDS, 1);
	h_count(H_BURSTS, chunks > p->held + 3);
	w_kv_want(w, p, chunks);
}

void h_resync(struct world *w, struct w_proc *p)
{
	h_count(H_RESYNCS, 1);
	w_resync(w, p);
}

void h_engine(struct world *w, struct w_proc *p)
{
	if (!p->connected || p->frozen)
		return;
	switch (w_below(w, 11)) {
	case 9:
	case 10:
		proc_swap(w, p);
		break;
	case 0:
	case 1:
		proc_set_up(w, p);
		break;
	case 2:
		if (p->kv_declared)
			proc_demand(w, p);
		break;
	case 3:
		p->used_chunks = p->held ? w_below(w, p->held + 1) : 0;
		w_stats(w, p, w_below(w, 2));
		break;
	case 4:
		if (p->kv_declared)
			h_count(H_RELEASES, w_kv_release(w, p));
		break;
	case 5:
		while (p->reclaim && p->held > p->used_chunks && w_kv_release(w, p))
			;
		break;
	case 6:
		if (p->machine.open && p->model_ready && !w_below(w, 5))
			h_resync(w, p);
		break;
	default:
		break;
	}
}

static void operator_act(struct world *w)
{
	struct w_proc *p = proc_random(w);
	uint32_t slots;

	if (!w_below(w, 4) && w->quotas) {
		uint32_t i = w_below(w, W_ACCOUNTS);
		struct mm_core_quota q = quota_any(w);

		enum mm_quota_outcome outcome = w_quota_set(w, i, &q);

		h_count(outcome == MM_QUOTA_APPLIED    ? H_QUOTAS
			: outcome == MM_QUOTA_DEFERRED ? H_QUOTAS_LATER
						       : H_QUOTAS_NOT,
			1);
		/* No number more is drawn than without it. */
		if (q.turn_priority_max == 3)
			w_tune(w, (uint32_t)(q.turn_quantum_max_ns / MM_NS_PER_MS));
		return;
	}
	if (!p->used)
		return;
	slots = w_below(w, MM_SLOTS_MAX + 1);
	h_count(H_BY_HAND, !w_plan_set(w, p, (int32_t)w_below(w, 14) - 1, slots));
	w_drain(w);
}

void h_kill(struct world *w, struct w_proc *p)
{
	h_count(H_DEATHS, p->alive);
	w_kill(w, p);
}

void h_disconnect(struct world *w, struct w_proc *p)
{
	h_count(H_DISCONNECTS, 1);
	w_disconnect(w, p);
}

static void proc_bye(struct world *w, struct w_proc *p)
{
	h_count(H_BYES, 1);
	w_bye(w, p);
}

static void memory_error_raise(struct world *w)
{
	h_count(H_MEMORY_ERRORS, 1);
	w_memory_error(w);
}

static void page_lose(struct world *w)
{
	h_count(H_UNHELD, w_page_unheld(w, w_below(w, w->opts.pages)));
}

static void fault_happen(struct world *w)
{
	struct w_proc *p = proc_random(w);

	switch (w_below(w, 8)) {
	case 0:
		w_xfer_kill(w, w_below(w, 2) == 0);
		break;
	case 1:
		if (!w_below(w, 3))
			h_kill(w, p);
		break;
	case 2:
		if (p->connected && !w_below(w, 4))
			h_disconnect(w, p);
		break;
	case 3:
		if (p->connected && !p->machine.open && !p->frozen && !w_below(w, 4))
			proc_bye(w, p);
		break;
	case 4:
	case 5:
		p->frozen = !p->frozen;
		h_count(H_FREEZES, p->alive && p->frozen);
		break;
	case 6:
		if (p->alive && !p->connected)
			h_kill(w, p);
		break;
	default:
		if (w->jobs && w->job[0].opcode == MM_XOP_COPY && !w_below(w, 4))
			h_count(H_JOB_ERRORS, w_xfer_work(w, 1, -EIO));
		else if (!w_below(w, 4))
			memory_error_raise(w);
		else if (!w_below(w, 4))
			page_lose(w);
		break;
	}
}

/*
 * Returns a time that is longer than most times of the controller; now and then longer than any
 * deadline of a tenant.
 */
static uint64_t idle_ns(struct world *w)
{
	return w_below(w, 8) ? 30 * MM_NS_PER_MS : 3 * MM_NS_PER_S;
}

/* Lets something ordinary happen: in xfer, events, steps or time. */
static void ordinary_event(struct world *w)
{
	struct w_proc *p = proc_random(w);
	bool idles;

	switch (w_below(w, 6)) {
	case 0:
	case 1:
		if (!w->xfer_up && !w_below(w, 3))
			w_xfer_up(w);
		for (uint32_t n = w_below(w, 8); n && w_xfer_work(w, 4, 0); n--)
			;
		break;
	case 2:
		/* Mapping takes some time, since steps go on meanwhile. */
		for (uint32_t n = w_below(w, 40); n && w_proc_event(w, p) && !p->mapping; n--)
			;
		break;
	case 3:
		for (uint32_t n = w_below(w, 12); n && w_proc_step(w, p); n--)
			w_xfer_stream(w, p);
		break;
	case 4:
		w_xfer_stream(w, p);
		break;
	default:
		idles = !w_below(w, 10);
		h_count(H_IDLES, idles);
		w_tick(w, idles ? idle_ns(w) : w_below(w, MM_NS_PER_MS));
		break;
	}
}

void h_send_late(struct world *w)
{
	if (w->late_permille && !w_below(w, 4))
		w_proc_send_late(w, proc_random(w));
}

static void history_step(struct world *w, const struct mix *mix)
{
	uint32_t random = w_below(w, mix->ordinary + mix->engine + mix->spawn + mix->by_hand +
					     mix->fault + mix->hostile);
	struct w_proc *p = proc_random(w);

	w->now_ns += w_below(w, 100000);
	if (random < mix->ordinary)
		ordinary_event(w);
	else if ((random -= mix->ordinary) < mix->engine)
		h_engine(w, p);
	else if ((random -= mix->engine) < mix->spawn)
		proc_spawn(w);
	else if ((random -= mix->spawn) < mix->by_hand)
		operator_act(w);
	else if (random - mix->by_hand < mix->fault)
		fault_happen(w);
	else if (p->hostile && p->alive)
		hostile_act(w, p);
}

/* Opens or closes the turns now and then, and sets their length, as the core may. */
static void modes_change(struct world *w)
{
	struct mm_core_stats s;
	bool beside = w_below(w, 2);
	uint64_t quantum_ns;

	if (w_below(w, 16))
		return;
	mm_core_stats(w->core, &s);
	h_count(H_OPENINGS, beside && !s.turns_beside);
	h_count(H_CLOSINGS, !beside && s.turns_beside);
	quantum_ns = w_below(w, 40) * MM_NS_PER_MS;
	w_turns_set(w, beside, w_below(w, 2) ? quantum_ns : 0);
	w_tick(w, w_below(w, MM_NS_PER_MS));
}

/* A process that holds a turn leaves the turns now and then, and may join them again. */
static void modes_leave(struct world *w, struct w_proc *p)
{
	uint32_t priority;

	if (!p->turn || p->hostile || p->turn != p->machine.turn.serial ||
	    p->machine.turn.requested || w_below(w, 16))
		return;
	h_count(H_TURNS_LEFT, 1);
	w_turn_join(w, p, MM_TURN_NONE, 0, 0);
	if (!w_below(w, 4))
		return;
	priority = w_below(w, MM_TURN_PRIORITY_MAX + 1);
	w_turn_join(w, p, w_below(w, 2) ? MM_TURN_QUANTUM : MM_TURN_DRAIN, 0, priority);
}

static void modes_event(struct world *w, struct w_proc *p)
{
	modes_change(w);
	modes_leave(w, p);
}

/* A process requests memory of the third kind now and then, or gives some back. */
static void mem_event(struct world *w, struct w_proc *p)
{
	uint32_t pages;

	if (!p->connected || p->frozen || w_below(w, 6))
		return;
	pages = 1 + w_below(w, 1 + w_below(w, W_MEM));
	if (w_below(w, 3))
		w_mem_alloc(w, p, pages);
	else
		h_count(H_MEM_FREES, w_mem_free(w, p, pages));
}

/* Counts in which situation a process gives its model back. */
static void unload_count(const struct world *w, const struct w_proc *p)
{
	enum mm_plan_phase phase = mm_core_plan_phase(w->core, p->tenant);
	const struct mm_core_plan *plan = mm_core_plan(w->core, p->tenant);

	h_count(H_UNLOADS_CYCLING, plan && plan->m);
	h_count(H_UNLOADS_CHANGING, phase != MM_PLAN_STEADY);
	h_count(H_UNLOADS_DOWN, !w->xfer_up);
}

/*
 * A process gives its model back now and then, and loads another one. Some die meanwhile, and
 * hostile ones ask twice.
 */
static void unload_event(struct world *w, struct w_proc *p)
{
	if (!p->connected || p->frozen || w_below(w, 6))
		return;
	if (p->hostile && p->unloading && !w_below(w, 3)) {
		w_send(w, p, &(struct mm_msg){ .opcode = MM_OP_UNLOAD });
	} else if (p->unloading && !w_below(w, 20)) {
		h_count(H_UNLOADS_ENDED, 1);
		h_kill(w, p);
	} else if (!p->model_asked && !p->unloading) {
		h_count(H_UNLOADS_AGAIN, p->unloads != 0);
		model_any(w, p);
	} else if (p->model_ready && !p->machine.open) {
		unload_count(w, p);
		w_unload(w, p);
	}
}

/* Most histories begin with tenants that already run, so that short ones have much to lose. */
static void world_warm_up(struct world *w)
{
	for (uint32_t i = w_below(w, 6); i; i--)
		proc_spawn(w);
	W_FOREACH(w, p)
		for (uint32_t i = 0; i < 2 && p->used; i++)
			proc_set_up(w, p);
	/* This does not wait until nothing changes: a policy may take and give back for ever. */
	for (uint32_t i = 0; i < 12; i++)
		h_round(w, MM_NS_PER_MS);
}

/* Adds events that the world and the core counted. */
static void count_rest(const struct world *w)
{
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	h_count(H_DENIALS, s.denials);
	h_count(H_GRANTS, s.grants);
	h_count(H_TAKES, s.takes);
	h_count(H_RETURNS, s.returns);
	h_count(H_KICKS, s.kicks);
	h_count(H_KILLS, s.kills);
	h_count(H_CHANGES, s.plan_changes);
	h_count(H_RECLAIMS, s.reclaims);
	h_count(H_TURNS, s.turns);
	h_count(H_TURNS_OVERDUE, s.turns_overdue);
	h_count(H_QUARANTINES, s.pages[MM_PAGE_QUARANTINE]);
	h_count(H_STOPPED_CHECKS, w->acts_of[MM_ACT_CHECK_STOPPED]);
	h_count(H_RECREATES, w->jobs_of[MM_XOP_RECREATE]);
	h_count(H_SWAPS, w->events_of[MM_EV_SWAPPED]);
	h_count(H_REFUSALS, w->refused);
	h_count(H_MODELS, w->events_of[MM_EV_MODEL_READY] - w->refused);
	h_count(H_PARTIAL, w->switched_partly);
	h_count(H_ONE_SLOT, w->plans[1]);
	h_count(H_TWO_SLOTS, w->plans[2]);
	h_count(H_STEPS, w->steps);
	h_count(H_CROSSED, w->crossed);
	h_count(H_XFER_DEATHS, w->xfer_deaths);
	h_count(H_XFER_FAULTS, w->xfer_faults);
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(w->cuts); i++)
		h_count(H_CUT_NEW + i, w->cuts[i]);
	h_count(H_HELD_UP, w->held_up);
	h_count(H_LATE_RESYNC, w->overtook[MM_OP_PARKED][MM_OP_RESYNC]);
	for (uint32_t i = 0; i < MM_OP_COUNT; i++) {
		h_count(H_LATE_PARKED, w->overtook[i][MM_OP_PARKED]);
		h_count(H_LATE_TURN, w->overtook[i][MM_OP_TURN_DONE]);
	}
	h_count(H_LATE_MAP, w->held_by_mapping);
	h_count(H_MEM_GRANTS, w->mem_grants);
	h_count(H_MEM_WAITS, w->mem_waits);
	h_count(H_MEM_QUOTAS, w->mem_quotas);
	h_count(H_MEM_REFUSALS, w->mem_refusals);
	h_count(H_UNLOADS, w->unloads);
	h_count(H_TURNS_BESIDE, w->turns_beside);
	h_count(H_TAKEN_BESIDE, w->turns_taken_beside);
	h_count(H_COLD_STEPS, w->steps_cold);
	h_count(H_COLD_ROWS, w->rows_read);
	h_count(H_COLD_KEPT, w->rows_kept);
	h_count(H_COLD_OVERRUNS, w->overruns);
}

/* Adds events that struct cover counted. */
static void count_cover(const struct world *w, const struct cover_counts *c)
{
	h_count(H_REPLANS, w->jobs_of[MM_XOP_REPLAN]);
	h_count(H_NULL_CHANGES, c->null_changes);
	h_count(H_DEATH_REPLAN, cover_times(c, COVER_P_REPLAN, COVER_ON_XFER_DOWN));
	h_count(H_DEATH_QUIESCE, cover_times(c, COVER_P_QUIESCE, COVER_ON_XFER_DOWN));
	h_count(H_DEATH_WINDOW, cover_times(c, COVER_P_WINDOW, COVER_ON_XFER_DOWN));
	for (uint32_t i = COVER_P_SWITCH_DUE; i <= COVER_P_WINDOW; i++)
		h_count(H_PARKED_DOWN, c->next[COVER_PREPARED][COVER_ON_PARKED_DOWN][i]);
	h_count(H_RESYNC_SWITCH, cover_times(c, COVER_P_SWITCH_DUE, COVER_ON_RESYNC));
	h_count(H_RESYNC_REPLAN, cover_times(c, COVER_P_REPLAN, COVER_ON_RESYNC));
	h_count(H_RESYNC_QUIESCE, cover_times(c, COVER_P_QUIESCE, COVER_ON_RESYNC));
	h_count(H_RESYNC_WINDOW, cover_times(c, COVER_P_WINDOW, COVER_ON_RESYNC));
	h_count(H_KICK_CONTROL, c->kicked_with_job);
	for (uint32_t i = 0; i < COVER_STATE_COUNT; i++) {
		h_count(H_REPLAN_FAILED, cover_times(c, i, COVER_ON_REPLAN_FAILED));
		h_count(H_ACTIVATE_FAILED, cover_times(c, i, COVER_ON_ACTIVATE_FAILED));
		h_count(H_COMMIT_FAILED, cover_times(c, i, COVER_ON_COMMITTED_ERROR));
	}
	h_count(H_ACTIVATE_SWITCH, cover_times(c, COVER_P_SWITCH_DUE, COVER_ON_ACTIVATE_FAILED));
	h_count(H_ACTIVATE_WINDOW, cover_times(c, COVER_P_WINDOW, COVER_ON_ACTIVATE_FAILED));
	h_count(H_PRELOAD_FAILED, cover_times(c, COVER_PRELOAD, COVER_ON_COPY_FAILED));
}

static void ordinary_run(struct world *w, uint64_t seed, uint64_t steps)
{
	struct mix mix;

	world_make(w, seed);
	mix = mix_any(w);
	if (w_below(w, 4))
		world_warm_up(w);
	for (uint64_t i = 0; i < steps; i++) {
		history_step(w, &mix);
		h_send_late(w);
		if (run_kind == H_MODES)
			modes_event(w, proc_random(w));
		if (run_kind == H_MEM)
			mem_event(w, proc_random(w));
		if (run_kind == H_UNLOAD)
			unload_event(w, proc_random(w));
		if (run_kind == H_STEER)
			h_steer_event(w, proc_random(w));
	}
	h_after(w);
}

void h_run(struct world *w, enum h_history history, uint64_t seed, uint64_t steps,
	   struct h_counts *ret)
{
	*ret = (struct h_counts){ 0 };
	run_counts = ret;
	run_kind = history;
	run_late_permille = 0;
	if (history == H_LATE || (history == H_UNLOAD && seed % 2))
		run_late_permille = LATE_PERMILLE;
	seed += seeds_from[history];
	if (history == H_COOL)
		h_cool(w, seed, steps);
	else if (history == H_STILL)
		h_still(w, seed);
	else if (history == H_PLANS || ((history == H_ACTS || history == H_LATE) && seed % 2))
		h_plans(w, seed, steps);
	else
		ordinary_run(w, seed, steps);
	count_rest(w);
	h_end(w);
	cover_end(&run_cover, w);
	count_cover(w, &ret->cover);
	ret->actions_hash = w->actions_hash;
	w_mortal_end(w, &ret->mortality);
	w_done(w);
}
