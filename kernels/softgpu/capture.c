/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/capture.h"

#include <stdlib.h>
#include <unistd.h>

#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/graph.h"
#include "libclient/base/base.h"

struct sg_capture {
	struct sg_capture *next;
	uint64_t id;
	CUstreamCaptureMode mode;
	pid_t thread; /* thread that began the capture */
	struct sg_context *ctx;
	struct sg_graph *graph;     /* a reference; the nodes go here */
	struct sg_stream *origin;   /* the element of streams in which it began */
	struct sg_stream **streams; /* each a reference */
	size_t n_streams;
	bool invalid;
};

static struct sg_capture *captures MM_GUARDED_BY(sg_graph_mutex);
static unsigned int n_captures; /* atomic, so that it can be read without the lock */
static uint64_t last_capture_id MM_GUARDED_BY(sg_graph_mutex);

static __thread CUstreamCaptureMode thread_mode __attribute__((tls_model("initial-exec")));

static bool captures_exist(void)
{
	return __atomic_load_n(&n_captures, __ATOMIC_ACQUIRE) != 0;
}

/* ---- What the next node of a stream depends on ---- */

static void nodes_drop(CUgraphNode *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sg_object_put((struct sg_object *)nodes[i]);
}

static bool nodes_contain(const CUgraphNode *nodes, size_t n, CUgraphNode node)
{
	for (size_t i = 0; i < n; i++)
		if (nodes[i] == node)
			return true;
	return false;
}

/* Appends the nodes of @more that are not in the list yet, each as a reference. */
static CUresult nodes_add(CUgraphNode **nodes, size_t *n, const CUgraphNode *more, size_t n_more)
{
	CUgraphNode *grown = realloc(*nodes, (*n + n_more + 1) * sizeof(CUgraphNode));

	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*nodes = grown;
	for (size_t i = 0; i < n_more; i++)
		if (!nodes_contain(grown, *n, more[i])) {
			sg_object_ref((struct sg_object *)more[i]);
			grown[(*n)++] = more[i];
		}
	return CUDA_SUCCESS;
}

static void stream_set_capture(struct sg_stream *stream, struct sg_capture *c)
{
	__atomic_store_n(&stream->capture, c, __ATOMIC_RELEASE);
}

/* Takes a reference to @stream. */
static CUresult capture_join(struct sg_capture *c, struct sg_stream *stream)
	MM_REQUIRES(sg_graph_mutex)
{
	struct sg_stream **grown = realloc(c->streams, (c->n_streams + 1) * sizeof(*grown));

	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_object_ref(&stream->object);
	c->streams = grown;
	c->streams[c->n_streams++] = stream;
	stream_set_capture(stream, c);
	return CUDA_SUCCESS;
}

/* ---- The end of a capture ---- */

/*
 * Takes @c out of the list; its streams are no longer captured. The caller frees
 * @c with capture_give_up() when it has released the lock.
 */
static void capture_take_out(struct sg_capture *c) MM_REQUIRES(sg_graph_mutex)
{
	struct sg_capture **p = &captures;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	__atomic_sub_fetch(&n_captures, 1, __ATOMIC_ACQ_REL);
	for (size_t i = 0; i < c->n_streams; i++) {
		nodes_drop(c->streams[i]->ahead, c->streams[i]->n_ahead);
		c->streams[i]->n_ahead = 0;
		stream_set_capture(c->streams[i], NULL);
	}
}

/*
 * Called after capture_take_out(). @keeps_graph: the caller took the graph
 * over.
 */
static void capture_give_up(struct sg_capture *c, bool keeps_graph) MM_EXCLUDES(sg_graph_mutex)
{
	if (!keeps_graph)
		sg_graph_destroy(c->graph);
	sg_object_put(&c->graph->object);
	for (size_t i = 0; i < c->n_streams; i++)
		sg_stream_put(c->streams[i]);
	free(c->streams);
	free(c);
}

