/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devlock - one mmd per device
 *
 * Concept:    Two things mark a device as taken. The lock is a file that is locked for as long as
 *             an fd of it is open, in a folder that only root can enter, /run/mmd-locks. The claim
 *             is a listening socket with an abstract name made of the device's UUID. A process that
 *             connects to it gets the holder's pid and uid from the kernel; one that cannot,
 *             because the queue is full, gets the socket's uid from the kernel's list. Any user can
 *             take that name, so it binds root only where it is held by another root that cannot
 *             see the lock, as in a container that shares the network but not the files. Ordinary
 *             users have no folder that others would respect as well: for them the claim is all
 *             there is, whatever process holds it. Root of a user namespace is an ordinary user.
 * Lifetime:   xfer knows the UUID and takes both before it uses the device. keeper gets the fds and
 *             holds them until mmd ends, so the death of an xfer does not release the device.
 * Ownership:  struct mm_devlock owns its fds. mm_devlock_leave() removes the file; one that a
 *             killed mmd has left behind is harmless and is not removed by others: there is at most
 *             one per device.
 * Threading:  one thread of the process that holds it.
 * Limits:     Connections to the claim are never accepted. Since Linux 6.16 the kernel refuses fds
 *             that are passed to it; on older kernels the last close of the claim closes those fds
 *             too, and sleeps where one of them lingers. So keeper leaves that close to the end of
 *             the process, where nothing lingers. An xfer that dies before it has passed the claim
 *             on may be delayed by it; only its own end waits then, and a signal ends the wait.
 */
#pragma once

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#define MM_DEVLOCK_DIR       "/run/mmd-locks"
#define MM_DEVLOCK_HEX_BYTES 33 /* a UUID of 16 bytes in hex, and NUL */

struct mm_devlock {
	int claim_fd; /* -1: another process has the name, and that does not bind us */
	int file_fd;  /* -1: not root, or the folder is not available */
	char uuid[MM_DEVLOCK_HEX_BYTES];
};
#define MM_DEVLOCK_NULL ((struct mm_devlock){ .claim_fd = -1, .file_fd = -1 })

/**
 * mm_devlock_take() - lock a device
 * @lock:  MM_DEVLOCK_NULL; give back with mm_devlock_close() also on failure
 * @uuid:  of the device
 * @pid:   of the mmd that it is for
 * @err:   a sentence on failure: who has the device
 * @err_bytes: size of @err
 *
 * Blocks for about a second when we have the lock, but the claim is held by a process that may be
 * an mmd that is ending. Return: 0; -EBUSY another mmd has the device; -EPERM others could enter
 * the folder; negative errno.
 */
int mm_devlock_take(struct mm_devlock *lock, const uint8_t uuid[16], int pid, char *err,
		    size_t err_bytes);

/* Sets the UUID from 32 hexadecimal digits. Return: whether @text is these and nothing else. */
bool mm_devlock_name(struct mm_devlock *lock, const char *text);

/* Makes this process the one that the kernel names as the holder of the claim. */
void mm_devlock_adopt(struct mm_devlock *lock);

/* Closes this process's fds; the device stays locked while another process has them. */
void mm_devlock_close(struct mm_devlock *lock);

/* Removes the file and leaves the fds open: the device is free when this process ends. */
void mm_devlock_leave(struct mm_devlock *lock);
