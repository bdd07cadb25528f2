/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem - memory of a third kind: neither weights nor KV
 *
 * Concept:    Activations, workspaces, pools of graphs. The tenant names entries of the map table
 *             behind its arena and gets a page for each, all or none. Such pages are charged to its
 *             account like others and are never taken back, so a tenant gets only pages that are
 *             free, and only up to its share: what would be its part if the pool were divided among
 *             the accounts by weight, and the account's part among its tenants. The min of an
 *             account counts as its part if it is more.
 * Waiting:    Pages that are being created or scrubbed count as free: a request waits for them, for
 *             MM_MEM_WAIT_NS at most, and nobody else is given them meanwhile.
 * Ownership:  a part of the tenant.
 * Threading:  core thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mm/abi.h"

struct mm_core;
struct mm_c_tenant;

#define MM_MEM_WAIT_NS (2 * MM_NS_PER_S)

struct mm_c_mem {
	uint32_t held;  /* pages */
	uint32_t depth; /* only so many entries at the end of the map table were ever used */
	struct {        /* the request that waits for pages that come free; pages 0: none */
		uint64_t user_data, until_ns;
		uint32_t entry, pages;
	} wait;
};

/* Requests of the tenant. Return: 0; MM_E_PROTOCOL. */
int mm_c_mem_alloc(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
int mm_c_mem_free(struct mm_core *c, struct mm_c_tenant *t, const struct mm_msg *msg);
/* Part of settling: answers the request that waits, if its pages are free, or will not be. */
void mm_c_mem_settle(struct mm_core *c, struct mm_c_tenant *t);
/* Returns the pages that requests wait for, of all tenants: they are kept for them. */
uint64_t mm_c_mem_waiting(const struct mm_core *c);
/* Returns when the first of them is given up; UINT64_MAX: none waits. */
uint64_t mm_c_mem_deadline(const struct mm_core *c);
/* The tenant ends: its pages are REVOKING, and nothing is answered any more. */
void mm_c_mem_revoke(struct mm_core *c, struct mm_c_tenant *t);
/* Returns how many pages more the tenant's share leaves. */
uint64_t mm_c_mem_left(const struct mm_core *c, const struct mm_c_tenant *t);
