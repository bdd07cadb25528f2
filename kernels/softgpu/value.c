/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that wait for values and write them. */
#include "kernels/softgpu/value.h"

#include "kernels/softgpu/capture.h"
#include "kernels/softgpu/entry.h"
#include "kernels/softgpu/place.h"
#include "libclient/base/base.h"

struct value {
	CUdeviceptr va;
	uint64_t value;
	unsigned int flags;
	bool is_64, is_wait;
};

static CUresult value_check(const struct value *v, enum sg_place *ret_memory)
{
	static const unsigned int flush = CU_STREAM_WAIT_VALUE_FLUSH;
	unsigned int width = v->is_64 ? 8 : 4;

	if (v->flags & flush) /* the device's attribute CAN_FLUSH_REMOTE_WRITES is 0 */
		return CUDA_ERROR_NOT_SUPPORTED;
	if (v->va % width || v->flags > (v->is_wait ? CU_STREAM_WAIT_VALUE_NOR : 0u))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_memory = sg_place_of(v->va, width);
	return *ret_memory == SG_PAGEABLE ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult value_create_op(const struct value *v, struct sg_op **ret_op)
{
	enum sg_place memory;
	struct sg_op *op;

	SG_TRY(value_check(v, &memory));
	op = sg_op_create(v->is_wait                      ? SG_OP_WAIT_VALUE
			  : memory == SG_PINNED_READ_ONLY ? SG_OP_FAULT
							  : SG_OP_WRITE_VALUE);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	op->value.addr = (void *)(uintptr_t)v->va;
	op->value.value = v->value;
	op->value.flags = v->flags;
	op->value.is_64 = v->is_64;
	*ret_op = op;
	return CUDA_SUCCESS;
}

/* Takes over @ops. They go into the stream one after the other, or into a graph as one node. */
static CUresult values_submit(CUstream handle, struct sg_op **ops, size_t n_ops)
{
	struct sg_stream *stream;
	size_t n = 0;
	CUresult res;

	res = sg_stream_get(handle, &stream);
	if (res) {
		sg_ops_destroy(ops, n_ops);
		return res;
	}
	if (sg_capture_is_on(stream)) {
		res = sg_capture_add(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, ops, n_ops);
	} else {
		while (n < n_ops && !res)
			res = sg_stream_submit(stream, ops[n++], NULL);
		sg_ops_destroy(ops + n, n_ops - n);
	}
	sg_stream_put(stream);
	return res;
}

static CUresult value_op_fill(CUstream stream, const struct value *v)
{
	struct sg_op *op;

	SG_TRY(sg_enter_context());
	SG_TRY(value_create_op(v, &op));
	return values_submit(stream, &op, 1);
}

CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr va, cuuint32_t value,
					unsigned int flags)
{
	SG_ENTER();
	return value_op_fill(stream, &(struct value){ va, value, flags, false, true });
}

CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr va, cuuint64_t value,
					unsigned int flags)
{
	SG_ENTER();
	return value_op_fill(stream, &(struct value){ va, value, flags, true, true });
}

CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr va, cuuint32_t value,
					 unsigned int flags)
{
	SG_ENTER();
	return value_op_fill(stream, &(struct value){ va, value, flags, false, false });
}

CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr va, cuuint64_t value,
					 unsigned int flags)
{
	SG_ENTER();
	return value_op_fill(stream, &(struct value){ va, value, flags, true, false });
}

/* A barrier or a flush needs no op: writes are in order in any case. */
static CUresult batch_get_value(const CUstreamBatchMemOpParams *op, struct value *ret_value,
				bool *ret_nothing)
{
	*ret_nothing = false;
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		*ret_value =
			(struct value){ .va = op->waitValue.address,
					.flags = op->waitValue.flags,
					.is_64 = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64,
					.is_wait = true };
		ret_value->value = ret_value->is_64 ? op->waitValue.value64 : op->waitValue.value;
		return CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		*ret_value =
			(struct value){ .va = op->writeValue.address,
					.flags = op->writeValue.flags,
					.is_64 = op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 };
		ret_value->value = ret_value->is_64 ? op->writeValue.value64 : op->writeValue.value;
		return CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_BARRIER:
		*ret_nothing = true;
		return CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult sg_value_ops(const CUstreamBatchMemOpParams *params, unsigned int count,
		      struct sg_op **ret_ops, size_t *ret_n)
{
	struct value value;
	CUresult res = CUDA_SUCCESS;
	bool nothing;
	size_t n = 0;

	if (!params || !count || count > SG_BATCH_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count && !res; i++) {
		res = batch_get_value(&params[i], &value, &nothing);
		if (!res && !nothing)
			res = value_create_op(&value, &ret_ops[n]);
		if (!res && !nothing)
			n++;
	}
	if (res)
		sg_ops_destroy(ret_ops, n);
	else
		*ret_n = n;
	return res;
}

/* The whole batch is checked before the first op is queued. */
CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
				       CUstreamBatchMemOpParams *params, unsigned int flags)
{
	struct sg_op *ops[SG_BATCH_MAX];
	size_t n;

	SG_ENTER();
	SG_TRY(sg_enter_context());
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	SG_TRY(sg_value_ops(params, count, ops, &n));
	return values_submit(stream, ops, n);
}
