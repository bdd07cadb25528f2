/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recover - a core takes over from one that has died
 *
 * Concept:   The book says what the last core knew, keeper's inventory has its descriptors and
 *            processes. The cores of the pools are restored first, then stores, xfers, sessions and
 *            groups are made as they were. What was under way is finished: the actions that were
 *            not performed, of which the first may have been; the request that was being handled,
 *            which is still in its ring; the rest of the last event. Then what keeper holds and
 *            nobody knows is dropped: a session that was only half made begins its handshake anew.
 *            Last of all each tenant's ring is looked at, because doorbells may be lost.
 * Time:      Deadlines of tenants begin anew (MM_EVENT_RESTARTED): nobody is late because no core
 *            was there. Other times go on: they decide about speed only. So core's clock is the
 *            system's, and needs no correction.
 * Faults:    An event at which core has died twice by its own fault is left out, and its tenant is
 *            ended: a third core would die of it as well.
 * Damage:    If the image of a pool's core or its journal cannot be read, that pool is renewed
 *            (pool.h), and its tenants are ended: nobody knows which pages they have. Other pools,
 *            their tenants, and stores that these use go on. A book that is damaged itself ends
 *            mmd.
 * Threading: core's thread.
 */
#pragma once

struct mm_shell;

/* Goes on with the book that keeper held. Return: 0; negative errno, then mmd ends. */
int mm_recover(struct mm_shell *shell);