void sg_capture_abandon(struct sg_stream *stream)
{
	struct sg_capture *c, *ended = NULL;

	if (!sg_capture_is_on(stream))
		return;
	sg_graph_lock();
	c = stream->capture;
	if (c) {
		c->invalid = true;
		if (c->origin == stream) {
			capture_take_out(c);
			c->graph->capturing = false;
			ended = c;
		}
	}
	sg_graph_unlock();
	if (ended)
		capture_give_up(ended, false);
}

/* ---- What is captured ---- */

CUresult sg_capture_add(struct sg_stream *stream, CUgraphNodeType type, struct sg_op **ops,
			size_t n_ops)
{
	bool refused = n_ops && ops[0]->kind == SG_OP_HOST && ops[0]->host.callback;
	struct sg_node *node;
	struct sg_work *work;
	struct sg_capture *c;
	CUgraphNode handle;
	CUresult res;

	work = sg_work_create(type, ops, n_ops);
	if (!work)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_graph_lock();
	c = stream->capture;
	if (!c || c->invalid || refused) {
		res = !c           ? CUDA_ERROR_ILLEGAL_STATE
		      : c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
				   : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		sg_work_put(work);
	} else {
		res = sg_graph_append(c->graph, work, stream->ahead, stream->n_ahead, true, &node);
	}
	if (!res) {
		nodes_drop(stream->ahead, stream->n_ahead);
		stream->n_ahead = 0;
		handle = (CUgraphNode)node;
		res = nodes_add(&stream->ahead, &stream->n_ahead, &handle, 1);
	}
	if (res && c)
		c->invalid = true;
	sg_graph_unlock();
	return res;
}

static struct sg_capture *capture_of(const struct sg_event *event) MM_REQUIRES(sg_graph_mutex)
{
	struct sg_capture *c = captures;

	while (c && c->id != event->capture_id)
		c = c->next;
	return c;
}

static void capture_drop(struct sg_event *event)
{
	nodes_drop(event->captured, event->n_captured);
	event->n_captured = 0;
	__atomic_store_n(&event->capture_id, 0, __ATOMIC_RELEASE);
}

void sg_capture_drop_event(struct sg_event *event)
{
	if (!__atomic_load_n(&event->capture_id, __ATOMIC_ACQUIRE))
		return;
	sg_graph_lock();
	capture_drop(event);
	sg_graph_unlock();
}

CUresult sg_capture_record(struct sg_stream *stream, struct sg_event *event)
{
	struct sg_capture *c;
	CUresult res;

	sg_graph_lock();
	c = stream->capture;
	if (!c || c->invalid) {
		res = c ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_ERROR_ILLEGAL_STATE;
	} else {
		capture_drop(event);
		res = nodes_add(&event->captured, &event->n_captured, stream->ahead,
				stream->n_ahead);
		__atomic_store_n(&event->capture_id, c->id, __ATOMIC_RELEASE);
	}
	sg_graph_unlock();
	return res;
}

/* The stream or the event is captured. */
static CUresult capture_wait_captured(struct sg_stream *stream, struct sg_event *event)
	MM_REQUIRES(sg_graph_mutex)
{
	struct sg_capture *c = stream->capture, *from = capture_of(event);
	CUresult res = CUDA_SUCCESS;

	if ((c && c->invalid) || (from && from->invalid))
		res = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (c && !event->capture_id)
		res = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	else if (!from) /* the event was recorded in a capture that has ended */
		res = CUDA_ERROR_CAPTURED_EVENT;
	else if (c && c != from)
		res = CUDA_ERROR_STREAM_CAPTURE_MERGE;
	else if (!c && (stream == stream->ctx->legacy || stream->ctx != from->ctx))
		res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!res && !c)
		res = capture_join(from, stream);
	if (!res)
		res = nodes_add(&stream->ahead, &stream->n_ahead, event->captured,
				event->n_captured);
	if (res && c)
		c->invalid = true;
	if (res && from)
		from->invalid = true;
	return res;
}

CUresult sg_capture_wait(struct sg_stream *stream, struct sg_event *event)
{
	CUresult res;

	sg_graph_lock();
	res = capture_wait_captured(stream, event);
	sg_graph_unlock();
	return res;
}

