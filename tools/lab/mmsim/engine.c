/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine - the engine's loop, as in tools/mmserve/engine/engine.c: arrivals, events, KV, turns, a
 * step.
 */
#include "tools/lab/mmsim/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/base/base.h"
#include "mmd/core/market/policy.h"
#include "tools/lab/mmsim/costs.h"
#include "tools/lab/mmsim/client.h"
#include "tools/lab/mmsim/cold.h"
#include "tools/lab/mmsim/pie.h"
#include "tools/lab/mmsim/suspend.h"

#define POLL_NS       (20 * MM_NS_PER_MS)
#define KV_IDLE_NS    (500 * MM_NS_PER_MS) /* as mmserve's --kv-idle */
#define KV_TIMEOUT_NS (60 * MM_NS_PER_S)   /* as mmserve's --kv-timeout */

/* ---- the memory, for kvman ---- */

static int engine_kv_want(void *context, uint32_t chunks_total)
{
	return ms_kv_want(context, chunks_total);
}

static void kv_usable(void *context, uint64_t *ret_bitmap, size_t words)
{
	const struct ms_tenant *t = context;

	memcpy(ret_bitmap, t->c.usable, words * sizeof(*ret_bitmap));
}

static uint32_t kv_owed(void *context)
{
	return ms_kv_owed(context);
}

static int engine_kv_release(void *context, uint32_t chunk)
{
	ms_kv_release(context, chunk);
	return 0;
}

/* Accounts the time of copies on the device, which are done before the next step. */
static int kv_move(void *context, const struct mm_sched_move *moves, uint32_t n)
{
	struct ms_tenant *t = context;
	const uint64_t bytes = t->kv.block_bytes * t->kv.ranges * n;

	(void)moves;
	t->e.moved_ns = MM_MAX(t->e.moved_ns, t->sim->now_ns) +
			mm_cost_device_copy_ns(&t->dev->profile, bytes);
	return 0;
}

static int kv_mark(void *context)
{
	(void)context;
	return 0;
}

static int kv_marked(void *context)
{
	const struct ms_tenant *t = context;

	return t->e.moved_ns > t->sim->now_ns ? -EAGAIN : 0;
}

static void kv_load(void *context, const struct mm_kvman_load *load)
{
	ms_client_hint(context, load);
}

static int kv_cool(void *context, const struct mm_sched_swap *swaps, uint32_t n)
{
	return ms_cold_cool(context, swaps, n);
}

static const struct mm_kvman_ops kvman_ops = {
	.want = engine_kv_want,
	.usable = kv_usable,
	.owed = kv_owed,
	.release = engine_kv_release,
	.move = kv_move,
	.mark = kv_mark,
	.marked = kv_marked,
	.load = kv_load,
	.cool = kv_cool,
};

/* ---- life ---- */

static uint32_t longest_request(const struct mm_wl_stream *stream)
{
	uint32_t longest = 1;

	for (uint32_t i = 0; i < stream->n; i++) {
		const struct mm_wl_request *q = &stream->request[i];

		longest = MM_MAX(longest, q->prompt_tokens + q->output_tokens);
	}
	return longest;
}

