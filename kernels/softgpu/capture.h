/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_capture - streams whose work goes into a graph, and calls that are refused meanwhile
 *
 * Concept:    a capture begins in one stream, its origin. Another stream joins it by waiting for an
 *             event that was recorded in it. When the capture ends, the origin must have waited for
 *             all streams that joined. A captured stream keeps the nodes that its next node depends
 *             on; a recorded event keeps what these were at the recording.
 * Rules:      as cuda.h has them, under cuStreamBeginCapture and cuThreadExchangeStreamCaptureMode.
 *             A call that breaks one returns an error and invalidates the captures that it touches:
 *             nothing can be done with these but to end them.
 * Ownership:  a capture holds its streams and its graph until it ends.
 * Threading:  everything is safe from any thread; guarded by sg_graph_lock(). A call on a stream
 *             that is not captured costs one load of an atomic.
 */
#pragma once

#include "kernels/softgpu/event.h"
#include "kernels/softgpu/stream.h"

struct sg_op;

static inline bool sg_capture_is_on(const struct sg_stream *stream)
{
	return __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE) != NULL;
}

/* Adds a node that depends on what the stream did before. Takes over @ops, also when it fails. */
CUresult sg_capture_add(struct sg_stream *stream, CUgraphNodeType type, struct sg_op **ops,
			size_t n_ops);

/* cuEventRecord() and cuStreamWaitEvent(), where the stream or the event is captured. */
CUresult sg_capture_record(struct sg_stream *stream, struct sg_event *event);
CUresult sg_capture_wait(struct sg_stream *stream, struct sg_event *event);
void sg_capture_drop_event(struct sg_event *event);

/* Return: an error where the host must not query @event or wait for it, because it is captured. */
CUresult sg_capture_check_event(struct sg_event *event);

/*
 * Return: an error where a capture forbids to query or to wait for the stream, the whole context,
 * or the legacy stream. That capture becomes invalid.
 */
CUresult sg_capture_check_stream(struct sg_stream *stream);
CUresult sg_capture_check_context(struct sg_context *ctx);
CUresult sg_capture_check_legacy(struct sg_context *ctx);

/*
 * Return: an error where a capture's mode forbids the calling thread "potentially unsafe" calls.
 * That capture becomes invalid.
 */
CUresult sg_capture_unsafe(void);

/*
 * For calls that cannot be captured in any mode: invalidates the stream's capture, if it has one.
 * Return: the call's error; CUDA_SUCCESS where the stream is not captured.
 */
CUresult sg_capture_refuse(struct sg_stream *stream);

/*
 * Invalidates the capture that @stream is part of, and ends it where @stream is its origin: the
 * stream is being destroyed.
 */
void sg_capture_abandon(struct sg_stream *stream);
