/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps that run on after their thread has let go of them. A host function behind the step's work
 * on each of its streams notes that the stream came there; the last one wakes the service thread,
 * which closes the step as mm_step_end() does. To the machine of steps it is open until then.
 */
#include <errno.h>
#include <sched.h>
#include <sys/eventfd.h>

#include "libclient/client/internal.h"
#include "libclient/support/clock.h"

#define LOOK_NS (50 * MM_NS_PER_MS) /* between two looks for a device that has failed */

/* ---- the end of the streams ---- */

/* Runs in a thread of the driver, and may call nothing of it. */
static void CUDA_CB stream_ended(void *arg)
{
	struct mm_step *step = arg;
	struct mm_client *c = step->client;

	__atomic_add_fetch(&c->marking, 1, __ATOMIC_ACQ_REL);
	__atomic_store_n(&step->end_ns, mm_now_ns(), __ATOMIC_RELAXED);
	/* With the last mark the step is another thread's. */
	if (__atomic_sub_fetch(&step->marks, 1, __ATOMIC_ACQ_REL) == 0)
		eventfd_write(c->mark_fd, 1);
	/* With this the client may be gone. */
	__atomic_sub_fetch(&c->marking, 1, __ATOMIC_ACQ_REL);
}

static bool has_come(const struct mm_step *step)
{
	return !__atomic_load_n(&step->marks, __ATOMIC_ACQUIRE);
}

/*
 * Enqueues the marks; the last of them is this thread's own, so that the step does not end before
 * it returns.
 */
static CUresult marks_enqueue(struct mm_client *c, struct mm_step *step)
{
	bool borrowed = mm_context_borrow(c);
	CUresult first = CUDA_SUCCESS;

	for (uint32_t i = 0; i < step->n_streams; i++) {
		CUresult res = c->gpu->cuLaunchHostFunc(step->streams[i], stream_ended, step);

		if (res) /* it never runs */
			__atomic_sub_fetch(&step->marks, 1, __ATOMIC_ACQ_REL);
		first = first ? first : res;
	}
	mm_context_give_back(c, borrowed);
	return first;
}

/* ---- the outcome ---- */

/* The oldest step that has not ended, if its streams have come to its end. */
static struct mm_step *step_to_finish(struct mm_client *c) MM_REQUIRES(mm_client_lock)
{
	for (struct mm_step *step = c->step_list; step; step = step->next)
		if (step->submitted && !step->ended && step->number == c->step_finished + 1)
			return has_come(step) && !step->finishing ? step : NULL;
	return NULL;
}

static void step_finish(struct mm_client *c, struct mm_step *step, uint64_t before_ns)
{
	struct mm_step_info info = { .gated = step->gated };
	struct mm_ending e = { .res = (CUresult)step->error };
	bool borrowed = mm_context_borrow(c);

	/* While the step before was running this one did not compute. */
	step->begin_ns = MM_MAX(step->begin_ns, MM_MIN(before_ns, step->end_ns));
	info.step_ns = step->end_ns - step->begin_ns;
	info.timed = !e.res && mm_times_read(c, step, &info.stall_ns);
	mm_context_give_back(c, borrowed);
	mm_step_shut(c, step, false, &info, &e);
	mm_client_lock_take(&c->lock);
	step->info = info;
	step->aborted = e.aborted;
	step->ended = true;
	step->finishing = false;
	c->step_finished = step->number;
	c->step_end_ns = step->end_ns;
	mm_event_push(c, &(struct mm_event){ .kind = MM_EVENT_STEP_ENDED, .count = 1 });
	pthread_cond_broadcast(&c->changed);
	mm_client_lock_give(&c->lock);
}

void mm_steps_finish(struct mm_client *client)
{
	struct mm_step *step;
	uint64_t before_ns;

	MM_CAPTURE_RELAXED(client);
	for (;;) {
		mm_client_lock_take(&client->lock);
		step = step_to_finish(client);
		if (step)
			step->finishing = true;
		before_ns = client->step_end_ns;
		mm_client_lock_give(&client->lock);
		if (!step)
			return;
		step_finish(client, step, before_ns);
	}
}

/* ---- calls ---- */

static void step_submit(struct mm_client *c, struct mm_step *step, CUstream stream)
{
	CUresult res = mm_step_complete(c, step, stream), marked;

	mm_client_lock_take(&c->lock);
	step->client = c;
	step->number = ++c->step_number;
	step->submitted = true;
	step->ended = step->finishing = false;
	step->error = 0;
	step->marks = step->n_streams + 1;
	step->end_ns = mm_now_ns();
	mm_client_lock_give(&c->lock);
	marked = marks_enqueue(c, step);
	step->error = res ? (int)res : (int)marked;
}

/* The layers of the step have ended, and @stream is one of its streams. */
static int submit_check(struct mm_client *c, struct mm_step *step, CUstream stream)
{
	if (step->n_begun)
		return mm_fail(c, -EINVAL, "layer %u has no end", step->begun[0].layer);
	return mm_step_stream_add(c, step, stream);
}

int mm_step_end_async(struct mm_client *client, void *stream, uint64_t *ret_step)
{
	struct mm_step *step;
	int r = mm_step_mine(client, &step);

	if (r)
		return r;
	r = submit_check(client, step, stream);
	if (r)
		return r;
	step = mm_step_claim(client);
	if (!step)
		return mm_fail(client, -EINVAL, "no step is open");
	MM_CAPTURE_RELAXED(client);
	step_submit(client, step, stream);
	*ret_step = step->number;
	stream_ended(step); /* this thread's mark */
	return 0;
}

