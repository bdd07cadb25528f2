/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long streams wait at gates, by events around the waits of layers that cycle. The
 * events are the step's own or, where its layers run in a graph, the graph's. A graph with events
 * costs more to launch than one without, so that not every step has them: those that do are
 * samples, and only samples are reported to mmd.
 */
#include <errno.h>
#include <stdlib.h>

#include "libclient/client/internal.h"
#include "libclient/support/fault.h"

#define EVENTS_GROW   32
#define SAMPLES_FIRST 16 /* samples of a new plan, of steps in a row */
#define SAMPLE_EACH   8  /* afterwards, one step of so many is a sample */

struct mm_gate_times {
	struct mm_gate_times *next;
	struct mm_client *client;
	uint32_t n_events; /* two a layer: before its wait and after it */
	CUevent events[];
};

static bool layer_waits(const struct mm_client *c, const struct mm_step *step, uint32_t layer)
{
	return mm_client_model(c)->cycles[layer + 1] || step->times_all;
}

static uint32_t step_count_waits(const struct mm_client *c, const struct mm_step *step)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < mm_client_layers(c); i++)
		n += layer_waits(c, step, i);
	return n;
}

/* ---- around a wait ---- */

/*
 * The two events of one more timed wait. Return: NULL if there is no room; the step then runs
 * untimed, because a failure of timing must not fail a step.
 */
static CUevent *step_events(struct mm_client *c, struct mm_step *step)
{
	const size_t at = 2 * (size_t)step->n_timed;
	CUevent *events = step->events;

	if (at + 2 <= step->n_events)
		return &events[at];
	events = reallocarray(events, step->n_events + EVENTS_GROW, sizeof(*events));
	if (!events)
		return NULL;
	step->events = events;
	for (uint32_t i = 0; i < EVENTS_GROW; i++) {
		if (c->gpu->cuEventCreate(&events[step->n_events], CU_EVENT_DEFAULT))
			break;
		step->n_events++;
	}
	return at + 2 <= step->n_events ? &events[at] : NULL;
}

static bool stream_is_capturing(struct mm_client *c, CUstream stream)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

	return c->gpu->cuStreamIsCapturing && (c->gpu->cuStreamIsCapturing(stream, &status) ||
					       status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/*
 * Records an event. A failure fails a capture only: a graph that lacks some of its events would
 * report times of an earlier launch.
 */
static CUresult event_record(struct mm_client *c, struct mm_step *step, struct mm_timed *t,
			     CUevent event, CUstream stream)
{
	if (t->captured)
		return c->gpu->cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL);
	if (!c->gpu->cuEventRecord(event, stream))
		return CUDA_SUCCESS;
	step->unknown = true;
	t->events = NULL;
	return CUDA_SUCCESS;
}

CUresult mm_times_before(struct mm_client *c, struct mm_step *step, uint32_t layer, CUstream stream,
			 struct mm_timed *ret)
{
	*ret = (struct mm_timed){ .captured = stream_is_capturing(c, stream) };
	if (ret->captured) {
		step->captured = true;
		ret->events = step->times ? &step->times->events[2 * (size_t)layer] : NULL;
	} else if (layer_waits(c, step, layer)) {
		ret->events = step_events(c, step);
		step->unknown |= !ret->events;
	}
	return ret->events ? event_record(c, step, ret, ret->events[0], stream) : CUDA_SUCCESS;
}

CUresult mm_times_after(struct mm_client *c, struct mm_step *step, struct mm_timed *t,
			CUstream stream)
{
	CUresult res = t->events ? event_record(c, step, t, t->events[1], stream) : CUDA_SUCCESS;

	step->n_timed += t->events && !t->captured;
	return res;
}

/* ---- after the step ---- */

static bool elapsed_add(struct mm_client *c, CUevent *events, double *total_ms)
{
	float ms = 0;

	if (c->gpu->cuEventElapsedTime(&ms, events[0], events[1]))
		return false;
	*total_ms += ms > 0 ? (double)ms : 0;
	return true;
}

/* Adds the waits of layers that a graph ran, of those only that can have waited. */
static bool replayed_add(struct mm_client *c, const struct mm_step *step, double *total_ms)
{
	bool known = step->times;

	for (uint32_t i = 0; i < mm_client_layers(c) && known; i++)
		if (layer_waits(c, step, i))
			known = elapsed_add(c, &step->times->events[2 * (size_t)i], total_ms);
	return known;
}

bool mm_times_read(struct mm_client *c, const struct mm_step *step, uint64_t *ret_stall_ns)
{
	/* The time of a step that captured layers contains the capturing. */
	bool known = !step->unknown && !step->captured;
	double total_ms = 0;

	for (uint32_t i = 0; i < step->n_timed && known; i++)
		known = elapsed_add(c, &step->events[2 * (size_t)i], &total_ms);
	if (known && step_count_waits(c, step)) {
		if (step->replayed)
			known = replayed_add(c, step, &total_ms);
		else
			known = step->last_layer >=
				0; /* else graphs ran that mm_step_replay() did not name */
	}
	*ret_stall_ns = known ? (uint64_t)(total_ms * (double)MM_NS_PER_MS) : 0;
	return known;
}

/* ---- samples ---- */

bool mm_times_due(const struct mm_client *c)
{
	const struct mm_sampling *s = &c->sampling;

	return s->epoch != c->steps.plan.epoch || s->n < SAMPLES_FIRST ||
	       s->skipped >= SAMPLE_EACH - 1;
}

