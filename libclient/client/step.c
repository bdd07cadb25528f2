/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: when they begin, the gates of their layers, and how they end. */
#include <errno.h>
#include <stdlib.h>

#include "libclient/client/internal.h"
#include "mm/client_model.h"
#include "libclient/support/clock.h"
#include "libclient/support/fault.h"

/* ---- what the machine puts out ---- */

void mm_step_out_perform(struct mm_client *c, const struct mm_steps_out *out)
{
	/* Steps are held up from PARKED until the plan is in force. */
	if (out->parked_epoch)
		c->parked_ns = mm_now_ns();
	if (out->entered && c->parked_ns) {
		c->held_ns += mm_now_ns() - c->parked_ns;
		c->parked_ns = 0;
	}
	if (out->turn_done)
		c->turn_event_due = false;
	if (out->abort_gates)
		mm_link_abort_gates(c);
	if (out->wake)
		pthread_cond_broadcast(&c->changed);
}

int mm_step_unlock(struct mm_client *c, const struct mm_steps_out *out)
{
	struct mm_msg words[MM_STEPS_MESSAGES_MAX];
	const uint32_t n = mm_steps_messages(out, words);
	int first = 0;

	mm_step_out_perform(c, out);
	mm_client_lock_give(&c->lock);
	for (uint32_t i = 0; i < n; i++) {
		int r = mm_link_push(c, &words[i]);

		first = first ? first : r;
		/*
		 * A turn can be asked for again. What else is lost mmd waits for, and the engine
		 * for mmd.
		 */
		if (r && words[i].opcode != MM_OP_TURN_WANT)
			mm_link_fail(c, -ECONNRESET, "mmd takes no requests any more");
	}
	return first;
}

/* ---- steps ---- */

bool mm_context_borrow(struct mm_client *c)
{
	CUdevice device;

	if (!c->gpu->cuCtxGetDevice(&device) && device == c->device)
		return false;
	return !c->gpu->cuCtxPushCurrent(c->context);
}

void mm_context_give_back(struct mm_client *c, bool borrowed)
{
	if (borrowed)
		c->gpu->cuCtxPopCurrent(&(CUcontext){ NULL });
}

/* Checks all gates: which of them a replayed graph waited at is not known. */
static bool gates_are_aborted(const struct mm_client *c)
{
	for (uint32_t i = 0; i < mm_client_layers(c); i++)
		if (__atomic_load_n(&c->gates->gate[i].high, __ATOMIC_ACQUIRE) &
		    (uint32_t)(MM_GATE_ABORT >> 32))
			return true;
	return false;
}

/* The number is odd while any step is open; mmd polls the gates then. */
static void step_seq_advance(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	c->step_seq++;
	__atomic_store_n(&c->tenant->stats.step_seq, c->step_seq, __ATOMIC_RELEASE);
	__atomic_store_n(&c->gates->step_seq, c->step_seq, __ATOMIC_RELEASE);
}

/* A closed step, which is used again with its events, or a new one. */
static struct mm_step *step_get(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	struct mm_step *step;

	for (step = c->step_list; step; step = step->next)
		if (!step->open && !step->submitted)
			return step;
	step = mm_fault("step.get") ? NULL : calloc(1, sizeof(*step));
	if (!step)
		return NULL;
	step->next = c->step_list;
	c->step_list = step;
	return step;
}

/*
 * The number of the calling thread. A pthread_t would not do: when a thread has ended and left its
 * step to others, a new thread may get the same one.
 */
static uint64_t thread_number(void)
{
	static _Thread_local uint64_t number;
	static uint64_t last;

	if (!number)
		number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return number;
}

/* The open step of this thread, or NULL. */
static struct mm_step *step_own(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	for (struct mm_step *step = c->step_list; step; step = step->next)
		if (step->open && !step->submitted && step->thread == thread_number())
			return step;
	return NULL;
}

/* An open step of any thread that does not run on, or NULL: a rank has one at a time. */
static struct mm_step *step_any(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	for (struct mm_step *step = c->step_list; step; step = step->next)
		if (step->open && !step->submitted)
			return step;
	return NULL;
}

