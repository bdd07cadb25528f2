/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold - what keeper holds for core
 *
 * Concept:   A table of fds by name (struct mm_held_name) that core fills and empties, and to which
 *            keeper itself adds accepted connections, its ends of pairs and the beat. It outlives
 *            every core. A new core gets an inventory of it, in messages of at most MM_KCHAN_FDS
 *            fds, of which MM_HOLD_UNREAD at most are unread at a time, because fds in flight count
 *            against the limit of open files.
 * Ownership: owns its fds. At the end of mmd they stay open: the close of some may sleep
 *            (closer.h).
 * Trust:     core cannot choose whom keeper kills: the pidfds are those of the processes that have
 *            connected, as the kernel names them to keeper.
 * Threading: keeper's thread.
 */
#pragma once

#include <stdbool.h>

#include "mmd/common/fdtab.h"
#include "mmd/common/kchan.h"
#include "mmd/keeper/closer.h"

#define MM_HOLD_UNREAD 4 /* messages */

struct mm_hold {
	struct mm_fdtab fds;
	struct mm_closer *closer; /* closes what may take long */
	size_t at;                /* the next entry that goes into the inventory */
	unsigned int unread;      /* messages of the inventory that core has not taken */
};

void mm_hold_init(struct mm_hold *hold, struct mm_closer *closer);

/* Holds @fd, which is taken over. Return: 0; -ENOMEM: it was closed. */
int mm_hold_put(struct mm_hold *hold, struct mm_held_name name, int fd);

/* Closes what has that name. */
void mm_hold_drop(struct mm_hold *hold, struct mm_held_name name);

/* Messages of core: HOLD and DROP; an answer, if one is due, goes to @core. */
void mm_hold_on_hold(struct mm_hold *hold, struct mm_kpacket *packet);
void mm_hold_on_drop(struct mm_hold *hold, struct mm_kchan *core, const struct mm_kpacket *packet);

/* Message of core: KILL_TENANT. */
void mm_hold_on_kill(const struct mm_hold *hold, uint64_t conn);

/* Ends all connections of tenants and observers: nobody serves them any more. */
void mm_hold_hang_up(struct mm_hold *hold);

/*
 * Begins a new inventory. Until it is complete nothing may be held or dropped, and core gets no
 * other messages than mm_hold_inventory_send() sends.
 */
void mm_hold_inventory_begin(struct mm_hold *hold);

/* core has taken a message of the inventory. */
void mm_hold_on_taken(struct mm_hold *hold);

/**
 * mm_hold_inventory_send() - send the next part of the inventory
 * @hold: any
 * @core: the channel of the new core
 *
 * Return: 1: core has taken everything; 0: it must take more first; negative errno.
 */
int mm_hold_inventory_send(struct mm_hold *hold, struct mm_kchan *core);
