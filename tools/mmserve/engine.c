/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "mm/base.h"
#include "tools/mmserve/suspend.h"

#define GROW_ANSWER_NS   (2 * MM_NS_PER_S)    /* an unanswered wish counts as denied after that */
#define GROW_RETRY_NS    (100 * MM_NS_PER_MS) /* between two wishes for the same */
#define POLL_NS          (20 * MM_NS_PER_MS)  /* at most, when nothing can run */
#define RETIRED_POLL_NS  (MM_NS_PER_MS / 5)   /* at most, while the device works on moves */
#define LOOKAHEAD_BLOCKS 2u                   /* per sequence, asked for ahead of need */
#define VOID_STEPS_MAX   1000u                /* in a row: then something is wrong with mmd */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * MM_NS_PER_S + (uint64_t)t.tv_nsec;
}

static double since_start(const struct mm_engine *e, uint64_t now)
{
	return (double)(int64_t)(now - e->start_ns) / (double)MM_NS_PER_S;
}

static int fail(struct mm_engine *e, int error, const char *what)
{
	const char *why = e->memory->ops->error(e->memory);

	snprintf(e->err, MM_SERVE_ERROR_BYTES, "%s: %.1000s", what,
		 why && *why ? why : strerror(-error));
	return error;
}

/* ---- making ---- */

static uint32_t longest_request(const struct mm_engine *e)
{
	const uint32_t max = e->weights->arch.max_position;
	uint64_t longest = 1;

	for (size_t i = 0; i < e->requests->n; i++) {
		const struct mm_request *q = &e->requests->all[i];
		const uint64_t tokens = (uint64_t)q->n_prompt + q->max_tokens;

		if (tokens <= max)
			longest = MM_MAX(longest, tokens);
	}
	return (uint32_t)longest;
}

static uint32_t chunks_limit(const struct mm_engine *e, uint32_t blocks_per_chunk,
			     uint32_t max_tokens)
{
	const uint64_t blocks = mm_div_up(max_tokens, e->opts.block_tokens) * e->opts.max_batch;
	const uint64_t pages = mm_kv_arena_chunk_total(&e->kv) / e->memory->page_bytes;

	return (uint32_t)MM_MIN(MM_MAX(mm_div_up(blocks, blocks_per_chunk), 1),
				MM_MAX(e->memory->kv_pages_max / pages, 1));
}

static int init_sched(struct mm_engine *e, uint32_t max_tokens)
{
	const uint32_t per_chunk = e->kv.blocks_per_chunk;
	struct mm_sched_config config = {
		.max_seqs = (uint32_t)MM_MIN(MM_MAX(e->requests->n, 1), UINT32_MAX),
		.max_batch = e->opts.max_batch,
		.max_batched_tokens = e->opts.max_batched_tokens,
		.max_tokens = max_tokens,
		.block_tokens = e->opts.block_tokens,
		.kv_chunks = chunks_limit(e, per_chunk, max_tokens),
		.kv_blocks_per_chunk = per_chunk,
	};

	e->chunks_share = config.kv_chunks;
	if (e->opts.kv_share_bytes) {
		const uint64_t chunk_bytes = mm_kv_arena_chunk_total(&e->kv);
		const uint64_t share = MM_MAX(e->opts.kv_share_bytes / chunk_bytes, 1);

		e->chunks_share = (uint32_t)MM_MIN(share, config.kv_chunks);
	}
	if (e->memory->fixed)
		config.kv_chunks = e->chunks_share;
	return mm_sched_init(&e->sched, &config);
}

static int init_arrays(struct mm_engine *e)
{
	e->moves = calloc(e->sched.kv.blocks_per_chunk, sizeof(*e->moves));
	e->finished = calloc(e->opts.max_batch, sizeof(*e->finished));
	e->usable = calloc(mm_div_up(e->sched.kv.n_chunks, 64), sizeof(*e->usable));
	e->retired = calloc(e->sched.kv.n_chunks, sizeof(*e->retired));
	return e->moves && e->finished && e->usable && e->retired ? 0 : -ENOMEM;
}

