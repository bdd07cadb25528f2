/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_pace - when the work of a stream runs, in timed mode
 *
 * Concept:    a stream has a device time of its own, the end of what ran last. Its worker goes
 *             through the queue as fast as it can, and moves that time on by reserving engines
 *             (sg_timed). It waits for the clock only where an effect becomes visible to others, or
 *             the state of others is read: values, host functions, copies to the host, events that
 *             follow kernels beside copies.
 * Bytes:      kernels do not run: their cost function is called. Fills and copies of up to
 *             SG_PACE_BYTES are done (of SG_PACE_PAGEABLE_BYTES, where pageable host memory is on
 *             one side: programs keep the data that cost functions read there). For larger ones
 *             only the addresses are checked.
 * Threading:  called on the stream's worker.
 */
#pragma once

#include "kernels/softgpu/op.h"

#define SG_PACE_BYTES          (UINT64_C(64) << 10)
#define SG_PACE_PAGEABLE_BYTES (UINT64_C(1) << 20)

/* Called on the worker. */
void sg_pace_run(struct sg_op *op, struct sg_stream *stream);
