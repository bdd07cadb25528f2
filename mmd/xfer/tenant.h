/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xtenant - a tenant whose plan xfer serves
 *
 * Concept:   Per slot a cursor in memory that only mmd's side can write: HELD(i), layer i of the
 *            slot's cycle is in it; COPYING(i), layer i is coming in. The order is what survives a
 *            kill at any instant:
 *              HELD(i), gate shows DONE -> write COPYING(i+1) -> clear the gate to EMPTY -> copy
 *              copied                   -> write READY to gate i+1 -> write HELD(i+1)
 *            A new xfer that finds COPYING(j) copies only if gate j is EMPTY; otherwise READY was
 *            written already, the tenant may be using the layer, and the cursor becomes HELD(j).
 *            A layer that the plan closes gets its READY only when core opens it; until then the
 *            cursor stays COPYING, and a new xfer copies again.
 * Replan:    from one plan to the next while the tenant is parked. A slot whose pages and layers
 *            stay goes on as it is; else its copy is dropped (unless it is the first layer that
 *            will be needed, on the same pages), its gates are emptied, and it begins at its first
 *            layer. A cursor of another epoch than the plan's is one that a kill kept from getting
 *            that far.
 * Trust:     the plan comes from core and is checked once, into a private copy. Gates are written
 *            by the tenant too: claims, which can spoil its own results only.
 * Ownership: struct mm_xtenants owns its tenants; a tenant goes only when nothing of it is on the
 *            device.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/ipc/region.h"
#include "libclient/protocol/cycle.h"
#include "mmd/xfer/link.h"

struct mm_xcycle { /* of a slot, what its machine does not know */
	struct mm_xtransfer transfer;
	struct mm_xtenant *tenant;
	uint32_t slot;
	uint64_t since_ns; /* DONE seen */
};

struct mm_xtenant {
	uint64_t id;
	struct mm_region gate, plan_region, cursor;
	uint64_t gate_inode;
	struct mm_xlink *link;
	const struct mm_xpool *pool;
	struct mm_xflow flow;
	int failed;                     /* to be reported: why its plan cannot be served */
	uint64_t looked_ns;             /* at the gates */
	struct mm_xplan_region *plan;   /* private copy */
	struct mm_xplan_region *coming; /* of the plan that a replan goes over to */
	struct mm_xstore *store;        /* of the plan */
	struct mm_cycles cycles;
	struct mm_xcycle cycle[MM_SLOTS_MAX];
	struct mm_xtenant *next;
};

/* Takes over the three fds (gate, plan, cursor), also on failure. -EPROTO; -ENOMEM. */
int mm_xtenant_create(uint64_t id, const int fds[3], struct mm_xlink *link,
		      struct mm_xtenant **ret_tenant);
/* Nothing of it may be on the device. */
void mm_xtenant_destroy(struct mm_xtenant *tenant);

/**
 * mm_xtenant_activate() - serve the plan in the plan region from where its cursors stand
 * @tenant: not copying
 * @epoch:  that the plan region must carry; of the active plan: nothing happens
 *
 * Return: 0; -EINVAL the plan or a cursor is impossible; -ESTALE another epoch; -ENOENT no such
 * store.
 */
int mm_xtenant_activate(struct mm_xtenant *tenant, uint64_t epoch);

/**
 * mm_xtenant_replan() - go over to the plan in the plan region
 * @tenant: its process is parked: it uses no layer before this has succeeded
 * @epoch:  that the plan region must carry; of the active plan: nothing happens
 *
 * Where nothing is active (a new xfer) it serves the plan from the start, but slots whose cursors
 * carry the epoch already from where these stand.
 * Return: 0; -EINPROGRESS copies into slots that change are still landing, ask again; else as
 * mm_xtenant_activate().
 */
int mm_xtenant_replan(struct mm_xtenant *tenant, uint64_t epoch);

/* From now on touches no gate and no cursor; what is on the device lands in peace. */
void mm_xtenant_quiesce(struct mm_xtenant *tenant);

/* Is anything of it still on the device? */
static inline bool mm_xtenant_copying(const struct mm_xtenant *tenant)
{
	return mm_cycles_copying(&tenant->cycles);
}

/* Of its active plan. */
static inline uint64_t mm_xtenant_epoch(const struct mm_xtenant *tenant)
{
	return tenant->cycles.plan.epoch;
}

/* Does its active plan, or what is on the device, read @store? */
bool mm_xtenant_uses(const struct mm_xtenant *tenant, const struct mm_xstore *store);

/* Does its active plan have layers that cycle? */
static inline bool mm_xtenant_cycles(const struct mm_xtenant *tenant)
{
	return tenant->cycles.active && tenant->cycles.plan.n_slots > 0;
}

/* Is a step open, says the tenant? */
bool mm_xtenant_in_step(const struct mm_xtenant *tenant);

/* Look at the gates of the layers in the slots; start what is due. */
void mm_xtenant_poll(struct mm_xtenant *tenant, uint64_t now_ns);