/* The open step of any thread if there is exactly one that does not run on, or NULL. */
static struct mm_step *step_only(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	struct mm_step *only = NULL;

	for (struct mm_step *step = c->step_list; step; step = step->next) {
		if (!step->open || step->submitted)
			continue;
		if (only)
			return NULL;
		only = step;
	}
	return only;
}

/*
 * Whether the next step of a rank, or of one that is ahead of it, would take the place of an
 * outcome that a thread still waits for.
 */
static bool outcome_is_needed(const struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	for (const struct mm_step *step = c->step_list; step; step = step->next)
		if (step->submitted && step->group_step &&
		    step->group_step + MM_GROUP_STEPS - MM_GROUP_AHEAD <= c->group.steps + 1)
			return true;
	return false;
}

/* Whether this thread has as many steps whose outcome it did not take as it may. */
static bool steps_are_many(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	uint32_t n = 0;

	for (struct mm_step *step = c->step_list; step; step = step->next)
		n += step->submitted && step->thread == thread_number();
	return n >= MM_STEPS_SUBMITTED;
}

/*
 * The open step of this thread, or else the only one: engines change threads within a step. NULL
 * also if it is being closed.
 */
static struct mm_step *step_find(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	struct mm_step *own = step_own(c), *step = own ? own : step_only(c);

	return step && !step->closing ? step : NULL;
}

static struct mm_step *step_current(struct mm_client *c)
{
	struct mm_step *step;

	mm_client_lock_take(&c->lock);
	step = step_find(c);
	mm_client_lock_give(&c->lock);
	return step;
}

static int process_check(struct mm_client *c)
{
	int r = mm_enter(c);

	/* A step can be closed after the connection has died: step_close() returns its errno. */
	return r == -ECHILD ? r : 0;
}

int mm_step_mine(struct mm_client *c, struct mm_step **ret_step)
{
	int r = process_check(c);

	if (r)
		return r;
	*ret_step = step_current(c);
	return *ret_step ? 0 : mm_fail(c, -EINVAL, "no step is open");
}

static void step_open(struct mm_client *c, struct mm_step *step) MM_REQUIRES(mm_client_lock)
{
	step->open = true;
	step->closing = false;
	step->thread = thread_number();
	step->begin_ns = mm_now_ns();
	step->last_layer = -1;
	step->n_begun = step->n_streams = 0;
	step->gated = step->n_timed = 0;
	step->times = NULL;
	step->captured = step->replayed = step->unknown = false;
	step->group_step = mm_group_is_joined(c) ? ++c->group.steps : 0;
	step->times_all = mm_steps_in_window(&c->steps);
	step->due = mm_times_due(c);
	mm_steps_begin(&c->steps);
	if (c->steps.open == 1)
		step_seq_advance(c);
}

/*
 * Waits until a step may begin: no plan change and no other tenant's turn prevents it. The lock is
 * released meanwhile.
 */
static int step_wait(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	struct mm_patience patience = mm_patience_of(c->timeout_ns);
	enum mm_steps_may may;
	bool waited = false;
	int r = 0;

	while (!r && (may = mm_steps_may_begin(&c->steps, gates_are_aborted(c))) != MM_STEPS_MAY) {
		waited |= mm_steps_lacks_turn(&c->steps);
		r = may == MM_STEPS_MUST_REQUEST_TURN ? mm_turn_request(c)
						      : mm_link_wait_for_mmd(c, &patience);
	}
	if (!r && waited)
		mm_turn_event_drop(c);
	return r ? r : c->dead;
}

static const char *step_busy_text(const struct mm_step *own, bool ranked)
{
	if (!own)
		return "steps of before are not waited for: mm_step_wait()";
	return ranked ? "a rank has one step open at a time: end it first"
		      : "this thread has a step open: end it first";
}