static int init_sched(struct ms_tenant *t)
{
	const struct mm_wl_opts *wl = t->sim->opts.wl;
	const uint32_t window = ms_cold_is_on(t) ? ms_cold_chunks(t, ms_cold_entries(t)) : 0;
	const uint32_t pages = MM_MIN(t->dev->opts.pages, MM_MAP_ENTRIES - MM_MAP_KV_BASE);
	const struct mm_kvman_arena arena = {
		.chunk_bytes = mm_kv_arena_chunk_total(&t->kv),
		.page_bytes = t->dev->opts.page_bytes,
		.pages_max = pages - MM_MIN(window * t->chunk_pages, pages),
		.share_bytes = t->sizes->kv_share_bytes,
		.fixed = t->e.fixed,
	};
	struct mm_sched_config config = {
		.max_seqs = MM_MAX(t->stream->n, 1),
		.max_batch = wl->max_seqs,
		.max_batched_tokens = wl->batched_tokens,
		.max_tokens = longest_request(t->stream),
		.block_tokens = wl->block_tokens,
		.kv_blocks_per_chunk = t->kv.blocks_per_chunk,
		.lookahead_blocks = MM_KVMAN_LOOKAHEAD_BLOCKS,
		.swap_tokens = MM_KVMAN_SWAP_TOKENS,
		.slice_tokens = t->sim->opts.slice_tokens,
		.admit = t->sim->opts.admit,
	};

	t->chunks_share = mm_kvman_size_arena(&arena, &config);
	t->chunks_max = config.kv_chunks + window;
	if ((uint64_t)t->chunks_share * t->kv.blocks_per_chunk <
	    mm_div_up(config.max_tokens, config.block_tokens)) {
		ms_fail(t->sim,
			"tenant %s: its share of KV memory does not hold a request of %u tokens",
			t->name, config.max_tokens);
		return -ENOSPC;
	}
	return mm_sched_init(&t->e.sched, &config);
}

bool ms_is_fixed(const struct ms_tenant *t)
{
	return mm_policy_get(t->dev->opts.policy)->kv_static;
}

int ms_engine_init(struct ms_tenant *t)
{
	struct mm_kvman_config config = {
		.idle_ns = KV_IDLE_NS,
		.timeout_ns = KV_TIMEOUT_NS,
		.answer_ns = MM_KVMAN_ANSWER_NS,
		.retry_ns = MM_KVMAN_RETRY_NS,
	};
	int r;

	t->e.wake_ns = UINT64_MAX;
	t->e.swaps = mm_policy_get(t->dev->opts.policy)->kv_swaps || t->sim->opts.policy->swaps;
	t->e.fixed = ms_is_fixed(t);
	r = init_sched(t);
	if (r)
		return r;
	config.share_chunks = t->chunks_share;
	config.keep_chunks =
		(uint32_t)((uint64_t)t->chunks_share * t->sim->opts.wl->kv_keep_permille / 1000);
	config.fixed = t->e.fixed;
	t->e.pieces = calloc(MM_SWAP_LOTS, sizeof(*t->e.pieces));
	t->e.finished = calloc(t->e.sched.config.max_batch, sizeof(*t->e.finished));
	t->c.usable = calloc(mm_div_up(t->chunks_max, 64), sizeof(*t->c.usable));
	t->c.kv_view = calloc((size_t)t->chunks_max * t->chunk_pages, sizeof(*t->c.kv_view));
	if (!t->e.pieces || !t->e.finished || !t->c.usable || !t->c.kv_view)
		return -ENOMEM;
	r = ms_cold_init(t, t->e.sched.kv.n_chunks);
	return r ? r : mm_kvman_init(&t->e.kvman, &config, &t->e.sched, &kvman_ops, t);
}

void ms_engine_done(struct ms_tenant *t)
{
	mm_kvman_done(&t->e.kvman);
	ms_cold_done(t);
	mm_sched_done(&t->e.sched);
	free(t->e.finished);
	free(t->e.pieces);
	free(t->c.usable);
	free(t->c.kv_view);
}

/* ---- waking ---- */

void ms_engine_wake(struct ms_tenant *t, uint64_t at_ns)
{
	if (at_ns >= t->e.wake_ns)
		return;
	t->e.wake_ns = at_ns;
	ms_heap_push(&t->sim->heap, at_ns, MS_ENGINE, (uint16_t)t->index, 0);
}

void ms_engine_event(struct ms_tenant *t, const struct mm_event *event)
{
	ms_fifo_push(&t->c.events, event);
	if (t->sim->started && !t->e.running)
		ms_engine_wake(t, t->sim->now_ns + MS_WAKE_NS);
}

bool ms_engine_all_done(const struct ms_tenant *t)
{
	return t->e.next_arrival == t->stream->n && !t->e.sched.n_waiting && !t->e.sched.n_running;
}

