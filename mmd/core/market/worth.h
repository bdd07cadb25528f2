/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worth - how many layers of a model may be away, by what that costs
 *
 * Ownership: the last answers lie in struct mm_c_lends, for as long as the questions are the same.
 * Threading: core thread only.
 */
#pragma once

#include "mmd/core/book/book.h"

/*
 * The most layers that may be away: of an idle model by the cap, and as many as it could live with
 * if it woke now; of an active one while streaming hides. @more: times what is tolerated otherwise.
 */
uint32_t mm_c_alpha_cap(struct mm_core *c, struct mm_c_tenant *t, uint32_t more);
/*
 * If @alpha layers were away, fewer than its cap, would it be as little noticed as at the cap? Not
 * so of every number.
 */
bool mm_c_alpha_hides(struct mm_core *c, struct mm_c_tenant *t, uint32_t alpha);
/*
 * Of the layers that are away, how many pay: as many more sequences fit the KV memory, of @kv_pages
 * now, as the steps are longer for it. Alone on the link.
 */
uint32_t mm_c_alpha_pays(const struct mm_core *c, struct mm_c_tenant *t, uint64_t kv_pages);
/* What it may lend has changed by the operator's word: the answers are looked for anew. */
void mm_c_caps_void(struct mm_c_tenant *t);
