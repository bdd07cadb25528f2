/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/engine.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/base/base.h"
#include "libclient/base/random.h"
#include "tools/mmserve/engine/lender.h"
#include "tools/mmserve/engine/suspend.h"

#define POLL_NS         (20 * MM_NS_PER_MS)  /* longest wait when nothing can run */
#define RETIRED_POLL_NS (MM_NS_PER_MS / 5)   /* longest wait while the device works on moves */
#define IDLE_POLL_NS    (100 * MM_NS_PER_MS) /* longest wait when nobody requests anything */
#define LEAVE_STUCK_NS  (2 * MM_NS_PER_S)    /* who has to leave may be granted nothing more */
#define LEAVE_MARGIN_NS MM_NS_PER_S          /* to close in, before mmd ends the connection */
#define VOID_STEPS_MAX  1000u                /* so many void steps in a row end the run */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * MM_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- setting up ---- */

static uint32_t longest_request_tokens(const struct mm_engine *e)
{
	const uint32_t max = e->weights->arch.max_position;
	uint64_t longest = 1;

	if (e->opts.inbox)
		return e->opts.max_length ? MM_MIN(e->opts.max_length, max) : max;
	for (size_t i = 0; i < e->requests->n; i++) {
		const struct mm_request *q = &e->requests->all[i];
		const uint64_t tokens = (uint64_t)q->n_prompt + q->max_tokens;

		if (tokens <= max)
			longest = MM_MAX(longest, tokens);
	}
	return (uint32_t)longest;
}

static int engine_init_sched(struct mm_engine *e, uint32_t max_tokens)
{
	const uint64_t chunk_pages = mm_kv_arena_chunk_total(&e->kv) / e->memory->page_bytes;
	int r;
	const struct mm_kvman_arena arena = { .chunk_bytes = mm_kv_arena_chunk_total(&e->kv),
					      .page_bytes = e->memory->page_bytes,
					      .pages_max = e->memory->kv_pages_max -
							   e->cooler.chunks_max * chunk_pages,
					      .share_bytes = e->opts.kv_share_bytes,
					      .fixed = e->memory->fixed };
	struct mm_sched_config config = {
		.max_seqs = e->opts.inbox ? e->opts.inbox->jobs_max
					  : (uint32_t)MM_MIN(MM_MAX(e->requests->n, 1), UINT32_MAX),
		.max_batch = e->opts.max_batch,
		.max_batched_tokens = e->opts.max_batched_tokens,
		.max_tokens = max_tokens,
		.block_tokens = e->opts.block_tokens,
		.kv_blocks_per_chunk = e->kv.blocks_per_chunk,
		.lookahead_blocks = MM_KVMAN_LOOKAHEAD_BLOCKS,
		.swap_tokens = e->opts.swap_tokens,
		.slice_tokens = e->opts.slice_tokens,
		.admit = e->opts.admit,
	};

	e->chunks_share = mm_kvman_size_arena(&arena, &config);
	r = mm_cooler_divide(e, &config.kv_chunks);
	if (r)
		return r;
	return mm_sched_init(&e->sched, &config);
}

static int engine_init_kvman(struct mm_engine *e)
{
	const struct mm_stamps *t = &e->stamps;
	const struct mm_kvman_config config = {
		.share_chunks = e->chunks_share,
		.keep_chunks =
			(uint32_t)((uint64_t)e->chunks_share * e->opts.kv_keep_permille / 1000),
		.fixed = e->memory->fixed,
		.idle_ns = mm_stamps_host_ns(t, e->opts.kv_idle_ns),
		.timeout_ns = mm_stamps_host_ns(t, e->opts.kv_timeout_ns),
		.answer_ns = mm_stamps_host_ns(t, MM_KVMAN_ANSWER_NS),
		.retry_ns = mm_stamps_host_ns(t, MM_KVMAN_RETRY_NS),
	};

	e->finished = calloc(e->opts.max_batch, sizeof(*e->finished));
	return e->finished ? mm_kvman_init(&e->kvman, &config, &e->sched, &mm_lender_ops, e)
			   : -ENOMEM;
}

