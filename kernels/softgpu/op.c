/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/softgpu/event.h"
#include "kernels/softgpu/fault.h"
#include "kernels/softgpu/graph.h"
#include "kernels/softgpu/module.h"
#include "kernels/softgpu/op.h"
#include "kernels/softgpu/pace.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"

#define SPIN_LOOKS   64
#define PAUSE_MIN_NS 2000
#define PAUSE_MAX_NS 50000
#define PAUSE_STALLED_NS \
	500000 /* for waits of many milliseconds: the delay stays under 2% of the wait */

#define PUNCH_BYTES     (UINT64_C(1) << 20) /* below this size, writing zeros is faster */
#define HOST_PAGE_BYTES 4096

static unsigned int n_kernels; /* atomic; number of kernels that run now */

bool sg_op_any_kernel(void)
{
	return __atomic_load_n(&n_kernels, __ATOMIC_ACQUIRE) != 0;
}

struct sg_op *sg_op_create(enum sg_op_kind kind)
{
	struct sg_op *op = calloc(1, sizeof(*op));

	if (op) {
		op->kind = kind;
		op->steps = 1;
	}
	return op;
}

void sg_op_destroy(struct sg_op *op)
{
	switch (op->kind) {
	case SG_OP_COPY:
		free(op->copy.staged);
		break;
	case SG_OP_LAUNCH:
		sg_object_put(&op->launch.function->object);
		free(op->launch.bytes);
		break;
	case SG_OP_WAIT_STREAM:
		sg_stream_put(op->wait.stream);
		break;
	case SG_OP_RECORD:
	case SG_OP_WAIT_EVENT:
		sg_object_put(&op->record.event->object);
		break;
	case SG_OP_GRAPH:
		sg_launch_put(op->graph.launch);
		break;
	default:
		break;
	}
	free(op);
}

void sg_ops_destroy(struct sg_op **ops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sg_op_destroy(ops[i]);
}

/*
 * Accesses of the device are not instrumented: they may leave by a long jump, and the driver's
 * rules order them for the host, which a sanitizer does not know.
 */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void
copy_bytes(void *dst, const void *src, size_t bytes)
{
#if defined(__x86_64__)
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
#else
	memmove(dst, src, bytes);
#endif
}

static void run_copy(void *arg)
{
	const struct sg_op *op = arg;

	for (size_t row = 0; row < op->copy.rows; row++)
		copy_bytes((char *)op->copy.dst + row * op->copy.dst_pitch,
			   (const char *)op->copy.src + row * op->copy.src_pitch, op->copy.width);
}

/*
 * The gaps between rows must be mapped as the rows are: drivers look at the range of a copy, and
 * whether they know of gaps in it is not specified.
 */
static bool rows_are_allowed(const void *first, size_t pitch, const struct sg_op *op, bool writes)
{
	return sg_vm_allows((uintptr_t)first, (op->copy.rows - 1) * pitch + op->copy.width, writes);
}

bool sg_op_copy_is_allowed(const struct sg_op *op)
{
	bool from_device = op->copy.way == SG_IN_DEVICE || op->copy.way == SG_TO_HOST;
	bool to_device = op->copy.way == SG_IN_DEVICE || op->copy.way == SG_TO_DEVICE;

	return (!from_device || rows_are_allowed(op->copy.src, op->copy.src_pitch, op, false)) &&
	       (!to_device || rows_are_allowed(op->copy.dst, op->copy.dst_pitch, op, true));
}

/*
 * Zeroes large pages by giving their memory back to the kernel: a page that is not written takes no
 * memory, so pools far larger than the host's memory work. Return: false, the memory or the fill is
 * of another kind.
 */
static bool fill_punch(const struct sg_op *op)
{
	size_t bytes = op->fill.count * op->fill.width;

	return op->fill.value == 0 && op->fill.rows == 1 && bytes >= PUNCH_BYTES &&
	       bytes % HOST_PAGE_BYTES == 0 && (uintptr_t)op->fill.dst % HOST_PAGE_BYTES == 0 &&
	       madvise(op->fill.dst, bytes, MADV_REMOVE) == 0;
}

__attribute__((no_sanitize("address", "thread", "undefined"))) static void
fill_row(void *dst, const struct sg_op *op)
{
	size_t count = op->fill.count;
	uint32_t value = op->fill.value;

	if (op->fill.width == 1) {
#if defined(__x86_64__)
		__asm__ volatile("rep stosb" : "+D"(dst), "+c"(count) : "a"(value) : "memory");
#else
		memset(dst, (int)value, count);
#endif
	} else if (op->fill.width == 2) {
		for (size_t i = 0; i < count; i++)
			((volatile uint16_t *)dst)[i] = (uint16_t)value;
	} else {
		for (size_t i = 0; i < count; i++)
			((volatile uint32_t *)dst)[i] = value;
	}
}

static void run_fill(void *arg)
{
	const struct sg_op *op = arg;

	if (fill_punch(op))
		return;
	for (size_t row = 0; row < op->fill.rows; row++)
		fill_row((char *)op->fill.dst + row * op->fill.pitch, op);
}

static void run_launch(void *arg)
{
	const struct sg_op *op = arg;

	op->launch.function->kernel->fn(&op->launch.shape, op->launch.args);
}

/* The count is changed outside of the guard, which a fault leaves by a long jump. */
static bool run_kernel(struct sg_op *op)
{
	bool fine;

	__atomic_add_fetch(&n_kernels, 1, __ATOMIC_ACQ_REL);
	sg_fault_first(op->launch.function->fault);
	fine = sg_guarded(run_launch, op);
	sg_fault_first(NULL);
	__atomic_sub_fetch(&n_kernels, 1, __ATOMIC_ACQ_REL);
	return fine;
}

