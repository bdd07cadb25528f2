/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xwatch - the health of the device, from NVML
 *
 * Concept:   A call of NVML takes milliseconds, and one waits for events, so a thread of its own
 *            makes them. It reports events (Xids, ECC errors) as they occur, and every ten seconds
 *            the memory, the processes that hold it, and repairs that wait for a reset. It writes
 *            whole messages for core into a pipe; the role's loop only passes them on. Without NVML
 *            there is no thread, and one line in the log.
 * MIG:       events come from the GPU; those of other instances are left out.
 * Gone:      a GPU that NVML can no longer reach is reported once.
 * Threading: one thread opens, starts, reads and ends it; between start and end the watch's thread
 *            uses NVML alone.
 * Ownership: mm_xwatch_done() accepts MM_XWATCH_NULL. It waits for the thread, which checks ten
 *            times a second whether it is to end. NVML may hang for minutes on a faulty GPU, so the
 *            thread closes NVML itself, and the wait for it is bounded.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "kernels/driver/nvml.h"
#include "mmd/common/proto.h"
#include "mmd/xfer/device.h"

struct mm_xwatch {
	struct mm_nvml nvml;
	struct mm_nvml_facts facts; /* of the device; valid when found */
	bool found, running;
	mm_nvml_set set; /* NULL: events are not available */
	pthread_t thread;
	int read_fd, write_fd; /* a pipe of struct mm_xmsg; -1: none */
	bool stop, ended;      /* atomic */
	bool gone;             /* only the thread uses it: the loss of the device was reported */
};
#define MM_XWATCH_NULL ((struct mm_xwatch){ .read_fd = -1, .write_fd = -1 })

/* Loads NVML and finds the device. Whatever is not available is logged and left out. */
void mm_xwatch_open(struct mm_xwatch *watch, const struct mm_xdev *dev);
/* Starts the thread. The caller makes the first report. */
void mm_xwatch_start(struct mm_xwatch *watch);
/*
 * Ends the thread. False: NVML hangs and with it the thread, which still uses @watch; the process
 * must exit without freeing it.
 */
bool mm_xwatch_done(struct mm_xwatch *watch);

/* An fd that is readable when there is a message; -1: there will be none. */
static inline int mm_xwatch_fd(const struct mm_xwatch *watch)
{
	return watch->read_fd;
}

/* Takes the next message for core; false: none now. */
bool mm_xwatch_next(struct mm_xwatch *watch, struct mm_xmsg *ret_msg);

/* Reads the state of the device now, as a message for core. */
void mm_xwatch_read(const struct mm_xwatch *watch, struct mm_xmsg *ret_msg);

/* Appends "; held by pid 12 (python) 3072 MiB, ..." to @text; nothing where it is not known. */
void mm_xwatch_explain(const struct mm_xwatch *watch, char *text, size_t bytes);
