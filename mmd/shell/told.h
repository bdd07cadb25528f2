/* SPDX-License-Identifier: Apache-2.0 */
/*
 * told - what an xfer was sent besides jobs: pages, tenants, swap spaces, stores
 *
 * Concept:    An id is noted when its message was sent, and struck out when xfer has let go of it.
 *             So a successor of core knows what it has to send yet, and which stores xfer has that
 *             are gone. It may send the last one again, which xfer takes once (proto.h).
 * Ownership:  outlives core (kept.h). Each change is one store.
 * Threading:  core's thread.
 * Limits:     MM_TOLD_TENANTS, MM_TOLD_STORES; what finds no room waits until something goes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mmd/common/proto.h"

#define MM_TOLD_TENANTS MM_DEVICE_TENANTS_MAX
#define MM_TOLD_STORES  256 /* those that there are, and as many that go */

enum mm_told_kind { MM_TOLD_TENANT, MM_TOLD_SWAP, MM_TOLD_STORE };

struct mm_told_kept {
	uint32_t pages; /* the first so many pages were sent, as far as there are fds of them */
	uint32_t reserved;
	uint64_t tenant[MM_TOLD_TENANTS]; /* ids + 1, in no order; 0: none */
	uint64_t swap[MM_TOLD_TENANTS];   /* likewise, of the tenants */
	uint64_t store[MM_TOLD_STORES];   /* likewise */
	/* The id of a store that is being sent + 1: xfer may have it and it may not be noted. */
	uint64_t sending;
};

bool mm_told_has(const struct mm_told_kept *told, enum mm_told_kind kind, uint64_t id);
/* Whether there is room for one more. */
bool mm_told_has_room(const struct mm_told_kept *told, enum mm_told_kind kind);
/* Notes an id, for which there is room; one that is there already stays there once. */
void mm_told_add(struct mm_told_kept *told, enum mm_told_kind kind, uint64_t id);
/* Strikes an id out, if it is there. */
void mm_told_remove(struct mm_told_kept *told, enum mm_told_kind kind, uint64_t id);
/* The next id that was noted, from *@at on, which begins with 0. False: there is none. */
bool mm_told_next(const struct mm_told_kept *told, enum mm_told_kind kind, size_t *at,
		  uint64_t *ret_id);
