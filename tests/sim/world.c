/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/world.h"
#include "tests/sim/mortal.h"

#include <errno.h>
#include <string.h>

void w_init(struct world *w, const struct mm_core_opts *opts, uint64_t seed)
{
	memset(w, 0, offsetof(struct world, proc));
	W_FOREACH(w, p)
		memset(p, 0, offsetof(struct w_proc, inbox));
	memset((char *)w + offsetof(struct world, job), 0,
	       sizeof(*w) - offsetof(struct world, job));
	mm_assert(opts->pages <= W_PAGES);
	w->opts = *opts;
	w->rng = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	w->now_ns = MM_NS_PER_S;
	w->check_each = true;
	mm_assert(mm_core_create(opts, &w->core) == 0);
	w_market_begin(w);
	for (uint32_t i = 0; i < W_ACCOUNTS; i++)
		w->domain[i] = i;
}

void w_done(struct world *w)
{
	w->core = mm_core_destroy(w->core);
}

bool w_bytes_are(const struct world *w, uint32_t page, const struct w_proc *p, uint32_t entry)
{
	const struct w_bytes *b = &w->page[page].bytes;

	return b->kind == W_LAYER && b->owner == p->store && b->entry == entry;
}

/* ---- actions of the core ---- */

/* Marks pages that a process that is not hostile maps, or that xfer streams into. */
static void pages_in_use(const struct world *w, bool *used)
{
	uint32_t honest = 0;

	for (uint32_t i = 0; i < W_PROCS; i++)
		honest |= w->proc[i].hostile ? 0 : 1u << i;
	for (uint32_t i = 0; i < w->opts.pages; i++)
		used[i] = w->page[i].holders & honest;
	for (const struct w_proc *p = w->proc; p < w->proc + W_PROCS && w->xfer_up; p++)
		for (uint32_t s = 0; p->cycles.active && s < p->plan.beta; s++)
			for (uint32_t k = 0; k < p->plan.slot[s].n_pages; k++)
				used[p->plan_page[s][k]] = true;
	for (const struct w_proc *p = w->proc; p < w->proc + W_PROCS && w->xfer_up; p++)
		for (uint32_t i = 0; p->cycles.active && p->plan.cold.classes &&
				     i < p->plan.cold.chunks * p->chunk_pages;
		     i++)
			used[p->plan_window[i]] = true;
}

static void assert_unused(const struct world *w, uint32_t page)
{
	bool used[W_PAGES];

	pages_in_use(w, used);
	mm_assert(!used[page]);
}

static bool job_swaps(const struct mm_msg *job)
{
	return job->opcode == MM_XOP_SWAP_OUT || job->opcode == MM_XOP_SWAP_IN;
}

/* The page belongs to the tenant while the device may copy: granted, or not proven free. */
static void check_swap_job(const struct world *w, const struct mm_msg *job)
{
	uint32_t tenant = (uint32_t)job->arg[0], owner;
	uint64_t page = job->arg[1] / w->opts.page_bytes;
	enum mm_page_state state;

	mm_assert(page < w->opts.pages && job->arg[3] && job->arg[3] <= MM_SWAP_JOB_BYTES);
	mm_assert(job->arg[1] % w->opts.page_bytes + job->arg[3] <= w->opts.page_bytes);
	state = mm_core_page(w->core, (uint32_t)page, &owner);
	mm_assert((state == MM_PAGE_KV || state == MM_PAGE_REVOKING) && owner == tenant);
}

static void act_job(struct world *w, const struct mm_msg *msg)
{
	uint32_t page = (uint32_t)msg->arg[0];

	mm_assert(w->xfer_up && w->jobs < W_JOBS && !(msg->user_data >> 63));
	if (msg->opcode == MM_XOP_SCRUB || msg->opcode == MM_XOP_COPY ||
	    msg->opcode == MM_XOP_RECREATE) {
		mm_assert(mm_core_page(w->core, page, NULL) != MM_PAGE_FREE);
		/* RECREATE is what tests whether a quarantined page is unused. */
		if (msg->opcode != MM_XOP_RECREATE)
			assert_unused(w, page);
	}
	if (job_swaps(msg))
		check_swap_job(w, msg);
	w->job[w->jobs++] = *msg;
}

