/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_group - one model on several devices (tensor parallelism), as ranks of one group
 *
 * Concept:   Each rank is a client on a device of its own: a tenant with its part of the model and
 *            an arena, in a process of its own or beside others. All ranks run the same steps in
 *            the same order with the same block tables, and meet in collectives of the engine. A
 *            group gives them what they must have in common:
 *            - A chunk is usable on all ranks, under one number, or on none. mm_kv_usable() of each
 *              rank says the same, but for events that are still under way; a chunk that it names
 *              is mapped on every rank. The engine releases a chunk on every rank.
 *            - One demand: the last mm_kv_want() of any rank counts for all. A denial on one device
 *              is one on all.
 *            - A reclaim on one device is one on all: mm_kv_owed() of each rank says what is left.
 *            - A step counts on all ranks or on none: if it is void on one (-ECANCELED, or
 *              mm_step_abandon()), it is void on all, so that all repeat it. mm_step_end() and
 *              mm_step_wait() return when all ranks have ended the step.
 *            - A plan by hand (mmctl plan set) is that of all ranks, or of none.
 *            mmd decides for each device by itself which layers are away; the slowest rank sets the
 *            pace.
 * End:       If a rank's process dies, mmd ends the connections of all ranks: their calls return
 *            -ECONNRESET, and mm_client_error() says which rank is gone. A rank that closes its
 *            client leaves: the others' steps return -EPIPE, and so does mm_kv_want() if it would
 *            wait, since they are granted nothing more.
 * Limits:    One step at a time per rank, of whichever thread. No turns (mm_turn_join() returns
 *            -EBUSY): two groups that hold each other's turns would wait for ever. An arena has as
 *            many chunks as that of the rank with the fewest.
 * Ownership: the group is mmd's; a rank leaves it by mm_client_close().
 * Threading: as in client.h.
 */
#pragma once

#include "mm/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * mm_group_join() - become a rank of a group
 * @client:     has neither an arena nor turns, and has begun no step
 * @name:       1 to 24 printable characters without space and quote; groups of other accounts are
 *              other groups
 * @rank:       < @size; each rank joins once
 * @size:       2 to 16, the same for all ranks
 * @timeout_ns: 0 = do not wait for the others
 *
 * Returns when all ranks have joined. After -ETIMEDOUT the client is a rank, and a call with the
 * same arguments waits again; nothing is granted, and no step begins, before all have joined.
 * Since version 0.3. Return: 0; -EINVAL a name, rank or size that cannot be, or the others' size
 * differs; -EEXIST the client is another rank already, the group has that rank, or its name is in
 * use; -EBUSY it has an arena, a step or turns; -EDQUOT, -EUSERS too many groups of this account,
 * of all; -EOPNOTSUPP an older mmd; -ENOMEM; -ETIMEDOUT; -ECONNRESET.
 */
MM_API int mm_group_join(struct mm_client *client, const char *name, uint32_t rank, uint32_t size,
			 uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif
