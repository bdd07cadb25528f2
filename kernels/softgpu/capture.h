/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_capture - streams whose work goes into a graph, and what must not be called meanwhile
 *
 * Concept:    a capture begins in one stream, its origin. Other streams join it by waiting for an
 *             event that was recorded in it, and must have been waited for by the origin when it
 *             ends. A stream knows what its next node depends on; an event that is recorded knows
 *             what it was then.
 * Rules:      as cuda.h has them, under cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode.
 *             What breaks one returns an error and invalidates the captures that it touches: all
 *             that is left to do with them is to end them.
 * Ownership:  a capture holds its streams and its graph until it ends.
 * Threading:  everything is safe from any thread; guarded by sg_graph_lock(). Who captures nothing
 *             pays for one look at an atomic.
 */
#pragma once

#include "kernels/softgpu/event.h"
#include "kernels/softgpu/stream.h"

struct sg_op;

static inline bool sg_capture_is_on(const struct sg_stream *stream)
{
	return __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE) != NULL;
}

/* As one node behind what the stream did before. Takes over @ops, also when it fails. */
CUresult sg_capture_add(struct sg_stream *stream, CUgraphNodeType type, struct sg_op **ops,
			size_t n_ops);

/* What an event's recording, or a wait for one, means where the stream or the event is captured. */
CUresult sg_capture_record(struct sg_stream *stream, struct sg_event *event);
CUresult sg_capture_wait(struct sg_stream *stream, struct sg_event *event);
void sg_capture_drop_event(struct sg_event *event);

/* May the event be looked at, waited for by the host? */
CUresult sg_capture_check_event(struct sg_event *event);

/* May the stream, everything in the context, the legacy stream be looked at or waited for? */
CUresult sg_capture_check_stream(struct sg_stream *stream);
CUresult sg_capture_check_context(struct sg_context *ctx);
CUresult sg_capture_check_legacy(struct sg_context *ctx);

/* May the calling thread call what is "potentially unsafe" beside a capture? */
CUresult sg_capture_unsafe(void);

/* Not captured at all, whatever the mode: the stream's capture, if any, is lost. */
CUresult sg_capture_refuse(struct sg_stream *stream);

/* The stream is being destroyed. */
void sg_capture_abandon(struct sg_stream *stream);