/* Writes the plan region; and the cursors, unless xfer serves the tenant. */
static void act_plan(struct world *w, struct w_proc *p, bool served)
{
	const struct mm_core_plan *plan = mm_core_plan(w->core, p->tenant);

	mm_assert(plan && mm_core_plan_cycles(plan) && !plan->m == !plan->beta);
	mm_assert(plan->beta <= MM_SLOTS_MAX);
	mm_assert(served || !p->cycles.active);
	mm_assert(p->hostile || w_is_parked(p) || !p->machine.plan.epoch);
	w_classes_plan(w, p, served);
	p->region = *plan;
	w->plans[plan->beta]++;
	for (uint32_t s = 0; s < plan->beta; s++) {
		const struct mm_core_slot *slot = &plan->slot[s];

		mm_assert(slot->n_layers >= 2 && slot->n_pages <= W_ENTRIES);
		for (uint32_t i = 0; i < slot->n_pages; i++)
			p->region_page[s][i] = mm_core_slot_page(w->core, p->tenant, s, i);
		if (served)
			continue;
		p->cursor[s] =
			(struct w_cursor){ .epoch = plan->epoch,
					   .state = slot->in_place ? MM_CUR_HELD : MM_CUR_COPYING };
	}
}

static bool xfer_serves(const struct w_proc *p, uint32_t layer)
{
	if (p->cycles.active && p->plan.cold.classes)
		return true;
	for (uint32_t s = 0; p->cycles.active && s < p->plan.beta; s++)
		for (uint32_t i = 0; i < p->plan.slot[s].n_layers; i++)
			if (p->plan.slot[s].layer[i] == layer)
				return true;
	return false;
}

/*
 * The core may write a gate only while nothing else writes it: xfer does not serve the layer, and
 * either no step can be open, or the tenant waits at the gate (EMPTY) and is let pass.
 */
static void act_gate(struct world *w, struct w_proc *p, const struct mm_action *a)
{
	(void)w;
	mm_assert(a->entry < p->n_groups - 1);
	mm_assert(!xfer_serves(p, a->entry));
	mm_assert(p->hostile || w_is_parked(p) || !p->machine.plan.epoch ||
		  (p->gate[a->entry] == MM_GATE_EMPTY && a->word == MM_GATE_RESIDENT));
	p->gate[a->entry] = a->word;
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 32;
}

static uint64_t hash_msg(uint64_t hash, const struct mm_msg *msg)
{
	hash = hash_word(hash, (uint64_t)msg->opcode << 32 | msg->flags);
	hash = hash_word(hash, msg->epoch);
	hash = hash_word(hash, msg->user_data);
	hash = hash_word(hash, (uint64_t)(int64_t)msg->result);
	for (uint32_t i = 0; i < MM_ARRAY_SIZE(msg->arg); i++)
		hash = hash_word(hash, msg->arg[i]);
	return hash;
}

/* Hashes what an MM_ACT_PLAN stands for: layers and pages of each slot. */
static uint64_t hash_plan(uint64_t hash, const struct world *w, uint32_t tenant)
{
	const struct mm_core_plan *plan = mm_core_plan(w->core, tenant);

	hash = hash_word(hash, plan->epoch);
	for (uint32_t s = 0; s < plan->beta; s++) {
		const struct mm_core_slot *slot = &plan->slot[s];

		hash = hash_word(hash, (uint64_t)slot->n_layers << 32 | slot->n_pages);
		hash = hash_word(hash, slot->in_place);
		for (uint32_t i = 0; i < slot->n_layers; i++)
			hash = hash_word(hash, slot->layer[i]);
		for (uint32_t i = 0; i < slot->n_pages; i++)
			hash = hash_word(hash, mm_core_slot_page(w->core, tenant, s, i));
	}
	if (!plan->cold.classes)
		return hash;
	hash = hash_word(hash, (uint64_t)plan->cold.classes << 32 | plan->cold.entries);
	for (uint32_t i = 0; mm_core_cold_page(w->core, tenant, i) != MM_NO_PAGE; i++)
		hash = hash_word(hash, mm_core_cold_page(w->core, tenant, i));
	return hash;
}