static int engine_init_kv(struct mm_engine *e)
{
	const struct mm_kv_opts kv = { .size = sizeof(kv),
				       .chunk_bytes = e->kv.chunk_bytes,
				       .ranges = e->kv.ranges,
				       .chunks_max = e->sched.kv.n_chunks + e->cooler.chunks_max,
				       .share_chunks = e->chunks_share };
	int r = e->memory->ops->kv_open(e->memory, &kv, e->kv.va);

	e->forward.kv = &e->kv;
	if (r)
		return mm_lender_fail(e, r, "cannot open the KV arena");
	r = mm_suspend_open(e);
	return r ? r : mm_cooler_open(e);
}

int mm_engine_init(struct mm_engine *e, const struct mm_engine_opts *opts, struct mm_memory *memory,
		   const struct mm_weights *weights, struct mm_requests *requests, char *err)
{
	struct mm_forward_opts forward = {
		.module = opts->module,
		.gemm = opts->gemm,
		.fast = opts->fast,
		.max_tokens = opts->max_batched_tokens,
		.max_rows = opts->max_batch,
		.block_tokens = opts->block_tokens,
		.kv_dtype = opts->kv_dtype,
		.verify = opts->verify,
	};
	CUresult res;
	int r;

	*e = (struct mm_engine){ .opts = *opts,
				 .memory = memory,
				 .weights = weights,
				 .requests = requests,
				 .break_random = opts->break_seed,
				 .err = err };
	res = mm_stamps_init(&e->stamps, memory->gpu, opts->device_times, opts->time_scale);
	if (res)
		return mm_lender_fail_gpu(e, res, "cannot create an event");
	r = mm_kv_arena_init(
		&e->kv, opts->kv_order, weights->arch.layers,
		mm_forward_part_bytes(&weights->arch, opts->block_tokens, opts->kv_dtype),
		memory->page_bytes);
	/* In a share of few large chunks the window would take more than it needs. */
	if (!r && memory->fixed && opts->kv_share_bytes && !opts->cold)
		mm_kv_arena_fix(&e->kv, memory->page_bytes, opts->kv_share_bytes);
	if (!r && mm_cooler_reserve(e))
		return -EINVAL;
	if (!r)
		r = engine_init_sched(e, longest_request_tokens(e));
	if (!r)
		r = engine_init_kvman(e);
	if (!r && opts->inbox)
		r = mm_live_open(e, opts->inbox);
	if (r == -E2BIG)
		return r;
	if (r) {
		snprintf(err, MM_SERVE_ERROR_BYTES, "cannot set up the scheduler: %s",
			 strerror(-r));
		return r;
	}
	forward.table_stride = e->sched.table_stride;
	r = mm_forward_init(&e->forward, memory, weights, &forward, err);
	if (!r && mm_graphs_init(&e->graphs, &e->forward, opts->graphs_max, opts->graphs_must))
		r = mm_lender_fail(e, -ENOMEM, "cannot keep graphs");
	if (r)
		return r;
	res = memory->gpu->cuEventCreate(&e->retired_done, CU_EVENT_DISABLE_TIMING);
	return res ? mm_lender_fail_gpu(e, res, "cannot create an event") : engine_init_kv(e);
}

void mm_engine_done(struct mm_engine *e)
{
	mm_stamps_done(&e->stamps);
	if (e->retired_done)
		e->memory->gpu->cuEventDestroy(e->retired_done);
	mm_graphs_done(&e->graphs);
	if (e->forward.gpu)
		mm_forward_done(&e->forward);
	mm_kvman_done(&e->kvman);
	mm_sched_done(&e->sched);
	mm_live_close(e);
	mm_stats_done(&e->stats);
	free(e->finished);
	mm_kv_arena_done(&e->kv);
	*e = (struct mm_engine){ 0 };
}

/* ---- requests ---- */

