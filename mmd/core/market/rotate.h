/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotate - memory among tenants that share a device in turns
 *
 * Concept:   only one of them computes, so only its layers must be there: those of the others hold
 *            KV. When the turn goes on, the next one's layers come home into pages that the others'
 *            layers leave. For this never more is lent than the others of whoever may be next can
 *            lend; what was taken for somebody's layers is kept for them; and whoever has waited
 *            longest lends last, and gets its layers before its turn as far as the others have any
 *            left to lend.
 * KV:        who computes and has less than its part of the KV memory, by shares, gets it from those that have more.
 * Ownership: works on struct mm_core; keeps in its turn what is being fetched, and for whom.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Pages more that @lender may lend to whoever computes now. */
uint64_t mm_c_turns_may_lend(const struct mm_core *c, const struct mm_c_tenant *lender);
/*
 * Its layers return: at once if what is free beyond @kept_pages is enough for all, or nothing more
 * is to be had; else that is arranged for. Returns pages to be kept for it.
 */
uint64_t mm_c_bring_home(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept_pages);
/* Remembers when the holder's layers were there. */
void mm_c_note_home(struct mm_core *c);
/* Of what is free and comes, for layers that others lend instead. */
uint64_t mm_c_turns_kept(const struct mm_core *c);
/* Whose turn is next gets layers home that others lend instead. */
void mm_c_prefetch(struct mm_core *c, uint64_t kept_pages);
/* For whose turn it is: chunks that others have beyond their part. Returns how many pages come. */
uint64_t mm_c_take_parts(struct mm_core *c, uint64_t short_pages, bool dry);