/* The reason of a kick or kill is prose: only whether there is one is hashed. */
static void hash_action(struct world *w, const struct mm_action *a)
{
	uint64_t hash = w->actions_hash;

	hash = hash_word(hash, (uint64_t)a->kind << 32 | a->tenant);
	hash = hash_word(hash, (uint64_t)a->page << 32 | a->entry);
	hash = hash_word(hash, a->word);
	hash = hash_word(hash, a->reason != NULL);
	hash = hash_msg(hash, &a->msg);
	if (a->kind == MM_ACT_PLAN)
		hash = hash_plan(hash, w, a->tenant);
	w->actions_hash = hash;
}

static void action_note(struct world *w, const struct mm_action *a)
{
	hash_action(w, a);
	w->acts_of[a->kind]++;
	if (a->kind == MM_ACT_JOB)
		w->jobs_of[a->msg.opcode]++;
	if (a->kind != MM_ACT_EVENT)
		return;
	w->events_of[a->msg.opcode]++;
	w->refused += a->msg.opcode == MM_EV_MODEL_READY && a->msg.result;
	w->switched_partly += a->msg.opcode == MM_EV_SWITCH && a->msg.arg[2] & MM_SWITCH_PARTIAL;
}

static void world_perform(struct world *w, const struct mm_action *a)
{
	struct w_proc *p = w_proc_of(w, a->tenant);

	action_note(w, a);
	w_turns_note_action(w, p, a);
	w_market_note_action(w, a);
	switch (a->kind) {
	case MM_ACT_JOB:
		act_job(w, &a->msg);
		return;
	case MM_ACT_PLAN:
		act_plan(w, p, a->entry != 0);
		return;
	case MM_ACT_OPEN:
		mm_assert(MM_XPLAN_OPEN(a->word, a->entry) > p->open);
		p->open = MM_XPLAN_OPEN(a->word, a->entry);
		return;
	case MM_ACT_COLD_LIMIT:
		w_cold_streamed(w, p, a->word);
		return;
	case MM_ACT_GATE:
		act_gate(w, p, a);
		return;
	case MM_ACT_ABORT: /* it would let steps pass to layers that are being mapped */
		mm_assert(!p || p->hostile || !p->mapping);
		return;
	case MM_ACT_FDS:
	case MM_ACT_MAP:
	case MM_ACT_EVENT:
		w_deliver(w, a);
		return;
	case MM_ACT_MODEL_DROP:
		p = w_proc_of(w, a->tenant);
		if (p)
			w_unload_check_drop(w, p);
		return;
	case MM_ACT_KICK:
		mm_assert(a->reason && w->kicks < MM_ARRAY_SIZE(w->kick));
		w->kick[w->kicks++] = a->tenant;
		return;
	case MM_ACT_KILL:
		mm_assert(a->reason && w->kills < MM_ARRAY_SIZE(w->kill));
		w->kill[w->kills++] = a->tenant;
		return;
	case MM_ACT_CHECK_STOPPED:
		w_event(w, (struct mm_event){ .kind = MM_EVENT_STOPPED_CHECKED,
					      .tenant = a->tenant,
					      .stopped = p && p->frozen });
		return;
	case MM_ACT_TENANT_FREE:
		mm_assert(p && !p->connected);
		p->used = false;
		w_slots_drop(p);
		return;
	default:
		return;
	}
}

