/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs - times of the host's processors, as constants
 *
 * Concept:   A profile states the times of kernels, copies and driver calls; these are the times of
 *            everything else. Documentation/mmsim.md has the source of each number.
 * Threading: any; only constants.
 */
#pragma once

#include "libclient/base/base.h"

#define MS_US UINT64_C(1000)

/* Waking a thread through a socket or an eventfd takes this. */
#define MS_WAKE_NS (10 * MS_US)
/* xfer reads the gates every 25 us while a step is open; it is late by half of that on average. */
#define MS_LOOK_NS (12500)
/* The engine's thread takes this for each step: scheduling, tables, first launches. */
#define MS_STEP_US_TEXT "150" /* in us; the default of --step-us */
/* From the end of the last kernel to the thread that waits for it. */
#define MS_SYNC_NS (10 * MS_US)
/* mmd samples statistics so often, as MM_SAMPLE_NS in mmd/shell/session.h. */
#define MS_SAMPLE_NS (15 * MM_NS_PER_MS)
/* Descriptors in one message. */
#define MS_FD_BATCH 64u
/* Weight of COPY jobs on the link, where a tenant's flow has 1, as MM_XLINK_WEIGHT_COPIES. */
#define MS_COPIES_WEIGHT 4.0
/* Chunks of a cancelled copy that are queued on the device already, as MM_XLINK_DEPTH. */
#define MS_LINK_CHUNKS 3u
