/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device - the simulated device: computation, the link, and the driver
 *
 * Concept:   Computation is fluid: tenants that compute at the same time advance one layer each in
 *            the time of all their layers together. Copies get parts of the link by the weights
 *            of their flows. Driver calls are done one after the other, over all processes.
 * Ownership: ms_device_init() allocates, ms_device_done() frees.
 * Threading: one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

void ms_compute_start(struct ms_tenant *t, double work_ns);
void ms_compute_run(struct ms_device *dev); /* handles parts that have ended by now */
struct ms_transfer *ms_link_start(struct ms_device *dev, uint32_t flow, double bytes, bool to_host);
void ms_link_cancel(struct ms_device *dev, struct ms_transfer *transfer);
void ms_link_run(struct ms_device *dev);
/* Queues driver calls that take @ns. Return: when they are done. */
uint64_t ms_driver_call(struct ms_device *dev, uint64_t ns);
int ms_device_init(struct ms_device *dev, struct ms_sim *sim, uint32_t index);
void ms_device_done(struct ms_device *dev);
static inline uint32_t ms_flow_layers(const struct ms_tenant *t)
{
	return 1 + 2 * t->index;
}
static inline uint32_t ms_flow_swaps(const struct ms_tenant *t)
{
	return 2 + 2 * t->index;
}
