/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead - read-ahead: which chunks the link requests from the disk, and in which order
 *
 * Concept:   Free buffers of the stage go to the flow that will have been served least when all
 *            that it has requested is issued, as the link itself chooses flows.
 * Threading: one thread.
 */
#pragma once

#include "mmd/xfer/link.h"

/* Requests the next chunks from the disk while there are free buffers. */
void mm_xlink_read_ahead(struct mm_xlink *link);
