/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - the simulated device: computation and the driver
 *
 * Concept:   Computation is fluid: tenants that compute at the same time advance one layer each in
 *            the time of all their layers together. Driver calls are done one after the other,
 *            over all processes. The link is in link.h.
 * Ownership: ms_device_init() allocates, ms_device_done() frees.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_compute_start(struct ms_tenant *t, double work_ns);
void ms_compute_run(struct ms_device *dev); /* handles parts that have ended by now */
/*
 * Slows computation down while the link brings something in, or takes something out, because that
 * takes memory bandwidth.
 */
void ms_compute_slow(struct ms_device *dev, bool in, bool out);
/* Queues driver calls that take @ns. Return: when they are done. */
uint64_t ms_driver_call(struct ms_device *dev, uint64_t ns);
int ms_device_init(struct ms_device *dev, struct ms_sim *sim, uint32_t index);
void ms_device_done(struct ms_device *dev);