int mm_step_begin(struct mm_client *client)
{
	struct mm_step *step = NULL, *own;
	const bool ranked = mm_group_is_joined(client);
	uint64_t falls;
	int r = mm_enter(client);

	if (!r && ranked)
		r = mm_group_may_begin(client);
	if (r)
		return r;
	mm_client_lock_take(&client->lock);
	/* With a step open it could wait for ever: a plan change waits for that step. */
	own = ranked ? step_any(client) : step_own(client);
	falls = mm_cold_falls(client->cold);
	r = own || steps_are_many(client) || outcome_is_needed(client) ? -EBUSY : step_wait(client);
	if (!r && mm_cold_fell(client->cold, falls))
		r = -ESTALE;
	if (!r)
		step = step_get(client);
	if (step)
		step_open(client, step);
	mm_client_lock_give(&client->lock);
	if (r == -EBUSY)
		return mm_fail(client, r, "%s", step_busy_text(own, ranked));
	if (r == -ESTALE)
		return mm_fail(client, r, "fewer cold blocks may be read: plan the step anew");
	if (r == -ETIMEDOUT)
		return mm_fail(
			client, r,
			"mmd did not let the step begin in time: a plan change, or not our turn");
	if (r)
		return mm_fail(client, r, "%s", client->dead_text);
	return step ? 0 : mm_fail(client, -ENOMEM, "out of memory");
}

/*
 * Whether layers that cycle were not run to their end: the next step would wait for ever at
 * their gates.
 */
static bool step_broke_off(const struct mm_client *c, const struct mm_step *step, bool abandon)
	MM_REQUIRES(mm_client_lock)
{
	if (!mm_client_layers(c) || !c->steps.plan.cycling)
		return false;
	if (abandon)
		return true;
	if (step->last_layer < 0)
		return false; /* no layer was bracketed: there was none, or a graph ran all */
	if (step->n_begun)
		return true;
	for (uint32_t i = (uint32_t)(step->last_layer + 1); i < mm_client_layers(c); i++)
		if (c->model->cycles[i + 1])
			return true;
	return false;
}

/* Waits at a layer's gate and marks it as used, on behalf of a step that passes over it. */
static CUresult layer_pass(struct mm_client *c, struct mm_step *step, uint32_t layer,
			   CUstream stream);
static CUresult gate_write_done(struct mm_client *c, uint32_t layer, CUstream stream);

CUresult mm_step_complete(struct mm_client *c, struct mm_step *step, CUstream stream)
{
	CUresult res = CUDA_SUCCESS;
	bool cycles;

	mm_client_lock_take(&c->lock);
	cycles = c->steps.plan.cycling;
	mm_client_lock_give(&c->lock);
	/* No layer was begun, or a graph ran all; or a capture broke off, and none has run. */
	if (!cycles || step->last_layer < 0 || step->captured)
		return res;
	while (!res && step->n_begun) {
		const struct mm_begun *begun = &step->begun[step->n_begun - 1];

		res = gate_write_done(c, begun->layer, begun->stream);
		step->n_begun -= !res;
	}
	while (!res && step->last_layer + 1 < (int64_t)mm_client_layers(c)) {
		res = layer_pass(c, step, (uint32_t)(step->last_layer + 1), stream);
		step->last_layer += !res;
	}
	return res;
}

/* Synchronises all streams, also after one failed: no work of the step may go on. */
static CUresult streams_sync(struct mm_client *c, const struct mm_step *step, CUstream stream)
{
	CUresult first = c->gpu->cuStreamSynchronize(stream);

	for (uint32_t i = 0; i < step->n_streams; i++) {
		CUresult res = step->streams[i] == stream
				       ? CUDA_SUCCESS
				       : c->gpu->cuStreamSynchronize(step->streams[i]);

		first = first ? first : res;
	}
	return first;
}

static struct mm_step_info step_sync(struct mm_client *c, const struct mm_step *step,
				     CUstream stream, CUresult *ret_res)
{
	bool borrowed = mm_context_borrow(c);
	struct mm_step_info info = { .gated = step->gated };

	MM_CAPTURE_RELAXED(c);
	*ret_res = streams_sync(c, step, stream);
	info.step_ns = mm_now_ns() - step->begin_ns;
	info.timed = !*ret_res && mm_times_read(c, step, &info.stall_ns);
	mm_context_give_back(c, borrowed);
	return info;
}