void w_drain(struct world *w)
{
	struct mm_action a;
	uint32_t n;

	do {
		uint32_t kick[MM_ARRAY_SIZE(w->kick)], kill[MM_ARRAY_SIZE(w->kill)];

		while (w_next(w, &a))
			world_perform(w, &a);
		if (w->check_each)
			w_check(w);
		memcpy(kick, w->kick, sizeof(kick));
		memcpy(kill, w->kill, sizeof(kill));
		n = w->kicks;
		w->kicks = 0;
		for (uint32_t i = 0; i < n; i++)
			if (w_proc_of(w, kick[i]))
				w_disconnect(w, w_proc_of(w, kick[i]));
		n = w->kills;
		w->kills = 0;
		for (uint32_t i = 0; i < n; i++)
			if (w_proc_of(w, kill[i]))
				w_kill(w, w_proc_of(w, kill[i]));
	} while (n || w->kicks || w->kills);
	w_turns_note_drained(w);
	w_market_note_drained(w);
}

void w_tick(struct world *w, uint64_t ns)
{
	w->now_ns += ns;
	for (uint32_t i = 0; w->now_ns >= mm_core_deadline(w->core); i++) {
		mm_assert(i < 4); /* otherwise the event loop of the daemon would spin */
		w_event(w, (struct mm_event){ .kind = MM_EVENT_TICK });
		w_drain(w);
	}
	w_turns_check(w);
}

/* ---- xfer ---- */

void w_xfer_up(struct world *w)
{
	w->xfer_up = true;
	w_event_note(w, W_EVENT_XFER_UP, MM_NO_TENANT, NULL, 0);
	w_event(w, (struct mm_event){ .kind = MM_EVENT_XFER_UP, .xfer_epoch = ++w->xfer_epoch });
	w_drain(w);
}

/* A job that runs when xfer dies may leave its page half done. */
static void job_tear(struct world *w, const struct mm_msg *job)
{
	uint32_t page = (uint32_t)job->arg[0];

	if (!w_below(w, 2))
		return;
	if (job->opcode == MM_XOP_SCRUB || job->opcode == MM_XOP_COPY)
		w->page[page].bytes = (struct w_bytes){ .kind = W_GARBAGE };
	if (job->opcode == MM_XOP_CREATE)
		w->page[page].exists = true;
}

void w_xfer_kill(struct world *w, bool fault)
{
	if (!w->xfer_up)
		return;
	w->xfer_up = false;
	w->xfer_deaths++;
	w->xfer_faults += fault;
	for (uint32_t i = 0; i < w->jobs; i++)
		job_tear(w, &w->job[i]);
	w->jobs = 0;
	W_FOREACH(w, p)
		w_slots_drop(p);
	w_event_note(w, W_EVENT_XFER_DOWN, MM_NO_TENANT, NULL, 0);
	w_event(w, (struct mm_event){ .kind = MM_EVENT_XFER_DOWN });
	w_drain(w);
	if (fault) {
		w_event_note(w, W_EVENT_XFER_FAULT, MM_NO_TENANT, NULL, 0);
		w_event(w, (struct mm_event){ .kind = MM_EVENT_XFER_FAULT });
	}
	w_drain(w);
}

void w_memory_error(struct world *w)
{
	w_event(w, (struct mm_event){ .kind = MM_EVENT_MEMORY_ERROR });
	w_drain(w);
}

bool w_page_unheld(struct world *w, uint32_t page)
{
	if (!mm_core_page_is_made(w->core, page))
		return false;
	w->page[page].unheld = true;
	w_event(w, (struct mm_event){ .kind = MM_EVENT_PAGE_UNHELD, .page = page });
	w_drain(w);
	return true;
}

static void pages_create(struct world *w, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		if (!w->page[i].exists)
			w->page[i] = (struct w_page){ .exists = true };
}

/* The driver allocates the memory anew only when no process holds it any more. */
static int memory_recreate(struct world *w, struct w_page *page)
{
	if (page->holders || page->leak_until_ns > w->now_ns)
		return -ENOMEM;
	*page = (struct w_page){ .exists = true };
	return 0;
}

