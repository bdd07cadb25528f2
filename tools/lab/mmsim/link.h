/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link - the simulated link between host and device, as mmd/xfer/link.c shares it
 *
 * Concept:    Each direction is a lane. Flows that are not empty get parts of their lane by weight,
 *             as if by single bytes. Within a flow the transfer is served that is due first, of
 *             several such the oldest. One that is due before the transfer under way waits until
 *             what that has on the device has landed (MS_LINK_CHUNKS). While both lanes are busy,
 *             each loses the profile's duplex_loss.
 * Ownership:  ms_link_init() allocates, ms_link_done() frees. A transfer is the link's: it may be
 *             used until ms_xfer_transfer_done() is called for it.
 * Threading:  one thread.
 */
#pragma once

#include "tools/lab/mmsim/sim.h"

int ms_link_init(struct ms_link *link, uint64_t now_ns, uint32_t tenants);
void ms_link_done(struct ms_link *link);

/* @due: compared within a flow and a direction only. @bytes: more than 0. */
struct ms_transfer *ms_link_start(struct ms_device *dev, uint32_t flow, double bytes, bool to_host,
				  uint64_t due);
/*
 * Cancels the transfer of a layer, except for what is on the device already, whose end is reported
 * as the transfer's.
 */
void ms_link_cancel(struct ms_device *dev, struct ms_transfer *transfer);
void ms_link_run(struct ms_device *dev); /* handles transfers that have ended by now */

/* Flow 0 is that of COPY jobs. */
static inline uint32_t ms_flow_layers(const struct ms_tenant *t)
{
	return 1 + 2 * t->index;
}
static inline uint32_t ms_flow_swaps(const struct ms_tenant *t)
{
	return 2 + 2 * t->index;
}
static inline uint32_t ms_flows(uint32_t tenants)
{
	return 1 + 2 * tenants;
}
