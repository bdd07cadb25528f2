/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sg_device_state - the part of a device that its processes share, and how they lock it
 *
 * Concept:    the file "state" in the device's directory, mapped by every process. Changes to it,
 *             and to the set of pages, are made under the lock of the device: a mutex for the
 *             threads of this process, then a record lock on the file for the processes.
 * Ownership:  this process's descriptors and mapping, from opening to closing; see device.c.
 * Threading:  fields of sg_devices are constant while the device is open.
 * Invariants: used_bytes is at least the bytes of all living pages.
 */
#pragma once

#include <sys/types.h>

#include "kernels/softgpu/device.h"
#include "libclient/support/lock.h"

#define SG_STATE_MAGIC UINT64_C(0x325550474d4d) /* "MMGPU2" */

/* The content of the file. */
struct sg_device_state {
	uint64_t magic;
	uint64_t used_bytes; /* changed only under the device's lock */
	struct sg_device_info info;
};

MM_LOCK_KIND(sg_device_mutex);

struct sg_device {
	/* Taken before the record lock, which excludes processes only. */
	struct sg_device_mutex mtx;
	int dir_fd, pages_fd, state_fd;
	dev_t filesystem;
	bool read_only; /* this process may not write to the device: it only imports and maps */
	struct sg_device_state *state;
	struct sg_device_info info;
};

extern struct sg_device sg_devices[SG_DEVICES_MAX]; /* by ordinal */

/* Return: 0; -EACCES for a read-only device; another negative errno. */
int sg_device_lock(struct sg_device *d) MM_TRY_ACQUIRE(0, sg_device_mutex);
void sg_device_unlock(struct sg_device *d) MM_RELEASE(sg_device_mutex);

/*
 * Sets the state's used_bytes to the bytes of pages that are held, and removes the others.
 * Return: 0; negative errno.
 */
int sg_pages_count(struct sg_device *d) MM_REQUIRES(sg_device_mutex);

/*
 * Writes the directory of the first device, and that of device @number in it; both have PATH_MAX
 * bytes. Return: 0; -ENAMETOOLONG.
 */
int sg_device_path(unsigned int number, char *ret_parent, char *ret_path);

/* A directory gives its device the same UUID whenever the device is made anew. */
void sg_device_uuid_of_path(const char *path, CUuuid *ret_uuid);
