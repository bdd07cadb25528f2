/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_pace - when the work of a stream runs, in timed mode
 *
 * Concept:    a stream has a device time of its own, the end of what ran last. Its worker goes
 *             through the queue as fast as it can, and moves that time on by reserving engines
 *             (sg_timed). It stops for the clock only where something becomes visible, or is looked
 *             at: values, host functions, what copies to the host bring, events behind kernels
 *             beside copies.
 * Bytes:      kernels do not run: their cost function is asked. Fills and copies of up to
 *             SG_PACE_BYTES are made (of SG_PACE_PAGEABLE_BYTES, where pageable host memory is on
 *             one side: that is where programs keep what cost functions look at), others are
 *             checked for where they go, and touch nothing.
 */
#pragma once

#include "kernels/softgpu/op.h"

#define SG_PACE_BYTES          (UINT64_C(64) << 10)
#define SG_PACE_PAGEABLE_BYTES (UINT64_C(1) << 20)

/* On the worker. */
void sg_pace_run(struct sg_op *op, struct sg_stream *stream);
