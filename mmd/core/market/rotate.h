/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rotate - memory among tenants that share a device in turns
 *
 * Concept:   Only the holder of the turn computes, so only its layers must be resident; pages of
 *            the others' layers hold KV. When the turn passes on, the next holder's layers return
 *            into pages that the others' layers leave. For this, never more is lent than all
 *            tenants but one can lend, whichever is next. Pages that were taken for a tenant's
 *            layers are kept for them. The tenant that is next lends last, and gets its layers
 *            before its turn as far as the others have any left to lend.
 * KV:        A holder that has less than its part of the KV memory, by shares, gets chunks from
 *            tenants that have more than theirs.
 * Ownership: works on struct mm_core; keeps only home_ns of struct mm_c_turn.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/* Returns how many more pages @lender may lend; UINT64_MAX: no bound, since it does not rotate. */
uint64_t mm_c_turns_may_lend(const struct mm_core *c, const struct mm_c_tenant *lender);
/*
 * Returns @t's layers: at once if pages that are free beyond @kept_pages suffice for all, or if no
 * more can be had; otherwise takes more. Returns how many pages must be kept for them.
 */
uint64_t mm_c_bring_home(struct mm_core *c, struct mm_c_tenant *t, uint64_t kept_pages);
/* Notes the time when all layers of the holder are resident. */
void mm_c_note_home(struct mm_core *c);
/*
 * Returns how many pages, free or on their way, are kept for layers of the holder and the next one.
 */
uint64_t mm_c_turns_kept(const struct mm_core *c);
/*
 * Returns layers of the next holder before its turn, from free pages beyond @kept_pages; layers of
 * the other tenants are taken to make room.
 */
void mm_c_prefetch(struct mm_core *c, uint64_t kept_pages);
/*
 * Reclaims chunks for the holder from tenants that have more than their part. Returns how many
 * pages will come. @dry_run: changes nothing.
 */
uint64_t mm_c_take_parts(struct mm_core *c, uint64_t short_pages, bool dry_run);