/* ---- What must not be called ---- */

CUresult sg_capture_check_event(struct sg_event *event)
{
	struct sg_capture *c;

	if (!__atomic_load_n(&event->capture_id, __ATOMIC_ACQUIRE))
		return CUDA_SUCCESS;
	sg_graph_lock();
	c = capture_of(event);
	if (c)
		c->invalid = true;
	sg_graph_unlock();
	return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult sg_capture_refuse(struct sg_stream *stream)
{
	CUresult res = CUDA_SUCCESS;
	struct sg_capture *c;

	if (!sg_capture_is_on(stream))
		return CUDA_SUCCESS;
	sg_graph_lock();
	c = stream->capture;
	if (c) {
		res = c->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
				 : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		c->invalid = true;
	}
	sg_graph_unlock();
	return res;
}

CUresult sg_capture_check_stream(struct sg_stream *stream)
{
	if (stream == __atomic_load_n(&stream->ctx->legacy, __ATOMIC_ACQUIRE))
		return sg_capture_check_legacy(stream->ctx);
	return sg_capture_refuse(stream);
}

/*
 * Return: whether a stream of @ctx is captured; with @blocking_only, one that the legacy stream
 * waits for. With @invalidate the captures that are found become invalid.
 */
static bool captures_in(const struct sg_context *ctx, bool blocking_only, bool invalidate)
{
	bool found = false;

	if (!captures_exist())
		return false;
	sg_graph_lock();
	for (struct sg_capture *c = captures; c; c = c->next)
		for (size_t i = 0; i < c->n_streams && c->ctx == ctx; i++)
			if (!blocking_only || !(c->streams[i]->flags & CU_STREAM_NON_BLOCKING)) {
				found = true;
				c->invalid |= invalidate;
			}
	sg_graph_unlock();
	return found;
}

CUresult sg_capture_check_context(struct sg_context *ctx)
{
	return captures_in(ctx, false, true) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult sg_capture_check_legacy(struct sg_context *ctx)
{
	return captures_in(ctx, true, true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult sg_capture_unsafe(void)
{
	CUresult res = CUDA_SUCCESS;
	pid_t self;

	if (!captures_exist() || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	self = gettid();
	sg_graph_lock();
	for (struct sg_capture *c = captures; c; c = c->next) {
		bool concerns = c->thread == self
					? c->mode != CU_STREAM_CAPTURE_MODE_RELAXED
					: c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
						  thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (concerns) {
			c->invalid = true;
			res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	sg_graph_unlock();
	return res;
}

/* ---- Entry points ---- */

static CUresult capture_begin(struct sg_stream *stream, CUstreamCaptureMode mode)
{
	struct sg_capture *c = calloc(1, sizeof(*c));
	CUresult res;

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	res = sg_graph_create(stream->ctx, &c->graph);
	if (res) {
		free(c);
		return res;
	}
	sg_object_ref(&c->graph->object);
	c->mode = mode;
	c->thread = gettid();
	c->ctx = stream->ctx;
	c->origin = stream;
	sg_graph_lock();
	res = stream->capture ? CUDA_ERROR_ILLEGAL_STATE : capture_join(c, stream);
	if (!res) {
		c->graph->capturing = true;
		c->id = ++last_capture_id;
		c->next = captures;
		captures = c;
		__atomic_add_fetch(&n_captures, 1, __ATOMIC_ACQ_REL);
	}
	sg_graph_unlock();
	if (res)
		capture_give_up(c, false);
	return res;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct sg_stream *stream;
	CUresult res;

	SG_ENTER();
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	if (stream == __atomic_load_n(&stream->ctx->legacy, __ATOMIC_ACQUIRE))
		res = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else
		res = capture_begin(stream, mode);
	sg_stream_put(stream);
	return res;
}

/* Return: the error with which @stream may not end its capture; CUDA_SUCCESS. */
static CUresult capture_may_end(const struct sg_stream *stream) MM_REQUIRES(sg_graph_mutex)
{
	const struct sg_capture *c = stream->capture;

	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->origin != stream)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->thread != gettid())
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	return CUDA_SUCCESS;
}

static CUresult capture_end(struct sg_stream *stream, CUgraph *ret_graph)
{
	struct sg_capture *c;
	bool joined = true;
	CUresult res;

	sg_graph_lock();
	res = capture_may_end(stream);
	if (res && res != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
		sg_graph_unlock();
		return res;
	}
	c = stream->capture;
	/* A thread that may not end it ends it all the same, and nobody has the graph. */
	if (res)
		joined = false;
	else if (c->invalid)
		res = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!sg_graph_is_joined(c->graph, stream->ahead, stream->n_ahead, &joined))
		res = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!joined)
		res = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	capture_take_out(c);
	c->graph->capturing = false;
	*ret_graph = res ? NULL : (CUgraph)c->graph;
	sg_graph_unlock();
	capture_give_up(c, res == CUDA_SUCCESS);
	return res;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *ret_graph)
{
	struct sg_stream *stream;
	CUresult res;

	SG_ENTER();
	if (!ret_graph)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	res = capture_end(stream, ret_graph);
	sg_stream_put(stream);
	return res;
}

/* Gives the stream an array of edges, all zero, one for each node that it depends on. */
static CUresult describe_edges(struct sg_stream *stream, const CUgraphEdgeData **ret_edges)
	MM_REQUIRES(sg_graph_mutex)
{
	CUgraphEdgeData *edges = calloc(stream->n_ahead + 1, sizeof(*edges));

	if (!edges)
		return CUDA_ERROR_OUT_OF_MEMORY;
	free(stream->edges);
	stream->edges = edges;
	*ret_edges = edges;
	return CUDA_SUCCESS;
}

/* Results that a caller wants; all but the status may be NULL. */
struct capture_query {
	CUstreamCaptureStatus *status;
	cuuint64_t *id;
	CUgraph *graph;
	const CUgraphNode **nodes;
	const CUgraphEdgeData **edges;
	size_t *n;
};

static CUresult capture_describe(struct sg_stream *stream, const struct capture_query *query)
{
	const struct sg_capture *c;
	CUresult res = CUDA_SUCCESS;

	/* A query leaves the capture valid. */
	if (stream == __atomic_load_n(&stream->ctx->legacy, __ATOMIC_ACQUIRE) &&
	    captures_in(stream->ctx, true, false))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	sg_graph_lock();
	c = stream->capture;
	*query->status = !c           ? CU_STREAM_CAPTURE_STATUS_NONE
			 : c->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (c && !c->invalid) {
		if (query->id)
			*query->id = c->id;
		if (query->graph)
			*query->graph = (CUgraph)c->graph;
		if (query->nodes)
			*query->nodes = stream->ahead;
		if (query->n)
			*query->n = stream->n_ahead;
		if (query->edges)
			res = describe_edges(stream, query->edges);
	}
	sg_graph_unlock();
	return res;
}

static CUresult capture_get_info(CUstream handle, const struct capture_query *query)
{
	struct sg_stream *stream;
	CUresult res;

	if (!query->status || (query->edges && !query->nodes))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	res = capture_describe(stream, query);
	sg_stream_put(stream);
	return res;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	SG_ENTER();
	return capture_get_info(stream, &(struct capture_query){ .status = status });
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
					   cuuint64_t *id, CUgraph *graph,
					   const CUgraphNode **nodes, size_t *n)
{
	SG_ENTER();
	return capture_get_info(stream,
				&(struct capture_query){ status, id, graph, nodes, NULL, n });
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
					   cuuint64_t *id, CUgraph *graph,
					   const CUgraphNode **nodes, const CUgraphEdgeData **edges,
					   size_t *n)
{
	SG_ENTER();
	return capture_get_info(stream,
				&(struct capture_query){ status, id, graph, nodes, edges, n });
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = thread_mode;

	SG_ENTER();
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
