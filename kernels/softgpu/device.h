/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_device - the software GPUs themselves: their memory, shared by every process that uses them
 *
 * Concept:    A device is a directory on tmpfs (MM_SOFTGPU_DIR; with MM_SOFTGPU_DEVICES the others
 *             lie in it, each with its own memory). "state" holds what the device is and how much
 *             of its memory is in use (device_state.h); "pages" holds its memory (page.h).
 * Capacity:   the state's used_bytes is an upper bound: raised before a page is made, lowered after
 *             one is proven dead. When it leaves no room, and whenever it is queried, the pages are
 *             counted anew, and dead ones are removed. So a kill at any instant costs at most a
 *             count.
 * Threading:  everything is safe from any thread. Processes exclude each other by a POSIX record
 *             lock on "state", which dies with its process and is not inherited by a fork.
 * Invariants: used_bytes >= bytes of living pages.
 * Read-only:  a process that may enter the directory and read "state", but not write it, imports
 *             and maps pages that it receives, creates none, and cannot find those of others.
 * Limits:     tmpfs hands out memory on first touch: a device larger than what /dev/shm has left
 *             faults when that is used up. A process that can write to the directory is trusted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/timing/profile.h"
#include "libclient/base/base.h"
#include "mm/gpu.h"

#define SG_DEVICES_MAX 16
#define SG_MIG_MAX     7
#define SG_PITCH_MAX   INT32_MAX
#define SG_MIG_FIRST \
	SG_DEVICES_MAX /* number of the first MIG instance; all instances belong to the first GPU */
#define SG_UUID_TEXT 48

/* The settings of timed mode (sg_timed). */
struct sg_timing {
	bool on;
	double dilation;   /* seconds of host time per second of device time */
	uint64_t epoch_ns; /* CLOCK_MONOTONIC when device time was 0 */
	struct mm_profile profile;
};

struct sg_device_info {
	uint64_t capacity_bytes;
	uint64_t granularity_bytes; /* power of two, at least the host's page */
	uint64_t host_page_bytes;
	CUuuid uuid;
	char name[64];
	unsigned int number; /* number among all devices, visible or not */
	struct sg_timing timing;
};

/*
 * Opens the devices that the environment names, and makes those that do not exist. Called once in a
 * process.
 */
CUresult sg_devices_open(void);

/* Valid after sg_devices_open(); constant from then on. */
unsigned int sg_device_count(void);
const struct sg_device_info *sg_device_info(unsigned int device);
/*
 * The least and the greatest granularity of the open devices: every device's memory is a multiple
 * of the first; addresses that are a multiple of the second suit every device.
 */
uint64_t sg_granularity_min(void);
uint64_t sg_granularity_max(void);

/* Counts the bytes that all processes really hold. */
CUresult sg_device_used(unsigned int device, uint64_t *ret_used_bytes);