/*
 * Aborts the gates, since the results of the step are void: its streams do not wait until layers
 * are copied. They must still wait for layers that are being mapped.
 */
static void step_abort(struct mm_client *c)
{
	mm_client_lock_take(&c->lock);
	while (mm_steps_in_window(&c->steps))
		mm_client_lock_wait(&c->lock, &c->changed);
	for (uint32_t i = 0; c->steps.plan.cycling && i < mm_client_layers(c); i++)
		__atomic_fetch_or(&c->gates->gate[i].high, (uint32_t)(MM_GATE_ABORT >> 32),
				  __ATOMIC_SEQ_CST);
	mm_client_lock_give(&c->lock);
}

void mm_step_shut(struct mm_client *c, struct mm_step *step, bool abandon,
		  const struct mm_step_info *info, struct mm_ending *e)
{
	struct mm_steps_out out = { 0 };
	uint64_t ranked;
	bool broke_off;

	mm_client_lock_take(&c->lock);
	e->aborted = gates_are_aborted(c);
	broke_off = step_broke_off(c, step, abandon);
	if (!e->aborted && !broke_off && !e->res)
		mm_times_account(c, step, info);
	ranked = step->group_step;
	step->open = false; /* from here on another thread may use it */
	mm_steps_end(&c->steps, broke_off, &out);
	if (!c->steps.open)
		step_seq_advance(c);
	e->dead = c->dead;
	mm_step_unlock(c, &out);
	if (!ranked)
		return;
	if (e->res)
		mm_group_step_ended(c, ranked, MM_GROUP_FAILED);
	else
		mm_group_step_ended(c, ranked,
				    e->aborted || broke_off || e->abandoned ? MM_GROUP_VOID
									    : MM_GROUP_DONE);
}

struct mm_step *mm_step_claim(struct mm_client *c)
{
	struct mm_step *step;

	mm_client_lock_take(&c->lock);
	step = step_find(c);
	if (step)
		step->closing = true;
	mm_client_lock_give(&c->lock);
	return step;
}

int mm_step_end_await(struct mm_client *c)
{
	const uint64_t deadline_ns = mm_deadline_ns(MM_END_WAIT_NS);
	int dead, r = 0;

	mm_client_lock_take(&c->lock);
	while (!r)
		r = mm_link_wait(c, deadline_ns);
	dead = c->dead;
	mm_client_lock_give(&c->lock);
	if (!dead)
		mm_link_fail(c, -ECONNRESET, "the gates were aborted, and no step may be void");
	return dead ? dead : -ECONNRESET;
}

/* Prepares the end of a step that breaks off, or may. Return: whether it is broken. */
static bool step_break_off(struct mm_client *c, struct mm_step *step, CUstream stream, bool abandon)
{
	if (c->no_void)
		return mm_step_complete(c, step, stream) != CUDA_SUCCESS;
	if (abandon)
		step_abort(c);
	return abandon;
}

static int step_close(struct mm_client *c, CUstream stream, bool abandon,
		      struct mm_step_info *ret_info)
{
	struct mm_step *step = mm_step_claim(c);
	struct mm_ending e = { .abandoned = abandon };
	struct mm_step_info info;
	uint64_t ranked;
	bool broken;
	int r = 0;

	if (!step)
		return mm_fail(c, -EINVAL, "no step is open");
	broken = step_break_off(c, step, stream, abandon);
	info = step_sync(c, step, stream, &e.res);
	ranked = step->group_step;
	mm_step_shut(c, step, broken, &info, &e);
	if (!e.dead && e.aborted && c->no_void)
		e.dead = mm_step_end_await(c);
	if (e.dead)
		return mm_fail(c, e.dead, "%s", c->dead_text);
	if (e.res)
		return mm_fail(c, -EIO, "the device failed: %s", mm_gpu_strerror(c->gpu, e.res));
	if (e.aborted && !abandon)
		return mm_fail(c, -ECANCELED, "the gates were aborted: repeat the step");
	/* The rank that abandons a step may be the one for which the others wait. */
	if (ranked && !abandon)
		r = mm_group_wait(c, ranked, UINT64_MAX);
	if (ranked && !abandon && !r)
		r = mm_group_outcome(c, ranked);
	if (!r && ret_info)
		mm_sized_write(ret_info, &info, sizeof(info));
	return r;
}

