/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mmserve/engine/live.h"

#include <errno.h>
#include <stdlib.h>

#include "libclient/base/base.h"
#include "tools/mmserve/engine/engine.h"

/* The longest series of samples that a server keeps, which may run for months. */
#define LIVE_SAMPLES 65536u

int mm_live_open(struct mm_engine *e, struct mm_inbox *inbox)
{
	struct mm_live *l = &e->live;
	const uint32_t vocab = e->weights->arch.vocab;

	l->inbox = inbox;
	l->logits = calloc(vocab, sizeof(*l->logits));
	l->scratch = calloc(vocab, sizeof(*l->scratch));
	if (!l->logits || !l->scratch)
		return -ENOMEM;
	inbox->vocab = vocab;
	inbox->tokens_max =
		(uint32_t)MM_MIN(e->sched.config.max_tokens,
				 mm_sched_arena_blocks(&e->sched) * e->opts.block_tokens);
	e->stats.stalls_s.max = e->stats.gaps_s.max = LIVE_SAMPLES;
	e->stats.ttft_s.max = e->stats.tbt_s.max = LIVE_SAMPLES;
	return 0;
}

void mm_live_close(struct mm_engine *e)
{
	free(e->live.logits);
	free(e->live.scratch);
	e->live = (struct mm_live){ 0 };
}

void mm_live_began(struct mm_engine *e, struct mm_job *job)
{
	struct mm_live *l = &e->live;

	job->before = NULL;
	job->next = l->open;
	if (l->open)
		l->open->before = job;
	l->open = job;
}

struct mm_job *mm_live_cancelled(struct mm_engine *e)
{
	struct mm_live *l = &e->live;
	const uint32_t cancels = __atomic_load_n(&l->inbox->cancels, __ATOMIC_ACQUIRE);

	if (cancels == l->cancels)
		return NULL;
	for (struct mm_job *job = l->open; job; job = job->next)
		if (__atomic_load_n(&job->cancelled, __ATOMIC_RELAXED))
			return job;
	l->cancels = cancels;
	return NULL;
}

struct mm_job *mm_live_ended(struct mm_engine *e)
{
	struct mm_job *job = e->live.n_ended ? e->live.open : NULL;

	while (job && !job->ended)
		job = job->next;
	return job;
}

static bool job_ends_with(const struct mm_job *job, uint32_t id)
{
	for (uint32_t i = 0; i < job->n_ends; i++)
		if (job->ends[i] == id)
			return true;
	return false;
}

int mm_live_token(struct mm_engine *e, struct mm_job *job, uint32_t sample, double now_s)
{
	struct mm_live *l = &e->live;
	struct mm_request *q = &job->request;
	const uint32_t n = q->n_output;
	uint32_t id = e->forward.batch.next[sample];
	float logprob;
	int r;

	if (mm_sampling_needs_logits(&job->sampling)) {
		r = mm_forward_logits(&e->forward, sample, l->logits);
		if (r)
			return r;
		id = mm_sample(l->logits, l->inbox->vocab, &job->sampling, n, l->scratch, &logprob);
		if (job->logprobs)
			job->logprobs[n] = logprob;
	}
	q->times[n] = now_s;
	q->ids[q->n_prompt + n] = id;
	q->n_output = n + 1;
	job->ended = job_ends_with(job, id);
	l->n_ended += job->ended;
	l->news = true;
	__atomic_store_n(&job->published, n + 1, __ATOMIC_RELEASE);
	return 0;
}

static void job_count(struct mm_engine *e, const struct mm_request *q, enum mm_job_end end)
{
	struct mm_stats *stats = &e->stats;

	stats->served += end == MM_JOB_LENGTH || end == MM_JOB_STOP;
	stats->refused += end == MM_JOB_REFUSED || end == MM_JOB_STARVED;
	stats->cancelled += end == MM_JOB_CANCELLED || end == MM_JOB_ABORTED;
	stats->tokens += q->n_output;
	if (q->n_output)
		mm_samples_add(&stats->ttft_s, q->times[0] - q->arrival_s);
	for (uint32_t i = 1; i < q->n_output; i++)
		mm_samples_add(&stats->tbt_s, q->times[i] - q->times[i - 1]);
}

void mm_live_end(struct mm_engine *e, struct mm_job *job, enum mm_job_end end)
{
	struct mm_live *l = &e->live;

	if (job->next)
		job->next->before = job->before;
	if (job->before)
		job->before->next = job->next;
	else if (l->open == job)
		l->open = job->next;
	job->next = job->before = NULL;
	l->n_ended -= job->ended;
	l->news = true;
	job_count(e, &job->request, end);
	/* The job is the server's from here on. */
	__atomic_store_n(&job->end, end, __ATOMIC_RELEASE);
}

void mm_live_abort(struct mm_engine *e)
{
	struct mm_job *job;

	while (e->live.open)
		mm_live_end(e, e->live.open, MM_JOB_ABORTED);
	while ((job = mm_inbox_pop(e->live.inbox)))
		mm_live_end(e, job, MM_JOB_ABORTED);
	mm_live_report(e);
}

static void stat_set(uint64_t *stat, uint64_t value)
{
	__atomic_store_n(stat, value, __ATOMIC_RELAXED);
}

static uint32_t step_bucket(uint64_t step_ns)
{
	uint32_t i = 0;

	while (i + 1 < MM_STEP_BUCKETS && step_ns >= (MM_STEP_BUCKET_NS << i))
		i++;
	return i;
}

void mm_live_note(struct mm_engine *e, uint64_t step_ns)
{
	struct mm_inbox_stats *s = &e->live.inbox->stats;
	uint64_t *bucket = &s->step_buckets[step_bucket(step_ns)];

	stat_set(bucket, *bucket + 1);
	stat_set(&s->step_ns, s->step_ns + step_ns);
	stat_set(&s->steps, s->steps + 1);
}

void mm_live_report(struct mm_engine *e)
{
	struct mm_inbox_stats *s = &e->live.inbox->stats;
	const struct mm_kvblocks *kv = &e->sched.kv;

	stat_set(&s->running, e->sched.n_running);
	stat_set(&s->waiting, e->sched.n_waiting);
	stat_set(&s->steps_void, e->stats.steps_void);
	stat_set(&s->tokens, e->tokens);
	stat_set(&s->preemptions, e->sched.preemptions);
	stat_set(&s->kv_chunks, kv->usable_chunks + e->cooler.held);
	stat_set(&s->kv_blocks_free, kv->free_blocks);
	stat_set(&s->cold_entries, e->sched.cold.n_live);
	stat_set(&s->cold_blocks, mm_sched_cold_words(&e->sched));
	stat_set(&s->cold_out_bytes, e->stats.cold_out_bytes);
	stat_set(&s->layers_away, e->layers_away);
	if (!e->live.news)
		return;
	e->live.news = false;
	mm_inbox_wake(e->live.inbox->to_server_fd);
}
