/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_stream - an ordered queue of device work, and the thread that does it
 *
 * Concept:    work is numbered from 1 in the order of submission; "n is done" means that all up to
 *             n are. An event is such a number of a stream, so is every dependency between streams;
 *             a dependency always points to work submitted earlier, so there are no circles.
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

struct sg_stream {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	unsigned int flags;
	int priority;
	uint64_t id;
	pid_t thread;           /* whose per-thread default stream this is; 0 if it is none */
	struct sg_stream *next; /* in its context; guarded by ctx->mtx */

	pthread_mutex_t mtx;
	pthread_cond_t work, done;
	struct sg_op *head, **tail; /* guarded by mtx */
	uint64_t queued, completed; /* atomic; written under mtx */
	unsigned int waiters;       /* on done; guarded by mtx */
	bool working;               /* there is a worker thread; guarded by mtx */
	bool closed;                /* guarded by mtx */

	/* Timed mode; the worker's to change, as all of it that has no guard. */
	uint64_t time_ns;    /* when what ran so far ends, in device time */
	uint64_t kernels_ns; /* atomic; kernels began then whose end is not settled; 0 = none */
	uint64_t compute_ns; /* of these */
	uint64_t *ends_ns;   /* atomic items; when work number n ends, in [n % SG_STREAM_ENDS] */
	unsigned int held;   /* work since the worker was last called; guarded by mtx */

	/* A capture that it is part of; sg_capture's. */
	struct sg_capture *capture; /* atomic */
	CUgraphNode *ahead;         /* what the next node depends on; each a reference */
	CUgraphEdgeData *edges;     /* to them, for who asks: nothing but zeros */
	size_t n_ahead;
};

#define SG_STREAM_ENDS 1024u

CUresult sg_stream_create(struct sg_context *ctx, unsigned int flags, int priority,
			  struct sg_stream **ret_stream);

/* A driver handle, stream 0 and the per-thread one included, as a reference to a stream. */
CUresult sg_stream_get(CUstream handle, struct sg_stream **ret_stream);
void sg_stream_put(struct sg_stream *stream);

/*
 * Takes over @op, also when it fails. @ret_number may be NULL, and is 0 where the stream is
 * captured: there is nothing to wait for. Of what takes several steps it is the last one's number.
 */
CUresult sg_stream_submit(struct sg_stream *stream, struct sg_op *op, uint64_t *ret_number);

bool sg_stream_is_done(struct sg_stream *stream, uint64_t number);

/* Timed mode: blocks as below, until it is known when @number ends; returns that. */
uint64_t sg_stream_end_of(struct sg_stream *stream, uint64_t number, const bool *stop);

/* Blocks until @number is done or, where @stop is not NULL, *@stop. */
void sg_stream_wait(struct sg_stream *stream, uint64_t number, const bool *stop);

CUresult sg_stream_synchronize(struct sg_stream *stream);

/* No more work is taken; the worker ends when it has done what there is. */
void sg_stream_close(struct sg_stream *stream);
