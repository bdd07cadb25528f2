/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xplan - memory that core and xfer share: jobs, plans, cursors
 *
 * Concept:   Two rings of struct mm_msg (opcodes MM_XOP_*) in two memfds carry jobs and their
 *            completions. For each tenant there is a plan, which core writes, and the cursors of
 *            its slots, which xfer writes as mm_cycles decides (libclient/protocol/cycle.h).
 * Ownership: core creates the regions; both sides map them.
 * Threading: one side at a time writes a word. The cursors and the member open of a plan are read
 *            while they are written: stored with release, loaded with acquire.
 * Trust:     both sides are mmd's; no tenant maps any of this writable. xfer copies a plan and
 *            checks the copy; core checks what xfer writes as it checks a tenant's.
 * Lifetime:  cursors survive xfer: a new xfer knows nothing else about what the last one did.
 */
#pragma once

#include "mm/abi.h"

/* ---- rings of struct mm_msg; user_data: id of the job, echoed with its result ---- */

#define MM_XQ_SLOTS 4096

/* The comments give arg[] in order. */
enum mm_xop {
	MM_XOP_NOP,
	/* first page id, count: create and export; X_PAGES on the socket comes first */
	MM_XOP_CREATE,
	MM_XOP_SCRUB, /* page */
	MM_XOP_COPY,  /* page; store; store offset; bytes (rest of the page is zeroed) */
	/*
	 * page: drop every reference, create a new page -> X_PAGES, then done; -ENOMEM:
	 * another process still holds the memory
	 */
	MM_XOP_RECREATE,
	/*
	 * tenant; epoch in .epoch: read the plan region, serve it; no-op if that epoch is
	 * active
	 */
	MM_XOP_ACTIVATE,
	/*
	 * tenant; epoch: finish or drop what runs, write no slot and no gate of it any more
	 */
	MM_XOP_QUIESCE,
	MM_XOP_DETACH,     /* tenant: quiesce and unmap its regions */
	MM_XOP_STORE_DROP, /* store */
	MM_XOP_SWAP_OUT,   /* tenant | lot << 32; byte of the pool; byte of its swap space; bytes */
	MM_XOP_SWAP_IN,    /* as SWAP_OUT, from the swap space into the pool */
	/*
	 * tenant; epoch: change to the plan in the region, while the tenant is parked; slots
	 * that it does not change are served without a pause
	 */
	MM_XOP_REPLAN,
	MM_XOP_COUNT
};

/*
 * A SWAP job stays within a page, and within one such part of the swap space, which is registered
 * as a whole.
 */
#define MM_SWAP_PART_BYTES (UINT64_C(128) << 20)
#define MM_SWAP_JOB_BYTES  (UINT64_C(16) << 20) /* bytes of a job, at most */

/*
 * The most that xfer scrubs as one batch, unless a page is larger: it takes a large GPU some ten
 * microseconds, so a copy behind it does not wait long.
 */
#define MM_XSCRUB_BYTES (UINT64_C(128) << 20)

/* There is one memfd per writer: core's carries jobs, xfer's carries completions. */
struct mm_xq_region {
	struct mm_cursor tail; /* of the slots below: entries that the writer has produced */
	/* of the other region's slots: entries that the writer has consumed */
	struct mm_cursor head;
	mm_msg_slot slot[MM_XQ_SLOTS];
};

/* ---- core -> xfer: a tenant's plan ---- */

/* xfer reads it on ACTIVATE and REPLAN only, except the member open. */

#define MM_SLOTS_MAX         2
#define MM_SLOT_PAGES_MAX    4096
#define MM_XPLAN_LAYER_WORDS 16 /* one bit per layer */
/* The first @layers layers are mapped as the plan of @epoch has them. */
#define MM_XPLAN_OPEN(epoch, layers) ((uint64_t)(epoch) << 16 | (layers))

struct mm_xplan_layer {
	uint64_t store_offset;
	uint64_t bytes;
};

struct mm_xplan_slot {
	uint32_t n_layers; /* >= 2: a slot with one layer is ambiguous (protocol.md) */
	uint32_t n_pages;
	uint32_t page[MM_SLOT_PAGES_MAX];
	uint16_t layer[1024]; /* in order of execution */
	uint32_t in_place;    /* a new slot that has layer[0] in it already */
	uint32_t reserved;
};

/* Cold blocks under this plan (libclient/protocol/cold.h); classes 0: none are streamed. */
struct mm_xplan_cold {
	uint32_t classes;
	uint32_t entries;    /* that have room in the window */
	uint64_t unit_bytes; /* of a block in one layer */
	uint32_t n_pages;
	uint32_t reserved;
	uint32_t page[MM_SLOT_PAGES_MAX]; /* of the window, in order of its addresses */
};

/* The last two members are not there in regions of builds without cold blocks. */
struct mm_xplan_region {
	uint64_t epoch;
	uint64_t store_id;
	uint32_t n_layers; /* layers of the model: gates in use */
	uint32_t n_slots;
	struct mm_xplan_layer layer[MM_LAYERS_MAX + 1]; /* by number of the layer */
	struct mm_xplan_slot slot[MM_SLOTS_MAX];
	/*
	 * One bit per layer: set = the layer gets no READY before the tenant has mapped it, that is
	 * while open < MM_XPLAN_OPEN(epoch, layer + 1).
	 */
	uint64_t closed[MM_XPLAN_LAYER_WORDS];
	uint64_t open; /* MM_XPLAN_OPEN(); only grows; core writes it at any time */
	/* of the live entries the lowest so many are streamed; core writes it at any time */
	uint64_t cold_limit;
	struct mm_xplan_cold cold;
};
/* Bytes of the first version: a region may be this short. */
#define MM_XPLAN_REGION_BYTES_MIN offsetof(struct mm_xplan_region, cold_limit)

/* ---- xfer -> core: cursors and measurements ---- */

/* They survive xfer (protocol.md: intent before the copy). */

enum mm_cursor_state { MM_CUR_HELD, MM_CUR_COPYING };

struct mm_xcursor {
	uint64_t epoch;
	uint32_t state; /* enum mm_cursor_state */
	/* HELD: index in slot.layer[] of the occupant; COPYING: of the layer being copied in */
	uint32_t pos;
	uint64_t version; /* of a class: of the live bitmap that its layer is streamed with */
	uint64_t reserved[5];
};
static_assert(sizeof(struct mm_xcursor) == 64, "ABI");

struct mm_xcursor_region {
	struct mm_xcursor slot[MM_SLOTS_MAX];
	/* bytes of layers that were streamed in under a plan, over the tenant's life */
	uint64_t bytes_streamed;
	uint64_t layers_streamed;
	uint64_t copy_ns; /* sum over those layers, from DONE seen to READY written */
	uint64_t copy_last_ns;
	struct mm_xcursor cold[MM_COLD_CLASSES_MAX]; /* one per class */
	uint64_t cold_bytes; /* of live entries that were streamed, over the tenant's life */
	uint64_t cold_rows;  /* entries in one layer that were streamed */
	uint64_t reserved[10];
};
static_assert(sizeof(struct mm_xcursor_region) == 512, "ABI");