/* Return: the request of a sequence, by the value that the scheduler keeps for it. */
static struct mm_request *engine_request(const struct mm_engine *e, uint64_t user)
{
	return e->live.inbox ? &mm_live_job(user)->request : &e->requests->all[user];
}

/* Counts a request that was served, or waited in vain: both are reported to mmd. */
static void request_count(struct mm_engine *e, const struct mm_request *q)
{
	e->stats.requests_done++;
	e->stats.requests_late += mm_request_is_late(q, &e->opts.goals);
}

static int request_finish(struct mm_engine *e, struct mm_request *q, double now_s)
{
	q->finish_s = now_s;
	if (e->opts.out && mm_report_request(e->opts.out, q)) {
		snprintf(e->err, MM_SERVE_ERROR_BYTES, "cannot write the output: %s",
			 strerror(errno));
		return -EIO;
	}
	return 0;
}

static int request_refuse(struct mm_engine *e, struct mm_request *q, uint64_t now, const char *why)
{
	snprintf(q->error, sizeof(q->error), "%s", why);
	return request_finish(e, q, mm_stamps_at(&e->stamps, now));
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
	return request_refuse(e, q, now, why);
}

/* Ends a job that was cancelled or has met one of its ends: what it holds is free at once. */
static int job_remove(struct mm_engine *e, struct mm_job *job, uint64_t now, enum mm_job_end end)
{
	int r;

	mm_sched_remove(&e->sched, job->seq, now);
	r = request_finish(e, &job->request, mm_stamps_at(&e->stamps, now));
	if (end == MM_JOB_STOP)
		request_count(e, &job->request);
	mm_live_end(e, job, end);
	return r;
}

static int jobs_admit(struct mm_engine *e, uint64_t now)
{
	struct mm_job *job;
	int r = 0;

	while (!r && (job = mm_inbox_pop(e->live.inbox))) {
		struct mm_request *q = &job->request;

		if (e->leaving) {
			mm_live_end(e, job, MM_JOB_ABORTED);
			continue;
		}
		q->arrival_s = mm_stamps_at(&e->stamps, job->arrival_ns);
		e->next_arrival++;
		r = mm_sched_add(&e->sched, q->n_prompt, q->max_tokens, (uintptr_t)job, &job->seq);
		mm_assert(r != MM_E_FULL);
		if (!r) {
			mm_live_began(e, job);
			continue;
		}
		r = refuse_size(e, q, now);
		mm_live_end(e, job, MM_JOB_REFUSED);
	}
	while (!r && (job = mm_live_cancelled(e)))
		r = job_remove(e, job, now, MM_JOB_CANCELLED);
	return r;
}