int mm_step_end(struct mm_client *client, void *stream, struct mm_step_info *ret_info)
{
	int r = process_check(client);

	if (!r && ret_info)
		r = mm_size_check(client, ret_info, MM_V1_STEP_INFO);
	return r ? r : step_close(client, stream, false, ret_info);
}

int mm_step_abandon(struct mm_client *client, void *stream)
{
	int r = process_check(client);

	return r ? r : step_close(client, stream, true, NULL);
}

int mm_step_stream_add(struct mm_client *c, struct mm_step *step, CUstream stream)
{
	for (uint32_t i = 0; i < step->n_streams; i++)
		if (step->streams[i] == stream)
			return 0;
	if (step->n_streams == MM_STEP_STREAMS)
		return mm_fail(c, -E2BIG, "a step has at most %d streams", MM_STEP_STREAMS);
	step->streams[step->n_streams++] = stream;
	return 0;
}

int mm_step_join(struct mm_client *client, void *stream)
{
	struct mm_step *step;
	int r = mm_step_mine(client, &step);

	return r ? r : mm_step_stream_add(client, step, stream);
}

/* Not checked: no other thread uses a client that is being closed. */
void mm_step_destroy_all(struct mm_client *client) MM_NO_THREAD_SAFETY_ANALYSIS
{
	while (client->step_list) {
		struct mm_step *step = client->step_list;

		client->step_list = step->next;
		for (uint32_t i = 0; i < step->n_events; i++)
			client->gpu->cuEventDestroy(step->events[i]);
		free(step->events);
		free(step);
	}
}

/* ---- layers ---- */

static CUdeviceptr gate_va(const struct mm_client *c, uint32_t layer)
{
	return c->gates_va + offsetof(struct mm_gate_region, gate) + layer * sizeof(struct mm_gate);
}

static CUresult gate_wait(struct mm_client *c, struct mm_step *step, uint32_t layer,
			  CUstream stream)
{
	bool borrowed = mm_context_borrow(c);
	struct mm_timed timed;
	CUresult res = mm_times_before(c, step, layer, stream, &timed);

	if (!res)
		res = c->gpu->cuStreamWaitValue64(stream, gate_va(c, layer), MM_GATE_PASS,
						  CU_STREAM_WAIT_VALUE_AND);
	if (!res)
		res = mm_times_after(c, step, &timed, stream);
	mm_context_give_back(c, borrowed);
	return res;
}

static CUresult gate_write_done(struct mm_client *c, uint32_t layer, CUstream stream)
{
	bool borrowed = mm_context_borrow(c);
	CUresult res = c->gpu->cuStreamWriteValue32(
		stream, gate_va(c, layer) + offsetof(struct mm_gate, low), (uint32_t)MM_GATE_DONE,
		CU_STREAM_WRITE_VALUE_DEFAULT);

	mm_context_give_back(c, borrowed);
	return res;
}

static CUresult layer_pass(struct mm_client *c, struct mm_step *step, uint32_t layer,
			   CUstream stream)
{
	CUresult res = gate_wait(c, step, layer, stream);

	return res ? res : gate_write_done(c, layer, stream);
}

static int layer_of_step(struct mm_model *model, uint32_t layer, struct mm_step **ret_step)
{
	struct mm_client *c = model->client;
	int r = process_check(c);

	if (r)
		return r;
	if (!mm_client_layers(c))
		return mm_fail(c, -EINVAL, "layer %u: the model is being unloaded", layer);
	if (layer >= model->dir.n_groups - 1)
		return mm_fail(c, -EINVAL, "layer %u: the model has %u", layer,
			       model->dir.n_groups - 1);
	*ret_step = step_current(c);
	return *ret_step ? 0 : mm_fail(c, -EINVAL, "layer %u: no step is open", layer);
}

