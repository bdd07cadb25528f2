/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xwatch - how the device is, as NVML sees it
 *
 * Concept:   NVML answers in milliseconds and waits for events, so a thread of its own asks it:
 *            events (Xids, ECC errors) as they come, and every ten seconds memory, who holds it,
 *            and repairs that wait for a reset. What it finds goes through a pipe as whole messages
 *            to core, which the role's loop only passes on. Without NVML there is no thread, and
 *            one line in the log.
 * MIG:       events come from the GPU; those of other instances are left out.
 * Gone:      a GPU that NVML does not reach any more is told of once.
 * Ownership: mm_xwatch_done() accepts MM_XWATCH_NULL; it waits for the thread, which looks whether
 *            it is to end ten times a second. NVML may hang for minutes on a sick GPU, so it is the
 *            thread that gives NVML back, and it is waited for only so long.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "kernels/driver/nvml.h"
#include "mmd/common/proto.h"
#include "mmd/xfer/device.h"

struct mm_xwatch {
	struct mm_nvml nvml;
	struct mm_nvml_facts facts; /* of our device; valid when found */
	bool found, running;
	mm_nvml_set set; /* NULL: no events to be had */
	pthread_t thread;
	int read_fd, write_fd; /* a pipe of struct mm_xmsg; -1 */
	bool stop, ended;      /* atomic */
	bool gone;             /* the thread's: it was told */
};
#define MM_XWATCH_NULL ((struct mm_xwatch){ .read_fd = -1, .write_fd = -1 })

/* Loads NVML and finds the device. What cannot be had is logged, and left out. */
void mm_xwatch_open(struct mm_xwatch *watch, const struct mm_xdev *dev);
/* Starts the thread. The first look is the caller's. */
void mm_xwatch_start(struct mm_xwatch *watch);
/*
 * false: NVML hangs, and with it the thread, which still uses @watch: the process is to end as it
 * is.
 */
bool mm_xwatch_done(struct mm_xwatch *watch);

/* Readable when there is a message; -1: never. */
static inline int mm_xwatch_fd(const struct mm_xwatch *watch)
{
	return watch->read_fd;
}

/* The next message for core; false: none now. */
bool mm_xwatch_next(struct mm_xwatch *watch, struct mm_xmsg *ret_msg);

/* A look now, as a message for core. */
void mm_xwatch_look(const struct mm_xwatch *watch, struct mm_xmsg *ret_msg);

/* "; held by pid 12 (python) 3.0 GiB, ..." behind @text; nothing where it is not known. */
void mm_xwatch_blame(const struct mm_xwatch *watch, char *text, size_t bytes);
