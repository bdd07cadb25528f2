/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grant - free pages go to demands for KV, a chunk at a time; what cannot come is denied
 *
 * Concept:   In order of rank (rank.h), within accounts' maxes and up to each tenant's target. A
 *            demand that cannot be served has pages kept back for it if they come soon, or if it
 *            has waited long, so that small chunks do not starve one with big ones.
 * Ownership: works on struct mm_core; keeps nothing of its own.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Grants chunks from free pages beyond @kept, and to tenants that have some beyond @layers, too:
 * pages that are kept for layers.
 */
void mm_c_kv_demands_serve(struct mm_core *c, uint64_t kept, uint64_t layers);
/*
 * In order of rank, tenants whose demand is covered by @coming pages go on waiting, and the others
 * are denied; so are those that may have no more by their target or the policy.
 */
void mm_c_kv_demands_deny(struct mm_core *c, uint64_t coming);
