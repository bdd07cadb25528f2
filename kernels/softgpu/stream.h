/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_stream - an ordered queue of device work, and the thread that runs it
 *
 * Concept:    work is numbered from 1 in the order of submission; "n is done" means that all up to
 *             n are. An event is such a number of a stream, and so is every dependency between
 *             streams; a dependency is always on work submitted earlier, so there are no circles.
 * Default:    stream 0 waits for all earlier work of the context's blocking streams, and their
 *             later work waits for it (the legacy default stream). The per-thread default stream
 *             is an ordinary blocking stream.
 * Ownership:  counted. The worker thread holds a reference while it lives; queued work owns what it
 *             needs. A destroyed stream finishes its work first.
 * Threading:  everything is safe from any thread. The worker starts with the first work, sleeps
 *             when there is none, and ends with its stream.
 */
#pragma once

#include <pthread.h>

#include "kernels/softgpu/context.h"
#include "kernels/softgpu/object.h"

struct sg_op;
struct sg_capture;

MM_LOCK_KIND(sg_stream_mutex);

struct sg_stream {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	unsigned int flags;
	int priority;
	uint64_t id;
	pid_t thread; /* thread of which this is the per-thread default stream; 0 if it is none */
	struct sg_stream *next MM_GUARDED_BY(sg_context_mutex); /* next stream of the context */

	struct sg_stream_mutex mtx;
	pthread_cond_t work, done;
	struct sg_op *head MM_GUARDED_BY(sg_stream_mutex), **tail MM_GUARDED_BY(sg_stream_mutex);
	/* Number of the last work that was queued, and that is done; atomic, written under mtx. */
	uint64_t queued, completed;
	unsigned int waiters MM_GUARDED_BY(sg_stream_mutex); /* threads that wait on done */
	bool working MM_GUARDED_BY(sg_stream_mutex);         /* there is a worker thread */
	bool closed MM_GUARDED_BY(sg_stream_mutex);

	/* Timed mode. Only the worker changes these; fields without a note are read by it alone. */
	uint64_t time_ns;    /* device time at which the work so far ends */
	uint64_t kernels_ns; /* atomic; device time at which unsettled kernels began; 0 = none */
	uint64_t compute_ns; /* compute time of these kernels */
	uint64_t *ends_ns;   /* atomic items; the end of work number n is in [n % SG_STREAM_ENDS] */
	/* Pieces of work since the worker was last woken. */
	unsigned int held MM_GUARDED_BY(sg_stream_mutex);

	/* The capture that the stream is part of; these fields belong to sg_capture. */
	struct sg_capture *capture; /* atomic */
	CUgraphNode *ahead;         /* nodes that the next node depends on, each a reference */
	CUgraphEdgeData *edges;     /* edges to them for cuStreamGetCaptureInfo(), all zero */
	size_t n_ahead;
};

#define SG_STREAM_ENDS 1024u

CUresult sg_stream_create(struct sg_context *ctx, unsigned int flags, int priority,
			  struct sg_stream **ret_stream);

/*
 * Returns the stream of a driver handle, stream 0 and the per-thread one included, as a reference.
 */
CUresult sg_stream_get(CUstream handle, struct sg_stream **ret_stream);
void sg_stream_put(struct sg_stream *stream);

/*
 * Takes over @op, also when it fails. @ret_number: may be NULL. It gets the number of the op, the
 * last one of an op of several steps; 0 where the stream is captured, and there is nothing to wait
 * for.
 */
CUresult sg_stream_submit(struct sg_stream *stream, struct sg_op *op, uint64_t *ret_number);

bool sg_stream_is_done(struct sg_stream *stream, uint64_t number);

/*
 * Timed mode: blocks like sg_stream_wait() until the end of @number is known. Return: its device
 * time.
 */
uint64_t sg_stream_end_of(struct sg_stream *stream, uint64_t number, const bool *stop);

/* Blocks until @number is done, or until *@stop; @stop may be NULL. */
void sg_stream_wait(struct sg_stream *stream, uint64_t number, const bool *stop);

CUresult sg_stream_synchronize(struct sg_stream *stream);

/* Ends the stream: it takes no more work, and the worker ends when it has done its work. */
void sg_stream_close(struct sg_stream *stream);
