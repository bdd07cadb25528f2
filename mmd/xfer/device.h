/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xdev - the device that this xfer owns
 *
 * Concept:   A loaded driver, one device's primary context and three ordered streams: one for
 *            copies from the host and one for copies to it (the link), one for scrubs, which use
 *            the device only; none waits for another. The first xfer of an mmd locks the device
 *            (mmd/common/devlock.h); keeper holds the lock from then on.
 * Ownership: mm_xdev_close() accepts MM_XDEV_NULL and half-built ones.
 * Threading: one thread, in which the context is current.
 * Errors:    mm_xdev_result() turns a driver's result into a negative errno. A lost context cannot
 *            be mended within a process, so it ends this one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/abi.h"
#include "mm/gpu.h"
#include "mmd/common/devlock.h"
#include "mmd/common/proto.h"
#include "mmd/xfer/pace.h"

struct mm_xdev {
	struct mm_gpu_api gpu;
	CUdevice device;
	CUcontext ctx;     /* NULL: not retained */
	CUstream copy;     /* from the host */
	CUstream copy_out; /* to the host */
	CUstream scrub;
	CUmemAllocationProp prop; /* properties of every page */
	size_t granularity_bytes;
	uint64_t total_bytes;
	uint64_t pitch_max_bytes; /* of a copy of rows; 0: not known */
	CUuuid uuid;
	enum mm_driver_kind kind;
	int numa_node;       /* NUMA node next to the device; -1: not known */
	bool host_read_only; /* the driver registers read-only host memory */
	struct mm_xfacts facts;
	struct mm_devlock lock;
	char name[96];
	struct mm_xpace pace;
};
#define MM_XDEV_NULL ((struct mm_xdev){ .lock = MM_DEVLOCK_NULL, .numa_node = -1 })

/**
 * mm_xdev_open() - load the driver, lock the device, make its context
 * @dev:     MM_XDEV_NULL
 * @driver:  as mm_gpu_open() takes it; "": from the environment
 * @ordinal: of the device, as CUDA counts what is visible
 * @uuid:    "", or in place of @ordinal: GPU-… or MIG-…, or an unambiguous beginning of it
 * @lock:    lock the device: this mmd does not hold it yet
 * @err:     gets one line on failure
 *
 * Return: 0; -EBUSY another mmd has the device; -ENODEV; -EOPNOTSUPP it cannot export memory; else
 * as mm_gpu_open().
 */
int mm_xdev_open(struct mm_xdev *dev, const char *driver, int ordinal, const char *uuid, bool lock,
		 char *err, size_t err_bytes);
void mm_xdev_close(struct mm_xdev *dev);

/*
 * 0 or a negative errno; logs a failure of the call @what. Does not return when the context is
 * lost.
 */
int mm_xdev_result(const struct mm_xdev *dev, const char *what, CUresult result);

/*
 * The same for a call that mmd can do without. Its own result does not count as a lost context
 * (pinning fails in many ways): only the state of the copy stream does.
 */
int mm_xdev_optional(const struct mm_xdev *dev, const char *what, CUresult result);

/*
 * Waits until all that was put into @stream is over, where no event tells it: what is still on its
 * way would reach pages and buffers that others have by then. Does not return if the driver cannot
 * say it either: this xfer's context ends what is under way, and a new xfer begins.
 */
void mm_xdev_settle(const struct mm_xdev *dev, CUstream stream);

/* Return: whether @event, which was recorded in @stream, has completed. */
bool mm_xdev_has_happened(const struct mm_xdev *dev, CUevent event, CUstream stream);