/* Performs what the job changes in the world. */
static int job_perform(struct world *w, const struct mm_msg *job)
{
	uint32_t arg = (uint32_t)job->arg[0];
	struct w_proc *p;

	switch (job->opcode) {
	case MM_XOP_CREATE:
		pages_create(w, arg, (uint32_t)job->arg[1]);
		return 0;
	case MM_XOP_SCRUB:
		mm_assert(mm_core_page(w->core, arg, NULL) == MM_PAGE_SCRUBBING);
		w->page[arg].bytes = (struct w_bytes){ .kind = W_ZERO };
		return 0;
	case MM_XOP_COPY:
		mm_assert(mm_core_page(w->core, arg, NULL) == MM_PAGE_DIRTY);
		/* Offsets in the store name the entry: see w_model(). */
		w->page[arg].bytes =
			(struct w_bytes){ W_LAYER, job->arg[1],
					  (uint32_t)(job->arg[2] / w->opts.page_bytes) };
		return 0;
	case MM_XOP_RECREATE:
		return memory_recreate(w, &w->page[arg]);
	case MM_XOP_SWAP_OUT:
	case MM_XOP_SWAP_IN:
		check_swap_job(w, job);
		p = w_proc_of(w, arg);
		mm_assert(p && job->arg[2] + job->arg[3] <= p->swap_bytes);
		p->lot_copied[job->arg[0] >> 32] += job->arg[3];
		return 0;
	case MM_XOP_ACTIVATE:
		w_slots_activate(w, w_proc_of(w, arg), job->epoch);
		return 0;
	case MM_XOP_REPLAN:
		w_slots_replan(w, w_proc_of(w, arg), job->epoch);
		return 0;
	case MM_XOP_DETACH: /* it removes the swap space */
		for (uint32_t i = 0; i < w->jobs; i++)
			mm_assert(!job_swaps(&w->job[i]) || (uint32_t)w->job[i].arg[0] != arg);
		/* fall through */
	default: /* QUIESCE, too */
		p = w_proc_of(w, arg);
		if (p)
			w_slots_quiesce(w, p);
		return 0;
	}
}

bool w_xfer_work(struct world *w, uint32_t among, int result)
{
	uint32_t i;
	struct mm_msg job;
	int r;

	if (!w->xfer_up || !w->jobs)
		return false;
	i = w_below(w, MM_MIN(among, w->jobs));
	job = w->job[i];
	w->jobs--;
	memmove(&w->job[i], &w->job[i + 1], (w->jobs - i) * sizeof(job));
	if (!result)
		result = job_perform(w, &job);
	if (!w->xfer_up)
		return true; /* xfer was killed during the job */
	w_event_note(w, W_EVENT_JOB_DONE, MM_NO_TENANT, &job, result);
	r = w_event(w, (struct mm_event){ .kind = MM_EVENT_JOB_DONE,
					  .job = { job.user_data, result } })
		    .r;
	mm_assert(r == 0);
	w_drain(w);
	return true;
}

void w_run(struct world *w)
{
	for (uint32_t quiet = 0; quiet < 3; quiet++) {
		while (w_xfer_work(w, 4, 0))
			quiet = 0;
		W_FOREACH(w, p)
			while (w_proc_event(w, p))
				quiet = 0;
		W_FOREACH(w, p)
			w_xfer_stream(w, p);
		w_tick(w, 1000);
	}
}

/* ---- what the core cannot see ---- */

static void world_check_accounts(struct world *w, const uint64_t *pages_of)
{
	uint64_t held[W_ACCOUNTS] = { 0 };

	for (uint32_t i = 0; i < W_PROCS; i++) {
		mm_assert(!pages_of[i] || w->proc[i].used);
		held[w->proc[i].account] += pages_of[i];
	}
	/* An account above a max that was lowered gets no more pages. */
	for (uint32_t i = 0; i < W_ACCOUNTS; i++)
		mm_assert(!w->account_max[i] || held[i] <= w->account_max[i] ||
			  held[i] <= w->held[i]);
	memcpy(w->held, held, sizeof(held));
}