/*
 * Whether a step counts as a sample. Where graphs are in use, replays are samples now and then
 * only, and other steps must not be samples more often: the mean would be one of prompts, which
 * seldom run in graphs.
 */
static bool step_is_sample(struct mm_client *c, const struct mm_step *step,
			   const struct mm_step_info *info) MM_REQUIRES(mm_client_lock)
{
	return info->timed && (!c->sampling.graphs || step->due || !step_count_waits(c, step));
}

static void sample_count(struct mm_client *c, const struct mm_step_info *info, bool sample)
	MM_REQUIRES(mm_client_lock)
{
	struct mm_sampling *s = &c->sampling;
	struct mm_tenant_stats *stats = &c->tenant->stats;

	if (s->epoch != c->steps.plan.epoch) {
		s->epoch = c->steps.plan.epoch;
		s->n = s->skipped = 0;
		s->stall_ns = 0;
	}
	s->skipped++;
	if (info->timed)
		s->stall_ns = info->stall_ns;
	c->stall_total_ns += s->stall_ns;
	__atomic_store_n(&stats->stall_total_ns, c->stall_total_ns, __ATOMIC_RELAXED);
	if (!sample)
		return;
	s->skipped = 0;
	s->n += s->n < SAMPLES_FIRST;
	s->samples++;
	__atomic_store_n(&stats->step_ns, info->step_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&stats->stall_ns, info->stall_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&stats->samples, s->samples, __ATOMIC_RELEASE);
}

void mm_times_account(struct mm_client *c, const struct mm_step *step,
		      const struct mm_step_info *info)
{
	sample_count(c, info, step_is_sample(c, step, info));
	c->steps_done++;
	__atomic_store_n(&c->tenant->stats.steps, c->steps_done, __ATOMIC_RELEASE);
}

/* ---- graphs ---- */

static void gate_times_destroy(struct mm_gate_times *t)
{
	for (uint32_t i = 0; i < t->n_events; i++)
		t->client->gpu->cuEventDestroy(t->events[i]);
	free(t);
}

void mm_times_destroy(struct mm_client *client)
{
	struct mm_gate_times *t, *next;

	mm_client_lock_take(&client->lock);
	t = client->gate_times;
	client->gate_times = NULL;
	mm_client_lock_give(&client->lock);
	for (; t; t = next) {
		next = t->next;
		gate_times_destroy(t);
	}
}

static CUresult gate_times_fill(struct mm_client *c, struct mm_gate_times *t, uint32_t n)
{
	bool borrowed = mm_context_borrow(c);
	CUresult res = CUDA_SUCCESS;

	for (; t->n_events < n && !res; t->n_events += !res)
		res = c->gpu->cuEventCreate(&t->events[t->n_events], CU_EVENT_DEFAULT);
	mm_context_give_back(c, borrowed);
	return res;
}

int mm_gate_times_open(struct mm_model *model, struct mm_gate_times **ret_times)
{
	struct mm_client *c = model->client;
	const uint32_t n = 2 * (model->dir.n_groups - 1);
	struct mm_gate_times *t;
	CUresult res;
	int r = mm_enter(c);

	if (r)
		return r;
	if (!c->gpu->cuEventRecordWithFlags)
		return mm_fail(c, -EOPNOTSUPP, "the driver records no events in graphs");
	t = mm_fault("gate_times.open") ? NULL : calloc(1, sizeof(*t) + n * sizeof(t->events[0]));
	if (!t)
		return mm_fail(c, -ENOMEM, "out of memory");
	t->client = c;
	res = gate_times_fill(c, t, n);
	if (res) {
		gate_times_destroy(t);
		return mm_fail(c, -EIO, "cannot create events: %s", mm_gpu_strerror(c->gpu, res));
	}
	mm_client_lock_take(&c->lock);
	t->next = c->gate_times;
	c->gate_times = t;
	mm_client_lock_give(&c->lock);
	*ret_times = t;
	return 0;
}

/* The open step, for a call that names @times; NULL with *@ret_error set. */
static struct mm_step *graph_step(struct mm_client *c, const struct mm_gate_times *times,
				  int *ret_error)
{
	struct mm_step *step;

	*ret_error = mm_step_mine(c, &step);
	if (*ret_error)
		return NULL;
	if (times && times->client != c) {
		*ret_error = mm_fail(c, -EINVAL, "gate times of another client");
		return NULL;
	}
	return step;
}

int mm_step_capture(struct mm_client *client, struct mm_gate_times *times)
{
	int r;
	struct mm_step *step = graph_step(client, times, &r);

	if (!step)
		return r;
	if (step->n_begun)
		return mm_fail(client, -EINVAL, "layer %u has no end", step->begun[0].layer);
	step->captured = true;
	step->times = times;
	step->last_layer = -1;
	step->gated = 0;
	return 0;
}

int mm_step_replay(struct mm_client *client, struct mm_gate_times *times)
{
	int r;
	struct mm_step *step = graph_step(client, times, &r);

	if (!step)
		return r;
	step->replayed = true;
	step->times = times;
	step->gated = 0;
	for (uint32_t i = 0; i < mm_client_layers(client); i++)
		step->gated += mm_client_model(client)->cycles[i + 1];
	mm_client_lock_take(&client->lock);
	client->sampling.graphs = true;
	mm_client_lock_give(&client->lock);
	return 0;
}

bool mm_step_wants_times(struct mm_client *client)
{
	struct mm_step *step;

	return client->gpu->cuEventRecordWithFlags && !mm_step_mine(client, &step) && step->due &&
	       step_count_waits(client, step);
}
