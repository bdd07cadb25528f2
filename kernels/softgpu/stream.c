/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/fault.h"
#include "kernels/softgpu/graph.h"
#include "kernels/softgpu/op.h"
#include "kernels/softgpu/stream.h"
#include "kernels/softgpu/timed.h"
#include "libclient/base/base.h"
#include "libclient/support/cleanup.h"

#define TIMER_SLACK_NS 1000UL
#define STOP_LOOK_NS   (10 * MM_NS_PER_MS)
#define HELD_MAX       64
#define LATE_NS        (20 * MM_NS_PER_MS)
#define LATE_LOOK_NS   50000L

static uint64_t last_stream_id; /* atomic */

static uint64_t atomic_get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}

static bool stream_has_run(const struct sg_stream *stream, uint64_t number)
{
	return atomic_get(&stream->completed) >= number;
}

static bool stream_is_timed(const struct sg_stream *stream)
{
	return stream->ends_ns != NULL;
}

/*
 * Return: the device time at which @number, which has run, ends. Only the last SG_STREAM_ENDS ends
 * are kept: for older work, the end of the oldest that is kept, which is later.
 */
static uint64_t work_end_of(const struct sg_stream *stream, uint64_t number)
{
	uint64_t completed = atomic_get(&stream->completed);

	if (completed - number >= SG_STREAM_ENDS)
		number = completed - SG_STREAM_ENDS + 1;
	return number ? atomic_get(&stream->ends_ns[number % SG_STREAM_ENDS]) : 0;
}

/* Wakes the worker for work that was queued without waking it. */
static void worker_wake(struct sg_stream *stream)
{
	sg_stream_mutex_take(&stream->mtx);
	if (stream->held)
		pthread_cond_signal(&stream->work);
	stream->held = 0;
	sg_stream_mutex_give(&stream->mtx);
}

bool sg_stream_is_done(struct sg_stream *stream, uint64_t number)
{
	if (!stream_has_run(stream, number)) {
		if (stream_is_timed(stream))
			worker_wake(stream);
		return false;
	}
	return !stream_is_timed(stream) ||
	       sg_timed_now(stream->ctx->device) >= work_end_of(stream, number);
}

static void stream_unlink(struct sg_stream *stream)
{
	struct sg_context *ctx = stream->ctx;

	sg_context_mutex_take(&ctx->mtx);
	for (struct sg_stream **p = &ctx->streams; *p; p = &(*p)->next)
		if (*p == stream) {
			*p = stream->next;
			break;
		}
	sg_context_mutex_give(&ctx->mtx);
}

static void destroy_stream(struct sg_object *object)
{
	struct sg_stream *stream = (struct sg_stream *)object;

	pthread_cond_destroy(&stream->work);
	pthread_cond_destroy(&stream->done);
	sg_stream_mutex_destroy(&stream->mtx);
	sg_object_put(&stream->ctx->object);
	free(stream->ends_ns);
	free(stream->ahead);
	free(stream->edges);
	free(stream);
}

/* Not analysed: no other thread has the stream yet. */
static void stream_queue_init(struct sg_stream *stream) MM_NO_THREAD_SAFETY_ANALYSIS
{
	stream->tail = &stream->head;
	sg_stream_mutex_init(&stream->mtx);
	pthread_cond_init(&stream->work, NULL);
	pthread_cond_init(&stream->done, NULL);
}

CUresult sg_stream_create(struct sg_context *ctx, unsigned int flags, int priority,
			  struct sg_stream **ret_stream)
{
	struct sg_stream *stream = calloc(1, sizeof(*stream));

