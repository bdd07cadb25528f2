/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that put work into streams: copies, fills, host functions. */
#include <stdlib.h>
#include <string.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/host.h"
#include "kernels/softgpu/op.h"
#include "kernels/softgpu/place.h"
#include "kernels/softgpu/timed.h"
#include "kernels/softgpu/vm.h"
#include "libclient/base/base.h"

static enum sg_way copy_way_of(enum sg_place dst, enum sg_place src)
{
	if (dst == SG_DEVICE)
		return src == SG_DEVICE ? SG_IN_DEVICE : SG_TO_DEVICE;
	return src == SG_DEVICE ? SG_TO_HOST : SG_IN_HOST;
}

static void *pointer_of(uint64_t va)
{
	return (void *)(uintptr_t)va;
}

/* Takes over @op, also when it fails. @wait: waits until it is done. */
static CUresult op_submit(CUstream handle, struct sg_op *op, bool wait)
{
	struct sg_stream *stream;
	uint64_t number;
	CUresult res;

	res = sg_stream_get(handle, &stream);
	if (res) {
		sg_op_destroy(op);
		return res;
	}
	res = sg_stream_submit(stream, op, &number);
	if (!res && wait && number) {
		sg_stream_wait(stream, number, NULL);
		res = sg_context_error(stream->ctx);
	}
	sg_stream_put(stream);
	return res;
}

/* ---- Copies ---- */

struct copy {
	uint64_t dst, src;
	size_t bytes; /* of a row */
	/* The caller named device memory: pageable memory is refused. */
	bool dst_on_device, src_on_device;
	bool wait;
	size_t rows, dst_pitch, src_pitch; /* pitch: bytes from one row to the next */
};

/* Pageable memory, too, is read and written when the graph runs. */
static bool stream_is_captured(CUstream handle)
{
	struct sg_stream *stream;
	bool captured;

	if (sg_stream_get(handle, &stream))
		return false;
	captured = sg_capture_is_on(stream);
	sg_stream_put(stream);
	return captured;
}

/*
 * Return: whether a synchronous call returns before the device's memory at @va has the bytes. A
 * write that is not allowed faults in the call.
 */
static bool write_is_late(uint64_t va)
{
	struct sg_context *ctx;

	/* Timed mode knows when they are there. */
	return !sg_context_current(&ctx) && !sg_is_timed(ctx->device) &&
	       !sg_vm_describe(va).sync_memops;
}

/*
 * As a driver does: a copy from pageable memory is complete when the source has been read, one
 * within the device when it has been queued; neither when the bytes are there.
 */
static bool copy_is_late(const struct copy *c, const struct sg_op *op)
{
	return c->wait &&
	       (op->copy.way == SG_IN_DEVICE ||
		(op->copy.way == SG_TO_DEVICE && op->copy.pageable)) &&
	       write_is_late(c->dst) && sg_op_copy_is_allowed(op);
}

/*
 * Turns rows without a gap into one row. Return: false, the bytes or a side's length overflow, or
 * a side goes beyond the address space.
 */
static bool copy_normalise(struct copy *c, size_t *ret_dst_span, size_t *ret_src_span)
{
	uint64_t end;
	size_t bytes;

	if (__builtin_mul_overflow(c->bytes, c->rows, &bytes))
		return false;
	if (c->rows == 1 || (c->dst_pitch == c->bytes && c->src_pitch == c->bytes)) {
		c->bytes = c->dst_pitch = c->src_pitch = bytes;
		c->rows = 1;
		*ret_dst_span = *ret_src_span = bytes;
		return true;
	}
	return !__builtin_mul_overflow(c->dst_pitch, c->rows - 1, ret_dst_span) &&
	       !__builtin_add_overflow(*ret_dst_span, c->bytes, ret_dst_span) &&
	       !__builtin_add_overflow(c->dst, *ret_dst_span, &end) &&
	       !__builtin_mul_overflow(c->src_pitch, c->rows - 1, ret_src_span) &&
	       !__builtin_add_overflow(*ret_src_span, c->bytes, ret_src_span) &&
	       !__builtin_add_overflow(c->src, *ret_src_span, &end);
}