static int init_kv(struct mm_engine *e)
{
	const struct mm_kv_opts kv = { .size = sizeof(kv),
				       .chunk_bytes = e->kv.chunk_bytes,
				       .ranges = e->kv.ranges,
				       .chunks_max = e->sched.kv.n_chunks,
				       .share_chunks = e->chunks_share };
	const int r = e->memory->ops->kv_open(e->memory, &kv, e->kv.va);

	e->forward.kv = &e->kv;
	return r ? fail(e, r, "cannot open the KV arena") : mm_suspend_open(e);
}

int mm_engine_init(struct mm_engine *e, const struct mm_engine_opts *opts, struct mm_memory *memory,
		   const struct mm_weights *weights, struct mm_requests *requests, char *err)
{
	struct mm_forward_opts forward = {
		.module = opts->module,
		.max_tokens = opts->max_batched_tokens,
		.max_rows = opts->max_batch,
		.block_tokens = opts->block_tokens,
		.verify = opts->verify,
	};
	int r;

	*e = (struct mm_engine){ .opts = *opts,
				 .memory = memory,
				 .weights = weights,
				 .requests = requests,
				 .break_dice = opts->break_seed,
				 .err = err };
	r = mm_kv_arena_init(&e->kv, opts->kv_order, weights->arch.layers,
			     mm_forward_part_bytes(&weights->arch, opts->block_tokens),
			     memory->page_bytes);
	if (!r)
		r = init_sched(e, longest_request(e));
	if (!r)
		r = init_arrays(e);
	if (r) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "cannot set up the scheduler: %s",
			 strerror(-r));
		return r;
	}
	forward.table_stride = e->sched.table_stride;
	r = mm_forward_init(&e->forward, memory, weights, &forward, err);
	if (!r && memory->gpu->cuEventCreate(&e->retired_done, CU_EVENT_DISABLE_TIMING))
		r = fail(e, -EIO, "cannot create an event");
	return r ? r : init_kv(e);
}

void mm_engine_done(struct mm_engine *e)
{
	if (e->retired_done)
		e->memory->gpu->cuEventDestroy(e->retired_done);
	if (e->forward.gpu)
		mm_forward_done(&e->forward);
	mm_sched_done(&e->sched);
	mm_stats_done(&e->stats);
	free(e->moves);
	free(e->finished);
	free(e->usable);
	free(e->retired);
	mm_kv_arena_done(&e->kv);
	*e = (struct mm_engine){ 0 };
}

/* ---- requests ---- */

static int finish(struct mm_engine *e, struct mm_request *q, uint64_t now)
{
	q->finish_s = since_start(e, now);
	if (e->opts.out && mm_report_request(e->opts.out, q)) {
		snprintf(e->err, MM_SERVE_ERROR_BYTES, "cannot write the output: %s",
			 strerror(errno));
		return -EIO;
	}
	return 0;
}

static int refuse(struct mm_engine *e, struct mm_request *q, uint64_t now, const char *why)
{
	snprintf(q->error, sizeof(q->error), "%s", why);
	return finish(e, q, now);
}

static int refuse_size(struct mm_engine *e, struct mm_request *q, uint64_t now)
{
	const uint64_t tokens = (uint64_t)q->n_prompt + q->max_tokens;
	const uint64_t arena = (uint64_t)e->sched.kv.n_chunks * e->sched.kv.blocks_per_chunk;
	char why[160];

	if (tokens > e->weights->arch.max_position)
		snprintf(why, sizeof(why),
			 "prompt and max_tokens make %llu tokens, the model's limit is %u",
			 (unsigned long long)tokens, e->weights->arch.max_position);
	else
		snprintf(why, sizeof(why),
			 "prompt and max_tokens make %llu tokens, all KV memory holds %llu",
			 (unsigned long long)tokens,
			 (unsigned long long)(arena * e->opts.block_tokens));
	return refuse(e, q, now, why);
}

static int let_in(struct mm_engine *e, uint64_t now)
{
	const double t = since_start(e, now);
	uint32_t seq;

	while (e->next_arrival < e->requests->n) {
		struct mm_request *q = &e->requests->all[e->next_arrival];
		int r;

		if (q->arrival_s > t)
			return 0;
		r = mm_sched_add(&e->sched, q->n_prompt, q->max_tokens, e->next_arrival, &seq);
		if (r == MM_E_FULL)
			return 0;
		if (r == MM_E_RANGE)
			r = refuse_size(e, q, now);
		if (r)
			return r;
		e->next_arrival++;
	}
	return 0;
}

/* ---- KV chunks ---- */

