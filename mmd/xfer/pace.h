/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xpace - device time, where the driver keeps one of its own
 *
 * Concept:   on the software GPU's timed mode xfer is part of a modelled machine, but runs on a
 *            real one that may be slow. What it does has a cause whose device time is known: a gate
 *            was DONE, a copy landed. It tells the driver (mm/softgpu.h), and adds how late a loop
 *            that looks every 25 us is on the mean. With any other driver nothing of this happens.
 * Times:     device time in ns; 0 = not known.
 * Threading: xfer's only one.
 */
#pragma once

#include <stdint.h>

#include "mm/gpu.h"
#include "mm/softgpu.h"

struct mm_xpace { /* all NULL: the driver has no time of its own */
	mm_softgpu_written_ns_fn *written;
	mm_softgpu_wrote_fn *wrote;
	mm_softgpu_act_at_fn *act_at;
	mm_softgpu_event_ns_fn *event_ns;
	int device;
};

/* After cuInit(). */
void mm_xpace_open(struct mm_xpace *pace, const struct mm_gpu_api *gpu, int device);

/* When we could have seen that a stream wrote @value there. */
uint64_t mm_xpace_saw(const struct mm_xpace *pace, uint64_t inode, uint64_t offset, uint32_t value);

/* When we could have seen that @event, which has happened, did. */
uint64_t mm_xpace_happened(const struct mm_xpace *pace, CUevent event);

/* What is put into streams now, is because of what was seen at @ns. */
void mm_xpace_act(const struct mm_xpace *pace, uint64_t ns);

/* We write @value there, because of what was seen at @ns. */
void mm_xpace_write(const struct mm_xpace *pace, uint64_t inode, uint64_t offset, uint32_t value,
		    uint64_t ns);
