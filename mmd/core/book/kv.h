/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv - KV memory that a tenant holds
 *
 * Ownership:  a tenant's, as a part of it; what it wants is the market's (wish.h).
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
	uint32_t chunk_pages; /* all ranges */
	uint32_t ranges;
	uint32_t chunks_max;
	uint32_t share;
	uint32_t held;
	uint64_t releases; /* requests that it has made so far */
	uint64_t held_map[MM_KV_ENTRIES / 64];
};

/* 0; or why not: -EEXIST, -EINVAL, -E2BIG. */
int mm_c_kv_declare(const struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
uint32_t mm_c_kv_chunk_page(const struct mm_c_tenant *t, uint32_t chunk, uint32_t i);
bool mm_c_kv_holds(const struct mm_c_tenant *t, uint32_t chunk);
/* Gives it one chunk more; the caller knows that its pages can be reserved. */
void mm_c_kv_give(struct mm_core *c, struct mm_c_tenant *t);
/* It gave @chunk back, which it held. */
void mm_c_kv_drop(struct mm_core *c, struct mm_c_tenant *t, uint32_t chunk);