static struct sg_op *copy_op_create(const struct copy *c, enum sg_place dst, enum sg_place src)
{
	struct sg_op *op = sg_op_create(dst == SG_PINNED_READ_ONLY ? SG_OP_FAULT : SG_OP_COPY);

	if (!op)
		return NULL;
	op->copy.dst = pointer_of(c->dst);
	op->copy.src = pointer_of(c->src);
	op->copy.bytes = c->bytes * c->rows;
	op->copy.width = c->bytes;
	op->copy.rows = c->rows;
	op->copy.dst_pitch = c->dst_pitch;
	op->copy.src_pitch = c->src_pitch;
	op->copy.way = copy_way_of(dst, src);
	op->copy.pageable = dst == SG_PAGEABLE || src == SG_PAGEABLE;
	op->late = copy_is_late(c, op);
	return op;
}

/* Reads the source into memory of the op's own, row behind row. Return: false, there is none. */
static bool copy_stage(struct sg_op *op)
{
	char *staged = malloc(op->copy.bytes);

	if (!staged)
		return false;
	for (size_t row = 0; row < op->copy.rows; row++)
		memcpy(staged + row * op->copy.width,
		       (const char *)op->copy.src + row * op->copy.src_pitch, op->copy.width);
	op->copy.src = op->copy.staged = staged;
	op->copy.src_pitch = op->copy.width;
	return true;
}

/*
 * A pageable source is read before the call returns, and a pageable destination is written before
 * it returns, as the driver does.
 */
static CUresult copy_rows_submit(CUstream stream, const struct copy *wanted)
{
	struct copy c = *wanted;
	size_t dst_span, src_span;
	enum sg_place dst, src;
	struct sg_op *op;

	SG_TRY(sg_enter_context());
	if (c.wait)
		SG_TRY(sg_capture_unsafe());
	if (!c.bytes || !c.rows)
		return CUDA_SUCCESS;
	if (!c.dst || !c.src || !copy_normalise(&c, &dst_span, &src_span))
		return CUDA_ERROR_INVALID_VALUE;
	dst = sg_place_of(c.dst, dst_span);
	src = sg_place_of(c.src, src_span);
	if ((dst == SG_PAGEABLE && (c.dst_on_device || sg_host_is_mixed(c.dst, dst_span))) ||
	    (src == SG_PAGEABLE && (c.src_on_device || sg_host_is_mixed(c.src, src_span))))
		return CUDA_ERROR_INVALID_VALUE;
	op = copy_op_create(&c, dst, src);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (src == SG_PAGEABLE && dst != SG_PAGEABLE && (!c.wait || op->late) &&
	    op->kind == SG_OP_COPY && !stream_is_captured(stream) && !copy_stage(op)) {
		sg_op_destroy(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return op_submit(stream, op, (c.wait && !op->late) || dst == SG_PAGEABLE);
}

static CUresult copy_submit(CUstream stream, const struct copy *linear)
{
	struct copy c = *linear;

	c.rows = 1;
	return copy_rows_submit(stream, &c);
}

CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes,
				      CUstream stream)
{
	SG_ENTER();
	return copy_submit(stream,
			   &(struct copy){ dst, (uintptr_t)src, bytes, .dst_on_device = true });
}

CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	SG_ENTER();
	return copy_submit(stream,
			   &(struct copy){ (uintptr_t)dst, src, bytes, .src_on_device = true });
}

CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
				      CUstream stream)
{
	SG_ENTER();
	return copy_submit(stream, &(struct copy){ dst, src, bytes, .dst_on_device = true,
						   .src_on_device = true });
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	SG_ENTER();
	return copy_submit(stream, &(struct copy){ .dst = dst, .src = src, .bytes = bytes });
}

CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t bytes)
{
	SG_ENTER();
	return copy_submit(NULL, &(struct copy){ dst, (uintptr_t)src, bytes, .dst_on_device = true,
						 .wait = true });
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t bytes)
{
	SG_ENTER();
	return copy_submit(NULL, &(struct copy){ (uintptr_t)dst, src, bytes, .src_on_device = true,
						 .wait = true });
}

CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	SG_ENTER();
	return copy_submit(NULL, &(struct copy){ dst, src, bytes, true, true, .wait = true });
}

CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	SG_ENTER();
	return copy_submit(NULL, &(struct copy){ dst, src, bytes, .wait = true });
}

/* ---- Pitched copies: all rows are one piece of work ---- */

struct side {
	uint64_t base;
	size_t x_bytes, y, pitch;
	bool device;
};

static CUresult copy_side_of(CUmemorytype type, uint64_t host, CUdeviceptr device, struct side *ret)
{
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		ret->base = host;
		ret->device = false;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		ret->base = device;
		ret->device = type == CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_MEMORYTYPE_ARRAY:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/*
 * Turns base, column and line into the address of the first row. A pitch of 0 is not specified:
 * there is no gap then. Return: false, the pitch does not fit, or there is no such address.
 */
static bool side_normalise(struct side *s, size_t width)
{
	uint64_t offset;

	if (s->pitch > SG_PITCH_MAX ||
	    (s->pitch && (width > s->pitch || s->x_bytes > s->pitch - width)))
		return false;
	if (!s->pitch)
		s->pitch = width;
	return s->base && !__builtin_mul_overflow(s->y, s->pitch, &offset) &&
	       !__builtin_add_overflow(offset, s->x_bytes, &offset) &&
	       !__builtin_add_overflow(s->base, offset, &s->base);
}

static CUresult copy_2d_submit(const CUDA_MEMCPY2D *p, CUstream stream, bool wait)
{
	struct side src, dst;

	SG_TRY(sg_enter_context());
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(copy_side_of(p->srcMemoryType, (uintptr_t)p->srcHost, p->srcDevice, &src));
	SG_TRY(copy_side_of(p->dstMemoryType, (uintptr_t)p->dstHost, p->dstDevice, &dst));
	src.x_bytes = p->srcXInBytes;
	src.y = p->srcY;
	src.pitch = p->srcPitch;
	dst.x_bytes = p->dstXInBytes;
	dst.y = p->dstY;
	dst.pitch = p->dstPitch;
	if (p->WidthInBytes && p->Height &&
	    !(side_normalise(&src, p->WidthInBytes) && side_normalise(&dst, p->WidthInBytes)))
		return CUDA_ERROR_INVALID_VALUE;
	return copy_rows_submit(stream, &(struct copy){ .dst = dst.base,
							.src = src.base,
							.bytes = p->WidthInBytes,
							.dst_on_device = dst.device,
							.src_on_device = src.device,
							.wait = wait,
							.rows = p->Height,
							.dst_pitch = dst.pitch,
							.src_pitch = src.pitch });
}

CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
	SG_ENTER();
	return copy_2d_submit(copy, stream, false);
}

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
	SG_ENTER();
	return copy_2d_submit(copy, NULL, true);
}

CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *copy)
{
	SG_ENTER();
	return copy_2d_submit(copy, NULL, true);
}

/* ---- Fills ---- */

struct fill {
	CUdeviceptr va;
	uint32_t value;
	unsigned int width; /* bytes of an element */
	size_t count, rows; /* elements in a row; rows */
	size_t pitch;       /* bytes from one row to the next */
	bool wait;
};

/*
 * Turns rows without a gap into one row. Return: false, the size overflows or the pitch does not
 * fit.
 */
static bool fill_normalise(struct fill *f, size_t *ret_span_bytes)
{
	size_t row, span;

	if (__builtin_mul_overflow(f->count, f->width, &row))
		return false;
	if (f->rows == 1 || f->pitch == row) {
		f->pitch = row;
		if (__builtin_mul_overflow(f->count, f->rows, &f->count))
			return false;
		f->rows = 1;
		return !__builtin_mul_overflow(f->count, f->width, ret_span_bytes);
	}
	return f->pitch > row && f->pitch % f->width == 0 &&
	       !__builtin_mul_overflow(f->pitch, f->rows - 1, &span) &&
	       !__builtin_add_overflow(span, row, ret_span_bytes);
}

