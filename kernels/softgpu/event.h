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
};

/* On the worker: the recording that was the @generation-th runs at @ran_ns: device time if there is any. */
void sg_event_ran(struct sg_event *event, uint64_t generation, uint64_t ran_ns);