static void take_granted(struct mm_engine *e, uint64_t now)
{
	const uint32_t n = e->sched.kv.n_chunks;

	e->memory->ops->kv_usable(e->memory, e->usable, mm_div_up(n, 64));
	for (uint32_t i = 0; i < n; i++)
		if (e->usable[i / 64] >> i % 64 & 1)
			mm_kvblocks_add_chunk(&e->sched.kv, i, now);
	e->stats.kv_chunks_max = MM_MAX(e->stats.kv_chunks_max, e->sched.kv.usable_chunks);
}

static int give_back(struct mm_engine *e, uint32_t chunk)
{
	const int r = e->memory->ops->kv_release(e->memory, chunk);

	if (r)
		return fail(e, r, "cannot give a KV chunk back");
	mm_kvblocks_remove_chunk(&e->sched.kv, chunk);
	e->stats.chunks_released++;
	e->chunks_asked = 0;
	return 0;
}

static int move_blocks(struct mm_engine *e, uint32_t n)
{
	int r = 0;

	for (uint32_t i = 0; i < n && !r; i++)
		r = mm_forward_move_block(&e->forward, e->moves[i].from, e->moves[i].to);
	e->stats.blocks_moved += n;
	return r ? fail(e, r, "cannot move KV blocks") : 0;
}

/* Second phase: what was retired goes back once the device has done all that could touch it. */
static int release_retired(struct mm_engine *e)
{
	CUresult res;
	int r = 0;

	if (!e->n_retired)
		return 0;
	res = e->memory->gpu->cuEventQuery(e->retired_done);
	if (res == CUDA_ERROR_NOT_READY)
		return 0;
	if (res)
		return fail(e, mm_gpu_errno(res), "cannot move KV blocks");
	while (e->n_retired && !r)
		r = give_back(e, e->retired[--e->n_retired]);
	return r;
}

/* First phase. The stream's order puts the copies before the next step. */
static int retire(struct mm_engine *e, uint32_t chunk, uint32_t moves)
{
	CUresult res;
	int r;

	e->retired[e->n_retired++] = chunk;
	r = move_blocks(e, moves);
	if (r)
		return r;
	res = e->memory->gpu->cuEventRecord(e->retired_done, e->forward.stream);
	return res ? fail(e, mm_gpu_errno(res), "cannot move KV blocks") : 0;
}

/* All that drain and can be emptied now. */
static int retire_chunks(struct mm_engine *e, uint64_t now)
{
	uint32_t chunk, n;
	int r = 0;

	while (!r && !mm_sched_retire(&e->sched, now, &chunk, e->moves, &n))
		r = retire(e, chunk, n);
	return r;
}

/*
 * mmd wants @count chunks. Sequences that end soon cost nothing, those that are preempted must be
 * computed again: half of the time is theirs, unless the steps are so long that it would be late.
 */
static void reclaim(struct mm_engine *e, uint32_t count, uint64_t deadline_ns, uint64_t now)
{
	const uint64_t given = deadline_ns > now ? deadline_ns - now : 0;
	const uint64_t reserve = MM_MAX(given / 2, 2 * e->step_ns);

	mm_sched_reclaim(&e->sched, count, now + (given > reserve ? given - reserve : 0));
}

static int handle_events(struct mm_engine *e, uint64_t now)
{
	struct mm_event event;
	int r = 0;

	while (!r && !e->memory->ops->next_event(e->memory, &event)) {
		switch (event.kind) {
		case MM_EVENT_KV_GRANTED:
			take_granted(e, now);
			break;
		case MM_EVENT_KV_DENIED:
			e->may_grow = false;
			e->retry_ns = now + GROW_RETRY_NS;
			break;
		case MM_EVENT_KV_RECLAIM:
			reclaim(e, event.count, event.deadline_ns, now);
			break;
		case MM_EVENT_PLAN_CHANGED:
			e->stats.plan_changes++;
			e->stats.layers_remapped_max =
				MM_MAX(e->stats.layers_remapped_max, event.count);
			break;
		case MM_EVENT_DISCONNECTED:
			r = fail(e, -ECONNRESET, "mmd is gone");
			break;
		case MM_EVENT_SWAPPED:
		case MM_EVENT_TURN_BEGIN: /* asked for before each step: turn_want() */
		case MM_EVENT_TURN_END:
		case MM_EVENT_NONE:
			break;
		}
	}
	return r;
}

