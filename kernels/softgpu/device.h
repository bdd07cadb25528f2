/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_device - the software GPUs themselves: their memory, shared by every process that uses them
 *
 * Concept:    A device is a directory on tmpfs (MM_SOFTGPU_DIR; with MM_SOFTGPU_DEVICES the others
 *             lie in it, each with its own memory). "state" holds what the device is
 *             and how much of it is in use; "pages" holds one file per living piece of memory,
 *             named by its inode number. Every open file description of a page holds a shared
 *             flock on it, from before the file has a name. Duplicates, descriptors in flight and
 *             mappings share that description, so the lock goes when, and only when, the last
 *             holder in any process is gone, however it died: a page that can be locked
 *             exclusively belongs to nobody.
 * Capacity:   state.used is an upper bound: raised before a page is made, lowered after one is
 *             proven dead. When it leaves no room, and whenever it is asked for, it is counted
 *             anew; dead pages found then are removed. So a kill at any instant costs at most a
 *             count.
 * Threading:  everything is safe from any thread. Processes exclude each other by a POSIX record
 *             lock on "state", which dies with its process and is not inherited by a fork.
 * Invariants: a page's file is never used for another page; state.used >= bytes of living pages.
 * Guests:     who may enter the directory and read "state", but not write, is a guest: imports and
 *             maps what is passed to it, makes nothing, and cannot find others' pages.
 * Limits:     tmpfs hands out memory on first touch: a device larger than what /dev/shm has left
 *             faults when that is used up. Whoever can write to the directory is trusted.
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
#define SG_MIG_FIRST   SG_DEVICES_MAX /* number of the first MIG instance; they are the first GPU's */
#define SG_UUID_TEXT   48

/* Timed mode (sg_timed). */
struct sg_timing {
	bool on;
	double dilation;   /* host time per device time */
	uint64_t epoch_ns; /* CLOCK_MONOTONIC where device time begins */
	struct mm_profile profile;
};

struct sg_device_info {
	uint64_t capacity_bytes;
	uint64_t granularity_bytes; /* power of two, at least the host's page */
	uint64_t host_page_bytes;
	CUuuid uuid;
	char name[64];
	unsigned int number; /* among all, whichever are visible */
	struct sg_timing timing;
};

/*
 * Opens the devices that the environment names; makes those that are not there. Once per process.
 */
CUresult sg_devices_open(void);

/* Valid after sg_devices_open(); constant from then on. */
unsigned int sg_device_count(void);
const struct sg_device_info *sg_device_info(unsigned int device);
/* Of all devices: what addresses of any of them are, and what is good for each of them. */
uint64_t sg_granularity_min(void);
uint64_t sg_granularity_max(void);

/* Counts what is really held, in all processes. */
CUresult sg_device_used(unsigned int device, uint64_t *ret_used_bytes);
