/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim - seeded runs of the core in a world where everything happens at the worst moment
 *
 *	core-sim [--seed N] [--seeds COUNT] [--steps N] [--verbose]
 *
 * A seed makes a pool, a policy, accounts, honest and hostile tenants, and then --steps random events:
 * bursts of KV wishes, steps, idle times, xfer dying in the middle, processes dying, freezing, forking,
 * the operator changing plans. The world is checked after every event. Then the faults stop: every
 * wish that can be met must be met, and at the end every page must be free again.
 */
#undef NDEBUG
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/world.h"

#define STEPS_DEFAULT 2000
#define SEEDS_DEFAULT 200
#define STORES        4

static struct {
	uint64_t seed;
	uint64_t denials, grants, takes, returns, kicks, kills, deaths, changes, reclaims, models,
		swaps;
} now_running;

static struct world world;

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
	return q;
}

/* Some accounts are named by the operator; some of them share a domain. */
static void make_accounts(struct world *w)
{
	w->quotas = w_below(w, 2);
	for (uint32_t i = 0; w->quotas && i < W_ACCOUNTS; i++) {
		struct mm_core_quota q = quota_any(w);
		bool joins = i && w->named[i - 1] && !w_below(w, 3);

		if (!w_below(w, 3) || mm_core_quota_check(w->core, 1000 + i, &q))
			continue;
		w_account_add(w, i, joins ? i - 1 : i, &q);
		w->named[i] = true;
	}
}

static void make(struct world *w, uint64_t seed)
{
	struct mm_core_opts opts = { .page_bytes = 4096 };

	world.rng = seed * 77 + 5;
	opts.pages = 40 + w_below(w, 120);
	opts.policy =
		w_below(w, 10) < 7 ? MM_POLICY_REMAP : (enum mm_policy)w_below(w, MM_POLICY_COUNT);
	opts.jobs_max = 1 + w_below(w, 40);
	opts.slots = w_below(w, MM_SLOTS_MAX + 1);
	opts.swap_max_bytes = w_below(w, 4) ? 40 * opts.page_bytes : 0;
	opts.full_drain = !w_below(w, 6);
	opts.idle_ns = 5 * MM_NS_PER_MS;
	opts.dwell_ns = 20 * MM_NS_PER_MS;
	opts.reclaim_ns = 20 * MM_NS_PER_MS;
	opts.revoke_ns = 200 * MM_NS_PER_MS;
	opts.ask_ns = 100 * MM_NS_PER_MS;
	opts.stop_ns = 400 * MM_NS_PER_MS;
	opts.kill_window_ns = MM_NS_PER_S;
	opts.kill_max = 1 + w_below(w, 8);
	opts.on_timeout = w_below(w, 3) ? MM_ON_TIMEOUT_KILL : MM_ON_TIMEOUT_QUARANTINE;
	w_init(w, &opts, seed);
	make_accounts(w);
	for (uint32_t i = 0; i < W_ACCOUNTS; i++)
		if (!w->named[i] && !w_below(w, 3))
			w->account_max[i] = opts.pages / 2 + w_below(w, opts.pages / 2);
	w_xfer_up(w);
}

static struct w_proc *any_proc(struct world *w)
{
	return &w->proc[w_below(w, W_PROCS)];
}

static void spawn(struct world *w)
{
	struct w_proc *p =
		w_join(w, w_below(w, 1 + w_below(w, W_ACCOUNTS)),
		       w_below(w, 8) ? MM_FEAT_KNOWN & ~(w_below(w, 4) ? 0 : MM_FEAT_PARTIAL) : 0);

	if (!p)
		return;
	p->hostile = !w_below(w, 6);
	p->forks = !w_below(w, 6);
	if (!w_below(w, 3))
		w_turn_join(w, p, (enum mm_turn_mode)w_below(w, MM_TURN_MODES),
			    w_below(w, 30) * MM_NS_PER_MS, w_below(w, MM_TURN_PRIORITY_MAX + 1));
}