static struct mm_step *step_of(struct mm_client *c, uint64_t number) MM_REQUIRES(mm_client_lock)
{
	for (struct mm_step *step = c->step_list; step; step = step->next)
		if (step->submitted && step->number == number)
			return step;
	return NULL;
}

/* A device that has failed may run no host function any more. */
static void device_look(struct mm_client *c, struct mm_step *step)
{
	CUresult res = CUDA_SUCCESS;

	for (uint32_t i = 0; i < step->n_streams && !has_come(step); i++) {
		bool borrowed = mm_context_borrow(c);

		res = c->gpu->cuStreamQuery(step->streams[i]);
		mm_context_give_back(c, borrowed);
		if (res && res != CUDA_ERROR_NOT_READY)
			break;
	}
	if (!res || res == CUDA_ERROR_NOT_READY)
		return;
	step->error = (int)res;
	__atomic_store_n(&step->marks, 0, __ATOMIC_RELEASE);
}

/* A step of a rank is over when all ranks have ended it, or this one cannot know. */
static bool step_ended_everywhere(const struct mm_client *c, const struct mm_step *step)
	MM_REQUIRES(mm_client_lock)
{
	return !step->group_step || c->dead || c->group.left || step->error ||
	       mm_group_all_ended(c, step->group_step);
}

/* Takes the outcome of @number into *@ret. Return: 0; -EAGAIN it runs still; -ENOENT. */
static int outcome_take(struct mm_client *c, uint64_t number, struct mm_step *ret, int *ret_dead)
{
	struct mm_step *step;
	int r = -EAGAIN;

	mm_client_lock_take(&c->lock);
	step = step_of(c, number);
	if (!step)
		r = -ENOENT;
	else if (step->ended && step_ended_everywhere(c, step)) {
		ret->info = step->info;
		ret->error = step->error;
		ret->aborted = step->aborted;
		ret->group_step = step->group_step;
		step->submitted = false;
		mm_event_drop(c, MM_EVENT_STEP_ENDED, 1);
		r = 0;
	}
	*ret_dead = c->dead;
	mm_client_lock_give(&c->lock);
	return r;
}

/* Waits a little for the step's end, also where no service thread runs any more. */
static void end_wait(struct mm_client *c, uint64_t number, uint64_t deadline_ns)
{
	const struct timespec until = mm_timespec(MM_MIN(deadline_ns, mm_now_ns() + LOOK_NS));
	struct mm_step *step;
	uint64_t elsewhere = 0;
	int r = 0;

	mm_client_lock_take(&c->lock);
	step = step_of(c, number);
	if (step && !step->ended)
		r = mm_client_lock_wait_until(&c->lock, &c->changed, &until);
	else if (step)
		elsewhere = step->group_step;
	mm_client_lock_give(&c->lock);
	if (elsewhere)
		mm_group_wait(c, elsewhere, MM_MIN(deadline_ns, mm_now_ns() + LOOK_NS));
	if (!r || !step)
		return;
	device_look(c, step);
	mm_steps_finish(c);
}

static int outcome_return(struct mm_client *c, const struct mm_step *step, int dead,
			  struct mm_step_info *ret_info)
{
	if (!dead && step->aborted && c->no_void)
		dead = mm_step_end_await(c);
	if (dead)
		return mm_fail(c, dead, "%s", c->dead_text);
	if (step->error)
		return mm_fail(c, -EIO, "the device failed: %s",
			       mm_gpu_strerror(c->gpu, (CUresult)step->error));
	if (step->aborted)
		return mm_fail(c, -ECANCELED, "the gates were aborted: repeat the step");
	if (step->group_step) {
		int r = mm_group_wait(c, step->group_step, UINT64_MAX);

		r = r ? r : mm_group_outcome(c, step->group_step);
		if (r)
			return r;
	}
	if (ret_info)
		mm_sized_write(ret_info, &step->info, sizeof(step->info));
	return 0;
}

int mm_step_wait(struct mm_client *client, uint64_t step, uint64_t timeout_ns,
		 struct mm_step_info *ret_info)
{
	const uint64_t deadline_ns = mm_deadline_ns(timeout_ns);
	struct mm_step outcome = { 0 };
	int dead = 0, r = mm_fork_is_child(client) ? mm_enter(client) : 0;

	if (!r && ret_info)
		r = mm_size_check(client, ret_info, MM_V1_STEP_INFO);
	if (r)
		return r;
	for (;;) {
		r = outcome_take(client, step, &outcome, &dead);
		if (r != -EAGAIN)
			break;
		if (mm_now_ns() >= deadline_ns)
			return mm_fail(client, -ETIMEDOUT, "the step runs still");
		end_wait(client, step, deadline_ns);
	}
	if (r)
		return mm_fail(client, r, "there is no such step, or its outcome was taken");
	return outcome_return(client, &outcome, dead, ret_info);
}

void mm_steps_settle(struct mm_client *client)
{
	struct mm_step *step;

	do {
		mm_client_lock_take(&client->lock);
		for (step = client->step_list; step; step = step->next)
			if (step->submitted && !step->ended)
				break;
		mm_client_lock_give(&client->lock);
		if (step)
			end_wait(client, step->number, UINT64_MAX);
	} while (step);
	while (__atomic_load_n(&client->marking, __ATOMIC_ACQUIRE))
		sched_yield();
}
