/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_event - a point in a stream
 *
 * Concept:   the number of the work that recorded it, and when that ran. Recording again moves the
 *            event; waits that were queued before keep the old point.
 * Threading: everything is safe from any thread.
 */
#pragma once

#include "kernels/softgpu/stream.h"

struct sg_event {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	unsigned int flags;

	pthread_mutex_t mtx;
	struct sg_stream *stream; /* guarded by mtx; a reference; NULL = never recorded */
	uint64_t number;          /* guarded by mtx */
	uint64_t generation;      /* guarded by mtx; counts the recordings */
	uint64_t ran_ns;          /* guarded by mtx; when recording @generation ran, 0 = not yet */

	/* Where it was last recorded in a capture; sg_capture's. */
	uint64_t capture_id;   /* atomic; 0: it was not */
	CUgraphNode *captured; /* what it stands for; each a reference */
	size_t n_captured;
};

/* Destroys the events of a context that ends. */
void sg_events_end(const struct sg_context *ctx);

/*
 * On the worker: the recording that was the @generation-th runs at @ran_ns: device time if there is
 * any.
 */
void sg_event_ran(struct sg_event *event, uint64_t generation, uint64_t ran_ns);

/*
 * A recording that is part of a graph: its generation, and, once the launch is in a stream, where
 * it is there. Until then the event stands for what it stood for.
 */
uint64_t sg_event_begin(struct sg_event *event);
void sg_event_put_in(struct sg_event *event, uint64_t generation, struct sg_stream *stream,
		     uint64_t number);

/* What it stands for now; the stream is a reference, NULL if there is nothing to wait for. */
struct sg_stream *sg_event_point(struct sg_event *event, uint64_t *ret_number);
