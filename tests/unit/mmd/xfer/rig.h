/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rig - a tenant with cold blocks, and what core does for it, against a real xfer
 *
 * Concept:   The swap space has a slot for each entry, whose rows have a pattern of their own, by
 *            entry, layer and generation; entries are set and cleared as an engine does it.
 * Ownership: rig_done() after rig_prepare(); the core is the caller's.
 * Threading: one thread.
 */
#pragma once

#include "tests/unit/mmd/xfer/core.h"
#include "tests/unit/mmd/xfer/shape.h"

#define LAYER_BYTES  (GRANULE + 4104)
#define STRIDE       (2 * GRANULE)
#define STORE_LAYERS SHAPE_LAYERS
#define SLOT_PAGES   2
#define WINDOW_PAGES 12
#define ENTRIES_MAX  800

/* Two sets of pages for each slot and for the window, so that each can move. */
extern const uint32_t slot_pages[2][2][SLOT_PAGES];
extern const uint32_t window_pages[2][WINDOW_PAGES];

struct entry {
	bool live, used; /* used: the step that is open reads it */
	uint64_t version;
	uint32_t generation; /* of its bytes */
};

struct rig {
	struct core *core;
	uint32_t layers, classes;
	uint64_t unit_bytes;
	uint32_t entries; /* of the swap space */
	struct mm_region space;
	uint64_t epoch;
	struct shape now;
	const uint32_t *mapped[STORE_LAYERS]; /* NULL: resident */
	unsigned int seed;
	uint64_t version;
	struct entry entry[ENTRIES_MAX];
	uint64_t rows_compared;
};

struct mm_gate_region *rig_gates(const struct rig *r);
struct mm_xplan_region *rig_plan(const struct rig *r);
struct mm_xcursor_region *rig_cursors(const struct rig *r);
uint64_t rig_gate(const struct rig *r, uint32_t layer);
void rig_put_gate(const struct rig *r, uint32_t layer, uint64_t word);
uint64_t rig_acked(const struct rig *r);
/* Waits until the gate lets a step pass. */
void rig_wait_ready(const struct rig *r, uint32_t layer);
/* Entries that @shape has room for. */
uint32_t rig_window_entries(const struct rig *r, const struct shape *shape);
/* Writes the plan region. */
void rig_write_plan(const struct rig *r, const struct shape *shape, uint64_t epoch);
uint32_t rig_random(struct rig *r, uint32_t n);
/* Fills the rows of @entry anew; its hot block is taken to have left. */
void rig_set_entry(struct rig *r, uint32_t entry);
void rig_clear_entry(struct rig *r, uint32_t entry);
void rig_next_version(struct rig *r);
/* Reads device memory at byte @at of the window. */
void rig_read_window(const struct rig *r, const struct shape *shape, uint64_t at, void *to,
		     uint64_t bytes);
/* Whether the window has the row of @entry for @layer. */
bool rig_row_is(const struct rig *r, const struct shape *shape, uint32_t entry, uint32_t layer);
/* Runs a job of the tenant. */
int rig_job(const struct rig *r, enum mm_xop op, uint64_t epoch);
void rig_send_space(const struct rig *r);
/* Kills xfer, and starts another as core would. */
void rig_restart(const struct rig *r);
/* Starts xfer, and sends it a store, the tenant and its swap space; all gates are EMPTY. */
void rig_prepare(struct rig *r, struct core *core, uint32_t layers, uint64_t unit_bytes,
		 uint32_t entries);
void rig_done(struct rig *r);
