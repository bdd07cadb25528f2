/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worth - how many layers of a model may be away, by the cost of streaming them
 *
 * Concept:   A search over numbers of layers, each with the set that it would get and its cost
 *            (cost.h).
 * Ownership: struct mm_c_lends keeps the last results while what they depend on stays the same.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * Returns the most layers that may be away within the cap: of an active model while streaming stays
 * hidden, of an idle one while its steps would stay within the knob wake if it ran now. @more:
 * factor of the tolerance for active models.
 */
uint32_t mm_c_alpha_cap(struct mm_core *c, struct mm_c_tenant *t, uint32_t more);
/*
 * Returns whether streaming stays hidden with @alpha layers away, fewer than the cap; that is not
 * so for each number below the cap.
 */
bool mm_c_alpha_is_hidden(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha);
/*
 * Returns the number of layers, at most those away now, with the most KV memory per time of a step:
 * up to there the additional KV outweighs the longer steps. @kv_pages: KV memory now. Assumes that
 * no other tenant uses the link.
 */
uint32_t mm_c_alpha_worthwhile(const struct mm_core *c, struct mm_c_tenant *t, uint64_t kv_pages);
/* Drops the results for @t, since the operator has changed what it may lend. */
void mm_c_caps_void(struct mm_c_tenant *t);
