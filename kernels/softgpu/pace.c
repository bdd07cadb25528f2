/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/softgpu/pace.h"

#include "kernels/softgpu/event.h"
#include "kernels/softgpu/fault.h"
#include "kernels/softgpu/module.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm.h"
#include "kernels/softgpu/written.h"
#include "kernels/timing/cost.h"
#include "libclient/base/base.h"

static const struct mm_profile *stream_profile(const struct sg_stream *s)
{
	return &sg_device_info(s->ctx->device)->timing.profile;
}

static void kernels_set(struct sg_stream *s, uint64_t from_ns)
{
	__atomic_store_n(&s->kernels_ns, from_ns, __ATOMIC_RELEASE);
}

/*
 * Waits until the kernels since the last call are over, including the time that copies beside them
 * take from them. With @lazy, only if copies could have slowed them; they can still be settled
 * later.
 */
static void kernels_settle(struct sg_stream *s, bool lazy)
{
	unsigned int device = s->ctx->device;
	uint64_t from = s->kernels_ns, end = s->time_ns, slowed;

	if (!from || (lazy && !sg_timed_may_slow(device, from)))
		return;
	for (;;) {
		sg_timed_until(device, s->time_ns, &s->ctx->stopping, false);
		slowed = sg_timed_slowed(device, from, end, s->compute_ns);
		if (slowed <= s->time_ns)
			break;
		s->time_ns = slowed;
	}
	if (s->time_ns > end)
		sg_timed_extend(device, SG_COMPUTE, end, s->time_ns - end);
	kernels_set(s, 0);
}

/* Waits until the device time of the stream, when an effect becomes visible. */
static void wait_until_due(struct sg_stream *s)
{
	kernels_settle(s, false);
	sg_timed_until(s->ctx->device, s->time_ns, &s->ctx->stopping, true);
}

static void engine_reserve(struct sg_stream *s, uint64_t ns)
{
	uint64_t start = sg_timed_reserve(s->ctx->device, SG_COMPUTE, s->time_ns, ns);

	if (!s->kernels_ns) {
		kernels_set(s, start);
		s->compute_ns = 0;
	}
	s->compute_ns += ns;
	s->time_ns = start + ns;
}

/* ---- kernels ---- */

struct pace_query {
	const struct sg_op *op;
	mm_host_cost_fn *cost_fn;
	struct mm_cost cost;
};

static void cost_query(void *arg)
{
	struct pace_query *q = arg;

	q->cost_fn(&q->op->launch.shape, q->op->launch.args, &q->cost);
}

/* A cost function reads memory that its arguments point to: it may fault, as the kernel would. */
static bool launch_reserve(const struct sg_op *op, struct sg_stream *s)
{
	struct pace_query q = { .op = op, .cost_fn = op->launch.function->kernel->cost };

	if (q.cost_fn && !sg_guarded(cost_query, &q))
		return false;
	sg_timed_count_kernel(s->ctx->device);
	engine_reserve(s, mm_cost_ns(stream_profile(s), &q.cost));
	return true;
}

/* ---- copies and fills ---- */

static bool op_is_small(const struct sg_op *op)
{
	return op->copy.bytes <= (op->copy.pageable ? SG_PACE_PAGEABLE_BYTES : SG_PACE_BYTES);
}

/*
 * A device has several copy engines, which share a link packet by packet: a small copy does not
 * wait for large ones that are under way, and takes no bandwidth worth counting.
 */
static void copy_small_reserve(const struct sg_op *op, struct sg_stream *s)
{
	const enum mm_link link = op->copy.way == SG_TO_DEVICE ? MM_LINK_H2D : MM_LINK_D2H;

	kernels_settle(s, true);
	s->time_ns += mm_cost_copy_ns(stream_profile(s), link, op->copy.bytes, 0);
}

static bool copy_reserve(struct sg_op *op, struct sg_stream *s)
{
	unsigned int device = s->ctx->device;

	if (op_is_small(op) && (op->copy.way == SG_TO_DEVICE || op->copy.way == SG_TO_HOST)) {
		copy_small_reserve(op, s);
		return sg_op_perform(op, s->ctx);
	}
	switch (op->copy.way) {
	case SG_IN_DEVICE:
		engine_reserve(s, mm_cost_device_copy_ns(stream_profile(s), op->copy.bytes));
		break;
	case SG_TO_DEVICE:
		kernels_settle(s, true);
		sg_timed_reserve_copy(device, SG_H2D, s->time_ns, op->copy.bytes, &s->time_ns);
		break;
	case SG_TO_HOST:
		kernels_settle(s, true);
		sg_timed_reserve_copy(device, SG_D2H, s->time_ns, op->copy.bytes, &s->time_ns);
		break;
	case SG_IN_HOST:
		break;
	}
	return op_is_small(op) ? sg_op_perform(op, s->ctx) : sg_op_copy_is_allowed(op);
}

