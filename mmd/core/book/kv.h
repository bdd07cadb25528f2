/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv - the KV memory that a tenant holds
 *
 * Concept:    An arena of chunks_max chunks, each chunk_pages pages over all ranges; a bit per
 *             chunk that the tenant holds.
 * Ownership:  a part of the tenant; its demand belongs to the market.
 * Threading:  core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"

struct mm_core;
struct mm_c_tenant;

#define MM_KV_ENTRIES (MM_MAP_ENTRIES - MM_MAP_KV_BASE)

struct mm_c_kv {
	bool declared;
	uint32_t chunk_pages; /* pages of a chunk, over all ranges */
	uint32_t ranges;
	uint32_t chunks_max;
	uint32_t share;
	uint32_t held;
	uint64_t releases; /* number of release requests so far */
	/* A rank is granted what its group says (group.h). */
	bool grouped;
	uint32_t offer; /* the only chunk that it may be granted next; MM_NO_CHUNK: none */
	uint32_t most;  /* chunks that it can use: what it wants beyond is no demand */
	uint32_t first; /* free chunks from here on are granted first */
	uint64_t held_map[MM_KV_ENTRIES / 64];
};

/* Declares the arena. Returns 0, -EEXIST, -EINVAL or -E2BIG. */
int mm_c_kv_declare(const struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/* Returns the @i-th page of a chunk that the tenant holds. */
uint32_t mm_c_kv_chunk_page(const struct mm_c_tenant *t, uint32_t chunk, uint32_t i);
/* True if the tenant holds the chunk. */
bool mm_c_kv_holds(const struct mm_c_tenant *t, uint32_t chunk);
/*
 * True if a chunk from @first to @end is one of a window of cold blocks: of the plan in force, of
 * the one before until the change is done, or of one that was requested.
 */
bool mm_c_kv_in_window(const struct mm_c_tenant *t, uint64_t first, uint64_t end);
/* Grants the tenant one more chunk; the caller has checked that its pages can be reserved. */
void mm_c_kv_give(struct mm_core *c, struct mm_c_tenant *t);
/* Takes back @chunk, which the tenant held and has released. */
void mm_c_kv_drop(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunk);
