/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_context - a CUDA context: the streams of one user of a device, and their first fault
 *
 * Concept:   the primary context and those of cuCtxCreate() are the same thing. A device fault is
 *            sticky: every later call that needs the context reports it, and work that is still
 *            queued does not run. The primary context stays for the life of the process; after it
 *            was released or reset, it cannot be used until it is retained again.
 * Ownership: counted (sg_object). A thread's stack of current contexts, its streams and its modules
 *            hold references; the registry's reference is dropped by destruction.
 * Threading: each thread has its own stack of current contexts; all else is safe from any thread.
 */
#pragma once

#include "kernels/softgpu/object.h"
#include "libclient/support/lock.h"
#include "mm/gpu.h"

struct sg_stream;

MM_LOCK_KIND(sg_context_mutex);
MM_LOCK_KIND(sg_context_clearing);

struct sg_context {
	struct sg_object object;
	unsigned int device; /* ordinal */
	unsigned int flags;  /* atomic */
	unsigned int api_version;
	uint64_t id;
	bool primary;
	int error;     /* atomic; a CUresult; sticky */
	bool stopping; /* atomic; being destroyed: queued work is dropped, waits end */
	/* Held while all that a primary context has is freed. */
	struct sg_context_clearing clearing;

	struct sg_context_mutex mtx;
	struct sg_stream *streams MM_GUARDED_BY(sg_context_mutex); /* without references */
	struct sg_stream *legacy; /* atomic; created by the first use of stream 0; a reference */
};

/* Returns the current context without a reference: the thread's stack holds one. */
CUresult sg_context_current(struct sg_context **ret_ctx);

/* Return: whether the context is destroyed, or its destruction has begun. */
bool sg_context_is_ending(const struct sg_context *ctx);

/*
 * For a call that needs no context and found nothing. Return: the error of the current context if
 * it has one, else @res.
 */
CUresult sg_context_unless(CUresult res);

CUresult sg_context_error(const struct sg_context *ctx);
void sg_context_fault(struct sg_context *ctx, CUresult error);

/* Returns the ordinal of the current context's device. */
CUresult sg_context_device(unsigned int *ret_device);

/* Waits until all streams have done their work. Return: the context's error. */
CUresult sg_context_synchronize(struct sg_context *ctx);