static bool fill_reserve(struct sg_op *op, struct sg_stream *s)
{
	uint64_t row = (uint64_t)op->fill.count * op->fill.width, bytes = row * op->fill.rows;
	uint64_t span = row + (op->fill.rows - 1) * op->fill.pitch;

	engine_reserve(s, mm_cost_fill_ns(stream_profile(s), bytes));
	if (bytes <= SG_PACE_BYTES)
		return sg_op_perform(op, s->ctx);
	return op->fill.in_host || sg_vm_allows((uintptr_t)op->fill.dst, span, true);
}

/* ---- what others see ---- */

/*
 * A value that a stream wrote has the time that the stream recorded, however late it is read here.
 * A value that the host wrote was there in time, as far as can be known, if the first look finds
 * it; else it came now.
 */
static bool value_wait(struct sg_op *op, struct sg_stream *s)
{
	unsigned int device = s->ctx->device;
	uint64_t when, now;

	kernels_settle(s, false);
	sg_timed_until(device, s->time_ns, &s->ctx->stopping, false);
	if (!sg_op_perform(op, s->ctx))
		return false;
	when = sg_written_when(device, (uintptr_t)op->value.addr, op->value.found, op->value.is_64);
	now = sg_timed_now(device);
	if (!when && op->value.waited)
		when = now;
	s->time_ns = MM_MAX(s->time_ns, MM_MIN(when, now));
	return true;
}

static bool value_write(struct sg_op *op, struct sg_stream *s)
{
	wait_until_due(s);
	sg_written_put(s->ctx->device, (uintptr_t)op->value.addr, op->value.value, op->value.is_64,
		       s->time_ns);
	return sg_op_perform(op, s->ctx);
}

static void host_function_call(struct sg_op *op, struct sg_stream *s)
{
	wait_until_due(s);
	sg_op_perform(op, s->ctx);
	s->time_ns = MM_MAX(s->time_ns, sg_timed_now(s->ctx->device));
}

static void stream_wait(const struct sg_op *op, struct sg_stream *s)
{
	uint64_t end = sg_stream_end_of(op->wait.stream, op->wait.number, &s->ctx->stopping);

	kernels_settle(s, true);
	s->time_ns = MM_MAX(s->time_ns, end);
}

static bool op_pace(struct sg_op *op, struct sg_stream *s)
{
	switch (op->kind) {
	case SG_OP_LAUNCH:
		return launch_reserve(op, s);
	case SG_OP_COPY:
		return copy_reserve(op, s);
	case SG_OP_FILL:
		return fill_reserve(op, s);
	case SG_OP_WAIT_VALUE:
		return value_wait(op, s);
	case SG_OP_WRITE_VALUE:
		return value_write(op, s);
	case SG_OP_HOST:
		host_function_call(op, s);
		return true;
	case SG_OP_WAIT_STREAM:
		stream_wait(op, s);
		return true;
	case SG_OP_RECORD:
		kernels_settle(s, true);
		sg_event_ran(op->record.event, op->record.generation, s->time_ns);
		return true;
	case SG_OP_SETTLE:
		kernels_settle(s, false);
		return true;
	case SG_OP_FAULT:
		return false;
	case SG_OP_GRAPH: /* a graph comes here one step at a time */
	case SG_OP_WAIT_EVENT:
		return true;
	}
	return true;
}

void sg_pace_run(struct sg_op *op, struct sg_stream *s)
{
	/* Where launches come slowly, there is nothing to wait for yet. */
	if (op->submitted_ns > s->time_ns && sg_timed_now(s->ctx->device) >= s->time_ns)
		kernels_settle(s, false);
	s->time_ns = MM_MAX(s->time_ns, op->submitted_ns);
	if (!op_pace(op, s))
		sg_context_fault(s->ctx, sg_op_fault(op));
}
