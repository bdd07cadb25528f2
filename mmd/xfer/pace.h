/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xpace - device time, where the driver has a clock of its own
 *
 * Concept:   In the timed mode of the software GPU, xfer is part of a modelled machine, but runs on
 *            a real one that may be slow. Each of its actions has a cause whose device time is
 *            known: a gate was DONE, a copy landed. xfer passes that time to the driver
 *            (mm/softgpu.h), plus the mean delay of a loop that looks every 25 us. With any other
 *            driver these functions do nothing.
 * Times:     device time in ns; 0: not known.
 * Threading: one thread.
 */
#pragma once

#include <stdint.h>

#include "mm/gpu.h"
#include "mm/softgpu.h"

/* All NULL: the driver has no clock of its own. */
struct mm_xpace {
	mm_softgpu_written_ns_fn *written;
	mm_softgpu_wrote_fn *wrote;
	mm_softgpu_act_at_fn *act_at;
	mm_softgpu_event_ns_fn *event_ns;
	int device;
};

/* cuInit() must have been called. */
void mm_xpace_open(struct mm_xpace *pace, const struct mm_gpu_api *gpu, int device);

/* When xfer could first have seen that a stream wrote @value at @offset of the region @inode. */
uint64_t mm_xpace_saw(const struct mm_xpace *pace, uint64_t inode, uint64_t offset, uint32_t value);

/* When xfer could first have seen that @event, which has happened, did. */
uint64_t mm_xpace_happened(const struct mm_xpace *pace, CUevent event);

/* The cause of the work that xfer puts into streams from now on is what it saw at @ns. */
void mm_xpace_act(const struct mm_xpace *pace, uint64_t ns);

/* xfer writes @value at @offset of the region @inode, because of what it saw at @ns. */
void mm_xpace_write(const struct mm_xpace *pace, uint64_t inode, uint64_t offset, uint32_t value,
		    uint64_t ns);
