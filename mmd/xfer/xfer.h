/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xfer - the only role that calls the device's driver
 *
 * Concept:   One process per device. It creates, scrubs, fills and exports the pages of the pool
 *            and serves the plans of tenants: when a gate shows DONE it copies the slot's next
 *            layer in and writes READY. It makes no decisions; the state that must survive it is in
 *            the cursor regions, and core may issue its jobs again to a new xfer.
 * Threading: one thread, and mmd/xfer/watch.h's. It never waits for a tenant; a tenant's word in a
 *            gate is a claim.
 * Life:      keeper starts it with its end of core's socket pair; it ends when core closes the
 *            other. When the device's context is lost it exits, and keeper starts a new one.
 */
#pragma once

/**
 * mm_xfer_main() - run the role
 * @fd: this end of the socket pair with core; taken over
 *
 * Return: the exit status: 0 core is gone; 1 the device cannot be used, or its context was lost.
 */
int mm_xfer_main(int fd);