static int requests_admit(struct mm_engine *e, uint64_t now)
{
	const double t = mm_stamps_at(&e->stamps, now);
	uint32_t seq;

	if (e->live.inbox)
		return jobs_admit(e, now);
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

/* ---- events ---- */

/*
 * Jobs are served to their end, a second before the deadline at the latest, so that there is time
 * to close. The run of a file fails at once, as it would if it lacked some of its lines.
 */
static int engine_leave(struct mm_engine *e, uint64_t deadline_ns)
{
	if (!e->live.inbox)
		return mm_lender_fail(e, -ESHUTDOWN, "mmd has it leave");
	e->leaving = true;
	e->kvman.config.timeout_ns = MM_MIN(e->kvman.config.timeout_ns, LEAVE_STUCK_NS);
	e->leave_ns = deadline_ns - MM_MIN(deadline_ns, LEAVE_MARGIN_NS);
	return 0;
}

static int engine_handle_events(struct mm_engine *e, uint64_t now)
{
	struct mm_event event = { .size = sizeof(event) };
	int r = 0;

	while (!r && !e->memory->ops->next_event(e->memory, &event)) {
		switch (event.kind) {
		case MM_EVENT_KV_GRANTED:
			mm_kvman_granted(&e->kvman, now);
			break;
		case MM_EVENT_KV_DENIED:
			mm_kvman_denied(&e->kvman, now);
			break;
		case MM_EVENT_KV_RECLAIM:
			mm_kvman_reclaim(&e->kvman, event.deadline_ns, now);
			break;
		case MM_EVENT_PLAN_CHANGED:
			e->stats.plan_changes++;
			e->layers_away = event.count;
			e->stats.layers_remapped_max =
				MM_MAX(e->stats.layers_remapped_max, event.count);
			break;
		case MM_EVENT_DISCONNECTED:
			r = mm_lender_fail(e, -ECONNRESET, "the connection to mmd is over");
			break;
		case MM_EVENT_LEAVE:
			r = engine_leave(e, event.deadline_ns);
			break;
		case MM_EVENT_SWAPPED:
		case MM_EVENT_COLD:       /* the cooler reads its state before each step */
		case MM_EVENT_TURN_BEGIN: /* turn_request() checks for the turn before each step */
		case MM_EVENT_TURN_END:
		case MM_EVENT_NONE:
			break;
		}
	}
	return r;
}

/* ---- steps ---- */

/* Return: where a word of a sequence's table lies, in units of MM_KV_UNIT_BYTES. */
static uint32_t block_address(const struct mm_engine *e, uint32_t word)
{
	if (word & MM_KV_COLD)
		return mm_cooler_address(e, word & ~MM_KV_COLD);
	return (uint32_t)(mm_kv_arena_offset(&e->kv, word) / MM_KV_UNIT_BYTES);
}

/* The tokens of a step are written to blocks, never to entries. */
static void fill_batch(struct mm_engine *e, const struct mm_sched_plan *plan)
{
	struct mm_batch *b = &e->forward.batch;

	b->n_tokens = b->n_samples = 0;
	for (uint32_t i = 0; i < plan->n_items; i++) {
		const struct mm_sched_item *item = &plan->items[i];
		const struct mm_seq *q = &e->sched.seqs[item->seq];
		const uint32_t *ids = engine_request(e, q->user)->ids;
		const uint32_t *blocks = mm_sched_table(&e->sched, item->seq);
		uint32_t *table = b->tables + i * (size_t)e->sched.table_stride;

		for (uint32_t j = 0; j < q->n_blocks; j++)
			table[j] = block_address(e, blocks[j]);
		for (uint32_t p = item->first; p < item->first + item->tokens; p++) {
			mm_assert(!(blocks[p / e->opts.block_tokens] & MM_KV_COLD));
			b->ids[b->n_tokens] = ids[p];
			b->positions[b->n_tokens] = p;
			b->rows[b->n_tokens++] = i;
		}
		if (item->samples)
			b->samples[b->n_samples++] = b->n_tokens - 1;
	}
	mm_forward_derive(&e->forward);
}

/* Return: the layer before which --break-steps breaks this step off; UINT32_MAX: it does not. */
static uint32_t break_layer(struct mm_engine *e)
{
	uint64_t *state = &e->break_random;

	if (!e->opts.break_permille)
		return UINT32_MAX;
	if (mm_random_below(state, 1000) >= e->opts.break_permille)
		return UINT32_MAX;
	return (uint32_t)mm_random_below(state, e->weights->arch.layers);
}

/*
 * Return: as mm_step_end(); -ECANCELED: the step is void and is to be computed again; -ESTALE: it
 * reads entries that may be missing, and another is to be planned.
 */
static int compute_once(struct mm_engine *e, struct mm_step_info *info)
{
	int r = e->memory->ops->step_begin(e->memory);

	if (r)
		return r;
	e->forward.break_at = break_layer(e);
	r = mm_graphs_step(&e->graphs);
	if (!r)
		r = mm_gpu_errno(mm_stamps_end(&e->stamps, e->forward.stream));
	if (!r)
		return e->memory->ops->step_end(e->memory, e->forward.stream, info);
	e->stats.steps_broken++;
	if (r != -EINTR && r != -ECANCELED) {
		e->memory->ops->step_abandon(e->memory, e->forward.stream);
		return r;
	}
	r = e->memory->ops->step_abandon(e->memory, e->forward.stream);
	return r ? r : -ECANCELED;
}

/* Describes a failed step by the driver's name of the error if the driver reported one. */
static int engine_fail_step(struct mm_engine *e, int error)
{
	if (!e->forward.error)
		return mm_lender_fail(e, error, "a step failed");
	mm_lender_fail_gpu(e, e->forward.error, "a step failed");
	return error;
}

static int engine_compute(struct mm_engine *e, struct mm_step_info *info)
{
	uint32_t tries = 0;
	int r;

	for (;;) {
		r = compute_once(e, info);
		if (r == -ESTALE)
			return r;
		if (r != -ECANCELED || ++tries == VOID_STEPS_MAX)
			return r ? engine_fail_step(e, r) : 0;
		e->stats.steps_void++;
	}
}

static void report_mismatch(void *context, int32_t layer, const char *tensor)
{
	const struct mm_engine *e = context;

	fprintf(stderr, "mmserve: verify: step %llu: layer %d: %s: wrong bytes\n",
		(unsigned long long)e->stats.steps, layer, tensor);
}

static int engine_take_tokens(struct mm_engine *e, const struct mm_sched_plan *plan, double now_s)
{
	const struct mm_batch *b = &e->forward.batch;
	uint32_t sample = 0;
	int r = 0;

	for (uint32_t i = 0; i < plan->n_items && !r; i++) {
		const struct mm_seq *q = &e->sched.seqs[plan->items[i].seq];
		struct mm_request *request = engine_request(e, q->user);

		if (!plan->items[i].samples)
			continue;
		request->preemptions = q->preemptions;
		e->tokens++;
		if (e->live.inbox) {
			r = mm_live_token(e, mm_live_job(q->user), sample++, now_s);
			continue;
		}
		request->times[request->n_output] = now_s;
		request->ids[request->n_prompt + request->n_output++] = b->next[sample++];
	}
	return r ? mm_lender_fail(e, r, "cannot read the logits") : 0;
}

static int engine_take_results(struct mm_engine *e, const struct mm_sched_plan *plan, double now_s)
{
	struct mm_job *job;
	int r = engine_take_tokens(e, plan, now_s);
	uint32_t n;

	if (r)
		return r;
	n = mm_sched_commit(&e->sched, now_ns(), e->finished);
	for (uint32_t i = 0; i < n; i++) {
		struct mm_request *q = engine_request(e, e->finished[i]);

		r = request_finish(e, q, now_s);
		if (r)
			return r;
		request_count(e, q);
		if (!e->live.inbox)
			continue;
		job = mm_live_job(e->finished[i]);
		mm_live_end(e, job, job->ended ? MM_JOB_STOP : MM_JOB_LENGTH);
	}
	while (!r && (job = mm_live_ended(e)))
		r = job_remove(e, job, now_ns(), MM_JOB_STOP);
	return r;
}

static void count_step(struct mm_engine *e, const struct mm_sched_plan *plan,
		       const struct mm_step_info *info, double begin_s, double end_s)
{
	/* The stall is measured by events on the device, so the time scale does not apply. */
	const double stall_s = (double)info->stall_ns / (double)MM_NS_PER_S;
	struct mm_stats *stats = &e->stats;

	if (e->stepping)
		mm_samples_add(&stats->gaps_s, begin_s - e->step_end_s);
	e->stepping = true;
	e->step_end_s = end_s;
	stats->steps++;
	stats->computed_tokens += plan->tokens;
	stats->step_s += end_s - begin_s;
	stats->batch_max = MM_MAX(stats->batch_max, plan->n_items);
	stats->stall_s += stall_s;
	stats->gated_steps += info->gated != 0;
	if (info->gated && info->timed)
		mm_samples_add(&stats->stalls_s, stall_s);
}

static int engine_step(struct mm_engine *e, const struct mm_sched_plan *plan)
{
	struct mm_step_info info = { .size = sizeof(info) };
	const uint64_t begin = now_ns();
	double begin_s, end_s;
	CUresult res;
	int r;

	fill_batch(e, plan);
	mm_cooler_count(e, plan);
	res = mm_stamps_begin(&e->stamps, e->forward.stream);
	if (res)
		return mm_lender_fail_gpu(e, res, "cannot take the time");
	r = engine_compute(e, &info);
	if (r == -ESTALE)
		return 0; /* mm_cooler_turn() reads the limit before the next one is planned */
	if (r)
		return r;
	res = mm_stamps_read(&e->stamps, &begin_s, &end_s);
	if (res)
		return mm_lender_fail_gpu(e, res, "cannot take the time");
	mm_kvman_ran(&e->kvman, now_ns() - begin);
	if (e->live.inbox)
		mm_live_note(e, now_ns() - begin);
	if (e->opts.verify)
		e->stats.checksum_failures += mm_forward_verify(&e->forward, report_mismatch, e);
	count_step(e, plan, &info, begin_s, end_s);
	return engine_take_results(e, plan, end_s);
}

/* Nothing can run: waits until a request arrives or an event of the memory, or for POLL_NS. */
static void wait_idle(struct mm_engine *e, uint64_t now)
{
	struct pollfd fds[] = { { .fd = e->memory->ops->event_fd(e->memory), .events = POLLIN },
				{ .fd = -1, .events = POLLIN } };
	struct timespec timeout;
	uint64_t ns = e->kvman.n_retired ? RETIRED_POLL_NS : POLL_NS;

	if (e->live.inbox) {
		fds[1].fd = e->live.inbox->to_engine_fd;
		mm_live_report(e);
		if (!e->live.open && !e->kvman.n_retired && !e->kvman.chunks_asked)
			ns = IDLE_POLL_NS;
	} else if (!e->sched.n_waiting && !e->sched.n_running && e->next_arrival < e->requests->n) {
		const double s =
			e->requests->all[e->next_arrival].arrival_s - mm_stamps_at(&e->stamps, now);
		const double host_ns = s * e->stamps.scale * (double)MM_NS_PER_S;

		ns = s > 0 ? (uint64_t)MM_MIN(host_ns, (double)ns) : 0;
	}
	e->stepping = false;
	timeout = (struct timespec){ .tv_nsec = (long)ns };
	ppoll(fds, MM_ARRAY_SIZE(fds), &timeout, NULL);
	if (fds[1].revents)
		mm_inbox_clear(fds[1].fd);
}

/* Refuses a request that got no memory for too long. */
static int check_stuck(struct mm_engine *e, uint64_t now)
{
	const uint32_t seq = mm_kvman_stuck(&e->kvman, now);
	struct mm_request *q;
	uint64_t user;
	int r;

	if (seq == MM_KV_NONE)
		return 0;
	user = e->sched.seqs[seq].user;
	q = engine_request(e, user);
	q->preemptions = e->sched.seqs[seq].preemptions;
	mm_sched_remove(&e->sched, seq, now);
	r = request_refuse(e, q, now, "no KV memory was granted for too long (--kv-timeout)");
	if (!r)
		request_count(e, q);
	if (e->live.inbox)
		mm_live_end(e, mm_live_job(user), MM_JOB_STARVED);
	return r;
}

static bool all_done(const struct mm_engine *e)
{
	const bool idle = !e->sched.n_waiting && !e->sched.n_running;

	if (e->live.inbox)
		return e->leaving && (idle || now_ns() >= e->leave_ns);
	return e->next_arrival == e->requests->n && idle;
}

/* Return: 0 this tenant may compute; -EAGAIN another tenant has the turn. */
static int turn_request(struct mm_engine *e)
{
	if (!e->sched.n_waiting && !e->sched.n_running)
		return 0;
	return e->memory->ops->turn_want(e->memory);
}

/* Preempts sequences for chunks that are reclaimed, before these are emptied. */
static int engine_evict(struct mm_engine *e, uint64_t now)
{
	const struct mm_sched_plan *plan = mm_kvman_evict(&e->kvman, now);

	e->stats.preemptions = e->sched.preemptions;
	e->stats.slices = e->sched.slices;
	if (!plan->n_swaps)
		return 0;
	e->stepping = false;
	return mm_suspend_run(e, plan);
}

static int engine_iterate(struct mm_engine *e)
{
	const uint64_t now = now_ns();
	const struct mm_sched_plan *plan;
	int r = requests_admit(e, now), turn;

	if (!r)
		r = engine_handle_events(e, now);
	if (!r)
		r = mm_cooler_turn(e, now);
	if (!r)
		r = engine_evict(e, now);
	if (r)
		return r;
	turn = turn_request(e);
	if (turn && turn != -EAGAIN)
		return mm_lender_fail(e, turn, "cannot take turns");
	mm_kvman_turn(&e->kvman, !turn);
	r = mm_kvman_manage(&e->kvman, now);
	if (r)
		return r;
	if (turn) {
		wait_idle(e, now);
		return 0;
	}
	plan = mm_kvman_plan(&e->kvman, now);
	e->stats.preemptions = e->sched.preemptions;
	e->stats.slices = e->sched.slices;
	if (plan->n_swaps) {
		e->stepping = false;
		r = mm_suspend_run(e, plan);
		if (r || !plan->n_items)
			return r;
	}
	if (plan->n_items) {
		mm_kvman_runs(&e->kvman);
		return engine_step(e, plan);
	}
	r = check_stuck(e, now);
	if (!r && mm_kvman_yields(&e->kvman))
		r = e->memory->ops->turn_yield(e->memory);
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

	return r ? r : engine_handle_events(e, now_ns());
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
			r = engine_handle_events(e, now_ns());
		if (!r)
			r = mm_cooler_turn(e, now_ns());
		if (!r)
			r = mm_kvman_manage(&e->kvman, now_ns());
	}
	return r;
}

