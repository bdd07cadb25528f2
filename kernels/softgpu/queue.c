/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points for streams themselves. */
#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/stream.h"

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *ret, unsigned int flags, int priority)
{
	struct sg_context *ctx;
	struct sg_stream *stream;

	SG_ENTER();
	SG_TRY(sg_context_current(&ctx));
	if (!ret || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_create(ctx, flags, priority, &stream));
	sg_object_publish(&stream->object);
	*ret = (CUstream)stream;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreate(CUstream *ret, unsigned int flags)
{
	return cuStreamCreateWithPriority(ret, flags, 0);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle)
{
	struct sg_stream *stream;

	SG_ENTER();
	stream = sg_object_retract(handle, SG_STREAM);
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_stream_close(stream);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
	struct sg_stream *stream;
	CUresult res;

	SG_ENTER();
	SG_TRY(sg_stream_get(handle, &stream));
	res = sg_capture_check_stream(stream);
	if (!res)
		res = sg_stream_synchronize(stream);
	sg_stream_put(stream);
	return res;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
	struct sg_stream *stream;
	CUresult res;

	SG_ENTER();
	SG_TRY(sg_stream_get(handle, &stream));
	res = sg_capture_check_stream(stream);
	if (!res)
		res = sg_stream_is_done(stream, __atomic_load_n(&stream->queued, __ATOMIC_ACQUIRE))
			      ? sg_context_error(stream->ctx)
			      : CUDA_ERROR_NOT_READY;
	sg_stream_put(stream);
	return res;
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int *priority)
{
	struct sg_stream *stream;

	SG_ENTER();
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	*priority = stream->priority;
	sg_stream_put(stream);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	struct sg_stream *stream;

	SG_ENTER();
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	*flags = stream->flags;
	sg_stream_put(stream);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long *id)
{
	struct sg_stream *stream;

	SG_ENTER();
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	*id = stream->id;
	sg_stream_put(stream);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
	struct sg_stream *stream;

	SG_ENTER();
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_stream_get(handle, &stream));
	*ctx = (CUcontext)stream->ctx;
	sg_stream_put(stream);
	return CUDA_SUCCESS;
}
