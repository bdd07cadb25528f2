/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_context - a CUDA context: the streams of one user of a device, and their first fault
 *
 * Concept:   the primary context and those of cuCtxCreate() are the same thing. A device fault is
 *            sticky: every later call that needs the context reports it, and nothing that is still
 *            queued runs. The primary one is there for good; released or reset, it cannot be used
 *            until retained.
 * Ownership: counted (sg_object). A thread's stack of current contexts, its streams and its modules
 *            hold references; the registry's one is dropped by destruction.
 * Threading: each thread has its own stack of current contexts; all else is safe from any thread.
 */
#pragma once

#include <pthread.h>

#include "kernels/softgpu/object.h"
#include "mm/gpu.h"

struct sg_stream;

struct sg_context {
	struct sg_object object;
	unsigned int device; /* ordinal */
	unsigned int flags;  /* atomic */
	unsigned int api_version;
	uint64_t id;
	bool primary;
	int error;                /* atomic; a CUresult; sticky */
	bool stopping;            /* atomic; destroyed: what is queued is dropped, waits end */
	pthread_mutex_t clearing; /* the primary one: held while all that it has is taken down */

	pthread_mutex_t mtx;
	struct sg_stream *streams; /* guarded by mtx; not references */
	struct sg_stream *legacy;  /* atomic; made with the first use of stream 0; a reference */
};

/* The current context, without a reference: the thread's stack holds one. */
CUresult sg_context_current(struct sg_context **ret_ctx);

/* Is it destroyed, or about to be? */
bool sg_context_is_ending(const struct sg_context *ctx);

/*
 * The answer of a call that needs no context where it found nothing: @res, or what is wrong with
 * the current context.
 */
CUresult sg_context_unless(CUresult res);

CUresult sg_context_error(const struct sg_context *ctx);
void sg_context_fault(struct sg_context *ctx, CUresult error);

/* Of the current context. */
CUresult sg_context_device(unsigned int *ret_device);

/* Waits for everything in every stream. */
CUresult sg_context_synchronize(struct sg_context *ctx);
