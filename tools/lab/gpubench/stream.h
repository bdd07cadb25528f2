/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_streaming - the statement of how fast mmd streams layers in, which two groups measure
 *
 * Concept:   The state of such a group begins with struct mm_gpu_streaming, whose host memory is
 *            open. If it has no tenant yet, one is started by an mmd with pages of its own choice,
 *            behind whatever was measured without mmd.
 * Ownership: the group closes the tenant.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/gpubench/engine.h"
#include "tools/lab/gpubench/groups.h"

struct mm_gpu_streaming {
	struct mm_gpu_bed bed;
	struct mm_gpu_tenant tenant;
	struct mm_gpu_host host;
	/* of a case */
	struct mm_gpu_engine engine;
	struct mm_gpu_range range; /* destination of the bare loop's copies */
	struct mm_plan_set set;
	uint32_t steps;
	uint64_t piece_bytes; /* size of each of mmd's copies */
	uint64_t streamed_bytes;
};

extern const struct mm_gpu_measurement mm_gpu_streaming_h2d;