static void engine_report_progress(const struct mm_engine *e)
{
	const uint64_t open = (uint64_t)e->sched.n_waiting + e->sched.n_running;

	if (e->opts.progress)
		mm_progress_set(e->opts.progress, e->next_arrival - MM_MIN(open, e->next_arrival),
				e->sched.n_running, e->sched.n_waiting, e->tokens);
}

int mm_engine_run(struct mm_engine *e, uint64_t start_ns)
{
	const CUresult res =
		mm_stamps_start(&e->stamps, e->forward.stream, start_ns ? start_ns : now_ns());
	int r = 0;

	if (res)
		return mm_lender_fail_gpu(e, res, "cannot take the time");
	mm_kvman_granted(&e->kvman, now_ns());
	if (e->opts.progress)
		mm_progress_serve(e->opts.progress, e->requests->n);
	while (!r && !all_done(e)) {
		r = check_stop(e);
		if (!r)
			r = engine_iterate(e);
		engine_report_progress(e);
		if (e->live.inbox)
			mm_live_report(e);
	}
	if (e->live.inbox)
		mm_live_abort(e);
	if (e->live.inbox && r == -EINTR)
		r = 0;
	/* If mmd has ended the connection during the last step, the run has failed. */
	if (!r)
		r = engine_handle_events(e, now_ns());
	e->stats.end_s = mm_stamps_at(&e->stamps, now_ns());
	e->stats.graph_captures = e->graphs.captures;
	e->stats.graph_launches = e->graphs.launches;
	e->stats.kv_chunks_max = e->kvman.chunks_max;
	e->stats.chunks_released = e->kvman.chunks_released;
	e->stats.blocks_moved = e->kvman.blocks_moved;
	e->stats.blocks_cooled = e->kvman.blocks_cooled;
	e->stats.plan_held_s =
		mm_stamps_seconds(&e->stamps, e->memory->ops->plan_held_ns(e->memory));
	return r;
}