static void hostile_write(struct world *w, struct w_proc *p)
{
	uint32_t page = w_below(w, w->opts.pages), owner = MM_NO_PAGE;

	mm_core_page(w->core, page, &owner);
	if (owner == p->tenant && p->used && w->page[page].holders >> (p - w->proc) & 1)
		w->page[page].bytes = (struct w_bytes){ .kind = W_GARBAGE };
	if (p->n_groups > 1)
		p->gate[w_below(w, p->n_groups - 1)] ^= UINT64_C(1) << w_below(w, 34);
}

static void hostile_send(struct world *w, struct w_proc *p)
{
	struct mm_msg msg = { .opcode = (uint16_t)w_below(w, MM_OP_COUNT + 1) };

	if (!w_below(w, 10))
		((uint8_t *)&msg)[w_below(w, sizeof(msg))] ^= (uint8_t)w_random(w);
	if (w_below(w, 3))
		msg.opcode = w_below(w, 2) ? MM_OP_PARKED : MM_OP_COMMITTED;
	if (msg.opcode == MM_OP_PARKED || msg.opcode == MM_OP_COMMITTED)
		msg.epoch = p->epoch + w_below(w, 2);
	if (msg.opcode == MM_OP_COMMITTED && w_below(w, 2))
		msg.result = -ENOMEM;
	if (msg.opcode == MM_OP_KV_WANT || msg.opcode == MM_OP_KV_RELEASE)
		msg.arg[0] = w_below(w, p->chunks_max + 2);
	w_send(w, p, &msg);
}

/* Lists that name anything; the core may only refuse them. */
static void hostile_swap(struct world *w, struct w_proc *p)
{
	struct mm_swap_piece pieces[4];
	struct mm_msg msg = { .opcode = MM_OP_SWAP,
			      .arg = { w_below(w, MM_SWAP_LOTS + 1), w_below(w, 5),
				       w_below(w, 3) } };
	uint64_t lot = msg.arg[0];

	for (uint32_t i = 0; i < 4; i++) {
		pieces[i] = (struct mm_swap_piece){ w_random(w) >> w_below(w, 64),
						    w_random(w) >> w_below(w, 64),
						    (uint32_t)w_random(w) >> w_below(w, 32),
						    w_below(w, 4) };
		if (w_below(w, 2))
			w_swap_piece(w, p, &pieces[i]);
	}
	msg.user_data = 77;
	if (lot < MM_SWAP_LOTS && !p->lot[lot])
		p->lot[lot] = true;
	if (mm_core_on_swap(w->core, w->now_ns, p->tenant, &msg, pieces))
		w_disconnect(w, p);
	w_drain(w);
}

static void swap(struct world *w, struct w_proc *p)
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

static void set_up(struct world *w, struct w_proc *p)
{
	uint32_t pages, ranges;

	if (!p->model_asked && p->connected) {
		p->uneven = w_below(w, 3) ? 0 : 1 + w_below(w, 4);
		p->states_compute = !w_below(w, 4);
		w_model(w, p, 1 + w_below(w, STORES), 1 + w_below(w, 12), 1 + w_below(w, 3),
			w_below(w, 4));
		return;
	}
	if (p->kv_declared)
		return;
	pages = 1 + w_below(w, 3);
	ranges = 1 + w_below(w, 2);
	w_kv_declare(w, p, pages, ranges, 1 + w_below(w, W_KV / (pages * ranges)), 1);
}

/* What an engine does of itself. */
static void engine(struct world *w, struct w_proc *p)
{
	if (!p->connected || p->frozen)
		return;
	switch (w_below(w, 11)) {
	case 9:
	case 10:
		swap(w, p);
		break;
	case 0:
	case 1:
		set_up(w, p);
		break;
	case 2:
		if (p->kv_declared)
			w_kv_want(w, p, w_below(w, MM_MIN(p->chunks_max, p->held + 10) + 1));
		break;
	case 3:
		p->used_chunks = p->held ? w_below(w, p->held + 1) : 0;
		w_stats(w, p, w_below(w, 2));
		break;
	case 4:
		if (p->kv_declared)
			w_kv_release(w, p);
		break;
	case 5:
		while (p->reclaim && p->held > p->used_chunks && w_kv_release(w, p))
			p->reclaim--;
		break;
	case 6:
		if (p->step_open && p->model_ready && !w_below(w, 5))
			w_resync(w, p);
		break;
	default:
		break;
	}
}

