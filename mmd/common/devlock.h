/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devlock - one mmd per device
 *
 * Concept:    Two things say that a device is taken. The lock is a file that is locked for as long
 *             as an fd of it is open, in a folder that only its owner can enter: /run/mmd-locks,
 *             for root alone. The claim is a listening socket with an abstract name made of the
 *             device's UUID; whoever connects learns the holder's pid and uid from the kernel, and
 *             whoever cannot connect, since the queue is full, asks the kernel for the socket's
 *             uid. Any user can take that name, so it binds root only where another root holds it
 *             that cannot see the lock, as in a container that shares the network but not the
 *             files. An ordinary user has no place of its own that others would respect as well:
 *             for it the claim is all there is, whoever holds it. Root of a user namespace is an
 *             ordinary user.
 * Lifetime:   xfer knows the UUID and takes both, before it uses the device; keeper gets the fds
 *             and holds them until mmd ends, so that no death of xfer lets the device go.
 * Ownership:  struct mm_devlock owns its fds. The file goes with mm_devlock_leave(); one that a
 *             killed mmd has left behind is harmless, and nobody else touches it: there is at most
 *             one per device.
 * Limits:     Nobody accepts what connects to the claim. The kernel refuses fds that are passed to
 *             it since Linux 6.16; on older ones whoever closes the claim last closes those fds
 *             too, and sleeps where one of them lingers. So keeper leaves that to the end of the
 *             process, where nothing lingers. An xfer that dies before it has handed the claim on
 *             may be held up by it, and nothing but its own end waits for that; a signal ends it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MM_DEVLOCK_DIR       "/run/mmd-locks"
#define MM_DEVLOCK_HEX_BYTES 33 /* a UUID of 16 bytes, and 0 */

struct mm_devlock {
	int claim_fd; /* -1: another has the name, and it does not count */
	int file_fd;  /* -1: not root, or there is no place for it */
	char uuid[MM_DEVLOCK_HEX_BYTES];
};
#define MM_DEVLOCK_NULL ((struct mm_devlock){ .claim_fd = -1, .file_fd = -1 })

/**
 * mm_devlock_take() - lock a device
 * @lock:  MM_DEVLOCK_NULL; give back with mm_devlock_close() also on failure
 * @uuid:  of the device
 * @pid:   of the mmd that it is for
 * @err:   one line on failure: who has it
 *
 * Blocks for about a second where root has the lock and another process of root's the claim: it may
 * be an mmd that ends. Return: 0; -EBUSY another has it; -EPERM the folder is not root's alone;
 * negative errno.
 */
int mm_devlock_take(struct mm_devlock *lock, const uint8_t uuid[16], int pid, char *err,
		    size_t err_bytes);

/* From now on it is this process that the kernel names to whoever asks. */
void mm_devlock_adopt(struct mm_devlock *lock);

/* Gives up this process's fds; the device stays locked while another has them. */
void mm_devlock_close(struct mm_devlock *lock);

/* The device is free when this process ends: removes the file, and leaves the fds open. */
void mm_devlock_leave(struct mm_devlock *lock);
