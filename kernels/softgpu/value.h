/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_value - batches of waits for values and writes of values, as work
 *
 * Concept:   each wait and each write of a batch becomes an op of its own, after the whole batch
 *            was checked.
 * Ownership: the ops belong to the caller.
 * Threading: safe from any thread.
 */
#pragma once

#include "kernels/softgpu/op.h"

#define SG_BATCH_MAX 255u

/*
 * Checks a batch, and makes an op of each wait and write in it; barriers need none. @ret_ops: room
 * for SG_BATCH_MAX. On failure no op is returned.
 */
CUresult sg_value_ops(const CUstreamBatchMemOpParams *params, unsigned int count,
		      struct sg_op **ret_ops, size_t *ret_n);
