/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell - mmd's shell
 *
 * Concept:   The shell gives requests, acknowledgements, ends of jobs, statistics and deadlines to
 *            the core, and performs the actions of the core.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_shell_settle(struct ms_device *dev); /* performs what the core wants done */
void ms_shell_request(struct ms_tenant *t);  /* gives the oldest request to the core */
void ms_shell_ack(struct ms_tenant *t);
void ms_shell_job_done(struct ms_device *dev);
void ms_shell_sample(struct ms_device *dev);
void ms_shell_tick(struct ms_device *dev);