static CUresult fill_submit(CUstream stream, const struct fill *wanted)
{
	struct fill f = *wanted;
	enum sg_place memory;
	struct sg_op *op;
	size_t bytes;

	SG_TRY(sg_enter_context());
	if (f.wait)
		SG_TRY(sg_capture_unsafe());
	if (!f.count || !f.rows)
		return CUDA_SUCCESS;
	if (f.va % f.width || !fill_normalise(&f, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memory = sg_place_of(f.va, bytes);
	if (memory == SG_PAGEABLE)
		return CUDA_ERROR_INVALID_VALUE;
	op = sg_op_create(memory == SG_PINNED_READ_ONLY ? SG_OP_FAULT : SG_OP_FILL);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->fill.dst = pointer_of(f.va);
	op->fill.value = f.value;
	op->fill.width = f.width;
	op->fill.count = f.count;
	op->fill.rows = f.rows;
	op->fill.pitch = f.pitch;
	op->fill.in_host = memory != SG_DEVICE;
	op->late = f.wait && memory == SG_DEVICE && write_is_late(f.va) &&
		   sg_vm_allows(f.va, bytes, true);
	return op_submit(stream, op, f.wait && !op->late);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr va, unsigned char value, size_t count, CUstream stream)
{
	SG_ENTER();
	return fill_submit(stream, &(struct fill){ va, value, 1, count, 1, 0, false });
}

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr va, unsigned char value, size_t count)
{
	SG_ENTER();
	return fill_submit(NULL, &(struct fill){ va, value, 1, count, 1, 0, true });
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr va, size_t pitch, unsigned char value, size_t count,
				   size_t rows, CUstream stream)
{
	SG_ENTER();
	return fill_submit(stream, &(struct fill){ va, value, 1, count, rows, pitch, false });
}

CUresult CUDAAPI cuMemsetD2D8_v2(CUdeviceptr va, size_t pitch, unsigned char value, size_t count,
				 size_t rows)
{
	SG_ENTER();
	return fill_submit(NULL, &(struct fill){ va, value, 1, count, rows, pitch, true });
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr va, unsigned short value, size_t count,
				  CUstream stream)
{
	SG_ENTER();
	return fill_submit(stream, &(struct fill){ va, value, 2, count, 1, 0, false });
}

CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr va, unsigned short value, size_t count)
{
	SG_ENTER();
	return fill_submit(NULL, &(struct fill){ va, value, 2, count, 1, 0, true });
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr va, size_t pitch, unsigned short value,
				    size_t count, size_t rows, CUstream stream)
{
	SG_ENTER();
	return fill_submit(stream, &(struct fill){ va, value, 2, count, rows, pitch, false });
}

CUresult CUDAAPI cuMemsetD2D16_v2(CUdeviceptr va, size_t pitch, unsigned short value, size_t count,
				  size_t rows)
{
	SG_ENTER();
	return fill_submit(NULL, &(struct fill){ va, value, 2, count, rows, pitch, true });
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr va, unsigned int value, size_t count, CUstream stream)
{
	SG_ENTER();
	return fill_submit(stream, &(struct fill){ va, value, 4, count, 1, 0, false });
}

CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr va, unsigned int value, size_t count)
{
	SG_ENTER();
	return fill_submit(NULL, &(struct fill){ va, value, 4, count, 1, 0, true });
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr va, size_t pitch, unsigned int value, size_t count,
				    size_t rows, CUstream stream)
{
	SG_ENTER();
	return fill_submit(stream, &(struct fill){ va, value, 4, count, rows, pitch, false });
}

CUresult CUDAAPI cuMemsetD2D32_v2(CUdeviceptr va, size_t pitch, unsigned int value, size_t count,
				  size_t rows)
{
	SG_ENTER();
	return fill_submit(NULL, &(struct fill){ va, value, 4, count, rows, pitch, true });
}

/* ---- Host functions ---- */

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *arg)
{
	struct sg_op *op;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	op = sg_op_create(SG_OP_HOST);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->host.fn = fn;
	op->host.arg = arg;
	return op_submit(stream, op, false);
}

CUresult CUDAAPI cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *arg,
				     unsigned int flags)
{
	struct sg_op *op;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	op = sg_op_create(SG_OP_HOST);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->host.callback = callback;
	op->host.handle = stream;
	op->host.arg = arg;
	return op_submit(stream, op, false);
}