/* Sleeps when nothing can run: until a request arrives, mmd sends an event, or a timeout. */
static void sleep_on(struct ms_tenant *t)
{
	const uint64_t now = t->sim->now_ns, look = mm_kvman_next_ns(&t->e.kvman);
	uint64_t at = look <= now + POLL_NS ? now + POLL_NS : look;

	at = MM_MIN(at, MM_MAX(ms_cold_next_ns(t), now + 1));
	if (t->e.kvman.n_retired)
		at = MM_MIN(at, MM_MAX(t->e.moved_ns, now + 1));
	if (t->e.next_arrival < t->stream->n) {
		const struct mm_wl_request *next = &t->stream->request[t->e.next_arrival];
		uint64_t arrival = t->sim->start_ns + next->arrival_ns;

		/* If there are requests that cannot run, the engine tries again after a while. */
		if (t->e.sched.n_waiting || t->e.sched.n_running)
			arrival = MM_MAX(arrival, now + POLL_NS);
		at = MM_MIN(at, MM_MAX(arrival, now + 1));
	}
	if (at != UINT64_MAX)
		ms_engine_wake(t, at);
}

/* ---- a turn of the loop ---- */

static void requests_refuse(struct ms_tenant *t)
{
	t->sim->opts.record->counters.refused++;
}

static void let_in(struct ms_tenant *t)
{
	const uint64_t elapsed = t->sim->now_ns - t->sim->start_ns;
	uint32_t seq;

	while (t->e.next_arrival < t->stream->n) {
		const struct mm_wl_request *q = &t->stream->request[t->e.next_arrival];

		if (q->arrival_ns > elapsed)
			return;
		if (mm_sched_add(&t->e.sched, q->prompt_tokens, q->output_tokens, t->e.next_arrival,
				 &seq))
			requests_refuse(t);
		t->e.next_arrival++;
	}
}

static void handle_events(struct ms_tenant *t)
{
	const uint64_t now = t->sim->now_ns;
	const struct mm_event *e;

	while ((e = ms_fifo_at(&t->c.events, 0))) {
		const struct mm_event event = *e;

		ms_fifo_drop(&t->c.events);
		if (event.kind == MM_EVENT_KV_GRANTED)
			mm_kvman_granted(&t->e.kvman, now);
		else if (event.kind == MM_EVENT_KV_DENIED)
			mm_kvman_denied(&t->e.kvman, now);
		else if (event.kind == MM_EVENT_KV_RECLAIM)
			mm_kvman_reclaim(&t->e.kvman, t->c.ask.deadline_ns, now);
	}
}

static void plan_cost(struct ms_tenant *t, const struct mm_sched_plan *plan)
{
	struct mm_step_batch batch = { 0 };

	for (uint32_t i = 0; i < plan->n_items; i++)
		mm_step_batch_add(&batch, plan->items[i].first, plan->items[i].tokens,
				  plan->items[i].samples);
	mm_step_cost(&t->cost, &batch, &t->step.cost);
	t->s.computed_tokens += plan->tokens;
	t->s.batch_max = MM_MAX(t->s.batch_max, plan->n_items);
}

/* Notes the peak of KV in use, over the blocks of all tenants, after a plan has got its blocks. */
static void note_peak(struct ms_sim *sim)
{
	uint64_t *peak = &sim->opts.record->counters.kv_peak_bytes, sum = 0;

	for (uint32_t i = 0; i < sim->n_tenants; i++) {
		const struct ms_tenant *t = &sim->tenants[i];

		sum += t->e.sched.kv.used_blocks * t->kv.block_bytes * t->kv.ranges;
	}
	*peak = MM_MAX(*peak, sum);
}

/* Launches the planned step, once the engine has done its part for it. */
static void step_launch(struct ms_tenant *t)
{
	const uint64_t at = MM_MAX(t->sim->now_ns, t->e.calls_end_ns) + t->sim->opts.step_ns;

	t->step.before_ns = t->step.cost.before;
	if (t->e.moved_ns > at)
		t->step.before_ns += t->e.moved_ns - at;
	ms_heap_push(&t->sim->heap, at, MS_STEP_BEGIN, (uint16_t)t->index, 0);
}

