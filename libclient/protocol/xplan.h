/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xplan - what core and xfer share besides their sockets: jobs, plans, cursors
 *
 * Concept:   two rings of struct mm_msg (opcodes MM_XOP_*) in two memfds carry jobs and their
 *            completions. For each tenant there is a plan, which core writes, and the cursors of
 *            its slots, which xfer writes; how the slots move is mm_cycles'
 *            (libclient/protocol/cycle.h).
 * Trust:     both sides are mmd's; no tenant maps any of this writable. xfer copies a plan and
 *            checks the copy; core checks what xfer says like a peer's.
 * Lifetime:  cursors survive xfer: they are all that a new one knows of what the last one was at.
 */
#pragma once

#include "mm/abi.h"

/* ---- rings of struct mm_msg; user_data = job id, echoed with result ---- */

#define MM_XQ_SLOTS 4096

enum mm_xop { /* arg[] in order */
	      MM_XOP_NOP,
	      MM_XOP_CREATE, /* first page id, count: create and export -> X_PAGES on the socket, then done */
	      MM_XOP_SCRUB,    /* page */
	      MM_XOP_COPY,     /* page; store; store offset; bytes (rest of the page is zeroed) */
	      MM_XOP_RECREATE, /* page: drop every reference, create anew -> X_PAGES, then done;
			  * -ENOMEM: somebody still holds the memory */
	      MM_XOP_ACTIVATE, /* tenant; epoch in .epoch: read the plan region, serve it; of the active epoch: no-op */
	      MM_XOP_QUIESCE, /* tenant; epoch: finish or drop what runs, touch no slot or gate of it any more */
	      MM_XOP_DETACH,     /* tenant: quiesce and unmap its regions */
	      MM_XOP_STORE_DROP, /* store */
	      MM_XOP_SWAP_OUT, /* tenant | lot << 32; byte of the pool; byte of its swap space; bytes */
	      MM_XOP_SWAP_IN, /* the same, from the swap space into the pool */
	      MM_XOP_REPLAN, /* tenant; epoch: go over to the plan in the region. Slots that it leaves as
			* they are are served without a pause; while the tenant is parked */
	      MM_XOP_COUNT
};

/*
 * A SWAP job stays within a page, and within one such part of the swap space: registered at once.
 */
#define MM_SWAP_PART_BYTES (UINT64_C(128) << 20)
#define MM_SWAP_JOB_BYTES  (UINT64_C(4) << 20) /* at most */

/*
 * The most that xfer scrubs as one batch, unless a page is larger: it takes a large GPU some ten
 * microseconds, so that a copy behind it does not wait for long.
 */
#define MM_XSCRUB_BYTES (UINT64_C(128) << 20)

struct mm_xq_region {          /* one memfd per writer: core's carries jobs, xfer's completions */
	struct mm_cursor tail; /* of the slots below: what the writer has produced */
	struct mm_cursor head; /* of the other region's slots: what the writer has consumed */
	mm_msg_slot slot[MM_XQ_SLOTS];
};

/*
 * ---- core -> xfer: a tenant's plan; xfer reads it only on ACTIVATE and REPLAN, but for open ----
 */

#define MM_SLOTS_MAX         2
#define MM_SLOT_PAGES_MAX    4096
#define MM_XPLAN_LAYER_WORDS 16 /* a bit per layer */
/* So many layers, from the first, are mapped as the plan of that epoch says. */
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
	uint32_t in_place;    /* a new slot in which layer[0] is already */
	uint32_t reserved;
};

struct mm_xplan_region {
	uint64_t epoch;
	uint64_t store_id;
	uint32_t n_layers; /* of the model: gates in use */
	uint32_t n_slots;
	struct mm_xplan_layer layer[MM_LAYERS_MAX + 1]; /* by layer */
	struct mm_xplan_slot slot[MM_SLOTS_MAX];
	/*
	 * Layers that get no READY before the tenant has mapped them: while open < MM_XPLAN_OPEN().
	 */
	uint64_t closed[MM_XPLAN_LAYER_WORDS];
	uint64_t open; /* grows; written at any time */
};

/*
 * ---- xfer -> core: cursors and measurements; survive xfer (protocol.md: intent before the copy)
 * ----
 */

enum mm_cursor_state { MM_CUR_HELD, MM_CUR_COPYING };

struct mm_xcursor {
	uint64_t epoch;
	uint32_t state; /* enum mm_cursor_state */
	uint32_t
		pos; /* HELD: index in slot.layer[] of the occupant; COPYING: of the one coming in */
	uint64_t reserved[6];
};
static_assert(sizeof(struct mm_xcursor) == 64, "ABI");

struct mm_xcursor_region {
	struct mm_xcursor slot[MM_SLOTS_MAX];
	uint64_t bytes_streamed; /* layers brought back under a plan, over the tenant's life */
	uint64_t layers_streamed;
	uint64_t copy_ns; /* of them, DONE seen to READY written */
	uint64_t copy_last_ns;
	uint64_t reserved[44];
};
static_assert(sizeof(struct mm_xcursor_region) == 512, "ABI");
