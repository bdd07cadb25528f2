/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/event.h"
#include "kernels/softgpu/graph.h"
#include "kernels/softgpu/op.h"
#include "libclient/base/base.h"
#include "mm/softgpu.h"

#define FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)

/* The point that an event was at one moment. */
struct point {
	struct sg_stream
		*stream; /* a reference; NULL = never recorded: waits for it are over at once */
	uint64_t number;
	uint64_t ran_ns;
};

/* Not analysed: no other thread has the event any more. */
static void destroy_event(struct sg_object *object) MM_NO_THREAD_SAFETY_ANALYSIS
{
	struct sg_event *event = (struct sg_event *)object;

	if (event->stream)
		sg_stream_put(event->stream);
	for (size_t i = 0; i < event->n_captured; i++)
		sg_object_put((struct sg_object *)event->captured[i]);
	free(event->captured);
	sg_object_put(&event->ctx->object);
	sg_event_mutex_destroy(&event->mtx);
	free(event);
}

void sg_event_ran(struct sg_event *event, uint64_t generation, uint64_t ran_ns)
{
	sg_event_mutex_take(&event->mtx);
	if (event->generation == generation)
		event->ran_ns = ran_ns;
	sg_event_mutex_give(&event->mtx);
}

static void event_move_to(struct sg_event *event, struct sg_stream *stream, uint64_t number)
	MM_REQUIRES(sg_event_mutex)
{
	sg_object_ref(&stream->object);
	if (event->stream)
		sg_stream_put(event->stream);
	event->stream = stream;
	event->number = number;
}

uint64_t sg_event_begin(struct sg_event *event)
{
	uint64_t generation;

	sg_capture_drop_event(event);
	sg_event_mutex_take(&event->mtx);
	generation = ++event->generation;
	event->ran_ns = 0;
	sg_event_mutex_give(&event->mtx);
	return generation;
}

void sg_event_put_in(struct sg_event *event, uint64_t generation, struct sg_stream *stream,
		     uint64_t number)
{
	sg_event_mutex_take(&event->mtx);
	if (event->generation == generation)
		event_move_to(event, stream, number);
	sg_event_mutex_give(&event->mtx);
}

static struct point event_point_of(struct sg_event *event)
{
	struct point p;

	sg_event_mutex_take(&event->mtx);
	p = (struct point){ event->stream, event->number, event->ran_ns };
	if (p.stream)
		sg_object_ref(&p.stream->object);
	sg_event_mutex_give(&event->mtx);
	return p;
}

static void event_drop_point(struct point *p)
{
	if (p->stream)
		sg_stream_put(p->stream);
}

struct sg_stream *sg_event_point(struct sg_event *event, uint64_t *ret_number)
{
	struct point p = event_point_of(event);

	if (p.stream && sg_stream_is_done(p.stream, p.number)) {
		event_drop_point(&p);
		return NULL;
	}
	*ret_number = p.number;
	return p.stream;
}

