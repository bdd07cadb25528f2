/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mm_xtenant - a tenant whose plan xfer serves
 *
 * Concept:   Each slot has a cursor in memory that only mmd's side can write: HELD(i) when layer i
 *            of the slot's cycle is in the slot, COPYING(i) while layer i is being copied in. This
 *            order lets a new xfer go on after a kill at any instant:
 *              HELD(i), gate shows DONE -> write COPYING(i+1) -> clear the gate to EMPTY -> copy
 *              copied                   -> write READY to gate i+1 -> write HELD(i+1)
 *            A new xfer that finds COPYING(j) copies only if gate j is EMPTY; otherwise READY was
 *            written already, the tenant may be using the layer, and the cursor becomes HELD(j).
 *            A layer that the plan closes gets its READY only when core opens it; until then the
 *            cursor stays COPYING, and a new xfer copies again.
 * Cold:      while cold blocks are streamed, each class has a cursor, too, and with its intent the
 *            version of the live bitmap that its next rows were chosen by. The least of these is
 *            what the tenant gets as acknowledged: whatever steps read from then on is of it or of
 *            a later one.
 * Replan:    from one plan to the next while the tenant is parked. A slot that keeps its pages and
 *            layers goes on. The copy of any other slot is dropped, unless it brings the layer that
 *            is needed first to the same pages; its gates are emptied, and it begins at its first
 *            layer. A cursor whose epoch is not the plan's belongs to a slot that a kill kept from
 *            getting that far.
 * Trust:     the plan comes from core and is checked once, into a private copy. Gates are written
 *            by the tenant too: a false word in one can corrupt that tenant's results only.
 * Ownership: the list in struct mm_xfer owns the tenants; a tenant is destroyed only when nothing
 *            of it is on the device.
 * Threading: one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "libclient/ipc/region.h"
#include "libclient/protocol/cycle.h"
#include "mmd/xfer/cold.h"
#include "mmd/xfer/link.h"

/* The state of a cursor beside its machine (mm_cycles). */
struct mm_xcycle {
	struct mm_xtransfer transfer;
	struct mm_xtenant *tenant;
	uint32_t cursor;
	uint64_t since_ns; /* when its gate showed DONE */
};

struct mm_xtenant {
	uint64_t id;
	struct mm_region gate, plan_region, cursor;
	uint64_t gate_inode;
	struct mm_xlink *link;
	const struct mm_xpool *pool;
	struct mm_xflow flow;
	/* why its plan cannot be served, until core has been sent it; 0: no failure */
	int failure;
	uint64_t polled_ns;                /* when its gates were polled last */
	struct mm_xplan_region *plan;      /* private copy of the active plan */
	struct mm_xplan_region *next_plan; /* private copy of the plan that a replan goes over to */
	struct mm_xstore *store;           /* the store of the active plan */
	struct mm_cycles cycles;
	struct mm_xcycle cycle[MM_CYCLES_MAX];
	struct mm_xcold *cold;
	struct mm_xswap *const *swaps; /* the list; NULL: none */
	/*
	 * Layers that the tenant has passed, as far as its gates were seen, counted on over the
	 * steps: what each copy is due at is counted likewise.
	 */
	uint64_t passed;
	struct mm_xtenant *next;
};

/* Takes over the three fds (gate, plan, cursor), also on failure. -EPROTO; -ENOMEM. */
int mm_xtenant_create(uint64_t id, const int fds[3], struct mm_xlink *link,
		      struct mm_xtenant **ret_tenant);
/* Nothing of the tenant may be on the device. */
void mm_xtenant_destroy(struct mm_xtenant *tenant);

/**
 * mm_xtenant_activate() - serve the plan in the plan region from where its cursors stand
 * @tenant: not copying
 * @epoch:  that the plan region must carry; the active plan's: nothing happens
 *
 * Return: 0; -EBUSY another plan is active or a copy is on the device; -EINVAL the plan or a cursor
 * is impossible; -ESTALE another epoch; -ENOENT no such store; -ENOMEM the window cannot be mapped.
 */
int mm_xtenant_activate(struct mm_xtenant *tenant, uint64_t epoch);

/**
 * mm_xtenant_replan() - go over to the plan in the plan region
 * @tenant: parked: its process uses no layer before this has succeeded
 * @epoch:  that the plan region must carry; the active plan's: nothing happens
 *
 * Where no plan is active (in a new xfer, or if no layers cycled before), it serves the plan: slots
 * whose cursors carry its epoch go on from there, the others begin at their first layer.
 * Return: 0; -EINPROGRESS copies into slots that change are still landing, call again; else as
 * mm_xtenant_activate().
 */
int mm_xtenant_replan(struct mm_xtenant *tenant, uint64_t epoch);

/*
 * Writes no gate and no cursor from now on; copies that are on the device still land. The window of
 * cold blocks is unmapped by the call that finds none any more.
 */
void mm_xtenant_quiesce(struct mm_xtenant *tenant);

/* True while a copy of the tenant is on the device. */
static inline bool mm_xtenant_copying(const struct mm_xtenant *tenant)
{
	return mm_cycles_copying(&tenant->cycles);
}

/* The epoch of the active plan. */
static inline uint64_t mm_xtenant_epoch(const struct mm_xtenant *tenant)
{
	return tenant->cycles.plan.epoch;
}

/* True if the active plan, or a copy on the device, reads @store. */
bool mm_xtenant_uses(const struct mm_xtenant *tenant, const struct mm_xstore *store);

/* True if the active plan has layers that cycle. */
static inline bool mm_xtenant_cycles(const struct mm_xtenant *tenant)
{
	return tenant->cycles.active &&
	       (tenant->cycles.plan.n_slots > 0 || tenant->cycles.plan.cold.classes > 0);
}

/* True if the tenant's step counter shows an open step. The tenant writes it: a claim. */
bool mm_xtenant_in_step(const struct mm_xtenant *tenant);

/* Reads the gates of the layers in the slots; starts the copies that are due. */
void mm_xtenant_poll(struct mm_xtenant *tenant, uint64_t now_ns);
