/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer - mmd's xfer role
 *
 * Concept:   Jobs of the core are done on the device; slots and classes are driven by mm_cycles,
 *            with events of the simulator in place of a loop over gates.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_xfer_job(struct ms_device *dev, struct mm_msg *job);
void ms_xfer_done(struct ms_device *dev, uint64_t job, int result, uint64_t at_ns);
void ms_xfer_plan(struct ms_tenant *t, bool served);
void ms_xfer_open(struct ms_tenant *t, uint64_t open);
void ms_xfer_look(struct ms_tenant *t);
void ms_xfer_transfer_done(struct ms_device *dev, struct ms_transfer *transfer);
void ms_xfer_landed(struct ms_tenant *t, uint32_t cursor);
