/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_op - one piece of work in a stream
 *
 * Concept:   a kind, and a union with what that kind needs. A stream runs its work in order; in
 *            timed mode sg_pace decides when.
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
	SG_OP_SETTLE,     /* timed mode: ends when the kernels before it have */
	SG_OP_GRAPH,      /* a launch of a graph, which the stream runs step by step */
	SG_OP_WAIT_EVENT, /* only in a graph: each launch turns it into SG_OP_WAIT_STREAM */
};

enum sg_way { SG_IN_DEVICE, SG_TO_DEVICE, SG_TO_HOST, SG_IN_HOST };

struct sg_op {
	struct sg_op *next;
	enum sg_op_kind kind;
	uint32_t steps;        /* how many of the stream's numbers it takes: 1, except for graphs */
	uint64_t submitted_ns; /* timed mode: device time at which the device gets it */
	/*
	 * The op is of a synchronous call that returns before the device is done. It runs when
	 * somebody waits for the stream or puts more into it, or after a while.
	 */
	bool late;
	union {
		struct {
			void *dst;
			const void *src;
			size_t bytes; /* of all rows */
			size_t width, rows;
			size_t dst_pitch, src_pitch; /* bytes from one row to the next */
			void *staged; /* malloc'ed copy of a pageable source, or NULL */
			enum sg_way way;
			bool pageable; /* one side is host memory that is not registered */
		} copy;
		struct {
			void *dst;
			size_t count;       /* elements in a row */
			size_t rows, pitch; /* pitch: bytes from one row to the next */
			uint32_t value;
			unsigned int width;
			bool in_host; /* the memory is registered host memory, not the device's */
		} fill;
		struct {
			struct sg_function *function; /* a reference */
			struct mm_host_launch shape;
			void *args[MM_HOST_ARGS_MAX];
			unsigned char *bytes; /* the memory that args point into */
		} launch;
		struct {
			CUhostFn fn;
			void *arg;
			/*
			 * The callback of cuStreamAddCallback(), or NULL. It gets the context's
			 * error, and is called also after one.
			 */
			void (*callback)(CUstream stream, CUresult status, void *arg);
			CUstream handle;
		} host;
		struct {
			void *addr;
			uint64_t value;
			unsigned int flags;
			bool is_64;
			/*
			 * Results of a wait: whether the first look did not end it; the value
			 * found.
			 */
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
		} record; /* also of SG_OP_WAIT_EVENT */
		struct {
			struct sg_launch *launch;
		} graph;
	};
};

struct sg_op *sg_op_create(enum sg_op_kind kind);
void sg_op_run(struct sg_op *op, struct sg_stream *stream);

/* Does at once what the op does to memory and to others. Return: false, it faulted. */
bool sg_op_perform(struct sg_op *op, const struct sg_context *ctx);

/* Return: whether the mappings allow a copy to read and write what it has of device memory. */
bool sg_op_copy_is_allowed(const struct sg_op *op);

/* Return: the error of a context in which the op faulted. */
CUresult sg_op_fault(const struct sg_op *op);

/* Instead of running it, in a context that is lost: does only what others wait for. */
void sg_op_drop(struct sg_op *op, struct sg_context *ctx);
void sg_op_destroy(struct sg_op *op);
void sg_ops_destroy(struct sg_op **ops, size_t n);

/* Return: whether any stream of the process runs a kernel now. */
bool sg_op_any_kernel(void);
