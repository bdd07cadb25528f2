/* SPDX-License-Identifier: Apache-2.0 */
/*
 * held - the fds that keeper holds for core and its successors
 *
 * Concept:   Whatever must survive core's end has a name at keeper (struct mm_held_name). Core puts
 *            and drops names; they leave in batches, when one is full or by mm_held_flush(), once
 *            per iteration of the loop. What left counts, even if core dies in the next moment. A
 *            successor first receives the inventory: all that is held, and the processes that there
 *            were. It takes what it has use for; mm_held_drop_rest() drops the others. The first
 *            core gets an inventory with nothing in it but its beat.
 * Ordering:  names leave in the order of the calls. Nothing that depends on a name may be recorded
 *            or shown to anybody while mm_held_is_waiting().
 * Ownership: an fd that is put stays the caller's, who may close it at once: the batch has a copy.
 *            keeper holds its own copies until they are dropped, so a close() of core ends no
 *            connection and frees no memory by itself.
 * Failure:   when a name cannot be put (no fds or memory left) or the channel is broken, failed is
 *            set: core must then end, for a successor to go on, and record nothing more.
 *            mm_held_is_waiting() is true from then on.
 * Threading: core's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/ipc/region.h"
#include "mmd/common/build.h"
#include "mmd/common/fdtab.h"
#include "mmd/common/kchan.h"

#define MM_HELD_CHILDREN_MAX 512

struct mm_held_child { /* a process that the last core had */
	enum mm_role role;
	uint32_t device; /* of an xfer */
	uint64_t id;
	int64_t pid;
	bool ended, down;
	int status; /* wait status, if it has ended */
	char build[MM_BUILD_BYTES];
};

struct mm_held {
	struct mm_kchan *chan;
	struct mm_kpacket batch; /* what is collected; msg.op 0: nothing */
	uint64_t batch_serial;   /* of the batch that is collected, or will be next */
	uint64_t dropped_serial; /* keeper has dropped all up to this batch */
	bool failed;
	uint64_t generation; /* how many cores there were, with this one */
	bool fault;          /* the last one ended by its own fault */
	uint32_t end_flags;  /* MM_K_F_UPGRADED, MM_K_F_TAKEN_BACK */
	char keeper_build[MM_BUILD_BYTES];
	struct mm_fdtab inventory;
	struct mm_held_child child[MM_HELD_CHILDREN_MAX];
	uint32_t n_children;
	bool stop_came; /* keeper sent STOP behind or within the inventory */
	struct mm_region beat;
	uint64_t beat_ns; /* when the last core was last seen to work; 0: there was none */
};

void mm_held_init(struct mm_held *held, struct mm_kchan *chan);
void mm_held_done(struct mm_held *held);

/* Names @fd, instead of what had that name before. */
void mm_held_put(struct mm_held *held, struct mm_held_name name, int fd);

/*
 * Drops a name. @slow: its last close may sleep, as that of a connection with passed fds in it;
 * keeper then leaves it to a child. Of stores and swap space keeper does so by itself.
 */
void mm_held_drop(struct mm_held *held, struct mm_held_name name, bool slow);

/*
 * Drops a name, closed before mm_held_is_dropped() is true of what this returns. The caller has
 * closed its own copy.
 */
uint64_t mm_held_drop_acked(struct mm_held *held, struct mm_held_name name);
bool mm_held_is_dropped(const struct mm_held *held, uint64_t serial);

/* Sends what is collected, or queues it while the channel is full. */
void mm_held_flush(struct mm_held *held);

/* Whether a put or a drop has not left yet, or never will. */
bool mm_held_is_waiting(const struct mm_held *held);

/*
 * Sends what is collected and waits until it has left: keeper reads at any time, and waits for
 * nobody. Return: whether it has; else nothing that depends on it may be recorded.
 */
bool mm_held_sync(struct mm_held *held);

/* keeper's MM_K_DROPPED. */
void mm_held_on_dropped(struct mm_held *held, const struct mm_kmsg *msg);

/**
 * mm_held_receive() - receive the inventory, before anything else of keeper
 * @held: any; waits for as long as keeper takes
 *
 * Return: 0; negative errno: the channel is broken, or it is not an inventory.
 */
int mm_held_receive(struct mm_held *held);

/* An fd of the inventory, the caller's now; keeper still holds its own. -1: there is none. */
int mm_held_take(struct mm_held *held, struct mm_held_name name);

/*
 * The next entry of the inventory that nobody has taken, from *@at on, which begins with 0; NULL:
 * there is none. Nothing may be taken between two calls.
 */
const struct mm_fdtab_entry *mm_held_next(const struct mm_held *held, size_t *at);

/* A process of the last core; NULL: keeper knows none of that name. */
const struct mm_held_child *mm_held_child(const struct mm_held *held, enum mm_role role,
					  uint32_t device, uint64_t id);

/* Drops all of the inventory that nobody has taken. Return: how many. */
size_t mm_held_drop_rest(struct mm_held *held);

/* Shows keeper that core works; @asleep: it is about to wait for events. */
void mm_held_beat(struct mm_held *held, uint64_t now_ns, bool asleep);