static void engine_play_step(struct ms_tenant *t, const struct mm_sched_plan *plan)
{
	mm_kvman_runs(&t->e.kvman);
	plan_cost(t, plan);
	note_peak(t->sim);
	t->e.plan = plan;
	t->e.running = true;
	t->e.step_ns = t->sim->now_ns;
	step_launch(t);
}

/* Runs the same step again, as mmserve does until a step is whole. */
void ms_engine_again(struct ms_tenant *t)
{
	t->s.steps_broken++;
	step_launch(t);
}

static void engine_idle(struct ms_tenant *t)
{
	const uint32_t seq = mm_kvman_stuck(&t->e.kvman, t->sim->now_ns);

	if (seq != MM_KV_NONE) {
		mm_sched_remove(&t->e.sched, seq, t->sim->now_ns);
		requests_refuse(t);
		t->c.stats.requests_done++;
		t->c.stats.requests_late++;
	}
	if (mm_kvman_yields(&t->e.kvman))
		ms_turn_yield(t);
	sleep_on(t);
}

static void run_plan(struct ms_tenant *t, const struct mm_sched_plan *plan)
{
	if (plan->n_items)
		engine_play_step(t, plan);
	else
		engine_idle(t);
}

static void engine_iterate(struct ms_tenant *t)
{
	const struct mm_sched_plan *plan;
	bool may_run;

	let_in(t);
	handle_events(t);
	ms_cold_poll(t);
	plan = mm_kvman_evict(&t->e.kvman, t->sim->now_ns);
	if (plan->n_swaps) {
		ms_suspend_begin(t, plan);
		return;
	}
	may_run = (!t->e.sched.n_waiting && !t->e.sched.n_running) || ms_turn_want(t);
	mm_kvman_turn(&t->e.kvman, may_run);
	if (mm_kvman_manage(&t->e.kvman, t->sim->now_ns))
		ms_fail(t->sim, "tenant %s: KV memory cannot be managed", t->name);
	if (!may_run) {
		sleep_on(t);
		return;
	}
	plan = mm_kvman_plan(&t->e.kvman, t->sim->now_ns);
	if (plan->n_swaps)
		ms_suspend_begin(t, plan);
	else
		run_plan(t, plan);
}

/* Goes on when all blocks of a plan have been swapped. */
void ms_engine_suspended(struct ms_tenant *t)
{
	handle_events(t);
	if (t->e.plan->n_items)
		engine_play_step(t, t->e.plan);
	else
		ms_engine_wake(t, t->sim->now_ns);
}

void ms_engine_run(struct ms_tenant *t)
{
	if (t->sim->now_ns != t->e.wake_ns)
		return;
	t->e.wake_ns = UINT64_MAX;
	if (!t->e.running && !t->e.suspending)
		engine_iterate(t);
}

/* ---- results ---- */

static void take_results(struct ms_tenant *t)
{
	const struct mm_sched_plan *plan = t->e.plan;
	const uint64_t now = t->sim->now_ns - t->sim->start_ns;
	uint32_t n;

	for (uint32_t i = 0; i < plan->n_items; i++) {
		const struct mm_seq *q = &t->e.sched.seqs[plan->items[i].seq];

		if (!plan->items[i].samples)
			continue;
		mm_wl_record_token(t->sim->opts.record, t->index, (uint32_t)q->user, now);
		t->s.tokens++;
	}
	n = mm_sched_commit(&t->e.sched, t->sim->now_ns, t->e.finished);
	for (uint32_t i = 0; i < n; i++) {
		const struct mm_wl_request *q = &t->stream->request[t->e.finished[i]];

		t->s.needed_tokens += q->prompt_tokens + q->output_tokens - 1;
		t->c.stats.requests_done++;
		t->c.stats.requests_late +=
			mm_wl_is_late(t->sim->opts.wl, q,
				      &t->sim->opts.record->served[t->index][t->e.finished[i]]);
	}
}

void ms_engine_stepped(struct ms_tenant *t)
{
	t->e.running = false;
	mm_kvman_ran(&t->e.kvman, t->sim->now_ns - t->e.step_ns);
	take_results(t);
	ms_pie_stepped(t);
	engine_iterate(t);
}