static uint32_t chunks_wanted(const struct mm_engine *e)
{
	const uint32_t blocks =
		mm_sched_blocks_wanted(&e->sched, LOOKAHEAD_BLOCKS * e->opts.block_tokens);
	const uint64_t chunks = mm_div_up(blocks, e->sched.kv.blocks_per_chunk);

	return (uint32_t)MM_MIN(chunks, e->sched.kv.n_chunks);
}

/* Asks ahead of need, never waits. */
static int grow(struct mm_engine *e, uint32_t wanted, uint64_t now)
{
	int r;

	if (e->may_grow && now >= e->grow_deadline_ns)
		e->may_grow = false;
	/* Who is asked to give does not ask for more. */
	if (wanted <= e->sched.kv.usable_chunks || e->sched.kv.draining_chunks) {
		e->may_grow = false;
		return 0;
	}
	if (wanted <= e->chunks_asked && now < e->retry_ns)
		return 0;
	r = e->memory->ops->kv_want(e->memory, wanted);
	e->chunks_asked = wanted;
	if (r == -EAGAIN) {
		/* A denial a moment ago will not be another answer now. */
		e->may_grow = e->may_grow || now >= e->retry_ns;
		e->grow_deadline_ns = now + GROW_ANSWER_NS;
		e->retry_ns = now + GROW_ANSWER_NS;
		return 0;
	}
	e->may_grow = false;
	e->retry_ns = now + GROW_RETRY_NS;
	if (!r)
		take_granted(e, now);
	return r && r != -ENOSPC && r != -EDQUOT ? fail(e, r, "cannot ask for KV memory") : 0;
}

/*
 * Voluntary shrinking, when fewer chunks were wanted than are held for a while: what has been empty as
 * long goes at once; else, now and then, one chunk whose blocks fit into the others.
 */
static int trim(struct mm_engine *e, uint32_t wanted, uint64_t now)
{
	uint32_t chunk, n;

	if (e->memory->fixed || wanted >= e->sched.kv.usable_chunks - e->sched.kv.draining_chunks) {
		e->surplus_since_ns = 0;
		return 0;
	}
	if (!e->surplus_since_ns)
		e->surplus_since_ns = now;
	if (now < e->opts.kv_idle_ns)
		return 0;
	chunk = mm_kvblocks_idle_chunk(&e->sched.kv, now - e->opts.kv_idle_ns);
	if (chunk != MM_KV_NONE) {
		mm_kvblocks_drain_chunk(&e->sched.kv, chunk);
		return 0;
	}
	if (now - e->surplus_since_ns < e->opts.kv_idle_ns)
		return 0;
	e->surplus_since_ns = now;
	return mm_sched_compact(&e->sched, now, &chunk, e->moves, &n) ? 0 : retire(e, chunk, n);
}

static int manage_kv(struct mm_engine *e, uint64_t now)
{
	const uint32_t wanted = chunks_wanted(e);
	const struct mm_load_hint hint = { mm_kvblocks_chunks_used(&e->sched.kv),
					   e->sched.n_waiting, e->sched.n_running };
	int r;

	e->memory->ops->hint(e->memory, &hint);
	r = grow(e, e->memory->fixed ? MM_MAX(wanted, e->chunks_share) : wanted, now);
	if (!r)
		r = release_retired(e);
	if (!r)
		r = trim(e, wanted, now);
	if (!r)
		r = retire_chunks(e, now);
	return r ? r : release_retired(e);
}

/* ---- steps ---- */

static void fill_batch(struct mm_engine *e, const struct mm_sched_plan *plan)
{
	struct mm_batch *b = &e->forward.batch;

	b->n_tokens = b->n_samples = 0;
	for (uint32_t i = 0; i < plan->n_items; i++) {
		const struct mm_sched_item *item = &plan->items[i];
		const struct mm_seq *q = &e->sched.seqs[item->seq];
		const uint32_t *ids = e->requests->all[q->user].ids;
		const uint32_t *blocks = mm_sched_table(&e->sched, item->seq);
		uint32_t *table = b->tables + (size_t)q->row * e->sched.table_stride;

		for (uint32_t j = 0; j < q->n_blocks; j++)
			table[j] = (uint32_t)(mm_kv_arena_offset(&e->kv, blocks[j]) /
					      MM_KV_UNIT_BYTES);
		for (uint32_t p = item->first; p < item->first + item->tokens; p++) {
			b->ids[b->n_tokens] = ids[p];
			b->positions[b->n_tokens] = p;
			b->rows[b->n_tokens++] = q->row;
		}
		if (item->samples)
			b->samples[b->n_samples++] = b->n_tokens - 1;
	}
}