static int layer_fail(struct mm_client *c, uint32_t layer, CUresult res)
{
	return mm_fail(c, -EIO, "layer %u: %s", layer, mm_gpu_strerror(c->gpu, res));
}

/*
 * Waits for the layers that the engine skips, and marks them as used. A cycling layer that is
 * skipped would never release its slot to the next one, and the stream would wait for ever. Layers
 * that do not cycle are treated alike: a captured graph must fit every plan.
 */
static int layers_pass_over(struct mm_model *model, struct mm_step *step, uint32_t layer,
			    CUstream stream)
{
	struct mm_client *c = model->client;
	CUresult res = CUDA_SUCCESS;

	while (!res && step->last_layer + 1 < (int64_t)layer) {
		res = layer_pass(c, step, (uint32_t)(step->last_layer + 1), stream);
		step->last_layer += !res;
	}
	return res ? layer_fail(c, (uint32_t)(step->last_layer + 1), res) : 0;
}

static struct mm_begun *begun_find(struct mm_step *step, uint32_t layer)
{
	for (uint32_t i = 0; i < step->n_begun; i++)
		if (step->begun[i].layer == layer)
			return &step->begun[i];
	return NULL;
}

static int layer_begin_check(struct mm_client *c, const struct mm_step *step, uint32_t layer,
			     CUstream stream)
{
	if ((int64_t)layer <= step->last_layer)
		return mm_fail(c, -EINVAL, "layer %u: begun after layer %d", layer,
			       (int)step->last_layer);
	for (uint32_t i = 0; i < step->n_begun; i++)
		if (step->begun[i].stream == stream)
			return mm_fail(c, -EINVAL,
				       "layer %u: begun after layer %u, which has no end", layer,
				       step->begun[i].layer);
	if (step->n_begun == MM_STEP_BEGUN)
		return mm_fail(c, -E2BIG, "layer %u: %u layers have no end", layer, step->n_begun);
	return 0;
}

int mm_layer_begin(struct mm_model *model, uint32_t layer, void *stream)
{
	struct mm_client *c = model->client;
	struct mm_step *step;
	CUresult res;
	int r = layer_of_step(model, layer, &step);

	if (!r)
		r = layer_begin_check(c, step, layer, stream);
	if (!r)
		r = mm_step_stream_add(c, step, stream);
	if (!r)
		r = layers_pass_over(model, step, layer, stream);
	if (r)
		return r;
	res = gate_wait(c, step, layer, stream);
	if (res)
		return layer_fail(c, layer, res);
	step->gated += model->cycles[layer + 1];
	step->last_layer = layer;
	step->begun[step->n_begun++] = (struct mm_begun){ layer, stream };
	return 0;
}

int mm_layer_home(struct mm_model *model, uint32_t layer)
{
	struct mm_client *c = model->client;
	struct mm_step *step;
	int r = layer_of_step(model, layer, &step);

	if (r)
		return r;
	if (!begun_find(step, layer))
		return mm_fail(c, -EINVAL, "layer %u: was not begun", layer);
	/* Not READY: that may be of a slot whose last use is still enqueued. */
	return !!(__atomic_load_n(&c->gates->gate[layer].high, __ATOMIC_ACQUIRE) &
		  (uint32_t)(MM_GATE_RESIDENT >> 32));
}

int mm_layer_end(struct mm_model *model, uint32_t layer, void *stream)
{
	struct mm_client *c = model->client;
	struct mm_begun *begun;
	struct mm_step *step;
	CUresult res;
	int r = layer_of_step(model, layer, &step);

	if (r)
		return r;
	begun = begun_find(step, layer);
	if (!begun)
		return mm_fail(c, -EINVAL, "layer %u: was not begun", layer);
	if (begun->stream != stream)
		return mm_fail(c, -EINVAL, "layer %u: was begun on another stream", layer);
	res = gate_write_done(c, layer, stream);
	if (res)
		return layer_fail(c, layer, res);
	*begun = step->begun[--step->n_begun];
	return 0;
}