static bool value_satisfies_32(uint32_t seen, uint32_t value, unsigned int how)
{
	switch (how) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return seen == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (seen & value) != 0;
	case CU_STREAM_WAIT_VALUE_NOR:
		return ~(seen | value) != 0;
	default:
		return (int32_t)(seen - value) >= 0;
	}
}

static bool value_satisfies_64(uint64_t seen, uint64_t value, unsigned int how)
{
	switch (how) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return seen == value;
	case CU_STREAM_WAIT_VALUE_AND:
		return (seen & value) != 0;
	case CU_STREAM_WAIT_VALUE_NOR:
		return ~(seen | value) != 0;
	default:
		return (int64_t)(seen - value) >= 0;
	}
}

struct look {
	const struct sg_op *op;
	bool satisfied;
	uint64_t found;
};

/* Acquire: work after the wait sees all that was written before the value. */
static void value_look_once(void *arg)
{
	struct look *look = arg;
	const struct sg_op *op = look->op;
	unsigned int how = op->value.flags & ~(unsigned int)CU_STREAM_WAIT_VALUE_FLUSH;

	if (op->value.is_64) {
		look->found = __atomic_load_n((const uint64_t *)op->value.addr, __ATOMIC_ACQUIRE);
		look->satisfied = value_satisfies_64(look->found, op->value.value, how);
	} else {
		look->found = __atomic_load_n((const uint32_t *)op->value.addr, __ATOMIC_ACQUIRE);
		look->satisfied =
			value_satisfies_32((uint32_t)look->found, (uint32_t)op->value.value, how);
	}
}

static void pause_ns(uint64_t ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };

	nanosleep(&ts, NULL);
}

/* Another process ends the wait by a plain store, which can wake no thread: the value is polled. */
static bool run_wait_value(struct sg_op *op, const struct sg_context *ctx)
{
	struct look look = { .op = op };
	uint64_t ns = PAUSE_MIN_NS, waited_ns = 0;

	for (unsigned int looks = 0;; looks++) {
		if (!sg_guarded(value_look_once, &look))
			return false;
		op->value.found = look.found;
		if (look.satisfied || __atomic_load_n(&ctx->stopping, __ATOMIC_ACQUIRE) ||
		    sg_context_error(ctx))
			return true;
		op->value.waited = true;
		if (looks < SPIN_LOOKS)
			continue;
		pause_ns(ns);
		waited_ns += ns;
		ns = MM_MIN(ns * 2, MM_MAX(PAUSE_MAX_NS, MM_MIN(waited_ns / 64, PAUSE_STALLED_NS)));
	}
}

/* Release: with the value, another thread sees all earlier work of the stream. */
static void run_write(void *arg)
{
	const struct sg_op *op = arg;

	if (op->value.is_64)
		__atomic_store_n((uint64_t *)op->value.addr, op->value.value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)op->value.addr, (uint32_t)op->value.value,
				 __ATOMIC_RELEASE);
}

bool sg_op_perform(struct sg_op *op, const struct sg_context *ctx)
{
	bool waited;

	switch (op->kind) {
	case SG_OP_COPY:
		if (op->copy.rows > 1 && !sg_op_copy_is_allowed(op))
			return false;
		return sg_guarded(run_copy, op);
	case SG_OP_FILL:
		return sg_guarded(run_fill, op);
	case SG_OP_LAUNCH:
		return run_kernel(op);
	case SG_OP_WAIT_VALUE:
		waited = run_wait_value(op, ctx);
		sg_vm_order();
		return waited;
	case SG_OP_WRITE_VALUE:
		sg_vm_order();
		return sg_guarded(run_write, op);
	case SG_OP_HOST:
		/* Not guarded: a fault of host code is the program's own. */
		if (op->host.callback)
			op->host.callback(op->host.handle, CUDA_SUCCESS, op->host.arg);
		else
			op->host.fn(op->host.arg);
		return true;
	case SG_OP_FAULT:
		return false;
	default:
		return true;
	}
}

CUresult sg_op_fault(const struct sg_op *op)
{
	/* Only the processors say what went wrong; copy engines and the front end do not. */
	return op->kind == SG_OP_LAUNCH ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_LAUNCH_FAILED;
}

static uint64_t host_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * MM_NS_PER_S + (uint64_t)now.tv_nsec;
}

void sg_op_run(struct sg_op *op, struct sg_stream *stream)
{
	struct sg_context *ctx = stream->ctx;

	if (sg_is_timed(ctx->device)) {
		sg_pace_run(op, stream);
		return;
	}
	switch (op->kind) {
	case SG_OP_WAIT_STREAM:
		sg_stream_wait(op->wait.stream, op->wait.number, &ctx->stopping);
		break;
	case SG_OP_RECORD:
		sg_event_ran(op->record.event, op->record.generation, host_time_ns());
		break;
	default:
		if (!sg_op_perform(op, ctx))
			sg_context_fault(ctx, sg_op_fault(op));
		break;
	}
}

void sg_op_drop(struct sg_op *op, struct sg_context *ctx)
{
	CUresult error = sg_context_error(ctx);

	if (op->kind == SG_OP_HOST && op->host.callback)
		op->host.callback(op->host.handle, error ? error : CUDA_ERROR_CONTEXT_IS_DESTROYED,
				  op->host.arg);
}
