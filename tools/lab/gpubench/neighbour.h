/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_neighbour - another process that keeps the device busy, as another tenant or mmd's xfer does
 *
 * Concept:   The neighbour has a context of its own. On order it copies a number of bytes in either
 *            direction, or computes steps until it is stopped: one after the other, or with a stall
 *            after each, in which its stream waits for a value as at a gate. A stall lasts until
 *            this process has completed a number of steps, so that it depends on no clock. Both
 *            processes count their steps in memory that they share.
 * Ownership: it must be forked before this process opens the driver, and ends when it is closed.
 * Threading: one thread in each process.
 * Errors:    negative errno, with the sentence in bench->err.
 */
#pragma once

#include "tools/lab/gpubench/gpubench.h"

enum mm_gpu_deed { MM_GPU_COPIES, MM_GPU_STEPS, MM_GPU_STALLED_STEPS };

struct mm_gpu_order {
	enum mm_gpu_deed deed;
	uint64_t in_bytes, out_bytes; /* to be copied */
	uint64_t piece_bytes;         /* size of each copy */
	uint32_t launches;            /* of the load, in a step */
};

/* Memory of both processes; its fields are atomic. */
struct mm_gpu_common {
	uint64_t steps[2]; /* completed by this process; by the neighbour */
	uint32_t stop;     /* requests the neighbour to end its steps */
	uint32_t over;     /* the neighbour has done all of the order */
};

struct mm_gpu_neighbour {
	struct mm_gpu_bench *bench;
	int fd;
	bool busy; /* an order was given and not yet ended */
	struct mm_gpu_common *common;
};

int mm_gpu_neighbour_open(struct mm_gpu_neighbour *n, struct mm_gpu_bench *bench);
void mm_gpu_neighbour_close(struct mm_gpu_neighbour *n);

/* Gives an order. Return: 0 when the first copies have landed, or the first step can begin. */
int mm_gpu_neighbour_begin(struct mm_gpu_neighbour *n, const struct mm_gpu_order *order);

/* True if the neighbour has done all that the order requires. */
bool mm_gpu_neighbour_is_over(const struct mm_gpu_neighbour *n);

/* Counts a step of this process, which may end a stall of the neighbour's. */
void mm_gpu_neighbour_count(struct mm_gpu_neighbour *n);

/* Returns the steps that the neighbour has completed since it was opened. */
uint64_t mm_gpu_neighbour_steps(const struct mm_gpu_neighbour *n);

/* Ends the order, and waits until the device has done what was enqueued. Nothing to end is 0. */
int mm_gpu_neighbour_end(struct mm_gpu_neighbour *n);
