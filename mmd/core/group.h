/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group - tenants that compute one model together, each on its own device (tensor parallelism)
 *
 * Concept:   All ranks of a group run the same steps with the same block tables, so that a chunk is
 *            of use only where every rank has it, under one number. A group stands above the cores
 *            of its ranks and never touches a page: it reads what each rank holds, and says which
 *            chunk each may be granted next (mm_core_rank_order()). Each core grants, denies and
 *            reclaims as for any other tenant.
 * Chunks:    `given` are the chunks that every rank is to have. A rank that lacks one of them is
 *            offered that one; the others are offered nothing until it has it. When all have all, a
 *            new chunk is offered to all: the lowest that nobody holds. At most one chunk is
 *            therefore held by some ranks and not by others. A rank reports each chunk that it has
 *            mapped (MM_OP_GROUP_MAPPED); when all have, all are told (MM_EV_GROUP_USABLE), and
 *            only from then on does the engine see it. A chunk that some rank has released is
 *            offered again when nobody holds it.
 * Not used:  A chunk that became usable is released by the engine, on each rank. One that did not
 *            is known to no engine, so that the group takes it back (MM_EV_GROUP_DROP): if another
 *            rank has released it, or if a rank that must release chunks holds it and others do
 *            not.
 * Demand:    One number for all ranks: that of the last request of any of them; less when a chunk
 *            is released. A denial of one rank is sent to all. From then on the others count as
 *            demanding one chunk more than that rank holds, since more would be of no use.
 * Reclaim:   If a core reclaims chunks from its rank, each other rank must release as many, by the
 *            same deadline.
 * Restart:   The struct may lie in memory that outlives its process (mm_group_resume()). Its state
 *            stands there before anything of it is sent.
 * Ownership: The caller owns struct mm_group, and removes a rank before its core frees the tenant.
 * Threading: core thread only. No allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"
#include "mmd/core/core.h"

#define MM_GROUP_CHUNKS (MM_MAP_ENTRIES - MM_MAP_KV_BASE)
#define MM_GROUP_WORDS  (MM_GROUP_CHUNKS / 64)

struct mm_group_calls {
	/* Queues an event for the tenant of a rank. */
	void (*send)(void *context, uint32_t rank, const struct mm_msg *msg);
	/* Returns what mm_core_rank_begin() does for the tenant of a rank, which is being added. */
	int (*begin)(void *context, uint32_t rank);
	/* Does mm_core_rank_order() for a rank's tenant, and performs all actions of its core. */
	void (*order)(void *context, uint32_t rank, uint64_t now_ns,
		      const struct mm_core_rank *order);
};

struct mm_group_rank {
	struct mm_core *core; /* NULL: it has not joined, or has left */
	uint32_t tenant;
	/* As it was when the group last settled. */
	struct mm_core_kv kv;
	uint64_t held[MM_GROUP_WORDS];
	uint64_t mapped[MM_GROUP_WORDS]; /* of these, what it has reported as mapped */
	uint64_t drops[MM_GROUP_WORDS];  /* of these, what it was told to release */
	struct mm_core_rank order;       /* the last one */
};

struct mm_group {
	uint32_t size, joined; /* ranks; those that are there now */
	bool complete;         /* all ranks have joined */
	bool over;             /* a rank has left: nothing is granted any more */
	uint32_t chunks_max;   /* the fewest of all ranks; 0: not all have declared their arenas */
	uint32_t words;        /* of the bitmaps that are in use */
	uint32_t wanted;
	uint64_t given[MM_GROUP_WORDS];
	uint64_t usable[MM_GROUP_WORDS]; /* were given to all, and somebody holds them still */
	bool mapped_more;                /* ranks have mapped chunks since it settled */
	bool settling; /* it is being settled: not all that was read has been used yet */
	struct mm_group_rank rank[MM_GROUP_RANKS_MAX];
	const struct mm_group_calls *calls;
	void *context;
};

/* @group is all 0; @size: 2 to MM_GROUP_RANKS_MAX. */
void mm_group_init(struct mm_group *group, uint32_t size, const struct mm_group_calls *calls,
		   void *context);

/*
 * Adds @tenant of @core as @rank; the last one makes the group complete, which all ranks are told
 * (MM_EV_GROUP_READY). 0; -EINVAL: no such rank; -EEXIST: there is such a rank, or the group is
 * over; -EBUSY: as mm_core_rank_begin().
 */
int mm_group_add(struct mm_group *group, uint32_t rank, struct mm_core *core, uint32_t tenant);

/* Takes @rank out. The others are told (MM_EV_GROUP_LEFT), and are granted nothing any more. */
void mm_group_remove(struct mm_group *group, uint64_t now_ns, uint32_t rank);

/* A rank has mapped a chunk. 0; MM_E_PROTOCOL: it does not hold it. */
int mm_group_on_mapped(struct mm_group *group, uint32_t rank, uint64_t chunk);

/*
 * Goes on with a group whose process was killed at any moment: all is as that left it, except that
 * the caller has set the core of each rank that there is, and of no other. What was under way is
 * found out again from the arenas. Events that may have been sent are sent again; whoever knows of
 * them takes them for nothing.
 */
void mm_group_resume(struct mm_group *group, const struct mm_group_calls *calls, void *context);

/*
 * Reads the arenas of all ranks, and gives new orders where they changed, a number of times; the
 * queues of the cores are empty before and after. Returns whether it has to be called again.
 */
bool mm_group_settle(struct mm_group *group, uint64_t now_ns);