	if (stream && sg_is_timed(ctx->device)) {
		stream->ends_ns = calloc(SG_STREAM_ENDS, sizeof(*stream->ends_ns));
		if (!stream->ends_ns)
			mm_free_ptr(&stream);
	}
	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_init(&stream->object, SG_STREAM, destroy_stream);
	sg_object_ref(&ctx->object);
	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority;
	stream->id = __atomic_add_fetch(&last_stream_id, 1, __ATOMIC_RELAXED);
	stream_queue_init(stream);
	sg_context_mutex_take(&ctx->mtx);
	stream->next = ctx->streams;
	ctx->streams = stream;
	sg_context_mutex_give(&ctx->mtx);
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

static CUresult stream_get_legacy(struct sg_context *ctx, struct sg_stream **ret_stream)
{
	struct sg_stream *stream = __atomic_load_n(&ctx->legacy, __ATOMIC_ACQUIRE), *other = NULL;
	CUresult res;

	if (!stream) {
		res = sg_stream_create(ctx, CU_STREAM_DEFAULT, 0, &stream);
		if (res)
			return res;
		if (!__atomic_compare_exchange_n(&ctx->legacy, &other, stream, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			sg_stream_close(stream);
			stream = other;
		}
	}
	sg_object_ref(&stream->object);
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

static CUresult stream_get_per_thread(struct sg_context *ctx, struct sg_stream **ret_stream)
{
	struct sg_stream *stream;
	pid_t self = gettid();
	CUresult res;

	sg_context_mutex_take(&ctx->mtx);
	for (stream = ctx->streams; stream && stream->thread != self; stream = stream->next)
		;
	if (stream)
		sg_object_ref(&stream->object);
	sg_context_mutex_give(&ctx->mtx);
	if (!stream) {
		res = sg_stream_create(ctx, CU_STREAM_DEFAULT, 0, &stream);
		if (res)
			return res;
		/*
		 * No other thread looks for this thread's default stream, so that none can make it
		 * meanwhile.
		 */
		sg_context_mutex_take(&ctx->mtx);
		stream->thread = self;
		sg_context_mutex_give(&ctx->mtx);
		sg_object_ref(&stream->object);
	}
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

CUresult sg_stream_get(CUstream handle, struct sg_stream **ret_stream)
{
	struct sg_context *ctx;
	struct sg_stream *stream;
	CUresult res;

	res = sg_context_current(&ctx);
	if (res)
		return res;
	if (!handle || handle == CU_STREAM_LEGACY)
		return stream_get_legacy(ctx, ret_stream);
	if (handle == CU_STREAM_PER_THREAD)
		return stream_get_per_thread(ctx, ret_stream);
	stream = sg_object_get(handle, SG_STREAM);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	res = sg_context_error(stream->ctx);
	if (res) {
		sg_stream_put(stream);
		return res;
	}
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

void sg_stream_put(struct sg_stream *stream)
{
	sg_object_put(&stream->object);
}

static void work_run_or_drop(struct sg_stream *stream, struct sg_op *op)
{
	struct sg_context *ctx = stream->ctx;

	if (sg_context_error(ctx) || __atomic_load_n(&ctx->stopping, __ATOMIC_ACQUIRE))
		sg_op_drop(op, ctx);
	else
		sg_op_run(op, stream);
}

static void work_complete(struct sg_stream *stream) MM_REQUIRES(sg_stream_mutex)
{
	uint64_t number = stream->completed + 1;

	if (stream_is_timed(stream))
		__atomic_store_n(&stream->ends_ns[number % SG_STREAM_ENDS], stream->time_ns,
				 __ATOMIC_RELEASE);
	__atomic_store_n(&stream->completed, number, __ATOMIC_RELEASE);
	if (stream->waiters)
		pthread_cond_broadcast(&stream->done);
}

/* Each step counts as done when it is, except the last, which is the end of the whole op. */
static void work_run_graph(struct sg_stream *stream, const struct sg_op *op)
{
	struct sg_step step = { 0 };
	bool first = true;

	while (sg_launch_next(op->graph.launch, &step)) {
		if (!first) {
			sg_stream_mutex_take(&stream->mtx);
			work_complete(stream);
			sg_stream_mutex_give(&stream->mtx);
		}
		first = false;
		step.op.submitted_ns = op->submitted_ns;
		work_run_or_drop(stream, &step.op);
	}
}

static bool work_is_awaited(struct sg_stream *stream)
{
	bool awaited;

	sg_stream_mutex_take(&stream->mtx);
	awaited = stream->waiters || stream->head || stream->closed;
	sg_stream_mutex_give(&stream->mtx);
	return awaited || __atomic_load_n(&stream->ctx->stopping, __ATOMIC_ACQUIRE);
}

/*
 * A program that waits for nothing finds the work undone. Another stream that needs it, and is not
 * ordered behind it, goes wrong here as it may on hardware.
 */
static void work_dawdle(struct sg_stream *stream)
{
	const struct timespec look = { .tv_nsec = LATE_LOOK_NS };

	for (uint64_t ns = 0; ns < LATE_NS && !work_is_awaited(stream); ns += LATE_LOOK_NS)
		nanosleep(&look, NULL);
}

static void work_execute(struct sg_stream *stream, struct sg_op *op)
{
	if (op->late)
		work_dawdle(stream);
	if (op->kind == SG_OP_GRAPH)
		work_run_graph(stream, op);
	else
		work_run_or_drop(stream, op);
	sg_op_destroy(op);
}

static void *stream_worker(void *arg)
{
	struct sg_stream *stream = arg;
	struct sg_op *op;

	prctl(PR_SET_NAME, "softgpu-stream");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	sg_fault_install();
	sg_stream_mutex_take(&stream->mtx);
	for (;;) {
		while (!stream->head && !stream->closed)
			sg_stream_mutex_wait(&stream->mtx, &stream->work);
		op = stream->head;
		if (!op)
			break;
		stream->head = op->next;
		if (!stream->head)
			stream->tail = &stream->head;
		sg_stream_mutex_give(&stream->mtx);
		work_execute(stream, op);
		sg_stream_mutex_take(&stream->mtx);
		work_complete(stream);
	}
	sg_stream_mutex_give(&stream->mtx);
	stream_unlink(stream);
	sg_stream_put(stream);
	return NULL;
}

/*
 * The worker blocks all signals: they are for the program's threads. A fault of its own access
 * cannot be blocked.
 */
static int worker_start(struct sg_stream *stream) MM_REQUIRES(sg_stream_mutex)
{
	pthread_attr_t attr;
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sg_object_ref(&stream->object);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, stream_worker, stream);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		sg_stream_put(stream);
	else
		stream->working = true;
	return err;
}

/*
 * In timed mode, work without a visible effect does not wake the worker, until there is much of it
 * or other work follows: waking it for each of some hundred kernels would take longer than their
 * arithmetic.
 */
static bool work_wakes_worker(struct sg_stream *stream, const struct sg_op *op)
	MM_REQUIRES(sg_stream_mutex)
{
	if (!stream_is_timed(stream))
		return true;
	if (op->kind == SG_OP_LAUNCH || op->kind == SG_OP_FILL || op->kind == SG_OP_COPY)
		return ++stream->held >= HELD_MAX;
	return true;
}

/* Takes over @op, also when it fails. */
static CUresult work_append(struct sg_stream *stream, struct sg_op *op, uint64_t *ret_number)
{
	CUresult res = CUDA_SUCCESS;

	sg_stream_mutex_take(&stream->mtx);
	if (stream->closed)
		res = CUDA_ERROR_INVALID_HANDLE;
	else if (!stream->working && worker_start(stream))
		res = CUDA_ERROR_OUT_OF_MEMORY;
	if (!res) {
		*stream->tail = op;
		stream->tail = &op->next;
		__atomic_store_n(&stream->queued, stream->queued + op->steps, __ATOMIC_RELEASE);
		if (ret_number)
			*ret_number = stream->queued;
		if (stream_is_timed(stream))
			op->submitted_ns = op->kind == SG_OP_WAIT_STREAM || op->kind == SG_OP_SETTLE
						   ? sg_timed_now(stream->ctx->device)
						   : sg_timed_submit(stream->ctx->device);
		if (work_wakes_worker(stream, op)) {
			stream->held = 0;
			pthread_cond_signal(&stream->work);
		}
	}
	sg_stream_mutex_give(&stream->mtx);
	if (res)
		sg_op_destroy(op);
	return res;
}

static CUresult stream_append_dependency(struct sg_stream *stream, struct sg_stream *on)
{
	uint64_t number = atomic_get(&on->queued);
	struct sg_op *op;

	if (sg_stream_is_done(on, number))
		return CUDA_SUCCESS;
	op = sg_op_create(SG_OP_WAIT_STREAM);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_ref(&on->object);
	op->wait.stream = on;
	op->wait.number = number;
	return work_append(stream, op, NULL);
}

/*
 * No references are taken: ctx->mtx keeps the streams in the list, and a stream that is in it
 * lives.
 */
static CUresult legacy_order_after_all(struct sg_stream *legacy)
{
	struct sg_context *ctx = legacy->ctx;
	CUresult res = CUDA_SUCCESS;

	sg_context_mutex_take(&ctx->mtx);
	for (struct sg_stream *s = ctx->streams; s && !res; s = s->next)
		if (s != legacy && !(s->flags & CU_STREAM_NON_BLOCKING))
			res = stream_append_dependency(legacy, s);
	sg_context_mutex_give(&ctx->mtx);
	return res;
}

CUresult sg_stream_submit(struct sg_stream *stream, struct sg_op *op, uint64_t *ret_number)
{
	struct sg_stream *legacy = __atomic_load_n(&stream->ctx->legacy, __ATOMIC_ACQUIRE);
	CUresult res = CUDA_SUCCESS;

	if (sg_capture_is_on(stream)) {
		if (ret_number)
			*ret_number = 0;
		return sg_capture_add(stream, sg_graph_type_of(op), &op, 1);
	}
	if (stream == legacy) {
		res = sg_capture_check_legacy(stream->ctx);
		if (!res)
			res = legacy_order_after_all(stream);
	} else if (legacy && !(stream->flags & CU_STREAM_NON_BLOCKING)) {
		res = stream_append_dependency(stream, legacy);
	}
	if (res) {
		sg_op_destroy(op);
		return res;
	}
	return work_append(stream, op, ret_number);
}

static void stream_wait_until_run(struct sg_stream *stream, uint64_t number, const bool *stop)
{
	struct timespec until;

	if (stream_has_run(stream, number))
		return;
	if (stream_is_timed(stream))
		worker_wake(stream);
	sg_stream_mutex_take(&stream->mtx);
	stream->waiters++;
	while (!stream_has_run(stream, number)) {
		if (!stop) {
			sg_stream_mutex_wait(&stream->mtx, &stream->done);
			continue;
		}
		if (__atomic_load_n(stop, __ATOMIC_ACQUIRE))
			break;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += (long)STOP_LOOK_NS;
		until.tv_sec += until.tv_nsec / (long)MM_NS_PER_S;
		until.tv_nsec %= (long)MM_NS_PER_S;
		sg_stream_mutex_wait_until(&stream->mtx, &stream->done, &until);
	}
	stream->waiters--;
	sg_stream_mutex_give(&stream->mtx);
}

uint64_t sg_stream_end_of(struct sg_stream *stream, uint64_t number, const bool *stop)
{
	stream_wait_until_run(stream, number, stop);
	return stream_has_run(stream, number) ? work_end_of(stream, number) : 0;
}

void sg_stream_wait(struct sg_stream *stream, uint64_t number, const bool *stop)
{
	unsigned int device = stream->ctx->device;
	bool blocks = !stream_has_run(stream, number);
	uint64_t end;

	stream_wait_until_run(stream, number, stop);
	if (!stream_is_timed(stream) || !stream_has_run(stream, number))
		return;
	end = work_end_of(stream, number);
	if (sg_timed_now(device) < end && !sg_context_error(stream->ctx)) {
		sg_timed_until(device, end, stop ? stop : &stream->ctx->stopping, true);
		blocks = true;
	}
	if (blocks)
		sg_timed_woke(device, end);
}

CUresult sg_stream_synchronize(struct sg_stream *stream)
{
	uint64_t number = atomic_get(&stream->queued);
	struct sg_op *op = NULL;

	/* The end of kernels that are last in the stream is known only when they are over. */
	if (stream_is_timed(stream) &&
	    (!stream_has_run(stream, number) || atomic_get(&stream->kernels_ns)))
		op = sg_op_create(SG_OP_SETTLE);
	if (op)
		work_append(stream, op, &number);
	sg_stream_wait(stream, number, NULL);
	return sg_context_error(stream->ctx);
}

void sg_stream_close(struct sg_stream *stream)
{
	bool working;

	sg_capture_abandon(stream);
	sg_stream_mutex_take(&stream->mtx);
	stream->closed = true;
	working = stream->working;
	pthread_cond_signal(&stream->work);
	sg_stream_mutex_give(&stream->mtx);
	/*
	 * Queued work counts for the context until it has run: then the worker takes the stream
	 * out.
	 */
	if (!working)
		stream_unlink(stream);
	sg_stream_put(stream);
}