CUresult CUDAAPI cuEventCreate(CUevent *ret, unsigned int flags)
{
	struct sg_context *ctx;
	struct sg_event *event;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	if (flags & CU_EVENT_INTERPROCESS) /* the device's attribute IPC_EVENT_SUPPORTED is 0 */
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!ret || (flags & ~(unsigned int)FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_init(&event->object, SG_EVENT, destroy_event);
	sg_object_ref(&ctx->object);
	event->ctx = ctx;
	event->object.owner = ctx;
	event->flags = flags;
	sg_event_mutex_init(&event->mtx);
	sg_object_publish(&event->object);
	*ret = (CUevent)event;
	return CUDA_SUCCESS;
}

/* Takes over the reference that the registry had. */
static void event_end(struct sg_event *event)
{
	/* In a capture it may stand for nodes, which hold the event: a circle. */
	sg_capture_drop_event(event);
	sg_object_put(&event->object);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent handle)
{
	struct sg_event *event;

	SG_ENTER();
	event = sg_object_retract(handle, SG_EVENT);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	event_end(event);
	return CUDA_SUCCESS;
}

void sg_events_end(const struct sg_context *ctx)
{
	struct sg_object *event = sg_object_retract_owned(ctx, SG_EVENT), *next;

	for (; event; event = next) {
		next = event->next;
		event_end((struct sg_event *)event);
	}
}

/*
 * The event's lock is held during the submission, so that of two recordings the later one stays in
 * the event.
 */
static CUresult event_record(struct sg_event *event, struct sg_stream *stream)
{
	struct sg_op *op = sg_op_create(SG_OP_RECORD);
	uint64_t number;
	CUresult res;

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_ref(&event->object);
	op->record.event = event;
	sg_event_mutex_take(&event->mtx);
	op->record.generation = event->generation + 1;
	res = sg_stream_submit(stream, op, &number);
	if (!res) {
		event_move_to(event, stream, number);
		event->generation++;
		event->ran_ns = 0;
	}
	sg_event_mutex_give(&event->mtx);
	return res;
}

static CUresult event_get(CUevent handle, struct sg_event **ret_event)
{
	struct sg_event *event = sg_object_get(handle, SG_EVENT);
	CUresult res;

	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	res = sg_context_error(event->ctx);
	if (res) {
		sg_object_put(&event->object);
		return res;
	}
	*ret_event = event;
	return CUDA_SUCCESS;
}

/* Adds an op for the event to a graph: each launch records the event, or waits for it. */
static CUresult event_capture_node(struct sg_event *event, struct sg_stream *stream,
				   enum sg_op_kind kind)
{
	struct sg_op *op = sg_op_create(kind);

	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_ref(&event->object);
	op->record.event = event;
	return sg_capture_add(stream, sg_graph_type_of(op), &op, 1);
}

/* An event can be recorded only in streams of its context. */
static CUresult event_record_as(struct sg_event *event, struct sg_stream *stream, bool external)
{
	if (stream->ctx != event->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	if (sg_capture_is_on(stream))
		return external ? event_capture_node(event, stream, SG_OP_RECORD)
				: sg_capture_record(stream, event);
	if (external)
		return CUDA_ERROR_ILLEGAL_STATE;
	sg_capture_drop_event(event);
	return event_record(event, stream);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent handle, CUstream stream_handle, unsigned int flags)
{
	struct sg_stream *stream;
	struct sg_event *event;
	CUresult res;

	SG_ENTER();
	if (flags > CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(event_get(handle, &event));
	res = sg_stream_get(stream_handle, &stream);
	if (!res) {
		res = event_record_as(event, stream, flags == CU_EVENT_RECORD_EXTERNAL);
		sg_stream_put(stream);
	}
	sg_object_put(&event->object);
	return res;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
	SG_ENTER();
	return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* For queries and waits of the host, which a captured event refuses. */
static CUresult event_get_for_host(CUevent handle, struct sg_event **ret_event)
{
	struct sg_event *event;
	CUresult res;

	SG_TRY(event_get(handle, &event));
	res = sg_capture_check_event(event);
	if (!res)
		res = sg_capture_unsafe();
	if (res) {
		sg_object_put(&event->object);
		return res;
	}
	*ret_event = event;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	struct sg_event *event;
	struct point p;
	CUresult res;

	SG_ENTER();
	SG_TRY(event_get_for_host(handle, &event));
	p = event_point_of(event);
	res = p.stream && !sg_stream_is_done(p.stream, p.number) ? CUDA_ERROR_NOT_READY
								 : sg_context_error(event->ctx);
	event_drop_point(&p);
	sg_object_put(&event->object);
	return res;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
	struct sg_event *event;
	struct point p;
	CUresult res;

	SG_ENTER();
	SG_TRY(event_get_for_host(handle, &event));
	p = event_point_of(event);
	if (p.stream)
		sg_stream_wait(p.stream, p.number, NULL);
	res = sg_context_error(event->ctx);
	event_drop_point(&p);
	sg_object_put(&event->object);
	return res;
}

static CUresult event_elapsed(struct sg_event *start, struct sg_event *end, float *ret_ms)
{
	struct point from = event_point_of(start), to = event_point_of(end);
	CUresult res = CUDA_SUCCESS;

	if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) || !from.stream || !to.stream)
		res = CUDA_ERROR_INVALID_HANDLE;
	else if (!from.ran_ns || !to.ran_ns || !sg_stream_is_done(from.stream, from.number) ||
		 !sg_stream_is_done(to.stream, to.number))
		res = CUDA_ERROR_NOT_READY;
	else
		*ret_ms = (float)((double)(int64_t)(to.ran_ns - from.ran_ns) / MM_NS_PER_MS);
	event_drop_point(&from);
	event_drop_point(&to);
	return res;
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start_handle, CUevent end_handle)
{
	struct sg_event *start, *end;
	CUresult res;

	SG_ENTER();
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(event_get_for_host(start_handle, &start));
	res = event_get_for_host(end_handle, &end);
	if (!res) {
		res = event_elapsed(start, end, ms);
		sg_object_put(&end->object);
	}
	sg_object_put(&start->object);
	return res;
}

MM_EXPORT int mm_softgpu_event_ns(CUevent handle, uint64_t *ret_ns)
{
	struct sg_event *event;
	struct point p;
	int r = -EINVAL;

	if (sg_enter(__func__, SG_INITIALISED) || !ret_ns || event_get(handle, &event))
		return -EINVAL;
	p = event_point_of(event);
	if (p.stream)
		r = p.ran_ns && sg_stream_is_done(p.stream, p.number) ? 0 : -EBUSY;
	if (!r)
		*ret_ns = p.ran_ns;
	event_drop_point(&p);
	sg_object_put(&event->object);
	return r;
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime(ms, start, end);
}

/* The wait is for the point that the event has now, whatever is recorded later. */
static CUresult event_wait_for(struct sg_stream *stream, struct sg_event *event)
{
	struct sg_stream *behind;
	uint64_t number;
	struct sg_op *op;

	behind = sg_event_point(event, &number);
	if (!behind)
		return CUDA_SUCCESS;
	op = sg_op_create(SG_OP_WAIT_STREAM);
	if (!op) {
		sg_stream_put(behind);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	op->wait.stream = behind;
	op->wait.number = number;
	return sg_stream_submit(stream, op, NULL);
}

static CUresult event_wait_as(struct sg_stream *stream, struct sg_event *event, bool external)
{
	if (external)
		return sg_capture_is_on(stream)
			       ? event_capture_node(event, stream, SG_OP_WAIT_EVENT)
			       : CUDA_ERROR_INVALID_VALUE;
	if (sg_capture_is_on(stream) || __atomic_load_n(&event->capture_id, __ATOMIC_ACQUIRE))
		return sg_capture_wait(stream, event);
	return event_wait_for(stream, event);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
	struct sg_stream *stream;
	struct sg_event *event;
	CUresult res;

	SG_ENTER();
	if (flags > CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(event_get(handle, &event));
	res = sg_stream_get(stream_handle, &stream);
	if (!res) {
		res = event_wait_as(stream, event, flags == CU_EVENT_WAIT_EXTERNAL);
		sg_stream_put(stream);
	}
	sg_object_put(&event->object);
	return res;
}
