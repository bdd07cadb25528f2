/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_event - a point in a stream
 *
 * Concept:   an event has the number of the work that recorded it, and when that ran. Recording it
 *            again moves the event; waits that were queued before keep the old point.
 * Ownership: counted (sg_object). An event holds its context, the stream that it is a point of, and
 *            the nodes that it stands for in a capture.
 * Threading: everything is safe from any thread.
 */
#pragma once

#include "kernels/softgpu/stream.h"

MM_LOCK_KIND(sg_event_mutex);

struct sg_event {
	struct sg_object object;
	struct sg_context *ctx; /* a reference */
	unsigned int flags;

	struct sg_event_mutex mtx;
	/* A reference; NULL = never recorded. */
	struct sg_stream *stream MM_GUARDED_BY(sg_event_mutex);
	uint64_t number MM_GUARDED_BY(sg_event_mutex);
	uint64_t generation MM_GUARDED_BY(sg_event_mutex); /* number of recordings so far */
	/* Time at which recording @generation ran, 0 = not yet. */
	uint64_t ran_ns MM_GUARDED_BY(sg_event_mutex);

	/* The last recording in a capture; these fields belong to sg_capture. */
	uint64_t capture_id;   /* atomic; 0: it was not recorded in a capture */
	CUgraphNode *captured; /* nodes that the event stands for, each a reference */
	size_t n_captured;
};

/* Destroys the events of @ctx, which ends. */
void sg_events_end(const struct sg_context *ctx);

/*
 * Called on the worker when recording number @generation runs. @ran_ns: device time, if the device
 * has it.
 */
void sg_event_ran(struct sg_event *event, uint64_t generation, uint64_t ran_ns);

/*
 * A recording in a graph takes its generation when the launch begins, and its point once the launch
 * is in a stream. Until then the event keeps its old point.
 */
uint64_t sg_event_begin(struct sg_event *event);
void sg_event_put_in(struct sg_event *event, uint64_t generation, struct sg_stream *stream,
		     uint64_t number);

/*
 * Return: the stream of which the event is a point now, as a reference; NULL: nothing to wait for.
 */
struct sg_stream *sg_event_point(struct sg_event *event, uint64_t *ret_number);