/* Checks that free pages are clean and unused. Counts the others by owner. */
static void world_check_pages(const struct world *w, uint64_t *pages_of)
{
	uint8_t proc[MM_CORE_TENANTS_MAX];
	bool in_use[W_PAGES];

	memset(proc, W_PROCS, sizeof(proc));
	for (uint32_t i = 0; i < W_PROCS; i++)
		if (w->proc[i].used)
			proc[MM_TENANT_INDEX(w->proc[i].tenant)] = (uint8_t)i;
	pages_in_use(w, in_use);
	for (uint32_t i = 0; i < w->opts.pages; i++) {
		uint32_t tenant = MM_NO_PAGE, of;

		if (mm_core_page(w->core, i, &tenant) == MM_PAGE_FREE)
			mm_assert(w->page[i].exists && w->page[i].bytes.kind == W_ZERO &&
				  !in_use[i]);
		if (tenant == MM_NO_PAGE)
			continue;
		of = proc[MM_TENANT_INDEX(tenant)];
		mm_assert(of < W_PROCS && w->proc[of].tenant == tenant);
		pages_of[of]++;
	}
}

void w_check(struct world *w)
{
	uint64_t pages_of[W_PROCS] = { 0 };

	mm_core_check(w->core);
	for (uint32_t i = 0; i < w->jobs; i++)
		if (job_swaps(&w->job[i]))
			check_swap_job(w, &w->job[i]);
	world_check_pages(w, pages_of);
	W_FOREACH(w, p)
		if (p->used && p->connected)
			w_mem_verify(w, p);
	world_check_accounts(w, pages_of);
}

void w_account_add(struct world *w, uint32_t account, uint32_t domain,
		   const struct mm_core_quota *quota)
{
	int r = w_event(w,
			(struct mm_event){ .kind = MM_EVENT_ACCOUNT_ADD,
					   .quota = { 1000 + account, 1000 + domain, 0, *quota } })
			.r;

	mm_assert(r == 0);
	w->account_max[account] = quota->max_pages;
	w->domain[account] = w->domain[domain];
}

enum mm_quota_outcome w_quota_set(struct world *w, uint32_t account,
				  const struct mm_core_quota *quota)
{
	enum mm_quota_outcome outcome =
		(enum mm_quota_outcome)w_event(
			w, (struct mm_event){ .kind = MM_EVENT_QUOTA_SET,
					      .quota = { 1000 + account, 0, 0, *quota } })
			.r;

	if (outcome == MM_QUOTA_APPLIED || outcome == MM_QUOTA_DEFERRED)
		w->account_max[account] = quota->max_pages;
	w_drain(w);
	return outcome;
}

void w_tune(struct world *w, uint32_t how)
{
	struct mm_event e = { .kind = MM_EVENT_TUNE, .tune = w->opts };

	if (how) {
		e.tune.reversion = how % 2 ? MM_SWITCH_OFF : MM_SWITCH_ON;
		e.tune.sharing = 1 + how % 3;
		e.tune.dwell_ns = how * MM_NS_PER_MS;
		e.tune.rho_permille = 1 + how % 1000;
		e.tune.cold = how % 2 ? MM_SWITCH_ON : MM_SWITCH_OFF;
	}
	mm_assert(w_event(w, e).r == 0);
	w_drain(w);
}

bool w_could_have(struct world *w, const struct w_proc *p)
{
	struct mm_core_account a;
	struct mm_core_stats s;
	uint64_t held = 0, kept = 0;

	mm_core_stats(w->core, &s);
	for (uint32_t i = 0; i < W_ACCOUNTS; i++)
		if (i != p->account && mm_core_account_find(w->core, 1000 + i, &a) &&
		    a.quota.min_pages > a.charged + a.quarantined)
			kept += a.quota.min_pages - a.charged - a.quarantined;
	for (uint32_t i = 0; i < w->opts.pages; i++) {
		uint32_t tenant = MM_NO_PAGE;
		struct w_proc *q;

		mm_core_page(w->core, i, &tenant);
		q = tenant == MM_NO_PAGE ? NULL : w_proc_of(w, tenant);
		held += q && q->account == p->account;
	}
	return s.pages[MM_PAGE_FREE] >= p->chunk_pages + kept &&
	       (!w->account_max[p->account] || held + p->chunk_pages <= w->account_max[p->account]);
}
