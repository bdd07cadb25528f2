/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs - what takes time beside the device: constants of the world around it
 *
 * Everything that a profile states (kernels, copies, calls of the driver) comes from there. These are the
 * processors' part. Documentation/mmsim.md says where each number is from.
 */
#pragma once

#include "mm/base.h"

#define MS_WAKE_NS (10 * UINT64_C(1000)) /* a thread is woken through a socket or an eventfd */
#define MS_LOOK_NS \
	(12 * UINT64_C(1000)) /* xfer looks every 25 us while a step is open: on average */
#define MS_STEP_NS \
	(150 * UINT64_C(1000)) /* of the engine for each step: scheduling, tables, launches */
#define MS_SYNC_NS (10 * UINT64_C(1000)) /* from the last kernel to the thread that waits for it */
#define MS_SAMPLE_NS \
	(15 * MM_NS_PER_MS) /* mmd looks at statistics: MM_SAMPLE_NS of mmd/session.h */
#define MS_FD_BATCH    64u  /* of fds that fly at once */
#define MS_LINK_CHUNKS 3u   /* of a copy that is given up, on the device already: MM_XLINK_DEPTH */