static void by_hand(struct world *w)
{
	struct w_proc *p = any_proc(w);
	uint32_t max;

	if (!w_below(w, 4) && w->quotas) {
		uint32_t i = w_below(w, W_ACCOUNTS);
		struct mm_core_quota q = quota_any(w);

		w_quota_set(w, i, &q);
		return;
	}
	if (!p->used)
		return;
	mm_core_plan_set(w->core, w->now_ns, p->tenant, (int32_t)w_below(w, 14) - 1,
			 w_below(w, MM_SLOTS_MAX + 1), &max);
	w_drain(w);
}

static void fault(struct world *w)
{
	struct w_proc *p = any_proc(w);

	switch (w_below(w, 8)) {
	case 0:
		w_xfer_kill(w, w_below(w, 2) == 0);
		break;
	case 1:
		if (!w_below(w, 3))
			w_die(w, p);
		break;
	case 2:
		if (!w_below(w, 4))
			w_disconnect(w, p);
		break;
	case 3:
		if (p->connected && !p->step_open && !p->frozen && !w_below(w, 4))
			w_bye(w, p);
		break;
	case 4:
	case 5:
		p->frozen = !p->frozen;
		break;
	case 6:
		if (p->alive && !p->connected)
			w_die(w, p);
		break;
	default:
		if (w->jobs && w->job[0].opcode == MM_XOP_COPY && !w_below(w, 4))
			w_xfer_work(w, 1, -EIO);
		break;
	}
}

/* The ordinary run of things: xfer, events, steps, time. */
static void ordinary(struct world *w)
{
	struct w_proc *p = any_proc(w);

	switch (w_below(w, 6)) {
	case 0:
	case 1:
		if (!w->xfer_up && !w_below(w, 3))
			w_xfer_up(w);
		for (uint32_t n = w_below(w, 8); n && w_xfer_work(w, 4, 0); n--)
			;
		break;
	case 2:
		/* Steps go on while it maps: that takes its time. */
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
		w_tick(w, w_below(w, 10) ? w_below(w, MM_NS_PER_MS) : 30 * MM_NS_PER_MS);
		break;
	}
}

static void step(struct world *w)
{
	uint32_t dice = w_below(w, 100);
	struct w_proc *p = any_proc(w);

	w->now_ns += w_below(w, 100000);
	if (dice < 60)
		ordinary(w);
	else if (dice < 88)
		engine(w, p);
	else if (dice < 90)
		spawn(w);
	else if (dice < 94)
		by_hand(w);
	else if (dice < 97)
		fault(w);
	else if (p->hostile && p->alive)
		hostile_act(w, p);
}

/* ---- after the faults ---- */

static void quiet_round(struct world *w, uint64_t ns)
{
	while (w_xfer_work(w, 4, 0))
		;
	W_FOREACH(w, p)
	{
		while (w_proc_event(w, p))
			;
		for (uint32_t i = 0; i < 4 && w_proc_step(w, p); i++)
			w_xfer_stream(w, p);
		for (uint32_t i = 0; i < 3; i++)
			w_xfer_stream(w, p);
	}
	w_tick(w, ns);
}

static void calm(struct world *w)
{
	uint32_t max;

	if (!w->xfer_up)
		w_xfer_up(w);
	W_FOREACH(w, p)
	{
		p->frozen = false;
		if (p->hostile || (p->alive && !p->connected))
			w_die(w, p);
		if (p->used)
			mm_core_plan_set(w->core, w->now_ns, p->tenant, -1, 0, &max);
		w_drain(w);
	}
	for (uint32_t i = 0; i < 120; i++)
		quiet_round(w, 8 * MM_NS_PER_MS);
	w_tick(w, 31 * MM_NS_PER_S); /* models that found no room are refused by now */
	for (uint32_t i = 0; i < 30; i++)
		quiet_round(w, 8 * MM_NS_PER_MS);
}

static bool all_moved(struct world *w, const uint64_t *steps)
{
	W_FOREACH(w, p)
	if (p->connected && p->model_ready && p->steps == steps[p - w->proc])
		return false;
	return true;
}

