/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that put work into streams: copies, fills, host functions. */
#include <stdlib.h>
#include <string.h>

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
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
	size_t bytes;
	/* The caller named device memory: pageable memory is refused. */
	bool dst_on_device, src_on_device;
	bool wait;
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

/* Return: whether a synchronous call returns before the device's memory at @va has the bytes. */
static bool write_is_late(uint64_t va, uint64_t bytes)
{
	struct sg_context *ctx;

	/* Timed mode knows when they are there. A write that is not allowed faults in the call. */
	return !sg_context_current(&ctx) && !sg_is_timed(ctx->device) &&
	       sg_vm_allows(va, bytes, true) && !sg_vm_describe(va).sync_memops;
}

/*
 * As a driver does: a copy from pageable memory is complete when the source has been read, one
 * within the device when it has been queued; neither when the bytes are there.
 */
static bool copy_is_late(const struct copy *c, enum sg_place dst, enum sg_place src)
{
	return c->wait && dst == SG_DEVICE && write_is_late(c->dst, c->bytes) &&
	       (src == SG_PAGEABLE || (src == SG_DEVICE && sg_vm_allows(c->src, c->bytes, false)));
}

/*
 * A pageable source is read before the call returns, and a pageable destination is written before
 * it returns, as the driver does.
 */
static CUresult copy_submit(CUstream stream, const struct copy *c)
{
	enum sg_place dst = sg_place_of(c->dst, c->bytes), src = sg_place_of(c->src, c->bytes);
	struct sg_op *op;

	SG_TRY(sg_enter_context());
	if (c->wait)
		SG_TRY(sg_capture_unsafe());
	if (!c->bytes)
		return CUDA_SUCCESS;
	if (!c->dst || !c->src || (c->dst_on_device && dst == SG_PAGEABLE) ||
	    (c->src_on_device && src == SG_PAGEABLE))
		return CUDA_ERROR_INVALID_VALUE;
	op = sg_op_create(dst == SG_PINNED_READ_ONLY ? SG_OP_FAULT : SG_OP_COPY);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->copy.dst = pointer_of(c->dst);
	op->copy.src = pointer_of(c->src);
	op->copy.bytes = c->bytes;
	op->copy.way = copy_way_of(dst, src);
	op->copy.pageable = dst == SG_PAGEABLE || src == SG_PAGEABLE;
	op->late = copy_is_late(c, dst, src);
	if (src == SG_PAGEABLE && dst != SG_PAGEABLE && (!c->wait || op->late) &&
	    op->kind == SG_OP_COPY && !stream_is_captured(stream)) {
		op->copy.staged = malloc(c->bytes);
		if (!op->copy.staged) {
			sg_op_destroy(op);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		memcpy(op->copy.staged, op->copy.src, c->bytes);
		op->copy.src = op->copy.staged;
	}
	return op_submit(stream, op, (c->wait && !op->late) || dst == SG_PAGEABLE);
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
	return copy_submit(stream, &(struct copy){ dst, src, bytes, true, true, false });
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

/* ---- Pitched copies: row by row ---- */

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

static uint64_t copy_row_of(const struct side *s, size_t row, size_t width)
{
	return s->base + (s->y + row) * (s->pitch ? s->pitch : width) + s->x_bytes;
}

CUresult CUDAAPI cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream)
{
	struct side src, dst;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(copy_side_of(c->srcMemoryType, (uintptr_t)c->srcHost, c->srcDevice, &src));
	SG_TRY(copy_side_of(c->dstMemoryType, (uintptr_t)c->dstHost, c->dstDevice, &dst));
	src.x_bytes = c->srcXInBytes;
	src.y = c->srcY;
	src.pitch = c->srcPitch;
	dst.x_bytes = c->dstXInBytes;
	dst.y = c->dstY;
	dst.pitch = c->dstPitch;
	if ((src.pitch && src.pitch < c->WidthInBytes) ||
	    (dst.pitch && dst.pitch < c->WidthInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t row = 0; row < c->Height; row++)
		SG_TRY(copy_submit(stream,
				   &(struct copy){ .dst = copy_row_of(&dst, row, c->WidthInBytes),
						   .src = copy_row_of(&src, row, c->WidthInBytes),
						   .bytes = c->WidthInBytes,
						   .dst_on_device = dst.device,
						   .src_on_device = src.device }));
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpy2D_v2(const CUDA_MEMCPY2D *c)
{
	SG_TRY(cuMemcpy2DAsync_v2(c, NULL));
	return cuStreamSynchronize(NULL);
}

CUresult CUDAAPI cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *c)
{
	return cuMemcpy2D_v2(c);
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
	op->late = f.wait && memory == SG_DEVICE && write_is_late(f.va, bytes);
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
