/* SPDX-License-Identifier: Apache-2.0 */
/* sg_value - batches of waits and writes, as work */
#pragma once

#include "kernels/softgpu/op.h"

#define SG_BATCH_MAX 255u

/*
 * Checks a batch, and makes an op of each wait and write in it; barriers need none.
 * @ret_ops: room for SG_BATCH_MAX; the caller's to give back, all or none.
 */
CUresult sg_value_ops(const CUstreamBatchMemOpParams *params, unsigned int count,
		      struct sg_op **ret_ops, size_t *ret_n);