/* Steps go on, plan changes end; who computes in turn gets its turn. */
static void assert_moving(struct world *w)
{
	uint64_t steps[W_PROCS];

	for (uint32_t i = 0; i < W_PROCS; i++)
		steps[i] = w->proc[i].steps;
	for (uint32_t i = 0; i < 120 || (i < 3000 && !all_moved(w, steps)); i++)
		quiet_round(w, i < 120 ? MM_NS_PER_MS : 8 * MM_NS_PER_MS);
	mm_assert(all_moved(w, steps));
	W_FOREACH(w, p)
	for (uint32_t lot = 0; p->connected && lot < MM_SWAP_LOTS; lot++)
		mm_assert(!p->lot[lot]); /* every list was answered */
}

static bool greedy(const struct w_proc *p)
{
	return p->connected && p->kv_declared;
}

static int64_t priority_of(const struct world *w, const struct w_proc *p)
{
	struct mm_core_account a;

	return mm_core_account_find(w->core, 1000 + p->account, &a) ? (int64_t)a.quota.priority : 0;
}

/* Pages are kept back for those of a higher priority who wait, one after the other, without end. */
static bool outranked(struct world *w, const struct w_proc *p)
{
	W_FOREACH(w, q)
	if (greedy(q) && !q->held && priority_of(w, q) > priority_of(w, p))
		return true;
	return false;
}

/* Nobody who could have a chunk goes without. */
static void assert_served(struct world *w)
{
	W_FOREACH(w, p)
	while (greedy(p) && w_kv_release(w, p))
		;
	W_FOREACH(w, p)
	if (greedy(p))
		w_kv_want(w, p, 1);
	for (uint32_t i = 0; i < 60; i++)
		quiet_round(w, 100 * MM_NS_PER_MS);
	W_FOREACH(w, p)
	mm_assert(!greedy(p) || p->held || outranked(w, p) || !w_could_have(w, p));
}

/* Everybody but @but wants all there is, and gives a chunk back now and then. */
static void greed_but(struct world *w, const struct w_proc *but, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		W_FOREACH(w, p)
		{
			if (!greedy(p) || p == but)
				continue;
			if (p->held > 1 || (p->held && !w_below(w, 4)))
				w_kv_release(w, p);
			w_kv_want(w, p, p->chunks_max);
			p->used_chunks = p->held;
			w_stats(w, p, 1);
		}
		quiet_round(w, 20 * MM_NS_PER_MS);
	}
}

/*
 * Everybody wants all there is and now and then gives a chunk back: then everybody gets some again, but
 * for whose account is full or comes later by the operator's word.
 */
static void assert_fair(struct world *w)
{
	uint32_t grants[W_PROCS], all = 0;

	greed_but(w, NULL, 60);
	for (uint32_t i = 0; i < W_PROCS; i++)
		grants[i] = w->proc[i].grants;
	greed_but(w, NULL, 240);
	W_FOREACH(w, p)
	all += greedy(p) ? p->grants - grants[p - w->proc] : 0;
	W_FOREACH(w, p)
	if (greedy(p) && !w->quotas && !w->account_max[p->account] && all > 40 * W_PROCS)
		mm_assert(p->grants > grants[p - w->proc]);
}

/* However much the others want, and hold: what is kept for an account can be had. */
static void assert_mins(struct world *w)
{
	W_FOREACH(w, p)
	{
		struct mm_core_account a;
		uint64_t missing;

		if (!greedy(p) || w->xfer_faults || w->opts.policy == MM_POLICY_RECOMPUTE ||
		    w->opts.policy == MM_POLICY_SWAP ||
		    !mm_core_account_find(w->core, 1000 + p->account, &a))
			continue;
		while (w_kv_release(w, p))
			;
		w_kv_want(w, p, 0);
		greed_but(w, p, 20);
		w_kv_want(w, p, p->chunks_max);
		for (uint32_t i = 0; i < 20; i++)
			quiet_round(w, 20 * MM_NS_PER_MS);
		mm_assert(mm_core_account_find(w->core, 1000 + p->account, &a));
		missing = a.quota.min_pages - MM_MIN(a.quota.min_pages, a.charged + a.quarantined);
		/* A min that was raised above what others have left waits for them. */
		mm_assert(a.pending || missing < p->chunk_pages || p->held == p->chunks_max);
	}
}

