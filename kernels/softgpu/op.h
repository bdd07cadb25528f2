/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_op - one piece of work in a stream
 *
 * Ownership: made by the caller, then the stream's; it owns its references and its copy of the
 *            arguments, and drops them when it has run or was dropped.
 * Threading: run on the worker thread of the stream, once.
 */
#pragma once

#include "kernels/host/kernel.h"
#include "kernels/softgpu/stream.h"

struct sg_event;
struct sg_function;
struct sg_launch;

enum sg_op_kind {
	SG_OP_COPY,
	SG_OP_FILL,
	SG_OP_LAUNCH,
	SG_OP_HOST,
	SG_OP_WAIT_VALUE,
	SG_OP_WRITE_VALUE,
	SG_OP_WAIT_STREAM,
	SG_OP_RECORD,
	SG_OP_FAULT,      /* an access known to be forbidden */
	SG_OP_SETTLE,     /* timed mode: nothing but the end of what is before it */
	SG_OP_GRAPH,      /* a launch of a graph: taken apart by the stream, step by step */
	SG_OP_WAIT_EVENT, /* in a graph only: each launch makes it a SG_OP_WAIT_STREAM */
};

enum sg_way { SG_IN_DEVICE, SG_TO_DEVICE, SG_TO_HOST, SG_IN_HOST };

struct sg_op {
	struct sg_op *next;
	enum sg_op_kind kind;
	uint32_t steps;        /* numbers of the stream that it takes: 1, but for graphs */
	uint64_t submitted_ns; /* timed mode: device time at which the device has it */
	union {
		struct {
			void *dst;
			const void *src;
			size_t bytes;
			void *staged; /* malloc'ed copy of a pageable source, or NULL */
			enum sg_way way;
			bool pageable; /* one side is host memory that nobody registered */
		} copy;
		struct {
			void *dst;
			size_t count;       /* of elements in a row */
			size_t rows, pitch; /* bytes from a row to the next; one row: whatever */
			uint32_t value;
			unsigned int width;
			bool in_host; /* registered memory */
		} fill;
		struct {
			struct sg_function *function; /* a reference */
			struct mm_host_launch shape;
			void *args[MM_HOST_ARGS_MAX];
			unsigned char *bytes; /* what args point into */
		} launch;
		struct {
			CUhostFn fn;
			void *arg;
			/*
			 * cuStreamAddCallback(): gets the context's error, and runs also after one
			 */
			void (*callback)(CUstream stream, CUresult status, void *arg);
			CUstream handle;
		} host;
		struct {
			void *addr;
			uint64_t value;
			unsigned int flags;
			bool is_64;
			/* A wait, when it is over: its first look was in vain; what it found. */
			bool waited;
			uint64_t found;
		} value;
		struct {
			struct sg_stream *stream; /* a reference */
			uint64_t number;
		} wait;
		struct {
			struct sg_event *event; /* a reference */
			uint64_t generation;
		} record; /* and SG_OP_WAIT_EVENT */
		struct {
			struct sg_launch *launch;
		} graph;
	};
};

struct sg_op *sg_op_create(enum sg_op_kind kind);
void sg_op_run(struct sg_op *op, struct sg_stream *stream);

/* What it does to memory and to others, at once. Return: false, it faulted. */
bool sg_op_perform(struct sg_op *op, const struct sg_context *ctx);

/* In a context that is lost: only what must not go missing. */
void sg_op_drop(struct sg_op *op, struct sg_context *ctx);
void sg_op_destroy(struct sg_op *op);
void sg_ops_destroy(struct sg_op **ops, size_t n);

/* Does any stream of the process run a kernel at this moment? */
bool sg_op_any_kernel(void);
