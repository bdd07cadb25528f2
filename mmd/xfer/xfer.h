/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer - the only role that calls the device's driver
 *
 * Concept:   One process per device. It creates, scrubs, fills and exports the pages of the pool
 *            and serves the plans of tenants: when a gate shows DONE it brings the slot's next
 *            layer in and says READY. It decides nothing and holds no truth: what must survive it
 *            lies in the cursor regions, and its jobs may be issued again to a new xfer.
 * Threading: one thread. It never waits for a tenant; what a tenant's gate says is a claim.
 * Life:      started by keeper with its end of core's socket pair; ends when that ends. When the
 *            device's context is lost it exits and a new one is started.
 */
#pragma once

/**
 * mm_xfer_main() - run the role
 * @fd: our end of the socket pair with core; taken over
 *
 * Return: the exit status: 0 core is gone; 1 the device cannot be used, or its context was lost.
 */
int mm_xfer_main(int fd);
