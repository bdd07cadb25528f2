/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs - what takes time beside the device: constants of the world around it
 *
 * Everything that a profile states (kernels, copies, calls of the driver) comes from there. These
 * are the processors' part. Documentation/mmsim.md says where each number is from.
 */
#pragma once

#include "libclient/base/base.h"

#define MS_US UINT64_C(1000)

/* A thread is woken through a socket or an eventfd. */
#define MS_WAKE_NS (10 * MS_US)
/* xfer looks every 25 us while a step is open: how late it is on average. */
#define MS_LOOK_NS (12500)
/* Of the engine's thread for each step: scheduling, tables, first launches. */
#define MS_STEP_US 150
/* From the end of the last kernel to the thread that waits for it. */
#define MS_SYNC_NS (10 * MS_US)
/* mmd looks at statistics: MM_SAMPLE_NS of mmd/session.h. */
#define MS_SAMPLE_NS (15 * MM_NS_PER_MS)
/* Fds that fly at once. */
#define MS_FD_BATCH 64u
/* Chunks of a copy that is given up which are on the device already: MM_XLINK_DEPTH. */
#define MS_LINK_CHUNKS 3u