/* Before which layer this step breaks off, by --break-steps; none of the model's: it does not. */
static uint32_t break_layer(struct mm_engine *e)
{
	uint64_t *dice = &e->break_dice;

	if (!e->opts.break_permille)
		return UINT32_MAX;
	*dice = *dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	if ((*dice >> 33) % 1000 >= e->opts.break_permille)
		return UINT32_MAX;
	return (uint32_t)((*dice >> 43) % e->weights->arch.layers);
}

/* Return: as mm_step_end(): -ECANCELED means again. */
static int compute_once(struct mm_engine *e, struct mm_step_info *info)
{
	int r = e->memory->ops->step_begin(e->memory);

	if (r)
		return r;
	e->forward.break_at = break_layer(e);
	r = mm_forward_step(&e->forward);
	if (!r)
		return e->memory->ops->step_end(e->memory, e->forward.stream, info);
	e->stats.steps_broken++;
	if (r != -EINTR) {
		e->memory->ops->step_abandon(e->memory, e->forward.stream);
		return r;
	}
	r = e->memory->ops->step_abandon(e->memory, e->forward.stream);
	return r ? r : -ECANCELED;
}

static int compute(struct mm_engine *e, struct mm_step_info *info)
{
	uint32_t tries = 0;
	int r;

	for (;;) {
		r = compute_once(e, info);
		if (r != -ECANCELED || ++tries == VOID_STEPS_MAX)
			return r ? fail(e, r, "a step failed") : 0;
		e->stats.steps_void++;
	}
}

static void report_mismatch(void *context, int32_t layer, const char *tensor)
{
	const struct mm_engine *e = context;

	fprintf(stderr, "mmserve: verify: step %llu: layer %d: %s: wrong bytes\n",
		(unsigned long long)e->stats.steps, layer, tensor);
}

static int take_results(struct mm_engine *e, const struct mm_sched_plan *plan, uint64_t now)
{
	const struct mm_batch *b = &e->forward.batch;
	uint32_t sample = 0, n;

	for (uint32_t i = 0; i < plan->n_items; i++) {
		const struct mm_seq *q = &e->sched.seqs[plan->items[i].seq];
		struct mm_request *request = &e->requests->all[q->user];

		if (!plan->items[i].samples)
			continue;
		request->preemptions = q->preemptions;
		request->times[request->n_output] = since_start(e, now);
		request->ids[request->n_prompt + request->n_output++] = b->next[sample++];
	}
	n = mm_sched_commit(&e->sched, now, e->finished);
	for (uint32_t i = 0; i < n; i++) {
		const int r = finish(e, &e->requests->all[e->finished[i]], now);

		if (r)
			return r;
	}
	return 0;
}

static int step(struct mm_engine *e, const struct mm_sched_plan *plan)
{
	struct mm_step_info info = { 0 };
	const uint64_t begin = now_ns();
	uint64_t end;
	int r;

	fill_batch(e, plan);
	r = compute(e, &info);
	if (r)
		return r;
	end = now_ns();
	if (e->opts.verify)
		e->stats.checksum_failures += mm_forward_verify(&e->forward, report_mismatch, e);
	e->step_ns = end - begin;
	e->stats.steps++;
	e->stats.computed_tokens += plan->tokens;
	e->stats.step_s += (double)(end - begin) / (double)MM_NS_PER_S;
	e->stats.batch_max = MM_MAX(e->stats.batch_max, plan->n_items);
	e->stats.stall_s += (double)info.stall_ns / (double)MM_NS_PER_S;
	if (info.gated)
		mm_stats_stall(&e->stats, (double)info.stall_ns / (double)MM_NS_PER_S);
	return take_results(e, plan, end);
}