static void assert_all_free(struct world *w)
{
	struct mm_core_stats s;

	W_FOREACH(w, p)
	w_die(w, p);
	for (uint32_t i = 0; i < 60; i++)
		quiet_round(w, 200 * MM_NS_PER_MS);
	mm_core_stats(w->core, &s);
	mm_assert(s.tenants == 0);
	mm_assert(s.pages[MM_PAGE_FREE] + s.pages[MM_PAGE_QUARANTINE] + s.pages[MM_PAGE_NONE] ==
		  w->opts.pages);
	/* A job that was running when xfer failed twice costs its pages. */
	mm_assert(s.pages[MM_PAGE_QUARANTINE] <= w->xfer_faults / 2);
	mm_assert(s.pages[MM_PAGE_NONE] <= w->xfer_faults / 2 * MM_FD_BATCH_MAX);
}

static void count(const struct world *w)
{
	struct mm_core_stats s;

	mm_core_stats(w->core, &s);
	now_running.denials += s.denials;
	now_running.grants += s.grants;
	now_running.takes += s.takes;
	now_running.returns += s.returns;
	now_running.kicks += s.kicks;
	now_running.kills += s.kills;
	now_running.changes += s.plan_changes;
	now_running.reclaims += s.reclaims;
	now_running.deaths += w->xfer_deaths;
}

static void run(uint64_t seed, uint64_t steps)
{
	struct world *w = &world;

	now_running.seed = seed;
	make(w, seed);
	for (uint64_t i = 0; i < steps; i++)
		step(w);
	calm(w);
	W_FOREACH(w, p)
	{
		now_running.models += p->model_ready;
		now_running.swaps += p->swapped;
	}
	assert_moving(w);
	assert_served(w);
	assert_fair(w);
	assert_mins(w);
	count(w);
	assert_all_free(w);
	w_done(w);
}

/* ---- the program ---- */

static void on_abort(int sig)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "seed=%llu commit=%s\n",
			 (unsigned long long)now_running.seed, MM_COMMIT);

	(void)sig;
	(void)!write(STDERR_FILENO, line, (size_t)n);
	_exit(1);
}

static int usage(const char *what)
{
	fprintf(stderr, "core-sim: %s; usage: core-sim [--seed N] [--seeds COUNT] [--steps N]\n",
		what);
	return 2;
}

static bool number(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end;
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "seed", required_argument, NULL, 'S' },
						 { "seeds", required_argument, NULL, 'n' },
						 { "steps", required_argument, NULL, 't' },
						 { 0 } };
	uint64_t seed = 1, seeds = SEEDS_DEFAULT, steps = STEPS_DEFAULT;
	bool seeds_given = false, seed_given = false;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		uint64_t *to = opt == 'S'   ? &seed
			       : opt == 'n' ? &seeds
			       : opt == 't' ? &steps
					    : NULL;

		if (!to)
			return usage("unknown option");
		if (!number(optarg, to))
			return usage("not a number");
		seed_given |= opt == 'S';
		seeds_given |= opt == 'n';
	}
	if (seed_given && !seeds_given)
		seeds = 1;
	signal(SIGABRT, on_abort);
	for (uint64_t i = 0; i < seeds; i++)
		run(seed + i, steps);
	printf("seeds=%llu steps=%llu models=%llu swaps=%llu grants=%llu denials=%llu takes=%llu "
	       "returns=%llu "
	       "changes=%llu reclaims=%llu kicks=%llu kills=%llu xfer_deaths=%llu\n",
	       (unsigned long long)seeds, (unsigned long long)steps,
	       (unsigned long long)now_running.models, (unsigned long long)now_running.swaps,
	       (unsigned long long)now_running.grants, (unsigned long long)now_running.denials,
	       (unsigned long long)now_running.takes, (unsigned long long)now_running.returns,
	       (unsigned long long)now_running.changes, (unsigned long long)now_running.reclaims,
	       (unsigned long long)now_running.kicks, (unsigned long long)now_running.kills,
	       (unsigned long long)now_running.deaths);
	return 0;
}