/* Nothing can run: until something arrives or mmd says something. */
static void wait_idle(struct mm_engine *e, uint64_t now)
{
	struct pollfd fd = { .fd = e->memory->ops->event_fd(e->memory), .events = POLLIN };
	struct timespec timeout;
	uint64_t ns = e->n_retired ? RETIRED_POLL_NS : POLL_NS;

	if (!e->sched.n_waiting && !e->sched.n_running && e->next_arrival < e->requests->n) {
		const double s = e->requests->all[e->next_arrival].arrival_s - since_start(e, now);

		ns = s > 0 ? MM_MIN((uint64_t)(s * (double)MM_NS_PER_S), ns) : 0;
	}
	timeout = (struct timespec){ .tv_nsec = (long)ns };
	ppoll(&fd, fd.fd >= 0, &timeout, NULL);
}

/* A request that memory is denied for too long is refused: the oldest, as it blocks the others. */
static int check_stuck(struct mm_engine *e, uint64_t now)
{
	const uint32_t seq = e->sched.n_running ? e->sched.running[0] : e->sched.queue;
	struct mm_request *q;

	if (seq == MM_KV_NONE) {
		e->stuck_since_ns = 0;
		return 0;
	}
	if (!e->stuck_since_ns)
		e->stuck_since_ns = now;
	if (now - e->stuck_since_ns < e->opts.kv_timeout_ns)
		return 0;
	e->stuck_since_ns = 0;
	q = &e->requests->all[e->sched.seqs[seq].user];
	q->preemptions = e->sched.seqs[seq].preemptions;
	mm_sched_remove(&e->sched, seq, now);
	return refuse(e, q, now, "no KV memory was granted for too long (--kv-timeout)");
}

static bool all_done(const struct mm_engine *e)
{
	return e->next_arrival == e->requests->n && !e->sched.n_waiting && !e->sched.n_running;
}

/* Where tenants share the device's time: -EAGAIN while it is somebody else's. */
static int ask_turn(struct mm_engine *e)
{
	if (!e->sched.n_waiting && !e->sched.n_running)
		return 0;
	return e->memory->ops->turn_want(e->memory);
}

static int turn(struct mm_engine *e)
{
	const uint64_t now = now_ns();
	const struct mm_sched_plan *plan;
	int r = let_in(e, now);

	if (!r)
		r = handle_events(e, now);
	if (!r)
		r = manage_kv(e, now);
	if (r)
		return r;
	r = ask_turn(e);
	if (r) {
		wait_idle(e, now);
		return r == -EAGAIN ? 0 : fail(e, r, "cannot take turns");
	}
	plan = mm_sched_step(&e->sched, now, e->may_grow);
	e->stats.preemptions = e->sched.preemptions;
	if (plan->n_swaps) {
		r = mm_suspend_run(e, plan);
		if (r || !plan->n_items)
			return r;
	}
	if (plan->n_items) {
		e->stuck_since_ns = 0;
		return step(e, plan);
	}
	r = check_stuck(e, now);
	if (!r && !all_done(e))
		wait_idle(e, now);
	return r;
}

static int check_stop(struct mm_engine *e)
{
	if (!e->opts.stop || !*e->opts.stop)
		return 0;
	snprintf(e->err, MM_SERVE_ERROR_BYTES, "stopped by a signal");
	return -EINTR;
}

int mm_engine_events(struct mm_engine *e)
{
	const int r = check_stop(e);

	return r ? r : handle_events(e, now_ns());
}

int mm_engine_hold(struct mm_engine *e, int fd)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN },
				{ .fd = e->memory->ops->event_fd(e->memory), .events = POLLIN } };
	int r = 0;

	while (!r && !fds[0].revents) {
		poll(fds, fds[1].fd >= 0 ? 2 : 1, (int)(POLL_NS / MM_NS_PER_MS));
		r = check_stop(e);
		if (!r)
			r = handle_events(e, now_ns());
		if (!r)
			r = manage_kv(e, now_ns());
	}
	return r;
}

int mm_engine_run(struct mm_engine *e, uint64_t start_ns)
{
	int r = 0;

	e->start_ns = start_ns ? start_ns : now_ns();
	take_granted(e, now_ns());
	while (!r && !all_done(e)) {
		r = check_stop(e);
		if (!r)
			r = turn(e);
	}
	e->stats.end_s = since_start(e, now_ns());
	e->stats.plan_held_s =
		(double)e->memory->ops->plan_held_ns(e->memory) / (double)MM_NS_PER_S;
	return r;
}
